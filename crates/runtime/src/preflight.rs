//! Checks the connection, the namespace and the permissions before the first list. Each error has the fix in one line.

use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::time::Instant;

use crate::call::{self, Error, FailureKind};

/// A permission in the words of RBAC: a verb and a resource.
pub type Right = (&'static str, &'static str);

pub const READS: [Right; 4] =
    [("list", "nodes"), ("get", "nodes"), ("list", "configmaps"), ("get", "configmaps")];
pub const WATCHES: [Right; 2] = [("watch", "nodes"), ("watch", "configmaps")];
pub const LEASES: [Right; 5] = [
    ("list", "leases"),
    ("watch", "leases"),
    ("create", "leases"),
    ("update", "leases"),
    ("delete", "leases"),
];

fn is_namespaced(resource: &str) -> bool {
    resource != "nodes"
}

pub fn in_words((verb, resource): Right, namespace: &str) -> String {
    let place = is_namespaced(resource).then(|| format!(" in namespace {namespace}"));
    format!("{verb} {resource}{}", place.unwrap_or_default())
}

pub fn attributes((verb, resource): Right, namespace: &str) -> ResourceAttributes {
    let group = match resource {
        "leases" => Some("coordination.k8s.io"),
        "events" => Some("events.k8s.io"),
        // There is no such resource: it stands for the permission to write records (docs/security.md).
        "records" => Some("label-storage"),
        _ => None,
    };
    ResourceAttributes {
        verb: Some(verb.to_owned()),
        group: group.map(str::to_owned),
        resource: Some(resource.to_owned()),
        namespace: is_namespaced(resource).then(|| namespace.to_owned()),
        ..ResourceAttributes::default()
    }
}

/// Checks that the server answers, that the namespace exists and that the account has these permissions.
pub(crate) async fn check(client: &Client, url: &str, namespace: &str, rights: &[Right]) -> Result<()> {
    let failed = |Error { kind, message, .. }| match kind {
        FailureKind::Refused => anyhow!(
            "the API server at {url} refuses access: {message}: check the credentials in the kubeconfig or the service account"
        ),
        FailureKind::Busy(_) => anyhow!("the API server at {url} is too busy: {message}: try again later"),
        FailureKind::Moved | FailureKind::Unclear | FailureKind::NotConnected => anyhow!(
            "can't reach the API server at {url}: {message}: check that it is running, and that the kubeconfig context is right"
        ),
    };
    let mut missing = Vec::new();
    for right in rights {
        if !patiently(async || is_allowed(client, namespace, *right).await).await.map_err(failed)? {
            missing.push(in_words(*right, namespace));
        }
    }
    if !missing.is_empty() {
        let missing = missing.join(", ");
        bail!("not allowed to {missing}: grant that to this account, as deploy/label-storage.yaml does");
    }
    let namespaces: Api<Namespace> = Api::all(client.clone());
    match patiently(async || call::one("get namespace", namespaces.get_opt(namespace)).await).await {
        Ok(Some(_)) => Ok(()),
        Ok(None) => bail!(
            "namespace {namespace} does not exist: create it with `kubectl create namespace {namespace}`, or choose another with --namespace"
        ),
        // Not every account may read namespaces. Then the first write shows that the namespace is missing.
        Err(error) if error.kind == FailureKind::Refused => Ok(()),
        Err(error) => Err(failed(error)),
    }
}

/// Asks a struggling server again for a while. A daemon that gives up at once would be restarted later and later, just
/// when a control plane recovers.
pub(crate) async fn patiently<T>(mut ask: impl AsyncFnMut() -> Result<T, Error>) -> Result<T, Error> {
    const PATIENCE: Duration = Duration::from_secs(30);
    let began = Instant::now();
    loop {
        let pause = match ask().await {
            Err(error) if began.elapsed() > PATIENCE => return Err(error),
            Err(Error { kind: FailureKind::Busy(pause), .. }) => pause,
            Err(Error { kind: FailureKind::Unclear, .. }) => Duration::from_secs(1),
            answer => return answer,
        };
        tokio::time::sleep(pause).await;
    }
}

async fn is_allowed(client: &Client, namespace: &str, right: Right) -> Result<bool, Error> {
    let resource_attributes = Some(attributes(right, namespace));
    let spec = SelfSubjectAccessReviewSpec { resource_attributes, ..Default::default() };
    let review = SelfSubjectAccessReview { spec, ..Default::default() };
    let (reviews, params) = (Api::all(client.clone()), PostParams::default());
    let answer = call::one("check the account's permissions", reviews.create(&params, &review)).await?;
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
