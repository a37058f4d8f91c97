//! Writes docs/cli.md, or man pages, from the definitions of the command line. A test fails while docs/cli.md is out of date.
//!
//! An example and not a program, so that `cargo install` does not install it.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::builder::StyledStr;
use clap::{Arg, Command, CommandFactory, Parser};
use kubectl_plugin::Cli;

/// Write docs/cli.md from the definitions of the command line
#[derive(Parser)]
struct Arguments {
    /// Write man pages to this folder instead; it is created if it does not exist
    #[arg(long, value_name = "FOLDER")]
    man: Option<PathBuf>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let written = match &arguments.man {
        Some(folder) => man(folder),
        None => {
            let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli.md");
            std::fs::write(page, markdown(Cli::command()))
        }
    };
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// One page for the program, and one for each of its commands.
pub(crate) fn man(folder: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    // The file names that `man kubectl-label_storage` and `man kubectl-label_storage-status` look for.
    clap_mangen::generate_to(Cli::command(), folder)
}

/// The command that generates the page.
pub(crate) const MADE_BY: &str = "cargo run --package kubectl-plugin --example manual";

/// Options that mean the same in kubectl, whose documentation describes them.
const KUBECTL: [&str; 9] =
    ["kubeconfig", "context", "cluster", "user", "server", "token", "request-timeout", "as", "as-group"];

/// The page: the options of several commands, and a section for each command.
pub(crate) fn markdown(mut command: Command) -> String {
    command.build();
    let name = command.get_bin_name().unwrap_or(command.get_name()).to_owned();
    let mut page = format!(
        "<!-- Made by `{MADE_BY}` from the definitions in crates/kubectl-plugin: change those. -->\n\n"
    );
    // Writing to a String can't fail.
    let _ = write!(
        page,
        "# `{name}`\n\n{}\n\n",
        wrapped(&text(command.get_long_about().or(command.get_about())))
    );
    let commands: Vec<_> =
        command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help").collect();
    let items: Vec<Vec<_>> = commands
        .iter()
        .map(|sub| sub.get_arguments().filter(|arg| !arg.is_global_set()).filter_map(item).collect())
        .collect();
    let users = |item: &String| -> Vec<&str> {
        let users = commands.iter().zip(&items).filter(|(_, items)| items.contains(item));
        users.map(|(sub, _)| sub.get_name()).collect()
    };
    let (kubectl, global): (Vec<_>, Vec<_>) = command
        .get_arguments()
        .filter(|arg| arg.is_global_set())
        .partition(|arg| arg.get_long().is_some_and(|long| KUBECTL.contains(&long)));
    let kubectl: Vec<_> = kubectl.iter().filter_map(|arg| Some(format!("`--{}`", arg.get_long()?))).collect();
    let _ =
        write!(page, "## Options of all commands\n\nAs in kubectl:\n{}.\n\n", wrapped(&kubectl.join(", ")));
    global.into_iter().filter_map(item).for_each(|item| page += &listed(&item));
    page += "\n## Options of several commands\n\n";
    let mut shared: Vec<&String> = Vec::new();
    for item in items.iter().flatten().filter(|item| users(item).len() > 1) {
        if !shared.contains(&item) {
            shared.push(item);
            page += &listed(&format!("{} ({})", item.trim_end_matches('.'), users(item).join(", ")));
        }
    }
    for (sub, items) in commands.iter().zip(&items) {
        let about = text(sub.get_long_about().or(sub.get_about()));
        let _ = write!(page, "\n## {}\n\n{}\n", sub.get_name(), wrapped(&about));
        let own: String =
            items.iter().filter(|item| users(item).len() == 1).map(|item| listed(item)).collect();
        if !own.is_empty() {
            let _ = write!(page, "\n{own}");
        }
        let after = text(sub.get_after_long_help().or(sub.get_after_help()));
        if !after.is_empty() {
            let _ = write!(page, "\n{}\n", wrapped(&paragraphs(&after)));
        }
    }
    page
}

/// A flag or an argument, and its meaning.
fn item(arg: &Arg) -> Option<String> {
    let is_shown = !arg.is_hide_set() && !matches!(arg.get_id().as_str(), "help" | "version");
    is_shown.then(|| format!("`{}`: {}", spelled(arg), described(arg)))
}

fn listed(item: &str) -> String {
    wrapped(&format!("- {item}")) + "\n"
}

/// The text in lines of at most 120 characters. Blocks of code stay as they are.
fn wrapped(text: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    let (mut line, mut indent) = (String::new(), "");
    for source in text.lines() {
        let is_code = source.starts_with("    ");
        if !line.is_empty() && (is_code || source.trim().is_empty()) {
            lines.push(std::mem::take(&mut line));
        }
        if is_code || source.trim().is_empty() {
            lines.push(source.trim_end().to_owned());
            continue;
        }
        if line.is_empty() {
            indent = if source.starts_with("- ") { "  " } else { "" };
        }
        for word in source.split_whitespace() {
            if line.chars().count() + word.chars().count() >= 120 {
                lines.push(std::mem::replace(&mut line, indent.to_owned()));
            } else if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines.extend((!line.is_empty()).then_some(line));
    lines.join("\n")
}

/// The argument as a user types it.
fn spelled(arg: &Arg) -> String {
    let value = || {
        let names = arg.get_value_names().unwrap_or_default();
        names.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    };
    let (takes, many) =
        (arg.get_action().takes_values(), arg.get_num_args().is_some_and(|range| range.max_values() > 1));
    let value = if takes { format!("{}{}", value(), if many { "…" } else { "" }) } else { String::new() };
    match (arg.get_short(), arg.get_long()) {
        (Some(short), Some(long)) => format!("-{short}, --{long} {value}").trim_end().to_owned(),
        (None, Some(long)) => format!("--{long} {value}").trim_end().to_owned(),
        (Some(short), None) => format!("-{short} {value}").trim_end().to_owned(),
        (None, None) => value,
    }
}

/// Its meaning, possible values, default and environment variable.
fn described(arg: &Arg) -> String {
    let mut parts = vec![one_line(arg.get_long_help().or(arg.get_help()))];
    // In clap, a flag without a value has the possible values true and false.
    if arg.get_action().takes_values() {
        let values = arg.get_possible_values();
        let values: Vec<_> = values
            .iter()
            .filter(|value| !value.is_hide_set())
            .map(|value| format!("`{}`", value.get_name()))
            .collect();
        if !values.is_empty() {
            parts.push(format!("One of {}.", values.join(", ")));
        }
        let defaults = arg.get_default_values().iter().filter(|value| !value.is_empty());
        let defaults: Vec<_> = defaults.map(|value| format!("`{}`", value.to_string_lossy())).collect();
        if !defaults.is_empty() {
            parts.push(format!("Default: {}.", defaults.join(", ")));
        }
    }
    if let Some(variable) = arg.get_env() {
        parts.push(format!("Also `{}`.", variable.to_string_lossy()));
    }
    if arg.is_required_set() {
        parts.push("Required.".to_owned());
    }
    let mut described = String::new();
    for part in parts.iter().filter(|part| !part.is_empty()) {
        let end = if described.is_empty() || described.ends_with('.') { " " } else { ". " };
        described = format!("{described}{end}{part}");
    }
    described.trim_start().to_owned()
}

fn text(styled: Option<&StyledStr>) -> String {
    styled.map(ToString::to_string).unwrap_or_default().trim_end().to_owned()
}

/// Turns indented lines into code blocks, because they are commands.
fn paragraphs(text: &str) -> String {
    let mut page = String::new();
    let mut was_code = false;
    for line in text.lines() {
        let is_code = line.starts_with("  ");
        if is_code != was_code && !page.is_empty() && !page.ends_with("\n\n") {
            page.push('\n');
        }
        page += &if is_code { format!("    {}\n", line.trim_start()) } else { format!("{line}\n") };
        was_code = is_code;
    }
    page.trim_end().to_owned()
}

/// The text in one line.
fn one_line(styled: Option<&StyledStr>) -> String {
    text(styled).split_whitespace().collect::<Vec<_>>().join(" ")
}
