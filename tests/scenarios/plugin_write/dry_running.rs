//! `--dry-run=client` and `--dry-run=server`.

use anyhow::{Context, Result, ensure};

use super::{departed, does, has_lines, refuses};
use crate::refusing::{FORBIDDEN, forbid};
use crate::scenario::{Labels, Scenario, labels};

pub async fn a_server_dry_run_shows_what_admission_refuses(s: &Scenario) -> Result<()> {
    let node = s.node("a");
    departed(s, &node, &labels([("forbidden", "1"), ("pool", "gold")])).await?;
    let policy = forbid(s, FORBIDDEN).await?;
    s.create(&node, Labels::new()).await?;
    let version = s.get(&node).await?.metadata.resource_version;
    for client in ["--dry-run", "--dry-run=client"] {
        let said = does(s, &["restore", &node, client])?;
        has_lines(&said, &["  +forbidden=1", "  +pool=gold"])?;
        ensure!(!said.contains("restored\n"), "{said}");
    }
    refuses(s, &["restore", &node, "--dry-run=server"], &["can't patch node", &s.namespace, "denied"])?;

    policy.lift().await?;
    let allowed = format!("node/{node} restored (server dry run)");
    s.eventually("it is allowed", true, async || {
        let told = s.plugin(&["restore", &node, "--dry-run=server"])?;
        Ok(told.code == Some(0) && told.out.lines().any(|line| line == allowed))
    })
    .await?;
    // Not even with --yes.
    does(s, &["restore", &node, "--dry-run=server", "--yes"])?;
    assert_eq!(s.get(&node).await?.metadata.resource_version, version, "nothing was stored");
    let told = s.plugin(&["restore", &node, "--dry-run=none"])?;
    assert_eq!(told.code, Some(2), "{told:?}");
    Ok(())
}

pub async fn a_server_dry_run_changes_no_record(s: &Scenario) -> Result<()> {
    let (node, new) = (s.node("a"), s.node("b"));
    departed(s, &node, &labels([("pool", "gold")])).await?;
    does(s, &["set", &node, "pool=silver", "--yes"])?;
    let before = s.config_map(&node).await?;
    let generation = s.record(&node).await?.context("a record")?.more.history[0].generation.to_string();
    for (args, done) in [
        (&["forget", &node][..], "deleted (server dry run)"),
        (&["set", &node, "pool=bronze"], "changed (server dry run)"),
        (&["set", &new, "pool=gold"], "changed (server dry run)"),
        (&["rename", &node, &new], &format!("renamed to node/{new} (server dry run)")),
        (&["rollback", &node, "--to", &generation], "rolled back (server dry run)"),
    ] {
        let said = does(s, &[args, &["--dry-run=server", "--yes"]].concat())?;
        ensure!(said.lines().any(|line| line.ends_with(done)), "{args:?}: {said}");
        assert_eq!(s.config_map(&node).await?, before, "{args:?}");
        assert_eq!(s.config_map(&new).await?, None, "{args:?}");
    }
    Ok(())
}
