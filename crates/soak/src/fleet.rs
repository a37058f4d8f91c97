//! The daemons: several replicas of each, as processes that are killed and restarted.

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use faults::Proxy;
use sandbox::itself;
use sandbox::process::{Guarded, Signal};

/// The pause before an ended daemon is restarted, similar to the first back-off of a kubelet.
const BACK_OFF: Duration = Duration::from_secs(2);

/// The time between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(40);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    Storer,
    Restorer,
}

impl Role {
    pub(crate) const BOTH: [Self; 2] = [Self::Storer, Self::Restorer];

    /// The role in which the program starts itself.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Storer => "storer",
            Self::Restorer => "restorer",
        }
    }
}

/// A replica. Like a pod of a StatefulSet, it has at most one process.
pub(crate) type Slot = (Role, u32);

/// The settings of all daemons.
pub(crate) struct Launch {
    /// The proxy between the daemons and the cluster.
    pub(crate) proxy: Arc<Proxy>,
    /// The flags of all daemons.
    pub(crate) flags: Vec<String>,
    /// The folder of their logs.
    pub(crate) folder: PathBuf,
}

pub(crate) struct Fleet {
    launch: Launch,
    replicas: BTreeMap<Slot, Replica>,
    /// The remaining steps to the new number of replicas.
    changes: VecDeque<Change>,
    /// The wanted number of replicas of each daemon.
    count: NonZeroU32,
    started: u64,
    /// The number of daemons that ended unexpectedly, by exit code.
    pub(crate) ended_by_themselves: BTreeMap<i32, u64>,
}

/// A replica and its present process.
struct Replica {
    process: Guarded,
    count: NonZeroU32,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Up,
    Suspended {
        until: Instant,
    },
    /// It got SIGTERM.
    Ending {
        killed_at: Instant,
        back_at: Instant,
    },
    Down {
        back_at: Instant,
    },
}

/// A step from one number of replicas to another.
#[derive(Debug, Clone, Copy)]
enum Change {
    Start(Slot, NonZeroU32),
    Replace(Slot, NonZeroU32),
    End(Slot),
}

impl Fleet {
    /// Starts this many replicas of each daemon.
    pub(crate) fn start(launch: Launch, count: NonZeroU32) -> anyhow::Result<Self> {
        let mut fleet = Self {
            launch,
            replicas: BTreeMap::new(),
            changes: VecDeque::new(),
            count,
            started: 0,
            ended_by_themselves: BTreeMap::new(),
        };
        for role in Role::BOTH {
            for index in 0..count.get() {
                fleet.launch((role, index), count)?;
            }
        }
        Ok(fleet)
    }

    fn launch(&mut self, slot: Slot, count: NonZeroU32) -> anyhow::Result<()> {
        let (role, index) = slot;
        self.started += 1;
        let pod = format!("{}-{index}", role.name());
        let kubeconfig = self.launch.proxy.kubeconfig_of(&pod)?;
        let mut command =
            itself::command(role.name(), Some(&kubeconfig)).context("can't find this program's own file")?;
        command.args(&self.launch.flags);
        // The pods of a StatefulSet keep their names.
        command.env("POD_NAME", &pod);
        command.args(["--replica-index", &index.to_string(), "--replicas", &count.to_string()]);
        let name = format!("{pod}-of-{count}");
        let log = self.launch.folder.join(format!("{:05}-{name}.log", self.started));
        let process = Guarded::spawn(&name, &command, &log)?;
        self.replicas.insert(slot, Replica { process, count, state: State::Up });
        Ok(())
    }

    /// The replicas that run, and can be killed or suspended.
    pub(crate) fn up(&self) -> Vec<Slot> {
        self.replicas
            .iter()
            .filter(|(_, replica)| replica.state == State::Up)
            .map(|(slot, _)| *slot)
            .collect()
    }

    /// The wanted number of replicas of each daemon.
    pub(crate) fn count(&self) -> NonZeroU32 {
        self.count
    }

    /// Kills a replica, and restarts it after this time.
    pub(crate) fn kill(&mut self, slot: Slot, down: Duration) -> anyhow::Result<()> {
        let Some(replica) = self.replicas.get_mut(&slot) else { return Ok(()) };
        replica.process.signal(Signal::KILL)?;
        replica.state = State::Down { back_at: Instant::now() + down };
        Ok(())
    }

    /// Sends SIGTERM to a replica, and restarts it after this time.
    pub(crate) fn terminate(&mut self, slot: Slot, down: Duration) -> anyhow::Result<()> {
        let Some(replica) = self.replicas.get_mut(&slot) else { return Ok(()) };
        let now = Instant::now();
        replica.process.signal(Signal::TERM)?;
        replica.state = State::Ending { killed_at: now + GRACE, back_at: now + down };
        Ok(())
    }

    /// Suspends a replica for this time.
    pub(crate) fn suspend(&mut self, slot: Slot, time: Duration) -> anyhow::Result<()> {
        let Some(replica) = self.replicas.get_mut(&slot) else { return Ok(()) };
        replica.process.signal(Signal::STOP)?;
        replica.state = State::Suspended { until: Instant::now() + time };
        Ok(())
    }

    /// Changes the number of replicas, one at a time, as a StatefulSet does.
    pub(crate) fn resize(&mut self, count: NonZeroU32) {
        let (before, after) = (self.count.get(), count.get());
        self.count = count;
        for role in Role::BOTH {
            let slot = |index| (role, index);
            self.changes.extend((before..after).map(|index| Change::Start(slot(index), count)));
            self.changes.extend((after..before).rev().map(|index| Change::End(slot(index))));
            self.changes
                .extend((0..before.min(after)).rev().map(|index| Change::Replace(slot(index), count)));
        }
    }

    /// True if all wanted replicas run, with the wanted number.
    pub(crate) fn is_whole(&self) -> bool {
        self.changes.is_empty() && self.replicas.values().all(|replica| replica.state == State::Up)
    }

    /// Restarts and resumes all replicas at once.
    pub(crate) fn hurry(&mut self) {
        let now = Instant::now();
        for replica in self.replicas.values_mut() {
            replica.state = match replica.state {
                State::Suspended { .. } => State::Suspended { until: now },
                State::Ending { killed_at, .. } => State::Ending { killed_at, back_at: now },
                State::Down { .. } => State::Down { back_at: now },
                State::Up => State::Up,
            };
        }
    }

    /// Carries out the steps that are due. To be called several times a second.
    pub(crate) fn tend(&mut self) -> anyhow::Result<()> {
        let slots: Vec<_> = self.replicas.keys().copied().collect();
        for slot in slots {
            self.tend_one(slot)?;
        }
        self.advance()
    }

    fn tend_one(&mut self, slot: Slot) -> anyhow::Result<()> {
        let Some(replica) = self.replicas.get_mut(&slot) else { return Ok(()) };
        let now = Instant::now();
        let exit = replica.process.try_wait();
        match replica.state {
            State::Up => {
                if let Some(exit) = exit {
                    *self.ended_by_themselves.entry(exit.code()).or_default() += 1;
                    replica.state = State::Down { back_at: now + BACK_OFF };
                }
            }
            State::Suspended { until } if now >= until => {
                replica.process.signal(Signal::CONT)?;
                replica.state = State::Up;
            }
            State::Ending { back_at, .. } if exit.is_some() => replica.state = State::Down { back_at },
            State::Ending { killed_at, back_at } if now >= killed_at => {
                replica.process.signal(Signal::KILL)?;
                replica.state = State::Down { back_at };
            }
            State::Down { back_at } if now >= back_at && exit.is_some() => {
                let count = replica.count;
                self.launch(slot, count)?;
            }
            State::Suspended { .. } | State::Ending { .. } | State::Down { .. } => {}
        }
        Ok(())
    }

    /// Takes the next step to a new number of replicas, once the one before is done.
    fn advance(&mut self) -> anyhow::Result<()> {
        let Some(change) = self.changes.front().copied() else { return Ok(()) };
        let slot = match change {
            Change::Start(slot, count) => {
                self.launch(slot, count)?;
                self.changes.pop_front();
                return Ok(());
            }
            Change::Replace(slot, _) | Change::End(slot) => slot,
        };
        let Some(replica) = self.replicas.get(&slot) else {
            self.changes.pop_front();
            return Ok(());
        };
        match replica.state {
            State::Up => self.terminate(slot, Duration::from_secs(3600))?,
            State::Down { .. } if replica.process.try_wait().is_some() => {
                self.changes.pop_front();
                match change {
                    Change::Replace(slot, count) => self.launch(slot, count)?,
                    Change::Start(..) | Change::End(_) => drop(self.replicas.remove(&slot)),
                }
            }
            State::Suspended { .. } | State::Ending { .. } | State::Down { .. } => {}
        }
        Ok(())
    }
}
