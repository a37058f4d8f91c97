//! Logs go to standard error, one line each.

use std::io::IsTerminal;
use std::sync::{Arc, Mutex, PoisonError};

use tracing::level_filters::LevelFilter;
use tracing_subscriber::Registry;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::reload;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};

use crate::args::{Format, Level};

/// How much is logged: it can be changed while the process runs, when something is to be looked into.
#[derive(Debug, Clone)]
pub struct Levels {
    filter: reload::Handle<Targets, Registry>,
    level: Arc<Mutex<Level>>,
}

impl Levels {
    /// At first, this much; and the layer that sees to it.
    pub(crate) fn new(level: Level) -> (Self, reload::Layer<Targets, Registry>) {
        let (layer, filter) = reload::Layer::new(targets(level));
        (Self { filter, level: Arc::new(Mutex::new(level)) }, layer)
    }

    /// How much is logged now.
    pub(crate) fn get(&self) -> Level {
        *self.level.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on, this much.
    pub(crate) fn set(&self, level: Level) -> Result<(), reload::Error> {
        self.filter.reload(targets(level))?;
        *self.level.lock().unwrap_or_else(PoisonError::into_inner) = level;
        Ok(())
    }
}

/// Starts logging for this process.
pub fn init(level: Level, format: Format) -> Result<Levels, TryInitError> {
    let (levels, filter) = Levels::new(level);
    let registry = tracing_subscriber::registry().with(filter);
    match format {
        Format::Text => {
            let ansi = std::io::stderr().is_terminal();
            let layer = tracing_subscriber::fmt::layer()
                .with_writer(std::io::stderr)
                .with_target(false)
                .with_ansi(ansi);
            registry.with(layer).try_init()?;
        }
        Format::Json => {
            let layer =
                tracing_subscriber::fmt::layer().json().flatten_event(true).with_writer(std::io::stderr);
            registry.with(layer).try_init()?;
        }
    }
    Ok(levels)
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
