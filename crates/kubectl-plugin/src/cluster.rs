//! An installation in the cluster that kubectl would use: its namespace, its rules and its objects.

use std::sync::{Arc, Mutex};
use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context, Result, bail};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use label_storage::{ResourceVersion, Rules, record::MANAGED_BY};
use label_storage_runtime::call::{Error, in_one_line};
use label_storage_runtime::projection::{Detail, Projection};
use label_storage_runtime::{api_source::ApiSource, client, rules_file};
use label_storage_wire::{Object, Undecodable};

use crate::flags::Global;
use crate::hints::{Hints, NAMESPACE};

/// The ConfigMap that the daemons mount, and the file in it.
pub(crate) const RULES: (&str, &str) = ("label-storage-rules", "rules.yaml");

pub(crate) struct Cluster {
    pub(crate) client: Client,
    /// Never sends a request twice: for writes.
    pub(crate) writer: Client,
    pub(crate) namespace: String,
    /// The rules in force, or the default rules if they are unknown.
    pub(crate) rules: Arc<Rules>,
    pub(crate) rules_unknown: Option<RulesUnknown>,
    pub(crate) hints: Hints,
    pub(crate) records: Api<ConfigMap>,
}

#[derive(Debug, Clone)]
pub(crate) enum RulesUnknown {
    Forbidden(String),
    Refused(String),
}

impl Cluster {
    /// Finds the installation. An error if its rules can't be read: nearly everything depends on them.
    pub(crate) async fn connect(global: &Global) -> Result<Self> {
        let cluster = Self::connect_without_rules(global).await?;
        if let Some(RulesUnknown::Forbidden(why) | RulesUnknown::Refused(why)) = &cluster.rules_unknown {
            bail!("the rules can't be read: {why}; give a file with --config FILE");
        }
        Ok(cluster)
    }

    /// Finds the installation. Its rules may be unknown.
    pub(crate) async fn connect_without_rules(global: &Global) -> Result<Self> {
        let config = config(global).await?;
        let (client, writer) = (Client::try_from(config.clone())?, client::without_retries(config.clone())?);
        let namespace = match &global.namespace {
            Some(namespace) => namespace.clone(),
            None => find_namespace(&client, &config.default_namespace).await?,
        };
        let records = Api::namespaced(client.clone(), &namespace);
        let (rules, rules_unknown) = match read_rules(&records, global).await? {
            Ok(rules) => (Arc::new(rules), None),
            Err(unknown) => (Arc::default(), Some(unknown)),
        };
        let hints = Hints::new(global, &namespace);
        Ok(Self { client, writer, namespace, rules, rules_unknown, hints, records })
    }

    /// An error if the namespace does not exist. If the user may not read it, other calls report the problem.
    pub(crate) async fn require_namespace(&self) -> Result<()> {
        let (namespace, namespaces) = (&self.namespace, Api::<Namespace>::all(self.client.clone()));
        if let Ok(None) = namespaces.get_metadata_opt(namespace).await {
            bail!("namespace {namespace} does not exist: give that of the installation with -n");
        }
        Ok(())
    }

    /// An error if the namespace does not exist or Label Storage has never worked in it: an empty list would be misleading.
    pub(crate) async fn require_installation(&self) -> Result<()> {
        self.require_namespace().await?;
        let namespace = &self.namespace;
        if !is_installed(&self.client, namespace).await? {
            bail!(
                "namespace {namespace} has no record and no lease of Label Storage: choose another with -n"
            );
        }
        Ok(())
    }

    /// Nodes, as the storer or the restorer sees them.
    pub(crate) fn node_source(&self, detail: Detail) -> ApiSource {
        ApiSource::nodes(self.client.clone()).seen_by(self.projection(detail))
    }

    pub(crate) fn record_source(&self) -> ApiSource {
        ApiSource::records(self.client.clone(), &self.namespace).seen_by(self.projection(Detail::WhatIsKept))
    }

    pub(crate) fn projection(&self, detail: Detail) -> Projection {
        Projection { rules: Arc::clone(&self.rules), detail }
    }
}

pub(crate) fn kubeconfig(global: &Global) -> Result<Kubeconfig> {
    let read = global.kubeconfig.as_ref().map_or_else(Kubeconfig::read, Kubeconfig::read_from);
    read.context("no cluster to connect to")
}

pub(crate) async fn config(global: &Global) -> Result<Config> {
    let Global { context, cluster, user, .. } = global.clone();
    let server = global.server.as_ref().map(|url| url.parse().with_context(|| format!("--server {url}")));
    let mut config = match (kubeconfig(global), server.transpose()?) {
        // An address is enough, as for kubectl.
        (Err(_), Some(server)) if global.kubeconfig.is_none() => Config::new(server),
        (kubeconfig, server) => {
            let kubeconfig = kubeconfig?;
            // kube would continue without credentials.
            let is_unknown = |user: &&String| !kubeconfig.auth_infos.iter().any(|named| named.name == **user);
            if let Some(user) = user.as_ref().filter(is_unknown) {
                bail!("the kubeconfig has no user {user:?}");
            }
            let options = KubeConfigOptions { context, cluster, user };
            let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
            let mut config = config.context("no cluster to connect to")?;
            config.cluster_url = server.unwrap_or(config.cluster_url);
            config
        }
    };
    client::set_proxy(&mut config);
    config.connect_timeout = Some(Duration::from_secs(5));
    if let Some(limit) = global.request_timeout {
        config.read_timeout = Some(limit).filter(|limit| !limit.is_zero());
    }
    let auth = &mut config.auth_info;
    auth.token = global.token.clone().map(Into::into).or(auth.token.take());
    auth.impersonate = global.impersonate.clone().or(auth.impersonate.take());
    if !global.impersonate_group.is_empty() {
        auth.impersonate_groups = Some(global.impersonate_group.clone());
    }
    Ok(config)
}

/// The outer error is for rules that should be there, such as those of a mistyped --config.
async fn read_rules(config_maps: &Api<ConfigMap>, global: &Global) -> Result<Result<Rules, RulesUnknown>> {
    if let Some(path) = &global.config {
        return Ok(Ok(rules_file::load(Some(path))?));
    }
    let (name, file) = RULES;
    let found = match config_maps.get_opt(name).await {
        Err(kube::Error::Api(status)) if status.code == 403 => {
            return Ok(Err(RulesUnknown::Forbidden(status.message)));
        }
        found => found.with_context(|| format!("can't read configmap {name}"))?,
    };
    let text = found.and_then(|config_map| config_map.data?.remove(file)).unwrap_or_default();
    let refused = |error| RulesUnknown::Refused(format!("configmap {name} can't be used: {error}"));
    Ok(Rules::from_yaml(&text).map_err(refused))
}

/// The namespace of the context or `label-storage`, if Label Storage is installed there, else the only one that has its leases.
async fn find_namespace(client: &Client, of_context: &str) -> Result<String> {
    for namespace in [of_context, NAMESPACE] {
        if is_installed(client, namespace).await? {
            return Ok(namespace.to_owned());
        }
    }
    let nowhere = format!("Label Storage is not installed in namespace {of_context} or {NAMESPACE}");
    let found: BTreeSet<_> = match Api::<Lease>::all(client.clone()).list_metadata(&ours()).await {
        Ok(leases) => leases.items.into_iter().filter_map(|lease| lease.metadata.namespace).collect(),
        Err(error) => {
            let error = in_one_line(&error);
            bail!("{nowhere}, and other namespaces can't be searched: {error}; give the namespace with -n")
        }
    };
    match Vec::from_iter(found).as_slice() {
        [] => bail!(
            "{nowhere}, and no other namespace has its leases: install it, or give the namespace with -n"
        ),
        [one] => Ok(one.clone()),
        several => bail!("there are several installations: choose one with -n: {}", several.join(", ")),
    }
}

/// Leases and records of Label Storage.
pub(crate) fn ours() -> ListParams {
    ListParams::default().labels(&format!("{}={}", MANAGED_BY.0, MANAGED_BY.1))
}

/// True if there is a lease or a record. A namespace that the user may not read counts as empty.
async fn is_installed(client: &Client, namespace: &str) -> Result<bool> {
    for kind in [ApiResource::erase::<Lease>(&()), ApiResource::erase::<ConfigMap>(&())] {
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &kind);
        match api.list_metadata(&ours().limit(1)).await {
            Ok(listed) if listed.items.is_empty() => (),
            Ok(_) => return Ok(true),
            Err(kube::Error::Api(status)) if status.code == 403 => (),
            Err(error) => bail!("the API server does not answer: {}", in_one_line(&error)),
        }
    }
    Ok(false)
}

/// Lists all objects, and adds each to a value.
pub(crate) async fn fold<T: Send + 'static>(
    source: ApiSource,
    begin: T,
    add: impl FnMut(&mut T, Object) + Send + 'static,
) -> Result<T, Error> {
    fold_with_version(source, begin, add).await.map(|(value, _)| value)
}

/// The same, with the version of the list.
pub(crate) async fn fold_with_version<T: Send + 'static>(
    source: ApiSource,
    begin: T,
    mut add: impl FnMut(&mut T, Object) + Send + 'static,
) -> Result<(T, ResourceVersion), Error> {
    let value = Arc::new(Mutex::new(begin));
    let shared = Arc::clone(&value);
    let each = move |object: Result<Object, Undecodable>| match object {
        Ok(object) => _ = shared.lock().map(|mut value| add(&mut value, object)),
        Err(Undecodable { part, error }) => eprintln!("warning: skipped {:?}: {error}", part.name),
    };
    // Each object takes time to process, and the connection to the cluster may be slow.
    let listed = source.allowing(Duration::from_secs(600)).list(each).await?;
    let value = Arc::into_inner(value).and_then(|value| value.into_inner().ok());
    Ok((value.ok_or_else(|| Error::refused("list", "the list was not read"))?, listed.version))
}

/// The same as [`fold`], up to the first error.
pub(crate) async fn try_fold<T: Send + 'static>(
    source: ApiSource,
    begin: T,
    mut add: impl FnMut(&mut T, Object) -> Result<()> + Send + 'static,
) -> Result<T> {
    let (value, result) = fold(source, (begin, Ok(())), move |(value, result), object| {
        if result.is_ok() {
            *result = add(value, object);
        }
    })
    .await?;
    result.map(|()| value)
}
