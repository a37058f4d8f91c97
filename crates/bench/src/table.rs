//! The report as text: aligned columns, with their units in the header.

use std::fmt::Write;

use crate::concurrency::limit_name;
use crate::probe::{Cost, Way};
use crate::report::{
    Compared, Computer, Light, Limit, Load, MassReturn, Part, PortCost, Program, ProgramCost, Report,
    Requests, ServerCost, StatusCost, Usage, Window,
};
use crate::stats::{Latencies, ratio, ratio_text};

/// The space between two columns.
const GAP: &str = "  ";

/// All tables of a report.
pub(crate) fn render(report: &Report) -> String {
    let Computer { cores, memory } = report.computer;
    let mut text = format!(
        "On a machine with {cores} cores and {:.0} GB of memory, shared by all processes.\n\n",
        memory as f64 / 1e9
    );
    let parts = [
        polls(report),
        poll_ratios(report),
        lights(report),
        light_slopes(report),
        mass_returns(report),
        growths(report),
        server_costs(report),
        concurrency(report),
        cold_start(report),
    ];
    let loads = [
        latency(report),
        usage(report),
        replicas(report),
        idle(report),
        take_overs(report),
        picture(report),
        statuses(report),
        ports(report),
        limits(&report.must_reach),
    ];
    for table in parts.into_iter().chain(loads).filter(|table| !table.rows.is_empty()) {
        // Writing to a String does not fail.
        let _ = writeln!(text, "{table}");
    }
    for failure in &report.failures {
        let _ = writeln!(text, "NOT MEASURED: {failure}");
    }
    text
}

struct Table {
    title: String,
    head: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    fn new<const N: usize>(title: &str, head: [&'static str; N]) -> Self {
        Self { title: title.to_owned(), head: head.to_vec(), rows: Vec::new() }
    }

    fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.to_vec());
    }
}

impl std::fmt::Display for Table {
    /// The first column is text and aligned to the left. All others are figures and aligned to the right.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let head: Vec<String> = self.head.iter().map(|&cell| cell.to_owned()).collect();
        let width = |column: usize| {
            let cells = self.rows.iter().chain([&head]).filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or_default()
        };
        let widths: Vec<usize> = (0..head.len()).map(width).collect();
        writeln!(f, "{}", self.title)?;
        for row in [&head].into_iter().chain(&self.rows) {
            let mut line = String::new();
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                if column == 0 {
                    write!(line, "{cell:<width$}")?;
                } else {
                    write!(line, "{GAP}{cell:>width$}")?;
                }
            }
            writeln!(f, "{GAP}{}", line.trim_end())?;
        }
        Ok(())
    }
}

fn polls(report: &Report) -> Table {
    let mut table = Table::new(
        "Poll: one list of all nodes (medians)",
        ["way", "nodes", "wall s", "client CPU s", "API-server CPU s", "wire MB", "peak MB", "rounds"],
    );
    for nodes in report.poll_sizes() {
        for polled in report.poll.iter().filter(|polled| polled.nodes == nodes) {
            let cost = polled.cost;
            table.row([
                polled.way.name().to_owned(),
                thousands(u64::from(nodes)),
                seconds(cost.wall),
                seconds(cost.client_cpu),
                seconds(cost.server_cpu),
                megabytes(cost.wire),
                megabytes(cost.peak),
                polled.rounds.to_string(),
            ]);
        }
    }
    table
}

fn poll_ratios(report: &Report) -> Table {
    let mut table = Table::new(
        "Poll: Label Storage compared with the others",
        ["against", "nodes", "wall", "client CPU", "API-server CPU", "wire", "peak"],
    );
    for nodes in report.poll_sizes() {
        let Some(ours) = report.cost(Way::Ours, nodes) else { continue };
        for way in [Way::List, Way::ListMetadata, Way::Limit] {
            let Some(other) = report.cost(way, nodes) else { continue };
            let of = |figure: fn(&Cost) -> f64| ratio_or_dash(ratio(figure(&ours), figure(&other)));
            table.row([
                way.name().to_owned(),
                thousands(u64::from(nodes)),
                of(|cost| cost.wall),
                of(|cost| cost.client_cpu),
                of(|cost| cost.server_cpu),
                of(|cost| cost.wire),
                of(|cost| cost.peak),
            ]);
        }
    }
    table
}

fn lights(report: &Report) -> Table {
    let mut table = Table::new(
        "Light nodes, with only metadata: one list (medians), and one storer and one restorer, idle; CPU in % of a core",
        [
            "",
            "nodes",
            "wall s",
            "client CPU s",
            "API-server CPU s",
            "wire MB",
            "peak MB",
            "storer CPU %",
            "RSS MB",
            "peak MB",
            "restorer CPU %",
            "RSS MB",
            "peak MB",
            "API-server RSS MB",
        ],
    );
    let percent = |usage: Usage| format!("{:.2}", usage.cpu * 100.0);
    for Light { nodes, poll, idle } in &report.light {
        table.row([
            "light".to_owned(),
            thousands(u64::from(*nodes)),
            seconds(poll.wall),
            seconds(poll.client_cpu),
            seconds(poll.server_cpu),
            megabytes(poll.wire),
            megabytes(poll.peak),
            percent(idle.storers),
            megabytes(idle.storers.rss as f64),
            megabytes(idle.storers.max_peak as f64),
            percent(idle.restorers),
            megabytes(idle.restorers.rss as f64),
            megabytes(idle.restorers.max_peak as f64),
            megabytes(idle.api_server.rss as f64),
        ]);
    }
    table
}

/// The slopes between the smallest and the largest size.
fn light_slopes(report: &Report) -> Table {
    let mut table = Table::new(
        "Light nodes: growth per node between the smallest and the largest size",
        ["", "from nodes", "to nodes", "growth per node"],
    );
    let (Some(small), Some(large)) = (report.light.first(), report.light.last()) else { return table };
    let more = f64::from(large.nodes) - f64::from(small.nodes);
    let mut row = |what: &str, unit: &str, scale: f64, figure: fn(&Light) -> f64| {
        let Some(slope) = ratio((figure(large) - figure(small)) * scale, more) else { return };
        let [from, to] = [small, large].map(|light| thousands(u64::from(light.nodes)));
        table.row([what.to_owned(), from, to, format!("{slope:.2} {unit}")]);
    };
    row("list: wall", "µs", 1e6, |light| light.poll.wall);
    row("list: client CPU", "µs", 1e6, |light| light.poll.client_cpu);
    row("list: API-server CPU", "µs", 1e6, |light| light.poll.server_cpu);
    row("list: client peak memory", "bytes", 1.0, |light| light.poll.peak);
    row("storer: peak memory", "bytes", 1.0, |light| light.idle.storers.max_peak as f64);
    row("restorer: peak memory", "bytes", 1.0, |light| light.idle.restorers.max_peak as f64);
    table
}

fn mass_returns(report: &Report) -> Table {
    let mut table = Table::new(
        "Mass return: all nodes deleted and re-created",
        [
            "",
            "nodes",
            "bare creates s",
            "bare patches s",
            "full speed s",
            "ratio",
            "creating s",
            "last label after last create s",
            "held back: restoring s",
            "ratio",
        ],
    );
    for returned in &report.mass_return {
        let part = |part: fn(Compared) -> Part| {
            returned.compared.map_or_else(|| "-".to_owned(), |compared| seconds(part(compared).seconds))
        };
        table.row([
            "mass return".to_owned(),
            thousands(returned.nodes as u64),
            part(|compared| compared.bare_creates),
            part(|compared| compared.bare_patches),
            seconds(returned.full_speed()),
            ratio_or_dash(returned.full_speed_ratio()),
            seconds(returned.creating),
            seconds(returned.last_label),
            part(|compared| compared.held_back),
            ratio_or_dash(returned.held_back_ratio()),
        ]);
    }
    table
}

fn growths(report: &Report) -> Table {
    let mut table = Table::new(
        "Mass return: peak memory before the deletes and after the return",
        ["", "nodes", "before MB", "after MB", "growth MB"],
    );
    for returned in &report.mass_return {
        for (daemon, growth) in [("storer", returned.storer), ("restorer", returned.restorer)] {
            table.row([
                daemon.to_owned(),
                thousands(returned.nodes as u64),
                megabytes(growth.before as f64),
                megabytes(growth.after as f64),
                megabytes(growth.bytes() as f64),
            ]);
        }
    }
    table
}

fn server_costs(report: &Report) -> Table {
    let mut table = Table::new(
        "Cost for the API server, per node",
        ["", "nodes", "CPU ms", "GETs", "writes", "lists in total"],
    );
    let mut row = |part: &str, nodes: usize, cost: ServerCost| {
        let of_a_node = |total: f64| format!("{:.2}", total / nodes as f64);
        table.row([
            part.to_owned(),
            thousands(nodes as u64),
            of_a_node(cost.cpu * 1e3),
            of_a_node(cost.gets),
            of_a_node(cost.writes),
            format!("{:.0}", cost.lists),
        ]);
    };
    for MassReturn { nodes, cost, compared, .. } in &report.mass_return {
        row("mass return, full speed", *nodes, *cost);
        if let Some(Compared { bare_creates, bare_patches, held_back }) = compared {
            row("mass return, bare creates", *nodes, bare_creates.cost);
            row("mass return, bare patches", *nodes, bare_patches.cost);
            row("mass return, held back", *nodes, held_back.cost);
        }
    }
    if let Some(cold) = report.cold_start {
        row("cold start", cold.nodes, cold.storing_cost);
        row("cold start, by hand", cold.nodes, cold.creating_cost);
    }
    table
}

fn concurrency(report: &Report) -> Table {
    let mut table = Table::new(
        "Concurrency: one restorer, from the first node restored to the last (medians)",
        ["server", "nodes", "limit", "seconds", "ratio to the best fixed", "rounds"],
    );
    for restoring in &report.concurrency {
        table.row([
            restoring.server.name().to_owned(),
            thousands(restoring.nodes as u64),
            limit_name(restoring.limit),
            seconds(restoring.seconds),
            ratio_or_dash(report.to_best_fixed(restoring)),
            restoring.rounds.to_string(),
        ]);
    }
    table
}

fn cold_start(report: &Report) -> Table {
    let mut table = Table::new(
        "Cold start without records: from the first record to the last",
        ["", "nodes", "storing s", "by hand s", "ratio", "first record after s"],
    );
    if let Some(cold) = report.cold_start {
        table.row([
            "cold start".to_owned(),
            thousands(cold.nodes as u64),
            seconds(cold.storing),
            seconds(cold.creating),
            ratio_or_dash(ratio(cold.storing, cold.creating)),
            seconds(cold.first),
        ]);
    }
    table
}

fn statuses(report: &Report) -> Table {
    let mut table = Table::new(
        "Status: compared with a list of all nodes (medians)",
        ["program", "nodes", "wall s", "CPU s", "API-server CPU s", "peak MB", "rounds"],
    );
    for StatusCost { nodes, program, rounds, cost } in &report.status {
        table.row([
            program.name().to_owned(),
            thousands(u64::from(*nodes)),
            seconds(cost.wall),
            seconds(cost.cpu),
            seconds(cost.server_cpu),
            megabytes(cost.peak),
            rounds.to_string(),
        ]);
    }
    let cost = |program| report.status.iter().find(|status| status.program == program);
    if let (Some(ours), Some(other)) = (cost(Program::Status), cost(Program::GetNodes)) {
        let of =
            |figure: fn(&ProgramCost) -> f64| ratio_or_dash(ratio(figure(&ours.cost), figure(&other.cost)));
        table.row([
            "status / get nodes".to_owned(),
            thousands(u64::from(ours.nodes)),
            of(|cost| cost.wall),
            of(|cost| cost.cpu),
            of(|cost| cost.server_cpu),
            of(|cost| cost.peak),
            String::new(),
        ]);
    }
    table
}

fn ports(report: &Report) -> Table {
    let mut table = Table::new(
        "Export and import: all records (medians)",
        ["what", "records", "wall s", "CPU s", "API-server CPU s", "peak MB", "rounds"],
    );
    for PortCost { records, what, rounds, cost } in &report.port {
        table.row([
            what.name().to_owned(),
            thousands(u64::from(*records)),
            seconds(cost.wall),
            seconds(cost.cpu),
            seconds(cost.server_cpu),
            megabytes(cost.peak),
            rounds.to_string(),
        ]);
    }
    table
}

fn idle(report: &Report) -> Table {
    let mut table = Table::new(
        "Idle: requests per minute, as the API server counts them",
        ["", "replicas", "nodes", "with daemons", "without", "of the daemons"],
    );
    let Some(idle) = &report.idle else { return table };
    let mut row = |what: String, rates: [f64; 3]| {
        let [with, without, of_daemons] = rates.map(|rate| format!("{rate:.1}"));
        let (replicas, nodes) = (idle.replicas.to_string(), thousands(idle.nodes as u64));
        table.row([what, replicas, nodes, with, without, of_daemons]);
    };
    for requests in &idle.requests {
        let what = format!("{} {}", requests.verb, requests.resource);
        row(what, [requests.with, requests.without, requests.of_daemons()]);
    }
    let sum = |figure: fn(&Requests) -> f64| idle.requests.iter().map(figure).sum();
    row("all".to_owned(), [sum(|requests| requests.with), sum(|requests| requests.without), idle.total()]);
    table
}

fn take_overs(report: &Report) -> Table {
    let mut table = Table::new(
        "Take-over: from the signal to one of three replicas to the first effect of another",
        ["", "nodes", "times", "p50 s", "max s"],
    );
    for taken in &report.take_over {
        table.row([
            format!("{} to a {}", taken.signal, taken.daemon),
            thousands(taken.nodes as u64),
            taken.times.trials.to_string(),
            seconds(taken.times.p50),
            seconds(taken.times.max),
        ]);
    }
    table
}

/// The loads of both measurements have the same figures, and are shown together.
fn loads(report: &Report) -> impl Iterator<Item = (&'static str, &Load)> {
    let latency = report.latency.iter().map(|load| ("latency", load));
    latency.chain(report.replicas.iter().map(|load| ("replicas", load)))
}

fn latency(report: &Report) -> Table {
    let mut table = Table::new(
        "Latency under status updates",
        ["what", "replicas", "nodes", "updates/s", "trials", "p50 s", "p99 s", "max s"],
    );
    for (_, load) in loads(report) {
        let mut row = |what: &str, latencies: Option<Latencies>| {
            let Some(latencies) = latencies else { return };
            table.row([
                what.to_owned(),
                load.replicas.to_string(),
                thousands(u64::from(load.nodes)),
                format!("{:.0}", load.busy.updates_per_second),
                latencies.trials.to_string(),
                seconds(latencies.p50),
                seconds(latencies.p99),
                seconds(latencies.max),
            ]);
        };
        row("label change on a watch: the server alone", load.echo);
        row("label change in the record", load.label_change);
        row("labels back on the node", load.back);
    }
    table
}

fn usage(report: &Report) -> Table {
    let mut table = Table::new(
        "Use of the machine: CPU in % of a core, all replicas together; peak of the largest replica since its start",
        [
            "",
            "replicas",
            "nodes",
            "updates/s",
            "storer CPU %",
            "RSS MB",
            "peak MB",
            "restorer CPU %",
            "RSS MB",
            "peak MB",
            "API-server CPU %",
            "RSS MB",
            "etcd CPU %",
            "bench CPU %",
        ],
    );
    for (scenario, load) in loads(report) {
        let mut row = |when: &str, window: &Window| {
            let [storers, restorers, api_server] = [window.storers, window.restorers, window.api_server];
            let percent = |usage: Usage| format!("{:.1}", usage.cpu * 100.0);
            table.row([
                format!("{scenario}, {when}"),
                load.replicas.to_string(),
                thousands(u64::from(load.nodes)),
                format!("{:.0}", window.updates_per_second),
                percent(storers),
                megabytes(storers.rss as f64),
                megabytes(storers.max_peak as f64),
                percent(restorers),
                megabytes(restorers.rss as f64),
                megabytes(restorers.max_peak as f64),
                percent(api_server),
                megabytes(api_server.rss as f64),
                percent(window.etcd),
                percent(window.bench),
            ]);
        };
        row("idle", &load.idle);
        row("updates", &load.busy);
    }
    table
}

fn picture(report: &Report) -> Table {
    let mut table = Table::new(
        "The picture: CPU in % of a core, all replicas together and the one that used most; peak of the largest since its start",
        [
            "",
            "replicas",
            "nodes",
            "seconds",
            "storer CPU %",
            "max %",
            "RSS MB",
            "peak MB",
            "restorer CPU %",
            "max %",
            "RSS MB",
            "peak MB",
            "API-server CPU %",
        ],
    );
    let percent = |share: f64| format!("{:.1}", share * 100.0);
    if let Some(picture) = &report.picture {
        for (when, window) in [("idle", &picture.idle), ("mass return", &picture.busy)] {
            let [storers, restorers] = [window.storers, window.restorers];
            table.row([
                when.to_owned(),
                picture.replicas.to_string(),
                thousands(picture.nodes as u64),
                format!("{:.0}", window.seconds),
                percent(storers.cpu),
                percent(storers.max_cpu),
                megabytes(storers.rss as f64),
                megabytes(storers.max_peak as f64),
                percent(restorers.cpu),
                percent(restorers.max_cpu),
                megabytes(restorers.rss as f64),
                megabytes(restorers.max_peak as f64),
                percent(window.api_server.cpu),
            ]);
        }
    }
    table
}

/// The API server's extra cost compared with no daemons, for each pair of a storer and a restorer: idle, and under updates. The update
/// rates differ, so the cost of the updates themselves is subtracted.
fn extra(load: &Load, none: &Load) -> [f64; 2] {
    let cpu = |window: &Window| window.api_server.cpu;
    let per_update =
        ratio(cpu(&none.busy) - cpu(&none.idle), none.busy.updates_per_second).unwrap_or_default();
    let without = cpu(&none.idle) + per_update * load.busy.updates_per_second;
    [cpu(&load.idle) - cpu(&none.idle), cpu(&load.busy) - without].map(|more| more / f64::from(load.replicas))
}

fn replicas(report: &Report) -> Table {
    let mut table = Table::new(
        "Cost of one more storer and restorer for the API server: CPU in % of a core",
        ["", "replicas", "nodes", "idle %", "under updates %"],
    );
    let none = report.replicas.iter().find(|load| load.replicas == 0);
    for load in report.replicas.iter().filter(|load| load.replicas > 0) {
        let Some(none) = none else { continue };
        let [idle, busy] = extra(load, none).map(|share| format!("{:.1}", share * 100.0));
        table.row([
            "each pair".to_owned(),
            load.replicas.to_string(),
            thousands(u64::from(load.nodes)),
            idle,
            busy,
        ]);
    }
    table
}

fn limits(limits: &[Limit]) -> Table {
    let mut table = Table::new("Targets", ["what", "figure", "limit", "verdict"]);
    for limit in limits {
        table.row([
            limit.what.clone(),
            limit.figure.map_or_else(|| "-".to_owned(), |figure| limit.text(figure)),
            limit.text(limit.limit),
            limit.verdict().to_string(),
        ]);
    }
    table
}

fn ratio_or_dash(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| "-".to_owned(), ratio_text)
}

fn seconds(value: f64) -> String {
    format!("{value:.3}")
}

fn megabytes(bytes: f64) -> String {
    format!("{:.1}", bytes / 1e6)
}

pub(crate) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Growth, Polled};

    #[test]
    fn numbers_are_grouped() {
        assert_eq!(
            [0, 999, 1_000, 100_000, 1_234_567].map(thousands),
            ["0", "999", "1,000", "100,000", "1,234,567"]
        );
    }

    #[test]
    fn columns_are_aligned() {
        let mut table = Table::new("T", ["what", "s"]);
        table.row(["a".to_owned(), "10.5".to_owned()]);
        table.row(["longer".to_owned(), "1".to_owned()]);
        assert_eq!(table.to_string(), "T\n  what       s\n  a       10.5\n  longer     1\n");
    }

    #[test]
    fn updates_are_not_counted_as_the_daemons_cost() {
        let window = |cpu, updates_per_second| Window {
            updates_per_second,
            api_server: Usage { cpu, ..Usage::default() },
            ..Window::default()
        };
        let load = |replicas, idle, busy| Load {
            nodes: 1,
            replicas,
            idle,
            busy,
            echo: None,
            label_change: None,
            back: None,
        };
        let none = load(0, window(0.25, 0.0), window(1.25, 200.0));
        let two = load(2, window(0.75, 0.0), window(1.75, 100.0));
        assert_eq!(extra(&two, &none), [0.25, 0.5]);
    }

    #[test]
    fn only_what_was_measured_is_shown() {
        let cost = Cost { wall: 1.5, client_cpu: 0.5, server_cpu: 2.0, wire: 3e6, peak: 4e6, growth: 0.0 };
        let poll = [Way::Ours, Way::Limit].map(|way| Polled { nodes: 1_000, way, rounds: 5, cost }).to_vec();
        let text = render(&Report { poll, ..Report::default() });
        assert!(text.contains("Poll") && text.contains("1.00 x"), "{text}");
        assert!(!text.contains("Mass return") && !text.contains("Latency"), "{text}");
        let light = |nodes, peak| Light { nodes, poll: Cost { peak, ..cost }, idle: Window::default() };
        let lights = vec![light(10_000, 20e6), light(30_000, 25e6)];
        let text = render(&Report { light: lights, ..Report::default() });
        assert!(text.contains("30,000") && text.contains("250.00 bytes"), "{text}");
        let part = |seconds| Part { seconds, ..Part::default() };
        let returned = MassReturn {
            nodes: 5_000,
            creating: 4.0,
            last_label: 2.0,
            cost: ServerCost { cpu: 25.0, gets: 5_500.0, lists: 3.0, writes: 10_000.0 },
            storer: Growth { before: 30_000_000, after: 42_000_000 },
            compared: Some(Compared {
                bare_creates: part(3.0),
                bare_patches: part(2.0),
                held_back: part(3.0),
            }),
            ..MassReturn::default()
        };
        let text = render(&Report { mass_return: vec![returned], ..Report::default() });
        for figure in ["1.20 x", "1.50 x", "42.0", "12.0", "5.00", "1.10", "2.00"] {
            assert!(text.contains(figure), "{figure}: {text}");
        }
    }
}
