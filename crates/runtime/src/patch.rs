//! The patch of a Node that restores it, in two forms.

use std::collections::BTreeMap;

use label_storage::Node;
use label_storage::item::Item;
use label_storage::node::{IGNORE, KEEP, RESTORED, Taint};
use label_storage::restore;
use serde_json::{Value, json};

/// A strategic merge patch. Labels and marker are in one patch, so that the Node gets both or neither. With uid and
/// resourceVersion the API server refuses it (422, 409) if the Node was re-created or has changed.
pub fn merge_patch(patch: &restore::Patch) -> Value {
    let marker = patch.marker.as_deref().map(|marker| (RESTORED, marker));
    let mut body = json!({"metadata": {
        "uid": patch.uid.as_str(),
        "resourceVersion": patch.version.to_string(),
        "labels": patch.labels().collect::<BTreeMap<_, _>>(),
        "annotations": patch.annotations().chain(marker).collect::<BTreeMap<_, _>>(),
    }});
    if let Some(taints) = &patch.taints {
        body["spec"]["taints"] = taints_as_json(taints);
    }
    if patch.cordons() {
        body["spec"]["unschedulable"] = true.into();
    }
    body
}

/// The `spec.taints` of a Node.
pub fn taints_as_json(taints: &[Taint]) -> Value {
    let as_json = |Taint { key, value, effect, time_added }: &Taint| {
        let mut taint = json!({"key": key, "effect": effect});
        if !value.is_empty() {
            taint["value"] = json!(value);
        }
        if let Some(time_added) = time_added {
            taint["timeAdded"] = json!(time_added);
        }
        taint
    };
    taints.iter().map(as_json).collect()
}

/// The same patch as JSON patch operations, for a Node that changes all the time. Instead of the resourceVersion it tests
/// the values that it changes, and our annotations that people set. `has_annotations` is a guess, because not all annotations
/// are read. The API server refuses a wrong guess.
pub fn operations(node: &Node, patch: &restore::Patch, has_annotations: bool) -> Value {
    let mut operations = vec![json!({"op": "test", "path": "/metadata/uid", "value": patch.uid.as_str()})];
    let own = |key| node.value_of(Item::Annotation(key));
    if has_annotations {
        for key in [IGNORE, KEEP] {
            let path = pointer("/metadata/annotations", key);
            operations.push(json!({"op": "test", "path": path, "value": own(key)}));
        }
    }
    let marker = patch.marker.as_deref().map(|marker| (RESTORED, node.marker.as_deref(), marker));
    let restored = patch.annotations().map(|(key, value)| (key, own(key), value));
    operations.extend(change_all("annotations", has_annotations, marker.into_iter().chain(restored)));
    let labels = patch.labels().map(|(key, value)| (key, node.value_of(Item::Label(key)), value));
    operations.extend(change_all("labels", !node.labels.is_empty(), labels));
    if let Some(taints) = &patch.taints {
        let own = &node.extras.taints;
        let own = if own.is_empty() { Value::Null } else { taints_as_json(own) };
        operations.extend(change("/spec", "taints", own, taints_as_json(taints)));
    }
    if patch.cordons() {
        operations.extend(change("/spec", "unschedulable", Value::Null, true.into()));
    }
    Value::Array(operations)
}

/// Changes labels or annotations, given as key, present value and new value. If there are none yet, their object is added.
fn change_all<'a>(
    object: &str,
    is_there: bool,
    changes: impl Iterator<Item = (&'a str, Option<&'a str>, &'a str)>,
) -> Vec<Value> {
    if is_there {
        let path = format!("/metadata/{object}");
        return changes.flat_map(|(key, own, value)| change(&path, key, own.into(), value.into())).collect();
    }
    let all: BTreeMap<_, _> = changes.map(|(key, _, value)| (key, value)).collect();
    change("/metadata", object, Value::Null, json!(all))
}

/// Changes a member of an object if it has the value `from`; `null` stands for a missing member.
fn change(object: &str, key: &str, from: Value, to: Value) -> Vec<Value> {
    let path = pointer(object, key);
    vec![json!({"op": "test", "path": path, "value": from}), json!({"op": "add", "path": path, "value": to})]
}

fn pointer(object: &str, key: &str) -> String {
    format!("{object}/{}", key.replace('~', "~0").replace('/', "~1"))
}

#[cfg(test)]
mod tests {
    use label_storage::{ResourceVersion, Uid};

    use super::*;

    #[test]
    fn a_patch_carries_its_guards() {
        let mut patch = patch();
        let expected = json!({"metadata": {
            "uid": "u2",
            "resourceVersion": "77",
            "labels": {"k": "v"},
            "annotations": {"label-storage/restored": "u2/4", "example.com/owner": "me"},
        }});
        assert_eq!(merge_patch(&patch), expected);
        patch.restored.clear();
        patch.marker = None;
        let metadata = json!({"uid": "u2", "resourceVersion": "77", "labels": {}, "annotations": {}});
        assert_eq!(merge_patch(&patch), json!({"metadata": metadata}));
    }

    fn taint(key: &str, value: &str, time_added: Option<&str>) -> Taint {
        Taint {
            key: key.to_owned(),
            value: value.to_owned(),
            effect: "NoExecute".to_owned(),
            time_added: time_added.map(str::to_owned),
        }
    }

    #[test]
    fn operations_test_all_that_they_change() {
        let mut node = Node::new("a".to_owned(), "u2".to_owned(), "77", [].into(), None).expect("a node");
        let (mut patch, uid) = (patch(), json!({"op": "test", "path": "/metadata/uid", "value": "u2"}));
        let set = |path: &str, from: Value, to: Value| {
            [
                json!({"op": "test", "path": path, "value": from}),
                json!({"op": "add", "path": path, "value": to}),
            ]
        };
        let all = json!({"label-storage/restored": "u2/4", "example.com/owner": "me"});
        let mut expected = vec![uid.clone()];
        expected.extend(set("/metadata/annotations", Value::Null, all));
        expected.extend(set("/metadata/labels", Value::Null, json!({"k": "v"})));
        assert_eq!(operations(&node, &patch, false), json!(expected));

        node.labels = [("other".to_owned(), "x".to_owned())].into();
        node.marker = Some("u2/3".to_owned());
        node.extras.taints = vec![taint("a", "b", None)];
        patch.taints = Some(vec![taint("a", "b", None), taint("c", "", None)]);
        patch.restored.insert("cordon:".to_owned(), "true".to_owned());
        let mut expected = vec![uid];
        for key in ["ignore", "keep"] {
            let path = format!("/metadata/annotations/label-storage~1{key}");
            expected.push(json!({"op": "test", "path": path, "value": null}));
        }
        expected.extend(set("/metadata/annotations/label-storage~1restored", json!("u2/3"), json!("u2/4")));
        expected.extend(set("/metadata/annotations/example.com~1owner", Value::Null, json!("me")));
        expected.extend(set("/metadata/labels/k", Value::Null, json!("v")));
        let (a, c) = (
            json!({"key": "a", "value": "b", "effect": "NoExecute"}),
            json!({"key": "c", "effect": "NoExecute"}),
        );
        expected.extend(set("/spec/taints", json!([a]), json!([a, c])));
        expected.extend(set("/spec/unschedulable", Value::Null, json!(true)));
        assert_eq!(operations(&node, &patch, true), json!(expected));
    }

    #[test]
    fn taints_are_sent_as_a_whole() {
        let mut patch = patch();
        patch.taints = Some(vec![taint("a", "", Some("2026-11-16T03:31:15Z")), taint("b", "c", None)]);
        patch.restored.insert("cordon:".to_owned(), "true".to_owned());
        let spec = json!({
            "taints": [
                {"key": "a", "effect": "NoExecute", "timeAdded": "2026-11-16T03:31:15Z"},
                {"key": "b", "value": "c", "effect": "NoExecute"},
            ],
            "unschedulable": true,
        });
        assert_eq!(merge_patch(&patch)["spec"], spec);
        patch.taints = Some(Vec::new());
        assert_eq!(merge_patch(&patch)["spec"]["taints"], json!([]));
    }

    fn patch() -> restore::Patch {
        restore::Patch {
            uid: Uid::new("u2").expect("a uid"),
            version: ResourceVersion(77),
            restored: [("k", "v"), ("annotation:example.com/owner", "me")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
            conflicts: Vec::new(),
            withheld: Vec::new(),
            taints: None,
            lifts_startup_taint: false,
            marker: Some("u2/4".to_owned()),
            generation: 4,
        }
    }
}
