//! The settings of a soak.

use std::num::NonZeroU32;
use std::time::Duration;

use label_storage::Rules;

use crate::weather::Climate;

#[derive(Debug, Clone)]
pub struct Settings {
    pub nodes: usize,
    /// The number of replicas of each daemon at the start.
    pub replicas: NonZeroU32,
    /// Flags for the daemons.
    pub flags: Vec<String>,
    /// The rules of the daemons.
    pub rules: Rules,
    /// True if the daemons watch.
    pub watch: bool,
    /// The duration of all storms and calms, without the last calm.
    pub duration: Duration,
    /// The duration of one storm.
    pub storm: Duration,
    /// The time limit for reaching the expected state after a storm.
    pub patience: Duration,
    /// Acts of people per second, in a storm.
    pub rate: f64,
    /// The number of measurements of each latency in a calm.
    pub probes: u32,
    /// The faults that may occur.
    pub climate: Climate,
    pub seed: u64,
}
