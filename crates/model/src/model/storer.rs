//! The steps of a storer: its watch reports deletions; it reads, plans and writes; it is killed.

use label_storage::store::in_doubt::WriteAnswer;
use label_storage::store::{InDoubt, Writes};

use crate::guard::Guard;
use crate::model::{Model, Next, Resume, Step, Who};
use crate::promise::Property;
use crate::protocol::{Knows, Read, Sight, Watch};
use crate::world::{
    Action, Deletion, KEYS, NAMES, Name, Node, PROCESSES, Patch, Record, Restoring, Storer, Storing, Watcher,
    World, Write,
};

impl Model {
    pub(super) fn storer(&mut self, world: &World, at: usize, who: usize, next: &mut Vec<Next>) {
        let step = |what| Step { name: at, who: Who::Storer(who), what };
        let name = &world.names[at];
        let storer = name.storers[who];
        if storer.watcher.heard < name.deletions {
            let mut world = *world;
            let kept = self.hear(&mut world.names[at], at, who);
            let what = if kept {
                "receives the deletion, and keeps the final labels"
            } else {
                "receives the deletion"
            };
            next.push((step(what), Ok(world)));
        }
        if !storer.is_fresh {
            let mut world = *world;
            world.names[at].sees_record(who);
            next.push((step("sees the record"), Ok(world)));
        }
        if storer.is_fresh && !storer.is_aged && name.record.is_some_and(|record| record.labels == [0; KEYS])
        {
            let mut world = *world;
            self.grow_old(&mut world.names[at], who);
            next.push((step("has seen the empty record for half a minute"), Ok(world)));
        }
        if !self.protocol.has(Guard::ConfirmingGet) && storer.view != Some(name.node) {
            let mut world = *world;
            world.names[at].storers[who].view = Some(name.node);
            next.push((step("sees the node"), Ok(world)));
        }
        match storer.job {
            Storing::Idle => self.begin_storing(world, at, who, next),
            Storing::Read { record, is_current, in_doubt, since } => {
                let read = Read { record, live: name.node, last: storer.watcher.final_labels[0] };
                let knows = Knows { in_doubt, deleted: name.known_deletion(who), ..Knows::default() };
                let plan = self.protocol.store(at, read, knows);
                let mut world = *world;
                let Some((sight, action)) = plan else {
                    world.names[at].storers[who].storing_failed();
                    return next.push((step("reads the node, and gets a stale answer"), Ok(world)));
                };
                world.names[at].storers[who].forget_unless(in_doubt);
                if action == Action::Nothing {
                    self.storing_done(&mut world.names[at], at, who, true, is_current);
                    return next.push((step("reads the node, and has nothing to store"), Ok(world)));
                }
                let view = match sight {
                    Sight::Live(node) | Sight::Deleted(node) => action.stores(node),
                    Sight::Gone => None,
                };
                let write =
                    Write { action, view, has_final_labels: true, is_orphan: false, is_current, since };
                world.names[at].storers[who].job = Storing::Sent(write);
                self.refuse_hopeless(&mut world.names[at]);
                next.push((step("reads the node, and sends a write for the final labels"), Ok(world)));
            }
            Storing::Sent(write) => self.send_write(world, at, who, write, next),
        }
    }

    /// The watch reports a deletion. As `deleted` of the storer's planner.
    fn hear(&mut self, name: &mut Name, at: usize, who: usize) -> bool {
        let storer = name.storers[who];
        let watch = name.watch(storer.watcher);
        let event = name.events[usize::from(storer.watcher.heard)];
        name.storers[who].watcher.heard += 1;
        let Some(Deletion { last, .. }) =
            event.filter(|event| !self.protocol.is_settled(at, watch, event.last.version))
        else {
            return false;
        };
        let writes = Writes {
            is_in_flight: storer.job != Storing::Idle,
            has_failed: storer.has_failed,
            is_in_doubt: storer.doubt.is_some(),
        };
        let is_kept = self.protocol.keeps(at, last, storer.row, writes);
        if is_kept {
            name.storers[who].watcher.final_labels =
                self.protocol.push(at, storer.watcher.final_labels, last);
        } else if storer.row.is_some() && !storer.is_fresh {
            // Another process has changed a record that had these labels, and this storer has not seen that yet.
            name.last_said = None;
        }
        is_kept
    }

    /// An attempt begins. As `attempt` of the storer's `apply`.
    fn begin_storing(&mut self, world: &World, at: usize, who: usize, next: &mut Vec<Next>) {
        let name = &world.names[at];
        let storer = name.storers[who];
        let mut push = |what, world| next.push((Step { name: at, who: Who::Storer(who), what }, Ok(world)));
        let since = [true; PROCESSES];
        let in_doubt = storer.is_in_doubt(name.record);
        if storer.watcher.final_labels[0].is_some() {
            let mut world = *world;
            let job = Storing::Read { record: name.record, is_current: true, in_doubt, since };
            world.names[at].storers[who].job = job;
            return push("reads the record, for the final labels", world);
        }
        let view = if self.protocol.has(Guard::ConfirmingGet) { Some(name.node) } else { storer.view };
        let Some(view) = view else { return };
        let is_aged = storer.is_fresh && storer.is_aged;
        let known = (name.record, READS);
        // A record that the storer does not know need not be read.
        let unknown = (None, READS_NODE_ONLY);
        let is_unread = storer.row.is_none() && name.record.is_some() && storer.doubt.is_none();
        let reads = if is_unread { vec![known, unknown] } else { vec![known] };
        let knows = Knows { is_aged, in_doubt, deleted: name.known_deletion(who) };
        for (record, what) in reads {
            let read = Read { record, live: view, last: None };
            let Some((_, action)) = self.protocol.store(at, read, knows) else { continue };
            let mut world = *world;
            let name = &mut world.names[at];
            name.storers[who].forget_unless(in_doubt);
            if action == Action::Nothing {
                let is_open = storer.has_failed || storer.doubt.is_some();
                if is_open && record == name.record {
                    self.storing_done(name, at, who, false, true);
                    push("reads record and node, and has nothing to store", world);
                }
                continue;
            }
            let view = view.and_then(|view| action.stores(view));
            let write =
                Write { action, view, has_final_labels: false, is_orphan: false, is_current: true, since };
            name.storers[who].job = Storing::Sent(write);
            push(what, world);
        }
    }

    fn send_write(&mut self, world: &World, at: usize, who: usize, write: Write, next: &mut Vec<Next>) {
        let mut push = |what, result| next.push((Step { name: at, who: Who::Storer(who), what }, result));
        let mut answered = *world;
        let result = self.carry_out_write(&mut answered.names[at], &write).map(|is_applied| {
            if is_applied {
                self.write_done(&mut answered.names[at], at, who, &write);
            } else {
                answered.names[at].storers[who].write_failed(&write, WriteAnswer::Refused);
            }
            (is_applied, answered)
        });
        let what = match (&result, write.action) {
            (Ok((false, _)), _) => "gets a refusal for its write",
            (_, Action::Delete) => "deletes the record",
            (_, Action::Create(_)) => "creates the record",
            _ => "replaces the record",
        };
        let is_applied = matches!(result, Ok((true, _)));
        push(what, result.map(|(_, world)| world));
        if world.left.lose > 0 {
            let mut lost = *world;
            lost.left.lose -= 1;
            lost.names[at].storers[who].write_failed(&write, WriteAnswer::Unknown);
            push("loses its write on the way", Ok(lost));
            if is_applied {
                let mut unanswered = lost;
                let result = self.carry_out_write(&mut unanswered.names[at], &write).map(|_| unanswered);
                push("writes the record, and gets no answer", result);
            }
        }
        if world.left.late > 0 && world.names[at].late_write.is_none() {
            let mut late = *world;
            late.left.late -= 1;
            late.names[at].storers[who].write_failed(&write, WriteAnswer::Unknown);
            late.names[at].late_write = Some(write);
            push("gives up on its write, which is still on its way", Ok(late));
            if is_applied {
                answered = *world;
                answered.left.late -= 1;
                let name = &mut answered.names[at];
                name.late_write = Some(write);
                let result = self.carry_out_write(name, &write);
                self.write_done(&mut answered.names[at], at, who, &write);
                push("writes the record, and the network keeps a copy", result.map(|_| answered));
            }
        }
    }

    /// A write was carried out, and its sender got the answer.
    fn write_done(&mut self, name: &mut Name, at: usize, who: usize, write: &Write) {
        name.storers[who].answered(write, WriteAnswer::Done);
        self.storing_done(name, at, who, write.has_final_labels, true);
    }

    /// An attempt has ended. `is_current`: it has read or written the record as it is now.
    fn storing_done(
        &mut self,
        name: &mut Name,
        at: usize,
        who: usize,
        has_final_labels: bool,
        is_current: bool,
    ) {
        let storer = &mut name.storers[who];
        (storer.job, storer.has_failed) = (Storing::Idle, false);
        let kept = storer.watcher.final_labels;
        if let (Some(last), true) = (kept[0], has_final_labels) {
            storer.watcher.final_labels = self.protocol.stored(at, kept, last);
        }
        if is_current {
            name.sees_record(who);
        }
    }

    /// Carries a write out if its guards hold, and returns true if they do.
    pub(super) fn carry_out_write(&self, name: &mut Name, write: &Write) -> Result<bool, Property> {
        // Final labels that are stored after a newer record was deleted stay open in `docs/guarantees.md`: left out unless asked for.
        let is_late = write.has_final_labels && write.view.is_some_and(|view| view.version < name.newest);
        let holds = match write.action {
            Action::Nothing => false,
            Action::Create(_) if is_late && !self.config.late_final_labels => false,
            Action::Replace(_)
                if is_late
                    && !self.config.late_final_labels
                    && name.record.is_some_and(Record::is_tombstone) =>
            {
                false
            }
            Action::Create(_) => name.record.is_none() || !self.protocol.has(Guard::CreateOnly),
            Action::Replace(_) | Action::Delete => {
                name.record.is_some() && (write.is_current || !self.protocol.has(Guard::RecordVersion))
            }
        };
        if !holds {
            return Ok(false);
        }
        name.record_changes(write)?;
        name.record = match write.action {
            Action::Create(record) => {
                name.objects += 1;
                Some(Record { object: name.objects, ..record })
            }
            Action::Replace(record) => Some(record),
            _ => None,
        };
        self.record_moves(name);
        Ok(true)
    }

    /// The record has changed: writes that expect the record as it was are refused.
    pub(super) fn record_moves(&self, name: &mut Name) {
        for storer in &mut name.storers {
            (storer.is_fresh, storer.is_aged) = (false, false);
            match &mut storer.job {
                Storing::Idle => (),
                Storing::Read { is_current, .. } => *is_current = false,
                Storing::Sent(write) => write.is_current = false,
            }
            if let Some(InDoubt { expected: Some(is_current) }) = &mut storer.doubt {
                *is_current = false;
            }
        }
        name.late_write.iter_mut().for_each(|write| write.is_current = false);
        self.refuse_hopeless(name);
    }

    /// Refuses writes that expect an earlier version of the record.
    fn refuse_hopeless(&self, name: &mut Name) {
        let guards = self.protocol.has(Guard::RecordVersion);
        let is_hopeless = |write: &Write| {
            guards && !write.is_current && matches!(write.action, Action::Replace(_) | Action::Delete)
        };
        for storer in &mut name.storers {
            if let Storing::Sent(write) = storer.job
                && is_hopeless(&write)
            {
                storer.write_failed(&write, WriteAnswer::Refused);
            }
        }
        name.late_write = name.late_write.filter(|write| !is_hopeless(write));
    }

    /// Half a minute has passed since this storer saw the record as it is: no attempt from before can still write.
    fn grow_old(&self, name: &mut Name, who: usize) {
        name.storers[who].is_aged = true;
        for event in name.events.iter_mut().flatten() {
            event.is_old |= !event.since[who];
        }
        if !self.protocol.has(Guard::PlanLifetime) {
            return;
        }
        for storer in &mut name.storers {
            match storer.job {
                Storing::Read { since, .. } | Storing::Sent(Write { since, .. }) if !since[who] => {
                    storer.storing_failed();
                }
                _ => (),
            }
        }
        for restorer in &mut name.restorers {
            match restorer.job {
                Restoring::Sent(Patch { since, .. }) | Restoring::ReadFirst { since, .. } if !since[who] => {
                    restorer.job = Restoring::Idle;
                }
                _ => (),
            }
        }
        name.late_write = name.late_write.filter(|write| write.since[who]);
        name.late_patch = name.late_patch.filter(|patch| patch.since[who]);
    }

    /// A storer is killed and started again. It watches from its first list, or resumes from a position.
    pub(super) fn crashes(&mut self, world: &World, who: usize, next: &mut Vec<Next>) {
        if world.left.crash == 0 {
            return;
        }
        let mut crashed = *world;
        crashed.left.crash -= 1;
        let mut dealt_with = [0; NAMES];
        for (at, name) in crashed.names[..self.config.names].iter_mut().enumerate() {
            dealt_with[at] = self.dealt_with(name, at, name.storers[who].watcher);
            let storer = &mut name.storers[who];
            // Its write may still arrive.
            if let (Storing::Sent(write), None) = (storer.job, name.late_write) {
                name.late_write = Some(Write { is_orphan: true, ..write });
            }
            // Final labels are lost if the API server no longer has their deletion. This stays open: see `docs/guarantees.md`.
            let is_repeated =
                |last: &Node| name.events.iter().flatten().any(|event| event.last.version == last.version);
            if !storer.watcher.final_labels.iter().flatten().all(is_repeated) {
                name.last_said = None;
            }
            let (heard, settled) = (dealt_with[at] as u8, name.published);
            let watcher = Watcher { heard, settled, ..Watcher::default() };
            *storer = Storer { watcher, ..Storer::default() };
        }
        let step = |what| Step { name: 0, who: Who::Storer(who), what };
        let mut listed = crashed;
        for name in &mut listed.names[..self.config.names] {
            // No watch reports the deletions again that it has not stored.
            name.last_said = None;
            name.storers[who].watcher.heard = name.deletions;
            name.drop_history();
            name.sees_record(who);
        }
        next.push((step("is killed, and starts with a list"), Ok(listed)));
        if self.config.resume == Resume::List {
            return;
        }
        // The model has one position for each name, and the storer one for all: this covers more cases than can happen.
        for (at, dealt_with) in dealt_with.into_iter().enumerate().take(self.config.names) {
            for heard in self.positions(&world.names[at], dealt_with) {
                let mut resumed = crashed;
                resumed.names[at].storers[who].watcher.heard = heard as u8;
                next.push((step("is killed, and resumes its watch"), Ok(resumed)));
            }
        }
    }

    /// The positions from which a daemon can resume its watch: the API server still has all deletions after them.
    pub(super) fn positions(&self, name: &Name, dealt_with: usize) -> impl Iterator<Item = usize> + use<> {
        let (events, resume) = (name.events, self.config.resume);
        let is_known = move |event: &Option<Deletion>| {
            event.is_some_and(|event| !event.is_dropped && (resume == Resume::Any || !event.is_old))
        };
        (0..=dealt_with).filter(move |heard| events[*heard..dealt_with].iter().all(is_known))
    }

    /// The number of deletions before the one that a watch from this process's position reports first.
    pub(super) fn dealt_with(&mut self, name: &Name, at: usize, watcher: Watcher) -> usize {
        let from = self.protocol.resume_from(at, name.watch(watcher), watcher.final_labels);
        let is_before = |event: &&Option<Deletion>| event.is_none_or(|event| event.last.version <= from);
        name.events[..usize::from(name.deletions)].iter().take_while(is_before).count()
    }
}

impl Storer {
    fn storing_failed(&mut self) {
        (self.job, self.has_failed) = (Storing::Idle, true);
    }

    fn write_failed(&mut self, write: &Write, answer: WriteAnswer) {
        self.answered(write, answer);
        self.storing_failed();
    }

    fn answered(&mut self, write: &Write, answer: WriteAnswer) {
        let is_create = matches!(write.action, Action::Create(_));
        let sent = InDoubt { expected: (!is_create).then_some(write.is_current) };
        self.doubt = InDoubt::after(self.doubt, sent, answer);
    }

    /// Forgets a write that can't be carried out any more, given the record that it plans from. As `holds` of the storer's `in_doubt`.
    fn forget_unless(&mut self, in_doubt: bool) {
        self.doubt = self.doubt.filter(|_| in_doubt);
    }

    /// True if a write of its own may still be carried out, given the record as it is read.
    fn is_in_doubt(&self, record: Option<Record>) -> bool {
        self.doubt.is_some_and(|write| write.holds(record.map(|_| true)))
    }
}

impl Action {
    /// The view of the Node, if its labels are stored: a stamp stores none.
    fn stores(self, view: Node) -> Option<Node> {
        let (Self::Create(record) | Self::Replace(record)) = self else { return None };
        (view.uid == record.uid && view.version == record.version).then_some(view)
    }
}

impl Watcher {
    /// Drops a position that the watch has passed.
    pub(super) const fn tidy(&mut self) {
        if self.settled <= self.heard {
            self.settled = 0;
        }
    }
}

impl Name {
    /// A daemon starts with a list: the API server has dropped the deletions until then, or nobody has left a position.
    pub(crate) fn drop_history(&mut self) {
        self.events.iter_mut().flatten().for_each(|event| event.is_dropped = true);
    }

    /// The watches of all processes.
    pub(crate) fn watchers(&self) -> impl Iterator<Item = &Watcher> {
        let storers = self.storers.iter().map(|storer| &storer.watcher);
        storers.chain(self.restorers.iter().map(|restorer| &restorer.watcher))
    }

    /// The last deletion, if a storer has received it.
    fn known_deletion(&self, who: usize) -> Option<Node> {
        self.deleted.filter(|_| self.storers[who].watcher.heard == self.deletions)
    }

    /// A watch has come to just before the next deletion that it has not reported.
    pub(super) fn watch(&self, watcher: Watcher) -> Watch {
        let Watcher { heard, settled, .. } = watcher;
        let (heard, settled) = (usize::from(heard), usize::from(settled));
        let next = self.events[heard..].iter().flatten().next();
        let last_settled = self.events[..settled].iter().flatten().last();
        Watch {
            seen: next.map_or(self.version, |event| event.last.version - 1),
            resumed: last_settled.map_or(0, |event| event.last.version),
        }
    }

    /// A storer sees the record as it is now.
    fn sees_record(&mut self, who: usize) {
        let storer = &mut self.storers[who];
        if storer.is_fresh {
            return;
        }
        (storer.row, storer.is_fresh, storer.is_aged) = (self.record, true, false);
        self.each_since(|since| since[who] = false);
    }
}

const READS: &str = "reads record and node, and sends a write";
const READS_NODE_ONLY: &str = "reads the node, and sends a create";
