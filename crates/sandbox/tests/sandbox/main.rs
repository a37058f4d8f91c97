//! Tests of the sandbox from outside: it finds and builds binaries, and no process outlives its owner.
#![allow(clippy::unwrap_used, clippy::panic)]

mod dying;
mod finding;
mod guard;
mod restarting;
mod serving;

use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

/// Long enough for a busy machine; a test that succeeds does not wait for it.
const LIMIT: Duration = Duration::from_secs(30);

/// Waits until `condition` holds, and fails with `what` if it does not in time.
fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !condition() {
        assert!(Instant::now() < deadline, "not within {LIMIT:?}: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

fn is_gone(pid: u32) -> bool {
    let pid = Pid::from_raw(pid.try_into().unwrap()).unwrap();
    test_kill_process(pid) == Err(Errno::SRCH)
}
