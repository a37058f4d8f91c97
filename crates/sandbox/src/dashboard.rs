//! The queries of a Grafana dashboard, as Grafana sends them to Prometheus.

use serde::Deserialize;

/// A dashboard that can't be read.
#[derive(Debug, thiserror::Error)]
#[error("this is not a dashboard")]
pub struct Error(#[from] serde_json::Error);

/// The part of a Grafana dashboard that tests and plots use.
#[derive(Debug, Clone, Deserialize)]
pub struct Dashboard {
    /// Rows and panels from top to bottom, placed as if all rows were open.
    pub panels: Vec<Panel>,
}

/// A row, or a panel with queries.
#[derive(Debug, Clone, Deserialize)]
pub struct Panel {
    pub id: u32,
    /// `row`, `timeseries` and so on.
    pub r#type: String,
    pub title: String,
    #[serde(rename = "gridPos")]
    pub place: Place,
    #[serde(default, rename = "targets")]
    pub queries: Vec<Query>,
    #[serde(default, rename = "fieldConfig")]
    fields: Fields,
    /// True if this is a row that is closed at first.
    #[serde(default)]
    pub collapsed: bool,
    /// The panels of a closed row. Those of an open one follow it.
    #[serde(default)]
    panels: Vec<Self>,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct Fields {
    defaults: Defaults,
    overrides: Vec<Override>,
}

/// The settings of one field that differ from the defaults.
#[derive(Debug, Clone, Deserialize)]
struct Override {
    matcher: Matcher,
    properties: Vec<Property>,
}

#[derive(Debug, Clone, Deserialize)]
struct Matcher {
    options: serde_json::Value,
}

#[derive(Debug, Clone, Deserialize)]
struct Property {
    id: String,
    value: serde_json::Value,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Defaults {
    unit: String,
    no_value: String,
}

impl Panel {
    /// Grafana's name of the unit of a field, such as `s` or `percentunit`.
    pub fn unit(&self, field: &str) -> &str {
        let mut overrides = self.fields.overrides.iter().filter(|own| own.matcher.options == field);
        let unit = overrides.find_map(|own| own.properties.iter().find(|property| property.id == "unit"));
        unit.and_then(|unit| unit.value.as_str()).unwrap_or(&self.fields.defaults.unit)
    }

    /// The text in place of a missing value.
    pub fn no_value(&self) -> &str {
        &self.fields.defaults.no_value
    }
}

/// A rectangle of the dashboard, which is 24 units wide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct Place {
    pub x: u32,
    pub y: u32,
    pub w: u32,
    pub h: u32,
}

/// A query of a panel.
#[derive(Debug, Clone, Deserialize)]
pub struct Query {
    /// The PromQL expression, with Grafana's variables.
    #[serde(rename = "expr")]
    pub expression: String,
    /// The template for the name of a series, with label names.
    #[serde(default, rename = "legendFormat")]
    pub legend: String,
}

impl Dashboard {
    /// Reads the JSON of a dashboard.
    pub fn read(json: &str) -> Result<Self, Error> {
        let mut dashboard: Self = serde_json::from_str(json)?;
        let mut moved = 0;
        for mut panel in std::mem::take(&mut dashboard.panels) {
            let inside = std::mem::take(&mut panel.panels);
            let closed = panel.place.y + panel.place.h;
            let open = inside.iter().map(|panel| panel.place.y + panel.place.h).max().unwrap_or(closed);
            for mut panel in std::iter::once(panel).chain(inside) {
                panel.place.y += moved;
                dashboard.panels.push(panel);
            }
            moved += open - closed;
        }
        Ok(dashboard)
    }

    /// The panel of this title.
    pub fn panel(&self, title: &str) -> Option<&Panel> {
        self.panels.iter().find(|panel| panel.title == title)
    }
}

impl Query {
    /// The expression for Prometheus if all variables select everything. Rates are taken over this time.
    pub fn resolved(&self, rate_interval: &str) -> String {
        self.expression
            .replace("$__rate_interval", rate_interval)
            .replace("$cluster", ".*")
            .replace("$namespace", ".*")
    }

    /// The name of a series with these labels.
    pub fn name<'a>(&self, labels: impl IntoIterator<Item = (&'a String, &'a String)>) -> String {
        labels.into_iter().fold(self.legend.clone(), |name, (label, value)| {
            name.replace(&format!("{{{{{label}}}}}"), value)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_resolved_and_series_named() {
        let query = Query {
            expression: r#"sum by (daemon) (rate(a_total{cluster=~"$cluster"}[$__rate_interval]))"#
                .to_owned(),
            legend: "{{daemon}}: {{kind}}".to_owned(),
        };
        assert_eq!(query.resolved("5s"), r#"sum by (daemon) (rate(a_total{cluster=~".*"}[5s]))"#);
        let labels = [("daemon", "storer"), ("kind", "busy")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        assert_eq!(query.name(labels.iter().map(|(name, value)| (name, value))), "storer: busy");
    }

    #[test]
    fn the_panels_of_closed_rows_move_what_is_below() {
        let place = |y: u32, h: u32| serde_json::json!({"x": 0, "y": y, "w": 24, "h": h});
        let panel = |id: u32, y: u32, h: u32| serde_json::json!({"id": id, "type": "stat", "title": "", "gridPos": place(y, h)});
        let row = |id: u32, y: u32, panels: serde_json::Value| serde_json::json!({"id": id, "type": "row", "title": "", "collapsed": true, "gridPos": place(y, 1), "panels": panels});
        let json = serde_json::json!({"panels": [
            panel(1, 0, 4), row(2, 4, serde_json::json!([panel(3, 5, 8)])), row(4, 5, serde_json::json!([panel(5, 6, 8)])),
        ]});
        let panels = Dashboard::read(&json.to_string()).unwrap().panels;
        let places: Vec<_> = panels.iter().map(|panel| (panel.id, panel.place.y)).collect();
        assert_eq!(places, [(1, 0), (2, 4), (3, 5), (4, 13), (5, 14)]);
    }
}
