//! The first signal stops new work and lets attempts in flight finish. The second ends the process at once.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

/// The time limit for attempts in flight. With the hand-over of shards before it, the process is gone within 10 s.
const DRAIN: Duration = Duration::from_secs(4);

/// All clones share the same state.
#[derive(Debug, Clone, Default)]
pub struct Shutdown {
    /// Cancelled by the first signal.
    pub stop: CancellationToken,
    /// Cancelled by the second signal.
    pub abort: CancellationToken,
}

impl Shutdown {
    /// Listens for SIGTERM and Ctrl-C.
    pub fn on_signals() -> std::io::Result<Self> {
        let shutdown = Self::default();
        let Self { stop, abort } = shutdown.clone();
        let listening = ctrlc::set_handler(move || {
            let (token, message) = match stop.is_cancelled() {
                false => (&stop, "stopping: finishing the attempts in flight"),
                true => (&abort, "second signal: stopping at once"),
            };
            tracing::info!("{message}");
            token.cancel();
        });
        listening.map(|()| shutdown).map_err(std::io::Error::other)
    }

    /// Resolves when the time limit for attempts in flight is over.
    pub async fn drained(&self) {
        self.stop.cancelled().await;
        tokio::time::sleep(DRAIN).await;
    }
}
