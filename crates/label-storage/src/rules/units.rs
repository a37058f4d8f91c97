//! Durations, percentages and counts in the rules file.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::{InvalidRule, Rules};

const FOREVER: &str = "forever";

/// Reads a duration such as `10s`, `1m 30s` or `30d`.
pub fn time(text: &str) -> Result<Duration, InvalidRule> {
    duration(text).ok_or_else(|| InvalidRule("give a time such as 500ms, 10s, 1m30s or 30d".to_owned()))
}

fn duration(text: &str) -> Option<Duration> {
    let span: jiff::Span = text.trim().parse().ok()?;
    span.to_duration(jiff::SpanRelativeTo::days_are_24_hours()).ok()?.try_into().ok()
}

pub(super) fn retention(text: &str) -> Result<Duration, InvalidRule> {
    if text.trim() == FOREVER {
        return Ok(Duration::MAX);
    }
    // Plans expire after ten seconds, and a deleted record can't be put back.
    let time = duration(text).filter(|time| *time >= Duration::from_secs(60));
    time.ok_or_else(|| refused(text, "a time of at least 1m, such as 30d, or forever"))
}

/// Reads a wait of the restorer.
pub(super) fn wait(text: &str) -> Result<Duration, InvalidRule> {
    let range = Duration::from_secs(1)..=Duration::from_secs(60 * 60);
    let time = duration(text).filter(|time| range.contains(time));
    time.ok_or_else(|| refused(text, "a time from 1s to 1h, such as 2m"))
}

pub(super) fn history(text: &str) -> Result<usize, InvalidRule> {
    let count = text.trim().parse().ok().filter(|count| *count <= Rules::MOST_HISTORY);
    count.ok_or_else(|| refused(text, &format!("a number from 0 to {}", Rules::MOST_HISTORY)))
}

fn refused(text: &str, instead: &str) -> InvalidRule {
    InvalidRule(format!("{:?} can't be used: give {instead}", text.chars().take(40).collect::<String>()))
}

/// Displays a duration in the form in which it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DisplayDuration(pub Duration);

impl fmt::Display for DisplayDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == Duration::MAX {
            return f.write_str(FOREVER);
        }
        if self.0.is_zero() {
            return f.write_str("0s");
        }
        let mut rest = self.0.as_nanos();
        for (nanoseconds, unit) in [
            (86_400_000_000_000, "d"),
            (3_600_000_000_000, "h"),
            (60_000_000_000, "m"),
            (1_000_000_000, "s"),
            (1_000_000, "ms"),
            (1_000, "us"),
            (1, "ns"),
        ] {
            if rest >= nanoseconds {
                write!(f, "{}{unit}", rest / nanoseconds)?;
                rest %= nanoseconds;
            }
        }
        Ok(())
    }
}

/// A percentage above 0 and up to 100. By default 10 %.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Percentage {
    hundredths: u32,
}

impl Percentage {
    const WHOLE: u32 = 100 * 100;

    /// True if it is 100 %.
    pub fn is_whole(self) -> bool {
        self.hundredths == Self::WHOLE
    }

    /// This share of `count`, rounded up.
    pub fn of(self, count: usize) -> usize {
        let part = (count as u128 * u128::from(self.hundredths)).div_ceil(u128::from(Self::WHOLE));
        usize::try_from(part).unwrap_or(count)
    }

    fn read(text: &str) -> Option<Self> {
        let number = text.trim().strip_suffix('%')?.trim();
        let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !(digits(whole) && digits(part) && whole.len() <= 3 && part.len() <= 2) {
            return None;
        }
        let hundredths = format!("{whole}{part:0<2}").parse().ok()?;
        (1..=Self::WHOLE).contains(&hundredths).then_some(Self { hundredths })
    }
}

impl Default for Percentage {
    fn default() -> Self {
        Self { hundredths: 10 * 100 }
    }
}

impl FromStr for Percentage {
    type Err = InvalidRule;

    fn from_str(text: &str) -> Result<Self, InvalidRule> {
        Self::read(text)
            .ok_or_else(|| refused(text, "a percentage above 0% and up to 100%, such as 10% or 2.5%"))
    }
}

impl fmt::Display for Percentage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", f64::from(self.hundredths) / 100.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn assert_refused<T: fmt::Debug>(read: Result<T, InvalidRule>, reason: &str) {
        assert_eq!(read.map_err(|refused| refused.to_string()).expect_err("no such value"), reason);
    }

    #[test]
    fn times_are_read_as_people_write_them() {
        for (text, milliseconds, written) in [
            ("500ms", 500, "500ms"),
            ("10s", 10_000, "10s"),
            ("1m30s", 90_000, "1m30s"),
            (" 1m 30s ", 90_000, "1m30s"),
            ("30d", 2_592_000_000, "30d"),
            ("36h", 129_600_000, "1d12h"),
            ("1.5s", 1_500, "1s500ms"),
            ("0s", 0, "0s"),
        ] {
            let time = Duration::from_millis(milliseconds);
            assert_eq!(super::time(text), Ok(time), "{text}");
            assert_eq!(DisplayDuration(time).to_string(), written);
        }
        for text in ["", "10", "-5s", "soon", "1 month", "1y", "99999999999d", "forever"] {
            assert_refused(time(text), "give a time such as 500ms, 10s, 1m30s or 30d");
        }
    }

    #[test]
    fn a_retention_is_a_minute_at_least_or_for_ever() {
        assert_eq!(retention("1m"), Ok(Duration::from_secs(60)));
        assert_eq!(retention(FOREVER), Ok(Duration::MAX));
        assert_eq!(DisplayDuration(Duration::MAX).to_string(), FOREVER);
        for text in ["59s", "0", "never", "30", ""] {
            let reason =
                format!("{text:?} can't be used: give a time of at least 1m, such as 30d, or forever");
            assert_refused(retention(text), &reason);
        }
    }

    #[test]
    fn a_startup_taint_stays_for_an_hour_at_most() {
        assert_eq!(wait("1s"), Ok(Duration::from_secs(1)));
        assert_eq!(wait("1h"), Ok(Duration::from_secs(3600)));
        for text in ["0s", "999ms", "61m", "forever", "true"] {
            let reason = format!("{text:?} can't be used: give a time from 1s to 1h, such as 2m");
            assert_refused(wait(text), &reason);
        }
    }

    #[test]
    fn a_history_is_a_small_number() {
        assert_eq!([history("0"), history(" 20 ")], [Ok(0), Ok(20)]);
        for text in ["21", "-1", "many", "", "3.0"] {
            assert_refused(history(text), &format!("{text:?} can't be used: give a number from 0 to 20"));
        }
    }

    #[test]
    fn shares_are_percentages() {
        for (text, hundredths, written) in [
            ("10%", 1000, "10%"),
            ("100%", 10_000, "100%"),
            ("0.01%", 1, "0.01%"),
            ("2.5%", 250, "2.5%"),
            (" 2.50 % ", 250, "2.5%"),
            ("07%", 700, "7%"),
        ] {
            assert_eq!(text.parse(), Ok(Percentage { hundredths }), "{text}");
            assert_eq!(Percentage { hundredths }.to_string(), written);
        }
        for text in [
            "", "%", "10", "0%", "0.00%", "0.001%", "100.01%", "101%", "-1%", "+1%", "1e1%", "ten%", ".5%",
            "1.%",
        ] {
            let reason = "a percentage above 0% and up to 100%, such as 10% or 2.5%";
            assert_refused(text.parse::<Percentage>(), &format!("{text:?} can't be used: give {reason}"));
        }
        assert_eq!(Percentage::default().to_string(), "10%");
    }

    #[test]
    fn a_share_of_something_is_never_nothing() {
        let share = |text: &str| text.parse::<Percentage>().expect("a share");
        assert_eq!([0, 1, 10, 11, 25].map(|count| share("10%").of(count)), [0, 1, 1, 2, 3]);
        assert_eq!(share("100%").of(usize::MAX), usize::MAX);
        assert_eq!(share("0.01%").of(100_000), 10);
    }

    #[test]
    fn only_all_of_it_is_whole() {
        for (text, is_whole) in [("0.01%", false), ("50%", false), ("99.99%", false), ("100%", true)] {
            let share: Percentage = text.parse().expect("a share");
            assert_eq!(share.is_whole(), is_whole, "{text}");
        }
    }

    proptest! {
        #[test]
        fn times_and_shares_are_written_as_they_are_read(nanoseconds in 0..u64::MAX, hundredths in 1u32..=10_000) {
            let time = Duration::from_nanos(nanoseconds);
            prop_assert_eq!(super::time(&DisplayDuration(time).to_string()), Ok(time));
            let share = Percentage { hundredths };
            prop_assert_eq!(share.to_string().parse(), Ok(share));
        }
    }
}
