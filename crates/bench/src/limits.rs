//! The targets of the project, and the figures of this run.

use crate::probe::{Cost, Way};
use crate::report::{IdleRequests, Limit, MassReturn, Report, Server, Unit, Usage};
use crate::stats::ratio;

/// Polls at the largest size are compared with polls at this size.
const BASE: u32 = 10_000;
/// The size whose mass return has a limit.
const RETURNING: usize = 5_000;

/// All limits, with the figures of this run.
pub(crate) fn all(report: &Report) -> Vec<Limit> {
    let mut limits = polls(report);
    let limit = |what: &str, unit, figure, limit| Limit { what: what.to_owned(), figure, limit, unit };

    let idle = report.latency.map(|load| load.idle);
    let usages = idle.map(|idle| [("storer", idle.storers), ("restorer", idle.restorers)]);
    for (index, name) in ["storer", "restorer"].into_iter().enumerate() {
        let of = |figure: fn(Usage) -> f64| usages.map(|usages| figure(usages[index].1));
        let peak = of(|usage| usage.max_peak as f64);
        limits.push(limit(
            &format!("{name}, records loaded, watching: peak memory"),
            Unit::Bytes,
            peak,
            36e6,
        ));
        limits.push(limit(
            &format!("{name}, idle: CPU of a core"),
            Unit::Core,
            of(|usage| usage.max_cpu),
            0.001,
        ));
    }

    let returned = report.mass_return.iter().find(|returned| returned.nodes == RETURNING);
    limits.push(limit(
        "mass return of 5,000: last label after last create",
        Unit::Seconds,
        returned.map(|returned| returned.last_label),
        3.0,
    ));
    let worst = |figure: fn(&MassReturn) -> Option<f64>| {
        report.mass_return.iter().filter_map(figure).max_by(f64::total_cmp)
    };
    limits.push(limit(
        "full speed: first create to last label / bare creates + bare patches, worst size",
        Unit::Ratio,
        worst(MassReturn::full_speed_ratio),
        1.10,
    ));
    limits.push(limit(
        "held back: restoring / bare patches, worst size",
        Unit::Ratio,
        worst(MassReturn::held_back_ratio),
        1.15,
    ));
    for (name, growth) in [
        ("storer", worst(|returned| Some(returned.storer.bytes() as f64))),
        ("restorer", worst(|returned| Some(returned.restorer.bytes() as f64))),
    ] {
        let what = format!("{name}, mass return: growth of peak memory, worst size");
        limits.push(limit(&what, Unit::Bytes, growth, 64e6));
    }
    for server in Server::ALL {
        let free = report.concurrency.iter().filter(|one| one.server == server && one.limit.is_none());
        let worst = free.filter_map(|one| report.to_best_fixed(one)).max_by(f64::total_cmp);
        let what = format!("concurrency, {}: adaptive limit / best fixed", server.name());
        limits.push(limit(&what, Unit::Ratio, worst, 1.10));
    }
    let cold = report.cold_start.and_then(|cold| ratio(cold.storing, cold.creating));
    limits.push(limit("cold start: storing / creating by hand", Unit::Ratio, cold, 1.25));
    let first = report.cold_start.map(|cold| cold.first);
    limits.push(limit("cold start: first record after the start", Unit::Seconds, first, 2.0));

    let requests = report.idle.as_ref().map(IdleRequests::total);
    let what = "two storers and two restorers, idle: requests";
    limits.push(limit(what, Unit::PerMinute, requests, 90.0));

    for (signal, most) in [("SIGKILL", 25.0), ("SIGTERM", 2.0)] {
        let slowest = report.take_over.iter().filter(|taken| taken.signal == signal);
        let slowest = slowest.map(|taken| taken.times.max).max_by(f64::total_cmp);
        limits.push(limit(&format!("take-over after {signal}, slowest"), Unit::Seconds, slowest, most));
    }

    let p99 = |latencies: Option<crate::stats::Latencies>| latencies.map(|latencies| latencies.p99);
    let back = p99(report.latency.and_then(|load| load.back));
    limits.push(limit("labels back on a node, p99", Unit::Seconds, back, 1.0));
    let change = p99(report.latency.and_then(|load| load.label_change));
    limits.push(limit("label change in the record, p99", Unit::Seconds, change, 1.0));
    limits
}

fn polls(report: &Report) -> Vec<Limit> {
    type Figure = fn(&Cost) -> f64;
    let largest = report.poll_sizes().last().copied();
    let against = |way: Way, figure: Figure| {
        let ours = report.cost(Way::Ours, largest?)?;
        ratio(figure(&ours), figure(&report.cost(way, largest?)?))
    };
    let at = largest.map(|nodes| format!(" at {nodes}")).unwrap_or_default();
    let limit = |what: &str, figure, limit| Limit {
        what: format!("poll{at}: {what}"),
        figure,
        limit,
        unit: Unit::Ratio,
    };
    let per_node = |nodes: u32| Some(report.cost(Way::Ours, nodes)?.wall / f64::from(nodes));
    let growth =
        largest.filter(|&nodes| nodes > BASE).and_then(|nodes| ratio(per_node(nodes)?, per_node(BASE)?));
    vec![
        limit("wall / Api::list", against(Way::List, |cost| cost.wall), 1.0 / 12.0),
        limit("client CPU / Api::list", against(Way::List, |cost| cost.client_cpu), 1.0 / 25.0),
        limit("peak memory / Api::list", against(Way::List, |cost| cost.peak), 1.0 / 100.0),
        limit("wall / the same bytes discarded", against(Way::Limit, |cost| cost.wall), 1.3),
        limit("API-server CPU / Api::list", against(Way::List, |cost| cost.server_cpu), 1.0 / 4.0),
        limit("time per node / that at 10,000", growth, 1.2),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{ColdStart, Compared, Growth, Part, Polled, Restoring, Verdict};

    fn polled(way: Way, nodes: u32, wall: f64) -> Polled {
        let cost =
            Cost { wall, client_cpu: wall, server_cpu: wall, wire: 1.0, peak: wall * 1e6, growth: 0.0 };
        Polled { nodes, way, rounds: 1, cost }
    }

    fn verdict_of(report: &Report, what: &str) -> Verdict {
        let limits = all(report);
        limits.iter().find(|limit| limit.what.contains(what)).expect(what).verdict()
    }

    #[test]
    fn what_was_not_measured_is_neither_reached_nor_missed() {
        assert!(all(&Report::default()).iter().all(|limit| limit.verdict() == Verdict::NotMeasured));
    }

    #[test]
    fn polls_are_judged_at_the_largest_size() {
        let poll = vec![
            polled(Way::Ours, 10_000, 0.1),
            polled(Way::List, 10_000, 0.1),
            polled(Way::Ours, 100_000, 1.3),
            polled(Way::List, 100_000, 30.0),
            polled(Way::Limit, 100_000, 1.0),
        ];
        let report = Report { poll, ..Report::default() };
        assert_eq!(verdict_of(&report, "wall / Api::list"), Verdict::Ok);
        assert_eq!(verdict_of(&report, "client CPU"), Verdict::Missed);
        assert_eq!(verdict_of(&report, "wall / the same bytes discarded"), Verdict::Ok);
        assert_eq!(verdict_of(&report, "time per node"), Verdict::Missed);
    }

    #[test]
    fn a_free_limit_is_compared_with_the_best_fixed_one() {
        let of = |limit, seconds| Restoring { nodes: 9, server: Server::Slow, limit, seconds, rounds: 3 };
        let concurrency = vec![of(None, 11.5), of(Some(8), 30.0), of(Some(64), 10.0), of(Some(128), 12.0)];
        let report = Report { concurrency, ..Report::default() };
        assert_eq!(verdict_of(&report, "concurrency, 100 ms"), Verdict::Missed);
        assert_eq!(verdict_of(&report, "concurrency, direct"), Verdict::NotMeasured);
    }

    #[test]
    fn the_worst_size_counts() {
        let part = |seconds| Part { seconds, ..Part::default() };
        let of = |nodes, restoring| MassReturn {
            nodes,
            creating: 22.0,
            last_label: 2.0,
            storer: Growth { before: 10_000_000, after: nodes as u64 * 5_000 },
            compared: Some(Compared {
                bare_creates: part(12.0),
                bare_patches: part(10.0),
                held_back: part(restoring),
            }),
            ..MassReturn::default()
        };
        let report = Report {
            mass_return: vec![of(5_000, 11.0), of(20_000, 17.0)],
            cold_start: Some(ColdStart { nodes: 1, storing: 12.5, creating: 10.0, ..ColdStart::default() }),
            ..Report::default()
        };
        assert_eq!(verdict_of(&report, "mass return of 5,000"), Verdict::Ok);
        assert_eq!(verdict_of(&report, "full speed"), Verdict::Ok);
        assert_eq!(verdict_of(&report, "held back"), Verdict::Missed);
        assert_eq!(verdict_of(&report, "storer, mass return"), Verdict::Missed);
        assert_eq!(verdict_of(&report, "restorer, mass return"), Verdict::Ok);
        assert_eq!(verdict_of(&report, "cold start"), Verdict::Ok);
    }
}
