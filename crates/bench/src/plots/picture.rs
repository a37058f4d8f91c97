//! The picture of a mass return: a few of the dashboard's panels, one below the other.

use anyhow::anyhow;
use plotters::prelude::*;

use super::FONT;
use crate::report::{Drawn, Line, Picture};

const COLUMNS: usize = 2;
/// Pixels of one panel.
const SIZE: (u32, u32) = (560, 260);

pub(super) fn draw(picture: &Picture) -> anyhow::Result<String> {
    let mut svg = String::new();
    // A `Box<dyn Error>` is not `Send`, so it is turned into text.
    paint(picture, &mut svg).map_err(|error| anyhow!("can't draw the picture: {error}"))?;
    Ok(svg)
}

fn paint(picture: &Picture, svg: &mut String) -> Result<(), Box<dyn std::error::Error>> {
    let rows = picture.panels.len().div_ceil(COLUMNS);
    let (across, down) = (u32::try_from(COLUMNS)?, u32::try_from(rows)?);
    let root = SVGBackend::with_string(svg, (SIZE.0 * across, SIZE.1 * down + 40)).into_drawing_area();
    root.fill(&WHITE)?;
    let title = format!(
        "{} nodes are deleted and come back: {} storers and {} restorers, as Prometheus saw them",
        picture.nodes, picture.replicas, picture.replicas
    );
    let root = root.titled(&title, (FONT, 20))?;
    let areas = root.split_evenly((rows, COLUMNS));
    let points = picture.panels.iter().flat_map(|panel| &panel.lines).flat_map(|line| &line.points);
    let end = points.map(|point| point.0).fold(1.0, f64::max);
    for (panel, area) in picture.panels.iter().zip(&areas) {
        paint_panel(panel, end, area)?;
    }
    root.present()?;
    Ok(())
}

fn paint_panel(
    panel: &Drawn,
    end: f64,
    area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
) -> Result<(), Box<dyn std::error::Error>> {
    let top = panel.lines.iter().map(Line::top).fold(0.0, f64::max);
    // Leaves room for the names of the lines above them.
    let top = if top > 0.0 { top * (1.1 + 0.1 * panel.lines.len() as f64) } else { 1.0 };
    let mut chart = ChartBuilder::on(area)
        .caption(&panel.title, (FONT, 15))
        .margin(8)
        .x_label_area_size(28)
        .y_label_area_size(58)
        .build_cartesian_2d(0.0..end, 0.0..top)?;
    let number = |value: &f64| match top {
        ..3.0 => format!("{value:.2}"),
        ..30.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    };
    chart
        .configure_mesh()
        .x_desc("seconds")
        .x_label_formatter(&|seconds| format!("{seconds:.0}"))
        .y_desc(panel.unit)
        .y_label_formatter(&number)
        .y_labels(6)
        .label_style((FONT, 11))
        .light_line_style(WHITE)
        .draw()?;
    for (index, line) in panel.lines.iter().enumerate() {
        let color = Palette99::pick(index).to_rgba();
        let drawn = line.points.iter().copied().filter(|point| point.1.is_finite());
        chart
            .draw_series(LineSeries::new(drawn, color.stroke_width(2)))?
            .label(&line.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 14, y)], color.stroke_width(2)));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .label_font((FONT, 11))
        .background_style(WHITE.mix(0.7))
        .draw()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_every_panel_is_drawn() {
        let line = |name: &str| Line {
            name: name.to_owned(),
            points: vec![(0.0, 0.0), (1.0, f64::NAN), (2.0, 5.0)],
        };
        let panel = |title: &str| Drawn {
            title: title.to_owned(),
            unit: "nodes",
            lines: vec![line("one"), line("two")],
        };
        let picture = Picture {
            nodes: 7,
            replicas: 2,
            idle: Default::default(),
            busy: Default::default(),
            panels: vec![panel("first"), panel("second"), panel("third")],
            dashboard: Vec::new(),
        };
        let svg = draw(&picture).unwrap();
        for text in ["7 nodes are deleted", "first", "second", "third", "one", "two"] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
    }
}
