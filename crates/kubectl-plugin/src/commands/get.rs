//! `get`: the records.

use std::collections::{BTreeMap, HashMap};

use anyhow::{Result, bail};
use futures::TryStreamExt;
use jiff::Timestamp;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, ResourceExt};
use label_storage::name::node_in_record_name;
use label_storage::record::MANAGED_BY;
use label_storage::{Labels, Record};
use label_storage_runtime::records;
use serde::Serialize;

use crate::Ended;
use crate::cluster::Cluster;
use crate::diagnose::state::State;
use crate::jsonpath::Template;
use crate::output::{Format, OF_LISTS, Table, Typed, age, plain, print, typed};
use crate::select::{Selected, Which, state};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
States: up-to-date, changed (the node has other labels than its record), pending (the node is not restored yet), departed (the node is
absent), ignored, other-machine (the fence keeps it from being restored), contested (several nodes have its identity), unreadable.

Examples:
  kubectl label-storage get
  kubectl label-storage get my-node -o yaml
  kubectl label-storage get --departed -l pool=gold --sort-by .departedAt")]
pub struct Args {
    #[command(flatten)]
    which: Which,

    /// The output format
    #[arg(long, short, value_name = "FORMAT", default_value = "table", value_parser = OF_LISTS)]
    output: Format,

    /// Print tables without their heading
    #[arg(long)]
    no_headers: bool,

    /// Sort by a field of the JSON output, such as .capturedAt
    #[arg(long, value_name = "PATH")]
    sort_by: Option<Template>,

    /// After the list, print each record that changes, until Ctrl-C
    #[arg(long, short)]
    watch: bool,
}

/// A record for scripts. They rely on the names, so these stay.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown {
    node: String,
    state: State,
    /// The ConfigMap.
    record: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    identity: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    generation: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    captured_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    departed_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    node_uid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    node_resource_version: Option<String>,
    #[serde(rename = "providerID", skip_serializing_if = "Option::is_none")]
    provider_id: Option<String>,
    #[serde(rename = "systemUUID", skip_serializing_if = "Option::is_none")]
    system_uuid: Option<String>,
    /// Labels by key, other items by name.
    kept: Labels,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    withheld: BTreeMap<String, String>,
    /// The number of earlier versions.
    history: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    #[serde(skip)]
    version: Option<String>,
}

impl Shown {
    fn new(Selected { record: found, state }: Selected) -> Self {
        let problem = found.complaint();
        let meta = found.config_map.metadata;
        let name = meta.name.unwrap_or_default();
        let node = node_in_record_name(&name).unwrap_or("?").to_owned();
        let record =
            found.content.map_or_else(|_| Record { node, ..Record::default() }, |decoded| decoded.record);
        let is_readable = state != State::Unreadable;
        let withheld = record.more.withheld.into_iter().map(|(name, kept)| (name, kept.value));
        Self {
            node: record.node,
            state,
            record: name,
            identity: record.more.identity,
            generation: is_readable.then_some(record.generation),
            captured_at: record.captured_at,
            departed_at: record.departed_at,
            node_uid: record.uid.map(|uid| uid.to_string()),
            node_resource_version: record.node_version.map(|version| version.to_string()),
            provider_id: record.more.machine.provider_id,
            system_uuid: record.more.machine.system_uuid,
            kept: record.labels,
            withheld: withheld.collect(),
            history: record.more.history.len(),
            problem,
            version: meta.resource_version,
        }
    }

    fn row(&self, is_wide: bool, now: Timestamp) -> Vec<String> {
        let since = |at: Option<Timestamp>| or_none(at.map(|at| age(now.duration_since(at))));
        let mut row = vec![
            self.node.clone(),
            self.state.as_str().to_owned(),
            or_none(self.generation.map(|generation| generation.to_string())),
            self.kept.len().to_string(),
            self.withheld.len().to_string(),
            since(self.captured_at),
            since(self.departed_at),
        ];
        if is_wide {
            let kept: Vec<_> = self.kept.iter().map(|(name, value)| format!("{name}={value}")).collect();
            row.extend([
                or_none(self.node_uid.clone()),
                or_none(self.provider_id.clone().or_else(|| self.system_uuid.clone())),
                or_none(self.identity.clone()),
                self.record.clone(),
                self.problem.clone().unwrap_or_else(|| kept.join(",")),
            ]);
        }
        row.iter().map(|cell| plain(cell)).collect()
    }
}

fn or_none(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".to_owned())
}

const HEADS: [&str; 12] = [
    "NODE",
    "STATE",
    "GENERATION",
    "STORED-ITEMS",
    "WITHHELD-ITEMS",
    "STORED-AGO",
    "DEPARTED-AGO",
    "NODE-UID",
    "MACHINE",
    "IDENTITY",
    "CONFIGMAP",
    "CONTENT",
];
const NARROW: usize = 7;

#[derive(Debug, Serialize)]
struct Items {
    items: Vec<Typed<Shown>>,
}

pub(crate) async fn run(cluster: &Cluster, args: Args) -> Result<Ended> {
    let (selected, missing) = args.which.records(cluster).await?;
    let mut items: Vec<_> = selected.into_iter().map(Shown::new).collect();
    match &args.sort_by {
        Some(path) => sort(&mut items, path)?,
        None if !args.which.are_named() => items.sort_by(|one, other| one.node.cmp(&other.node)),
        None => {}
    }
    if items.is_empty() && missing.is_empty() {
        cluster.require_installation().await?;
    }
    let versions: HashMap<_, _> =
        items.iter().map(|item| (item.record.clone(), item.version.clone())).collect();
    if items.is_empty() && !missing.is_empty() {
        bail!("{}", missing.join("; "));
    }
    let mut table = print_items(cluster, &args, items)?;
    if !missing.is_empty() {
        bail!("{}", missing.join("; "));
    }
    match args.watch {
        true => watch(cluster, &args, versions, &mut table).await,
        false => Ok(Ended::Well),
    }
}

fn sort(items: &mut [Shown], path: &Template) -> Result<()> {
    let mut keys = HashMap::new();
    for item in &*items {
        keys.insert(item.record.clone(), path.render(&serde_json::to_value(item)?)?);
    }
    items.sort_by(|one, other| {
        let [one, other] = [&keys[&one.record], &keys[&other.record]];
        match (one.parse::<u64>(), other.parse::<u64>()) {
            (Ok(one), Ok(other)) => one.cmp(&other),
            _ => one.cmp(other),
        }
    });
    Ok(())
}

/// Prints all items, and returns the table to which others can be added.
fn print_items(cluster: &Cluster, args: &Args, mut items: Vec<Shown>) -> Result<Table> {
    let (is_wide, now) = (args.output == Format::Wide, Timestamp::now());
    let heads = if is_wide { &HEADS[..] } else { &HEADS[..NARROW] };
    let mut table = Table::new(if args.no_headers { &[] } else { heads });
    match &args.output {
        Format::Table | Format::Wide if items.is_empty() => {
            eprintln!("No records found in namespace {}.", cluster.namespace);
        }
        Format::Table | Format::Wide => {
            items.iter().for_each(|item| table.row(item.row(is_wide, now)));
            print(table.to_text().trim_start_matches('\n'))?;
        }
        Format::Name => {
            let names: Vec<_> = items.iter().map(|item| format!("configmap/{}\n", item.record)).collect();
            print(&names.concat())?;
        }
        format if args.which.are_named() && items.len() == 1 => {
            format.print(&typed("Record", items.remove(0)))?;
        }
        format => {
            let items = items.into_iter().map(|item| typed("Record", item)).collect();
            format.print(&typed("RecordList", Items { items }))?;
        }
    }
    Ok(table)
}

/// Prints each record that changes.
async fn watch(
    cluster: &Cluster,
    args: &Args,
    mut versions: HashMap<String, Option<String>>,
    table: &mut Table,
) -> Result<Ended> {
    let config = watcher::Config::default().labels(&format!("{}={}", MANAGED_BY.0, MANAGED_BY.1));
    let records: Api<k8s_openapi::api::core::v1::ConfigMap> = cluster.records.clone();
    let mut events = Box::pin(watcher(records, config));
    let watching = async {
        loop {
            let (config_map, is_deleted) = match events.try_next().await {
                Ok(Some(Event::Apply(config_map) | Event::InitApply(config_map))) => (config_map, false),
                Ok(Some(Event::Delete(config_map))) => (config_map, true),
                Ok(Some(Event::Init | Event::InitDone)) => continue,
                Ok(None) => return Ok(Ended::Well),
                // The watcher lists again after an error.
                Err(error) => {
                    eprintln!("warning: {error}");
                    continue;
                }
            };
            let (name, version) = (config_map.name_any(), config_map.resource_version());
            if versions.insert(name, version.clone()) == Some(version) && !is_deleted {
                continue;
            }
            let record = records::Found::from(config_map);
            let node = record.content.as_ref().ok().map(|decoded| decoded.record.filed_under().to_owned());
            let state = match node {
                Some(node) => state(cluster, &cluster.find(&node).await?, Timestamp::now()).await?,
                None => State::Unreadable,
            };
            let selected = Selected { record, state };
            if !args.which.includes(&selected) {
                continue;
            }
            let item = Shown::new(selected);
            match &args.output {
                Format::Table | Format::Wide => {
                    table.row(item.row(args.output == Format::Wide, Timestamp::now()));
                    print(table.to_text().lines().last().unwrap_or_default())?;
                    print("\n")?;
                }
                Format::Name => print(&format!("configmap/{}\n", item.record))?,
                format => _ = format.print(&typed("Record", &item))?,
            }
        }
    };
    tokio::select! {
        ended = watching => ended,
        interrupted = tokio::signal::ctrl_c() => Ok(interrupted.map(|()| Ended::Well)?),
    }
}
