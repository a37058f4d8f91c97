//! Machines, and their Nodes of realistic size: more than 10 KB each, most of which Label Storage does not read.

use anyhow::Context;
use k8s_openapi::api::core::v1::ConfigMap;
use label_storage::node::RESTORED;
use label_storage::{Labels, Node, Record, ResourceVersion, Uid};
use serde_json::{Value, json};

use crate::meta::Meta;

/// Half of the maximum that a kubelet reports by default.
const IMAGES: u32 = 25;

/// A machine. Its number determines everything else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Machine(pub(crate) u32);

/// The labels of a Node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dress {
    /// The labels that the kubelet sets when it registers the Node.
    Bare,
    /// These, and the labels that people and controllers add.
    Whole,
}

impl Machine {
    /// The first `count` machines.
    pub(crate) fn first(count: u32) -> Vec<Self> {
        (0..count).map(Self).collect()
    }

    /// The name of its Node.
    pub(crate) fn name(self) -> String {
        format!("worker-{:06}.eu-north-1.compute.internal", self.0)
    }

    /// The machine whose Node has this name.
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        let (number, _) = name.strip_prefix("worker-")?.split_once('.')?;
        number.parse().ok().map(Self)
    }

    fn own_labels(self) -> Labels {
        [
            ("kubernetes.io/arch", "amd64".to_owned()),
            ("kubernetes.io/hostname", self.name()),
            ("kubernetes.io/os", "linux".to_owned()),
            ("node.kubernetes.io/instance-type", "m7i.2xlarge".to_owned()),
        ]
        .map(|(key, value)| (key.to_owned(), value))
        .into()
    }

    /// The labels that people and controllers add. They are lost with the Node, and the restorer adds them again.
    pub(crate) fn given_labels(self) -> Labels {
        let number = self.0 as usize;
        [
            ("example.com/rack", format!("rack-{:04}", number / 40)),
            ("example.com/team", ["payments", "search", "storage"][number % 3].to_owned()),
            ("node-role.kubernetes.io/worker", String::new()),
            ("topology.kubernetes.io/zone", format!("eu-north-1{}", ["a", "b", "c"][number % 3])),
        ]
        .map(|(key, value)| (key.to_owned(), value))
        .into()
    }

    pub(crate) fn labels(self) -> Labels {
        let mut labels = self.own_labels();
        labels.extend(self.given_labels());
        labels
    }

    /// True if these labels include all that people and controllers add.
    pub(crate) fn is_whole(self, labels: &Labels) -> bool {
        self.given_labels().iter().all(|(key, value)| labels.get(key) == Some(value))
    }

    /// The Node of this machine. One create is enough: the API server keeps a Node's status and most of its managed fields as sent.
    pub(crate) fn node(self, dress: Dress) -> Value {
        let labels = match dress {
            Dress::Bare => self.own_labels(),
            Dress::Whole => self.labels(),
        };
        let number = self.0;
        let (high, low) = ((number >> 8) & 0xff, number & 0xff);
        json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": self.name(),
                "labels": labels,
                "annotations": {
                    "alpha.kubernetes.io/provided-node-ip": format!("10.{}.{high}.{low}", number >> 16),
                    "csi.volume.kubernetes.io/nodeid": format!("{{\"ebs.csi.example.com\":\"i-{number:017x}\"}}"),
                    "node.alpha.kubernetes.io/ttl": "0",
                    "volumes.kubernetes.io/controller-managed-attach-detach": "true",
                },
                "managedFields": self.managed_fields(dress),
            },
            "spec": {
                "podCIDR": format!("100.{high}.{low}.0/24"),
                "podCIDRs": [format!("100.{high}.{low}.0/24")],
                "providerID": format!("cloud:///eu-north-1a/i-{number:017x}"),
            },
            "status": self.status(),
        })
    }

    /// A Node with only metadata, as it is stored in etcd.
    pub(crate) fn light_node(self) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": self.name(),
                "uid": self.uid(0),
                "creationTimestamp": self.time(0),
                "labels": self.labels(),
            },
        })
    }

    /// A uid that no other object has, and that compresses as badly as a real one.
    pub(crate) fn uid(self, which: u32) -> String {
        let [high, low] = [2 * which, 2 * which + 1].map(|half| spread(self.0, 2_000 + half));
        let last = low & 0xffff_ffff_ffff;
        format!(
            "{:08x}-{:04x}-4{:03x}-8{:03x}-{last:012x}",
            high >> 32,
            high & 0xffff,
            (high >> 16) & 0xfff,
            low >> 52
        )
    }

    fn status(self) -> Value {
        let number = self.0;
        let (high, low) = ((number >> 8) & 0xff, number & 0xff);
        let resources = |cpu: &str, memory: &str| {
            json!({
                "cpu": cpu, "memory": memory, "pods": "58", "ephemeral-storage": "104845292Ki",
                "hugepages-1Gi": "0", "hugepages-2Mi": "0",
            })
        };
        let images: Vec<Value> = (0..IMAGES)
            .map(|image| {
                // Each machine has other digests: with equal ones, the list would compress far better than a real one.
                let digest = format!("{:032x}{:032x}", spread(number, image), spread(image, number));
                let repository = format!("registry.eu-north-1.example.com/platform/services/service-{image:02}");
                json!({
                    "names": [format!("{repository}@sha256:{digest}"), format!("{repository}:v1.{image}.{}", number % 7)],
                    "sizeBytes": 20_000_000 + u64::from(spread(number, image) as u32 % 400_000_000),
                })
            })
            .collect();
        json!({
            "addresses": [
                {"type": "InternalIP", "address": format!("10.{}.{high}.{low}", number >> 16)},
                {"type": "InternalDNS", "address": self.name()},
                {"type": "Hostname", "address": self.name()},
            ],
            "capacity": resources("8", "32467124Ki"),
            "allocatable": resources("7910m", "31450292Ki"),
            "conditions": CONDITIONS.map(|(kind, status, reason, message)| json!({
                "type": kind, "status": status, "reason": reason, "message": message,
                "lastHeartbeatTime": self.time(1), "lastTransitionTime": self.time(0),
            })),
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "nodeInfo": {
                "machineID": format!("ec2{number:029x}"),
                "systemUUID": format!("ec2{number:05x}-4f2a-11ee-be56-0242ac120002"),
                "bootID": format!("{number:08x}-7c1b-4c1d-9d3e-5a6b7c8d9e0f"),
                "kernelVersion": "6.12.40-63.114.cloud2023.x86_64",
                "osImage": "Cloud Linux 2023.9.20261103",
                "containerRuntimeVersion": "containerd://2.1.4",
                "kubeletVersion": "v1.36.3",
                "kubeProxyVersion": "",
                "operatingSystem": "linux",
                "architecture": "amd64",
            },
            "images": images,
        })
    }

    /// A time, to the second, which differs by machine and by `which`.
    fn time(self, which: u32) -> String {
        const BEGAN: i64 = 1_793_491_200;
        const MONTH: u64 = 30 * 24 * 3_600;
        let seconds = i64::try_from(spread(self.0, 1_000 + which) % MONTH).unwrap_or_default();
        jiff::Timestamp::from_second(BEGAN + seconds).map(|time| time.to_string()).unwrap_or_default()
    }

    /// The managed fields. On a create, the API server assigns all fields of `metadata` and `spec` that the object has to the creator.
    /// Entries of other managers stay only for fields of the status, or for fields that the object does not have. So the entries of
    /// people are for labels that the Node does not have: they have the usual size, and no effect. A bare Node has no such entries.
    fn managed_fields(self, dress: Dress) -> Vec<Value> {
        let entry = |which: u32, manager: &str, subresource: &str, fields: Value| {
            json!({
                "manager": manager, "operation": "Update", "apiVersion": "v1", "time": self.time(which),
                "fieldsType": "FieldsV1", "fieldsV1": fields, "subresource": subresource,
            })
        };
        let condition = |kind: &str| {
            let fields = json!({
                ".": {}, "f:type": {}, "f:status": {}, "f:reason": {}, "f:message": {},
                "f:lastHeartbeatTime": {}, "f:lastTransitionTime": {},
            });
            (format!("k:{{\"type\":\"{kind}\"}}"), fields)
        };
        let conditions: serde_json::Map<String, Value> =
            CONDITIONS.iter().skip(1).map(|(kind, ..)| condition(kind)).collect();
        let route: serde_json::Map<String, Value> = [condition("NetworkUnavailable")].into_iter().collect();
        let address = |kind: &str| {
            (format!("k:{{\"type\":\"{kind}\"}}"), json!({".": {}, "f:address": {}, "f:type": {}}))
        };
        let addresses: serde_json::Map<String, Value> =
            ["Hostname", "InternalDNS", "InternalIP"].map(address).into_iter().collect();
        let resources = json!({
            ".": {}, "f:cpu": {}, "f:ephemeral-storage": {}, "f:hugepages-1Gi": {}, "f:hugepages-2Mi": {},
            "f:memory": {}, "f:pods": {},
        });
        let info = [
            "architecture",
            "bootID",
            "containerRuntimeVersion",
            "kernelVersion",
            "kubeProxyVersion",
            "kubeletVersion",
            "machineID",
            "operatingSystem",
            "osImage",
            "systemUUID",
        ];
        let info: serde_json::Map<String, Value> =
            info.map(|field| (format!("f:{field}"), json!({}))).into_iter().collect();
        let labels = json!({
            "f:example.com/former-rack": {}, "f:example.com/former-team": {},
            "f:example.com/former-cost-centre": {}, "f:example.com/maintenance-window": {},
        });
        let annotations = json!({"f:example.com/former-owner": {}, "f:example.com/former-ticket": {}});
        let status = json!({
            "f:addresses": addresses, "f:allocatable": resources, "f:capacity": resources,
            "f:conditions": conditions, "f:daemonEndpoints": {"f:kubeletEndpoint": {"f:Port": {}}},
            "f:images": {}, "f:nodeInfo": info,
        });
        let mut entries = vec![
            entry(2, "kube-controller-manager", "status", json!({"f:status": {"f:conditions": route}})),
            entry(3, "kubelet", "status", json!({"f:status": status})),
        ];
        if dress == Dress::Whole {
            entries.push(entry(4, "kubectl-label", "", json!({"f:metadata": {"f:labels": labels}})));
            let annotations = json!({"f:metadata": {"f:annotations": annotations}});
            entries.push(entry(5, "kubectl-annotate", "", annotations));
        }
        entries
    }

    /// The patch that restores the labels of a Node, as the restorer would send it for a record of this generation.
    pub(crate) fn restoring_patch(self, node: &Meta, generation: u64) -> Value {
        json!({"metadata": {
            "uid": node.uid,
            "resourceVersion": node.version.to_string(),
            "labels": self.given_labels(),
            "annotations": {RESTORED: format!("{}/{generation}", node.uid)},
        }})
    }

    /// The patch that removes everything that a restorer adds.
    pub(crate) fn stripping_patch(self) -> Value {
        let labels: serde_json::Map<String, Value> =
            self.given_labels().into_keys().map(|key| (key, Value::Null)).collect();
        json!({"metadata": {"labels": labels, "annotations": {RESTORED: null}}})
    }

    /// The record of its Node, as the storer would create it.
    pub(crate) fn record(self, node: &Meta) -> anyhow::Result<ConfigMap> {
        let node = Node {
            name: self.name(),
            uid: Uid::new(node.uid.clone()).context("a node without a usable uid")?,
            version: ResourceVersion(node.version),
            labels: self.labels(),
            marker: None,
            extras: Default::default(),
        };
        let mut config_map = ConfigMap::default();
        Record::of(&node, jiff::Timestamp::now()).encode_into(&mut config_map)?;
        Ok(config_map)
    }
}

/// A kubelet's regular status update, without a change.
pub(crate) fn heartbeat(now: jiff::Timestamp) -> Value {
    let now = jiff::Timestamp::from_second(now.as_second()).unwrap_or(now).to_string();
    // The first is the route controller's.
    let own = CONDITIONS.iter().skip(1);
    let conditions: Vec<Value> =
        own.map(|(kind, ..)| json!({"type": kind, "lastHeartbeatTime": now})).collect();
    json!({"status": {"conditions": conditions}})
}

const CONDITIONS: [(&str, &str, &str, &str); 5] = [
    ("NetworkUnavailable", "False", "RouteCreated", "RouteController created a route"),
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
];

/// A pseudo-random number, the same for the same arguments.
fn spread(a: u32, b: u32) -> u64 {
    // SplitMix64: one step and the finalizer.
    let mut z = (u64::from(a) << 32 | u64::from(b)).wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_as_large_as_in_life() {
        for dress in [Dress::Bare, Dress::Whole] {
            let bytes = serde_json::to_vec(&Machine(12_345).node(dress)).unwrap().len();
            assert!((10_000..16_000).contains(&bytes), "{bytes}");
        }
        assert_eq!(Machine(1).labels().len(), 8);
    }

    #[test]
    fn a_node_is_a_node() {
        let node = Machine(99_999).node(Dress::Whole);
        let node: k8s_openapi::api::core::v1::Node = serde_json::from_value(node).unwrap();
        assert_eq!(node.status.and_then(|status| status.images).map(|images| images.len()), Some(25));
        assert_eq!(node.metadata.managed_fields.map(|fields| fields.len()), Some(4));
    }

    #[test]
    fn a_machine_is_found_by_its_name() {
        for number in [0, 7, 999_999, 1_234_567] {
            assert_eq!(Machine::of_name(&Machine(number).name()), Some(Machine(number)));
        }
        assert_eq!(Machine::of_name("kubernetes.io"), None);
        assert_eq!(Machine::of_name("worker-x.y"), None);
    }

    #[test]
    fn only_all_that_people_gave_is_whole() {
        let machine = Machine(5);
        assert!(machine.is_whole(&machine.labels()));
        assert!(!machine.is_whole(&machine.own_labels()));
        let mut labels = machine.labels();
        labels.insert("example.com/team".to_owned(), "nobody".to_owned());
        assert!(!machine.is_whole(&labels));
    }

    #[test]
    fn a_record_and_a_patch_are_what_the_daemons_write() {
        let meta = Meta { name: Machine(3).name(), uid: "u1".to_owned(), version: 9, ..Meta::default() };
        let record = Machine(3).record(&meta).unwrap();
        let decoded = Record::decode(&record).unwrap();
        assert!(decoded.damage.is_empty());
        assert_eq!(decoded.record.labels, Machine(3).labels());
        let patch = Machine(3).restoring_patch(&meta, 2);
        assert_eq!(patch["metadata"]["annotations"][RESTORED], "u1/2");
        assert_eq!(patch["metadata"]["resourceVersion"], "9");
    }
}
