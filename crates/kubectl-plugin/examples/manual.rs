//! Writes docs/cli.md, or man pages, from the definitions of the command line. A test fails while docs/cli.md is out of date.
//!
//! An example and not a program, so that `cargo install` does not install it.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::builder::StyledStr;
use clap::{Arg, Command, CommandFactory, Parser};
use kubectl_plugin::Cli;

/// Writes docs/cli.md, made from the definitions of the command line
#[derive(Parser)]
struct Arguments {
    /// Write man pages into this folder instead, which is made where it is missing
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
    // As man finds `man kubectl-label_storage`, and `man kubectl-label_storage-status`.
    clap_mangen::generate_to(Cli::command(), folder)
}

/// The command that makes the page.
pub(crate) const MADE_BY: &str = "cargo run --package kubectl-plugin --example manual";

/// The page: the options of all commands, and a section for each command.
pub(crate) fn markdown(mut command: Command) -> String {
    command.build();
    let name = command.get_bin_name().unwrap_or(command.get_name()).to_owned();
    let mut page = format!(
        "<!-- Made by `{MADE_BY}` from the definitions in crates/kubectl-plugin: change those. -->\n\n"
    );
    // Writing to a String can't fail.
    let _ = write!(page, "# `{name}`\n\n{}\n\n", text(command.get_long_about().or(command.get_about())));
    let shown = || command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help");
    page += "| command | |\n|---|---|\n";
    for sub in shown() {
        let (sub, about) = (sub.get_name(), cell(sub.get_about()));
        let _ = writeln!(page, "| [`{sub}`](#{sub}) | {about} |");
    }
    page += "\n## Options of all commands\n\n";
    page += &table(command.get_arguments().filter(|arg| arg.is_global_set()));
    for sub in shown() {
        let usage = sub.clone().render_usage().to_string();
        let usage = usage.trim_start_matches("Usage: ");
        let _ = write!(
            page,
            "\n## {}\n\n{}\n\n    {usage}\n",
            sub.get_name(),
            text(sub.get_long_about().or(sub.get_about()))
        );
        let after = text(sub.get_after_long_help().or(sub.get_after_help()));
        let own = table(sub.get_arguments().filter(|arg| !arg.is_global_set()));
        if !own.is_empty() {
            let _ = write!(page, "\n{own}");
        }
        if !after.is_empty() {
            let _ = write!(page, "\n{}\n", paragraphs(&after));
        }
    }
    page
}

/// Flags and arguments, one a row; nothing where there are none.
fn table<'a>(args: impl Iterator<Item = &'a Arg>) -> String {
    let mut rows = String::new();
    for arg in args.filter(|arg| !arg.is_hide_set() && !matches!(arg.get_id().as_str(), "help" | "version")) {
        let _ = writeln!(rows, "| `{}` | {} |", spelled(arg), described(arg));
    }
    if rows.is_empty() { rows } else { format!("| option | |\n|---|---|\n{rows}") }
}

/// As a user writes it.
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
    let mut parts = vec![cell(arg.get_long_help().or(arg.get_help()))];
    // A flag that takes no value has two of them nonetheless.
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

/// Indented lines are commands.
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

/// In one line, without characters that end the cell.
fn cell(styled: Option<&StyledStr>) -> String {
    text(styled).split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}
