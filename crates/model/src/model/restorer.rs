//! The steps of a restorer: its watch reports deletions; it sees a Node, reads its record, and patches the Node; it is killed.

use crate::guard::Guard;
use crate::model::{Model, Next, RestorerWatch, Resume, Step, Who};
use crate::promise::Property;
use crate::world::{
    Deletion, KEYS, Kept, Marker, Name, Node, PROCESSES, Patch, Restorer, Restoring, Watcher, World,
};

impl Model {
    pub(super) fn restorer(&mut self, world: &World, at: usize, who: usize, next: &mut Vec<Next>) {
        let mut push = |what, result| next.push((Step { name: at, who: Who::Restorer(who), what }, result));
        let name = &world.names[at];
        let restorer = name.restorers[who];
        let has_received = restorer.watcher.heard == name.deletions;
        if !has_received {
            let mut world = *world;
            self.restorer_hears(&mut world.names[at], at, who);
            push("receives the deletion", Ok(world));
        }
        let watches = self.config.watch && self.config.restorer_watch != RestorerWatch::Off;
        let is_blind = !watches || !has_received || restorer.is_blind;
        let final_labels = if is_blind { Kept::default() } else { self.needed(name, at, who) };
        let mut with = |job, what| {
            let mut world = *world;
            world.names[at].restorers[who].job = job;
            push(what, Ok(world));
        };
        match (restorer.job, name.node) {
            (Restoring::Idle, _) if !self.protocol.has(Guard::FreshRecord) => {
                if let Some(record) = name.record {
                    with(Restoring::ReadFirst { record, since: [true; PROCESSES] }, "reads the record");
                }
            }
            (Restoring::Idle, Some(node))
                if has_received || self.config.restorer_watch == RestorerWatch::Late =>
            {
                if let Some(patch) = self.protocol.restore(at, node, name.record, final_labels) {
                    let patch = Patch { is_blind, ..patch };
                    with(Restoring::Sent(patch), "sees the node, reads the record, and sends a patch");
                }
            }
            (Restoring::ReadFirst { record, since }, Some(node)) => {
                let patch = self.protocol.restore(at, node, Some(record), final_labels);
                let sent = |patch| Restoring::Sent(Patch { since, is_blind, ..patch });
                with(patch.map_or(Restoring::Idle, sent), "sees the node, and sends a patch");
            }
            (Restoring::Sent(patch), _) => self.send_patch(world, at, who, patch, next),
            (Restoring::Idle | Restoring::ReadFirst { .. }, _) => (),
        }
    }

    /// The watch reports a deletion. As `deleted` of the restorer's planner.
    fn restorer_hears(&mut self, name: &mut Name, at: usize, who: usize) {
        let watcher = name.restorers[who].watcher;
        let event = name.events[usize::from(watcher.heard)];
        name.restorers[who].watcher.heard += 1;
        let is_settled = |model: &mut Self, event: &Deletion| {
            model.protocol.is_settled(at, name.watch(watcher), event.last.version)
        };
        let Some(Deletion { last, .. }) = event.filter(|event| !is_settled(self, event)) else { return };
        // An incarnation that was restored has the labels of those before it.
        let before = self.protocol.restorer_keeps(at, watcher.final_labels, Some(last), name.record);
        let all = self.protocol.push(at, before, last);
        name.restorers[who].watcher.final_labels = self.protocol.restorer_keeps(at, all, None, name.record);
    }

    /// The final labels that a restorer still keeps, given the Node and the record as they are.
    fn needed(&mut self, name: &Name, at: usize, who: usize) -> Kept {
        let kept = name.restorers[who].watcher.final_labels;
        self.protocol.restorer_keeps(at, kept, name.node, name.record)
    }

    /// A lost patch is no step: it changes nothing.
    fn send_patch(&mut self, world: &World, at: usize, who: usize, patch: Patch, next: &mut Vec<Next>) {
        let step = |what| Step { name: at, who: Who::Restorer(who), what };
        let mut sent = *world;
        sent.names[at].restorers[who].job = Restoring::Idle;
        let mut patched = sent;
        let result = self.carry_out_patch(&mut patched.names[at], &patch).map(|()| {
            let kept = self.needed(&patched.names[at], at, who);
            patched.names[at].restorers[who].watcher.final_labels = kept;
            patched
        });
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

    /// A restorer is killed. It, or another one that takes its shard over, resumes the watch from the position in the Lease, or starts with a
    /// list.
    pub(super) fn restorer_crashes(&mut self, world: &World, who: usize, next: &mut Vec<Next>) {
        if world.left.crash == 0 || !self.config.watch || self.config.restorer_watch == RestorerWatch::Off {
            return;
        }
        let step = |what| Step { name: 0, who: Who::Restorer(who), what };
        let mut listed = *world;
        listed.left.crash -= 1;
        let mut dealt_with = [0; crate::world::NAMES];
        for (at, name) in listed.names[..self.config.names].iter_mut().enumerate() {
            let restorer = name.restorers[who];
            dealt_with[at] = self.dealt_with(name, at, restorer.watcher);
            if let (Restoring::Sent(patch), None) = (restorer.job, name.late_patch) {
                name.late_patch = Some(patch);
            }
            let watcher = Watcher { heard: name.deletions, ..Watcher::default() };
            let is_blind = restorer.is_blind || dealt_with[at] < usize::from(name.deletions);
            name.restorers[who] = Restorer { watcher, is_blind, job: Restoring::Idle };
            name.drop_history();
        }
        next.push((step("is killed, and starts with a list"), Ok(listed)));
        if self.config.resume == Resume::List {
            return;
        }
        for (at, dealt_with) in dealt_with.into_iter().enumerate().take(self.config.names) {
            for heard in self.positions(&world.names[at], dealt_with) {
                let mut resumed = listed;
                resumed.names[at].events = world.names[at].events;
                let restorer = &mut resumed.names[at].restorers[who];
                restorer.watcher.heard = heard as u8;
                restorer.is_blind = world.names[at].restorers[who].is_blind;
                next.push((step("is killed, and resumes its watch"), Ok(resumed)));
            }
        }
    }
}
