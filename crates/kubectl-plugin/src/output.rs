//! Output: tables for people, JSON, YAML and JSONPath for scripts.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::str::FromStr;

use anyhow::Result;
use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::{Arg, Command};
use console::measure_text_width;
use serde::Serialize;

use crate::jsonpath::Template;

/// An output format.
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
        match (text, text.split_once('=')) {
            ("table", _) => Ok(Self::Table),
            ("wide", _) => Ok(Self::Wide),
            ("name", _) => Ok(Self::Name),
            ("json", _) => Ok(Self::Json),
            ("yaml", _) => Ok(Self::Yaml),
            (_, Some(("jsonpath", template))) => Ok(Self::JsonPath(template.parse()?)),
            _ => Err("there is no such format".to_owned()),
        }
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
        let parse = move |text: String| {
            let is_one =
                |format: &&str| text == *format || format.ends_with('=') && text.starts_with(*format);
            match formats.iter().any(is_one) {
                true => text.parse(),
                false => Err(format!("write one of {}TEMPLATE", formats.join(", "))),
            }
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
        print(&text)?;
        Ok(true)
    }
}

pub(crate) fn print(text: &str) -> Result<()> {
    Ok(io::stdout().lock().write_all(text.as_bytes())?)
}

/// A table as kubectl prints it: three spaces between columns, none at the end of a line.
#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(heads: &[&str]) -> Self {
        Self { rows: vec![heads.iter().map(|head| (*head).to_owned()).collect()] }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    pub(crate) fn to_text(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or_default();
        let width = |column| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell: &String| measure_text_width(cell)).max().unwrap_or_default()
        };
        // The last column needs no width.
        let widths: Vec<usize> =
            (0..columns).map(|column| if column + 1 < columns { width(column) } else { 0 }).collect();
        let mut text = String::new();
        for row in &self.rows {
            let begin = text.len();
            for (cell, width) in row.iter().zip(&widths) {
                text += cell;
                text.extend(std::iter::repeat_n(' ', (width + 3).saturating_sub(measure_text_width(cell))));
            }
            text.truncate(begin + text[begin..].trim_end().len());
            text.push('\n');
        }
        text
    }
}

/// Text for a terminal: characters that move the cursor, end the line or reverse it are escaped.
pub(crate) fn plain(text: &str) -> String {
    let is_harmful = |char: char| {
        let reverses = matches!(char, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        char.is_control() || reverses
    };
    let mut plain = String::with_capacity(text.len());
    for char in text.chars() {
        match is_harmful(char) {
            true => plain.extend(char.escape_default()),
            false => plain.push(char),
        }
    }
    plain
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
