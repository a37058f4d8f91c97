//! Output: tables for people, JSON, YAML and JSONPath for scripts.

use std::io::{self, Write};
use std::{ffi::OsStr, str::FromStr};

use anyhow::Result;
use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::{Arg, Command};
use serde::Serialize;
use tabwriter::TabWriter;

use crate::jsonpath::Template;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Format {
    Table,
    Wide,
    Name,
    Json,
    Yaml,
    JsonPath(Template),
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "table" => Self::Table,
            "wide" => Self::Wide,
            "name" => Self::Name,
            "json" => Self::Json,
            "yaml" => Self::Yaml,
            _ => Self::JsonPath(text.strip_prefix("jsonpath=").ok_or("unknown format")?.parse()?),
        })
    }
}

/// Reads one of these formats.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Formats(&'static [&'static str]);

pub(crate) const OF_LISTS: Formats = Formats(&["table", "wide", "name", "json", "yaml", "jsonpath="]);
pub(crate) const OF_OBJECTS: Formats = Formats(&["table", "json", "yaml", "jsonpath="]);

impl TypedValueParser for Formats {
    type Value = Format;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<Format, clap::Error> {
        let formats = self.0;
        let parse = move |text: String| match text.split_inclusive('=').next() {
            Some(format) if formats.contains(&format) => text.parse(),
            _ => Err(format!("write one of {}TEMPLATE", formats.join(", "))),
        };
        StringValueParser::new().try_map(parse).parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.0.iter().map(PossibleValue::new)))
    }
}

/// The version of the objects that commands print for scripts.
pub(crate) const API_VERSION: &str = "label-storage/v1";

/// An object for scripts.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Typed<T> {
    api_version: &'static str,
    kind: &'static str,
    #[serde(flatten)]
    content: T,
}

pub(crate) const fn typed<T>(kind: &'static str, content: T) -> Typed<T> {
    Typed { api_version: API_VERSION, kind, content }
}

impl Format {
    /// Prints an object for scripts; returns false if the format is one for people.
    pub(crate) fn print(&self, object: &impl Serialize) -> Result<bool> {
        let text = match self {
            Self::Json => serde_json::to_string_pretty(object)? + "\n",
            Self::Yaml => serde_saphyr::to_string(object)?,
            Self::JsonPath(template) => template.render(&serde_json::to_value(object)?)?,
            Self::Table | Self::Wide | Self::Name => return Ok(false),
        };
        print(&text).map(|()| true)
    }
}

pub(crate) fn print(text: &str) -> Result<()> {
    Ok(io::stdout().lock().write_all(text.as_bytes())?)
}

/// A table as kubectl prints it: three spaces between columns, none at the end of a line.
#[derive(Debug, Default)]
pub(crate) struct Table(String);

impl Table {
    pub(crate) fn new(heads: &[&str]) -> Self {
        Self(heads.join("\t") + "\n")
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.0 += &(Vec::from_iter(cells).join("\t") + "\n");
    }

    pub(crate) fn to_text(&self) -> String {
        let mut columns = TabWriter::new(Vec::new()).minwidth(0).padding(3).ansi(true);
        // Writing to memory does not fail.
        _ = columns.write_all(self.0.as_bytes());
        let text = columns.into_inner().unwrap_or_default();
        String::from_utf8_lossy(&text).lines().map(|line| format!("{}\n", line.trim_end())).collect()
    }
}

/// Text for a terminal: characters that move the cursor, end the line or reverse it are escaped.
pub(crate) fn plain(text: &str) -> String {
    let is_harmful = |char: char| {
        let reverses = matches!(char, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        char.is_control() || reverses
    };
    let escape = |char| if is_harmful(char) { char.escape_default().to_string() } else { char.to_string() };
    if text.contains(is_harmful) { text.chars().map(escape).collect() } else { text.to_owned() }
}

/// A number of things: "1 record", "2 records".
pub(crate) fn counted(count: usize, thing: &str) -> String {
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}

/// A time span as kubectl prints it: two units at most.
pub(crate) fn age(duration: jiff::SignedDuration) -> String {
    let seconds = duration.as_secs().max(0);
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600, seconds / 60);
    match seconds {
        ..120 => format!("{seconds}s"),
        120..600 => format!("{minutes}m{}s", seconds % 60).replace("m0s", "m"),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => format!("{hours}h{}m", minutes % 60).replace("h0m", "h"),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => format!("{days}d{}h", hours % 24).replace("d0h", "d"),
        _ => format!("{days}d"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_under_each_other() {
        let mut table = Table::new(&["NODE", "AGE"]);
        table.row(["a".to_owned(), "5s".to_owned()]);
        table.row(["\x1b[31mlonger\x1b[0m".to_owned(), "6d".to_owned()]);
        assert_eq!(table.to_text(), "NODE     AGE\na        5s\n\x1b[31mlonger\x1b[0m   6d\n");
    }

    #[test]
    fn nothing_that_is_shown_can_forge_what_is_around_it() {
        for (text, shown) in [
            ("pool=gold", "pool=gold"),
            ("größe=日本", "größe=日本"),
            (r"a\nb", r"a\nb"),
            ("a\n+b=1\r\t", r"a\n+b=1\r\t"),
            ("\x1b[2J\x1b]0;x\x07", r"\u{1b}[2J\u{1b}]0;x\u{7}"),
            ("a\u{9b}31m\u{202e}b\u{2028}", r"a\u{9b}31m\u{202e}b\u{2028}"),
        ] {
            assert_eq!(plain(text), shown);
        }
    }

    #[test]
    fn ages_are_as_kubectl_has_them() {
        for (seconds, text) in [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (150, "2m30s"),
            (3600, "60m"),
            (10_900, "3h1m"),
            (100_000, "27h"),
            (200_000, "2d7h"),
            (900_000, "10d"),
        ] {
            assert_eq!(age(jiff::SignedDuration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn formats_are_named_as_kubectl_names_them() {
        assert_eq!("wide".parse(), Ok(Format::Wide));
        assert!(matches!("jsonpath={.node}".parse(), Ok(Format::JsonPath(_))));
        for bad in ["", "xml", "jsonpath", "jsonpath={"] {
            assert!(bad.parse::<Format>().is_err(), "{bad}");
        }
    }
}
