//! Entries that another storer's rules have set aside, after another machine got the Node's name.

use super::*;
use crate::fixtures::node;

#[test]
fn of_what_is_set_aside_only_trust_waits_for_its_machine() {
    let tier = "node-restriction.kubernetes.io/tier";
    let leftover = |record: Record, name: &str, value: &str| {
        let (data_key, value) = key::encode_entry(name, value);
        record.leftover(&data_key, &value)
    };
    let first = record("a", "u1").label("zone", "a").machine("A");
    let first = leftover(leftover(leftover(first, tier, "x"), "pool", "gold"), "history:2", "damaged");
    let left = |machine: &str| {
        let node = node("a").incarnation("u2").label("zone", "a").machine(machine).marked("u2/4");
        let next = first.retaken(&node, second(2), &Rules::default());
        let withheld =
            next.more.withheld.iter().map(|(name, kept)| (name.clone(), kept.machine.system_uuid.clone()));
        (withheld.collect::<Vec<_>>(), next.leftovers.data.into_keys().collect::<Vec<_>>())
    };
    let trust = key::encode(tier);
    let (withheld, leftovers) = left("B");
    assert_eq!(withheld, [(tier.to_owned(), Some("A".to_owned()))]);
    assert_eq!(leftovers, ["history-COLON-2", "pool"]);
    let (withheld, leftovers) = left("A");
    assert_eq!(withheld, []);
    assert_eq!(leftovers, ["history-COLON-2", trust.as_str(), "pool"]);
}
