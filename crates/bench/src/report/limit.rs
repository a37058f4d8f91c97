//! A target, and the figure of this run.

use std::fmt;

use serde::Serialize;

use crate::stats::ratio_text;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Limit {
    pub(crate) what: String,
    /// `None` if it was not measured.
    pub(crate) figure: Option<f64>,
    pub(crate) limit: f64,
    pub(crate) unit: Unit,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Unit {
    Ratio,
    Seconds,
    Bytes,
    /// A share of one core.
    Core,
    PerMinute,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Ok,
    Missed,
    NotMeasured,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ok => "ok",
            Self::Missed => "MISSED",
            Self::NotMeasured => "not measured",
        })
    }
}

impl Limit {
    pub(crate) fn verdict(&self) -> Verdict {
        match self.figure {
            None => Verdict::NotMeasured,
            Some(figure) if figure <= self.limit => Verdict::Ok,
            Some(_) => Verdict::Missed,
        }
    }

    /// A figure or a limit, with its unit.
    pub(crate) fn text(&self, value: f64) -> String {
        match self.unit {
            Unit::Ratio => ratio_text(value),
            Unit::Seconds => format!("{value:.3} s"),
            Unit::Bytes => format!("{:.1} MB", value / 1e6),
            Unit::PerMinute => format!("{value:.1}/min"),
            Unit::Core => format!("{:.2} %", value * 100.0),
        }
    }
}
