//! The cost of one list of all Nodes, compared with other ways to list them and with the lowest possible cost.

use sandbox::progress::Progress;

use crate::probe::{Cost, Task, Way};
use crate::report::Polled;
use crate::stage::Stage;
use crate::stats::median;

/// Each way is measured this many times.
const ROUNDS: usize = 5;
/// From this number of Nodes on, the expensive ways are measured only [`LARGE_ROUNDS`] times.
const LARGE: u32 = 50_000;
const LARGE_ROUNDS: usize = 2;
/// The number of Nodes that one measurement lists in total, in one or more lists.
const NODES_PER_MEASUREMENT: u32 = 50_000;

/// Measures these ways with the Nodes of the stage. The rounds are interleaved, and each starts with another way, so that a busy machine
/// or a warm server affects all ways.
pub(crate) async fn measure(stage: &Stage, nodes: u32, ways: &[Way]) -> anyhow::Result<Vec<Polled>> {
    let repeats = (NODES_PER_MEASUREMENT / nodes.max(1)).clamp(1, 50);
    let total: usize = ways.iter().map(|way| rounds(*way, nodes)).sum();
    let mut progress = Progress::new(format!("poll at {nodes} nodes"), total as u64);
    let mut costs: Vec<(Way, Vec<Cost>)> = ways.iter().map(|way| (*way, Vec::new())).collect();
    let mut done = 0;
    for round in 0..ROUNDS {
        costs.rotate_left(1);
        for (way, measured) in &mut costs {
            if round >= rounds(*way, nodes) {
                continue;
            }
            stage.calm().await?;
            let (kubeconfig, api_server) = (stage.sandbox.kubeconfig().to_owned(), stage.api_server());
            let way = *way;
            let task = move || Task { way, kubeconfig: &kubeconfig, api_server, nodes, repeats }.run();
            measured.push(tokio::task::spawn_blocking(task).await??);
            stage.check(&[])?;
            done += 1;
            progress.set(done);
        }
    }
    progress.clear();
    costs.sort_by_key(|(way, _)| ways.iter().position(|other| other == way));
    let polled = |(way, measured): (Way, Vec<Cost>)| {
        let cost = middle(&measured)?;
        Some(Polled { nodes, way, rounds: measured.len(), cost })
    };
    Ok(costs.into_iter().filter_map(polled).collect())
}

fn rounds(way: Way, nodes: u32) -> usize {
    match way {
        Way::List | Way::ListMetadata if nodes >= LARGE => LARGE_ROUNDS,
        _ => ROUNDS,
    }
}

/// The median of each figure separately.
fn middle(costs: &[Cost]) -> Option<Cost> {
    let of = |figure: fn(&Cost) -> f64| median(&costs.iter().map(figure).collect::<Vec<_>>());
    Some(Cost {
        wall: of(|cost| cost.wall)?,
        client_cpu: of(|cost| cost.client_cpu)?,
        server_cpu: of(|cost| cost.server_cpu)?,
        wire: of(|cost| cost.wire)?,
        peak: of(|cost| cost.peak)?,
        growth: of(|cost| cost.growth)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_figure_has_its_own_median() {
        let cost = |wall, peak| Cost { wall, client_cpu: 1.0, server_cpu: 1.0, wire: 1.0, peak, growth: 0.0 };
        let middle = middle(&[cost(1.0, 30.0), cost(2.0, 10.0), cost(3.0, 20.0)]).unwrap();
        assert_eq!((middle.wall, middle.peak), (2.0, 20.0));
        assert!(super::middle(&[]).is_none());
    }

    #[test]
    fn whole_lists_of_the_largest_size_are_few() {
        assert_eq!(rounds(Way::List, 100_000), 2);
        assert_eq!(rounds(Way::Ours, 100_000), 5);
        assert_eq!(rounds(Way::List, 30_000), 5);
    }
}
