//! `tests/e2e.sh` as people run it, with processes in place of containers: see [`Kubelet`].

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Event, Node};
use kube::api::{ListParams, PostParams};
use kube::{Api, ResourceExt};
use sandbox::Options;
use sandbox::assets::{Assets, Binary};
use sandbox::process::Guarded;
use serde_json::json;

use crate::control_plane::on_its_own;
use crate::deploy::manifests::{self, NAMESPACE};
use crate::kubelet::{self, Kubelet};
use crate::scenario::Scenario;

pub async fn the_end_to_end_test_passes_and_leaves_nothing_behind(s: &Scenario) -> Result<()> {
    // It installs Label Storage under its usual names, and refuses where another test has done so.
    let s = &on_its_own(s, Options { controller_manager: true, ..Options::default() }).await?;
    let mut kubelet = Kubelet::register(s, NAMESPACE).await?;
    match kubelet.run_pods_during(runs(s)).await {
        Ok(()) => Ok(()),
        Err(error) => Err(error.context(s.describe().await)),
    }
}

async fn runs(s: &Scenario) -> Result<()> {
    let (image, use_installed) = ([("IMAGE", "label-storage:test")], [("USE_INSTALLED", "1")]);
    e2e(s, "nothing-to-use", &use_installed, 1, "namespace label-storage has 0 StatefulSets").await?;
    e2e(s, "no-image", &[("IMAGE", "missing"), ("TIMEOUT", "5")], 1, "timed out waiting for the condition")
        .await?;
    // The script does not wait longer for the clean-up than for anything else.
    s.eventually("no object is left", String::new(), async || objects(s)).await?;
    e2e(s, "fresh", &image, 0, "all passed").await?;
    ensure!(objects(s)?.is_empty(), "objects are left: {}", objects(s)?);
    no_traces(s).await?;

    manifests::apply(&s.client, &manifests::committed()?).await?;
    policies_are_in_force(s).await?;
    let installed = objects(s)?;
    e2e(s, "installed-already", &image, 1, "Label Storage is installed already").await?;
    e2e(s, "installed", &use_installed, 0, "all passed").await?;
    ensure!(objects(s)? == installed, "parts of the installation are gone: {installed}, {}", objects(s)?);
    no_traces(s).await
}

async fn policies_are_in_force(s: &Scenario) -> Result<()> {
    let node = s.node("forged");
    let nodes: Api<Node> = Api::all(kubelet::client(s, &node).await?);
    let forged = json!({"metadata": {"name": node, "annotations": {"label-storage/restored": "u/1"}}});
    let (forged, trying) =
        (serde_json::from_value(forged)?, PostParams { dry_run: true, ..PostParams::default() });
    s.eventually("the policies are in force", true, async || {
        let refused = nodes.create(&trying, &forged).await.err().map(|error| error.to_string());
        Ok(refused.is_some_and(|reason| reason.contains("a kubelet may not set")))
    })
    .await
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// A command with this test's cluster and its kubectl, and nothing else of the person who runs the tests.
fn command(s: &Scenario, program: impl AsRef<std::ffi::OsStr>) -> Result<Command> {
    let kubectl = Assets::find(None, &[Binary::Kubectl])?;
    let path = std::env::var_os("PATH").context("PATH")?;
    let path = std::iter::once(kubectl.folder().to_owned()).chain(std::env::split_paths(&path));
    let mut command = Command::new(program);
    command.env("KUBECONFIG", s.sandbox.kubeconfig()).env("HOME", s.file("home"));
    command.env("PATH", std::env::join_paths(path)?).current_dir(root());
    for name in ["IMAGE", "USE_INSTALLED", "KEEP"] {
        command.env_remove(name);
    }
    Ok(command)
}

/// Runs the script, which must end with this code and print this.
async fn e2e(s: &Scenario, name: &str, variables: &[(&str, &str)], code: i32, prints: &str) -> Result<()> {
    let log = s.file(&format!("e2e-{name}.log"));
    let mut command = command(s, "tests/e2e.sh")?;
    command.env("TIMEOUT", "60").envs(variables.iter().copied());
    let script = Guarded::spawn("e2e.sh", &command, &log)?;
    s.eventually_after("the end of e2e.sh", true, async || Ok(script.try_wait().is_some())).await?;
    let (exit, printed) = (script.try_wait().context("no exit")?, std::fs::read_to_string(log)?);
    ensure!(
        exit.code() == code && printed.contains(prints),
        "{name}: {exit}, not {code}: {prints}\n{printed}"
    );
    Ok(())
}

/// The names of the objects of deploy/label-storage.yaml that exist.
fn objects(s: &Scenario) -> Result<String> {
    let flags = ["get", "--filename=deploy/label-storage.yaml", "--ignore-not-found", "--output=name"];
    let output = command(s, "kubectl")?.args(flags).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

/// Checks that no Nodes of the script are left, no records of them and no Events of the daemons about them.
async fn no_traces(s: &Scenario) -> Result<()> {
    let all = ListParams::default();
    let nodes = s.nodes.list(&all).await?;
    let maps = Api::<ConfigMap>::all(s.client.clone()).list(&all).await?;
    let mut events = Api::<Event>::all(s.client.clone()).list(&all).await?;
    // Controllers report the deletion of a Node, too, and later.
    events.items.retain(|event| {
        event.reporting_component.as_ref().is_some_and(|by| by.starts_with("label-storage/"))
    });
    let names = nodes.iter().map(ResourceExt::name_any).chain(maps.iter().map(ResourceExt::name_any));
    let names = names.chain(events.iter().map(ResourceExt::name_any));
    let traces: Vec<_> = names.filter(|name| name.contains("label-storage-e2e")).collect();
    ensure!(traces.is_empty(), "left behind: {traces:?}");
    Ok(())
}
