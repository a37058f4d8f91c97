//! Time that passes while the machine is suspended, too. On Linux, `Instant` stops then.

use std::ops::{Add, Sub};
use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BootTime(Duration);

impl BootTime {
    pub(crate) fn now() -> Self {
        #[cfg(test)]
        let running = running() + SUSPENDED.get();
        #[cfg(not(test))]
        let running = running();
        Self(running)
    }

    pub(crate) fn elapsed(self) -> Duration {
        Self::now() - self
    }
}

#[cfg(target_os = "linux")]
fn running() -> Duration {
    let since_boot = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    since_boot.try_into().unwrap_or_default()
}

#[cfg(not(target_os = "linux"))]
fn running() -> Duration {
    use std::sync::LazyLock;
    use std::time::Instant;
    static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);
    BEGAN.elapsed()
}

impl Add<Duration> for BootTime {
    type Output = Self;

    fn add(self, time: Duration) -> Self {
        Self(self.0 + time)
    }
}

impl Sub for BootTime {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

#[cfg(test)]
thread_local! {
    static SUSPENDED: std::cell::Cell<Duration> = const { std::cell::Cell::new(Duration::ZERO) };
}

/// Lets this much time pass, as if the machine had been suspended.
#[cfg(test)]
pub(crate) fn suspend(time: Duration) {
    SUSPENDED.set(SUSPENDED.get() + time);
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn time_passes_while_the_machine_is_suspended() {
        let (began, instant) = (BootTime::now(), Instant::now());
        suspend(Duration::from_secs(3600));
        assert!(began.elapsed() >= Duration::from_secs(3600));
        assert!(instant.elapsed() < Duration::from_secs(3600));
    }
}
