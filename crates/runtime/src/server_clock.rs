//! The API server's time of day, from the `Date` header of its answers.
//!
//! A retention lasts for weeks, so it is measured by the time of day, and the clocks of machines differ.

use std::time::Instant;

use http::Response;
use http::header::DATE;
use jiff::Timestamp;
use jiff::fmt::rfc2822;
use tokio::sync::watch;

/// Counts on from the last `Date` header. Before the first one, it is this machine's clock.
#[derive(Debug)]
pub struct ServerClock {
    last: watch::Sender<Option<(Timestamp, Instant)>>,
    machine: fn() -> Timestamp,
}

impl Default for ServerClock {
    fn default() -> Self {
        Self::new(Timestamp::now)
    }
}

impl ServerClock {
    pub fn new(machine: fn() -> Timestamp) -> Self {
        Self { last: watch::Sender::default(), machine }
    }

    pub fn read<B>(&self, response: &Response<B>) {
        let date = response.headers().get(DATE).and_then(|date| date.to_str().ok());
        if let Some(date) = date.and_then(|date| rfc2822::parse(date).ok()) {
            self.last.send_replace(Some((date.timestamp(), Instant::now())));
        }
    }

    pub fn now(&self) -> Timestamp {
        match *self.last.borrow() {
            Some((date, read_at)) => date.checked_add(read_at.elapsed()).unwrap_or(date),
            None => (self.machine)(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    #[test]
    fn the_api_servers_clock_counts_and_not_this_machines() {
        let clock = ServerClock::new(|| at(7));
        assert_eq!(clock.now(), at(7), "nothing else is known");
        let answer = |date: &str| Response::builder().header(DATE, date).body(()).expect("an answer");
        for second in [1_800_000_000, 1_700_000_000] {
            clock.read(&answer(
                &rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&at(second)).expect("a date"),
            ));
            clock.read(&answer("yesterday"));
            clock.read(&Response::new(()));
            let passed = clock.now().duration_since(at(second));
            assert!((0..600).contains(&passed.as_secs()), "{passed:?}");
        }
    }
}
