//! What people, kubelets and clouds do to Nodes.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use label_storage::Labels;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use serde_json::json;
use tokio::sync::Semaphore;

use crate::eyes::Shared;
use crate::fate::{Fate, View};

/// So many people are at work at the same time.
const PEOPLE: usize = 16;

/// And so many where many Nodes are deleted at once.
const CROWD: usize = 256;

/// How long one of them waits for an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Label keys: ordinary ones, and some that a record has to write in another way.
const KEYS: [&str; 6] = ["pool", "example.com/rack", "a-SLASH-b", "a/b", "topology.example.com/zone", "tier"];

/// Something that is done to one Node, in one go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Act {
    /// A label is set, or its value changed.
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
    /// The Node is created, without a label.
    CreateBare,
    /// The Node is created with labels, as by a kubelet.
    CreateLabelled,
    /// The Node is deleted together with many others, and comes back after a while.
    Wave,
}

impl Act {
    /// A word for it.
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
            Self::Wave => "delete with many others",
        }
    }
}

/// One call.
#[derive(Debug, Clone)]
enum Step {
    Label(String, Option<String>),
    Delete,
    Pause(Duration),
    Create(Labels),
}

/// Everything that chance decides about an act, drawn before anything is known of the Node: so that one seed draws the same
/// sequence whatever the daemons do.
#[derive(Debug, Clone, Copy)]
struct Draw {
    node: usize,
    act: u32,
    key: usize,
    chance: u32,
}

/// How many acts there were.
pub(crate) type Tally = BTreeMap<&'static str, u64>;

/// Everybody who changes Nodes.
pub(crate) struct People {
    nodes: Api<Node>,
    oracle: Shared,
    names: Vec<String>,
    random: SmallRng,
    /// Values are numbered: no two are the same.
    values: u64,
    permits: Arc<Semaphore>,
    /// The same for many Nodes at once.
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
    /// People for these Nodes, none of which is there yet.
    pub(crate) fn new(nodes: Api<Node>, oracle: Shared, names: Vec<String>, seed: u64) -> Self {
        Self {
            nodes,
            oracle,
            names,
            random: SmallRng::seed_from_u64(seed),
            values: 0,
            permits: Arc::new(Semaphore::new(PEOPLE)),
            crowd: Arc::new(Semaphore::new(CROWD)),
            shared: Arc::default(),
        }
    }

    /// Creates all Nodes, most of them with labels.
    pub(crate) async fn populate(&mut self) {
        for name in self.names.clone() {
            let is_labelled = self.random.random_ratio(9, 10);
            let act = if is_labelled { Act::CreateLabelled } else { Act::CreateBare };
            let key = self.random.random_range(0..KEYS.len());
            let steps = self.steps(&name, act, key, &View::default());
            self.begin(name, act, steps).await;
        }
        self.rest().await;
    }

    /// One act, to whichever Node chance picks. Returns when somebody is free to do it.
    pub(crate) async fn act(&mut self) {
        let draw = Draw {
            node: self.random.random_range(0..self.names.len()),
            act: self.random.random_range(0..100),
            key: self.random.random_range(0..KEYS.len()),
            chance: self.random.random_range(0..100),
        };
        let name = self.names[draw.node].clone();
        let view = self.oracle.lock().view(&name);
        let Some(act) = resolve(draw, &view) else { return };
        let steps = self.steps(&name, act, draw.key, &view);
        self.begin(name, act, steps).await;
    }

    /// Deletes this share of all Nodes at once, and brings them back after a while. Does not wait for that.
    pub(crate) fn wave(&mut self, percent: u32, away: Duration) {
        for name in self.names.clone() {
            if self.random.random_range(0..100) < percent && self.oracle.lock().view(&name).uid.is_some() {
                let steps = vec![Step::Delete, Step::Pause(away), Step::Create(Labels::new())];
                self.spawn(name, Act::Wave, steps, &self.crowd);
            }
        }
    }

    /// Changes a label of a Node about which all is well, and says of which.
    pub(crate) async fn label_one(&mut self) -> Option<String> {
        self.pick_and_do(Act::Label).await
    }

    /// Deletes and at once re-creates a Node about which all is well, and says which.
    pub(crate) async fn blink_one(&mut self) -> Option<String> {
        self.pick_and_do(Act::Blink).await
    }

    async fn pick_and_do(&mut self, act: Act) -> Option<String> {
        const TRIES: usize = 100;
        for _ in 0..TRIES {
            let name = self.names[self.random.random_range(0..self.names.len())].clone();
            let key = self.random.random_range(0..KEYS.len());
            let view = self.oracle.lock().view(&name);
            if view.is_stored && !view.keys.is_empty() {
                let steps = self.steps(&name, act, key, &view);
                self.begin(name.clone(), act, steps).await;
                self.rest().await;
                return Some(name);
            }
        }
        None
    }

    /// Waits until nobody does anything.
    pub(crate) async fn rest(&self) {
        loop {
            if self.shared().busy.is_empty() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// What was done so far, by kind, and how many acts broke off for want of an answer.
    pub(crate) fn tally(&self) -> (Tally, u64) {
        let progress = self.shared();
        (progress.done.clone(), progress.unanswered)
    }

    fn steps(&mut self, name: &str, act: Act, key: usize, view: &View) -> Vec<Step> {
        let label = |people: &mut Self| Step::Label(KEYS[key].to_owned(), Some(people.value(name)));
        let bare = || Step::Create(Labels::new());
        match act {
            Act::Label => vec![label(self)],
            Act::Unlabel => view
                .keys
                .get(key % view.keys.len().max(1))
                .map(|key| Step::Label(key.clone(), None))
                .into_iter()
                .collect(),
            Act::Delete => vec![Step::Delete],
            Act::LabelAndDelete => vec![label(self), Step::Delete],
            Act::Blink => vec![Step::Delete, bare()],
            Act::LabelAndBlink => vec![label(self), Step::Delete, bare()],
            Act::CreateBare => vec![bare()],
            Act::CreateLabelled => {
                let keys = [key, (key + 1) % KEYS.len()];
                vec![Step::Create(keys.map(|key| (KEYS[key].to_owned(), self.value(name))).into())]
            }
            Act::Wave => Vec::new(),
        }
    }

    fn value(&mut self, name: &str) -> String {
        self.values += 1;
        format!("{}{}", Fate::tag(name), self.values)
    }

    /// Returns when somebody was free to begin with it.
    async fn begin(&self, name: String, act: Act, steps: Vec<Step>) {
        // Never closed, so there is always one in the end.
        drop(self.permits.acquire().await);
        self.spawn(name, act, steps, &self.permits);
    }

    fn spawn(&self, name: String, act: Act, steps: Vec<Step>, permits: &Arc<Semaphore>) {
        if !self.shared().busy.insert(name.clone()) {
            return;
        }
        let (nodes, shared, permits) = (self.nodes.clone(), Arc::clone(&self.shared), Arc::clone(permits));
        tokio::spawn(async move {
            let _permit = permits.acquire().await;
            let is_done = carry_out(&nodes, &name, steps).await;
            let mut progress = shared.lock().unwrap_or_else(PoisonError::into_inner);
            progress.busy.remove(&name);
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

/// What becomes of a draw, with the Node as it is.
fn resolve(draw: Draw, view: &View) -> Option<Act> {
    if view.uid.is_none() {
        return match draw.act {
            0..40 => Some(Act::CreateBare),
            40..70 => Some(Act::CreateLabelled),
            _ => None,
        };
    }
    // A person who knows better removes a label only from a Node that has got all of its labels back. Some don't.
    let removes = view.is_own || draw.chance < 3;
    match draw.act {
        0..45 => Some(Act::Label),
        45..60 if removes && !view.keys.is_empty() => Some(Act::Unlabel),
        45..60 => Some(Act::Label),
        60..74 => Some(Act::Delete),
        74..84 => Some(Act::LabelAndDelete),
        84..93 => Some(Act::Blink),
        _ => Some(Act::LabelAndBlink),
    }
}

/// Whether all of it was done. One that broke off may or may not have been: the oracle sees.
async fn carry_out(nodes: &Api<Node>, name: &str, steps: Vec<Step>) -> bool {
    for step in steps {
        let done = tokio::time::timeout(PATIENCE + step.pause(), take(nodes, name, &step)).await;
        if !matches!(done, Ok(Ok(()))) {
            return false;
        }
    }
    true
}

impl Step {
    fn pause(&self) -> Duration {
        if let Self::Pause(pause) = self { *pause } else { Duration::ZERO }
    }
}

async fn take(nodes: &Api<Node>, name: &str, step: &Step) -> Result<(), kube::Error> {
    match step {
        Step::Label(key, value) => {
            let patch = json!({ "metadata": { "labels": { key: value } } });
            nodes.patch_metadata(name, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
        }
        Step::Delete => nodes.delete(name, &DeleteParams::default()).await.map(drop),
        Step::Pause(pause) => {
            tokio::time::sleep(*pause).await;
            Ok(())
        }
        Step::Create(labels) => {
            let metadata = kube::api::ObjectMeta {
                name: Some(name.to_owned()),
                labels: Some(labels.clone()),
                ..Default::default()
            };
            nodes.create(&PostParams::default(), &Node { metadata, ..Node::default() }).await.map(drop)
        }
    }
}
