//! Asks an API server whether it serves, with the client and the kubeconfig that its users will use.

use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Api, Client, Config};

/// How long one question may take. A server that is starting up can accept a connection and then say nothing.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// What kube's client needs to talk to a control plane as the owner of this kubeconfig file does.
pub async fn client_config(kubeconfig: &Path) -> Result<Config, KubeconfigError> {
    Config::from_custom_kubeconfig(Kubeconfig::read_from(kubeconfig)?, &KubeConfigOptions::default()).await
}

/// A client on a runtime of its own, so that the sandbox can be started from code that knows nothing of async.
pub(crate) struct Probe {
    runtime: tokio::runtime::Runtime,
    client: Client,
}

impl Probe {
    pub(crate) fn new(kubeconfig: &Path) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let mut config = runtime.block_on(client_config(kubeconfig))?;
        // A server that isn't ready is the expected answer here, and the caller asks again by itself.
        config.default_retry = false;
        // The client starts its worker on the runtime that it is made in.
        let client = runtime.block_on(async { Client::try_from(config) })?;
        Ok(Self { runtime, client })
    }

    /// Succeeds once `/readyz` says ok and the `default` namespace, which the server makes after that, exists.
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
