//! The patch of a Node that changes some of its items.

use std::collections::BTreeMap;

use label_storage::{Node, item::Item, node::Taint};
use label_storage_runtime::patch::taints_as_json;
use serde_json::{Value, json};

/// Changes items of a Node by name (see [`Item`]); `None` removes one. With uid and resourceVersion the API
/// server refuses the patch if the Node was re-created or has changed.
pub(crate) fn changing(node: &Node, changes: &BTreeMap<String, Option<String>>) -> Value {
    let (mut labels, mut annotations) = (BTreeMap::new(), BTreeMap::new());
    let (mut taints, mut unschedulable) = (node.extras.taints.clone(), None);
    for (name, value) in changes {
        match Item::parse(name) {
            Some(item @ Item::Taint { .. }) if node.value_of(item) == value.as_deref() => (),
            Some(Item::Label(key)) => _ = labels.insert(key, value),
            Some(Item::Annotation(key)) => _ = annotations.insert(key, value),
            Some(Item::Taint { effect, key }) => {
                let old = taints.iter().position(|taint| taint.effect == effect && taint.key == key);
                let old = old.map(|at| taints.remove(at));
                let [key, effect] = [key, effect].map(str::to_owned);
                let time_added = old.and_then(|taint| taint.time_added);
                taints.extend(value.clone().map(|value| Taint { key, value, effect, time_added }));
            }
            Some(Item::Cordon) => unschedulable = Some(value.is_some()),
            None => (),
        }
    }
    let mut body = json!({"metadata": {
        "uid": node.uid.as_str(),
        "resourceVersion": node.version.to_string(),
        "labels": labels,
        "annotations": annotations,
    }});
    if taints != node.extras.taints {
        body["spec"]["taints"] = taints_as_json(&taints);
    }
    if let Some(unschedulable) = unschedulable {
        body["spec"]["unschedulable"] = unschedulable.into();
    }
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_changed_may_go() {
        let mut node = Node::new("a".to_owned(), "u2".to_owned(), "77", [].into(), None).expect("a node");
        node.extras.taints = [("a", "b"), ("kept", "")]
            .map(|(key, value)| Taint {
                key: key.to_owned(),
                value: value.to_owned(),
                effect: "NoExecute".to_owned(),
                time_added: None,
            })
            .into();
        let changes = [
            ("pool", Some("gold")),
            ("old", None),
            ("annotation:example.com/owner", None),
            ("taint:NoExecute:a", None),
            ("taint:NoSchedule:dedicated", Some("gpu")),
            ("cordon:", None),
        ];
        let changes = changes.map(|(name, value)| (name.to_owned(), value.map(str::to_owned))).into();
        let expected = json!({
            "metadata": {
                "uid": "u2",
                "resourceVersion": "77",
                "labels": {"pool": "gold", "old": null},
                "annotations": {"example.com/owner": null},
            },
            "spec": {
                "taints": [
                    {"key": "kept", "effect": "NoExecute"},
                    {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"},
                ],
                "unschedulable": false,
            },
        });
        assert_eq!(changing(&node, &changes), expected);
        let changes = [("taint:NoExecute:a".to_owned(), Some("b".to_owned()))].into();
        assert_eq!(changing(&node, &changes).get("spec"), None, "no other taints than there are");
    }
}
