//! One call to the API server: a time limit around it, and what its failure means for what comes next.

use std::fmt;
use std::time::Duration;

use tokio::time::Instant;

use crate::backoff;
use crate::shutdown::Shutdown;

/// The server answered that it is busy, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the API server is busy ({status})")]
pub struct Throttled {
    /// 429 or 503.
    pub status: u16,
    /// The pause that it asks for.
    pub retry_after: Duration,
}

/// The limit for a single object: generous for a server under load, and short enough that a plan is still alive after it.
pub(crate) const ONE: Duration = Duration::from_secs(5);

/// The limit for all objects of a kind.
pub(crate) const ALL: Duration = Duration::from_secs(60);

/// A call that failed.
#[derive(Debug)]
pub struct Error {
    /// What was tried, as in "list nodes".
    pub what: &'static str,
    /// What it means.
    pub kind: FailureKind,
    /// The HTTP status, where the server answered with one.
    pub code: Option<u16>,
    /// In the words of whoever refused it.
    pub message: String,
}

/// What a failure means for what comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// The world is not what the call took it for: read again, decide again.
    Moved,
    /// The server asks for a pause.
    Busy(Duration),
    /// Nobody knows whether the call had an effect: read again, a little later.
    Unclear,
    /// Nobody listens: it had none.
    NotConnected,
    /// It will not work until somebody does something.
    Refused,
}

impl FailureKind {
    /// One of each.
    pub(crate) const ALL: [Self; 5] =
        [Self::Moved, Self::Busy(Duration::ZERO), Self::Unclear, Self::NotConnected, Self::Refused];

    /// A word for metrics; part of what users build upon, so it stays.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Moved => "moved",
            Self::Busy(_) => "busy",
            Self::Unclear => "unclear",
            Self::NotConnected => "not-connected",
            Self::Refused => "refused",
        }
    }
}

impl Error {
    /// A failure that is not the server's: what was asked for can't be.
    pub fn refused(what: &'static str, message: impl fmt::Display) -> Self {
        Self { what, kind: FailureKind::Refused, code: None, message: message.to_string() }
    }

    /// The plan got too old before it could be carried out.
    pub fn expired(what: &'static str) -> Self {
        let message = "the plan is too old to be carried out".to_owned();
        Self { what, kind: FailureKind::Moved, code: None, message }
    }

    /// A call that came to nothing halfway: the connection broke, or what came over it made no sense.
    pub(crate) fn unclear(what: &'static str, message: impl fmt::Display) -> Self {
        Self { what, kind: FailureKind::Unclear, code: None, message: message.to_string() }
    }

    /// A call that the server answered with another status than success.
    pub(crate) fn answered(
        what: &'static str,
        code: u16,
        message: &str,
        retry_after_seconds: Option<u32>,
    ) -> Self {
        let kind = match code {
            404 | 409 | 410 => FailureKind::Moved,
            // A patch with another uid than the object's: the object is another by now.
            422 if message.contains("metadata.uid") => FailureKind::Moved,
            429 | 503 => FailureKind::Busy(backoff::retry_after(retry_after_seconds)),
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
            // A body that broke off in the middle, or that an API server does not send.
            kube::Error::SerdeError(_) | kube::Error::FromUtf8(_) => FailureKind::Unclear,
            _ => FailureKind::Refused,
        };
        Self { what, kind, code: None, message: in_one_line(error) }
    }

    /// True if the call may have had an effect, or may have one yet. A server that is shut down answers 503 to what it has done, and a
    /// connection that timed out may have been made before.
    pub fn may_have_effect(&self) -> bool {
        matches!(self.kind, FailureKind::Unclear | FailureKind::NotConnected) || self.code == Some(503)
    }

    /// For how long to wait before the server may be asked again, where it said so.
    pub fn retry_after(&self) -> Option<Duration> {
        match self.kind {
            FailureKind::Busy(pause) => Some(pause),
            _ => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "can't {}: {}", self.what, self.message)
    }
}

impl std::error::Error for Error {}

/// Whether there is nobody on the other side. Nothing but connecting has a time limit below ours, so that is what timed out.
fn is_not_connected(error: &(dyn std::error::Error + 'static)) -> bool {
    use std::io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable, TimedOut};
    let causes = std::iter::successors(Some(error), |error| error.source());
    let mut io = causes.filter_map(|cause| cause.downcast_ref::<std::io::Error>());
    io.any(|cause| {
        matches!(cause.kind(), ConnectionRefused | HostUnreachable | NetworkUnreachable | TimedOut)
    })
}

/// An error and its causes in one line, without repeating what a cause already said.
pub fn in_one_line(error: &(dyn std::error::Error + 'static)) -> String {
    match error.downcast_ref::<kube::Error>() {
        Some(kube::Error::Api(status)) => {
            return format!("{} ({})", status.message.replace('\n', " "), status.code);
        }
        Some(kube::Error::Service(source)) => return in_one_line(source.as_ref()),
        _ => (),
    }
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !line.contains(&text) {
            line = format!("{line}: {text}");
        }
        cause = error.source();
    }
    line.replace('\n', " ")
}

/// Makes a call within a time limit.
pub(crate) async fn within<T>(
    limit: Duration,
    what: &'static str,
    call: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    match tokio::time::timeout(limit, call).await {
        Ok(answer) => answer,
        Err(_) => Err(Error::unclear(what, format!("no answer within {} s", limit.as_secs()))),
    }
}

/// Makes a call for a single object.
pub async fn one<T>(what: &'static str, call: impl Future<Output = kube::Result<T>>) -> Result<T, Error> {
    limited(ONE, what, call).await
}

/// Makes a call with a time limit of its own.
pub(crate) async fn limited<T>(
    limit: Duration,
    what: &'static str,
    call: impl Future<Output = kube::Result<T>>,
) -> Result<T, Error> {
    within(limit, what, async { call.await.map_err(|error| Error::new(what, &error)) }).await
}

/// How often one node is tried at once. What still fails then is tried again later.
const ATTEMPTS: u32 = 5;

/// For how long a call of unclear effect is followed by another at once. A reset connection fails within it,
/// a server that hangs does not: no node may hold up the next look at all the others.
const PATIENCE: Duration = Duration::from_secs(1);

/// Reads, decides and writes, again and again while that may help at once. Every attempt starts with reading, never
/// with sending the same write again. What needs a longer pause fails here, and goes back into the queue.
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
            FailureKind::Moved if tries < ATTEMPTS => backoff::jittered(Duration::from_millis(20)),
            FailureKind::Unclear | FailureKind::NotConnected
                if tries < ATTEMPTS && began.elapsed() < PATIENCE =>
            {
                backoff::exponential(Duration::from_millis(100), tries, PATIENCE)
            }
            _ => return Err(error),
        };
        tracing::debug!(%error, tries, ?pause, "trying again");
        tokio::select! {
            () = tokio::time::sleep(pause) => (),
            () = shutdown.requested() => return Err(error),
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
        shutdown.request();
        let attempt = async |_| Err::<(), _>(Error::unclear("try", "lost"));
        assert_eq!(settle(&shutdown, attempt).await.expect_err("given up").to_string(), "can't try: lost");
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
