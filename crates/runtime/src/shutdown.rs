//! Ending well. The first signal ends the taking of new work; what is in flight is finished. The second ends that too.

use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// How long work in flight may take after the first signal. With what comes before and after it, handing shards over to other
/// replicas and ending, the process is gone within 10 s.
pub const DRAIN: Duration = Duration::from_secs(4);

/// Whether to go on. Cheap to clone; all clones hear the same.
#[derive(Debug, Clone, Default)]
pub struct Shutdown {
    stop: CancellationToken,
    abort: CancellationToken,
}

impl Shutdown {
    /// Listens for SIGTERM and Ctrl-C.
    pub fn on_signals() -> std::io::Result<Self> {
        let shutdown = Self::default();
        let (mut terminate, mut interrupt) =
            (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let heard = shutdown.clone();
        tokio::spawn(async move {
            for (token, message) in [
                (heard.stop, "asked to end, finishing what is in flight"),
                (heard.abort, "asked again, ending at once"),
            ] {
                tokio::select! {
                    _ = terminate.recv() => (),
                    _ = interrupt.recv() => (),
                }
                tracing::info!("{message}");
                token.cancel();
            }
        });
        Ok(shutdown)
    }

    /// Asks for an end, as the first signal does.
    pub fn request(&self) {
        self.stop.cancel();
    }

    /// Whether the end was asked for.
    pub fn is_requested(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Resolves when the end is asked for.
    pub async fn requested(&self) {
        self.stop.cancelled().await;
    }

    /// Resolves at the second signal.
    pub async fn aborted(&self) {
        self.abort.cancelled().await;
    }

    /// Resolves when work in flight has had its time after the end was asked for.
    pub async fn drained(&self) {
        self.stop.cancelled().await;
        tokio::time::sleep(DRAIN).await;
    }
}
