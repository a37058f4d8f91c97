//! Logs go to standard error, one line each.

use std::io::IsTerminal;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};

use crate::args::{Format, Level};

/// Starts logging for this process.
pub fn init(level: Level, format: Format) -> Result<(), TryInitError> {
    let registry = tracing_subscriber::registry().with(targets(level));
    match format {
        Format::Text => {
            let ansi = std::io::stderr().is_terminal();
            let layer = tracing_subscriber::fmt::layer()
                .with_writer(std::io::stderr)
                .with_target(false)
                .with_ansi(ansi);
            registry.with(layer).try_init()
        }
        Format::Json => {
            let layer =
                tracing_subscriber::fmt::layer().json().flatten_event(true).with_writer(std::io::stderr);
            registry.with(layer).try_init()
        }
    }
}

fn targets(level: Level) -> Targets {
    let level = match level {
        Level::Error => LevelFilter::ERROR,
        Level::Warn => LevelFilter::WARN,
        Level::Info => LevelFilter::INFO,
        Level::Debug => LevelFilter::DEBUG,
        Level::Trace => LevelFilter::TRACE,
    };
    // The client calls every failed request an error, a refused write included. What a failure means is said here.
    let others = if level == LevelFilter::TRACE { LevelFilter::DEBUG } else { LevelFilter::OFF };
    let mut targets = Targets::new().with_default(level);
    for other in ["kube_client", "hyper", "hyper_util", "rustls", "tower", "h2"] {
        targets = targets.with_target(other, others);
    }
    targets
}
