//! Names that only the cluster or the kubeconfig knows. An error offers no names.

use std::collections::BTreeSet;
use std::time::Duration;

use clap::{CommandFactory, FromArgMatches};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use label_storage_runtime::projection::Detail;
use label_storage_runtime::records::Found;

use crate::cli::{Cli, Global};
use crate::cluster::{Cluster, fold};
use crate::connect::{Clients, kubeconfig};

/// A shell should not wait for longer.
const PATIENCE: Duration = Duration::from_secs(2);

/// What kind of names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Nodes, and what records are of.
    Nodes,
    Contexts,
    Namespaces,
}

/// The names that begin like this, as far as they can be found. The words before choose the cluster.
pub(super) async fn names(kind: Kind, before: &[String], start: &str) -> Vec<String> {
    let Some(global) = global(before) else { return Vec::new() };
    let found = tokio::time::timeout(PATIENCE, find(kind, &global)).await;
    let found = found.ok().flatten().unwrap_or_default();
    found.into_iter().filter(|name| name.starts_with(start)).collect()
}

/// The global flags among the words so far: arguments may still be missing.
fn global(before: &[String]) -> Option<Global> {
    // A flag at the end still waits for its value.
    let before = match before {
        [before @ .., flag] if flag.starts_with('-') && !flag.contains('=') => before,
        before => before,
    };
    let words = std::iter::once("kubectl-label_storage").chain(before.iter().map(String::as_str));
    let matches = Cli::command().ignore_errors(true).try_get_matches_from(words).ok()?;
    Global::from_arg_matches(&matches).ok()
}

async fn find(kind: Kind, global: &Global) -> Option<BTreeSet<String>> {
    if kind == Kind::Contexts {
        return Some(kubeconfig(global).ok()?.contexts.into_iter().map(|context| context.name).collect());
    }
    if kind == Kind::Namespaces {
        let namespaces: Api<Namespace> = Api::all(Clients::new(global).await.ok()?.client);
        let all = namespaces.list_metadata(&Default::default()).await.ok()?;
        return Some(all.items.into_iter().filter_map(|it| it.metadata.name).collect());
    }
    let cluster = Cluster::connect_without_rules(global).await.ok()?;
    let (nodes, records) = (cluster.node_source(Detail::WhatIsKept), cluster.record_source());
    let nodes = fold(&nodes, BTreeSet::new(), |names, object| _ = names.insert(object.name));
    let records = fold(&records, BTreeSet::new(), |names, object| {
        names.extend(Found::from(object).content.ok().map(|decoded| decoded.record.node));
    });
    // A user who may not list the one may list the other.
    let (nodes, records) = tokio::join!(nodes, records);
    Some(nodes.unwrap_or_default().into_iter().chain(records.unwrap_or_default()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_so_far_say_of_which_cluster() {
        for words in [
            &["--context", "there", "-n", "ns", "get"][..],
            &["get", "--context", "there", "--namespace", "ns"],
            &["set", "-n", "ns", "a", "--context=there"],
            &["rollback", "-n", "ns", "--context", "there", "--to"],
            &["get", "-n", "ns", "--context", "there", "-n"],
        ] {
            let words: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
            let global = global(&words).expect("flags");
            assert_eq!(
                (global.context.as_deref(), global.namespace.as_deref()),
                (Some("there"), Some("ns")),
                "{words:?}"
            );
        }
    }
}
