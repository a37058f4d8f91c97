//! As whom, and by which rules.

use anyhow::{Context, Result};
use k8s_openapi::api::apps::v1::StatefulSet;
use kube::Api;
use kube::api::PostParams;
use kube::config::Kubeconfig;
use serde_json::json;

use super::{departed, does, on, refuses};
use crate::scenario::{Labels, Scenario, labels};

pub async fn the_kubeconfig_may_say_as_whom(s: &Scenario) -> Result<()> {
    let node = s.node("a");
    departed(s, &node, &labels([("pool", "gold")])).await?;
    let mut kubeconfig = Kubeconfig::read_from(s.sandbox.kubeconfig())?;
    for user in kubeconfig.auth_infos.iter_mut().filter_map(|named| named.auth_info.as_mut()) {
        user.impersonate = Some("somebody-else".to_owned());
    }
    let file = s.file("as-somebody-else");
    std::fs::write(&file, serde_json::to_vec(&kubeconfig)?)?;
    let file = file.to_str().context("a path")?;
    let forget = ["forget", node.as_str(), "--yes", "--config", "/dev/null", "--kubeconfig", file];
    refuses(s, &forget, &["User \"somebody-else\" cannot get resource"])?;
    refuses(s, &[&forget[..], &["--as", "nobody"]].concat(), &["User \"nobody\" cannot get resource"])?;
    assert!(s.record(&node).await?.is_some());
    Ok(())
}

/// A StatefulSet of a daemon with these flags.
async fn installed(s: &Scenario, daemon: &str, args: &[&str]) -> Result<()> {
    let sets: Api<StatefulSet> = Api::namespaced(s.client.clone(), &s.namespace);
    let set = json!({"metadata": {"name": daemon}, "spec": {
        "serviceName": daemon, "replicas": 0, "selector": {"matchLabels": {"app": daemon}},
        "template": {"metadata": {"labels": {"app": daemon}}, "spec": {"containers": [
            {"name": daemon, "image": "none", "args": args},
        ]}},
    }});
    sets.create(&PostParams::default(), &serde_json::from_value(set)?).await?;
    Ok(())
}

pub async fn what_the_daemons_flags_say_holds(s: &Scenario) -> Result<()> {
    let (node, m1, m2) =
        (s.node("a"), "4c4c4544-0001-4410-8058-b4c04f564c31", "4c4c4544-0002-4410-8058-b4c04f564c32");
    let storer = s.storer(&["--fence"])?;
    s.create_as(&node, on(m1, json!({"pool": "gold"}))).await?;
    s.eventually_stored(&node, labels([("pool", "gold")])).await?;
    drop(storer);
    s.delete(&node).await?;
    s.create_as(&node, on(m2, json!({}))).await?;
    let restore = ["restore", node.as_str(), "--yes"];
    installed(s, "storer", &["--fence", "--retention=7d"]).await?;
    refuses(s, &restore, &["another machine", "--other-machine"])?;
    let prepared = does(s, &["set", &s.node("b"), "pool=gold", "--dry-run"])?;
    assert!(prepared.contains("within 7d"), "{prepared}");
    // They win over the ConfigMap, and not over what a person says.
    let rules = json!({"metadata": {"name": "label-storage-rules"}, "data": {"rules.yaml": "identity: {fence: false}"}});
    s.config_maps.create(&PostParams::default(), &serde_json::from_value(rules)?).await?;
    refuses(s, &restore, &["another machine", "--other-machine"])?;
    let said = does(s, &["restore", &node, "--dry-run", "--config", "/dev/null"])?;
    assert!(said.contains("+pool=gold"), "{said}");
    // Where they contradict each other, nobody knows.
    installed(s, "restorer", &["--fence=false"]).await?;
    refuses(s, &restore, &["different rules by their flags", "nothing is changed"])?;
    assert_eq!(s.labels(&node).await?, Labels::new());
    Ok(())
}
