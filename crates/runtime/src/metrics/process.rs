//! The standard `process_*` metrics of Prometheus client libraries.

use std::fmt;

use procfs::ProcResult;
use procfs::process::LimitValue;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

#[derive(Debug)]
pub(super) struct Process;

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Ok((cpu, gauges)) = read() else { return Ok(()) };
        let counter = encoder.encode_descriptor("cpu_seconds", "CPU time", None, MetricType::Counter)?;
        ConstCounter::new(cpu).encode(counter)?;
        for (name, help, value) in gauges {
            let gauge = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::new(value).encode(gauge)?;
        }
        Ok(())
    }
}

/// The name, help and value of a gauge.
type Row = (&'static str, &'static str, f64);

/// The CPU time, and the gauges.
fn read() -> ProcResult<(f64, [Row; 5])> {
    let process = procfs::process::Process::myself()?;
    let stat = process.stat()?;
    let seconds = |ticks: u64| ticks as f64 / procfs::ticks_per_second() as f64;
    let max_fds = match process.limits()?.max_open_files.soft_limit {
        LimitValue::Value(limit) => limit as f64,
        LimitValue::Unlimited => f64::INFINITY,
    };
    let start = procfs::boot_time_secs()? as f64 + seconds(stat.starttime);
    let gauges = [
        ("resident_memory_bytes", "Resident memory", (stat.rss * procfs::page_size()) as f64),
        ("virtual_memory_bytes", "Virtual memory", stat.vsize as f64),
        ("start_time_seconds", "Start of the process, in seconds since 1970", start),
        ("open_fds", "Open file descriptors", process.fd_count()? as f64),
        ("max_fds", "Limit of open file descriptors", max_fds),
    ];
    Ok((seconds(stat.utime + stat.stime), gauges))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_of_this_process() {
        let (cpu, gauges) = read().unwrap();
        let [memory, virtual_memory, start, open, max] = gauges.map(|(_, _, value)| value);
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
        assert!(cpu >= 0.0 && start > 1.7e9 && start < now + 5.0, "{cpu} {start} {now}");
        assert!(memory > 1e6 && memory < virtual_memory, "{gauges:?}");
        assert!(open >= 3.0 && open < max, "{gauges:?}");
    }
}
