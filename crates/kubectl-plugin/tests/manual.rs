//! The command line, and the page about it.

#![allow(clippy::expect_used, clippy::panic, reason = "a test")]

#[path = "../examples/manual.rs"]
#[allow(dead_code, reason = "a program of its own")]
mod example;

use clap::CommandFactory;
use example::{MADE_BY, markdown};
use kubectl_plugin::Cli;

#[test]
fn the_command_line_is_sound() {
    Cli::command().debug_assert();
}

#[test]
fn the_page_is_what_the_definitions_give() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cli.md");
    let page = std::fs::read_to_string(path).expect("docs/cli.md");
    assert!(page == markdown(Cli::command()), "docs/cli.md is out of date: run `{MADE_BY}`");
}

#[test]
fn every_command_has_a_man_page() {
    let folder = tempfile::tempdir().expect("a folder");
    example::man(folder.path()).expect("man pages");
    for command in Cli::command().get_subcommands().filter(|command| !command.is_hide_set()) {
        let page = folder.path().join(format!("kubectl-label_storage-{}.1", command.get_name()));
        let page =
            std::fs::read_to_string(&page).unwrap_or_else(|error| panic!("{}: {error}", page.display()));
        assert!(page.contains(".TH") && page.contains(".SH SYNOPSIS"), "{page}");
    }
    let page = std::fs::read_to_string(folder.path().join("kubectl-label_storage.1")).expect("a page");
    assert!(page.contains("rollback") && !page.contains("__complete"), "{page}");
}

#[test]
fn the_page_has_what_only_stands_below_the_help_and_no_empty_default() {
    let page = markdown(Cli::command());
    let in_one_line = page.split_whitespace().collect::<Vec<_>>().join(" ");
    for text in [
        "Exit codes: 0 healthy, 1 error, 3 problems found.",
        "other-machine (the rules exclude it)",
        "\n    kubectl label-storage get --departed -l pool=gold --sort-by .departedAt\n",
        "The whole file is checked first",
    ] {
        assert!(page.contains(text) || in_one_line.contains(text), "{text}");
    }
    assert!(!page.contains("Default: ``"));
    assert_eq!(page.matches("`wide`").count(), 1, "only `get` has more columns");
}
