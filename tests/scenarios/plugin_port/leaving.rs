//! `export`.

use anyhow::{Context, Result};
use faults::{Fault, Request, Verb};
use sandbox::process::Signal;
use serde_json::json;

use super::{all_records, document, file_of, well};
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

pub async fn a_file_is_replaced_by_a_complete_export_with_records_alone(s: &Scenario) -> Result<()> {
    let node = s.node("a");
    well(&s.plugin_reading(&document(&node, "pool: gold"), &["import", "--yes"])?)?;
    let folder = s.file("exports");
    std::fs::create_dir(&folder)?;
    let file = folder.join("all.yaml");
    let path = file.to_str().context("a path")?;
    std::fs::write(&file, "a backup")?;
    for wrong in [&["-n", "label-storag"][..], &["-l", "pool=silver"]] {
        let told = s.plugin(&[&["export", "-f", path], wrong].concat())?;
        assert_eq!((told.code, told.err.lines().count()), (Some(1), 1), "{told:?}");
        assert!(
            told.err.starts_with("error: nothing was written: ") && told.err.contains("check -n"),
            "{told:?}"
        );
        assert_eq!(std::fs::read_to_string(&file)?, "a backup");
    }
    let told = s.plugin(&["export", "-n", "label-storag"])?;
    assert!(told.code == Some(1) && told.out.is_empty(), "{told:?}");
    let told = s.plugin(&["export", "-f", path])?;
    well(&told)?;
    assert_eq!(told.err, format!("1 record written to {path}\n"));
    let export = std::fs::read_to_string(&file)?;
    assert!(export.contains(&format!("name: label-storage.{node}\n")), "{export}");
    well(&s.plugin(&["export", "-f", path, "-l", "pool=silver", "--force"])?)?;
    assert!(!std::fs::read_to_string(&file)?.contains(&node));
    assert_eq!(std::fs::read_dir(&folder)?.count(), 1);
    // Each part of an export is refused.
    s.delete_record(&node).await?;
    for part in [&export[..export.len() / 2], export.split("---\n# End").next().unwrap_or_default()] {
        let told = s.plugin_reading(part, &["import", "--yes"])?;
        assert!(told.code == Some(1) && told.err.contains("the file is incomplete"), "{told:?}");
    }
    assert_eq!(all_records(&s.config_maps).await?, []);
    well(&s.plugin_reading(&export, &["import", "--yes"])?)
}

pub async fn entries_that_are_no_labels_are_exported_and_refused_by_an_import(s: &Scenario) -> Result<()> {
    let (odd, good) = (s.node("odd"), s.node("good"));
    let file = file_of([&odd, &good].map(|node| document(node, "pool: gold")));
    well(&s.plugin_reading(&file, &["import", "--yes"])?)?;
    s.patch_record(
        &odd,
        json!({"data": {"-no-label": "a\nb", "tier": "a b"}, "binaryData": {"raw": "AAH/"}}),
    )
    .await?;
    let told = s.plugin(&["export"])?;
    assert!(told.code == Some(3) && told.err.ends_with("warning: 1 record can't be imported\n"), "{told:?}");
    assert!(told.out.contains("raw: AAH/\n") && told.out.contains(&good), "{told:?}");
    let again = s.plugin_reading(&told.out, &["import", "--replace", "--yes"])?;
    assert!(
        again.code == Some(1) && again.err.contains("stdin has 3 problems: nothing was changed"),
        "{again:?}"
    );
    for part in ["\"-no-label\" is not a label key", "\"tier\" can't have the value \"a b\"", "\"raw\""] {
        assert!(told.err.contains(part) && again.err.contains(part), "{part}: {told:?}, {again:?}");
    }
    Ok(())
}
