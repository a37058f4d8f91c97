//! How it all stands.
//!
//! ```text
//!   look: Nodes, records and Leases, listed at the same time ─► judge: how each Node stands, as the daemons would say
//!                                                                 │
//!   memory: what looked the same in the look before ─────────────►│
//!                                                                 ▼
//!                                                   report: figures, and what is not well ─► show
//! ```

mod judge;
mod look;
mod memory;
mod report;
mod shards;
mod show;

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use anyhow::Result;
use globset::GlobMatcher;
use jiff::Timestamp;
use label_storage_runtime::args::{duration, glob, interval};
use label_storage_runtime::lease;

use self::look::Look;
use self::memory::Memory;
use self::report::{Limits, Report};
use self::shards::Scope;
use crate::Ended;
use crate::advice::Advice;
use crate::cli::{Format, Global};
use crate::cluster::Cluster;
use crate::output;

/// Between two looks there is a rest of so many times what the first of them took: whoever watches should not be a burden.
const REST: u32 = 3;

/// Flags.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// How to print it
    #[arg(long, short, value_enum, value_name = "FORMAT", default_value_t)]
    pub output: Format,

    /// Keep it up to date, until Ctrl-C
    #[arg(long, short)]
    pub watch: bool,

    /// Time between two looks with --watch, from 100ms to 1h. Never less than three times what a look takes
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = interval)]
    pub interval: Duration,

    /// What has not changed for this long is no work in progress. A little more than storers need that only list
    #[arg(long, value_name = "TIME", default_value = "6s", value_parser = duration)]
    pub patience: Duration,

    /// A node that is there for longer than this should have its labels, and a record
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = duration)]
    pub overdue: Duration,

    /// Only nodes whose name matches, such as 'pool-a-*', and the daemons that were started with the same --nodes
    #[arg(long, env = "LABEL_STORAGE_NODES", value_name = "GLOB", value_parser = glob)]
    pub nodes: Option<GlobMatcher>,
}

/// Takes looks, and remembers what it needs from one to the next.
struct Observer<'a> {
    cluster: Cluster,
    global: &'a Global,
    args: &'a Args,
    scope: Option<String>,
    memory: Memory,
}

impl Observer<'_> {
    async fn look(&mut self) -> Result<Report> {
        let look = Look::take(&self.cluster, self.args.nodes.as_ref()).await?;
        let limits = Limits { patience: self.args.patience, overdue: self.args.overdue };
        let scope = self.scope.as_deref().map_or(Scope::All, Scope::Only);
        let namespace = &self.cluster.namespace;
        Ok(Report::of(look, &mut self.memory, limits, namespace, scope, Instant::now()))
    }

    /// The same, by the rules that hold by now.
    async fn look_anew(&mut self) -> Result<Report> {
        self.cluster.reread_rules(self.global).await?;
        self.look().await
    }
}

pub(crate) async fn run(cluster: Cluster, global: &Global, args: Args) -> Result<Ended> {
    let scope = args.nodes.as_ref().map(lease::scope);
    let mut observer = Observer { cluster, global, args: &args, scope, memory: Memory::default() };
    if args.watch {
        return watch(&mut observer).await;
    }
    let mut report = observer.look().await?;
    if report.is_unsure {
        eprintln!("some of it may be work in progress: looking again in {:?}", args.patience);
        tokio::time::sleep(args.patience).await;
        report = observer.look().await?;
    }
    print(&report, &observer.cluster.advice, args.output, &mut io::stdout().lock())?;
    Ok(if report.healthy { Ended::Well } else { Ended::Unwell })
}

/// Looks again and again, until a person has seen enough.
async fn watch(observer: &mut Observer<'_>) -> Result<Ended> {
    let mut is_first = true;
    let looks = async {
        loop {
            let began = Instant::now();
            let seen = if is_first { observer.look().await } else { observer.look_anew().await };
            let mut block = Vec::new();
            match seen {
                Ok(report) => print(&report, &observer.cluster.advice, observer.args.output, &mut block)?,
                // Then there is nothing to be kept up to date.
                Err(error) if is_first => return Err(error),
                Err(error) => eprintln!("error: {error:#}"),
            }
            if !block.is_empty() {
                show_next(&block, observer.args.output, is_first)?;
            }
            is_first = false;
            tokio::time::sleep(observer.args.interval.max(began.elapsed() * REST)).await;
        }
    };
    tokio::select! {
        ended = looks => ended,
        interrupted = tokio::signal::ctrl_c() => Ok(interrupted.map(|()| Ended::Well)?),
    }
}

/// In place of the block before on a terminal, after it elsewhere.
fn show_next(block: &[u8], format: Format, is_first: bool) -> io::Result<()> {
    const CLEAR: &[u8] = b"\x1b[H\x1b[2J";
    let mut out = io::stdout().lock();
    let before: &[u8] = match format {
        Format::Table if io::stdout().is_terminal() => CLEAR,
        Format::Yaml if !is_first => b"---\n",
        Format::Table if !is_first => b"\n",
        _ => b"",
    };
    // At once, lest it flickers.
    out.write_all(&[before, block].concat())?;
    out.flush()
}

fn print(report: &Report, advice: &Advice, format: Format, out: &mut impl Write) -> Result<()> {
    if !output::write_for_machines(format, report, out)? {
        out.write_all(show::text(report, Timestamp::now(), advice).as_bytes())?;
    }
    Ok(())
}
