//! kubectl's JSONPath templates: `{.items[*].node}`, `{range .items[*]}{.node}{"\n"}{end}`.

use std::str::FromStr;

use anyhow::{Result, anyhow};
use jsonpath_rust::{JsonPath, parser::parse_json_path};
use regex::{Captures, Regex};
use serde_json::Value;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Template(Vec<Part>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    /// A path in the syntax of RFC 9535.
    Path(String),
    Range(String, Template),
}

impl FromStr for Template {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // kubectl also takes a path without braces.
        let text = if text.contains('{') { text.to_owned() } else { format!("{{{text}}}") };
        parse(&mut text.as_str(), false)
    }
}

/// Parses up to the end of the text, or up to `{end}` within a range.
fn parse(rest: &mut &str, is_range: bool) -> Result<Template, String> {
    let mut parts = Vec::new();
    while let Some((text, after)) = rest.split_once('{') {
        let (inner, after) = after.split_once('}').ok_or("a { has no }")?;
        parts.push(Part::Text(text.to_owned()));
        *rest = after;
        let part = match inner.trim() {
            "end" if is_range => return Ok(Template(parts)),
            "end" => return Err("{end} has no {range}".to_owned()),
            text if text.starts_with('"') => {
                Part::Text(serde_json::from_str(text).map_err(|error| format!("{{{text}}}: {error}"))?)
            }
            path => match path.strip_prefix("range ") {
                Some(path) => Part::Range(rfc_path(path)?, parse(rest, true)?),
                None => Part::Path(rfc_path(path)?),
            },
        };
        parts.push(part);
    }
    if is_range {
        return Err("{range} has no {end}".to_owned());
    }
    parts.push(Part::Text((*rest).to_owned()));
    Ok(Template(parts))
}

/// The same path in the syntax of RFC 9535: names are in brackets, because kubectl's may contain `\.` and `/`.
fn rfc_path(path: &str) -> Result<String, String> {
    let step = Regex::new(r"\[[^\]]*\]|(\.*)((?:\\.|[^.\[])+)").map_err(|error| error.to_string())?;
    let rewrite = |step: &Captures<'_>| match (step.get(1), step.get(2)) {
        (Some(dots), Some(name)) => {
            let deep = if dots.len() > 1 { ".." } else { "" };
            let name = name.as_str().replace("\\.", ".");
            if name == "*" { format!("{deep}[*]") } else { format!("{deep}['{name}']") }
        }
        _ => step[0].to_owned(),
    };
    // A single dot is the whole object.
    let steps = path.trim().trim_start_matches(['$', '@']).trim_end_matches('.');
    let path = format!("${}", step.replace_all(steps, rewrite));
    parse_json_path(&path).map_err(|error| format!("{path}: {error}"))?;
    Ok(path)
}

impl Template {
    pub(crate) fn render(&self, value: &Value) -> Result<String> {
        let query = |path: &String| value.query(path).map_err(|error| anyhow!("{path}: {error}"));
        let rendered = self.0.iter().map(|part| match part {
            Part::Text(text) => Ok(text.clone()),
            Part::Path(path) => Ok(query(path)?.into_iter().map(shown).collect::<Vec<_>>().join(" ")),
            Part::Range(path, inner) => query(path)?.into_iter().map(|value| inner.render(value)).collect(),
        });
        rendered.collect()
    }
}

fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn templates_are_kubectls() {
        let value = json!({"items": [
            {"node": "a", "kept": {"example.com/rack": "1"}, "generation": 3},
            {"node": "b", "kept": {"pool": "gold"}, "generation": 4},
        ]});
        for (template, text) in [
            ("{.items[*].node}", "a b"),
            (".items[0].node", "a"),
            ("{$.items[-1:].node}", "b"),
            ("n={.items[0].generation}!", "n=3!"),
            ("{range .items[*]}{.node}{\"\\t\"}{.generation}{\"\\n\"}{end}", "a\t3\nb\t4\n"),
            (r"{.items[0].kept.example\.com/rack}", "1"),
            ("{.items[?(@.node=='b')].kept.pool}", "gold"),
            ("{..pool}", "gold"),
            ("{.items[0].kept}", r#"{"example.com/rack":"1"}"#),
            ("{.nothing}", ""),
        ] {
            let rendered =
                template.parse::<Template>().and_then(|it| it.render(&value).map_err(|e| e.to_string()));
            assert_eq!(rendered.as_deref(), Ok(text), "{template}");
        }
        for bad in ["{.items", "{end}", "{range .items[*]}x", "{.items[}", "{\"x}"] {
            assert!(bad.parse::<Template>().is_err(), "{bad}");
        }
    }
}
