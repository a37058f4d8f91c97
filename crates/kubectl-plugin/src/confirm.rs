//! Asks before anything is changed.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Write};

use anyhow::{Result, bail};

use crate::cli::Change;

/// What to do with a change that was shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Make it.
    Go,
    /// It was only to be shown.
    OnlyShow,
    /// The person does not want it.
    No,
}

/// Asks whether to make the change that was just shown.
pub(crate) fn confirm(change: Change, question: &str) -> Result<Answer> {
    if let Some(answer) = given(change) {
        return Ok(answer);
    }
    let stdin = io::stdin();
    if !stdin.is_terminal() {
        bail!(NOBODY);
    }
    ask(question, io::stderr(), stdin.lock())
}

/// The same where stdin is what was read, so that no answer can come from it: the terminal itself is asked, if there is one.
pub(crate) fn confirm_beside_stdin(change: Change, question: &str) -> Result<Answer> {
    if let Some(answer) = given(change) {
        return Ok(answer);
    }
    let Ok(terminal) = File::options().read(true).write(true).open("/dev/tty") else { bail!(NOBODY) };
    ask(question, &terminal, BufReader::new(&terminal))
}

const NOBODY: &str =
    "there is nobody to ask: give --yes to go ahead, or --dry-run to see what would be changed";

/// What the command line has answered already.
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
