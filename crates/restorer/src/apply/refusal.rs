//! Finds the items of a patch that the cluster refuses.

use std::collections::BTreeSet;
use std::time::Duration;

use kube::api::{Patch, PatchParams};
use label_storage::restore;
use label_storage::{Labels, Node};
use label_storage_runtime::call::{self, Error, FailureKind};
use label_storage_runtime::patch::merge_patch;

use super::{Apply, params};

/// An API server may be about to get a new policy, or to forget one.
const CONFIRMATION: Duration = Duration::from_secs(2);

impl Apply {
    /// Finds the items because of which a patch was refused, with the API server's messages. Returns the error if they are not the reason.
    ///
    /// The API server refuses a patch as a whole. So parts of it are tried out: each part that is refused is halved, until it is one item.
    /// After a pause, each of these has to be refused once more.
    pub(super) async fn find_refused(
        &self,
        node: &Node,
        patch: Option<&restore::Patch>,
        error: Error,
    ) -> Result<Labels, Error> {
        let has_items = |patch: &&restore::Patch| !patch.restored.is_empty();
        let is_first = is_refusal(&error) && node.extras.refused.is_empty();
        let Some(patch) = patch.filter(|_| is_first).filter(has_items) else { return Err(error) };
        if self.try_out(node, &patch.with(node, |_| false)).await.is_err() {
            return Err(error);
        }
        let names: Vec<_> = patch.restored.keys().map(String::as_str).collect();
        let (mut accepted, mut suspects) = (BTreeSet::<&str>::new(), Vec::new());
        let mut parts = vec![&names[..]];
        while let Some(part) = parts.pop() {
            let tried = patch.with(node, |name| accepted.contains(name) || part.contains(&name));
            match (self.try_out(node, &tried).await, part) {
                (Ok(()), _) => accepted.extend(part),
                (Err(error), _) if !is_refusal(&error) => return Err(error),
                (Err(_), [name]) => suspects.push(*name),
                (Err(_), _) => {
                    let (first, second) = part.split_at(part.len() / 2);
                    parts.extend([second, first]);
                }
            }
        }
        tokio::time::sleep(CONFIRMATION).await;
        let mut refused = Labels::new();
        for name in suspects {
            let tried = patch.with(node, |other| accepted.contains(other) || other == name);
            match self.try_out(node, &tried).await {
                Ok(()) => _ = accepted.insert(name),
                Err(error) if !is_refusal(&error) => return Err(error),
                Err(error) => _ = refused.insert(name.to_owned(), error.message),
            }
        }
        if refused.is_empty() {
            return Err(error);
        }
        tracing::warn!(node = node.name, ?refused, "the cluster refuses some items; the others are restored");
        Ok(refused)
    }

    /// Has the API server check a patch without carrying it out.
    async fn try_out(&self, node: &Node, patch: &restore::Patch) -> Result<(), Error> {
        let params = PatchParams { dry_run: true, ..params() };
        let mut body = merge_patch(patch);
        // Nothing is written, so the Node may have changed since.
        if let Some(metadata) = body["metadata"].as_object_mut() {
            metadata.remove("resourceVersion");
        }
        let body = Patch::Strategic(body);
        call::one("patch node", self.replica.nodes.patch_metadata(&node.name, &params, &body)).await.map(drop)
    }
}

/// True if the API server, an admission policy or a webhook does not accept the content of a patch.
fn is_refusal(error: &Error) -> bool {
    error.kind == FailureKind::Refused
        && matches!(error.code, Some(400 | 403 | 422))
        && !is_unauthorized(error)
}

/// True if the authorizer denies the request, whatever is in it: `nodes "a" is forbidden: User "b" cannot patch resource "nodes" in …`.
fn is_unauthorized(error: &Error) -> bool {
    let denial = error.message.split_once(" is forbidden: ").map_or("", |(_, denial)| denial);
    denial.starts_with("User \"") && denial.contains(" cannot patch resource ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_answer_about_the_content_is_a_refusal() {
        let answered = |kind, code| Error { what: "patch node", kind, code, message: String::new() };
        for code in [400, 403, 422] {
            assert!(is_refusal(&answered(FailureKind::Refused, Some(code))), "{code}");
        }
        let denied = |denial: &str| {
            let message = format!("nodes \"a\" is forbidden: {denial} (403)");
            is_refusal(&Error { message, ..answered(FailureKind::Refused, Some(403)) })
        };
        assert!(!denied(r#"User "b" cannot patch resource "nodes" in API group "" at the cluster scope"#));
        assert!(!denied(
            r#"User "b" cannot patch resource "nodes" in API group "" at the cluster scope: RBAC: no"#
        ));
        assert!(denied(
            "ValidatingAdmissionPolicy 'p' with binding 'p' denied request: this is not allowed here"
        ));
        assert!(denied(r#"node "c" is not allowed to modify labels: x"#));
        assert!(!is_refusal(&answered(FailureKind::Refused, Some(401))));
        assert!(!is_refusal(&answered(FailureKind::Refused, None)));
        assert!(!is_refusal(&answered(FailureKind::Moved, Some(422))));
        assert!(!is_refusal(&answered(FailureKind::Unclear, Some(500))));
    }
}
