//! The cluster, as kubectl would find it, and the rules that are in force there.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use label_storage::Rules;
use label_storage::rules::Selection;
use label_storage_runtime::api_source::ApiSource;
use label_storage_runtime::projection::{Detail, Projection};
use label_storage_runtime::rules_file;

use crate::advice::Advice;
use crate::cli::Global;

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
    pub(crate) records: Api<ConfigMap>,
}

impl Cluster {
    /// Finds the cluster, and its rules.
    pub(crate) async fn connect(global: &Global) -> Result<Self> {
        let clients = clients(global).await?;
        let (rules, doubt) = in_force(&clients.0, global).await?;
        if let Some(doubt) = &doubt {
            eprintln!("warning: {doubt}, so the usual rules are assumed");
        }
        let advice = Advice::new(global);
        Ok(Self { doubt, advice, ..Self::new(clients, &global.namespace, Arc::new(rules)) })
    }

    /// Reads the rules again. Where they can't be told any more, those from before hold, as they do for the daemons.
    pub(crate) async fn reread_rules(&mut self, global: &Global) -> Result<()> {
        match in_force(&self.client, global).await? {
            (rules, None) => (self.rules, self.doubt) = (Arc::new(rules), None),
            (_, doubt) if doubt != self.doubt => {
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
        let records = Api::namespaced(client.clone(), namespace);
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

    /// Nodes, as the storer or the restorer sees them.
    pub(crate) fn node_source(&self, detail: Detail) -> ApiSource {
        ApiSource::nodes(self.client.clone()).seen_by(self.projection(detail))
    }

    /// All records.
    pub(crate) fn record_source(&self) -> ApiSource {
        ApiSource::records(self.client.clone(), &self.namespace).seen_by(self.projection(Detail::WhatIsKept))
    }

    /// The same, with what people have put on them.
    pub(crate) fn tagged_record_source(&self) -> ApiSource {
        // Which annotations are read of an object follows from the rules.
        let rules = Rules { annotations: Selection::all(), ..Rules::clone(&self.rules) };
        let projection = Projection { rules: Arc::new(rules), detail: Detail::WhatIsKept };
        ApiSource::records(self.client.clone(), &self.namespace).seen_by(projection)
    }

    pub(crate) fn projection(&self, detail: Detail) -> Projection {
        Projection { rules: Arc::clone(&self.rules), detail }
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

/// The rules in force, and why they may be wrong, if so. The defaults are assumed then.
async fn in_force(client: &Client, global: &Global) -> Result<(Rules, Option<String>)> {
    if let Some(path) = &global.config {
        return Ok((rules_file::load(Some(path))?, None));
    }
    let config_maps: Api<ConfigMap> = Api::namespaced(client.clone(), &global.namespace);
    let (name, file) = RULES;
    let found = match config_maps.get_opt(name).await {
        // A user without this permission may still have others.
        Err(kube::Error::Api(status)) if status.code == 403 => {
            let doubt = format!("you may not get configmaps in namespace {}", global.namespace);
            return Ok((Rules::default(), Some(doubt)));
        }
        found => found.with_context(|| format!("can't read configmap {name} in {}", global.namespace))?,
    };
    let text = found.and_then(|config_map| config_map.data?.remove(file)).unwrap_or_default();
    match Rules::from_yaml(&text) {
        Ok(rules) => Ok((rules, None)),
        Err(error) => Ok((Rules::default(), Some(format!("configmap {name} can't be used: {error}")))),
    }
}
