//! What would not work anyway is said before the first list, in one line, with what to do about it.

use std::time::Duration;

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::PostParams;
use tokio::time::Instant;

use crate::call::{self, FailureKind};
use crate::client::Cluster;

/// A right that a daemon can't do without.
#[derive(Debug, Clone, Copy)]
pub struct Right {
    /// As in RBAC.
    pub verb: &'static str,
    /// As in RBAC, without its group; Nodes have no namespace, all else is in one.
    pub resource: &'static str,
}

impl Right {
    /// A right as RBAC names it.
    pub const fn new(verb: &'static str, resource: &'static str) -> Self {
        Self { verb, resource }
    }

    /// Whether it is about something in a namespace.
    pub fn is_namespaced(self) -> bool {
        self.resource != "nodes"
    }

    /// As the API server is asked about it, where it is about something in this namespace.
    pub fn attributes(self, namespace: &str) -> ResourceAttributes {
        let group = match self.resource {
            "leases" => Some("coordination.k8s.io"),
            "events" => Some("events.k8s.io"),
            // There is no such resource: it stands for the right to write records (docs/security.md).
            "records" => Some("label-storage"),
            _ => None,
        };
        ResourceAttributes {
            verb: Some(self.verb.to_owned()),
            group: group.map(str::to_owned),
            resource: Some(self.resource.to_owned()),
            namespace: self.is_namespaced().then(|| namespace.to_owned()),
            ..ResourceAttributes::default()
        }
    }
}

/// What every daemon reads.
pub const READS: [Right; 4] = [
    Right::new("list", "nodes"),
    Right::new("get", "nodes"),
    Right::new("list", "configmaps"),
    Right::new("get", "configmaps"),
];

/// What a daemon reads that watches, too.
pub const WATCHES: [Right; 2] = [Right::new("watch", "nodes"), Right::new("watch", "configmaps")];

/// What a daemon needs to share the work with its other replicas.
pub const LEASES: [Right; 4] = [
    Right::new("list", "leases"),
    Right::new("create", "leases"),
    Right::new("update", "leases"),
    Right::new("delete", "leases"),
];

/// Optional: in the namespace `default`, for Events about Nodes.
pub const EVENTS: [Right; 2] = [Right::new("create", "events"), Right::new("patch", "events")];

/// Why a daemon can't work.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It answers that it can't answer.
    #[error("the API server at {url} is too busy: {message}: try again later")]
    Busy {
        /// Who said it.
        url: String,
        /// What it said.
        message: String,
    },
    /// Nobody answers.
    #[error(
        "can't reach the API server at {url}: {message}: is it running, and is this the right kubeconfig context?"
    )]
    Unreachable {
        /// Where it was looked for.
        url: String,
        /// What happened.
        message: String,
    },
    /// The namespace is missing.
    #[error(
        "namespace {0} does not exist: create it with `kubectl create namespace {0}`, or name another with --namespace"
    )]
    NoNamespace(String),
    /// RBAC.
    #[error("not allowed to {missing}: grant that to this account, as deploy/label-storage.yaml does")]
    NotAllowed {
        /// All that is missing.
        missing: String,
    },
    /// Anything else that the server says.
    #[error(
        "the API server at {url} does not let us in: {message}: check the credentials in the kubeconfig or the service account"
    )]
    Refused {
        /// Who said it.
        url: String,
        /// What it said.
        message: String,
    },
}

/// Checks that the server answers, that the namespace exists and that the account has these rights.
pub async fn check(cluster: &Cluster, namespace: &str, rights: &[Right]) -> Result<(), Error> {
    let failed = |error: call::Error| {
        let (url, message) = (cluster.url.clone(), error.message);
        match error.kind {
            FailureKind::Refused => Error::Refused { url, message },
            FailureKind::Busy(_) => Error::Busy { url, message },
            FailureKind::Moved | FailureKind::Unclear | FailureKind::NotConnected => {
                Error::Unreachable { url, message }
            }
        }
    };
    let mut missing = Vec::new();
    for right in rights {
        if !patiently(async || is_allowed(cluster, namespace, *right).await).await.map_err(failed)? {
            let place =
                if right.is_namespaced() { format!(" in namespace {namespace}") } else { String::new() };
            missing.push(format!("{} {}{place}", right.verb, right.resource));
        }
    }
    if !missing.is_empty() {
        return Err(Error::NotAllowed { missing: missing.join(", ") });
    }
    let namespaces: Api<Namespace> = Api::all(cluster.client.clone());
    match patiently(async || call::one("get namespace", namespaces.get_opt(namespace)).await).await {
        Ok(Some(_)) => Ok(()),
        Ok(None) => Err(Error::NoNamespace(namespace.to_owned())),
        // Not every account may look. Then a missing namespace shows in the first write.
        Err(error) if error.kind == FailureKind::Refused => Ok(()),
        Err(error) => Err(failed(error)),
    }
}

/// Asks again for a while where the server is there and struggles: a daemon that gives up at once would be started
/// again later and later, just when a control plane recovers.
pub(crate) async fn patiently<T>(
    mut ask: impl AsyncFnMut() -> Result<T, call::Error>,
) -> Result<T, call::Error> {
    const PATIENCE: Duration = Duration::from_secs(30);
    let began = Instant::now();
    loop {
        let pause = match ask().await {
            Err(error) if began.elapsed() > PATIENCE => return Err(error),
            Err(call::Error { kind: FailureKind::Busy(pause), .. }) => pause,
            Err(call::Error { kind: FailureKind::Unclear, .. }) => Duration::from_secs(1),
            answer => return answer,
        };
        tokio::time::sleep(pause).await;
    }
}

async fn is_allowed(cluster: &Cluster, namespace: &str, right: Right) -> Result<bool, call::Error> {
    let attributes = right.attributes(namespace);
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), ..Default::default() },
        ..Default::default()
    };
    let reviews: Api<SelfSubjectAccessReview> = Api::all(cluster.client.clone());
    let params = PostParams::default();
    let answer = call::one("check the account's rights", reviews.create(&params, &review)).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failing(kind: FailureKind) -> call::Error {
        call::Error { what: "ask", kind, code: None, message: String::new() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_struggling_server_is_asked_again_and_one_that_is_not_there_is_not() {
        for (kind, again) in [
            (FailureKind::Busy(Duration::from_secs(1)), true),
            (FailureKind::Unclear, true),
            (FailureKind::NotConnected, false),
            (FailureKind::Refused, false),
        ] {
            let mut asked = 0;
            let answer = patiently(async || {
                asked += 1;
                if asked < 3 { Err(failing(kind)) } else { Ok(()) }
            });
            assert_eq!(answer.await.is_ok(), again, "{kind:?}");
            let never = patiently(async || Err::<(), _>(failing(kind)));
            assert!(never.await.is_err());
        }
    }
}
