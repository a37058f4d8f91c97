//! A request in the terms of the API server: verb, resource and name.

use http::{Method, Uri};
use serde_json::Value;

/// A verb of RBAC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    /// Reads one object by name.
    Get,
    /// Lists all objects.
    List,
    /// Watches for changes.
    Watch,
    /// `POST`
    Create,
    /// `PUT`
    Update,
    /// `PATCH`
    Patch,
    /// `DELETE`
    Delete,
}

impl Verb {
    /// True if the verb changes an object.
    pub fn is_write(self) -> bool {
        matches!(self, Self::Create | Self::Update | Self::Patch | Self::Delete)
    }
}

/// A request, as a [`Script`](crate::Script) sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The name of the client, if it uses [its own kubeconfig](crate::Proxy::kubeconfig_of); empty otherwise.
    pub client: String,
    pub verb: Verb,
    /// Such as `nodes` or `configmaps`; empty if the path names no resource, as in `/version`.
    pub resource: String,
    pub namespace: Option<String>,
    /// The name of the object. For a create, it is read from the body if that is JSON.
    pub name: Option<String>,
    /// The subresource, such as `status`.
    pub subresource: Option<String>,
    /// The query string.
    pub query: String,
}

impl Request {
    /// Reads it from an HTTP request.
    pub fn new(method: &Method, uri: &Uri, body: &[u8]) -> Self {
        let segments: Vec<_> = uri.path().split('/').filter(|segment| !segment.is_empty()).collect();
        let rest = match segments.as_slice() {
            ["api", _, rest @ ..] | ["apis", _, _, rest @ ..] => rest,
            _ => &[],
        };
        let (namespace, rest) = match rest {
            // These are subresources of the namespace itself.
            ["namespaces", _, "status" | "finalize"] => (None, rest),
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (Some(*namespace), rest),
            rest => (None, rest),
        };
        let part = |at: usize| rest.get(at).map(|part| (*part).to_owned());
        let (name, query) = (part(1), uri.query().unwrap_or_default().to_owned());
        let is_watch = query.split('&').any(|pair| matches!(pair, "watch=true" | "watch=1"));
        let verb = match *method {
            Method::POST => Verb::Create,
            Method::PUT => Verb::Update,
            Method::PATCH => Verb::Patch,
            Method::DELETE => Verb::Delete,
            _ if is_watch => Verb::Watch,
            _ if name.is_none() && !rest.is_empty() => Verb::List,
            _ => Verb::Get,
        };
        let name = if verb == Verb::Create { name.or_else(|| name_in(body)) } else { name };
        Self {
            client: String::new(),
            verb,
            resource: part(0).unwrap_or_default(),
            namespace: namespace.map(str::to_owned),
            name,
            subresource: part(2),
            query,
        }
    }

    /// The version from which a watch starts.
    pub fn resource_version(&self) -> Option<u64> {
        self.query.split('&').find_map(|pair| pair.strip_prefix("resourceVersion="))?.parse().ok()
    }

    /// True if the request has this verb and this resource.
    pub fn is(&self, verb: Verb, resource: &str) -> bool {
        self.verb == verb && self.resource == resource
    }
}

fn name_in(body: &[u8]) -> Option<String> {
    let object: Value = serde_json::from_slice(body).ok()?;
    object.pointer("/metadata/name")?.as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_told_by_its_method_and_path() {
        for (method, uri, expected) in [
            ("GET", "/api/v1/nodes", (Verb::List, "nodes", None, None)),
            ("GET", "/api/v1/nodes?watch=true&resourceVersion=7", (Verb::Watch, "nodes", None, None)),
            ("GET", "/api/v1/nodes/a.b", (Verb::Get, "nodes", None, Some("a.b"))),
            ("PATCH", "/api/v1/nodes/a?fieldManager=x", (Verb::Patch, "nodes", None, Some("a"))),
            (
                "GET",
                "/api/v1/namespaces/ns/configmaps?labelSelector=a%3Db",
                (Verb::List, "configmaps", Some("ns"), None),
            ),
            ("POST", "/api/v1/namespaces/ns/configmaps", (Verb::Create, "configmaps", Some("ns"), Some("n"))),
            (
                "PUT",
                "/api/v1/namespaces/ns/configmaps/c",
                (Verb::Update, "configmaps", Some("ns"), Some("c")),
            ),
            (
                "DELETE",
                "/api/v1/namespaces/ns/configmaps/c",
                (Verb::Delete, "configmaps", Some("ns"), Some("c")),
            ),
            (
                "PUT",
                "/apis/coordination.k8s.io/v1/namespaces/ns/leases/l",
                (Verb::Update, "leases", Some("ns"), Some("l")),
            ),
            ("GET", "/api/v1/namespaces/ns", (Verb::Get, "namespaces", None, Some("ns"))),
            ("PUT", "/api/v1/namespaces/ns/finalize", (Verb::Update, "namespaces", None, Some("ns"))),
            ("GET", "/version", (Verb::Get, "", None, None)),
        ] {
            let (verb, path) = (method.parse().expect("a method"), uri.parse().expect("a path"));
            let request = Request::new(&verb, &path, br#"{"metadata": {"name": "n"}}"#);
            let (verb, resource, namespace, name) = expected;
            assert_eq!(
                (request.verb, &*request.resource, request.namespace.as_deref(), request.name.as_deref()),
                (verb, resource, namespace, name),
                "{method} {uri}"
            );
        }
    }
}
