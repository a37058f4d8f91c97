//! The connection to the cluster that kubectl would use.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use label_storage_runtime::client;

use crate::flags::Global;

/// Clients for the same cluster.
pub(crate) struct Clients {
    /// Retries reads by itself.
    pub(crate) client: Client,
    /// Never sends a request twice: for writes.
    pub(crate) writer: Client,
    /// The namespace of the kubeconfig context.
    pub(crate) namespace: String,
}

impl Clients {
    pub(crate) async fn new(global: &Global) -> Result<Self> {
        let config = config(global).await?;
        let (namespace, writer) =
            (config.default_namespace.clone(), client::without_retries(config.clone())?);
        Ok(Self { client: Client::try_from(config)?, writer, namespace })
    }
}

pub(crate) fn kubeconfig(global: &Global) -> Result<Kubeconfig> {
    match &global.kubeconfig {
        Some(path) => Kubeconfig::read_from(path).with_context(|| format!("can't use {}", path.display())),
        None => Kubeconfig::read().context("no cluster to talk to"),
    }
}

async fn config(global: &Global) -> Result<Config> {
    let server = global.server.as_ref().map(|url| url.parse().with_context(|| format!("--server {url}")));
    let options = KubeConfigOptions {
        context: global.context.clone(),
        cluster: global.cluster.clone(),
        user: global.user.clone(),
    };
    let mut config = match (kubeconfig(global), server.transpose()?) {
        (Ok(kubeconfig), server) => {
            // kube would go on without credentials.
            if let Some(user) = &global.user
                && !kubeconfig.auth_infos.iter().any(|named| named.name == *user)
            {
                bail!("the kubeconfig has no user {user:?}");
            }
            let mut config = Config::from_custom_kubeconfig(kubeconfig, &options)
                .await
                .context("no cluster to talk to")?;
            config.cluster_url = server.unwrap_or(config.cluster_url);
            config
        }
        // An address is all that is needed, as for kubectl.
        (Err(_), Some(server)) if global.kubeconfig.is_none() => Config::new(server),
        (Err(error), _) => return Err(error),
    };
    client::set_proxy(&mut config);
    config.connect_timeout = Some(Duration::from_secs(5));
    if let Some(limit) = global.request_timeout {
        config.read_timeout = Some(limit).filter(|limit| !limit.is_zero());
    }
    if let Some(token) = &global.token {
        config.auth_info.token = Some(token.clone().into());
    }
    if global.impersonate.is_some() {
        config.auth_info.impersonate.clone_from(&global.impersonate);
    }
    if !global.impersonate_group.is_empty() {
        config.auth_info.impersonate_groups = Some(global.impersonate_group.clone());
    }
    Ok(config)
}
