//! `model`: searches every order of events, and prints the shortest trace to a broken promise.

use std::io::Write;
use std::process::ExitCode;

use ::model::cases::{self, Case};
use ::model::{Config, Guard, Left, Property, RestorerWatch, Resume, search};
use clap::{Parser, value_parser};

/// Check the protocol with every order of events, within bounds
///
/// Searches every order of events of a Node and its record, and lets the daemons' own functions decide. Without options, it searches the
/// cases of the tests. The exit code is 1 if a promise is broken, and 3 if there are more states than `--most` allows.
///
/// With one of the bounds (`--label` and those after it), it makes one search with these bounds. Bounds that are not given are 0.
#[derive(Debug, Parser)]
#[command(
    version,
    max_term_width = 100,
    after_help = "\
Examples:
  cargo run --release --bin model
  cargo run --release --bin model -- --without own-marker
  cargo run --release --bin model -- --label 1 --delete 2 --crash 1"
)]
struct Arguments {
    /// Search the deep cases, which takes many minutes and much memory (see `--most`)
    #[arg(long)]
    deep: bool,

    /// Remove a guard, and show the promise that is broken without it
    #[arg(long, value_name = "GUARD", conflicts_with = "deep")]
    without: Option<Guard>,

    /// Stop each search after this many states
    #[arg(long, value_name = "N", default_value_t = 60_000_000)]
    most: usize,

    #[command(flatten)]
    own: Own,
}

/// The bounds of a custom search.
#[derive(Debug, clap::Args)]
struct Own {
    /// Number of names of Nodes
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = one_or_two)]
    names: usize,

    /// Number of storers
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = one_or_two)]
    storers: usize,

    /// Number of restorers
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = one_or_two)]
    restorers: usize,

    /// Number of label keys
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = one_or_two)]
    keys: usize,

    /// Let storers list instead of watch
    #[arg(long)]
    poll: bool,

    /// The watch of the restorers
    #[arg(long, value_enum, value_name = "WATCH", default_value = "complete")]
    restorer_watch: RestorerWatch,

    /// The position at which a killed daemon starts its watch again
    #[arg(long, value_enum, value_name = "WHERE", default_value = "list")]
    resume: Resume,

    /// Include a known gap: final labels are stored after a newer record was emptied and deleted
    #[arg(long)]
    late_final_labels: bool,

    /// How often a person sets a label or changes its value
    #[arg(long, value_name = "N", value_parser = value_parser!(u8).range(..=4))]
    label: Option<u8>,

    /// How often a person removes a label
    #[arg(long, value_name = "N", value_parser = value_parser!(u8).range(..=4))]
    unlabel: Option<u8>,

    /// How often a Node is deleted; it may be re-created each time
    #[arg(long, value_name = "N", value_parser = value_parser!(u8).range(..=4))]
    delete: Option<u8>,

    /// How often a Node is re-created with a label from its kubelet
    #[arg(long, value_name = "N", value_parser = value_parser!(u8).range(..=4))]
    kubelet: Option<u8>,

    /// How often a Node is re-created with the marker of the one before
    #[arg(long, value_name = "N", value_parser = value_parser!(u8).range(..=4))]
    copy: Option<u8>,

    /// How often a storer or a restorer is killed
    #[arg(long, value_name = "N", value_parser = value_parser!(u8).range(..=4))]
    crash: Option<u8>,

    /// How often a write or its answer is lost
    #[arg(long, value_name = "N", value_parser = value_parser!(u8).range(..=4))]
    lose: Option<u8>,

    /// How often a write arrives late or twice
    #[arg(long, value_name = "N", value_parser = value_parser!(u8).range(..=4))]
    late: Option<u8>,

    /// How often a person edits or deletes the record of an absent Node
    #[arg(long, value_name = "N", value_parser = value_parser!(u8).range(..=4))]
    edit: Option<u8>,
}

fn one_or_two(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|number| (1..=2).contains(number)).ok_or_else(|| "give 1 or 2".to_owned())
}

impl Own {
    /// `None` if no bound is given.
    fn config(&self, without: Option<Guard>) -> Option<Config> {
        let bounds = [
            self.label,
            self.unlabel,
            self.delete,
            self.kubelet,
            self.copy,
            self.crash,
            self.lose,
            self.late,
            self.edit,
        ];
        bounds.iter().any(Option::is_some).then(|| {
            let [label, unlabel, delete, kubelet, copy, crash, lose, late, edit] =
                bounds.map(Option::unwrap_or_default);
            Config {
                names: self.names,
                storers: self.storers,
                restorers: self.restorers,
                keys: self.keys,
                watch: !self.poll,
                restorer_watch: self.restorer_watch,
                resume: self.resume,
                left: Left { label, unlabel, delete, kubelet, copy, crash, lose, late, edit },
                without,
                late_final_labels: self.late_final_labels,
            }
        })
    }
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) if error.use_stderr() => {
            let text = error.to_string();
            let lines = text.lines().map(str::trim).take_while(|line| !line.is_empty());
            eprintln!("{}", lines.collect::<Vec<_>>().join(" "));
            return ExitCode::from(2);
        }
        // Help, or the version.
        Err(error) => error.exit(),
    };
    let cases = match (arguments.own.config(arguments.without), arguments.without) {
        (Some(config), _) => vec![Case { name: "custom bounds", config }],
        (None, Some(guard)) => vec![Case { name: "without the guard", config: cases::shown_by(guard).0 }],
        (None, None) if arguments.deep => cases::DEEP.to_vec(),
        (None, None) => cases::QUICK.to_vec(),
    };
    match run(&cases, arguments.most) {
        Ok(code) => code,
        // Standard output is closed.
        Err(_) => ExitCode::FAILURE,
    }
}

fn run(cases: &[Case], most: usize) -> std::io::Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    let (mut states, mut is_complete) = (0, true);
    for (number, Case { name, config }) in cases.iter().enumerate() {
        let Config { names, storers, restorers, keys, watch, resume, left, without, .. } = config;
        writeln!(out, "{}. {name}", number + 1)?;
        let Left { label, unlabel, delete, kubelet, copy, crash, lose, late, edit } = left;
        writeln!(
            out,
            "   names {names}  storers {storers}  restorers {restorers}  keys {keys}  watch {watch}  resume {resume:?}"
        )?;
        writeln!(
            out,
            "   label {label}  unlabel {unlabel}  delete {delete}  kubelet {kubelet}  copy {copy}  crash {crash}  lose {lose}  late {late}  edit {edit}"
        )?;
        if let Some(guard) = without {
            writeln!(out, "   without {guard:?}")?;
        }
        out.flush()?;
        let report = search(*config, most);
        writeln!(
            out,
            "   {} states  {} steps  depth {}  {:.1} s",
            report.states,
            report.steps,
            report.depth,
            report.took.as_secs_f64()
        )?;
        if let Some(counterexample) = report.counterexample {
            writeln!(out, "{counterexample}")?;
            return Ok(ExitCode::FAILURE);
        }
        states += report.states;
        if !report.is_complete {
            writeln!(out, "   incomplete: stopped at --most {most}")?;
            is_complete = false;
        }
    }
    writeln!(out, "{states} states, and no promise is broken:")?;
    for (_, promise) in Property::ALL {
        writeln!(out, "   {promise}")?;
    }
    Ok(if is_complete { ExitCode::SUCCESS } else { ExitCode::from(3) })
}
