//! Records from a file that [`export`](super::export) has written, or a person.
//!
//! All of the file is checked before anything is changed, and then compared with what there is. What is written belongs to no
//! incarnation of a Node, so it is given to the next that comes, or, where that is asked for, to the one that is there.

mod imported;
mod pieces;
mod reading;
mod survey;
mod writing;

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use label_storage_runtime::shutdown::Shutdown;

use self::reading::Reading;
use self::survey::{Options, Survey};
use self::writing::Written;
use crate::Ended;
use crate::cluster::Cluster;
use crate::confirm::{Answer, confirm, confirm_beside_stdin};
use crate::flags::Change;

/// Stands where the incarnation of an imported record would: no Node has it, and a person sees where the record comes from.
pub(crate) const NOBODY: &str = "imported";

/// So much that is wrong, or in the way, is told one by one.
const TOLD: usize = 20;

/// Where from, and what may be overwritten.
#[derive(Debug, clap::Args)]
#[command(
    after_long_help = "All of the file is checked first, and nothing is changed where anything is wrong with it.\n\n\
    What is imported belongs to no incarnation of a node: it is given to the next node of that name (or identity) that is created, \
    and kept for it for the retention, which begins with the import, whatever `departedAt` says.\n\n\
    A node that is there counts for more than a file, so its record is left alone. With --include-living it is given what the file has \
    and it lacks, as if it had just returned: labels that it has stay as they are (unless a conflict rule says otherwise), and from \
    then on its record follows it again.\n\n\
    An import that was interrupted can be run again: what is stored as the file says is not written again."
)]
pub struct Args {
    /// Read this file; - is stdin [default: stdin]
    #[arg(long, short, value_name = "FILE")]
    file: Option<PathBuf>,

    /// Overwrite records that are there and differ; what they held goes into their history
    #[arg(long)]
    replace: bool,

    /// Also records of nodes that are there: they are given what they lack
    #[arg(long)]
    include_living: bool,

    #[command(flatten)]
    change: Change,
}

pub(crate) async fn run(cluster: &Cluster, args: Args) -> Result<Ended> {
    let file = args.file.filter(|path| path.as_os_str() != "-");
    let spool = match &file {
        Some(path) => File::open(path).and_then(pieces::spool),
        None => pieces::spool(io::stdin().lock()),
    };
    let name = file.as_ref().map_or_else(|| "stdin".to_owned(), |path| path.display().to_string());
    let spool = Arc::new(spool.with_context(|| format!("can't read {name}"))?);
    let read =
        reading::read(&spool, &cluster.rules.identity).with_context(|| format!("can't read {name}"))?;
    let documents = match read {
        Reading::Whole(documents) => documents,
        Reading::Wrong { problems, more } => {
            for problem in &problems {
                eprintln!("{name}: line {}: {}", problem.line, problem.what);
            }
            let all = problems.len() + more;
            let shown =
                if more > 0 { format!(", of which {} are shown", problems.len()) } else { String::new() };
            bail!("{name} can't be imported, and nothing was changed: problems: {all}{shown}");
        }
    };
    let options = Options { replace: args.replace, include_living: args.include_living };
    let survey = Survey::make(cluster, documents, Arc::clone(&spool), options).await?;
    survey.print()?;
    if let Some(obstacle) = survey.obstacle() {
        bail!("{obstacle}");
    }
    let todo = survey.into_todo();
    if todo.is_empty() {
        return Ok(Ended::Well);
    }
    let question = format!("Write {} records to namespace {}?", todo.len(), cluster.namespace);
    let answer = match file {
        Some(_) => confirm(args.change, &question)?,
        None => confirm_beside_stdin(args.change, &question)?,
    };
    match answer {
        Answer::Go => (),
        Answer::OnlyShow => return Ok(Ended::Well),
        Answer::No => return Ok(Ended::Declined),
    }
    let shutdown = Shutdown::on_signals()?;
    let written = writing::write_all(cluster, &spool, todo, options, &shutdown).await;
    report(&written)
}

/// How far it came.
fn report(written: &Written) -> Result<Ended> {
    eprintln!("{written}");
    for (node, why) in &written.left_first {
        eprintln!("left alone: {node}: {why}");
    }
    if let Some(more) = written.left.checked_sub(written.left_first.len()).filter(|more| *more > 0) {
        eprintln!("left alone: and {more} more");
    }
    if let Some(why) = &written.stopped {
        bail!("{why}: {} records are not written; run the same import again to go on", written.unwritten);
    }
    if written.left == 0 {
        Ok(Ended::Well)
    } else {
        bail!(
            "{} records were left alone; run the same import again to see what is to be done about them",
            written.left
        )
    }
}
