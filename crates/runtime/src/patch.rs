//! A patch of a Node, as it is sent: with the guards, and all of it or nothing.

use std::collections::BTreeMap;

use label_storage::Node;
use label_storage::item::Item;
use label_storage::node::{IGNORE, KEEP, RESTORED, Taint};
use label_storage::restore;
use serde::Serialize;
use serde_json::{Value, json};

/// What is sent: labels and marker in one, so that both are there or neither; uid and resourceVersion, so that the API
/// server refuses it (422, 409) where the Node is another or has changed.
#[derive(Debug, Serialize)]
pub struct Body<'a> {
    metadata: Metadata<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    spec: Option<Spec<'a>>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    uid: &'a str,
    resource_version: String,
    labels: BTreeMap<&'a str, Option<&'a str>>,
    annotations: BTreeMap<&'a str, Option<&'a str>>,
}

#[derive(Debug, Serialize)]
struct Spec<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    taints: Option<Vec<WrittenTaint<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unschedulable: Option<bool>,
}

#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct WrittenTaint<'a> {
    key: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    value: &'a str,
    effect: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    time_added: Option<&'a str>,
}

impl<'a> From<&'a Taint> for WrittenTaint<'a> {
    fn from(Taint { key, value, effect, time_added }: &'a Taint) -> Self {
        Self { key, value, effect, time_added: time_added.as_deref() }
    }
}

impl<'a> From<&'a restore::Patch> for Body<'a> {
    fn from(patch: &'a restore::Patch) -> Self {
        let marker = patch.marker.as_deref().map(|marker| (RESTORED, marker));
        let metadata = Metadata {
            uid: patch.uid.as_str(),
            resource_version: patch.version.to_string(),
            labels: patch.labels().map(|(key, value)| (key, Some(value))).collect(),
            annotations: patch.annotations().chain(marker).map(|(key, value)| (key, Some(value))).collect(),
        };
        let taints = patch.taints.as_ref().map(|taints| taints.iter().map(WrittenTaint::from).collect());
        Self::new(metadata, taints, patch.cordons().then_some(true))
    }
}

impl<'a> Body<'a> {
    /// Gives a Node that was just read these values, by the names of what is kept (see [`Item`]); `None` takes one away. A name that
    /// stands for nothing is left out.
    pub fn changing(node: &'a Node, changes: &'a BTreeMap<String, Option<String>>) -> Self {
        let mut metadata = Metadata {
            uid: node.uid.as_str(),
            resource_version: node.version.to_string(),
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
        };
        let before: Vec<_> = node.extras.taints.iter().map(WrittenTaint::from).collect();
        let mut taints: Vec<_> = node.extras.taints.iter().map(WrittenTaint::from).collect();
        let mut unschedulable = None;
        for (name, value) in changes {
            let value = value.as_deref();
            match Item::parse(name) {
                Some(Item::Label(key)) => _ = metadata.labels.insert(key, value),
                Some(Item::Annotation(key)) => _ = metadata.annotations.insert(key, value),
                Some(Item::Taint { effect, key }) => change_taint(&mut taints, effect, key, value),
                Some(Item::Cordon) => unschedulable = Some(value.is_some()),
                None => (),
            }
        }
        let taints = (taints != before).then_some(taints);
        Self::new(metadata, taints, unschedulable)
    }

    fn new(
        metadata: Metadata<'a>,
        taints: Option<Vec<WrittenTaint<'a>>>,
        unschedulable: Option<bool>,
    ) -> Self {
        let has_spec = taints.is_some() || unschedulable.is_some();
        Self { metadata, spec: has_spec.then_some(Spec { taints, unschedulable }) }
    }
}

/// The same patch as a list of operations that test what they change, and what a person says with annotations, instead of the
/// resourceVersion: for Nodes that change all the time. Of annotations only those that were asked for are known, so nobody knows whether
/// the Node has any: a wrong guess is refused.
pub fn operations(node: &Node, patch: &restore::Patch, has_annotations: bool) -> Value {
    let mut operations =
        Operations(vec![json!({"op": "test", "path": "/metadata/uid", "value": patch.uid.as_str()})]);
    let marker = patch.marker.as_deref().map(|marker| (RESTORED, node.marker.as_deref(), marker));
    let own = |key| node.value_of(Item::Annotation(key));
    let given = patch.annotations().map(|(key, value)| (key, own(key), value));
    if has_annotations {
        for key in [IGNORE, KEEP] {
            operations.test("/metadata/annotations", key, own(key));
        }
        for (key, own, value) in marker.into_iter().chain(given) {
            operations.change("/metadata/annotations", key, own.into(), value.into());
        }
    } else {
        let all: BTreeMap<_, _> =
            marker.into_iter().chain(given).map(|(key, _, value)| (key, value)).collect();
        operations.change("/metadata", "annotations", Value::Null, json!(all));
    }
    if node.labels.is_empty() {
        let all: BTreeMap<_, _> = patch.labels().collect();
        operations.change("/metadata", "labels", Value::Null, json!(all));
    } else {
        for (key, value) in patch.labels() {
            operations.change("/metadata/labels", key, node.value_of(Item::Label(key)).into(), value.into());
        }
    }
    if let Some(taints) = &patch.taints {
        let written = |taints: &[Taint]| json!(taints.iter().map(WrittenTaint::from).collect::<Vec<_>>());
        let own = Some(&node.extras.taints).filter(|taints| !taints.is_empty());
        operations.change(
            "/spec",
            "taints",
            own.map_or(Value::Null, |taints| written(taints)),
            written(taints),
        );
    }
    if patch.cordons() {
        operations.change("/spec", "unschedulable", Value::Null, true.into());
    }
    Value::Array(operations.0)
}

/// Operations of a JSON patch.
struct Operations(Vec<Value>);

impl Operations {
    /// A member of an object has this value, or is not there.
    fn test(&mut self, object: &str, key: &str, value: Option<&str>) {
        self.0.push(json!({"op": "test", "path": pointer(object, key), "value": value}));
    }

    /// A member of an object gets another value, if it has this one. `null`: it is not there.
    fn change(&mut self, object: &str, key: &str, from: Value, to: Value) {
        let path = pointer(object, key);
        self.0.push(json!({"op": "test", "path": path, "value": from}));
        self.0.push(json!({"op": "add", "path": path, "value": to}));
    }
}

fn pointer(object: &str, key: &str) -> String {
    format!("{object}/{}", key.replace('~', "~0").replace('/', "~1"))
}

fn change_taint<'a>(
    taints: &mut Vec<WrittenTaint<'a>>,
    effect: &'a str,
    key: &'a str,
    value: Option<&'a str>,
) {
    let place = taints.iter().position(|taint| taint.effect == effect && taint.key == key);
    match (place, value) {
        (Some(place), Some(value)) => taints[place].value = value,
        (Some(place), None) => _ = taints.remove(place),
        (None, Some(value)) => taints.push(WrittenTaint { key, value, effect, time_added: None }),
        (None, None) => (),
    }
}

#[cfg(test)]
mod tests {
    use label_storage::{ResourceVersion, Uid};

    use super::*;

    fn body(body: &Body<'_>) -> Value {
        serde_json::to_value(body).expect("JSON")
    }

    #[test]
    fn a_patch_carries_its_guards() {
        let mut patch = patch();
        let expected = json!({"metadata": {
            "uid": "u2",
            "resourceVersion": "77",
            "labels": {"k": "v"},
            "annotations": {"label-storage/restored": "u2/4", "example.com/owner": "me"},
        }});
        assert_eq!(body(&Body::from(&patch)), expected);
        patch.restored.clear();
        patch.marker = None;
        let metadata = json!({"uid": "u2", "resourceVersion": "77", "labels": {}, "annotations": {}});
        assert_eq!(body(&Body::from(&patch)), json!({"metadata": metadata}));
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
        assert_eq!(body(&Body::from(&patch))["spec"], spec);
        patch.taints = Some(Vec::new());
        assert_eq!(body(&Body::from(&patch))["spec"]["taints"], json!([]));
    }

    #[test]
    fn what_is_changed_may_go() {
        let mut node = Node::new("a".to_owned(), "u2".to_owned(), "77", [].into(), None).expect("a node");
        node.extras.taints = vec![taint("a", "b", None), taint("kept", "", None)];
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
        assert_eq!(body(&Body::changing(&node, &changes)), expected);
        let changes = [("taint:NoExecute:a".to_owned(), Some("b".to_owned()))].into();
        assert_eq!(
            body(&Body::changing(&node, &changes)).get("spec"),
            None,
            "no other taints than there are"
        );
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
