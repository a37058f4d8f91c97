//! One run: from the smallest size to the largest. Some measurements are made only at the largest.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;

use crate::probe::Way;
use crate::report::{Computer, Report};
use crate::stage::Stage;
use crate::{
    Arguments, Scenario, cold_start, concurrency, idle, light, limits, load, mass_return, picture, plots,
    poll, port, status, table, take_over,
};

/// The sizes for polls.
const POLL: [u32; 4] = [1_000, 10_000, 30_000, 100_000];
/// The sizes for Nodes with only metadata.
const LIGHT: [u32; 5] = [10_000, 30_000, 100_000, 300_000, 1_000_000];
/// The largest size without `--light`.
const MOST: u32 = 200_000;
/// The sizes for mass returns.
const MASS_RETURN: [u32; 3] = [5_000, 20_000, 100_000];
/// The sizes for the comparison of concurrency limits.
const CONCURRENCY: [u32; 1] = [2_000];
/// The sizes for the picture.
const PICTURE: [u32; 1] = [2_000];
/// The numbers of replicas that share the Nodes. With 0, the API server is measured alone.
const REPLICAS: [u32; 4] = [0, 1, 2, 4];

/// Runs the requested measurements, and prints the figures.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    anyhow::ensure!(arguments.light || arguments.largest() <= MOST, "more than {MOST} nodes need --light");
    // Fails now and not after an hour. The figures of an earlier run stay in the file until there are new ones.
    if let Some(file) = &arguments.json {
        let opened = File::options().append(true).create(true).open(file);
        opened.with_context(|| format!("can't write {}", file.display()))?;
    }
    if let Some(folder) = &arguments.plots {
        plots::write(&Report::default(), folder)?;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let report = runtime.block_on(measure(arguments))?;
    // A closed pipe, as in `bench | head`, is not an error.
    let _ = std::io::stdout().write_all(table::render(&report).as_bytes());
    if let Some(folder) = &arguments.plots {
        plots::write(&report, folder)?;
    }
    Ok(if report.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn measure(arguments: &Arguments) -> anyhow::Result<Report> {
    let computer = Computer::this()?;
    let mut report = Report { nodes: arguments.largest(), computer, ..Report::default() };
    eprintln!("starting etcd and kube-apiserver");
    let mut stage = Stage::set_up(arguments.daemons.clone()).await?;
    if arguments.light {
        measure_light(&mut stage, &mut report, arguments).await?;
        return Ok(report);
    }
    let data = stage.sandbox.data_folder().to_owned();

    for (nodes, scenarios) in steps(arguments) {
        stage.grow(nodes).await?;
        for scenario in scenarios {
            if let Err(error) = one(scenario, &mut stage, &mut report, arguments).await {
                eprintln!("error: {scenario:?} at {nodes} nodes: {error:#}");
                report.failures.push(format!("{scenario:?} at {nodes} nodes: {error:#}"));
                stage.sandbox.keep_data();
                // The next measurement needs the control plane, and all Nodes.
                stage.check(&[])?;
                stage.repair(nodes).await?;
            }
            report.must_reach = limits::all(&report);
            // After each measurement, so that a run that ends early has figures, too.
            if let Some(file) = &arguments.json {
                write(&report, file)?;
            }
        }
    }
    if !report.failures.is_empty() {
        eprintln!("the logs of all processes are kept in {}", data.display());
    }
    Ok(report)
}

/// Stops at the first size that does not fit into the memory of this machine.
async fn measure_light(stage: &mut Stage, report: &mut Report, arguments: &Arguments) -> anyhow::Result<()> {
    for nodes in light_sizes(arguments) {
        match light::measure(stage, nodes, arguments).await {
            Ok(measured) => report.light.push(measured),
            Err(error) => {
                report.failures.push(format!("{nodes} light nodes or more: {error:#}"));
            }
        }
        if let Some(file) = &arguments.json {
            write(report, file)?;
        }
        if !report.failures.is_empty() {
            break;
        }
    }
    Ok(())
}

fn light_sizes(arguments: &Arguments) -> BTreeSet<u32> {
    if !arguments.at.is_empty() {
        return arguments.at.iter().copied().collect();
    }
    let below = LIGHT.into_iter().filter(|&size| size < arguments.nodes);
    below.chain([arguments.nodes]).collect()
}

/// The measurements at each size.
fn steps(arguments: &Arguments) -> BTreeMap<u32, Vec<Scenario>> {
    let mut steps: BTreeMap<u32, Vec<Scenario>> = BTreeMap::new();
    let largest = arguments.largest();
    let mut add = |scenario: Scenario, sizes: &[u32]| {
        if arguments.includes(scenario) {
            let mut sizes: Vec<u32> = sizes.iter().copied().filter(|&size| size <= largest).collect();
            // A run of any size includes every measurement.
            if sizes.is_empty() {
                sizes.push(largest);
            }
            for size in sizes {
                steps.entry(size).or_default().push(scenario);
            }
        }
    };
    let at = |sizes: &[u32]| if arguments.at.is_empty() { sizes.to_vec() } else { arguments.at.clone() };
    let mut polls: Vec<u32> = POLL.into_iter().filter(|&size| size < largest).collect();
    polls.push(largest);
    add(Scenario::Poll, &at(&polls));
    add(Scenario::MassReturn, &at(&MASS_RETURN));
    add(Scenario::Concurrency, &at(&CONCURRENCY));
    add(Scenario::Picture, &at(&PICTURE));
    use Scenario::{ColdStart, Idle, Latency, Port, Replicas, Status, TakeOver};
    // These use the records of the cold start, while the Nodes are still as they were then. The import comes last, because its
    // records stay.
    for scenario in [ColdStart, Status, Latency, Replicas, Idle, TakeOver, Port] {
        add(scenario, &[largest]);
    }
    steps
}

async fn one(
    scenario: Scenario,
    stage: &mut Stage,
    report: &mut Report,
    arguments: &Arguments,
) -> anyhow::Result<()> {
    match scenario {
        Scenario::Poll => {
            let nodes = u32::try_from(stage.nodes.len())?;
            report.poll.extend(poll::measure(stage, nodes, &Way::ALL).await?);
        }
        Scenario::MassReturn => report.mass_return.push(mass_return::measure(stage).await?),
        Scenario::Concurrency => report.concurrency.extend(concurrency::measure(stage).await?),
        Scenario::ColdStart => report.cold_start = Some(cold_start::measure(stage).await?),
        Scenario::Latency => {
            cold_start::ensure_records(stage).await?;
            report.latency = Some(load::measure(stage, 1, arguments.trials, arguments).await?);
        }
        Scenario::Status => report.status = status::measure(stage).await?,
        Scenario::Port => report.port = port::measure(stage).await?,
        Scenario::Idle => report.idle = Some(idle::measure(stage).await?),
        Scenario::TakeOver => report.take_over = take_over::measure(stage).await?,
        Scenario::Picture => report.picture = Some(picture::measure(stage, arguments).await?),
        Scenario::Replicas => {
            cold_start::ensure_records(stage).await?;
            for replicas in REPLICAS {
                let trials = arguments.trials.div_ceil(4);
                report.replicas.push(load::measure(stage, replicas, trials, arguments).await?);
            }
        }
    }
    Ok(())
}

fn write(report: &Report, file: &Path) -> anyhow::Result<()> {
    let mut json = serde_json::to_string_pretty(report)?;
    json.push('\n');
    std::fs::write(file, json).with_context(|| format!("can't write {}", file.display()))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn steps_of(line: &str) -> Vec<(u32, Vec<Scenario>)> {
        steps(&Arguments::try_parse_from(line.split(' ')).unwrap()).into_iter().collect()
    }

    #[test]
    fn sizes_grow_up_to_the_largest() {
        let sizes: Vec<u32> = steps_of("bench").into_iter().map(|(size, _)| size).collect();
        assert_eq!(sizes, [1_000, 2_000, 5_000, 10_000, 20_000, 30_000, 100_000]);
        let sizes: Vec<u32> = steps_of("bench --nodes 12000").into_iter().map(|(size, _)| size).collect();
        assert_eq!(sizes, [1_000, 2_000, 5_000, 10_000, 12_000]);
    }

    #[test]
    fn a_small_run_shows_something_of_everything() {
        use Scenario::{
            ColdStart, Concurrency, Idle, Latency, MassReturn, Picture, Poll, Port, Replicas, Status,
            TakeOver,
        };
        let all = vec![
            Poll,
            MassReturn,
            Concurrency,
            Picture,
            ColdStart,
            Status,
            Latency,
            Replicas,
            Idle,
            TakeOver,
            Port,
        ];
        assert_eq!(steps_of("bench --nodes 500"), [(500, all)]);
        assert_eq!(steps_of("bench --nodes 500 --only latency"), [(500, vec![Latency])]);
    }

    #[test]
    fn sizes_can_be_chosen() {
        use Scenario::{ColdStart, MassReturn};
        let line = "bench --at 7000,300 --only mass-return,cold-start";
        assert_eq!(steps_of(line), [(300, vec![MassReturn]), (7_000, vec![MassReturn, ColdStart])]);
    }

    #[test]
    fn light_nodes_can_be_more() {
        let sizes = |line: &str| light_sizes(&Arguments::try_parse_from(line.split(' ')).unwrap());
        let all = sizes("bench --light --nodes 1000000");
        assert_eq!(all, [10_000, 30_000, 100_000, 300_000, 1_000_000].into());
        assert_eq!(sizes("bench --light --nodes 20000"), [10_000, 20_000].into());
        assert_eq!(sizes("bench --light --at 700,300"), [300, 700].into());
        assert!(run(&Arguments::try_parse_from(["bench", "--nodes", "300000"]).unwrap()).is_err());
    }

    #[test]
    fn records_of_the_largest_size_are_made_last() {
        let steps = steps_of("bench --nodes 5000");
        let (size, scenarios) = steps.last().unwrap();
        assert_eq!(*size, 5_000);
        assert_eq!(scenarios[..2], [Scenario::Poll, Scenario::MassReturn]);
    }
}
