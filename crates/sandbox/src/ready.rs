//! Checks that an API server is ready, with the client and the kubeconfig of its users.

use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Api, Client, Config};

/// The time limit of one request. A server that is starting can accept a connection and then send nothing.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// The configuration of kube's client for this kubeconfig file.
pub async fn client_config(kubeconfig: &Path) -> Result<Config, KubeconfigError> {
    Config::from_custom_kubeconfig(Kubeconfig::read_from(kubeconfig)?, &KubeConfigOptions::default()).await
}

/// A client on its own runtime, so that the sandbox can be started from code that is not async.
pub(crate) struct Probe {
    runtime: tokio::runtime::Runtime,
    client: Client,
}

impl Probe {
    pub(crate) fn new(kubeconfig: &Path) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let mut config = runtime.block_on(client_config(kubeconfig))?;
        // A server that is not ready is expected here, and the caller retries.
        config.default_retry = false;
        // The client starts its worker on the runtime in which it is created.
        let client = runtime.block_on(async { Client::try_from(config) })?;
        Ok(Self { runtime, client })
    }

    /// Succeeds once `/readyz` is ok and the namespace `default` exists, which the server creates after that.
    pub(crate) fn ask(&self) -> anyhow::Result<()> {
        self.runtime.block_on(async {
            tokio::time::timeout(ANSWER_LIMIT, async {
                let request = http::Request::get("/readyz").body(Vec::new())?;
                self.client.request_text(request).await?;
                Api::<Namespace>::all(self.client.clone()).get_metadata("default").await?;
                Ok(())
            })
            .await?
        })
    }
}
