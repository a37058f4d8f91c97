//! The whole dashboard, with the titles, positions, legends and units of its JSON. Collapsed rows are drawn open.

use std::collections::BTreeMap;

use anyhow::anyhow;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::FONT;
use crate::report::Evaluated;

/// Pixels of one unit of Grafana's grid, which is 24 units wide.
const UNIT: (u32, u32) = (60, 32);
const GREY: RGBColor = RGBColor(110, 110, 110);
/// Pixels of a line of the legend, and of a character in it.
const LEGEND: (i32, i32) = (13, 6);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

pub(super) fn draw(dashboard: &[Evaluated]) -> anyhow::Result<String> {
    let mut svg = String::new();
    // A `Box<dyn Error>` is not `Send`, so it is turned into text.
    paint(dashboard, &mut svg).map_err(|error| anyhow!("can't draw the dashboard: {error}"))?;
    Ok(svg)
}

fn paint(dashboard: &[Evaluated], svg: &mut String) -> Drawn {
    let places = dashboard.iter().map(|shown| shown.panel.place);
    let bottom = places.map(|place| place.y + place.h).max().unwrap_or(1);
    let root = SVGBackend::with_string(svg, (24 * UNIT.0, bottom * UNIT.1)).into_drawing_area();
    root.fill(&WHITE)?;
    let points = || dashboard.iter().flat_map(lines).flat_map(|(_, points)| points);
    let begin = points().map(|point| point.0).fold(f64::INFINITY, f64::min);
    let end = points().map(|point| point.0).fold(begin + 1.0, f64::max);
    for shown in dashboard {
        let place = shown.panel.place;
        let area = root.clone().shrink(
            (place.x * UNIT.0 + 3, place.y * UNIT.1 + 3),
            (place.w * UNIT.0 - 6, place.h * UNIT.1 - 6),
        );
        if shown.panel.r#type == "row" {
            let closed = if shown.panel.collapsed { " (closed at first)" } else { "" };
            write(&area, &format!("{}{closed}", shown.panel.title), (2, 4), 17, &BLACK)?;
            continue;
        }
        let (width, height) = area.dim_in_pixel();
        let frame = [(0, 0), (i32::try_from(width)? - 1, i32::try_from(height)? - 1)];
        area.draw(&Rectangle::new(frame, RGBColor(210, 210, 210)))?;
        write(&area, &shown.panel.title, (6, 4), 13, &BLACK)?;
        let inside = area.margin(22, 4, 6, 6);
        match shown.panel.r#type.as_str() {
            "stat" => paint_values(shown, &inside)?,
            "table" => paint_table(shown, &inside)?,
            _ => paint_lines(shown, (begin, end), &inside)?,
        }
    }
    root.present()?;
    Ok(())
}

fn write(area: &Area<'_>, text: &str, at: (i32, i32), size: i32, color: &RGBColor) -> Drawn {
    Ok(area.draw(&Text::new(text.to_owned(), at, (FONT, size).into_font().color(color)))?)
}

/// The name and the points of each series with data.
fn lines(shown: &Evaluated) -> Vec<(String, Vec<(f64, f64)>)> {
    let answers = shown.panel.queries.iter().zip(&shown.answers);
    let all = answers.flat_map(|(query, series)| series.iter().map(move |series| (query, series)));
    let named = all.map(|(query, series)| {
        let points = series.points.iter().copied().filter(|(_, value)| value.is_finite()).collect();
        (query.name(&series.labels), points)
    });
    named.filter(|(_, points): &(_, Vec<_>)| !points.is_empty()).collect()
}

fn paint_values(shown: &Evaluated, area: &Area<'_>) -> Drawn {
    let lines = lines(shown);
    let value = |(name, points): &(String, Vec<(f64, f64)>)| {
        let value = in_unit(points.last()?.1, shown.panel.unit(name));
        Some(if lines.len() > 1 { format!("{name} {value}") } else { value })
    };
    let values: Vec<String> = lines.iter().filter_map(value).collect();
    let (width, height) = area.dim_in_pixel();
    let middle = Pos::new(HPos::Center, VPos::Center);
    let style = (FONT, if values.len() > 1 { 17 } else { 28 }).into_font().color(&BLACK).pos(middle);
    let text = if values.is_empty() { vec![shown.panel.no_value().to_owned()] } else { values };
    for (line, value) in text.iter().enumerate() {
        let y = (2 * line as i32 + 1) * height as i32 / (2 * text.len() as i32);
        area.draw(&Text::new(value.clone(), (width as i32 / 2, y), style.clone()))?;
    }
    Ok(())
}

fn paint_table(shown: &Evaluated, area: &Area<'_>) -> Drawn {
    let mut rows = BTreeMap::<_, BTreeMap<usize, String>>::new();
    for (column, series) in shown.answers.iter().enumerate() {
        for series in series {
            let unit = shown.panel.unit(&shown.panel.queries[column].legend);
            let value = series.points.last().map(|&(_, value)| in_unit(value, unit));
            rows.entry(&series.labels).or_default().insert(column, value.unwrap_or_default());
        }
    }
    let mut keys: Vec<&String> = rows.keys().flat_map(|labels| labels.keys()).collect();
    keys.sort_unstable();
    keys.dedup();
    let head = keys.iter().map(|key| (*key).clone());
    let mut table: Vec<Vec<String>> =
        vec![head.chain(shown.panel.queries.iter().map(|query| query.legend.clone())).collect()];
    for (labels, values) in &rows {
        let names = keys.iter().map(|key| labels.get(*key).cloned().unwrap_or_default());
        let cells = (0..shown.panel.queries.len()).map(|column| values.get(&column).cloned());
        table.push(names.chain(cells.map(Option::unwrap_or_default)).collect());
    }
    let width = area.dim_in_pixel().0 as i32 / table[0].len() as i32;
    for (line, row) in table.iter().enumerate() {
        for (column, cell) in row.iter().enumerate() {
            let color = if line == 0 { &GREY } else { &BLACK };
            write(area, cell, (column as i32 * width + 4, line as i32 * 20 + 4), 13, color)?;
        }
    }
    Ok(())
}

fn paint_lines(shown: &Evaluated, (begin, end): (f64, f64), area: &Area<'_>) -> Drawn {
    let lines = lines(shown);
    let top = lines.iter().flat_map(|(_, points)| points).map(|point| point.1).fold(0.0, f64::max);
    let top = if top > 0.0 { top * 1.1 } else { 1.0 };
    if lines.is_empty() {
        let text = if shown.panel.no_value().is_empty() { "no data" } else { shown.panel.no_value() };
        return write(area, text, (10, 20), 13, &GREY);
    }
    let (width, height) = area.dim_in_pixel();
    let (chart_area, legend) = area.split_vertically(height - 3 * LEGEND.0 as u32);
    let mut chart = ChartBuilder::on(&chart_area)
        .x_label_area_size(18)
        .y_label_area_size(52)
        .build_cartesian_2d(0.0..end - begin, 0.0..top)?;
    chart
        .configure_mesh()
        .x_label_formatter(&|seconds| format!("{seconds:.0} s"))
        .x_labels(5)
        .y_label_formatter(&|value| in_unit(*value, shown.panel.unit("")))
        .y_labels(5)
        .label_style((FONT, 10))
        .light_line_style(WHITE)
        .draw()?;
    let (mut x, mut y) = (0, 0);
    for (index, (name, points)) in lines.iter().enumerate() {
        let color = Palette99::pick(index).to_rgba();
        // Points between two of the same value are left out, to keep the file small.
        let bends = points.iter().enumerate().filter(|(at, point)| {
            let neighbours = [at.wrapping_sub(1), at + 1].map(|at| points.get(at).map(|point| point.1));
            neighbours != [Some(point.1); 2]
        });
        let drawn = bends.map(|(_, (at, value))| (at - begin, *value));
        chart.draw_series(LineSeries::new(drawn, color.stroke_width(1)))?;
        let length = 18 + name.chars().count() as i32 * LEGEND.1;
        if x + length > width as i32 && x > 0 {
            (x, y) = (0, y + LEGEND.0);
        }
        if y > 2 * LEGEND.0 {
            continue;
        }
        legend.draw(&PathElement::new([(x, y + 6), (x + 10, y + 6)], color.stroke_width(2)))?;
        write(&legend, name, (x + 13, y), 10, &GREY)?;
        x += length;
    }
    Ok(())
}

/// A value in one of the units of Grafana that the dashboard uses.
fn in_unit(value: f64, unit: &str) -> String {
    let number = |value: f64| match value.abs() {
        0.0 => "0".to_owned(),
        ..0.1 => format!("{value:.3}"),
        ..10.0 if value.fract() != 0.0 => format!("{value:.2}"),
        _ => format!("{value:.0}"),
    };
    match unit {
        "percentunit" => format!("{} %", number(value * 100.0)),
        "bytes" => format!("{} MB", number(value / 1e6)),
        "Bps" => format!("{} kB/s", number(value / 1e3)),
        "s" => format!("{} s", number(value)),
        "ops" | "reqps" => format!("{}/s", number(value)),
        _ => number(value),
    }
}

#[cfg(test)]
mod tests {
    use sandbox::dashboard::Dashboard;
    use sandbox::prometheus::Series;

    use super::*;

    #[test]
    fn every_panel_is_drawn_with_its_unit_and_its_legend() {
        let dashboard =
            Dashboard::read(include_str!("../../../../deploy/chart/files/dashboard.json")).unwrap();
        let labels = [("daemon", "storer"), ("cluster", "north")];
        let labels: BTreeMap<_, _> = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        let series = Series { labels, points: vec![(10.0, 0.5), (11.0, f64::NAN), (12.0, 0.25)] };
        let answers = |panel: &sandbox::dashboard::Panel| match panel.title.as_str() {
            "Alerts firing" => vec![Vec::new()],
            _ => vec![vec![series.clone()]; panel.queries.len()],
        };
        let evaluated: Vec<_> =
            dashboard.panels.into_iter().map(|panel| Evaluated { answers: answers(&panel), panel }).collect();
        let svg = draw(&evaluated).unwrap();
        for Evaluated { panel, .. } in &evaluated {
            assert!(svg.contains(&panel.title), "{}", panel.title);
        }
        for text in ["p50", "p99", "25 %", "storer", "north", "rules not installed", "shards held"] {
            assert!(svg.contains(text), "{text}");
        }
    }

    #[test]
    fn values_have_their_units() {
        let values = [(0.999, "percentunit"), (2.5e6, "bytes"), (0.25, "s"), (3.0, "none"), (120.4, "ops")];
        let texts = values.map(|(value, unit)| in_unit(value, unit));
        assert_eq!(texts, ["100 %", "2.50 MB", "0.25 s", "3", "120/s"]);
    }
}
