//! Records as a file that a person can read and edit, and that [`import`](super::import) takes.

pub(crate) mod document;

use std::fs::File;
use std::io::{self, BufWriter, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use jiff::Timestamp;
use label_storage::Record;
use label_storage::rules::Selector;
use label_storage_runtime::records::Found;
use label_storage_runtime::shutdown::Shutdown;
use tempfile::NamedTempFile;

use self::document::{Document, Tags};
use crate::Ended;
use crate::cluster::Cluster;
use crate::progress::{Progress, Unit};

/// The document that ends an export. A file without it was cut off.
pub(crate) const END: &str = "end: true";

/// For how long a list may take: there is work to do for each record, and a cluster may be far away.
pub(crate) const PATIENCE: Duration = Duration::from_secs(600);

/// So much that is wrong is told one by one.
const TOLD: usize = 20;

/// What to write, and where to.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "The file is a stream of YAML documents, one for each node, and can be edited: \
    what stands in it is what `import` stores. The last document says that the file is whole. A record that can't be read is left out, \
    is named on stderr, and makes the exit code 3.")]
pub struct Args {
    /// Write to this file, which is replaced only when all is written; - is stdout [default: stdout]
    #[arg(long, short, value_name = "FILE")]
    file: Option<PathBuf>,

    /// Only records with these stored labels, as in `kubectl --selector`
    #[arg(
        long = "selector",
        short = 'l',
        value_name = "SELECTOR",
        default_value = "",
        hide_default_value = true
    )]
    selector: Selector,

    /// Only records of nodes that are gone
    #[arg(long)]
    departed: bool,

    /// Leave out what the labels were before
    #[arg(long)]
    no_history: bool,
}

pub(crate) async fn run(cluster: &Cluster, args: Args) -> Result<Ended> {
    // From here on Ctrl-C is waited for, so that nothing is left behind.
    let shutdown = Shutdown::on_signals()?;
    // Before the work is done: whether it can be written at all.
    let file = args.file.clone().filter(|path| path.as_os_str() != "-");
    let target = file.map(Target::new).transpose()?;
    let spool = tempfile::tempfile().context("can't make a temporary file")?;
    let export = Arc::new(Mutex::new(Export::new(args, spool)));
    let each = Arc::clone(&export);
    let mut progress = Progress::new("read", Unit::Of("records"), None);
    let list = cluster.tagged_record_source().allowing(PATIENCE);
    let list = list.list(move |object| {
        progress.step(1);
        let name = object.name.clone();
        each.lock().unwrap_or_else(PoisonError::into_inner).add(&name, &Found::from(object));
    });
    tokio::select! {
        listed = list => { listed?; }
        () = shutdown.stop.cancelled() => bail!("interrupted: nothing was written"),
    }
    let mut export = export.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(error) = export.failed.take() {
        return Err(error.context("can't write a temporary file"));
    }
    let head = head(&cluster.namespace, export.count, Timestamp::now());
    match target {
        None => export.copy_to(&head, BufWriter::new(io::stdout().lock()))?,
        Some(mut target) => {
            export.copy_to(&head, &mut target.file)?;
            target.persist()?;
            eprintln!("{} records written", export.count);
        }
    }
    if export.unreadable > 0 {
        eprintln!("warning: {} records can't be read, and are not in the export", export.unreadable);
        return Ok(Ended::Unwell);
    }
    Ok(Ended::Well)
}

/// A file that is there when all of it is, and not before.
struct Target {
    file: NamedTempFile,
    path: PathBuf,
}

impl Target {
    fn new(path: PathBuf) -> Result<Self> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let file = NamedTempFile::new_in(folder.unwrap_or(Path::new(".")));
        let file = file.with_context(|| format!("can't write {}", path.display()))?;
        Ok(Self { file, path })
    }

    fn persist(self) -> Result<()> {
        self.file.as_file().sync_all()?;
        self.file.persist(&self.path).with_context(|| format!("can't write {}", self.path.display()))?;
        Ok(())
    }
}

fn head(namespace: &str, count: usize, now: Timestamp) -> String {
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
    let version = env!("CARGO_PKG_VERSION");
    format!(
        "# Label Storage: {count} records of namespace {namespace}, at {now}, by version {version}.\n\
         # One document for each node. Edit what you like: what stands here is what an import stores, and what comes back with the node.\n"
    )
}

/// What was written so far.
struct Export {
    args: Args,
    spool: BufWriter<File>,
    count: usize,
    unreadable: usize,
    failed: Option<anyhow::Error>,
}

impl Export {
    fn new(args: Args, spool: File) -> Self {
        Self { args, spool: BufWriter::new(spool), count: 0, unreadable: 0, failed: None }
    }

    /// All of it. Whether a list was whole is known at its end, so nothing is printed before that.
    fn copy_to(&mut self, head: &str, mut out: impl Write) -> Result<()> {
        self.spool.flush()?;
        let spool = self.spool.get_mut();
        spool.rewind()?;
        out.write_all(head.as_bytes())?;
        io::copy(spool, &mut out)?;
        write!(out, "---\n# Without this, an import is refused: the file may have been cut off.\n{END}\n")?;
        Ok(out.flush()?)
    }

    fn add(&mut self, name: &str, found: &Found) {
        match &found.content {
            Ok(decoded) if self.wants(&decoded.record) => {
                if self.failed.is_none() {
                    self.failed = self.write(&decoded.record, &Tags::of(&found.config_map)).err();
                }
            }
            Ok(_) => (),
            Err(error) => {
                self.unreadable += 1;
                if self.unreadable <= TOLD {
                    eprintln!("warning: configmap {name}: {error}");
                }
            }
        }
    }

    /// One that is empty is about to be deleted, and has nothing to bring back.
    fn wants(&self, record: &Record) -> bool {
        let is_departed = !self.args.departed || record.departed_at.is_some();
        is_departed && !record.is_empty() && self.args.selector.matches(&record.labels)
    }

    fn write(&mut self, record: &Record, tags: &Tags) -> Result<()> {
        let yaml = Document::of(record, tags, !self.args.no_history).to_yaml()?;
        write!(self.spool, "---\n{yaml}")?;
        if !yaml.ends_with('\n') {
            writeln!(self.spool)?;
        }
        self.count += 1;
        Ok(())
    }
}
