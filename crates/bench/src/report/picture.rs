//! The figures of a mass return, from Prometheus.

use sandbox::dashboard::Panel;
use sandbox::prometheus::Series;
use serde::Serialize;

use super::Window;

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Picture {
    pub(crate) nodes: usize,
    /// Replicas of each daemon.
    pub(crate) replicas: u32,
    /// Before the mass return.
    pub(crate) idle: Window,
    /// From the first delete until every record is of the current Node.
    pub(crate) busy: Window,
    pub(crate) panels: Vec<Drawn>,
    #[serde(skip)]
    pub(crate) dashboard: Vec<Evaluated>,
}

/// A panel of the dashboard, and the answers to its queries: for the whole run, or for its end if the panel is a table.
#[derive(Debug, Clone)]
pub(crate) struct Evaluated {
    pub(crate) panel: Panel,
    pub(crate) answers: Vec<Vec<Series>>,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Drawn {
    pub(crate) title: String,
    pub(crate) unit: &'static str,
    pub(crate) lines: Vec<Line>,
}

/// One series: seconds since the start of the picture, and values.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
}

impl Line {
    /// The largest value.
    pub(crate) fn top(&self) -> f64 {
        self.points.iter().map(|point| point.1).filter(|value| value.is_finite()).fold(0.0, f64::max)
    }
}
