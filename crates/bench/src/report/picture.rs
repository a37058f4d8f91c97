//! The figures of a mass return as Prometheus has them.

use sandbox::dashboard::Panel;
use sandbox::prometheus::Series;
use serde::Serialize;

use super::Window;

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Picture {
    pub(crate) nodes: usize,
    /// Of each daemon.
    pub(crate) replicas: u32,
    /// Before the mass return.
    pub(crate) idle: Window,
    /// From the first delete until every record is of the Node that is there now.
    pub(crate) busy: Window,
    pub(crate) panels: Vec<Drawn>,
    #[serde(skip)]
    pub(crate) dashboard: Vec<Evaluated>,
}

/// A panel of the dashboard, and the answer to each of its queries: of the whole run, or of its end for a table.
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

/// One series: seconds since the picture begins, and how much.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
}

impl Line {
    /// The most that it comes to.
    pub(crate) fn top(&self) -> f64 {
        self.points.iter().map(|point| point.1).filter(|value| value.is_finite()).fold(0.0, f64::max)
    }
}
