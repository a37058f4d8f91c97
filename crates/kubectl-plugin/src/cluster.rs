//! The cluster, as kubectl would find it, and the rules that are in force there.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use label_storage::Rules;
use label_storage::rules::{Draft, Selection};
use label_storage_runtime::Daemon;
use label_storage_runtime::call;
use label_storage_runtime::eyes::{Eyes, Sight};
use label_storage_runtime::nodes::Nodes;
use label_storage_runtime::records::Records;
use label_storage_runtime::source::Source;

use crate::advice::Advice;
use crate::cli::Global;
use crate::commands::check::sets::told_as;

/// The ConfigMap that the daemons have mounted, and the file in it.
pub(crate) const RULES: (&str, &str) = ("label-storage-rules", "rules.yaml");

/// A cluster with Label Storage in it.
pub(crate) struct Cluster {
    pub(crate) client: Client,
    /// The same, without hidden retries: for many writes, which have to slow down when the server asks for it.
    pub(crate) frank: Client,
    /// Where the records are.
    pub(crate) namespace: String,
    /// By which rules the daemons work there, as far as can be told.
    pub(crate) rules: Arc<Rules>,
    /// Why these may be other rules than those in force, where that is so.
    doubt: Option<String>,
    /// Commands for a person to run there.
    pub(crate) advice: Advice,
    /// Records by what they are filed under.
    pub(crate) records: Records,
}

impl Cluster {
    /// Finds the cluster, and its rules.
    pub(crate) async fn connect(global: &Global) -> Result<Self> {
        let clients = clients(global).await?;
        let (rules, doubt, is_assumed) = in_force(&clients.0, global).await?;
        if let Some(doubt) = doubt.as_ref().filter(|_| is_assumed) {
            eprintln!("warning: {doubt}, so the usual rules are assumed");
        }
        let advice = Advice::new(global);
        Ok(Self { doubt, advice, ..Self::new(clients, &global.namespace, Arc::new(rules)) })
    }

    /// Reads the rules again. Where they can't be told any more, those from before hold, as they do for the daemons.
    pub(crate) async fn reread_rules(&mut self, global: &Global) -> Result<()> {
        match in_force(&self.client, global).await? {
            (rules, None, _) => (self.rules, self.doubt) = (Arc::new(rules), None),
            (_, doubt, _) if doubt != self.doubt => {
                eprintln!("warning: {}, so the rules from before hold", doubt.as_deref().unwrap_or_default());
                self.doubt = doubt;
            }
            _ => (),
        }
        Ok(())
    }

    /// An error where the rules are not known: what may be written, and where, follows from them.
    pub(crate) fn require_rules(&self) -> Result<()> {
        match &self.doubt {
            None => Ok(()),
            Some(doubt) => anyhow::bail!("{doubt}, so nothing is changed: give the rules with --config FILE"),
        }
    }

    /// A cluster where these rules are in force.
    pub(crate) fn new((client, frank): (Client, Client), namespace: &str, rules: Arc<Rules>) -> Self {
        let records = Records::new(client.clone(), namespace);
        Self {
            client,
            frank,
            namespace: namespace.to_owned(),
            rules,
            doubt: None,
            advice: Advice::default(),
            records,
        }
    }

    /// Nodes, one by one, as the storer or the restorer sees them.
    pub(crate) fn nodes(&self, sight: Sight) -> Nodes {
        Nodes::new(self.client.clone(), Arc::new(self.node_source(sight)))
    }

    /// All Nodes, as the storer or the restorer sees them.
    pub(crate) fn node_source(&self, sight: Sight) -> Source {
        Source::nodes(self.client.clone()).seen_by(self.eyes(sight))
    }

    /// All records.
    pub(crate) fn record_source(&self) -> Source {
        Source::records(self.client.clone(), &self.namespace).seen_by(self.eyes(Sight::WhatIsKept))
    }

    /// The same, with what people have put on them.
    pub(crate) fn tagged_record_source(&self) -> Source {
        // Which annotations are read of an object follows from the rules.
        let rules = Rules { annotations: Selection::all(), ..Rules::clone(&self.rules) };
        let eyes = Eyes { rules: Arc::new(rules), sight: Sight::WhatIsKept };
        Source::records(self.client.clone(), &self.namespace).seen_by(eyes)
    }

    pub(crate) fn eyes(&self, sight: Sight) -> Eyes {
        Eyes { rules: Arc::clone(&self.rules), sight }
    }
}

/// Clients for the cluster that kubectl would speak to, as the one who is asked for: one that tries again by itself, and a frank one.
pub(crate) async fn clients(global: &Global) -> Result<(Client, Client)> {
    let options = KubeConfigOptions { context: global.context.clone(), ..KubeConfigOptions::default() };
    let mut config = match &global.kubeconfig {
        Some(path) => {
            let kubeconfig =
                Kubeconfig::read_from(path).with_context(|| format!("can't use {}", path.display()))?;
            Config::from_custom_kubeconfig(kubeconfig, &options).await?
        }
        None => Config::from_kubeconfig(&options).await.context("no cluster to talk to")?,
    };
    config.connect_timeout = Some(Duration::from_secs(5));
    // Else it is as the kubeconfig says.
    if global.impersonate.is_some() {
        config.auth_info.impersonate.clone_from(&global.impersonate);
    }
    if !global.impersonate_group.is_empty() {
        config.auth_info.impersonate_groups = Some(global.impersonate_group.clone());
    }
    let frank = label_storage_runtime::client::without_retries(config.clone())?;
    Ok((Client::try_from(config)?, frank))
}

/// The rules that are in force, why the daemons may have others, and whether that is because these are only assumed.
async fn in_force(client: &Client, global: &Global) -> Result<(Rules, Option<String>, bool)> {
    let (found, flags) = tokio::join!(rules(client, global), flags(client, global));
    let (draft, doubt) = found?;
    let is_assumed = doubt.is_some();
    Ok(match flags {
        Ok(flags) => (draft.under(flags).rules(), doubt, is_assumed),
        Err(of_flags) => (draft.rules(), doubt.or(Some(of_flags)), is_assumed),
    })
}

/// The rules: of a file, or of the ConfigMap, or none. And why the daemons may have others.
async fn rules(client: &Client, global: &Global) -> Result<(Draft, Option<String>)> {
    if let Some(path) = &global.config {
        let text = std::fs::read_to_string(path).with_context(|| format!("can't read {}", path.display()))?;
        let draft =
            Draft::from_yaml(&text).map_err(|error| anyhow::anyhow!("{}: {error}", path.display()))?;
        return Ok((draft, None));
    }
    let config_maps: Api<ConfigMap> = Api::namespaced(client.clone(), &global.namespace);
    let (name, file) = RULES;
    let found = match config_maps.get_opt(name).await {
        // Who may not see it may still see other things.
        Err(kube::Error::Api(status)) if status.code == 403 => {
            let doubt = format!("you may not get configmaps in namespace {}", global.namespace);
            return Ok((Draft::default(), Some(doubt)));
        }
        found => found.with_context(|| format!("can't read configmap {name} in {}", global.namespace))?,
    };
    let text = found.and_then(|config_map| config_map.data?.remove(file)).unwrap_or_default();
    match Draft::from_yaml(&text) {
        Ok(draft) => Ok((draft, None)),
        // The daemons refuse it, too, and go on with what they had.
        Err(error) => Ok((Draft::default(), Some(format!("configmap {name} can't be used: {error}")))),
    }
}

/// What the daemons' own flags say about rules, or why nobody knows. They win over the ConfigMap, and not over a file that a person gives.
async fn flags(client: &Client, global: &Global) -> Result<Draft, String> {
    if global.config.is_some() {
        return Ok(Draft::default());
    }
    let (storer, restorer) = tokio::join!(
        daemon::<storer::Args>(client, global, "storer"),
        daemon::<restorer::Args>(client, global, "restorer")
    );
    let (storer, restorer) = (storer?, restorer?);
    let common =
        |draft: &Draft| Draft { retention: None, cleanup_share: None, history: None, ..draft.clone() };
    match (storer, restorer) {
        (Some(storer), Some(restorer)) if common(&storer) != common(&restorer) => Err(format!(
            "the storer and the restorer in namespace {} are given different rules by their flags",
            global.namespace
        )),
        // What one of them is told both should be.
        (storer, restorer) => Ok(storer.or(restorer).unwrap_or_default()),
    }
}

/// What one daemon is told; `None` where it is not installed in the usual way.
async fn daemon<D: Daemon>(client: &Client, global: &Global, name: &str) -> Result<Option<Draft>, String> {
    let namespace = &global.namespace;
    let sets: Api<StatefulSet> = Api::namespaced(client.clone(), namespace);
    let found = call::one("get statefulset", sets.get_opt(name)).await;
    let set = match found {
        Ok(Some(set)) => set,
        Ok(None) => return Ok(None),
        Err(error) if error.code == Some(403) => {
            return Err(format!(
                "you may not get statefulsets in namespace {namespace}, and the rules may be in their flags"
            ));
        }
        Err(error) => return Err(error.to_string()),
    };
    let pod = set.spec.and_then(|spec| spec.template.spec);
    let container = pod.and_then(|pod| pod.containers.into_iter().find(|container| container.name == name));
    let Some(container) = container else { return Ok(None) };
    match told_as::<D>(name, &container) {
        Ok(daemon) => Ok(Some(daemon.draft())),
        Err(why) => Err(format!("the flags of the {name} in namespace {namespace} can't be used: {why}")),
    }
}
