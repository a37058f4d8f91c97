//! Rules that change while the daemons run.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::daemon::Daemon;
use crate::scenario::{Labels, Scenario, labels};

/// A rules file, and a pair of daemons that follow it.
struct Followed {
    path: PathBuf,
    storer: Daemon,
    restorer: Daemon,
}

impl Followed {
    fn new(s: &Scenario, rules: &str, flags: &[&str]) -> Result<Self> {
        let path = s.file("rules.yaml");
        fs::write(&path, rules)?;
        let config = ["--config", path.to_str().context("a path of text")?, "--admin-address", "127.0.0.1:0"];
        let flags = [&config[..], flags].concat();
        Ok(Self { storer: s.storer(&flags)?, restorer: s.restorer(&flags)?, path })
    }

    /// Exchanges the file at once, as a mounted ConfigMap is exchanged.
    fn write(&self, rules: &str) -> Result<()> {
        let new = self.path.with_extension("new");
        fs::write(&new, rules)?;
        Ok(fs::rename(new, &self.path)?)
    }

    /// Waits until both daemons have taken note of so many files.
    async fn eventually_heard(&self, s: &Scenario, outcome: &str, times: f64) -> Result<()> {
        for (daemon, kind) in [(&self.storer, "storer"), (&self.restorer, "restorer")] {
            let metric = "rules_reloads_total";
            let label = format!("outcome=\"{outcome}\"");
            s.eventually(&format!("{outcome} by the {kind}"), times, async || {
                daemon.metric(metric, &[&label]).await
            })
            .await?;
        }
        Ok(())
    }
}

pub async fn new_rules_hold_without_a_restart_and_bad_ones_are_refused(s: &Scenario) -> Result<()> {
    let followed = Followed::new(s, "labels: {exclude: [other]}\n", &[])?;
    let node = s.node("a");
    s.create(&node, labels([("other", "1"), ("pool", "gold"), ("tier", "1")])).await?;
    s.eventually_stored(&node, labels([("pool", "gold"), ("tier", "1")])).await?;

    followed.write("labels: {include: [pool, other]}\n")?;
    followed.eventually_heard(s, "accepted", 1.0).await?;
    // Kept from now on is what the new rules say, and what was stored before stays.
    s.label(&node, [("tier", Some("2"))]).await?;
    s.eventually_stored(&node, labels([("other", "1"), ("pool", "gold"), ("tier", "1")])).await?;

    followed.write("labels:\n  include: [pool, other]\n  exclude: [other]\n  omit: [pool]\n")?;
    followed.eventually_heard(s, "refused", 1.0).await?;
    for daemon in [&followed.storer, &followed.restorer] {
        assert!(daemon.has_logged(&["rules.yaml", "line 4", "omit"]), "{}", daemon.log());
    }
    assert_eq!(followed.storer.metric("rules_refused", &[]).await?, 1.0);
    s.label(&node, [("other", Some("2"))]).await?;
    s.eventually_stored(&node, labels([("other", "2"), ("pool", "gold"), ("tier", "1")])).await?;

    followed.write("conflicts: [{keys: [pool], wins: record}]\n")?;
    followed.eventually_heard(s, "accepted", 2.0).await?;
    assert_eq!(followed.storer.metric("rules_refused", &[]).await?, 0.0);
    s.eventually_stored(&node, labels([("other", "2"), ("pool", "gold"), ("tier", "2")])).await?;
    s.delete(&node).await?;
    s.create(&node, labels([("pool", "default")])).await?;
    s.eventually_labelled(&node, labels([("other", "2"), ("pool", "gold"), ("tier", "2")])).await
}

pub async fn flags_count_for_more_than_the_file(s: &Scenario) -> Result<()> {
    let rules = "labels: {include: [pool], exclude: [other]}\nhistory: 0\n";
    let followed = Followed::new(s, rules, &["--include-labels", "pool,tier"])?;
    let node = s.node("a");
    s.create(&node, labels([("other", "1"), ("pool", "gold"), ("tier", "1")])).await?;
    s.eventually_stored(&node, labels([("pool", "gold"), ("tier", "1")])).await?;
    followed.write("labels: {include: [other]}\n")?;
    followed.eventually_heard(s, "accepted", 1.0).await?;
    s.label(&node, [("other", Some("2")), ("tier", Some("2"))]).await?;
    s.eventually_stored(&node, labels([("pool", "gold"), ("tier", "2")])).await
}

pub async fn while_rules_change_nothing_is_lost(s: &Scenario) -> Result<()> {
    let rules = [
        "{}\n",
        "labels: {exclude: [other]}\n",
        "taints: {include: ['*']}\n",
        "startupTaint: {enabled: true}\n",
    ];
    let followed = Followed::new(s, rules[0], &[])?;
    let nodes: Vec<_> = (0..6).map(|number| s.node(&format!("n{number}"))).collect();
    for node in &nodes {
        s.create(node, labels([("round", "0")])).await?;
    }
    for node in &nodes {
        s.eventually_stored(node, labels([("round", "0")])).await?;
    }
    for (round, rules) in rules.iter().cycle().skip(1).take(6).enumerate() {
        followed.write(rules)?;
        // Labelled and deleted while one or the other daemon may be in the middle of it.
        let value = (round + 1).to_string();
        for (number, node) in nodes.iter().enumerate() {
            s.label(node, [("round", Some(&value))]).await?;
            if number % 2 == round % 2 {
                s.delete(node).await?;
                s.create(node, Labels::new()).await?;
            }
        }
        followed.eventually_heard(s, "accepted", (round + 1) as f64).await?;
        for node in &nodes {
            s.eventually_labelled(node, labels([("round", &value)])).await?;
        }
    }
    for node in &nodes {
        s.eventually_stored(node, labels([("round", "6")])).await?;
    }
    Ok(())
}

pub async fn a_bad_file_at_the_start_is_one_line_and_exit_code_2(s: &Scenario) -> Result<()> {
    let path = s.file("rules.yaml");
    fs::write(&path, "retention: 30d\nidentity:\n  by: face\n")?;
    for kind in ["storer", "restorer"] {
        let daemon = s.daemon(kind, &["--config", path.to_str().context("a path of text")?])?;
        let exit = daemon.exit().await?;
        let log = daemon.log();
        assert_eq!(exit.code(), 2, "{log}");
        assert!(log.contains("line 3") && log.contains("face") && log.contains("providerID"), "{log}");
        assert_eq!(log.lines().count(), 1, "{log}");
    }
    let daemon = s.daemon("storer", &["--config", "/nowhere/rules.yaml"])?;
    assert_eq!(daemon.exit().await?.code(), 2, "{}", daemon.log());
    assert!(daemon.log().contains("/nowhere/rules.yaml"), "{}", daemon.log());
    Ok(())
}
