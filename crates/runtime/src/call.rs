//! One call to the API server: its time limit, and the consequence of a failure.

use std::fmt;
use std::time::Duration;

use strum::{IntoStaticStr, VariantNames};
use tokio::time::Instant;

use crate::backoff;
use crate::shutdown::Shutdown;

/// The server answered 429 or 503, with `Retry-After`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the API server is busy ({status})")]
pub struct Throttled {
    pub status: u16,
    pub retry_after: Duration,
}

/// The time limit for a call for one object. It is shorter than the lifetime of a plan.
pub(crate) const ONE: Duration = Duration::from_secs(5);

/// The time limit for a list of all objects of a kind.
pub(crate) const ALL: Duration = Duration::from_secs(60);

#[derive(Debug, thiserror::Error)]
#[error("can't {what}: {message}")]
pub struct Error {
    /// The name of the call, as in "list nodes".
    pub what: &'static str,
    pub kind: FailureKind,
    pub code: Option<u16>,
    pub message: String,
}

/// The consequence of a failure. Its name is a label value in metrics, which users rely on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "kebab-case")]
pub enum FailureKind {
    /// The object has changed or is gone: read again, decide again.
    Moved,
    Busy(Duration),
    /// The call may have had an effect: read again, a little later.
    Unclear,
    NotConnected,
    /// The call will fail until a person fixes something.
    Refused,
}

impl Error {
    pub fn refused(what: &'static str, message: impl fmt::Display) -> Self {
        Self { what, kind: FailureKind::Refused, code: None, message: message.to_string() }
    }

    /// The plan got too old before it could be carried out.
    pub fn expired(what: &'static str) -> Self {
        let message = "the plan is too old to be carried out".to_owned();
        Self { what, kind: FailureKind::Moved, code: None, message }
    }

    /// The connection broke, or the answer made no sense.
    pub(crate) fn unclear(what: &'static str, message: impl fmt::Display) -> Self {
        Self { what, kind: FailureKind::Unclear, code: None, message: message.to_string() }
    }

    pub(crate) fn answered(what: &'static str, code: u16, message: &str, retry_after: Option<u32>) -> Self {
        let kind = match code {
            404 | 409 | 410 => FailureKind::Moved,
            // A patch with another uid than the object's: the object was re-created.
            422 if message.contains("metadata.uid") => FailureKind::Moved,
            429 | 503 => FailureKind::Busy(backoff::retry_after(retry_after)),
            500..=599 | 408 => FailureKind::Unclear,
            _ => FailureKind::Refused,
        };
        let message = format!("{} ({code})", message.replace('\n', " "));
        Self { what, kind, code: Some(code), message }
    }

    pub(crate) fn new(what: &'static str, error: &kube::Error) -> Self {
        let kind = match error {
            kube::Error::Api(status) => {
                let retry_after = status.details.as_ref().map(|details| details.retry_after_seconds);
                return Self::answered(what, status.code, &status.message, retry_after);
            }
            kube::Error::Service(source) => match source.downcast_ref::<Throttled>() {
                Some(throttled) => FailureKind::Busy(throttled.retry_after),
                None if is_not_connected(error) => FailureKind::NotConnected,
                None => FailureKind::Unclear,
            },
            kube::Error::HyperError(_) | kube::Error::ReadEvents(_) => FailureKind::Unclear,
            // The body broke off, or something other than an API server answered.
            kube::Error::SerdeError(_) | kube::Error::FromUtf8(_) => FailureKind::Unclear,
            _ => FailureKind::Refused,
        };
        Self { what, kind, code: None, message: in_one_line(error) }
    }

    /// True if the call may have had an effect, or may have one yet. A server that shuts down answers 503 to writes that it
    /// has carried out, and a connection may be made just before its time-out.
    pub fn may_have_effect(&self) -> bool {
        matches!(self.kind, FailureKind::Unclear | FailureKind::NotConnected) || self.code == Some(503)
    }

    pub fn retry_after(&self) -> Option<Duration> {
        if let FailureKind::Busy(pause) = self.kind { Some(pause) } else { None }
    }
}

/// True if no connection was made. Only connecting has a time limit below this module's, so that is what timed out.
fn is_not_connected(error: &(dyn std::error::Error + 'static)) -> bool {
    use std::io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable, TimedOut};
    let causes = std::iter::successors(Some(error), |error| error.source());
    let mut kinds = causes.filter_map(|cause| Some(cause.downcast_ref::<std::io::Error>()?.kind()));
    kinds.any(|kind| matches!(kind, ConnectionRefused | HostUnreachable | NetworkUnreachable | TimedOut))
}

/// An error and its causes in one line, without repetitions.
pub fn in_one_line(error: &(dyn std::error::Error + 'static)) -> String {
    match error.downcast_ref::<kube::Error>() {
        Some(kube::Error::Api(status)) => {
            return format!("{} ({})", status.message.replace('\n', " "), status.code);
        }
        Some(kube::Error::Service(source)) => return in_one_line(source.as_ref()),
        _ => (),
    }
    let mut line = error.to_string();
    for cause in std::iter::successors(error.source(), |error| error.source()) {
        let text = cause.to_string();
        if !line.contains(&text) {
            line = format!("{line}: {text}");
        }
    }
    line.replace('\n', " ")
}

pub async fn one<T>(what: &'static str, call: impl Future<Output = kube::Result<T>>) -> Result<T, Error> {
    limited(ONE, what, call).await
}

/// Makes a call of kube's with a time limit.
pub(crate) async fn limited<T>(
    limit: Duration,
    what: &'static str,
    call: impl Future<Output = kube::Result<T>>,
) -> Result<T, Error> {
    within(limit, what, async { call.await.map_err(|error| Error::new(what, &error)) }).await
}

/// Makes any call with a time limit.
pub(crate) async fn within<T>(
    limit: Duration,
    what: &'static str,
    call: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let late = |_| Error::unclear(what, format!("no answer within {} s", limit.as_secs()));
    tokio::time::timeout(limit, call).await.map_err(late)?
}

/// The most attempts at one Node in a row. After that it goes back into the queue.
const ATTEMPTS: u32 = 5;

/// The time during which another attempt follows a call of unclear effect. A reset connection fails within it, a server
/// that hangs does not.
const PATIENCE: Duration = Duration::from_secs(1);

/// Reads, decides and writes, until it succeeds or needs a longer pause. Every attempt begins with a read, so that no write is
/// sent twice.
pub async fn settle<T>(
    shutdown: &Shutdown,
    mut attempt: impl AsyncFnMut(u32) -> Result<T, Error>,
) -> Result<T, Error> {
    let mut tries = 0;
    let began = Instant::now();
    loop {
        let error = match attempt(tries).await {
            Ok(done) => return Ok(done),
            Err(error) => error,
        };
        tries += 1;
        let pause = match error.kind {
            _ if tries >= ATTEMPTS => return Err(error),
            FailureKind::Moved => backoff::jittered(Duration::from_millis(20)),
            FailureKind::Unclear | FailureKind::NotConnected if began.elapsed() < PATIENCE => {
                backoff::exponential(Duration::from_millis(100), tries, PATIENCE)
            }
            _ => return Err(error),
        };
        tracing::debug!(%error, tries, ?pause, "retrying");
        tokio::select! {
            () = tokio::time::sleep(pause) => (),
            // An object that has changed is read again at once: final labels may depend on it.
            () = shutdown.stop.cancelled(), if error.kind != FailureKind::Moved => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    fn kind(code: u16, message: &str) -> FailureKind {
        let status = Status::failure(message, "").with_code(code);
        Error::new("patch node", &kube::Error::Api(status.boxed())).kind
    }

    #[test]
    fn a_failure_says_what_to_do_next() {
        for code in [404, 409, 410] {
            assert_eq!(kind(code, ""), FailureKind::Moved, "{code}");
        }
        for code in [500, 502, 504, 408] {
            assert_eq!(kind(code, ""), FailureKind::Unclear, "{code}");
        }
        for code in [400, 401, 403, 413] {
            assert_eq!(kind(code, ""), FailureKind::Refused, "{code}");
        }
        assert_eq!(
            kind(422, "Node \"a\" is invalid: metadata.uid: Invalid value: field is immutable"),
            FailureKind::Moved
        );
        assert_eq!(kind(422, "metadata.labels: Invalid value"), FailureKind::Refused);
        assert!(matches!(kind(429, ""), FailureKind::Busy(_)));
    }

    #[test]
    fn a_connection_that_was_never_made_is_told_from_one_that_was_lost() {
        use std::io::ErrorKind;
        let kind = |kind: ErrorKind| {
            let error = std::io::Error::from(kind);
            Error::new("list nodes", &kube::Error::Service(Box::new(error))).kind
        };
        assert_eq!(kind(ErrorKind::ConnectionRefused), FailureKind::NotConnected);
        assert_eq!(kind(ErrorKind::TimedOut), FailureKind::NotConnected);
        assert_eq!(kind(ErrorKind::ConnectionReset), FailureKind::Unclear);
    }

    #[test]
    fn a_pause_that_the_server_asks_for_is_kept() {
        let throttled = Throttled { status: 429, retry_after: Duration::from_secs(7) };
        let error = Error::new("list nodes", &kube::Error::Service(Box::new(throttled)));
        assert_eq!(error.retry_after(), Some(Duration::from_secs(7)));
    }

    #[tokio::test(start_paused = true)]
    async fn what_may_help_is_tried_again_and_what_can_not_is_not() {
        for (kind, tries) in [
            (FailureKind::Moved, ATTEMPTS),
            (FailureKind::Unclear, ATTEMPTS),
            (FailureKind::Busy(Duration::from_secs(3)), 1),
            (FailureKind::Refused, 1),
        ] {
            let mut made = 0;
            let attempt = async |_| {
                made += 1;
                Err::<(), _>(Error { what: "try", kind, code: None, message: String::new() })
            };
            assert!(settle(&Shutdown::default(), attempt).await.is_err());
            assert_eq!(made, tries, "{kind:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_hung_is_not_made_again_in_the_same_pass() {
        let mut made = 0;
        let attempt = async |_| {
            made += 1;
            within(ONE, "try", std::future::pending::<Result<(), Error>>()).await
        };
        assert!(settle(&Shutdown::default(), attempt).await.is_err());
        assert_eq!(made, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_shutdown_ends_the_trying_but_not_a_try() {
        let shutdown = Shutdown::default();
        shutdown.stop.cancel();
        for (kind, tries) in [(FailureKind::Unclear, 1), (FailureKind::Moved, ATTEMPTS)] {
            let mut made = 0;
            let attempt = async |_| {
                made += 1;
                Err::<(), _>(Error { kind, ..Error::unclear("try", "lost") })
            };
            assert_eq!(
                settle(&shutdown, attempt).await.expect_err("given up").to_string(),
                "can't try: lost"
            );
            assert_eq!(made, tries, "{kind:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_without_an_answer_ends() {
        let error = within(ONE, "get node", std::future::pending::<Result<(), Error>>())
            .await
            .expect_err("no answer");
        assert_eq!(error.to_string(), "can't get node: no answer within 5 s");
        assert_eq!(error.kind, FailureKind::Unclear);
    }
}
