//! Writes records to a file or to stdout.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use jiff::Timestamp;
use label_storage::rules::Selector;
use label_storage_runtime::records::Found;
use label_storage_runtime::shutdown::Shutdown;
use tempfile::NamedTempFile;

use crate::Ended;
use crate::backup::{self, END, HEADER, SHOWN};
use crate::cluster::{Cluster, try_fold};
use crate::output::counted;

#[derive(Debug, clap::Args)]
#[command(
    after_long_help = "The file holds the ConfigMaps themselves, which `kubectl apply` can read, too. The exit code is 3 \
    if a record can't be read and is left out, or has entries that `import` refuses.\n\n\
    Example: kubectl label-storage export -f records.yaml"
)]
pub struct Args {
    /// Replace this file when the export is complete; - is stdout [default: stdout]
    #[arg(long, short, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Only records with these stored labels, as in `kubectl --selector`
    #[arg(long, short = 'l', value_name = "SELECTOR", default_value = "", hide_default_value = true)]
    selector: Selector,
    /// Only records of deleted nodes
    #[arg(long)]
    departed: bool,
    /// Write a file without records, too
    #[arg(long)]
    force: bool,
}

pub(crate) async fn run(cluster: &Cluster, args: Args) -> Result<Ended> {
    let shutdown = Shutdown::on_signals()?;
    let (namespace, force) = (&cluster.namespace, args.force);
    let path = args.file.clone().filter(|path| path.as_os_str() != "-");
    let folder = match path.as_deref().and_then(Path::parent) {
        Some(folder) => Path::new(".").join(folder),
        None => std::env::temp_dir(),
    };
    // It is renamed or printed when the list is complete. If anything fails, it is deleted.
    let mut target = NamedTempFile::new_in(folder).context("can't write the export")?;
    let mut export = Export { args, file: BufWriter::new(target.reopen()?), written: 0, bad: 0 };
    writeln!(export.file, "{HEADER} of namespace {namespace} at {:.0}", Timestamp::now())?;
    let add = |export: &mut Export, object| export.add(Found::from(object));
    let mut export = tokio::select! {
        export = try_fold(cluster.tagged_record_source(), export, add) => export?,
        () = shutdown.stop.cancelled() => bail!("interrupted: nothing was written"),
    };
    if export.written == 0 && !force {
        let cause = "there is no such record, or no such namespace";
        bail!("nothing was written: {cause}: {namespace}; check -n, -l and --departed, or give --force");
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
    if export.bad > 0 {
        eprintln!("warning: {} can't be imported", counted(export.bad, "record"));
        return Ok(Ended::Unwell);
    }
    Ok(Ended::Well)
}

struct Export {
    args: Args,
    file: BufWriter<File>,
    written: usize,
    /// The number of records that an import refuses.
    bad: usize,
}

impl Export {
    fn add(&mut self, found: Found) -> Result<()> {
        let problems = match backup::read(found) {
            Err(error) => vec![error.to_string()],
            // An empty record is about to be deleted.
            Ok((_, record, _)) if record.is_empty() || !self.args.selector.matches(&record.labels) => {
                return Ok(());
            }
            Ok((_, record, _)) if self.args.departed && record.departed_at.is_none() => return Ok(()),
            Ok((config_map, _, problems)) => {
                write!(self.file, "---\n{}", backup::to_yaml(&config_map)?)?;
                self.written += 1;
                problems
            }
        };
        self.bad += usize::from(!problems.is_empty());
        problems.iter().filter(|_| self.bad <= SHOWN).for_each(|problem| eprintln!("warning: {problem}"));
        Ok(())
    }
}
