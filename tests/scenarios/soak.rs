//! A soak, in short: random histories in bad weather, against an oracle. `cargo run --release --bin soak` is the long one.

use std::num::NonZeroU32;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use label_storage::Rules;
use soak::object::Place;
use soak::weather::Climate;
use soak::{Settings, Stage};

use crate::scenario::{SEED, Scenario, seed};

pub async fn random_histories_in_bad_weather_end_as_an_oracle_says(s: &Scenario) -> Result<()> {
    let seed = seed();
    let again = format!("to repeat this history: {SEED}={seed} cargo test --test scenarios random_histories");
    println!("{again}");
    let settings = Settings {
        nodes: 300,
        replicas: NonZeroU32::new(2).context("some")?,
        flags: ["--interval", "500ms", "--audit-interval", "2s"].map(str::to_owned).into(),
        rules: Rules::default(),
        watch: s.watch,
        duration: Duration::from_secs(24),
        storm: Duration::from_secs(12),
        // Only a failing test waits this long.
        patience: Duration::from_secs(180),
        rate: 40.0,
        probes: 1,
        climate: Climate {
            pause: Duration::from_millis(1500),
            fault_rate: 0.05,
            suspension: Duration::from_secs(1),
            lengthy: false,
            // It is everybody's.
            control_plane: false,
            resizing: true,
        },
        seed,
    };
    let stage = Stage {
        kubeconfig: s.sandbox.kubeconfig().to_owned(),
        etcd: s.sandbox.etcd_client()?,
        control_plane: None,
        place: Place { namespace: s.namespace.clone(), prefix: s.node("") },
        folder: s.file(""),
    };
    let report = soak::run(&settings, &stage, &mut |_| {}).await.with_context(|| again.clone())?;
    ensure!(report.is_good, "{report}\n{again}");
    let acts: u64 = report.events.acts.values().sum();
    ensure!(
        acts > 500 && report.nodes_judged > 500,
        "a history in which nothing happens says little: {report}"
    );
    Ok(())
}
