//! Logs go to standard error, one line each.

use std::io::IsTerminal;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::layer;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};

use crate::args::LogFormat;

pub(crate) fn init(level: LevelFilter, format: LogFormat) -> Result<(), TryInitError> {
    // The client logs every failed request as an error, refused writes included.
    let others = if level == LevelFilter::TRACE { LevelFilter::DEBUG } else { LevelFilter::OFF };
    let libraries =
        ["kube_client", "hyper", "hyper_util", "rustls", "tower", "h2"].map(|name| (name, others));
    let registry =
        tracing_subscriber::registry().with(Targets::new().with_default(level).with_targets(libraries));
    let layer = layer().with_writer(std::io::stderr);
    match format {
        LogFormat::Text => {
            registry.with(layer.with_target(false).with_ansi(std::io::stderr().is_terminal())).try_init()
        }
        LogFormat::Json => registry.with(layer.json().flatten_event(true)).try_init(),
    }
}
