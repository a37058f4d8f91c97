//! Asks before anything is changed.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Write};

use anyhow::{Result, bail};

use crate::flags::Change;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    Go,
    OnlyShow,
    No,
}

pub(crate) fn confirm(change: Change, question: &str) -> Result<Answer> {
    let stdin = io::stdin();
    answer(change, question, stdin.is_terminal().then(|| (io::stderr(), stdin.lock())))
}

/// For a command that reads its input from stdin: asks at the terminal itself. Windows has no such file.
pub(crate) fn confirm_beside_stdin(change: Change, question: &str) -> Result<Answer> {
    let terminal = File::options().read(true).write(true).open("/dev/tty").ok();
    answer(change, question, terminal.as_ref().map(|terminal| (terminal, BufReader::new(terminal))))
}

/// The answer on the command line, else that of the person at the terminal.
fn answer(change: Change, question: &str, terminal: Option<(impl Write, impl BufRead)>) -> Result<Answer> {
    let Change { yes, dry_run } = change;
    if yes || dry_run.is_some() {
        return Ok(if dry_run.is_some() { Answer::OnlyShow } else { Answer::Go });
    }
    let Some((mut output, mut input)) = terminal else {
        bail!(
            "can't ask for confirmation without a terminal: give --yes to make the changes, or --dry-run to only show them"
        );
    };
    write!(output, "{question} [y/N] ")?;
    output.flush()?;
    let mut answer = String::new();
    input.read_line(&mut answer)?;
    let is_yes = matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes");
    Ok(if is_yes { Answer::Go } else { Answer::No })
}
