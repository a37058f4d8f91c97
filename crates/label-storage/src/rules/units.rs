//! Times and shares, as people write them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::Rules;

/// How a time that has no end is written.
pub const FOREVER: &str = "forever";

/// Plans expire after ten seconds, and a record that is gone can't be put back: nobody is helped by less.
const SHORTEST_RETENTION: Duration = Duration::from_secs(60);

const SHORTEST_STARTUP_TAINT: Duration = Duration::from_secs(1);
const LONGEST_STARTUP_TAINT: Duration = Duration::from_secs(60 * 60);

/// A text that is no such amount.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Not a time.
    #[error("give a time such as 500ms, 10s, 1m30s or 30d")]
    NoTime,
    /// Too short a time to keep anything.
    #[error("give a time of at least 1m, such as 30d, or {FOREVER}")]
    NoRetention,
    /// Too short a time, or too long.
    #[error("give a time from 1s to 1h, such as 2m")]
    NoStartupTaint,
    /// Not a percentage, or none of something.
    #[error("give a percentage above 0% and up to 100%, such as 10% or 2.5%")]
    NoShare,
    /// Not a number, or too high.
    #[error("give a number from 0 to {}", Rules::MOST_HISTORY)]
    NoHistory,
}

/// Reads a time such as `10s`, `1m 30s` or `30d`.
pub fn time(text: &str) -> Result<Duration, Error> {
    let days_are_24_hours = jiff::SpanRelativeTo::days_are_24_hours();
    let span: jiff::Span = text.trim().parse().map_err(|_| Error::NoTime)?;
    let duration = span.to_duration(days_are_24_hours).map_err(|_| Error::NoTime)?;
    Duration::try_from(duration).map_err(|_| Error::NoTime)
}

/// Reads how long to keep the record of a Node that is gone.
pub fn retention(text: &str) -> Result<Duration, Error> {
    if text.trim() == FOREVER {
        return Ok(Duration::MAX);
    }
    time(text).ok().filter(|time| *time >= SHORTEST_RETENTION).ok_or(Error::NoRetention)
}

/// Reads how long a startup taint may stay.
pub fn startup_taint(text: &str) -> Result<Duration, Error> {
    let range = SHORTEST_STARTUP_TAINT..=LONGEST_STARTUP_TAINT;
    time(text).ok().filter(|time| range.contains(time)).ok_or(Error::NoStartupTaint)
}

/// Reads how many earlier states a record remembers.
pub fn history(text: &str) -> Result<usize, Error> {
    text.trim().parse().ok().filter(|count| *count <= Rules::MOST_HISTORY).ok_or(Error::NoHistory)
}

/// A time, as it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written(pub Duration);

impl fmt::Display for Written {
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

/// A percentage, above 0 and up to 100. By default 10 %.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Percentage {
    hundredths: u32,
}

impl Percentage {
    const WHOLE: u32 = 100 * 100;

    /// As a part of 1.
    pub fn as_fraction(self) -> f64 {
        f64::from(self.hundredths) / f64::from(Self::WHOLE)
    }

    /// Whether it is all of it.
    pub fn is_whole(self) -> bool {
        self.hundredths == Self::WHOLE
    }

    /// That share of so many, rounded up: of anything at all at least one.
    pub fn of(self, count: usize) -> usize {
        let part = (count as u128 * u128::from(self.hundredths)).div_ceil(u128::from(Self::WHOLE));
        usize::try_from(part).unwrap_or(count)
    }
}

impl Default for Percentage {
    fn default() -> Self {
        Self { hundredths: 10 * 100 }
    }
}

impl FromStr for Percentage {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let number = text.trim().strip_suffix('%').ok_or(Error::NoShare)?.trim();
        let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !(digits(whole) && digits(part) && whole.len() <= 3 && part.len() <= 2) {
            return Err(Error::NoShare);
        }
        let hundredths = format!("{whole}{part:0<2}").parse().map_err(|_| Error::NoShare)?;
        if (1..=Self::WHOLE).contains(&hundredths) { Ok(Self { hundredths }) } else { Err(Error::NoShare) }
    }
}

impl fmt::Display for Percentage {
    /// As it is read.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", f64::from(self.hundredths) / 100.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
            assert_eq!(Written(time).to_string(), written);
        }
        for text in ["", "10", "-5s", "soon", "1 month", "1y", "99999999999d", "forever"] {
            assert_eq!(time(text), Err(Error::NoTime), "{text}");
        }
    }

    #[test]
    fn a_retention_is_a_minute_at_least_or_for_ever() {
        assert_eq!(retention("1m"), Ok(Duration::from_secs(60)));
        assert_eq!(retention(FOREVER), Ok(Duration::MAX));
        assert_eq!(Written(Duration::MAX).to_string(), FOREVER);
        for text in ["59s", "0", "never", "30", ""] {
            assert_eq!(retention(text), Err(Error::NoRetention), "{text}");
        }
    }

    #[test]
    fn a_startup_taint_stays_for_an_hour_at_most() {
        assert_eq!(startup_taint("1s"), Ok(Duration::from_secs(1)));
        assert_eq!(startup_taint("1h"), Ok(Duration::from_secs(3600)));
        for text in ["0s", "999ms", "61m", "forever", "true"] {
            assert_eq!(startup_taint(text), Err(Error::NoStartupTaint), "{text}");
        }
    }

    #[test]
    fn a_history_is_a_small_number() {
        assert_eq!([history("0"), history(" 20 ")], [Ok(0), Ok(20)]);
        for text in ["21", "-1", "many", "", "3.0"] {
            assert_eq!(history(text), Err(Error::NoHistory), "{text}");
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
            assert_eq!(text.parse::<Percentage>(), Err(Error::NoShare), "{text}");
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
    fn a_share_is_a_part_of_one() {
        for (text, fraction, is_whole) in
            [("0.01%", 0.0001, false), ("50%", 0.5, false), ("99.99%", 0.9999, false), ("100%", 1.0, true)]
        {
            let share: Percentage = text.parse().expect("a share");
            assert!((share.as_fraction() - fraction).abs() < 1e-9, "{text}");
            assert_eq!(share.is_whole(), is_whole, "{text}");
        }
    }

    proptest! {
        #[test]
        fn times_and_shares_are_written_as_they_are_read(nanoseconds in 0..u64::MAX, hundredths in 1u32..=10_000) {
            let time = Duration::from_nanos(nanoseconds);
            prop_assert_eq!(super::time(&Written(time).to_string()), Ok(time));
            let share = Percentage { hundredths };
            prop_assert_eq!(share.to_string().parse(), Ok(share));
        }
    }
}
