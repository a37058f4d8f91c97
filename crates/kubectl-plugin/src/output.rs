//! Tables for people, JSON and YAML for machines.

use std::io::{self, Write};

use anyhow::Result;
use console::measure_text_width;
use serde::Serialize;

use crate::cli::Format;

/// Prints a value for machines; says whether that was asked for.
pub(crate) fn for_machines(format: Format, value: &impl Serialize) -> Result<bool> {
    write_for_machines(format, value, &mut io::stdout().lock())
}

/// The same, written anywhere.
pub(crate) fn write_for_machines(
    format: Format,
    value: &impl Serialize,
    out: &mut impl Write,
) -> Result<bool> {
    match format {
        Format::Json => writeln!(out, "{}", serde_json::to_string_pretty(value)?)?,
        Format::Yaml => write!(out, "{}", serde_saphyr::to_string(value)?)?,
        Format::Table => return Ok(false),
    }
    Ok(true)
}

/// Columns that stand under each other, as kubectl has them: three spaces between them, and none at the end.
#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these heads.
    pub(crate) fn new<const N: usize>(heads: [&str; N]) -> Self {
        Self { rows: vec![heads.map(str::to_owned).into()] }
    }

    /// One more row.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// The table as text. Escapes for colours take no room.
    pub(crate) fn to_text(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or_default();
        let width = |column| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell: &String| measure_text_width(cell)).max().unwrap_or_default()
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                line += cell;
                line += &" ".repeat(width + 3 - measure_text_width(cell));
            }
            text += line.trim_end();
            text.push('\n');
        }
        text
    }

    /// Prints it.
    pub(crate) fn print(&self) -> Result<()> {
        Ok(io::stdout().lock().write_all(self.to_text().as_bytes())?)
    }
}

/// Text of somebody else's, for a terminal: what would move the cursor, end the line or turn it around is written out.
pub(crate) fn plain(text: &str) -> String {
    let is_harmful = |char: char| {
        let turns = matches!(char, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        char.is_control() || turns
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

/// A time span, as kubectl has it: two units at most.
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

/// "1 record", "2 records".
pub(crate) fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_under_each_other() {
        let mut table = Table::new(["NODE", "AGE"]);
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
}
