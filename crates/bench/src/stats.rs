//! Medians, percentiles and ratios.

use std::time::Duration;

use serde::Serialize;

/// The middle of `values`, or the mean of the two middle ones. `None` if there are no values.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    Some(if sorted.len() % 2 == 1 { upper } else { f64::midpoint(sorted[middle - 1], upper) })
}

/// Durations in seconds. Percentiles are by nearest rank, so each is a measured time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Latencies {
    pub(crate) trials: usize,
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) max: f64,
}

impl Latencies {
    /// `None` if nothing was measured.
    pub(crate) fn of(mut times: Vec<Duration>) -> Option<Self> {
        times.sort_unstable();
        let rank = |percent: usize| {
            let rank = (times.len() * percent).div_ceil(100).max(1);
            times.get(rank - 1).map(Duration::as_secs_f64)
        };
        Some(Self { trials: times.len(), p50: rank(50)?, p99: rank(99)?, max: rank(100)? })
    }
}

/// `part` of `whole`. `None` if the whole is too small to have been measured.
pub(crate) fn ratio(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}

/// A ratio as text: `1/12.5` below one half, `1.25 x` otherwise.
pub(crate) fn ratio_text(ratio: f64) -> String {
    if ratio > 0.0 && ratio < 0.5 { format!("1/{:.1}", 1.0 / ratio) } else { format!("{ratio:.2} x") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[9.0, 1.0, 5.0]), Some(5.0));
        assert_eq!(median(&[9.0, 1.0, 5.0, 7.0]), Some(6.0));
    }

    #[test]
    fn percentiles_are_times_that_were_measured() {
        let times = |count: u64| Latencies::of((1..=count).rev().map(Duration::from_secs).collect());
        assert_eq!(times(0), None);
        assert_eq!(times(1), Some(Latencies { trials: 1, p50: 1.0, p99: 1.0, max: 1.0 }));
        assert_eq!(times(100), Some(Latencies { trials: 100, p50: 50.0, p99: 99.0, max: 100.0 }));
        assert_eq!(times(200), Some(Latencies { trials: 200, p50: 100.0, p99: 198.0, max: 200.0 }));
        assert_eq!(times(10), Some(Latencies { trials: 10, p50: 5.0, p99: 10.0, max: 10.0 }));
    }

    #[test]
    fn ratios_read_well_whether_large_or_small() {
        assert_eq!(ratio(1.0, 0.0), None);
        assert_eq!(ratio(1.0, 4.0), Some(0.25));
        assert_eq!(ratio_text(0.08), "1/12.5");
        assert_eq!(ratio_text(1.254), "1.25 x");
        assert_eq!(ratio_text(0.97), "0.97 x");
        assert_eq!(ratio_text(0.0), "0.00 x");
    }
}
