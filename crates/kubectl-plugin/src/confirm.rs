//! Asks before anything is changed.

use std::io::{self, IsTerminal, Write};

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
    if change.dry_run {
        return Ok(Answer::OnlyShow);
    }
    if change.yes {
        return Ok(Answer::Go);
    }
    if !io::stdin().is_terminal() {
        bail!("there is nobody to ask: give --yes to go ahead, or --dry-run to see what would be changed");
    }
    eprint!("{question} [y/N] ");
    io::stderr().flush()?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    let is_yes = matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes");
    Ok(if is_yes { Answer::Go } else { Answer::No })
}
