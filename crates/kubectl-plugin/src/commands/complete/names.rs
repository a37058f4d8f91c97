//! Names that only the cluster or the kubeconfig knows. Who waits for a completion does not wait long, and wants no errors.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clap::{CommandFactory, FromArgMatches};
use k8s_openapi::api::core::v1::Namespace;
use kube::config::Kubeconfig;
use kube::{Api, Client};
use label_storage_runtime::api_source::ApiSource;
use label_storage_runtime::records::Found;

use crate::cli::{Cli, Global};
use crate::cluster;

/// Whatever is known by then is offered.
const PATIENCE: Duration = Duration::from_secs(2);

/// What kind of names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Nodes, and what records are of.
    Nodes,
    Contexts,
    Namespaces,
}

/// Those that begin like this, as far as they can be told. The words before say of which cluster.
pub(super) async fn names(kind: Kind, before: &[String], start: &str) -> Vec<String> {
    let Some(global) = global(before) else { return Vec::new() };
    let found = Arc::new(Mutex::new(BTreeSet::new()));
    let (names, wanted) = (Arc::clone(&found), start.to_owned());
    let add = move |name: &str| {
        if name.starts_with(&wanted) {
            names.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned());
        }
    };
    // What was found before it failed, or took too long, is as good.
    let _ = tokio::time::timeout(PATIENCE, find(kind, &global, add)).await;
    std::mem::take(&mut *found.lock().unwrap_or_else(PoisonError::into_inner)).into_iter().collect()
}

/// Where, and as whom, by the words so far: what is missing after them is no error yet.
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

async fn find(kind: Kind, global: &Global, add: impl Fn(&str) + Clone + Send + 'static) -> Option<()> {
    if kind == Kind::Contexts {
        let kubeconfig = match &global.kubeconfig {
            Some(path) => Kubeconfig::read_from(path),
            None => Kubeconfig::read(),
        };
        kubeconfig.ok()?.contexts.iter().for_each(|context| add(&context.name));
        return Some(());
    }
    let (client, _) = cluster::clients(global).await.ok()?;
    match kind {
        Kind::Namespaces => {
            let all = Api::<Namespace>::all(client).list_metadata(&Default::default()).await.ok()?;
            all.items.iter().filter_map(|it| it.metadata.name.as_deref()).for_each(add);
        }
        _ => nodes(client, &global.namespace, add).await,
    }
    Some(())
}

/// Both at the same time: who may not see the one may see the other.
async fn nodes(client: Client, namespace: &str, add: impl Fn(&str) + Clone + Send + 'static) {
    let (nodes, records) = (ApiSource::nodes(client.clone()), ApiSource::records(client, namespace));
    let add_node = add.clone();
    let _ = tokio::join!(
        nodes.list(move |object| add_node(&object.name)),
        records.list(move |object| {
            if let Ok(decoded) = Found::from(object).content {
                add(&decoded.record.node);
            }
        }),
    );
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
                (global.context.as_deref(), global.namespace.as_str()),
                (Some("there"), "ns"),
                "{words:?}"
            );
        }
    }
}
