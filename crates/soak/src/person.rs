//! The changes that people, kubelets and clouds make to Nodes.

mod step;

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use label_storage::item::Item;
use label_storage::{Labels, Rules};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::Semaphore;

use self::step::Step;
use crate::eyes::Shared;
use crate::fate::View;
use crate::{machine, rules};

/// The number of concurrent acts.
const PEOPLE: usize = 16;

/// The number of concurrent acts while many Nodes are deleted at once.
const CROWD: usize = 256;

/// An act: one or more calls for one Node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Act {
    /// A label is set or changed. In all acts, the same goes for annotations, taints and the cordon.
    Label,
    /// A label is removed.
    Unlabel,
    /// The Node is deleted.
    Delete,
    /// A label is changed, and the Node deleted at once.
    LabelAndDelete,
    /// The Node is deleted and at once re-created.
    Blink,
    /// A label is changed, the Node deleted, and re-created, all at once.
    LabelAndBlink,
    /// The Node is created without labels.
    CreateBare,
    /// The Node is created with labels, as by a kubelet.
    CreateLabelled,
    /// The Node is created with labels and deleted at once, most likely before it is restored.
    CreateAndDelete,
    /// The Node is deleted together with many others, and re-created after a while.
    Wave,
}

impl Act {
    /// The name in the report.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Label => "label",
            Self::Unlabel => "unlabel",
            Self::Delete => "delete",
            Self::LabelAndDelete => "label and delete at once",
            Self::Blink => "delete and re-create at once",
            Self::LabelAndBlink => "label, delete and re-create at once",
            Self::CreateBare => "create bare",
            Self::CreateLabelled => "create with labels",
            Self::CreateAndDelete => "create with labels and delete at once",
            Self::Wave => "delete with many others",
        }
    }
}

/// The random choices of an act. They are drawn before the state of the Node is known, so that a seed draws the same sequence whatever the
/// daemons do.
#[derive(Debug, Clone, Copy)]
struct Draw {
    machine: usize,
    act: u32,
    key: usize,
    chance: u32,
}

/// The number of acts so far.
pub(crate) type Tally = BTreeMap<&'static str, u64>;

/// The people, who act on all Nodes.
pub(crate) struct People {
    nodes: Api<Node>,
    oracle: Shared,
    machines: Vec<String>,
    rules: Rules,
    /// The names of the items that they set and remove.
    names: Vec<&'static str>,
    random: SmallRng,
    /// The number in the next value, so that no two values are the same.
    values: u64,
    permits: Arc<Semaphore>,
    /// Permits for acts on many Nodes at once.
    crowd: Arc<Semaphore>,
    shared: Arc<Mutex<Progress>>,
}

#[derive(Default)]
struct Progress {
    busy: HashSet<String>,
    done: Tally,
    unanswered: u64,
}

impl People {
    /// People for these machines, none of which has registered yet.
    pub(crate) fn new(
        nodes: Api<Node>,
        oracle: Shared,
        machines: Vec<String>,
        rules: &Rules,
        seed: u64,
    ) -> Self {
        Self {
            nodes,
            oracle,
            machines,
            names: rules::names(rules),
            rules: rules.clone(),
            random: SmallRng::seed_from_u64(seed),
            values: 0,
            permits: Arc::new(Semaphore::new(PEOPLE)),
            crowd: Arc::new(Semaphore::new(CROWD)),
            shared: Arc::default(),
        }
    }

    /// Creates all Nodes, most of them with labels.
    pub(crate) async fn populate(&mut self) {
        for machine in self.machines.clone() {
            let is_labelled = self.random.random_ratio(9, 10);
            let act = if is_labelled { Act::CreateLabelled } else { Act::CreateBare };
            let key = self.random.random_range(0..self.names.len());
            let steps = self.steps(&machine, act, key, &View::default());
            self.begin(machine, act, steps).await;
        }
        self.rest().await;
    }

    /// Starts an act on a random Node, once a permit is free.
    pub(crate) async fn act(&mut self) {
        let draw = Draw {
            machine: self.random.random_range(0..self.machines.len()),
            act: self.random.random_range(0..100),
            key: self.random.random_range(0..self.names.len()),
            chance: self.random.random_range(0..100),
        };
        let machine = self.machines[draw.machine].clone();
        let view = self.view(&machine);
        let Some(act) = resolve(draw, &view) else { return };
        let steps = self.steps(&machine, act, draw.key, &view);
        self.begin(machine, act, steps).await;
    }

    /// Deletes this share of all Nodes at once, and re-creates them after a while. Does not wait for that.
    pub(crate) fn wave(&mut self, percent: u32, away: Duration) {
        for machine in self.machines.clone() {
            let is_struck = self.random.random_range(0..100) < percent;
            let view = self.view(&machine);
            if let Some(node) = view.node.clone().filter(|_| is_struck) {
                let create = self.create(&machine, &view, &Labels::new());
                let steps = vec![Step::Delete(node), Step::Pause(away), create];
                self.spawn(machine, Act::Wave, steps, &self.crowd);
            }
        }
    }

    /// The state of a Node, with only the items that people set and remove.
    fn view(&self, machine: &str) -> View {
        let mut view = self.oracle.lock().view(machine);
        view.names.retain(|name| self.names.contains(&name.as_str()));
        view
    }

    /// Changes a label of a Node in the expected state, and returns its machine.
    pub(crate) async fn label_one(&mut self) -> Option<String> {
        self.pick_and_do(Act::Label).await
    }

    /// Deletes and at once re-creates a Node in the expected state, and returns its machine.
    pub(crate) async fn blink_one(&mut self) -> Option<String> {
        self.pick_and_do(Act::Blink).await
    }

    async fn pick_and_do(&mut self, act: Act) -> Option<String> {
        const TRIES: usize = 100;
        for _ in 0..TRIES {
            let machine = self.machines[self.random.random_range(0..self.machines.len())].clone();
            let key = self.random.random_range(0..self.names.len());
            let view = self.view(&machine);
            if view.is_stored && !view.names.is_empty() {
                let steps = self.steps(&machine, act, key, &view);
                self.begin(machine.clone(), act, steps).await;
                self.rest().await;
                return Some(machine);
            }
        }
        None
    }

    /// Waits until all acts have ended.
    pub(crate) async fn rest(&self) {
        loop {
            if self.shared().busy.is_empty() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The acts so far by kind, and the number of failed ones.
    pub(crate) fn tally(&self) -> (Tally, u64) {
        let progress = self.shared();
        (progress.done.clone(), progress.unanswered)
    }

    fn steps(&mut self, machine: &str, act: Act, key: usize, view: &View) -> Vec<Step> {
        let now = view.node.clone().unwrap_or_else(|| machine::node_name(machine, view.births, &self.rules));
        let set = |people: &mut Self| {
            let (name, value) = people.item(machine, key);
            Step::Set(now.clone(), name, Some(value))
        };
        let delete = || Step::Delete(now.clone());
        let bare = |people: &Self| people.create(machine, view, &Labels::new());
        match act {
            Act::Label => vec![set(self)],
            Act::Unlabel => view
                .names
                .get(key % view.names.len().max(1))
                .map(|name| Step::Set(now.clone(), name.clone(), None))
                .into_iter()
                .collect(),
            Act::Delete => vec![delete()],
            Act::LabelAndDelete => vec![set(self), delete()],
            Act::Blink => vec![delete(), bare(self)],
            Act::LabelAndBlink => vec![set(self), delete(), bare(self)],
            Act::CreateBare => vec![bare(self)],
            Act::CreateLabelled => vec![self.create_labelled(machine, view, key)],
            Act::CreateAndDelete => vec![self.create_labelled(machine, view, key), delete()],
            Act::Wave => Vec::new(),
        }
    }

    fn create_labelled(&mut self, machine: &str, view: &View, key: usize) -> Step {
        let items = [key, (key + 1) % self.names.len()].map(|key| self.item(machine, key));
        self.create(machine, view, &items.into())
    }

    /// A Node of this machine with these items, as a kubelet registers it.
    fn create(&self, machine: &str, view: &View, items: &Labels) -> Step {
        let name = machine::node_name(machine, view.births, &self.rules);
        let mut node = step::node(name, items);
        machine::register(&mut node, machine, &self.rules);
        Step::Create(Box::new(node))
    }

    /// The name of an item, and a value that no item had before.
    fn item(&mut self, machine: &str, key: usize) -> (String, String) {
        self.values += 1;
        let name = self.names[key];
        let value = match Item::parse(name) {
            Some(Item::Cordon) => "true".to_owned(),
            _ => format!("{}{}", machine::tag(machine), self.values),
        };
        (name.to_owned(), value)
    }

    /// Returns when a permit was free.
    async fn begin(&self, machine: String, act: Act, steps: Vec<Step>) {
        // The semaphore is never closed.
        drop(self.permits.acquire().await);
        self.spawn(machine, act, steps, &self.permits);
    }

    fn spawn(&self, machine: String, act: Act, steps: Vec<Step>, permits: &Arc<Semaphore>) {
        if !self.shared().busy.insert(machine.clone()) {
            return;
        }
        let (nodes, shared, permits) = (self.nodes.clone(), Arc::clone(&self.shared), Arc::clone(permits));
        tokio::spawn(async move {
            let _permit = permits.acquire().await;
            let is_done = step::carry_out(&nodes, steps).await;
            let mut progress = shared.lock().unwrap_or_else(PoisonError::into_inner);
            progress.busy.remove(&machine);
            if is_done {
                *progress.done.entry(act.name()).or_default() += 1;
            } else {
                progress.unanswered += 1;
            }
        });
    }

    fn shared(&self) -> MutexGuard<'_, Progress> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The act of a draw, given the state of the Node.
fn resolve(draw: Draw, view: &View) -> Option<Act> {
    if view.node.is_none() {
        return match draw.act {
            0..40 => Some(Act::CreateBare),
            40..70 => Some(Act::CreateLabelled),
            70..80 => Some(Act::CreateAndDelete),
            _ => None,
        };
    }
    // Most people remove labels only from restored Nodes. Some do not wait for that.
    let removes = view.is_own || draw.chance < 3;
    match draw.act {
        0..45 => Some(Act::Label),
        45..60 if removes && !view.names.is_empty() => Some(Act::Unlabel),
        45..60 => Some(Act::Label),
        60..74 => Some(Act::Delete),
        74..84 => Some(Act::LabelAndDelete),
        84..93 => Some(Act::Blink),
        _ => Some(Act::LabelAndBlink),
    }
}
