//! The command line, and the page about it.

#![allow(clippy::expect_used, reason = "a test")]

use clap::CommandFactory;
use kubectl_plugin::cli::Cli;
use kubectl_plugin::manual::{MADE_BY, markdown};

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
