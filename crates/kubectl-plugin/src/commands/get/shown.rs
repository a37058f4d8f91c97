//! A record, as it is shown.

use std::collections::BTreeMap;

use jiff::Timestamp;
use label_storage::item::Item;
use label_storage::name::node_in_record_name;
use label_storage::node::Machine;
use label_storage::restore::{self, Reason};
use label_storage::store::Stored;
use label_storage::summary::NodeSummary;
use label_storage::{Labels, Node, Record, Rules};
use label_storage_runtime::records;
use serde::Serialize;

use crate::advice::{Advice, quoted};
use crate::output::{age, plain};

/// A Node, as far as its record's state depends on it.
pub(super) struct Seen {
    summary: NodeSummary,
    /// Where that counts.
    machine: Option<Machine>,
    /// Whether it is not the only one to claim its record.
    pub(super) is_contested: bool,
}

impl Seen {
    pub(super) fn of(node: &Node, rules: &Rules) -> Self {
        let machine = rules.is_fenced().then(|| node.extras.machine.clone());
        Self { summary: node.summary(), machine, is_contested: false }
    }
}

/// How a record stands to its Node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum State {
    /// It follows its Node.
    Present,
    /// The Node is there, and has not been restored yet.
    Pending,
    /// The Node is not there.
    Departed,
    /// A person has taken the Node out of all this.
    Ignored,
    /// The Node is another machine, and the rules forbid to restore that.
    OtherMachine,
    /// Several Nodes claim it, so that it is left alone.
    Contested,
    /// Nobody can tell what it says.
    Unreadable,
}

impl State {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Present => "present",
            Self::Pending => "pending",
            Self::Departed => "departed",
            Self::Ignored => "ignored",
            Self::OtherMachine => "other-machine",
            Self::Contested => "contested",
            Self::Unreadable => "unreadable",
        }
    }

    fn of(record: &Record, node: Option<&Seen>) -> Self {
        let Some(node) = node else { return Self::Departed };
        let is_other =
            || node.machine.as_ref().is_some_and(|machine| machine.differs_from(&record.more.machine));
        match restore::decide(&node.summary, Stored::Record(record.summary())) {
            _ if node.is_contested => Self::Contested,
            Reason::Ignored => Self::Ignored,
            Reason::Returned if is_other() => Self::OtherMachine,
            Reason::Returned => Self::Pending,
            _ => Self::Present,
        }
    }
}

/// What is stored of a Node. The names are what scripts go by, so they stay.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Shown {
    pub(super) node: String,
    pub(super) state: State,
    /// The ConfigMap.
    pub(super) record: String,
    /// Where that is not the name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) filed_under: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) generation: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    labels_generation: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) captured_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) departed_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) node_uid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    node_resource_version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) machine: Option<ShownMachine>,
    /// Labels by their keys, and what else is kept by its name.
    pub(super) kept: Labels,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) withheld: BTreeMap<String, ShownWithheld>,
    /// How many earlier versions there are.
    history: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) problem: Option<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct ShownMachine {
    #[serde(rename = "providerID", skip_serializing_if = "Option::is_none")]
    provider_id: Option<String>,
    #[serde(rename = "systemUUID", skip_serializing_if = "Option::is_none")]
    system_uuid: Option<String>,
}

impl ShownMachine {
    fn of(machine: Machine) -> Option<Self> {
        let is_known = !machine.is_unknown();
        is_known.then_some(Self { provider_id: machine.provider_id, system_uuid: machine.system_uuid })
    }

    /// In one word, for a column.
    pub(super) fn name(&self) -> &str {
        self.provider_id.as_deref().or(self.system_uuid.as_deref()).unwrap_or_default()
    }
}

#[derive(Debug, Serialize)]
pub(super) struct ShownWithheld {
    value: String,
    /// The machine that had it.
    #[serde(rename = "systemUUID", skip_serializing_if = "Option::is_none")]
    system_uuid: Option<String>,
}

impl Shown {
    pub(super) fn of(found: records::Found, node: Option<&Seen>) -> Self {
        let problem = found.complaint();
        let record = found.config_map.metadata.name.unwrap_or_default();
        let Ok(decoded) = found.content else { return Self::unreadable(record, problem) };
        let state = State::of(&decoded.record, node);
        let Record { more, .. } = decoded.record;
        let withheld = more
            .withheld
            .into_iter()
            .map(|(name, kept)| (name, ShownWithheld { value: kept.value, system_uuid: kept.system_uuid }));
        Self {
            node: decoded.record.node,
            state,
            record,
            filed_under: more.identity,
            generation: Some(decoded.record.generation),
            labels_generation: decoded.record.labels_generation,
            captured_at: decoded.record.captured_at,
            departed_at: decoded.record.departed_at,
            node_uid: decoded.record.uid.map(|uid| uid.to_string()),
            node_resource_version: decoded.record.node_version.map(|version| version.to_string()),
            machine: ShownMachine::of(more.machine),
            kept: decoded.record.labels,
            withheld: withheld.collect(),
            history: more.history.len(),
            problem,
        }
    }

    fn unreadable(record: String, problem: Option<String>) -> Self {
        Self {
            node: node_in_record_name(&record).unwrap_or("?").to_owned(),
            state: State::Unreadable,
            record,
            filed_under: None,
            generation: None,
            labels_generation: None,
            captured_at: None,
            departed_at: None,
            node_uid: None,
            node_resource_version: None,
            machine: None,
            kept: Labels::new(),
            withheld: BTreeMap::new(),
            history: 0,
            problem,
        }
    }

    /// All of it, for people.
    pub(super) fn to_text(&self, now: Timestamp, advice: &Advice) -> String {
        let ago = |at: Timestamp| format!("{} ago ({at:.0})", age(now.duration_since(at)));
        let mut lines = Vec::new();
        let mut say = |what: &str, text: String| lines.push(format!("{:<13} {text}", format!("{what}:")));
        say("Node", self.node.clone());
        let since = self.departed_at.map(|at| format!(", seen to be gone {}", ago(at))).unwrap_or_default();
        say("State", format!("{}{since}", self.state.as_str()));
        let generation = self.generation.map(|it| format!(", generation {it}")).unwrap_or_default();
        say("Record", format!("configmap {}{generation}", self.record));
        if let Some(identity) = &self.filed_under {
            say("Filed under", identity.clone());
        }
        if let Some(at) = self.captured_at {
            say("Stored", ago(at));
        }
        if let Some(uid) = &self.node_uid {
            let version = self.node_resource_version.as_ref();
            let version = version.map(|it| format!(" at resourceVersion {it}")).unwrap_or_default();
            say("Incarnation", format!("{uid}{version}"));
        }
        if let Some(machine) = &self.machine {
            let parts = [("provider ID", &machine.provider_id), ("system UUID", &machine.system_uuid)];
            let parts = parts.iter().filter_map(|(what, it)| Some(format!("{what} {}", it.as_ref()?)));
            say("Machine", parts.collect::<Vec<_>>().join(", "));
        }
        if self.history > 0 {
            let name = self.filed_under.as_deref().filter(|_| self.state == State::Departed);
            let history = advice.plugin(&format!("history {}", quoted(name.unwrap_or(&self.node))));
            say("History", format!("{} earlier: {history}", self.history));
        }
        if let Some(problem) = &self.problem {
            say("Problem", problem.clone());
        }
        if self.state != State::Unreadable {
            lines.extend(self.kept_lines());
        }
        lines.iter().map(|line| format!("{}\n", plain(line))).collect()
    }

    fn kept_lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let kinds: [(&str, IsOf); 4] = [
            ("Labels", |kept| matches!(kept, Item::Label(_))),
            ("Annotations", |kept| matches!(kept, Item::Annotation(_))),
            ("Taints", |kept| matches!(kept, Item::Taint { .. })),
            ("Cordoned", |kept| kept == Item::Cordon),
        ];
        for (what, is_of) in kinds {
            let all: Vec<_> = self
                .kept
                .iter()
                .filter_map(|(name, value)| Some((Item::parse(name).filter(|kept| is_of(*kept))?, value)))
                .map(|(kept, value)| shown_kept(kept, value))
                .collect();
            match all.as_slice() {
                [] if what == "Labels" => lines.push(format!("{:<13} none", format!("{what}:"))),
                [] => (),
                all => {
                    lines.push(format!("{what}:"));
                    lines.extend(all.iter().map(|one| format!("  {one}")));
                }
            }
        }
        if !self.withheld.is_empty() {
            lines.push("Withheld:".to_owned());
        }
        for (name, kept) in &self.withheld {
            let machine = kept.system_uuid.as_deref().unwrap_or("nobody knows which");
            lines.push(format!("  {name}={} (of machine {machine})", kept.value));
        }
        lines
    }
}

/// Whether something is of a kind.
type IsOf = fn(Item<'_>) -> bool;

/// As kubectl writes it.
fn shown_kept(kept: Item<'_>, value: &str) -> String {
    match kept {
        Item::Label(key) | Item::Annotation(key) => format!("{key}={value}"),
        Item::Taint { effect, key } if value.is_empty() => format!("{key}:{effect}"),
        Item::Taint { effect, key } => format!("{key}={value}:{effect}"),
        Item::Cordon => "unschedulable".to_owned(),
    }
}
