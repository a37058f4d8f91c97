//! `__complete`: the candidates for the next word, as kubectl asks its plugins for them: one a line, with a tab before its description.
//! The last line is a number for the shell.

mod names;

use std::fmt::Write as _;
use std::io::{self, Write as _};

use anyhow::Result;
use clap::{Arg, Command, CommandFactory, ValueHint};

use self::names::{Kind, names};
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

/// What may come next.
#[derive(Debug, PartialEq, Eq)]
struct Offer {
    /// What the definitions have, with what it means.
    candidates: Vec<(String, String)>,
    beside: Beside,
    /// Names of this kind that begin so, after so much that stands before each.
    names: Option<(Kind, String, String)>,
}

impl Offer {
    fn new(candidates: Vec<(String, String)>, beside: Beside) -> Self {
        Self { candidates, beside, names: None }
    }

    /// The value of an argument of which there is this already, and something before it.
    fn value(arg: &Arg, before: &str, start: &str) -> Self {
        let with_before = |(candidate, about)| (format!("{before}{candidate}"), about);
        let candidates = starting(values(arg), start).into_iter().map(with_before).collect();
        let names = kind(arg).map(|kind| (kind, before.to_owned(), start.to_owned()));
        Self { candidates, beside: beside(arg), names }
    }
}

pub(crate) async fn run(words: &Words) -> Result<Ended> {
    let mut command = Cli::command();
    command.build();
    let Offer { mut candidates, beside, names: wanted } = complete(&command, &words.words);
    if let (Some((kind, before, start)), Some((_, words))) = (wanted, words.words.split_last()) {
        let found = names(kind, words, &start).await;
        candidates.extend(found.into_iter().map(|name| (format!("{before}{name}"), String::new())));
    }
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

fn complete(command: &Command, words: &[String]) -> Offer {
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
    if let Some(arg) = awaited {
        return Offer::value(arg, "", last);
    }
    if let Some((name, value)) = last.split_once('=').filter(|_| last.starts_with("--")) {
        let arg = command.get_arguments().find(|arg| is_long(arg, name) && arg.get_action().takes_values());
        let Some(arg) = arg else { return Offer::new(Vec::new(), Beside::Nothing) };
        return Offer::value(arg, &format!("{name}="), value);
    }
    if last.starts_with('-') {
        return Offer::new(starting(flags(command), last), Beside::Nothing);
    }
    if command.has_subcommands() {
        let named = |sub: &Command| (sub.get_name().to_owned(), about(sub.get_about()));
        let shown = command.get_subcommands().filter(|sub| !sub.is_hide_set()).map(named).collect();
        return Offer::new(starting(shown, last), Beside::Nothing);
    }
    let arg = command.get_positionals().nth(positionals).or_else(|| command.get_positionals().last());
    match arg {
        Some(arg) => Offer::value(arg, "", last),
        None => Offer::new(Vec::new(), Beside::Nothing),
    }
}

fn starting(all: Vec<(String, String)>, with: &str) -> Vec<(String, String)> {
    all.into_iter().filter(|(candidate, _)| candidate.starts_with(with)).collect()
}

/// Of which kind the names are that it takes.
fn kind(arg: &Arg) -> Option<Kind> {
    let names = arg.get_value_names().unwrap_or_default();
    match (arg.get_id().as_str(), names.first().map(clap::builder::Str::as_str)) {
        ("context", _) => Some(Kind::Contexts),
        ("namespace", _) => Some(Kind::Namespaces),
        (_, Some("NODE" | "OLD")) => Some(Kind::Nodes),
        _ => None,
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
        let Offer { candidates, beside, .. } = complete(&command, &words);
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
            (&["check", "--output", "j"], &["json", "jsonpath="]),
            (&["check", "--output=j"], &["--output=json", "--output=jsonpath="]),
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

    #[test]
    fn names_are_asked_for_where_they_belong() {
        let mut command = Cli::command();
        command.build();
        for (words, expected) in [
            (&["get", "a"][..], Some((Kind::Nodes, "", "a"))),
            (&["get", "a", "b"], Some((Kind::Nodes, "", "b"))),
            (&["set", ""], Some((Kind::Nodes, "", ""))),
            (&["set", "a", ""], None),
            (&["rename", ""], Some((Kind::Nodes, "", ""))),
            (&["--context", "x"], Some((Kind::Contexts, "", "x"))),
            (&["get", "--context=x"], Some((Kind::Contexts, "--context=", "x"))),
            (&["get", "-n", ""], Some((Kind::Namespaces, "", ""))),
            (&["get", "-o", ""], None),
            (&[""], None),
        ] {
            let given: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
            let names = complete(&command, &given).names;
            let names = names.as_ref().map(|(kind, before, start)| (*kind, before.as_str(), start.as_str()));
            assert_eq!(names, expected, "{words:?}");
        }
    }
}
