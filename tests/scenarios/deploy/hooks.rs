//! `helm test`.

use anyhow::{Context, Result};
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::Api;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use super::accounts::{Audit, Permission, await_rights, granted, replica};
use super::manifests::{self, apply, documents, dry_run, helm, of_kind, rendered};
use crate::daemon::Daemon;
use crate::scenario::{Scenario, labels};

/// Starts the daemon of a test pod as the kubelet would.
async fn start(s: &Scenario, pod: &Value) -> Result<Daemon> {
    let (namespace, account) = (&pod["metadata"]["namespace"], &pod["spec"]["serviceAccountName"]);
    let container = &pod["spec"]["initContainers"][0];
    let name = container["env"][0]["value"].as_str().and_then(|pod| pod.strip_suffix("-0"));
    let spec = json!({"serviceAccountName": account, "containers": [container]});
    let set =
        json!({"metadata": {"name": name, "namespace": namespace}, "spec": {"template": {"spec": spec}}});
    replica(s, &set, 0, &["--log-format=text"]).await
}

pub async fn helm_test_runs_daemons_that_write_nothing(s: &Scenario) -> Result<()> {
    let installed = rendered(s, &["--set=storer.replicas=1,restorer.replicas=1"])?;
    apply(&s.client, &installed).await?;
    await_rights(s, &s.namespace, &granted(&installed)?).await?;
    std::fs::write(s.file("rules.yaml"), manifests::rules(&installed)?)?;
    let all = documents(&helm(s, &["template", "label-storage", "CHART"])?)?;
    let pods: Vec<_> = of_kind(&all, "Pod").collect();
    assert_eq!(pods.len(), 2);
    s.create(&s.node("a"), labels([("pool", "gold")])).await?;
    for pod in &pods {
        assert_eq!(pod["metadata"]["annotations"]["helm.sh/hook"], "test");
        assert_eq!(
            pod["spec"]["initContainers"][0]["restartPolicy"], "Always",
            "it must not keep the pod from ending"
        );
        assert_eq!(pod["spec"]["initContainers"][0]["startupProbe"]["httpGet"]["path"], "/readyz");
        assert_eq!(pod["spec"]["containers"][0]["args"], json!(["--version"]));
        // Pod Security and the policies let it in; the real daemons' StatefulSets and budgets do not count it.
        dry_run(&s.client, pod).await?;
        assert_eq!(pod["metadata"]["labels"]["app.kubernetes.io/component"], "test");
        let daemon = start(s, pod).await?;
        s.eventually("it is ready", 200, async || Ok(daemon.get("/readyz").await?.0)).await?;
        assert!(daemon.has_logged(&["dry_run=true"]), "{}", daemon.log());
    }
    let audit = Audit::read(&s.sandbox.audit_log(), &s.namespace)?;
    assert_eq!(audit.writes(), Vec::<&Permission>::new());
    assert_eq!(audit.forbidden, Vec::<Value>::new());

    // Without a permission that it needs, it ends at once, and the pod never gets to its end.
    let bindings: Api<ClusterRoleBinding> = Api::all(s.client.clone());
    bindings.delete(&format!("label-storage-{}-storer", s.namespace), &DeleteParams::default()).await?;
    let storer = pods.iter().find(|pod| pod["spec"]["initContainers"][0]["name"] == "storer");
    s.eventually("it fails", true, async || {
        let daemon = start(s, storer.context("a storer")?).await?;
        let is_over =
            async || Ok(daemon.has_logged(&["not allowed to"]) || daemon.get("/readyz").await?.0 == 200);
        s.eventually("it starts or fails", true, is_over).await?;
        Ok(daemon.has_logged(&["not allowed to list nodes"]))
    })
    .await
}
