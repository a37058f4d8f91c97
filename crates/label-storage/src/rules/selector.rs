//! Selects Nodes by their labels, with the syntax of `kubectl --selector`.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use super::InvalidRule;
use crate::{Labels, label};

/// Requirements on the labels of a Node, all of which have to be met. By default none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selector(Vec<Requirement>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    key: String,
    /// `None` for any value.
    values: Option<BTreeSet<String>>,
    /// True if the label must be missing, or have another value.
    is_negated: bool,
}

impl Selector {
    /// True if a Node with these labels is selected.
    pub fn matches(&self, labels: &Labels) -> bool {
        self.0.iter().all(|Requirement { key, values, is_negated }| {
            let is_one = |value: &String| values.as_ref().is_none_or(|values| values.contains(value));
            labels.get(key).is_some_and(is_one) != *is_negated
        })
    }
}

impl FromStr for Selector {
    type Err = InvalidRule;

    fn from_str(text: &str) -> Result<Self, InvalidRule> {
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        let mut is_within = false;
        let parts = text.split(|c| {
            is_within = (is_within || c == '(') && c != ')';
            c == ',' && !is_within
        });
        parts.map(Requirement::parse).collect::<Result<_, _>>().map(Self)
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let requirements: Vec<_> = self.0.iter().map(Requirement::to_string).collect();
        f.write_str(&requirements.join(","))
    }
}

impl Requirement {
    fn parse(text: &str) -> Result<Self, InvalidRule> {
        let text = text.trim();
        if text.is_empty() {
            let reason = "a requirement is missing between two commas of the selector, or after the last one: remove a comma";
            return Err(InvalidRule(reason.to_owned()));
        }
        let wrong = || {
            InvalidRule(format!(
                "{text:?} is not a valid selector: write a=b, a!=b, a in (b,c), a notin (b,c), a or !a, with commas between them"
            ))
        };
        let (key, values, is_negated) = if let Some(key) = text.strip_prefix('!') {
            (key, None, true)
        } else if let Some((before, list)) = text.strip_suffix(')').and_then(|text| text.split_once('(')) {
            let (key, word) = before.trim_end().rsplit_once(char::is_whitespace).ok_or_else(wrong)?;
            // `a in ()` is a mistake; an empty value is written `a=` or `a in (,b)`.
            if !matches!(word, "in" | "notin") || list.trim().is_empty() {
                return Err(wrong());
            }
            (key, Some(list.split(',').map(value).collect::<Result<_, _>>()?), word == "notin")
        } else if let Some((key, other)) = text.split_once("!=") {
            (key, Some([value(other)?].into()), true)
        } else if let Some((key, equal)) = text.split_once('=') {
            (key, Some([value(equal.strip_prefix('=').unwrap_or(equal))?].into()), false)
        } else if text.contains(|c: char| c.is_whitespace() || matches!(c, '(' | ')' | '<' | '>')) {
            return Err(wrong());
        } else {
            (text, None, false)
        };
        let key = key.trim().to_owned();
        if !label::is_key(&key) {
            return Err(InvalidRule(format!("{key:?} is not a valid label key in a selector")));
        }
        Ok(Self { key, values, is_negated })
    }
}

fn value(text: &str) -> Result<String, InvalidRule> {
    let text = text.trim();
    if !label::is_value(text) {
        return Err(InvalidRule(format!("{text:?} is not a valid label value in a selector")));
    }
    Ok(text.to_owned())
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, values, is_negated } = self;
        let Some(values) = values else {
            return write!(f, "{}{key}", if *is_negated { "!" } else { "" });
        };
        let list = values.iter().map(String::as_str).collect::<Vec<_>>().join(",");
        match (values.len(), is_negated) {
            (1, false) => write!(f, "{key}={list}"),
            (1, true) => write!(f, "{key}!={list}"),
            (_, false) => write!(f, "{key} in ({list})"),
            (_, true) => write!(f, "{key} notin ({list})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn selector(text: &str) -> Selector {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn nodes_are_selected_as_kubectl_selects_them() {
        let labels: Labels = [("pool", "gold"), ("example.com/tier", ""), ("in", "x")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into();
        for (text, is_selected) in [
            ("", true),
            (" ", true),
            ("pool", true),
            ("pool=gold", true),
            ("pool==gold", true),
            (" pool = gold ", true),
            ("pool=silver", false),
            ("pool=", false),
            ("example.com/tier=", true),
            ("other=", false),
            ("pool!=gold", false),
            ("pool != silver", true),
            ("other!=gold", true),
            ("pool in (silver,gold)", true),
            ("pool in(gold)", true),
            ("pool in ( silver , gold )", true),
            ("pool in (silver)", false),
            ("other in (gold)", false),
            ("example.com/tier in (,a)", true),
            ("pool notin (silver)", true),
            ("pool notin (silver,gold)", false),
            ("other notin (gold)", true),
            ("!pool", false),
            ("! other", true),
            ("in", true),
            ("in in (x)", true),
            ("notin", false),
            ("pool=gold,!other", true),
            ("pool in (gold,silver),example.com/tier,in!=y", true),
            ("pool=gold,other", false),
        ] {
            assert_eq!(selector(text).matches(&labels), is_selected, "{text}");
        }
    }

    #[test]
    fn one_that_asks_for_nothing_is_the_default() {
        assert_eq!([selector(""), selector(" ")], [Selector::default(), Selector::default()]);
    }

    #[test]
    fn what_can_not_be_read_is_refused_with_advice() {
        for (text, advice) in [
            ("a,", "remove a comma"),
            (",", "remove a comma"),
            ("a,,b", "remove a comma"),
            ("a b", "\"a b\" is not a valid selector: write a=b"),
            ("a in b", "\"a in b\" is not a valid selector"),
            ("a in ()", "is not a valid selector"),
            ("a in (b", "is not a valid selector"),
            ("a in b)", "is not a valid selector"),
            ("a is (b)", "is not a valid selector"),
            ("in (b)", "is not a valid selector"),
            ("a>1", "is not a valid selector"),
            ("a b in (c)", "\"a b\" is not a valid label key"),
            ("a/b/c=d", "\"a/b/c\" is not a valid label key"),
            ("=b", "\"\" is not a valid label key"),
            ("!", "\"\" is not a valid label key"),
            ("!a=b", "\"a=b\" is not a valid label key"),
            ("a=b c", "\"b c\" is not a valid label value"),
            ("a===b", "\"=b\" is not a valid label value"),
            ("a in (b c)", "\"b c\" is not a valid label value"),
        ] {
            let refused = text.parse::<Selector>().expect_err(text).to_string();
            assert!(refused.contains(advice), "{text}: {refused}");
        }
    }

    #[test]
    fn it_is_written_as_it_is_read() {
        let text = "a=b,c!=d,e in (f,g),h notin (,i),j,!k";
        assert_eq!(selector(text).to_string(), text);
        assert_eq!(selector("a==b , c in ( d ),e notin (f, g)").to_string(), "a=b,c=d,e notin (f,g)");
    }

    /// A requirement as text, and what it asks for.
    fn requirement() -> impl Strategy<Value = (String, String, &'static str, Vec<String>)> {
        let value = "[xy]{0,1}";
        let values = proptest::collection::vec(value, 1..4)
            .prop_filter("not empty", |v| v.len() > 1 || !v[0].is_empty());
        prop_oneof![
            "[ab]".prop_map(|key| (key.clone(), key, "in", vec!["x".into(), "y".into(), "".into()])),
            "[ab]".prop_map(|key| (format!("!{key}"), key, "notin", vec!["x".into(), "y".into(), "".into()])),
            ("[ab]", value).prop_map(|(key, v)| (format!("{key}={v}"), key, "in", vec![v])),
            ("[ab]", value).prop_map(|(key, v)| (format!("{key} != {v}"), key, "notin", vec![v])),
            ("[ab]", values.clone()).prop_map(|(key, v)| (
                format!("{key} in ({})", v.join(", ")),
                key,
                "in",
                v
            )),
            ("[ab]", values).prop_map(|(key, v)| (format!("{key} notin ({})", v.join(",")), key, "notin", v)),
        ]
    }

    proptest! {
        /// Every test here is one of the last two in disguise, as long as no label has another value.
        #[test]
        fn it_selects_what_a_plain_reading_says(
            requirements in proptest::collection::vec(requirement(), 1..4),
            labels in proptest::collection::btree_map("[abc]", "[xy]{0,1}", 0..3),
        ) {
            let text = requirements.iter().map(|(text, ..)| text.as_str()).collect::<Vec<_>>().join(",");
            let expected = requirements.iter().all(|(_, key, word, values)| {
                let is_in = labels.get(key).is_some_and(|value| values.contains(value));
                is_in == (*word == "in")
            });
            let read = selector(&text);
            prop_assert_eq!(read.matches(&labels), expected, "{}", text);
            prop_assert_eq!(selector(&read.to_string()), read);
        }
    }
}
