//! Impersonation.

use anyhow::{Context, Result};
use kube::config::Kubeconfig;

use super::{departed, refuses};
use crate::scenario::{Scenario, labels};

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
