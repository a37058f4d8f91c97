//! Tables whose entries are not filed by name.

use proptest::prelude::*;

use super::*;

const K: &str = "providerID=k";
const L: &str = "providerID=l";

fn uid(name: &str) -> UidDigest {
    Uid::new(name).expect("a uid").digest()
}

/// A Node whose uid is its name.
fn named(name: &str, at: u64) -> NodeSummary {
    NodeSummary { uid: uid(name), ..node(at) }
}

fn filed<'a>(under: &'a str, name: &'a str) -> Filed<'a> {
    Filed { under, name }
}

fn see(cache: &mut Cache, under: &str, name: &str, at: u64) -> bool {
    cache.see_node(None, filed(under, name), named(name, at))
}

/// The claimants of an entry, in the order of their names.
fn claimants(cache: &Cache, under: &str) -> Vec<(String, u64)> {
    let entry = cache.get(under);
    let all = entry.iter().flat_map(Entry::claimants);
    let mut all: Vec<_> = all.map(|(name, node)| (name.to_string(), node.version.0)).collect();
    all.sort();
    all
}

/// The Node that an entry shows, and its version.
fn shown(cache: &Cache, under: &str) -> Option<(String, u64)> {
    let entry = cache.get(under)?;
    entry.node().map(|node| (entry.node_name().to_owned(), node.version.0))
}

fn at(name: &str, version: u64) -> Option<(String, u64)> {
    Some((name.to_owned(), version))
}

fn is_contested(cache: &Cache, under: &str) -> bool {
    cache.get(under).is_some_and(|entry| entry.is_contested())
}

fn left(cache: &mut Cache) -> Vec<String> {
    cache.take_left().iter().map(ToString::to_string).collect()
}

#[test]
fn a_row_knows_the_name_of_its_node() {
    let mut cache = Cache::default();
    assert!(see(&mut cache, K, "a", 5));
    assert_eq!(shown(&cache, K), at("a", 5));
    assert_eq!(cache.get(K).map(|entry| entry.key().to_string()).as_deref(), Some(K));
    assert!(cache.get("a").is_none());
    let mut by_name = Cache::default();
    by_name.see_node(None, "a", named("a", 5));
    assert_eq!(shown(&by_name, "a"), at("a", 5));
}

#[test]
fn a_row_without_a_node_knows_whom_to_ask_for() {
    let mut cache = Cache::default();
    let name = |cache: &Cache| cache.get(K).map(|entry| entry.node_name().to_owned());
    cache.see_record(None, filed(K, "stored"), version(3), record());
    assert_eq!(name(&cache).as_deref(), Some("stored"));
    cache.see_record(None, K, version(4), record());
    assert_eq!(name(&cache).as_deref(), Some("stored"), "what an attempt has read does not say");
    see(&mut cache, K, "a", 5);
    assert_eq!(name(&cache).as_deref(), Some("a"));
    cache.lose_node(filed(K, "a"), version(6));
    cache.see_record(None, filed(K, "stored"), version(7), record());
    assert_eq!(name(&cache).as_deref(), Some("a"), "the version of its deletion is known, too");
}

#[test]
fn a_node_that_changes_its_identity_leaves_its_row_for_certain() {
    let mut cache = Cache::default();
    see(&mut cache, K, "a", 5);
    assert!(see(&mut cache, L, "a", 7));
    assert_eq!((shown(&cache, K), shown(&cache, L)), (None, at("a", 7)));
    assert!(cache.get(K).is_some_and(|entry| entry.is_surely_gone()));
    assert_eq!(left(&mut cache), [K]);
    assert_eq!(left(&mut cache), [""; 0]);
    assert!(!see(&mut cache, K, "a", 6), "it was there before");
    assert_eq!((shown(&cache, K), shown(&cache, L)), (None, at("a", 7)));
    // To another shard, and back.
    cache.see_elsewhere(None, "a", version(6), false);
    assert_eq!(shown(&cache, L), at("a", 7), "that was before");
    cache.see_elsewhere(None, "a", version(8), false);
    assert_eq!(left(&mut cache), [L]);
    assert_eq!(shown(&cache, L), None);
    assert!(cache.get(L).is_some_and(|entry| entry.is_surely_gone()));
    assert!(!see(&mut cache, L, "a", 7));
    assert!(see(&mut cache, L, "a", 9));
}

#[test]
fn a_list_tells_of_nodes_that_went_to_another_shard() {
    let mut cache = Cache::default();
    see(&mut cache, K, "a", 5);
    let list = cache.begin_list();
    cache.see_elsewhere(Some(list), "a", version(7), false);
    cache.see_elsewhere(Some(list), "never-ours", version(6), false);
    assert!(!cache.end_list_of_nodes(list, version(9)), "nothing is missing");
    assert!(cache.get(K).is_some_and(|entry| entry.is_surely_gone()));
    assert_eq!(left(&mut cache), [K]);
}

#[test]
fn a_list_that_is_under_way_does_not_bring_back_what_went_elsewhere() {
    for may_be_listed in [true, false] {
        let mut cache = Cache::default();
        let list = cache.begin_list();
        cache.see_elsewhere(None, "a", version(7), may_be_listed);
        let is_news = cache.see_node(Some(list), filed(K, "a"), named("a", 5));
        assert_eq!(is_news, !may_be_listed);
        cache.end_list_of_nodes(list, version(6));
        cache.forget_gone(|_| false);
        assert!(see(&mut cache, K, "a", 8));
    }
}

#[test]
fn a_node_that_is_given_an_identity_late_leaves_the_row_of_its_name() {
    let mut cache = Cache::default();
    see(&mut cache, "a", "a", 5);
    assert_eq!((shown(&cache, "a"), count(&cache).0), (at("a", 5), 1));
    assert!(see(&mut cache, K, "a", 6));
    assert_eq!((shown(&cache, "a"), shown(&cache, K)), (None, at("a", 6)));
    assert_eq!((left(&mut cache), count(&cache).0), (vec!["a".to_owned()], 1));
    assert!(see(&mut cache, "a", "a", 7), "and it may lose it again");
    assert!(cache.get(K).is_some_and(|entry| entry.is_surely_gone()));
}

#[test]
fn a_row_is_contested_until_one_is_deleted() {
    let mut cache = Cache::default();
    see(&mut cache, K, "a", 5);
    assert!(!is_contested(&cache, K));
    assert!(see(&mut cache, K, "b", 3), "it is news, though it is older");
    assert!(is_contested(&cache, K));
    assert_eq!(claimants(&cache, K), [("a".to_owned(), 5), ("b".to_owned(), 3)]);
    assert_eq!(count(&cache).0, 2);
    assert!(cache.lose_node(filed(K, "a"), version(9)));
    assert!(!is_contested(&cache, K));
    assert_eq!(shown(&cache, K), at("b", 3));
    let entry = cache.get(K).expect("an entry");
    assert_eq!((entry.is_surely_gone(), entry.versions().0), (false, version(3)), "it is the other's");
    assert_eq!(left(&mut cache), [""; 0]);
}

#[test]
fn a_row_is_contested_until_a_list_lacks_one() {
    let mut cache = Cache::default();
    see(&mut cache, K, "a", 5);
    see(&mut cache, K, "b", 6);
    let list = cache.begin_list();
    cache.see_node(Some(list), filed(K, "b"), named("b", 6));
    assert!(cache.end_list_of_nodes(list, version(9)));
    assert_eq!((is_contested(&cache, K), shown(&cache, K)), (false, at("b", 6)));
    let list = cache.begin_list();
    for name in ["a", "b"] {
        cache.see_node(Some(list), filed(K, name), named(name, if name == "a" { 5 } else { 6 }));
    }
    cache.end_list_of_nodes(list, version(10));
    assert!(is_contested(&cache, K), "it is there again");
    let list = cache.begin_list();
    cache.end_list_of_nodes(list, version(11));
    let entry = cache.get(K).expect("an entry");
    assert_eq!((entry.node(), entry.is_surely_gone()), (None, false), "no list is certain");
}

#[test]
fn a_row_is_contested_until_one_changes_its_identity() {
    let mut cache = Cache::default();
    see(&mut cache, K, "a", 5);
    see(&mut cache, K, "b", 6);
    see(&mut cache, L, "a", 7);
    assert_eq!((shown(&cache, K), shown(&cache, L)), (at("b", 6), at("a", 7)));
    assert!(!is_contested(&cache, K) && !is_contested(&cache, L));
    assert_eq!(left(&mut cache), [K]);
    // And until one is asked for and not found.
    see(&mut cache, L, "b", 8);
    assert_eq!(shown(&cache, L), at("a", 7), "who came first is shown");
    cache.miss_node(L);
    assert_eq!(claimants(&cache, L), [("b".to_owned(), 8)]);
}

#[test]
fn a_deletion_tells_whether_others_claimed_the_same_then() {
    let mut cache = Cache::default();
    see(&mut cache, K, "a", 5);
    see(&mut cache, K, "b", 20);
    let had_others =
        |cache: &Cache, name, at| cache.get(K).is_some_and(|entry| entry.had_others(name, version(at)));
    assert!(!had_others(&cache, "a", 10), "the other may have come after it");
    assert!(had_others(&cache, "a", 21));
    assert!(had_others(&cache, "b", 22));
    see(&mut cache, K, "b", 30);
    assert!(had_others(&cache, "a", 25), "the other was there at 20");
    // Another incarnation of it has not been.
    cache.see_node(None, filed(K, "b"), named("another-uid", 40));
    assert!(!had_others(&cache, "a", 35));
    assert!(!had_others(&cache, "b", 4) && had_others(&cache, "b", 41));
}

#[test]
fn what_is_filed_otherwise_than_the_rules_ask_for_is_not_missing_a_node() {
    let mut cache = Cache::default();
    cache.see_record(None, filed(K, "a"), version(1), record());
    cache.see_record(None, "b", version(2), record());
    cache.see_node(None, "b", named("b", 3));
    assert_eq!(cache.missing(RecordKey::is_identity), (1, 1));
    assert_eq!(cache.missing(|key| !key.is_identity()), (0, 1));
}

#[test]
fn a_node_that_somebody_may_still_have_seen_is_remembered() {
    let mut cache = Cache::default();
    for has_work in [true, false] {
        see(&mut cache, K, "a", 5);
        cache.lose_node(filed(K, "a"), version(7));
        cache.forget_gone(|name| has_work && &**name == K);
        assert_eq!(see(&mut cache, K, "a", 6), !has_work);
    }
}

/// A message to the cache.
#[derive(Debug, Clone)]
enum Told {
    Seen { name: usize, under: usize, at: u64 },
    Elsewhere { name: usize, at: u64 },
    Deleted { name: usize, under: usize, at: u64 },
    Missed { under: usize },
    Listed { present: Vec<(usize, Option<usize>, u64)>, at: u64 },
}

const NAMES: [&str; 3] = ["a", "b", "c"];
const KEYS: [&str; 2] = [K, L];

fn told() -> impl Strategy<Value = Told> {
    let (name, under, at) = (0..NAMES.len(), 0..KEYS.len(), 1..20u64);
    let present = (name.clone(), proptest::option::of(under.clone()), at.clone());
    prop_oneof![
        4 => (name.clone(), under.clone(), at.clone()).prop_map(|(name, under, at)| Told::Seen { name, under, at }),
        2 => (name.clone(), at.clone()).prop_map(|(name, at)| Told::Elsewhere { name, at }),
        2 => (name, under.clone(), at.clone()).prop_map(|(name, under, at)| Told::Deleted { name, under, at }),
        1 => under.prop_map(|under| Told::Missed { under }),
        2 => (proptest::collection::vec(present, 0..4), at).prop_map(|(present, at)| Told::Listed { present, at }),
    ]
}

/// Only the newest version of each Node.
#[derive(Default, Clone, Copy)]
struct Newest {
    at: u64,
    under: Option<usize>,
    has_been_told_of: bool,
}

impl Newest {
    fn see(&mut self, under: Option<usize>, at: u64) {
        // Nodes that were never in this shard are not kept.
        let is_noted = under.is_some() || self.has_been_told_of;
        if is_noted && (at > self.at || at == self.at && self.under.is_none()) {
            *self = Self { at, under, has_been_told_of: true };
        }
    }

    fn lose(&mut self, at: u64, is_sure: bool) {
        if at >= self.at {
            self.under = None;
        }
        if is_sure {
            (self.at, self.has_been_told_of) = (self.at.max(at), true);
        }
    }
}

proptest! {
    #[test]
    fn a_row_shows_those_who_claim_it_whatever_is_told(all in proptest::collection::vec(told(), 1..30)) {
        let (mut cache, mut model) = (Cache::default(), [Newest::default(); 3]);
        for told in &all {
            match told {
                Told::Seen { name, under, at } => {
                    see(&mut cache, KEYS[*under], NAMES[*name], *at);
                    model[*name].see(Some(*under), *at);
                }
                Told::Elsewhere { name, at } => {
                    cache.see_elsewhere(None, NAMES[*name], version(*at), false);
                    model[*name].see(None, *at);
                }
                Told::Deleted { name, under, at } => {
                    cache.lose_node(filed(KEYS[*under], NAMES[*name]), version(*at));
                    model[*name].lose(*at, true);
                }
                Told::Missed { under } => {
                    if let Some((name, at)) = shown(&cache, KEYS[*under]) {
                        let name = NAMES.iter().position(|other| *other == name).expect("one of them");
                        model[name].lose(at, true);
                    }
                    cache.miss_node(KEYS[*under]);
                }
                Told::Listed { present, at } => {
                    let list = cache.begin_list();
                    for (name, under, at) in present {
                        match under {
                            Some(under) => {
                                cache.see_node(Some(list), filed(KEYS[*under], NAMES[*name]), named(NAMES[*name], *at));
                            }
                            None => cache.see_elsewhere(Some(list), NAMES[*name], version(*at), false),
                        }
                        model[*name].see(*under, *at);
                    }
                    cache.end_list_of_nodes(list, version(*at));
                    for (name, newest) in model.iter_mut().enumerate() {
                        if present.iter().all(|(listed, ..)| *listed != name) {
                            newest.lose(*at, false);
                        }
                    }
                }
            }
            for (under, key) in KEYS.iter().enumerate() {
                let expected = model.iter().zip(NAMES).filter(|(newest, _)| newest.under == Some(under));
                let expected: Vec<_> = expected.map(|(newest, name)| (name.to_owned(), newest.at)).collect();
                prop_assert_eq!(claimants(&cache, key), expected.clone(), "{}", key);
                prop_assert_eq!(is_contested(&cache, key), expected.len() > 1);
                let shown = shown(&cache, key);
                prop_assert_eq!(shown.is_some(), !expected.is_empty());
                prop_assert!(shown.is_none_or(|shown| expected.contains(&shown)));
            }
        }
    }
}

#[test]
fn an_incarnation_that_is_stored_under_another_key_is_a_stranger() {
    let of = |name: &str, is_empty| match record() {
        Stored::Record(record) => Stored::Record(RecordSummary { uid: Some(uid(name)), is_empty, ..record }),
        other => other,
    };
    let mut cache = Cache::default();
    see(&mut cache, K, "a", 5);
    cache.see_record(None, filed(K, "b"), version(3), of("b", false));
    assert!(!is_contested(&cache, K), "nothing is stored of it elsewhere: it is the machine that returned");
    cache.see_stored(None, uid("a"), L);
    assert!(is_contested(&cache, K), "its record is in another shard");
    cache.see_record(None, filed(K, "b"), version(4), of("b", true));
    assert!(!is_contested(&cache, K), "an empty record has nothing to take");
    cache.see_record(None, filed(K, "a"), version(5), of("a", false));
    assert!(!is_contested(&cache, K), "it is stored under this key now");

    // Until the other record is gone, by a watch or by a list.
    for by_list in [false, true] {
        cache.see_stored(None, uid("a"), L);
        let now = if by_list { 7 } else { 6 };
        cache.see_record(None, filed(K, "b"), version(now), of("b", false));
        assert!(is_contested(&cache, K));
        if by_list {
            let list = cache.begin_list();
            cache.see_record(Some(list), filed(K, "b"), version(now), of("b", false));
            cache.end_list_of_records(list, version(9));
        } else {
            cache.forget_stored(uid("a"), K);
            assert!(is_contested(&cache, K), "another record of it");
            cache.forget_stored(uid("a"), L);
        }
        assert!(!is_contested(&cache, K));
    }
}
