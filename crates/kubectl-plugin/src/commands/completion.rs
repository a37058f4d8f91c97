//! `completion`: the candidates for the next word, as kubectl asks its plugins for them.

use std::{collections::BTreeSet, ffi::OsStr, time::Duration};

use anyhow::Result;
use clap::{Arg, CommandFactory, FromArgMatches, builder::Str};
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate, complete};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, api::ListParams};
use label_storage_runtime::{projection::Detail, records::Found};
use label_storage_wire::Object;
use tokio::{runtime::Handle, time::timeout};

use super::Cli;
use crate::cluster::{Cluster, config, fold, kubeconfig};
use crate::{flags::Global, output::print};

pub(crate) const ABOUT: &str = "Print the completion script for kubectl

kubectl runs this script to complete `kubectl label-storage`. Put it into a folder of your PATH.

    kubectl label-storage completion > ~/.local/bin/kubectl_complete-label_storage
    chmod +x ~/.local/bin/kubectl_complete-label_storage";

pub(crate) const SCRIPT: &str = "#!/bin/sh\nexec kubectl-label_storage __complete -- \"$@\"\n";

/// The time limit for candidates from the cluster, so that the shell is not blocked.
const PATIENCE: Duration = Duration::from_secs(2);

/// Prints one candidate a line, with a tab before its description. The number at the end disables the shell's own candidates.
pub(crate) fn print_candidates(words: &[String]) -> Result<()> {
    let found = tokio::task::block_in_place(|| offered(words))?;
    let line = |candidate: &CompletionCandidate| {
        let help = candidate.get_help().map(|help| format!("\t{help}")).unwrap_or_default();
        format!("{}{}\n", candidate.get_value().display(), help.lines().next().unwrap_or_default())
    };
    print(&format!("{}:4\n", found.iter().map(line).collect::<String>()))
}

/// The candidates for the last of these words.
fn offered(words: &[String]) -> Result<Vec<CompletionCandidate>> {
    let global = global(words);
    let named = |arg: Arg| with_names(arg, &global);
    let mut command = Cli::command().mut_args(named).mut_subcommands(|sub| sub.mut_args(named));
    let args = ["kubectl"].into_iter().chain(words.iter().map(String::as_str)).map(Into::into).collect();
    let folder = std::env::current_dir().ok();
    let mut found = complete(&mut command, args, words.len(), folder.as_deref())?;
    found.retain(|candidate| !candidate.is_hide_set());
    Ok(found)
}

/// The global flags among the words so far: arguments may still be missing.
fn global(words: &[String]) -> Global {
    let words = match words {
        // A flag before the last word still waits for its value.
        [before @ .., flag, _] if flag.starts_with('-') && !flag.contains('=') => before,
        [before @ .., _] => before,
        [] => &[],
    };
    let words = ["kubectl"].into_iter().chain(words.iter().map(String::as_str));
    let matches = Cli::command().ignore_errors(true).try_get_matches_from(words);
    matches.and_then(|matches| Global::from_arg_matches(&matches)).unwrap_or_default()
}

/// Adds the names from the cluster or the kubeconfig.
fn with_names(arg: Arg, global: &Global) -> Arg {
    let value_names = arg.get_value_names().unwrap_or_default();
    let kind = match (arg.get_id().as_str(), value_names.first().map(Str::as_str)) {
        (id @ ("context" | "namespace"), _) => id.to_owned(),
        (_, Some("NODE" | "OLD")) => "node".to_owned(),
        _ => return arg,
    };
    let global = global.clone();
    arg.add(ArgValueCompleter::new(move |start: &OsStr| {
        let names = Handle::current().block_on(timeout(PATIENCE, names_of(&kind, &global)));
        let names = names.into_iter().flatten().flatten();
        let start = start.to_string_lossy();
        names.filter(|name| name.starts_with(&*start)).map(CompletionCandidate::new).collect()
    }))
}

async fn names_of(kind: &str, global: &Global) -> Result<BTreeSet<String>> {
    if kind == "context" {
        return Ok(kubeconfig(global)?.contexts.into_iter().map(|context| context.name).collect());
    }
    if kind == "namespace" {
        let namespaces: Api<Namespace> = Api::all(Client::try_from(config(global).await?)?);
        let all = namespaces.list_metadata(&ListParams::default()).await?;
        return Ok(all.items.into_iter().filter_map(|namespace| namespace.metadata.name).collect());
    }
    let cluster = Cluster::connect_without_rules(global).await?;
    let names = |source, name: fn(Object) -> Option<String>| {
        fold(source, BTreeSet::new(), move |names, object| names.extend(name(object)))
    };
    let (nodes, records) = tokio::join!(
        names(cluster.node_source(Detail::WhatIsKept), |node| Some(node.name)),
        names(cluster.record_source(), |record| Some(Found::from(record).content.ok()?.record.node)),
    );
    // A user may be allowed to list only one of them.
    Ok(nodes.into_iter().chain(records).flatten().collect())
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
