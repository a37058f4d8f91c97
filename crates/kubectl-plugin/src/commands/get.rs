//! `get`: the records.

use std::collections::{BTreeMap, HashMap};
use std::pin::pin;

use anyhow::{Result, bail};
use futures::StreamExt;
use jiff::Timestamp;
use kube::ResourceExt;
use kube::runtime::{WatchStreamExt, watcher, watcher::Config};
use label_storage::name::{is_record_name, node_in_record_name};
use label_storage_runtime::records;
use serde_json::{Value, json};

use crate::output::{API_VERSION, Format, OF_LISTS, Table, age, plain, print, typed};
use crate::select::{Selected, Which, find_with_state};
use crate::{Ended, cluster::Cluster, diagnose::state::State, jsonpath::Template};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
States: up-to-date, withheld (some stored items were not restored), changed (the labels of the node differ from its record), pending (the
node is not restored yet), departed (the node is absent), ignored, other-machine (the rules exclude it), contested (several nodes have its identity), unreadable.

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
    /// Print tables without headers
    #[arg(long)]
    no_headers: bool,
    /// Sort by a field of the JSON output, such as .capturedAt
    #[arg(long, value_name = "PATH")]
    sort_by: Option<Template>,
    /// After the list, watch for changes until Ctrl-C
    #[arg(long, short)]
    watch: bool,
}

/// A record for scripts. Scripts rely on the field names.
fn object(Selected { record: found, state }: &Selected) -> Value {
    let name = found.config_map.metadata.name.as_deref().unwrap_or_default();
    let record = found.content.as_ref().ok().map(|decoded| &decoded.record);
    let more = record.map(|record| &record.more);
    let withheld = more.map(|more| more.withheld.iter().map(|(name, kept)| (name, &kept.value)));
    let mut object = json!({
        "apiVersion": API_VERSION,
        "kind": "Record",
        "node": record.map_or(node_in_record_name(name).unwrap_or("?"), |record| &record.node),
        "state": state,
        "record": name,
        "kept": record.map(|record| record.labels.clone()).unwrap_or_default(),
        "problem": found.complaint(),
        "identity": more.map(|more| &more.identity),
        "generation": record.map(|record| record.generation),
        "capturedAt": record.map(|record| record.captured_at),
        "departedAt": record.map(|record| record.departed_at),
        "nodeUid": record.and_then(|record| Some(record.uid.as_ref()?.as_str())),
        "nodeResourceVersion": record.and_then(|record| Some(record.node_version?.to_string())),
        "providerID": more.map(|more| &more.machine.provider_id),
        "systemUUID": more.map(|more| &more.machine.system_uuid),
        "withheld": withheld.map(BTreeMap::from_iter),
        "history": more.map(|more| more.history.len()),
    });
    object.as_object_mut().into_iter().for_each(|fields| fields.retain(|_, value| !value.is_null()));
    object
}

const HEADS: &str = "NODE STATE GENERATION STORED-ITEMS WITHHELD-ITEMS STORED-AGO DEPARTED-AGO \
                     NODE-UID MACHINE IDENTITY CONFIGMAP CONTENT";

/// The number of columns, which is smaller without `-o wide`.
fn columns(args: &Args) -> usize {
    if args.output == Format::Wide { 12 } else { 7 }
}

fn row(args: &Args, object: &Value) -> Vec<String> {
    let text = |name: &str| match &object[name] {
        Value::Null => "-".to_owned(),
        Value::String(text) => plain(text),
        value => value.to_string(),
    };
    let since = |name| match text(name).parse::<Timestamp>() {
        Ok(at) => age(Timestamp::now().duration_since(at)),
        Err(_) => "-".to_owned(),
    };
    let count = |name: &str| object[name].as_object().map_or(0, serde_json::Map::len).to_string();
    let kept = object["kept"].as_object().into_iter().flatten();
    let kept = kept.map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or_default()));
    let kept = kept.collect::<Vec<_>>().join(",");
    let machine = if object["providerID"].is_null() { "systemUUID" } else { "providerID" };
    let mut row = vec![text("node"), text("state"), text("generation"), count("kept"), count("withheld")];
    row.extend([since("capturedAt"), since("departedAt"), text("nodeUid"), text(machine), text("identity")]);
    row.extend([text("record"), plain(object["problem"].as_str().unwrap_or(&kept))]);
    row.truncate(columns(args));
    row
}

pub(crate) async fn run(cluster: &Cluster, args: Args) -> Result<Ended> {
    let (selected, missing) = args.which.records(cluster).await?;
    let mut items: Vec<_> = selected.iter().map(object).collect();
    match &args.sort_by {
        // Numbers are sorted by value.
        Some(path) => items.sort_by_cached_key(|item| {
            let text = path.render(item).unwrap_or_default();
            (text.parse::<u64>().ok(), text)
        }),
        None => items.sort_by_cached_key(|item| item["node"].to_string()),
    }
    if items.is_empty() && missing.is_empty() {
        cluster.require_installation().await?;
    }
    let heads: Vec<_> = HEADS.split(' ').take(columns(&args)).collect();
    let mut table = if args.no_headers { Table::default() } else { Table::new(&heads) };
    match (&args.output, items.as_slice()) {
        (_, []) if !missing.is_empty() => (),
        (Format::Table | Format::Wide, []) => {
            eprintln!("No records found in namespace {}.", cluster.namespace);
        }
        (Format::Table | Format::Wide, items) => {
            items.iter().for_each(|item| table.row(row(&args, item)));
            print(&table.to_text())?;
        }
        (Format::Name, items) => items.iter().try_for_each(|item| print_item(&args, &mut table, item))?,
        (format, [item]) if args.which.are_named() => _ = format.print(item)?,
        (format, items) => _ = format.print(&typed("RecordList", json!({"items": items})))?,
    }
    match missing.is_empty() {
        true if args.watch => watch(cluster, &args, &selected, &mut table).await,
        true => Ok(Ended::Well),
        false => bail!("{}", missing.join("; ")),
    }
}

/// Prints an item. In a table its columns are those of the rows before.
fn print_item(args: &Args, table: &mut Table, item: &Value) -> Result<()> {
    match &args.output {
        Format::Name => print(&format!("configmap/{}\n", item["record"].as_str().unwrap_or_default())),
        Format::Table | Format::Wide => {
            table.row(row(args, item));
            print(&format!("{}\n", table.to_text().lines().last().unwrap_or_default()))
        }
        format => format.print(item).map(drop),
    }
}

/// Prints each record that changes.
async fn watch(cluster: &Cluster, args: &Args, listed: &[Selected], table: &mut Table) -> Result<Ended> {
    let version = |it: &Selected| (it.record.config_map.name_any(), it.record.config_map.resource_version());
    let mut versions: HashMap<_, _> = listed.iter().map(version).collect();
    let changes = watcher(cluster.records.clone(), Config::default()).default_backoff().touched_objects();
    // The watcher lists again after an error.
    let changes =
        changes.filter_map(async |change| change.inspect_err(|error| eprintln!("warning: {error}")).ok());
    let mut changes = pin!(changes.take_until(tokio::signal::ctrl_c()));
    while let Some(config_map) = changes.next().await {
        if !is_record_name(&config_map.name_any()) {
            continue;
        }
        let version = config_map.resource_version();
        if versions.insert(config_map.name_any(), version.clone()) == Some(version) {
            continue;
        }
        let record = records::Found::from(config_map);
        let state = match &record.content {
            Ok(decoded) => find_with_state(cluster, decoded.record.filed_under()).await?.1,
            Err(_) => State::Unreadable,
        };
        let selected = Selected { record, state };
        if args.which.includes(&selected) {
            print_item(args, table, &object(&selected))?;
        }
    }
    Ok(Ended::Well)
}
