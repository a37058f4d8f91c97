//! Writes records to a file or to stdout: the ConfigMaps themselves, which `kubectl apply` can read, too.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::{fs::File, sync::Arc};

use anyhow::{Context, Result, bail};
use jiff::Timestamp;
use k8s_openapi::{api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use label_storage::record::{Damage, Decoded, Unreadable};
use label_storage::rules::{Selection, Selector};
use label_storage::{Record, Rules};
use label_storage_runtime::projection::{Detail, Projection};
use label_storage_runtime::{records::Found, shutdown::Shutdown};
use tempfile::NamedTempFile;

use crate::cluster::{Cluster, try_fold};
use crate::{Ended, output::counted};

/// Begins the first line of an export. A file with this line and without [`END`] was cut off.
pub(super) const HEADER: &str = "# Label Storage export";
/// Begins the last line of an export.
pub(super) const END: &str = "# End of export";

/// At most this many problems or nodes are listed one by one.
pub(super) const SHOWN: usize = 20;

#[derive(Debug, clap::Args)]
#[command(
    after_long_help = "The file has the ConfigMaps themselves, which `kubectl apply` can read, too. The exit code is 3 \
    if a record can't be read and is left out, or has entries that `import` refuses.\n\n\
    Examples:\n  kubectl label-storage export -f records.yaml\n  kubectl label-storage export --departed -l pool=gold"
)]
pub struct Args {
    /// Write to this file, which is replaced when the export is complete; - is stdout [default: stdout]
    #[arg(long, short, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Export only records with these stored labels, such as pool=gold,tier!=1
    #[arg(long, short = 'l', value_name = "SELECTOR", default_value = "", hide_default_value = true)]
    selector: Selector,
    /// Export only records of absent nodes
    #[arg(long)]
    departed: bool,
    /// Write the file even if there are no records
    #[arg(long)]
    force: bool,
}

struct Export {
    args: Args,
    file: BufWriter<File>,
    written: usize,
    /// The number of records that an import refuses.
    bad: usize,
}

pub(crate) async fn run(cluster: &Cluster, args: Args) -> Result<Ended> {
    let (shutdown, namespace) = (Shutdown::on_signals()?, &cluster.namespace);
    let path = args.file.clone().filter(|path| path.as_os_str() != "-");
    let folder = path.as_deref().and_then(Path::parent).map(|folder| Path::new(".").join(folder));
    // The temporary file is renamed or printed when the list is complete. After an error it is deleted.
    let mut target =
        NamedTempFile::new_in(folder.unwrap_or_else(std::env::temp_dir)).context("can't write the export")?;
    let mut export = Export { args, file: BufWriter::new(target.reopen()?), written: 0, bad: 0 };
    writeln!(export.file, "{HEADER} of namespace {namespace} at {:.0}", Timestamp::now())?;
    let rules = Arc::new(Rules { annotations: Selection::all(), ..Rules::default() });
    let source = cluster.record_source().seen_by(Projection { rules, detail: Detail::WhatIsKept });
    let mut export = tokio::select! {
        export = try_fold(source, export, |export, object| export.add(object.into())) => export?,
        () = shutdown.stop.cancelled() => bail!("interrupted: nothing was written"),
    };
    if export.written == 0 && !export.args.force {
        let none = format!("namespace {namespace} has no matching record, or does not exist");
        bail!("nothing was written: {none}: check -n, -l and --departed, or give --force");
    }
    let written = counted(export.written, "record");
    writeln!(export.file, "---\n{END}: {written}")?;
    export.file.into_inner()?.sync_all()?;
    match path {
        None => _ = io::copy(&mut target, &mut io::stdout().lock())?,
        Some(path) => {
            target.persist(&path).with_context(|| format!("can't write {}", path.display()))?;
            eprintln!("{written} written to {}", path.display());
        }
    }
    if export.bad == 0 {
        return Ok(Ended::Well);
    }
    eprintln!("warning: {} can't be imported", counted(export.bad, "record"));
    Ok(Ended::Unwell)
}

impl Export {
    fn add(&mut self, found: Found) -> Result<()> {
        let Args { selector, departed, .. } = &self.args;
        let problems = match exported(found) {
            Err(Unreadable::Foreign(_)) => return Ok(()),
            Err(error) => vec![error.to_string()],
            // An empty record is about to be deleted.
            Ok((_, record, _)) if record.is_empty() || !selector.matches(&record.labels) => return Ok(()),
            Ok((_, record, _)) if *departed && record.departed_at.is_none() => return Ok(()),
            Ok((config_map, _, problems)) => {
                write!(self.file, "---\n{}", to_yaml(&config_map)?)?;
                self.written += 1;
                problems
            }
        };
        self.bad += usize::from(!problems.is_empty());
        problems.iter().filter(|_| self.bad <= SHOWN).for_each(|problem| eprintln!("warning: {problem}"));
        Ok(())
    }
}

/// A ConfigMap without its namespace and the fields that the API server and kubectl add, its record, and the entries that
/// an import refuses. Annotations that an import sets itself may be missing.
pub(super) fn exported(found: Found) -> Result<(ConfigMap, Record, Vec<String>), Unreadable> {
    let Found { config_map, content } = found;
    let Decoded { mut record, damage } = content?;
    (record.config_map, record.generation) = (None, record.generation.max(1));
    let ObjectMeta { name, labels, mut annotations, .. } = config_map.metadata;
    annotations.get_or_insert_default().remove("kubectl.kubernetes.io/last-applied-configuration");
    let problem = |damage: Damage| {
        let value = match damage {
            Damage::Annotation(key) => format!(": {:?}", annotations.as_ref()?.get(key)?),
            _ => String::new(),
        };
        Some(format!("configmap {}: {damage}{value}", name.as_deref().unwrap_or_default()))
    };
    let problems = damage.into_iter().filter_map(problem).collect();
    let metadata = ObjectMeta { name, labels, annotations, ..ObjectMeta::default() };
    let binary_data = config_map.binary_data.filter(|data| !data.is_empty());
    Ok((ConfigMap { metadata, binary_data, data: config_map.data, immutable: None }, record, problems))
}

pub(super) fn to_yaml(config_map: &ConfigMap) -> Result<String> {
    // YAML parsers differ in how they read line breaks in block scalars.
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
    Ok(serde_saphyr::to_string_with_options(config_map, options)?)
}
