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

const NO_TERMINAL: &str =
    "there is no terminal to ask at: give --yes to go ahead, or --dry-run to only show the changes";

pub(crate) fn confirm(change: Change, question: &str) -> Result<Answer> {
    let stdin = io::stdin();
    match given(change) {
        Some(answer) => Ok(answer),
        None if stdin.is_terminal() => ask(question, io::stderr(), stdin.lock()),
        None => bail!(NO_TERMINAL),
    }
}

/// The same for a command that reads its input from stdin: asks at the terminal itself. Windows has no such file.
pub(crate) fn confirm_beside_stdin(change: Change, question: &str) -> Result<Answer> {
    if let Some(answer) = given(change) {
        return Ok(answer);
    }
    let Ok(terminal) = File::options().read(true).write(true).open("/dev/tty") else { bail!(NO_TERMINAL) };
    ask(question, &terminal, BufReader::new(&terminal))
}

/// The answer on the command line.
fn given(change: Change) -> Option<Answer> {
    match change {
        Change { dry_run: Some(_), .. } => Some(Answer::OnlyShow),
        Change { yes: true, .. } => Some(Answer::Go),
        Change { .. } => None,
    }
}

fn ask(question: &str, mut to: impl Write, mut from: impl BufRead) -> Result<Answer> {
    write!(to, "{question} [y/N] ")?;
    to.flush()?;
    let mut answer = String::new();
    from.read_line(&mut answer)?;
    let is_yes = matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes");
    Ok(if is_yes { Answer::Go } else { Answer::No })
}
