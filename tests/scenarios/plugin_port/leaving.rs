//! `export`.

use anyhow::{Context, Result};
use faults::{Fault, Request, Verb};
use sandbox::process::Signal;

use super::{document, file_of, well};
use crate::scenario::Scenario;

pub async fn an_interrupted_export_leaves_nothing_behind(s: &Scenario) -> Result<()> {
    well(&s.plugin_reading(&file_of([document(&s.node("a"), "pool: gold")]), &["import", "--yes"])?)?;
    let folder = s.file("exports");
    std::fs::create_dir(&folder)?;
    let file = folder.join("records.yaml");
    std::fs::write(&file, "what was there before")?;
    let (reached, is_reached) = std::sync::mpsc::channel();
    let proxy = s.proxy(move |request: &Request| match request.is(Verb::List, "configmaps") {
        true => {
            _ = reached.send(());
            Fault::BlackHole
        }
        false => Fault::None,
    });
    let proxy = proxy.await?;
    let args = ["export", "-n", &s.namespace, "-f", file.to_str().context("a path")?].map(str::to_owned);
    let process = s.run_binary("plugin", &args, Some(proxy.kubeconfig().to_owned()))?;
    s.eventually("it lists", true, async || Ok(is_reached.try_recv().is_ok())).await?;
    process.process.signal(Signal::INT)?;
    assert_eq!(process.exit().await?.code(), 1, "{}", process.log());
    assert!(process.log().contains("error: interrupted: nothing was written"), "{}", process.log());
    let left: Vec<_> =
        std::fs::read_dir(&folder)?.map(|entry| Ok(entry?.file_name())).collect::<Result<_>>()?;
    assert_eq!(left, ["records.yaml"]);
    assert_eq!(std::fs::read_to_string(&file)?, "what was there before");
    Ok(())
}
