//! `get`: the records.

use std::collections::{BTreeMap, HashMap};

use anyhow::{Result, bail};
use futures::TryStreamExt;
use jiff::Timestamp;
use kube::ResourceExt;
use kube::runtime::watcher::{self, Event, watcher};
use label_storage::name::node_in_record_name;
use label_storage::record::{Decoded, MANAGED_BY};
use label_storage_runtime::records;
use serde_json::{Value, json};

use crate::Ended;
use crate::cluster::Cluster;
use crate::diagnose::state::State;
use crate::jsonpath::Template;
use crate::output::{API_VERSION, Format, OF_LISTS, Table, age, plain, print, typed};
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
fn object(Selected { record: found, state }: &Selected) -> Value {
    let name = found.config_map.metadata.name.as_deref().unwrap_or_default();
    let mut object = json!({
        "apiVersion": API_VERSION,
        "kind": "Record",
        "node": node_in_record_name(name).unwrap_or("?"),
        "state": state,
        "record": name,
        "kept": {},
        "problem": found.complaint(),
    });
    if let Ok(Decoded { record, .. }) = &found.content {
        let withheld = &record.more.withheld;
        let withheld: BTreeMap<_, _> = withheld.iter().map(|(name, kept)| (name, &kept.value)).collect();
        object["node"] = json!(record.node);
        object["identity"] = json!(record.more.identity);
        object["generation"] = json!(record.generation);
        object["capturedAt"] = json!(record.captured_at);
        object["departedAt"] = json!(record.departed_at);
        object["nodeUid"] = json!(record.uid.as_ref().map(ToString::to_string));
        object["nodeResourceVersion"] = json!(record.node_version.map(|version| version.to_string()));
        object["providerID"] = json!(record.more.machine.provider_id);
        object["systemUUID"] = json!(record.more.machine.system_uuid);
        object["kept"] = json!(record.labels);
        object["withheld"] = json!(withheld);
        object["history"] = json!(record.more.history.len());
    }
    object.as_object_mut().into_iter().for_each(|fields| fields.retain(|_, value| !value.is_null()));
    object
}

fn row(object: &Value, is_wide: bool, now: Timestamp) -> Vec<String> {
    let text = |name: &str| match &object[name] {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        value => value.to_string(),
    };
    let since = |name| match text(name).parse::<Timestamp>() {
        Ok(at) => age(now.duration_since(at)),
        Err(_) => "-".to_owned(),
    };
    let count = |name: &str| object[name].as_object().map_or(0, serde_json::Map::len).to_string();
    let (kept, withheld) = (count("kept"), count("withheld"));
    let (stored, departed) = (since("capturedAt"), since("departedAt"));
    let mut row = vec![text("node"), text("state"), text("generation"), kept, withheld, stored, departed];
    if is_wide {
        let kept = object["kept"].as_object().into_iter().flatten();
        let kept: Vec<_> =
            kept.map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or_default())).collect();
        let machine = if object["providerID"].is_null() { text("systemUUID") } else { text("providerID") };
        let content = object["problem"].as_str().map_or_else(|| kept.join(","), str::to_owned);
        row.extend([text("nodeUid"), machine, text("identity"), text("record"), content]);
    }
    row.iter().map(|cell| plain(cell)).collect()
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

pub(crate) async fn run(cluster: &Cluster, args: Args) -> Result<Ended> {
    let (selected, missing) = args.which.records(cluster).await?;
    let version = |it: &Selected| (it.record.config_map.name_any(), it.record.config_map.resource_version());
    let versions: HashMap<_, _> = selected.iter().map(version).collect();
    let mut items: Vec<_> = selected.iter().map(object).collect();
    match &args.sort_by {
        Some(path) => sort(&mut items, path)?,
        None if !args.which.are_named() => {
            items.sort_by(|one, other| one["node"].as_str().cmp(&other["node"].as_str()));
        }
        None => {}
    }
    if items.is_empty() {
        match missing.is_empty() {
            true => cluster.require_installation().await?,
            false => bail!("{}", missing.join("; ")),
        }
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

fn sort(items: &mut Vec<Value>, path: &Template) -> Result<()> {
    let keyed: Result<Vec<_>> = items.drain(..).map(|item| Ok((path.render(&item)?, item))).collect();
    let mut keyed = keyed?;
    keyed.sort_by(|(one, _), (other, _)| match (one.parse::<u64>(), other.parse::<u64>()) {
        (Ok(one), Ok(other)) => one.cmp(&other),
        _ => one.cmp(other),
    });
    items.extend(keyed.into_iter().map(|(_, item)| item));
    Ok(())
}

/// Prints all items, and returns the table to which others can be added.
fn print_items(cluster: &Cluster, args: &Args, items: Vec<Value>) -> Result<Table> {
    let (is_wide, now) = (args.output == Format::Wide, Timestamp::now());
    let heads = if is_wide { &HEADS[..] } else { &HEADS[..NARROW] };
    let mut table = if args.no_headers { Table::default() } else { Table::new(heads) };
    match &args.output {
        Format::Table | Format::Wide if items.is_empty() => {
            eprintln!("No records found in namespace {}.", cluster.namespace);
        }
        Format::Table | Format::Wide => {
            items.iter().for_each(|item| table.row(row(item, is_wide, now)));
            print(&table.to_text())?;
        }
        format if args.which.are_named() && items.len() == 1 => print_one(format, &items[0])?,
        Format::Name => items.iter().try_for_each(|item| print_one(&Format::Name, item))?,
        format => _ = format.print(&typed("RecordList", json!({"items": items})))?,
    }
    Ok(table)
}

fn print_one(format: &Format, item: &Value) -> Result<()> {
    match format {
        Format::Name => print(&format!("configmap/{}\n", item["record"].as_str().unwrap_or_default())),
        format => format.print(item).map(drop),
    }
}

/// Prints each record that changes.
async fn watch(
    cluster: &Cluster,
    args: &Args,
    mut versions: HashMap<String, Option<String>>,
    table: &mut Table,
) -> Result<Ended> {
    let config = watcher::Config::default().labels(&format!("{}={}", MANAGED_BY.0, MANAGED_BY.1));
    let mut events = Box::pin(watcher(cluster.records.clone(), config));
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
                Some(node) => {
                    let found = cluster.find(&node).await?;
                    state(cluster, &found, !cluster.rivals(&found).await?.is_empty(), Timestamp::now())
                }
                None => State::Unreadable,
            };
            let selected = Selected { record, state };
            if !args.which.includes(&selected) {
                continue;
            }
            let item = object(&selected);
            match &args.output {
                Format::Table | Format::Wide => {
                    table.row(row(&item, args.output == Format::Wide, Timestamp::now()));
                    print(&format!("{}\n", table.to_text().lines().last().unwrap_or_default()))?;
                }
                format => print_one(format, &item)?,
            }
        }
    };
    tokio::select! {
        ended = watching => ended,
        interrupted = tokio::signal::ctrl_c() => Ok(interrupted.map(|()| Ended::Well)?),
    }
}
