//! `__complete`: what may come next on a command line, for kubectl, which asks plugins in the way that cobra has it.
//!
//! One candidate a line, with a tab before what it means; the last line is a number that says what else the shell may offer.

use std::fmt::Write as _;
use std::io::{self, Write as _};

use anyhow::Result;
use clap::{Arg, Command, CommandFactory, ValueHint};

use crate::Ended;
use crate::cli::Cli;

/// The words so far, the last of which is to be completed.
#[derive(Debug, clap::Args)]
pub struct Words {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

/// What the shell may offer beside, as cobra numbers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Beside {
    /// Files.
    Files = 0,
    /// Nothing.
    Nothing = 4,
}

pub(crate) fn run(words: &Words) -> Result<Ended> {
    let mut command = Cli::command();
    command.build();
    let (candidates, beside) = complete(&command, &words.words);
    let mut text = String::new();
    for (candidate, about) in candidates {
        // A String takes everything.
        let _ = if about.is_empty() {
            writeln!(text, "{candidate}")
        } else {
            writeln!(text, "{candidate}\t{about}")
        };
    }
    writeln!(io::stdout().lock(), "{text}:{}", beside as u8)?;
    Ok(Ended::Well)
}

fn complete(command: &Command, words: &[String]) -> (Vec<(String, String)>, Beside) {
    let (last, before) = words.split_last().map_or(("", &[][..]), |(last, before)| (last.as_str(), before));
    let (mut command, mut awaited, mut positionals) = (command, None, 0);
    for word in before {
        if awaited.take().is_some() {
            continue;
        }
        if word.starts_with('-') {
            awaited = flag(command, word);
        } else if let Some(sub) = command.find_subcommand(word) {
            (command, positionals) = (sub, 0);
        } else {
            positionals += 1;
        }
    }
    let starts = |all: Vec<(String, String)>, with: &str| -> Vec<_> {
        all.into_iter().filter(|(candidate, _)| candidate.starts_with(with)).collect()
    };
    if let Some(arg) = awaited {
        return (starts(values(arg), last), beside(arg));
    }
    if let Some((name, value)) = last.split_once('=').filter(|_| last.starts_with("--")) {
        let arg = command.get_arguments().find(|arg| is_long(arg, name) && arg.get_action().takes_values());
        let Some(arg) = arg else { return (Vec::new(), Beside::Nothing) };
        let with_name = |(candidate, about)| (format!("{name}={candidate}"), about);
        return (starts(values(arg), value).into_iter().map(with_name).collect(), beside(arg));
    }
    if last.starts_with('-') {
        return (starts(flags(command), last), Beside::Nothing);
    }
    if command.has_subcommands() {
        let named = |sub: &Command| (sub.get_name().to_owned(), about(sub.get_about()));
        let shown = command.get_subcommands().filter(|sub| !sub.is_hide_set()).map(named).collect();
        return (starts(shown, last), Beside::Nothing);
    }
    let arg = command.get_positionals().nth(positionals).or_else(|| command.get_positionals().last());
    match arg {
        Some(arg) => (starts(values(arg), last), beside(arg)),
        None => (Vec::new(), Beside::Nothing),
    }
}

/// The flag whose value comes with the next word.
fn flag<'a>(command: &'a Command, word: &str) -> Option<&'a Arg> {
    let is_it = |arg: &&Arg| {
        let is_short =
            arg.get_short().is_some_and(|short| word.strip_prefix('-') == Some(short.to_string().as_str()));
        is_long(arg, word) || is_short
    };
    let takes_next = |arg: &&Arg| arg.get_action().takes_values() && !arg.is_require_equals_set();
    command.get_arguments().find(is_it).filter(takes_next)
}

fn is_long(arg: &Arg, word: &str) -> bool {
    arg.get_long().is_some_and(|long| word.strip_prefix("--") == Some(long))
}

fn flags(command: &Command) -> Vec<(String, String)> {
    let shown = command.get_arguments().filter(|arg| !arg.is_hide_set());
    shown.filter_map(|arg| Some((format!("--{}", arg.get_long()?), about(arg.get_help())))).collect()
}

fn values(arg: &Arg) -> Vec<(String, String)> {
    let shown = arg.get_possible_values().into_iter().filter(|value| !value.is_hide_set());
    shown.map(|value| (value.get_name().to_owned(), about(value.get_help()))).collect()
}

/// Files where a path is asked for.
fn beside(arg: &Arg) -> Beside {
    match arg.get_value_hint() {
        ValueHint::AnyPath | ValueHint::FilePath | ValueHint::DirPath => Beside::Files,
        _ => Beside::Nothing,
    }
}

/// The first line: more would be other candidates.
fn about(text: Option<&clap::builder::StyledStr>) -> String {
    let text = text.map(ToString::to_string).unwrap_or_default();
    text.lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offered(words: &[&str]) -> (Vec<String>, Beside) {
        let mut command = Cli::command();
        command.build();
        let words: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
        let (candidates, beside) = complete(&command, &words);
        (candidates.into_iter().map(|(candidate, _)| candidate).collect(), beside)
    }

    #[test]
    fn commands_flags_and_values_are_completed() {
        let nothing = Beside::Nothing;
        let (all, beside) = offered(&[""]);
        assert!(all.contains(&"status".to_owned()) && !all.contains(&"__complete".to_owned()), "{all:?}");
        assert_eq!(beside, nothing);
        for (words, candidates) in [
            (&["che"][..], &["check"][..]),
            (&["--namespace", "che", "che"], &["check"]),
            (&["-n", "che", "che"], &["check"]),
            (&["completion", "po"], &["powershell"]),
            (&["check", "--output", "j"], &["json"]),
            (&["check", "--output=j"], &["--output=json"]),
            (&["check", "-o", "y"], &["yaml"]),
            (&["check", "--kubec"], &["--kubeconfig"]),
            (&["--as-"], &["--as-group"]),
            (&["check", "--nonsense=x"], &[]),
            (&["check", "x"], &[]),
        ] {
            let candidates = candidates.iter().map(|word| (*word).to_owned()).collect();
            assert_eq!(offered(words), (candidates, nothing), "{words:?}");
        }
        assert_eq!(offered(&["--kubeconfig", ""]), (Vec::new(), Beside::Files));
    }
}
