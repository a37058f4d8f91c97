//! The steps of a restorer: it sees a Node, reads its record, and patches the Node. It remembers nothing, so a killed restorer only stops.

use crate::guard::Guard;
use crate::model::{Model, Next, Step, Who};
use crate::promise::Property;
use crate::world::{KEYS, Marker, Name, Node, PROCESSES, Patch, Restoring, World};

impl Model {
    pub(super) fn restorer(&mut self, world: &World, at: usize, who: usize, next: &mut Vec<Next>) {
        let mut push = |what, result| next.push((Step { name: at, who: Who::Restorer(who), what }, result));
        let name = &world.names[at];
        let mut with = |job, what| {
            let mut world = *world;
            world.names[at].restorers[who] = job;
            push(what, Ok(world));
        };
        match (name.restorers[who], name.node) {
            (Restoring::Idle, _) if !self.protocol.has(Guard::FreshRecord) => {
                if let Some(record) = name.record {
                    with(Restoring::ReadFirst { record, since: [true; PROCESSES] }, "reads the record");
                }
            }
            (Restoring::Idle, Some(node)) => {
                if let Some(patch) = self.protocol.restore(at, node, name.record) {
                    with(Restoring::Sent(patch), "sees the node, reads the record, and sends a patch");
                }
            }
            (Restoring::ReadFirst { record, since }, Some(node)) => {
                let patch = self.protocol.restore(at, node, Some(record));
                let job = patch.map_or(Restoring::Idle, |patch| Restoring::Sent(Patch { since, ..patch }));
                with(job, "sees the node, and sends a patch");
            }
            (Restoring::Sent(patch), _) => self.send_patch(world, at, who, patch, next),
            (Restoring::Idle | Restoring::ReadFirst { .. }, None) => (),
        }
    }

    /// A lost answer makes no difference, because a restorer remembers nothing. A lost patch is no step: it changes nothing.
    fn send_patch(&mut self, world: &World, at: usize, who: usize, patch: Patch, next: &mut Vec<Next>) {
        let step = |what| Step { name: at, who: Who::Restorer(who), what };
        let mut sent = *world;
        sent.names[at].restorers[who] = Restoring::Idle;
        let mut patched = sent;
        let result = self.carry_out_patch(&mut patched.names[at], &patch).map(|()| patched);
        next.push((step("patches the node"), result));
        if world.left.late > 0 && world.names[at].late_patch.is_none() {
            sent.left.late -= 1;
            sent.names[at].late_patch = Some(patch);
            next.push((step("gives up on its patch, which is still on its way"), Ok(sent)));
        }
    }

    /// Carries a patch out. Its guards hold: `node_moves` drops patches that would be refused.
    pub(super) fn carry_out_patch(&self, name: &mut Name, patch: &Patch) -> Result<(), Property> {
        let Some(node) = name.node else { return Ok(()) };
        name.node_is_patched(&node, patch)?;
        self.node_moves(name, |name, _| {
            let labels: [u8; KEYS] =
                std::array::from_fn(
                    |key| if patch.labels[key] > 0 { patch.labels[key] } else { node.labels[key] },
                );
            let marker = Some(Marker { uid: node.uid, object: patch.object, generation: patch.generation });
            name.node = Some(Node { version: name.version, labels, marker, ..node });
        });
        Ok(())
    }
}
