//! `completion`: the candidates for the next word, as kubectl asks its plugins for them.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::time::Duration;

use anyhow::Result;
use clap::{Arg, Command, CommandFactory, FromArgMatches};
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate, complete};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use label_storage_runtime::projection::Detail;
use label_storage_runtime::records::Found;
use tokio::runtime::Handle;

use super::Cli;
use crate::Ended;
use crate::cluster::{Cluster, fold};
use crate::connect::{Clients, kubeconfig};
use crate::flags::Global;
use crate::output::print;

pub(crate) const ABOUT: &str = "Print the completion script for kubectl

kubectl runs it to complete `kubectl label-storage`. Put it into a folder of your PATH:

    kubectl label-storage completion > ~/.local/bin/kubectl_complete-label_storage
    chmod +x ~/.local/bin/kubectl_complete-label_storage";

const SCRIPT: &str = "#!/bin/sh\nexec kubectl-label_storage __complete -- \"$@\"\n";

/// A shell should not wait for longer.
const PATIENCE: Duration = Duration::from_secs(2);

/// The words so far. The last one is to be completed.
#[derive(Debug, clap::Args)]
pub struct Words {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

pub(crate) fn script() -> Result<Ended> {
    print(SCRIPT)?;
    Ok(Ended::Well)
}

/// Prints a candidate a line, with a tab before its description. The number at the end tells the shell to offer nothing else.
pub(crate) fn candidates(words: &Words) -> Result<Ended> {
    let found = tokio::task::block_in_place(|| offered(&words.words))?;
    let line = |candidate: &CompletionCandidate| {
        let help = candidate.get_help().map(ToString::to_string).unwrap_or_default();
        let help = help.lines().next().map(|help| format!("\t{help}")).unwrap_or_default();
        format!("{}{help}\n", candidate.get_value().display())
    };
    let lines: String = found.iter().map(line).collect();
    print(&format!("{lines}:4\n"))?;
    Ok(Ended::Well)
}

fn offered(words: &[String]) -> Result<Vec<CompletionCandidate>> {
    let global = global(words);
    let completed = |arg: Arg| with_names(arg, &global);
    let mut command: Command =
        Cli::command().mut_args(completed).mut_subcommands(|sub| sub.mut_args(completed));
    let args: Vec<OsString> =
        ["kubectl"].into_iter().chain(words.iter().map(String::as_str)).map(Into::into).collect();
    let last = args.len() - 1;
    let mut found = complete(&mut command, args, last, std::env::current_dir().ok().as_deref())?;
    found.retain(|candidate| !candidate.is_hide_set());
    Ok(found)
}

/// The global flags among the words so far: arguments may still be missing.
fn global(words: &[String]) -> Global {
    let words = words.split_last().map(|(_, before)| before).unwrap_or_default();
    // A flag at the end still waits for its value.
    let words = match words {
        [before @ .., flag] if flag.starts_with('-') && !flag.contains('=') => before,
        words => words,
    };
    let words = ["kubectl"].into_iter().chain(words.iter().map(String::as_str));
    let matches = Cli::command().ignore_errors(true).try_get_matches_from(words);
    matches.ok().and_then(|matches| Global::from_arg_matches(&matches).ok()).unwrap_or_default()
}

/// Adds the names that only the cluster or the kubeconfig has.
fn with_names(arg: Arg, global: &Global) -> Arg {
    let names = arg.get_value_names().unwrap_or_default();
    let kind = match (arg.get_id().as_str(), names.first().map(clap::builder::Str::as_str)) {
        ("context" | "namespace", _) => arg.get_id().to_string(),
        (_, Some("NODE" | "OLD")) => "node".to_owned(),
        _ => return arg,
    };
    let global = global.clone();
    arg.add(ArgValueCompleter::new(move |start: &OsStr| {
        let search = tokio::time::timeout(PATIENCE, names_of(&kind, &global));
        let names = Handle::current().block_on(search).ok().flatten().unwrap_or_default();
        let start = start.to_string_lossy();
        names.into_iter().filter(|name| name.starts_with(&*start)).map(CompletionCandidate::new).collect()
    }))
}

async fn names_of(kind: &str, global: &Global) -> Option<BTreeSet<String>> {
    if kind == "context" {
        return Some(kubeconfig(global).ok()?.contexts.into_iter().map(|context| context.name).collect());
    }
    if kind == "namespace" {
        let namespaces: Api<Namespace> = Api::all(Clients::new(global).await.ok()?.client);
        let all = namespaces.list_metadata(&Default::default()).await.ok()?;
        return Some(all.items.into_iter().filter_map(|it| it.metadata.name).collect());
    }
    let cluster = Cluster::connect_without_rules(global).await.ok()?;
    let (nodes, records) = (cluster.node_source(Detail::WhatIsKept), cluster.record_source());
    let nodes = fold(nodes, BTreeSet::new(), |names, object| _ = names.insert(object.name));
    let records = fold(records, BTreeSet::new(), |names, object| {
        names.extend(Found::from(object).content.ok().map(|decoded| decoded.record.node));
    });
    // A user who may not list the one may list the other.
    let (nodes, records) = tokio::join!(nodes, records);
    Some(nodes.unwrap_or_default().into_iter().chain(records.unwrap_or_default()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn commands_flags_and_values_are_completed() {
        let offered = |given: &[&str]| -> Vec<String> {
            let found = tokio::task::block_in_place(|| offered(&words(given))).expect("candidates");
            found.iter().map(|candidate| candidate.get_value().display().to_string()).collect()
        };
        let all = offered(&[""]);
        assert!(all.contains(&"status".to_owned()) && !all.contains(&"__complete".to_owned()), "{all:?}");
        for (words, candidates) in [
            (&["che"][..], &["check"][..]),
            (&["--namespace", "che", "che"], &["check"]),
            (&["-n", "che", "che"], &["check"]),
            (&["check", "--output", "j"], &["json", "jsonpath="]),
            (&["check", "-o", "y"], &["yaml"]),
            (&["check", "--kubec"], &["--kubeconfig"]),
            (&["restore", "x", "--dry-run=s"], &["--dry-run=server"]),
            (&["--as-"], &["--as-group"]),
            (&["check", "x"], &[]),
        ] {
            assert_eq!(offered(words), candidates, "{words:?}");
        }
    }

    #[test]
    fn the_words_so_far_choose_the_cluster() {
        for given in [
            &["--context", "there", "-n", "ns", "get", ""][..],
            &["get", "--context", "there", "--namespace", "ns", ""],
            &["set", "-n", "ns", "a", "--context=there", ""],
            &["rollback", "-n", "ns", "--context", "there", "--to", ""],
            &["get", "-n", "ns", "--context", "there", "-n", ""],
        ] {
            let global = global(&words(given));
            assert_eq!(
                (global.context.as_deref(), global.namespace.as_deref()),
                (Some("there"), Some("ns")),
                "{given:?}"
            );
        }
    }
}
