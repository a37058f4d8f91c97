//! Leases that are impossible to write.

use anyhow::{Result, ensure};
use faults::{Fault, Request};
use futures::future::try_join_all;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use serde_json::json;

use crate::daemon::Daemon;
use crate::scenario::Scenario;

const ADMIN: [&str; 2] = ["--admin-address", "127.0.0.1:0"];

/// Waits until the storer is not ready because of its leases, and a metric shows that, too.
async fn eventually_not_ready(s: &Scenario, storer: &Daemon) -> Result<()> {
    s.eventually("not ready", true, async || {
        let (code, why) = storer.get("/readyz").await?;
        Ok(code == 503 && why.contains("leases have not been renewed for"))
    })
    .await?;
    ensure!(storer.metric("lease_errors_total", &[]).await? > 0.0, "no lease error is counted");
    storer.eventually_counted(s, "shards_held", &[], 0.0).await
}

pub async fn a_replica_whose_lease_is_refused_again_and_again_is_not_ready(s: &Scenario) -> Result<()> {
    let refused = async |code: u16| -> Result<()> {
        let proxy = s.proxy(|_: &Request| Fault::None).await?;
        let node = s.node(&code.to_string());
        let storer = s.daemon_through(&proxy, "storer", &[&ADMIN[..], &["--nodes", &node]].concat())?;
        let ok = (200, "ok\n".to_owned());
        s.eventually("ready", ok.clone(), async || storer.get("/readyz").await).await?;
        // Lists and the watch go on.
        proxy.set_script(move |request: &Request| {
            let is_write = request.verb.is_write() && request.resource == "leases";
            if is_write { Fault::Status { code, retry_after: None } } else { Fault::None }
        });
        eventually_not_ready(s, &storer).await?;
        proxy.set_script(|_: &Request| Fault::None);
        s.eventually("ready again", ok, async || storer.get("/readyz").await).await
    };
    try_join_all([403, 404, 409].map(refused)).await?;
    Ok(())
}

pub async fn a_replica_whose_namespace_is_deleted_is_not_ready(s: &Scenario) -> Result<()> {
    let namespaces: Api<Namespace> = Api::all(s.client.clone());
    let name = format!("{}-gone", s.namespace);
    let namespace = serde_json::from_value(json!({"metadata": {"name": name}}))?;
    namespaces.create(&PostParams::default(), &namespace).await?;
    let storer = s.storer(&[&ADMIN[..], &["--namespace", &name]].concat())?;
    let ok = (200, "ok\n".to_owned());
    s.eventually("ready", ok, async || storer.get("/readyz").await).await?;
    // No controller removes its objects here.
    namespaces.delete(&name, &DeleteParams::default()).await?;
    let leases: Api<Lease> = Api::namespaced(s.client.clone(), &name);
    leases.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    let finalize = http::Request::put(format!("/api/v1/namespaces/{name}/finalize"));
    let body = json!({"metadata": {"name": name}, "spec": {"finalizers": []}});
    let body = serde_json::to_vec(&body)?;
    s.client.request_text(finalize.header("content-type", "application/json").body(body)?).await?;
    let is_gone = async || Ok(namespaces.get_opt(&name).await?.is_none());
    s.eventually("the namespace is gone", true, is_gone).await?;
    eventually_not_ready(s, &storer).await
}
