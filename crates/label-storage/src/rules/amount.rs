//! Times and shares, as people write them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// How a time that has no end is written.
pub const FOREVER: &str = "forever";

/// A text that is no such amount.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Not a time.
    #[error("give a time such as 500ms, 10s, 1m30s or 30d")]
    NoTime,
    /// Not a percentage, or none of something.
    #[error("{0:?} is no share: give a percentage above 0% and up to 100%, such as 10% or 2.5%")]
    NoShare(String),
}

/// Reads a time such as `10s`, `1m 30s` or `30d`.
pub fn time(text: &str) -> Result<Duration, Error> {
    let days_are_24_hours = jiff::SpanRelativeTo::days_are_24_hours();
    let span: jiff::Span = text.parse().map_err(|_| Error::NoTime)?;
    let duration = span.to_duration(days_are_24_hours).map_err(|_| Error::NoTime)?;
    Duration::try_from(duration).map_err(|_| Error::NoTime)
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
pub struct Share {
    hundredths: u32,
}

impl Share {
    const WHOLE: u32 = 100 * 100;

    /// As a part of 1.
    pub fn as_fraction(self) -> f64 {
        f64::from(self.hundredths) / f64::from(Self::WHOLE)
    }

    /// That share of so many, rounded up: of anything at all at least one.
    pub fn of(self, count: usize) -> usize {
        let part = (count as u128 * u128::from(self.hundredths)).div_ceil(u128::from(Self::WHOLE));
        usize::try_from(part).unwrap_or(count)
    }
}

impl Default for Share {
    fn default() -> Self {
        Self { hundredths: 10 * 100 }
    }
}

impl FromStr for Share {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = || Error::NoShare(text.to_owned());
        let number = text.strip_suffix('%').ok_or_else(wrong)?.trim();
        let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !(digits(whole) && digits(part) && whole.len() <= 3 && part.len() <= 2) {
            return Err(wrong());
        }
        let hundredths = format!("{whole}{part:0<2}").parse().map_err(|_| wrong())?;
        if (1..=Self::WHOLE).contains(&hundredths) { Ok(Self { hundredths }) } else { Err(wrong()) }
    }
}

impl fmt::Display for Share {
    /// As it is read.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", f64::from(self.hundredths) / 100.0)
    }
}
