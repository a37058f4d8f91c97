//! What would not work anyway is said before the first pass, in one line, with what to do about it.

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::PostParams;

use crate::call::{self, Kind};
use crate::client::Cluster;

/// A right that a daemon can't do without.
#[derive(Debug, Clone, Copy)]
pub struct Right {
    /// As in RBAC.
    pub verb: &'static str,
    /// As in RBAC; Nodes have no namespace, all else is in the records'.
    pub resource: &'static str,
}

/// Why a daemon can't work.
#[derive(Debug, thiserror::Error)]
pub enum Error {
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
    #[error("not allowed to {missing}: grant that to this account, as deploy/rbac.yaml does")]
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

/// Checks that the server answers, that the namespace exists and that the account has the rights it needs.
pub async fn check(cluster: &Cluster, namespace: &str, rights: &[Right]) -> Result<(), Error> {
    let failed = |error: call::Error| {
        let (url, message) = (cluster.url.clone(), error.message);
        match error.kind {
            Kind::Refused => Error::Refused { url, message },
            Kind::Moved | Kind::Busy(_) | Kind::Unclear => Error::Unreachable { url, message },
        }
    };
    let mut missing = Vec::new();
    for right in rights {
        if !is_allowed(cluster, namespace, *right).await.map_err(failed)? {
            let place =
                if right.resource == "nodes" { String::new() } else { format!(" in namespace {namespace}") };
            missing.push(format!("{} {}{place}", right.verb, right.resource));
        }
    }
    if !missing.is_empty() {
        return Err(Error::NotAllowed { missing: missing.join(", ") });
    }
    let namespaces: Api<Namespace> = Api::all(cluster.client.clone());
    match call::find("get namespace", namespaces.get_opt(namespace)).await {
        Ok(Some(_)) => Ok(()),
        Ok(None) => Err(Error::NoNamespace(namespace.to_owned())),
        // Not every account may look. Then a missing namespace shows in the first write.
        Err(error) if error.kind == Kind::Refused => Ok(()),
        Err(error) => Err(failed(error)),
    }
}

async fn is_allowed(cluster: &Cluster, namespace: &str, right: Right) -> Result<bool, call::Error> {
    let namespace = if right.resource == "nodes" { None } else { Some(namespace.to_owned()) };
    let attributes = ResourceAttributes {
        verb: Some(right.verb.to_owned()),
        resource: Some(right.resource.to_owned()),
        namespace,
        ..ResourceAttributes::default()
    };
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), ..Default::default() },
        ..Default::default()
    };
    let reviews: Api<SelfSubjectAccessReview> = Api::all(cluster.client.clone());
    let params = PostParams::default();
    let answer =
        call::within(call::ONE, "check the account's rights", reviews.create(&params, &review)).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}
