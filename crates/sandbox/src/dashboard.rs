//! The queries of a Grafana dashboard, as Grafana sends them to Prometheus.

use serde::Deserialize;

/// A dashboard that can't be read.
#[derive(Debug, thiserror::Error)]
#[error("this is no dashboard")]
pub struct Error(#[from] serde_json::Error);

/// A Grafana dashboard, as far as it is of interest here.
#[derive(Debug, Clone, Deserialize)]
pub struct Dashboard {
    /// Rows and panels, from the top to the bottom.
    pub panels: Vec<Panel>,
}

/// A row, or something with queries.
#[derive(Debug, Clone, Deserialize)]
pub struct Panel {
    /// Its number.
    pub id: u32,
    /// `row`, `timeseries` and so on.
    pub r#type: String,
    /// What stands above it.
    pub title: String,
    /// Where it is.
    #[serde(rename = "gridPos")]
    pub place: Place,
    /// What it shows.
    #[serde(default, rename = "targets")]
    pub queries: Vec<Query>,
}

/// A rectangle of the dashboard, which is 24 wide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[allow(missing_docs, reason = "the usual names")]
pub struct Place {
    pub x: u32,
    pub y: u32,
    pub w: u32,
    pub h: u32,
}

/// A query of a panel.
#[derive(Debug, Clone, Deserialize)]
pub struct Query {
    /// What is asked, with Grafana's variables in it.
    #[serde(rename = "expr")]
    pub expression: String,
    /// How a series is called, with the names of its labels in it.
    #[serde(default, rename = "legendFormat")]
    pub legend: String,
}

impl Dashboard {
    /// Reads its JSON.
    pub fn read(json: &str) -> Result<Self, Error> {
        Ok(serde_json::from_str(json)?)
    }

    /// The panel of this title.
    pub fn panel(&self, title: &str) -> Option<&Panel> {
        self.panels.iter().find(|panel| panel.title == title)
    }
}

impl Query {
    /// What Prometheus is asked where everything is chosen, and rates are taken over this time.
    pub fn resolved(&self, rate_interval: &str) -> String {
        self.expression
            .replace("$__rate_interval", rate_interval)
            .replace("$cluster", ".*")
            .replace("$namespace", ".*")
    }

    /// What the series with these labels is called.
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
}
