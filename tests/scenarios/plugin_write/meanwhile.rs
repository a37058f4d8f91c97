//! Changes between the plugin's last read and its write.

use std::sync::mpsc::{Sender, channel};

use anyhow::{Context, Result};
use faults::{Fault, Proxy, Request, Verb};
use sandbox::process::Signal;
use serde_json::json;

use super::{departed, does, stored};
use crate::daemon::Daemon;
use crate::plugin_port::document;
use crate::scenario::{Labels, Scenario, labels};

/// The plugin, which is held back just before its first request of a kind.
pub struct Held {
    pub process: Daemon,
    go: Sender<()>,
    _proxy: Proxy,
}

impl Held {
    /// Runs it until it is about to do this to a ConfigMap or a Node.
    pub async fn before(s: &Scenario, verb: Verb, args: &[&str]) -> Result<Self> {
        Self::at(s, verb, 1, Fault::None, args).await
    }

    /// Runs it until its n-th request of this kind, which is never answered.
    async fn unheard(s: &Scenario, verb: Verb, nth: usize, args: &[&str]) -> Result<Self> {
        Self::at(s, verb, nth, Fault::BlackHole, args).await
    }

    async fn at(s: &Scenario, verb: Verb, nth: usize, fault: Fault, args: &[&str]) -> Result<Self> {
        let (reached, is_reached) = channel();
        let (go, may_go) = channel::<()>();
        let mut seen = 0;
        let script = move |request: &Request| {
            let is_it = request.is(verb, "configmaps") || request.is(verb, "nodes");
            seen += usize::from(is_it);
            if !is_it || seen != nth {
                return Fault::None;
            }
            _ = reached.send(());
            if fault == Fault::None {
                // Until the other side is dropped.
                _ = tokio::task::block_in_place(|| may_go.recv());
            }
            fault
        };
        let proxy = s.proxy(script).await?;
        let args = [args, &["--yes", "-n", &s.namespace]].concat();
        let args: Vec<_> = args.into_iter().map(str::to_owned).collect();
        let process = s.run_binary("plugin", &args, Some(proxy.kubeconfig().to_owned()))?;
        s.eventually("it is about to write", true, async || Ok(is_reached.try_recv().is_ok())).await?;
        Ok(Self { process, go, _proxy: proxy })
    }

    /// Lets it go on, to its end. Returns the exit code, and all that it has said.
    pub async fn goes_on(self) -> Result<(i32, String)> {
        drop(self.go);
        let code = self.process.exit().await?.code();
        Ok((code, self.process.log()))
    }
}

async fn kept_of(s: &Scenario, node: &str) -> Result<Option<Labels>> {
    Ok(s.record(node).await?.map(|record| record.labels))
}

pub async fn a_record_that_changes_before_it_is_written_keeps_that_change(s: &Scenario) -> Result<()> {
    let node = s.node("a");
    departed(s, &node, &labels([("pool", "gold")])).await?;
    does(s, &["set", &node, "pool=silver", "--yes"])?;
    let generation = s.record(&node).await?.context("a record")?.more.history[0].generation.to_string();
    let theirs = json!({"data": {"owner": "them"}});

    let held = Held::before(s, Verb::Update, &["set", &node, "zone=a"]).await?;
    s.patch_record(&node, theirs.clone()).await?;
    let (code, said) = held.goes_on().await?;
    assert_eq!(code, 0, "{said}");
    let all = labels([("owner", "them"), ("pool", "silver"), ("zone", "a")]);
    assert_eq!(kept_of(s, &node).await?, Some(all));

    // The change is a different one by then, and is shown again.
    does(s, &["set", &node, "owner-", "--yes"])?;
    let held = Held::before(s, Verb::Update, &["rollback", &node, "--to", &generation]).await?;
    s.patch_record(&node, theirs.clone()).await?;
    let (code, said) = held.goes_on().await?;
    assert!(code == 0 && said.contains("has changed meanwhile") && said.contains("-owner=them"), "{said}");
    assert_eq!(kept_of(s, &node).await?, Some(labels([("pool", "gold")])));

    let held = Held::before(s, Verb::Delete, &["forget", &node]).await?;
    s.patch_record(&node, theirs).await?;
    let (code, said) = held.goes_on().await?;
    assert!(code == 0 && said.contains("has changed meanwhile") && said.contains("-owner=them"), "{said}");
    assert_eq!(kept_of(s, &node).await?, None);
    Ok(())
}

pub async fn a_record_that_is_made_anew_before_it_is_deleted_is_another(s: &Scenario) -> Result<()> {
    let node = s.node("a");
    departed(s, &node, &labels([("pool", "gold")])).await?;
    let held = Held::before(s, Verb::Delete, &["forget", &node]).await?;
    s.delete_record(&node).await?;
    let file = document(&node, "pool: theirs");
    anyhow::ensure!(s.plugin_reading(&file, &["import", "--yes"])?.code == Some(0));
    let (code, said) = held.goes_on().await?;
    assert!(code == 0 && said.contains("has changed meanwhile") && said.contains("-pool=theirs"), "{said}");
    Ok(())
}

pub async fn a_node_that_changes_before_it_is_patched_keeps_that_change(s: &Scenario) -> Result<()> {
    let node = s.node("a");
    stored(s, &node, &labels([("pool", "gold"), ("zone", "a")])).await?;
    s.delete(&node).await?;
    s.create(&node, Labels::new()).await?;
    let held = Held::before(s, Verb::Patch, &["restore", &node]).await?;
    s.label(&node, [("pool", Some("theirs"))]).await?;
    let (code, said) = held.goes_on().await?;
    assert!(code == 0 && said.contains("pool=theirs is not changed"), "{said}");
    assert_eq!(s.labels(&node).await?, labels([("pool", "theirs"), ("zone", "a")]));

    let storer = s.storer(&[])?;
    s.eventually_stored(&node, labels([("pool", "theirs"), ("zone", "a")])).await?;
    drop(storer);
    let generation = s.record(&node).await?.context("a record")?.more.history[0].generation.to_string();
    let held = Held::before(s, Verb::Patch, &["rollback", &node, "--to", &generation]).await?;
    s.delete(&node).await?;
    s.create(&node, labels([("pool", "another")])).await?;
    let (code, said) = held.goes_on().await?;
    assert!(code == 1 && said.contains("is not restored yet"), "{said}");
    assert_eq!(s.labels(&node).await?, labels([("pool", "another")]), "it is another node");
    Ok(())
}

pub async fn what_changes_while_it_is_renamed_is_not_lost(s: &Scenario) -> Result<()> {
    let (old, new) = (s.node("old"), s.node("new"));
    departed(s, &old, &labels([("pool", "gold")])).await?;
    // Another writer is first.
    let held = Held::before(s, Verb::Create, &["rename", &old, &new]).await?;
    does(s, &["set", &new, "pool=theirs", "--yes"])?;
    let (code, said) = held.goes_on().await?;
    assert!(code == 1 && said.contains("has a record"), "{said}");
    assert_eq!(kept_of(s, &old).await?, Some(labels([("pool", "gold")])));
    assert_eq!(kept_of(s, &new).await?, Some(labels([("pool", "theirs")])));
    // The record of the new name changes before it is replaced.
    let held = Held::before(s, Verb::Update, &["rename", &old, &new, "--replace"]).await?;
    s.patch_record(&new, json!({"data": {"owner": "them"}})).await?;
    let (code, said) = held.goes_on().await?;
    assert!(code == 0 && said.contains("has changed meanwhile") && said.contains("-owner=them"), "{said}");
    assert_eq!((kept_of(s, &old).await?, kept_of(s, &new).await?), (None, Some(labels([("pool", "gold")]))));
    // And the one that it comes from, before it is deleted.
    let held = Held::before(s, Verb::Delete, &["rename", &new, &old]).await?;
    s.patch_record(&new, json!({"data": {"owner": "them"}})).await?;
    let (code, said) = held.goes_on().await?;
    assert!(code == 1 && said.contains("done so far: create configmap"), "{said}");
    let both = (kept_of(s, &old).await?, kept_of(s, &new).await?);
    let theirs = labels([("owner", "them"), ("pool", "gold")]);
    assert_eq!(both, (Some(labels([("pool", "gold")])), Some(theirs)));
    Ok(())
}

pub async fn ctrl_c_in_the_middle_loses_nothing(s: &Scenario) -> Result<()> {
    let (old, new) = (s.node("old"), s.node("new"));
    departed(s, &old, &labels([("pool", "gold")])).await?;
    let gold = Some(labels([("pool", "gold")]));
    // It ends by TERM as by INT, which the shell that starts it has it ignore.
    let held = Held::unheard(s, Verb::Delete, 1, &["rename", &old, &new]).await?;
    held.process.process.signal(Signal::TERM)?;
    held.process.exit().await?;
    assert_eq!((kept_of(s, &old).await?, kept_of(s, &new).await?), (gold.clone(), gold.clone()));
    does(s, &["rename", &old, &new, "--yes"])?;
    assert_eq!((kept_of(s, &old).await?, kept_of(s, &new).await?), (None, gold.clone()));

    let nodes = ["a", "b", "c"].map(|name| s.node(name));
    for node in &nodes {
        departed(s, node, &labels([("pool", "gold")])).await?;
    }
    let [a, b, c] = &nodes;
    let held = Held::unheard(s, Verb::Delete, 2, &["forget", a, b, c]).await?;
    held.process.process.signal(Signal::TERM)?;
    held.process.exit().await?;
    let is_said = |node: &str| held.process.has_logged(&[&format!("record of node/{node} deleted")]);
    assert_eq!([a, b, c].map(|node| is_said(node)), [true, false, false], "{}", held.process.log());
    assert_eq!(
        (kept_of(s, a).await?, kept_of(s, b).await?, kept_of(s, c).await?),
        (None, gold.clone(), gold)
    );
    Ok(())
}
