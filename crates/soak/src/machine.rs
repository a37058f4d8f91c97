//! Machines, which stay the same when their Node is deleted and re-created. They have the key of the record.

use k8s_openapi::api::core::v1 as core;
use label_storage::Rules;
use label_storage::node::STARTUP_TAINT;
use label_storage::rules::IdentityBy;

/// The suffix of a Node that returned under another name.
const RENAMED: &str = "-b";

/// The name of a machine's Node after this many registrations. If the rules do not identify Nodes by name, every third registration has
/// another name. The name stays until the Node was seen, so that a late create does not make two Nodes of one machine.
pub(crate) fn node_name(machine: &str, times: u64, rules: &Rules) -> String {
    let is_renamed = rules.identity != IdentityBy::Name && times % 3 == 2;
    format!("{machine}{}", if is_renamed { RENAMED } else { "" })
}

/// The machine of a Node.
pub(crate) fn of_node(node: &str) -> &str {
    node.strip_suffix(RENAMED).unwrap_or(node)
}

/// The prefix of all values of this machine, and of no other.
pub(crate) fn tag(machine: &str) -> String {
    format!("{}_", machine.rsplit('.').next().unwrap_or(machine))
}

/// The record key of a machine.
pub(crate) fn filed_under(machine: &str, rules: &Rules) -> String {
    match &rules.identity {
        IdentityBy::Name => machine.to_owned(),
        by => format!("{by}={}", identity(machine)),
    }
}

fn identity(machine: &str) -> String {
    format!("{}id", tag(machine))
}

/// Adds the identity of the machine and the start-up taint, as a kubelet does.
pub(crate) fn register(node: &mut core::Node, machine: &str, rules: &Rules) {
    let identity = identity(machine);
    match &rules.identity {
        IdentityBy::Name => {}
        IdentityBy::ProviderId => node.spec.get_or_insert_default().provider_id = Some(identity),
        IdentityBy::SystemUuid => {
            let status = node.status.get_or_insert_default();
            status.node_info.get_or_insert_default().system_uuid = identity;
        }
        IdentityBy::Label(key) => {
            node.metadata.labels.get_or_insert_default().insert(key.clone(), identity);
        }
        IdentityBy::Annotation(key) => {
            node.metadata.annotations.get_or_insert_default().insert(key.clone(), identity);
        }
    }
    if rules.startup_taint.is_some() {
        let (key, effect) = (STARTUP_TAINT.to_owned(), "NoSchedule".to_owned());
        let taint = core::Taint { key, effect, ..core::Taint::default() };
        node.spec.get_or_insert_default().taints.get_or_insert_default().push(taint);
    }
}

#[cfg(test)]
mod tests {
    use label_storage::Node;
    use label_storage::node::Machine;

    use super::*;

    #[test]
    fn a_machine_is_filed_where_the_daemons_file_it() {
        for by in ["providerID", "systemUUID", "label:example.com/slot", "annotation:example.com/slot"] {
            let rules = Rules { identity: by.parse().expect("an identity"), ..Rules::default() };
            let mut registered = core::Node::default();
            register(&mut registered, "node.n0007", &rules);
            let labels = registered.metadata.labels.unwrap_or_default();
            let mut node = Node::new("a".to_owned(), "u1".to_owned(), "1", labels, None).expect("a node");
            node.extras.annotations = registered.metadata.annotations.unwrap_or_default();
            let provider_id = registered.spec.and_then(|spec| spec.provider_id);
            let info = registered.status.and_then(|status| status.node_info);
            let machine = Machine { provider_id, system_uuid: info.map(|info| info.system_uuid) };
            node.extras.machine = machine;
            assert_eq!(node.filed(&rules).filed_under(), filed_under("node.n0007", &rules), "{by}");
        }
        assert_eq!(filed_under("node.n0007", &Rules::default()), "node.n0007");
    }

    #[test]
    fn only_a_machine_that_is_not_known_by_its_name_returns_under_another() {
        let names = |rules: &Rules| [0, 1, 2, 3].map(|times| node_name("n1", times, rules));
        assert_eq!(names(&Rules::default()), ["n1"; 4]);
        let by_provider = Rules { identity: IdentityBy::ProviderId, ..Rules::default() };
        assert_eq!(names(&by_provider), ["n1", "n1", "n1-b", "n1"]);
        assert_eq!(names(&by_provider).each_ref().map(|name| of_node(name)), ["n1"; 4]);
    }
}
