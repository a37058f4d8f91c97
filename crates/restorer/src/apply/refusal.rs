//! Finds the items of a patch that the cluster refuses.

use std::collections::BTreeSet;

use kube::api::{Patch, PatchParams};
use label_storage::restore;
use label_storage::{Labels, Node};
use label_storage_runtime::call::{self, Error, FailureKind};
use label_storage_runtime::patch::merge_patch;

use super::{Apply, params};

impl Apply {
    /// Finds the items because of which a patch was refused, with the API server's messages. Returns the error if they are not the reason.
    ///
    /// The API server refuses a patch as a whole. So parts of it are tried out: each part that is refused is halved, until it is one item.
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
        let (mut accepted, mut refused) = (BTreeSet::<&str>::new(), Labels::new());
        let mut parts = vec![&names[..]];
        while let Some(part) = parts.pop() {
            let tried = patch.with(node, |name| accepted.contains(name) || part.contains(&name));
            match (self.try_out(node, &tried).await, part) {
                (Ok(()), _) => accepted.extend(part),
                (Err(error), _) if !is_refusal(&error) => return Err(error),
                (Err(error), [name]) => _ = refused.insert((*name).to_owned(), error.message),
                (Err(_), _) => {
                    let (first, second) = part.split_at(part.len() / 2);
                    parts.extend([second, first]);
                }
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
    error.kind == FailureKind::Refused && matches!(error.code, Some(400 | 403 | 422))
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
        assert!(!is_refusal(&answered(FailureKind::Refused, Some(401))));
        assert!(!is_refusal(&answered(FailureKind::Refused, None)));
        assert!(!is_refusal(&answered(FailureKind::Moved, Some(422))));
        assert!(!is_refusal(&answered(FailureKind::Unclear, Some(500))));
    }
}
