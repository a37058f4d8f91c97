//! The CPU time and memory of a process, from `/proc`.

use std::time::Duration;

use anyhow::Context;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// A process of this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process(pub(crate) u32);

/// The memory of a process, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Memory {
    /// Current bytes.
    pub(crate) rss: u64,
    /// Most bytes since the process started.
    pub(crate) peak: u64,
}

impl Process {
    /// The CPU time of all its threads, including those that have ended. The kernel reports hundredths of a second.
    pub(crate) fn cpu(self) -> anyhow::Result<Duration> {
        let file = format!("/proc/{}/stat", self.0);
        let stat = std::fs::read_to_string(&file).with_context(|| format!("reading {file}"))?;
        let ticks = ticks(&stat).with_context(|| format!("{file} can't be parsed: {stat}"))?;
        Ok(Duration::from_nanos(
            ticks.saturating_mul(1_000_000_000) / rustix::param::clock_ticks_per_second().max(1),
        ))
    }

    pub(crate) fn memory(self) -> anyhow::Result<Memory> {
        memory_in(&format!("/proc/{}/status", self.0))
    }
}

/// The memory of the current process.
pub(crate) fn own_memory() -> anyhow::Result<Memory> {
    memory_in("/proc/self/status")
}

/// The CPU time of the current process, to the nanosecond.
pub(crate) fn own_cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}

/// The memory of the whole machine, in bytes.
pub(crate) fn total_memory() -> anyhow::Result<u64> {
    machine_memory("MemTotal")
}

/// The memory that is available to new processes of this machine, in bytes.
pub(crate) fn available_memory() -> anyhow::Result<u64> {
    machine_memory("MemAvailable")
}

fn machine_memory(key: &str) -> anyhow::Result<u64> {
    let file = "/proc/meminfo";
    let text = std::fs::read_to_string(file).with_context(|| format!("reading {file}"))?;
    kilobytes(&text, key).with_context(|| format!("{file} has no {key}"))
}

fn memory_in(file: &str) -> anyhow::Result<Memory> {
    let status = std::fs::read_to_string(file).with_context(|| format!("reading {file}"))?;
    let line = |key| kilobytes(&status, key).with_context(|| format!("{file} has no {key}"));
    Ok(Memory { rss: line("VmRSS")?, peak: line("VmHWM")? })
}

/// User and system time of a `/proc/PID/stat` line, in clock ticks.
fn ticks(stat: &str) -> Option<u64> {
    // The second field is the name of the program in parentheses, which may contain spaces and parentheses.
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

/// A line such as `VmHWM:     10000 kB` of a file under `/proc`, in bytes.
fn kilobytes(status: &str, key: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_found_behind_any_name() {
        let stat = "7 (a (b) c d) S 1 7 7 0 -1 4194560 100 0 0 0 250 31 9 9 20 0 1 0 123 456 789";
        assert_eq!(ticks(stat), Some(281));
        assert_eq!(ticks("7 (short) S 1 7"), None);
        assert_eq!(ticks(""), None);
    }

    #[test]
    fn memory_lines_are_found_by_their_whole_key() {
        let status = "Name:\tx\nVmHWMore:\t  1 kB\nVmHWM:\t  12345 kB\nVmRSS:\t 99 kB\n";
        assert_eq!(kilobytes(status, "VmHWM"), Some(12_345 * 1024));
        assert_eq!(kilobytes(status, "VmRSS"), Some(99 * 1024));
        assert_eq!(kilobytes(status, "VmSwap"), None);
    }

    #[test]
    fn this_process_can_be_read() {
        let own = Process(std::process::id());
        assert!(own.cpu().is_ok());
        let memory = own.memory().unwrap();
        assert!(memory.rss > 0 && memory.peak >= memory.rss, "{memory:?}");
        assert!(own_memory().is_ok());
        assert!(total_memory().unwrap() > memory.peak);
        assert!(own_cpu() > Duration::ZERO);
    }
}
