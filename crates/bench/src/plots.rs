//! Plots of cost against nodes, as SVG, and the pictures of a mass return.

mod dashboard;
mod picture;

use std::ops::Range;
use std::path::Path;

use anyhow::{Context, anyhow};
use plotters::coord::combinators::IntoLogRange;
use plotters::prelude::*;

use crate::probe::{Cost, Way};
use crate::report::{Light, Report};
use crate::table::thousands;

const SIZE: (u32, u32) = (920, 460);
/// The width of the strip for the legend, on the right, where it covers no data.
const LEGEND: u32 = 210;
/// The viewer's own font.
const FONT: &str = "sans-serif";

/// One plot: its file, its title, and the figure that it shows.
type Plot = (&'static str, &'static str, fn(&Cost) -> f64);

const PLOTS: [Plot; 5] = [
    ("poll-wall.svg", "One list of all nodes: wall time (s)", |cost| cost.wall),
    ("poll-client-cpu.svg", "One list of all nodes: client CPU time (s)", |cost| cost.client_cpu),
    ("poll-server-cpu.svg", "One list of all nodes: API server CPU time (s)", |cost| cost.server_cpu),
    ("poll-wire.svg", "One list of all nodes: bytes on the wire (MB)", |cost| cost.wire / 1e6),
    ("poll-memory.svg", "One list of all nodes: peak memory of the client (MB)", |cost| cost.peak / 1e6),
];

/// One line of a plot of light nodes: its name, and the figure that it shows.
type LightLine = (&'static str, fn(&Light) -> f64);

const LIGHT_TIMES: [LightLine; 3] = [
    ("wall time", |light| light.poll.wall),
    ("client CPU time", |light| light.poll.client_cpu),
    ("API server CPU time", |light| light.poll.server_cpu),
];
const LIGHT_PEAKS: [LightLine; 3] = [
    ("one list", |light| light.poll.peak / 1e6),
    ("storer", |light| light.idle.storers.max_peak as f64 / 1e6),
    ("restorer", |light| light.idle.restorers.max_peak as f64 / 1e6),
];

/// Writes all plots into a folder, which is created if it does not exist.
pub(crate) fn write(report: &Report, folder: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder)
        .with_context(|| format!("can't create the folder {}", folder.display()))?;
    let keep = |name: &str, svg: String| {
        let file = folder.join(name);
        std::fs::write(&file, svg).with_context(|| format!("can't write {}", file.display()))
    };
    if let Some(taken) = &report.picture {
        keep("mass-return.svg", picture::draw(taken)?)?;
        keep("dashboard.svg", dashboard::draw(&taken.dashboard)?)?;
    }
    if !report.light.is_empty() {
        let title = "One list of nodes with metadata only: time (s)";
        keep("light-time.svg", draw(title, &lights(report, LIGHT_TIMES))?)?;
        let title = "Nodes with metadata only: peak memory (MB)";
        keep("light-memory.svg", draw(title, &lights(report, LIGHT_PEAKS))?)?;
    }
    if report.poll.is_empty() {
        return Ok(());
    }
    for (name, title, figure) in PLOTS {
        keep(name, draw(title, &polls(report, figure))?)?;
    }
    Ok(())
}

/// A line: its name, and cost against nodes.
type Line = (&'static str, Vec<(f64, f64)>);

fn polls(report: &Report, figure: fn(&Cost) -> f64) -> Vec<Line> {
    let points = |way: Way| {
        let of = report.poll.iter().filter(|polled| polled.way == way);
        of.map(|polled| (f64::from(polled.nodes), figure(&polled.cost))).collect()
    };
    Way::ALL.into_iter().map(|way| (way.name(), points(way))).collect()
}

fn lights(report: &Report, lines: [LightLine; 3]) -> Vec<Line> {
    let points = |figure: fn(&Light) -> f64| {
        report.light.iter().map(|light| (f64::from(light.nodes), figure(light))).collect()
    };
    lines.into_iter().map(|(name, figure)| (name, points(figure))).collect()
}

fn draw(title: &str, lines: &[Line]) -> anyhow::Result<String> {
    let mut svg = String::new();
    // A `Box<dyn Error>` is not `Send`, so it is turned into text.
    paint(title, lines, &mut svg).map_err(|error| anyhow!("can't draw {title:?}: {error}"))?;
    Ok(svg)
}

fn paint(title: &str, lines: &[Line], svg: &mut String) -> Result<(), Box<dyn std::error::Error>> {
    let all = || lines.iter().flat_map(|(_, points)| points);
    let across = range(all().map(|point| point.0));
    let up = range(all().map(|point| point.1));

    let root = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let (plot, legend) = root.split_horizontally(SIZE.0 - LEGEND);
    let mut chart = ChartBuilder::on(&plot)
        .caption(title, (FONT, 20))
        .margin(15)
        .x_label_area_size(40)
        .y_label_area_size(70)
        .build_cartesian_2d(across.log_scale(), up.log_scale())?;
    let nodes = |nodes: &f64| thousands(*nodes as u64);
    chart
        .configure_mesh()
        .x_desc("nodes")
        .x_label_formatter(&nodes)
        .y_label_formatter(&|value| format!("{value}"))
        .label_style((FONT, 13))
        .light_line_style(WHITE)
        .draw()?;
    for (index, (name, points)) in lines.iter().enumerate() {
        let color = Palette99::pick(index).to_rgba();
        let line = LineSeries::new(points.iter().copied(), color.stroke_width(2)).point_size(4);
        chart.draw_series(line)?;
        let y = 60 + 24 * i32::try_from(index)?;
        legend.draw(&PathElement::new([(0, y), (20, y)], color.stroke_width(2)))?;
        legend.draw(&Text::new(*name, (28, y - 7), (FONT, 14)))?;
    }
    root.present()?;
    Ok(())
}

/// The range of a logarithmic axis: from below the smallest value to above the largest, and always above zero.
fn range(values: impl Iterator<Item = f64>) -> Range<f64> {
    const LEAST: f64 = 1e-4;
    let (mut low, mut high) = (f64::INFINITY, LEAST);
    for value in values.map(|value| value.max(LEAST)) {
        (low, high) = (low.min(value), high.max(value));
    }
    low.min(high) / 1.3..high * 1.3
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Polled;

    #[test]
    fn a_plot_shows_every_way() {
        let cost = |wall| Cost { wall, client_cpu: 0.0, server_cpu: wall, wire: 1e6, peak: 1e7, growth: 0.0 };
        let poll = [1_000, 10_000].into_iter().flat_map(|nodes| {
            Way::ALL.map(|way| Polled { nodes, way, rounds: 1, cost: cost(f64::from(nodes) / 1e4) })
        });
        let report = Report { poll: poll.collect(), ..Report::default() };
        for (_, title, figure) in PLOTS {
            let svg = draw(title, &polls(&report, figure)).unwrap();
            assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{svg}");
            assert!(Way::ALL.iter().all(|way| svg.contains(way.name())), "{svg}");
        }
    }

    #[test]
    fn an_axis_is_above_zero() {
        assert!(range([0.0, 5.0].into_iter()).start > 0.0);
        let one = range([7.0].into_iter());
        assert!(one.start < 7.0 && one.end > 7.0);
        let none = range(std::iter::empty());
        assert!(none.start < none.end);
    }
}
