//! Clocks that disagree. Ages, retention and `departed-at` are times of day; who holds a lease is not judged by any clock.

use anyhow::{Context, Result};
use http::Request;
use http::header::DATE;
use jiff::fmt::rfc2822;
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use kube::client::Body;

use super::{Checked, Finding};

/// By how much clocks may differ: the server's is told in whole seconds, and answers take a moment.
pub(super) const TOLERANCE: SignedDuration = SignedDuration::from_secs(5);

/// What the API server's clock says.
pub(super) struct Times {
    /// By how much this machine's clock is ahead of it; `None` where the server does not say what time it is.
    ahead: Option<SignedDuration>,
}

/// A renewal that was seen, and how far its time is off the server's.
pub(super) struct Renewal {
    pub(super) holder: String,
    pub(super) ahead: SignedDuration,
}

impl Times {
    /// Now, by the API server's clock; by this machine's, where that is all there is.
    pub(super) fn now(&self) -> Timestamp {
        let now = Timestamp::now();
        self.ahead.and_then(|ahead| now.checked_sub(ahead).ok()).unwrap_or(now)
    }
}

/// Asks for the server's version, which everybody may know, and looks at the time of the answer.
pub(super) async fn times(client: &Client) -> Result<Times> {
    let before = Timestamp::now();
    let answer = client.send(Request::get("/version").body(Body::empty())?).await?;
    let took = Timestamp::now().duration_since(before);
    let told = answer.headers().get(DATE).and_then(|date| date.to_str().ok());
    let Some(told) = told else { return Ok(Times { ahead: None }) };
    let told = rfc2822::parse(told).context("the API server tells no time that can be read")?.timestamp();
    // The whole second before, so half a second later on average; and halfway through the call.
    let (asked, told) = (before + took / 2, told + SignedDuration::from_millis(500));
    Ok(Times { ahead: Some(asked.duration_since(told)) })
}

pub(super) fn check(namespace: &str, times: &Times, renewals: &[Renewal]) -> Checked {
    let mut findings = Vec::new();
    match times.ahead {
        None => findings
            .push(Finding::unknown("whether clocks agree", "the API server does not say what time it is")),
        Some(ahead) if ahead.abs() > TOLERANCE => {
            let message =
                format!("the clock of this machine is {} the API server's: ages are shown wrong", off(ahead));
            findings.push(Finding::warning(message).mend("sudo timedatectl set-ntp true"));
        }
        Some(_) => {}
    }
    for Renewal { holder, ahead } in renewals.iter().filter(|renewal| renewal.ahead.abs() > TOLERANCE) {
        let message = format!(
            "the clock of {holder} is {} the API server's: retention is counted by it. Set the clock of its machine",
            off(*ahead)
        );
        findings.push(
            Finding::warning(message)
                .mend(format!("kubectl get pod {holder} --namespace {namespace} --output wide")),
        );
    }
    Checked::new("clocks", "this machine, the API server and the daemons agree", findings)
}

fn off(ahead: SignedDuration) -> String {
    let side = if ahead.is_negative() { "behind" } else { "ahead of" };
    format!("{} {side}", crate::output::age(ahead.abs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_may_differ_a_little() {
        let times = |seconds| Times { ahead: Some(SignedDuration::from_secs(seconds)) };
        let renewal =
            |seconds| Renewal { holder: "storer-0".to_owned(), ahead: SignedDuration::from_secs(seconds) };
        assert_eq!(check("ns", &times(-4), &[renewal(3)]).findings, []);
        let found = check("ns", &times(-90), &[renewal(3), renewal(7200)]).findings;
        assert_eq!(found.len(), 2);
        assert!(found[0].message.starts_with("the clock of this machine is 90s behind"), "{found:?}");
        assert!(found[1].message.starts_with("the clock of storer-0 is 120m ahead of"), "{found:?}");
    }
}
