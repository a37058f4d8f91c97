//! An installation in a cluster: its namespace, its rules and its objects.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{ListParams, ObjectList, PartialObjectMeta};
use kube::{Api, Client};
use label_storage::record::MANAGED_BY;
use label_storage::rules::Selection;
use label_storage::{ResourceVersion, Rules};
use label_storage_runtime::api_source::ApiSource;
use label_storage_runtime::call::{self, in_one_line};
use label_storage_runtime::projection::{Detail, Projection};
use label_storage_runtime::rules_file;
use label_storage_wire::Object;

use crate::connect::Clients;
use crate::flags::Global;
use crate::hints::{Hints, NAMESPACE};

/// The ConfigMap that the daemons mount, and the file in it.
pub(crate) const RULES: (&str, &str) = ("label-storage-rules", "rules.yaml");

/// An installation of Label Storage.
pub(crate) struct Cluster {
    pub(crate) client: Client,
    /// Never sends a request twice: for writes.
    pub(crate) writer: Client,
    pub(crate) namespace: String,
    /// The rules in force, or the default ones if those are unknown.
    pub(crate) rules: Arc<Rules>,
    pub(crate) rules_unknown: Option<RulesUnknown>,
    pub(crate) hints: Hints,
    pub(crate) records: Api<ConfigMap>,
}

/// The reason why the rules are unknown.
#[derive(Debug, Clone)]
pub(crate) enum RulesUnknown {
    Forbidden(String),
    Refused(String),
}

impl Cluster {
    /// Finds the installation. An error if its rules can't be read: nearly everything depends on them.
    pub(crate) async fn connect(global: &Global) -> Result<Self> {
        let cluster = Self::connect_without_rules(global).await?;
        match &cluster.rules_unknown {
            None => Ok(cluster),
            Some(RulesUnknown::Forbidden(why) | RulesUnknown::Refused(why)) => {
                bail!("the rules can't be read: {why}; give them with --config FILE")
            }
        }
    }

    /// Finds the installation. Its rules may be unknown.
    pub(crate) async fn connect_without_rules(global: &Global) -> Result<Self> {
        let clients = Clients::new(global).await?;
        let namespace = match &global.namespace {
            Some(namespace) => namespace.clone(),
            None => find_namespace(&clients).await?,
        };
        let records: Api<ConfigMap> = Api::namespaced(clients.client.clone(), &namespace);
        let (rules, rules_unknown) = match read_rules(&records, &namespace, global).await? {
            Ok(rules) => (Arc::new(rules), None),
            Err(unknown) => (Arc::default(), Some(unknown)),
        };
        let hints = Hints::new(global, &namespace);
        let Clients { client, writer, .. } = clients;
        Ok(Self { client, writer, namespace, rules, rules_unknown, hints, records })
    }

    /// An error if the namespace does not exist. A user who may not read it finds out more from everything else.
    pub(crate) async fn require_namespace(&self) -> Result<()> {
        let Self { client, namespace, .. } = self;
        let namespaces: Api<Namespace> = Api::all(client.clone());
        match namespaces.get_metadata_opt(namespace).await {
            Ok(None) => bail!("namespace {namespace} does not exist: give that of the installation with -n"),
            _ => Ok(()),
        }
    }

    /// An error if the namespace does not exist or Label Storage has never worked in it: then an empty list tells nothing.
    pub(crate) async fn require_installation(&self) -> Result<()> {
        let Self { client, namespace, .. } = self;
        self.require_namespace().await?;
        if !is_installed(client, namespace).await? {
            bail!("namespace {namespace} has no record and no lease of Label Storage: give another with -n");
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

    /// The records with all of their annotations.
    pub(crate) fn tagged_record_source(&self) -> ApiSource {
        let rules = Rules { annotations: Selection::all(), ..Rules::clone(&self.rules) };
        let projection = Projection { rules: Arc::new(rules), detail: Detail::WhatIsKept };
        ApiSource::records(self.client.clone(), &self.namespace).seen_by(projection)
    }

    pub(crate) fn projection(&self, detail: Detail) -> Projection {
        Projection { rules: Arc::clone(&self.rules), detail }
    }
}

async fn read_rules(
    config_maps: &Api<ConfigMap>,
    namespace: &str,
    global: &Global,
) -> Result<Result<Rules, RulesUnknown>> {
    if let Some(path) = &global.config {
        return Ok(Ok(rules_file::load(Some(path))?));
    }
    let (name, file) = RULES;
    let found = match config_maps.get_opt(name).await {
        Err(kube::Error::Api(status)) if status.code == 403 => {
            return Ok(Err(RulesUnknown::Forbidden(status.message)));
        }
        found => found.with_context(|| format!("can't read configmap {name} in {namespace}"))?,
    };
    let text = found.and_then(|config_map| config_map.data?.remove(file)).unwrap_or_default();
    let refused = |error| RulesUnknown::Refused(format!("configmap {name} can't be used: {error}"));
    Ok(Rules::from_yaml(&text).map_err(refused))
}

/// The namespace of the context or `label-storage`, if it is there, else the only one that has leases of Label Storage.
async fn find_namespace(clients: &Clients) -> Result<String> {
    let Clients { client, namespace, .. } = clients;
    for namespace in [namespace.as_str(), NAMESPACE] {
        if is_installed(client, namespace).await? {
            return Ok(namespace.to_owned());
        }
    }
    let looked = format!("there is no Label Storage in namespace {namespace} or {NAMESPACE}");
    let leases = match Api::<Lease>::all(client.clone()).list_metadata(&ours()).await {
        Ok(leases) => leases,
        Err(error) => {
            bail!(
                "{looked}, and others can't be searched: {}; give the namespace with -n",
                in_one_line(&error)
            )
        }
    };
    let found: BTreeSet<_> = leases.items.into_iter().filter_map(|lease| lease.metadata.namespace).collect();
    match found.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] => bail!("{looked}, and no other has its leases: install it, or give the namespace with -n"),
        [one] => Ok((*one).to_owned()),
        several => bail!("there are several installations: choose one with -n: {}", several.join(", ")),
    }
}

/// Leases and records of Label Storage.
pub(crate) fn ours() -> ListParams {
    ListParams::default().labels(&format!("{}={}", MANAGED_BY.0, MANAGED_BY.1))
}

/// Objects of others.
pub(crate) fn others() -> ListParams {
    ListParams::default().labels(&format!("{}!={}", MANAGED_BY.0, MANAGED_BY.1))
}

/// True if there is a lease or a record. A namespace that may not be read counts as one without.
async fn is_installed(client: &Client, namespace: &str) -> Result<bool> {
    fn is_any<K: Clone>(listed: kube::Result<ObjectList<PartialObjectMeta<K>>>) -> Result<bool> {
        match listed {
            Ok(listed) => Ok(!listed.items.is_empty()),
            Err(kube::Error::Api(status)) if status.code == 403 => Ok(false),
            Err(error) => bail!("the API server does not answer: {}", in_one_line(&error)),
        }
    }
    let one = ours().limit(1);
    let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
    let records: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    Ok(is_any(leases.list_metadata(&one).await)? || is_any(records.list_metadata(&one).await)?)
}

/// A list may take this long: there is work to do for each object, and the cluster may be far away.
const LIST_LIMIT: Duration = Duration::from_secs(600);

/// Lists all objects, and adds each to a value.
pub(crate) async fn fold<T: Send + 'static>(
    source: ApiSource,
    begin: T,
    add: impl FnMut(&mut T, Object) + Send + 'static,
) -> Result<T, call::Error> {
    fold_with_version(source, begin, add).await.map(|(value, _)| value)
}

/// The same, with the version of the list.
pub(crate) async fn fold_with_version<T: Send + 'static>(
    source: ApiSource,
    begin: T,
    mut add: impl FnMut(&mut T, Object) + Send + 'static,
) -> Result<(T, ResourceVersion), call::Error> {
    let value = Arc::new(Mutex::new(begin));
    let shared = Arc::clone(&value);
    let each = move |object| add(&mut shared.lock().unwrap_or_else(PoisonError::into_inner), object);
    let listed = source.allowing(LIST_LIMIT).list(each).await?;
    let value =
        Arc::into_inner(value).ok_or_else(|| call::Error::refused("list", "it is still being read"))?;
    Ok((value.into_inner().unwrap_or_else(PoisonError::into_inner), listed.version))
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
