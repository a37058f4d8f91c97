//! kubectl's JSONPath templates: `{.items[*].node}`, `{range .items[*]}{.node}{"\n"}{end}`.

use std::str::FromStr;

use anyhow::{Result, anyhow};
use jsonpath_rust::JsonPath;
use serde_json::Value;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Template(Vec<Part>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    /// A path in the syntax of RFC 9535.
    Path(String),
    Range(String, Vec<Part>),
}

impl FromStr for Template {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // kubectl also takes a path without braces.
        let text = if text.contains('{') { text.to_owned() } else { format!("{{{text}}}") };
        Ok(Self(parse(&mut text.as_str(), false)?))
    }
}

/// Parses up to the end of the text, or up to `{end}` within a range.
fn parse(rest: &mut &str, is_range: bool) -> Result<Vec<Part>, String> {
    let mut parts = Vec::new();
    while let Some(begin) = rest.find('{') {
        if begin > 0 {
            parts.push(Part::Text(rest[..begin].to_owned()));
        }
        let length = rest[begin..].find('}').ok_or("a { has no }")?;
        let inner = rest[begin + 1..begin + length].trim();
        *rest = &rest[begin + length + 1..];
        match inner.split_once(char::is_whitespace) {
            _ if inner == "end" && is_range => return Ok(parts),
            _ if inner == "end" => return Err("{end} has no {range}".to_owned()),
            Some(("range", path)) => parts.push(Part::Range(rfc_path(path)?, parse(rest, true)?)),
            _ if inner.starts_with('"') => {
                let text = serde_json::from_str(inner).map_err(|error| format!("{{{inner}}}: {error}"))?;
                parts.push(Part::Text(text));
            }
            _ => parts.push(Part::Path(rfc_path(inner)?)),
        }
    }
    if is_range {
        return Err("{range} has no {end}".to_owned());
    }
    if !rest.is_empty() {
        parts.push(Part::Text((*rest).to_owned()));
    }
    Ok(parts)
}

/// The same path as RFC 9535 writes it: names in brackets, since kubectl's may have `\.` and `/` in them.
fn rfc_path(path: &str) -> Result<String, String> {
    let mut rest = path.trim().trim_start_matches(['$', '@']);
    let mut out = "$".to_owned();
    while !rest.is_empty() {
        let end = if rest.starts_with('[') {
            let end = rest.find(']').ok_or_else(|| format!("{path}: a [ has no ]"))? + 1;
            out += &rest[..end];
            end
        } else {
            let dots = rest.len() - rest.trim_start_matches('.').len();
            let is_end =
                |(at, byte): &(usize, u8)| matches!(byte, b'.' | b'[') && !rest[..*at].ends_with('\\');
            let bytes = rest.bytes().enumerate().skip(dots);
            let end = bytes.clone().find(is_end).map_or(rest.len(), |(at, _)| at);
            let name = rest[dots..end].replace("\\.", ".");
            out += if dots > 1 { ".." } else { "" };
            out += &if name.is_empty() || name == "*" { "[*]".to_owned() } else { format!("['{name}']") };
            end
        };
        rest = &rest[end..];
    }
    if path.trim() == "." {
        out = "$".to_owned();
    }
    jsonpath_rust::parser::parse_json_path(&out).map_err(|error| format!("{path}: {error}"))?;
    Ok(out)
}

impl Template {
    pub(crate) fn render(&self, value: &Value) -> Result<String> {
        let mut text = String::new();
        render(&self.0, value, &mut text)?;
        Ok(text)
    }
}

fn render(parts: &[Part], value: &Value, text: &mut String) -> Result<()> {
    let query = |path: &String| value.query(path).map_err(|error| anyhow!("{path}: {error}"));
    for part in parts {
        match part {
            Part::Text(literal) => text.push_str(literal),
            Part::Path(path) => {
                let found: Vec<_> = query(path)?.into_iter().map(shown).collect();
                text.push_str(&found.join(" "));
            }
            Part::Range(path, inner) => {
                query(path)?.into_iter().try_for_each(|value| render(inner, value, text))?;
            }
        }
    }
    Ok(())
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
