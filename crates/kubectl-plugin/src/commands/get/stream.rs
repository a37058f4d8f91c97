//! Printing records while they come in.

use std::io::{self, Write};

use anyhow::Result;
use jiff::Timestamp;

use super::shown::{Shown, ShownMachine};
use crate::cli::Format;
use crate::output::age;

/// So many rows have columns of one width: that of the widest among them, and among those before.
const BLOCK: usize = 500;

/// Prints records as they come, and keeps no more of them than a block of rows.
pub(super) struct Stream {
    format: Format,
    now: Timestamp,
    shown: usize,
    rows: Vec<Vec<String>>,
    widths: Vec<usize>,
    /// What went wrong first: nobody can be told while a list is read.
    failed: Option<anyhow::Error>,
}

impl Stream {
    pub(super) fn new(format: Format, now: Timestamp) -> Self {
        Self { format, now, shown: 0, rows: Vec::new(), widths: Vec::new(), failed: None }
    }

    /// One more.
    pub(super) fn show(&mut self, shown: &Shown) {
        if self.failed.is_none() {
            self.failed = self.try_to_show(shown).err();
        }
        self.shown += 1;
    }

    fn try_to_show(&mut self, shown: &Shown) -> Result<()> {
        let text = match self.format {
            Format::Json => {
                let item = serde_json::to_string_pretty(shown)?.replace('\n', "\n    ");
                let before = if self.shown == 0 { "{\n  \"items\": [" } else { "," };
                format!("{before}\n    {item}")
            }
            Format::Yaml => {
                let before = if self.shown == 0 { "items:\n" } else { "" };
                format!("{before}{}", serde_saphyr::to_string(&[shown])?)
            }
            Format::Table | Format::Wide => {
                if self.shown == 0 {
                    self.rows.push(self.heads());
                }
                self.rows.push(self.row(shown));
                if self.rows.len() < BLOCK {
                    return Ok(());
                }
                self.block()
            }
        };
        Ok(io::stdout().lock().write_all(text.as_bytes())?)
    }

    /// The rest. Says how many there were.
    pub(super) fn end(&mut self) -> Result<usize> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let text = match (self.format, self.shown) {
            (Format::Json, 0) => "{\n  \"items\": []\n}\n".to_owned(),
            (Format::Json, _) => "\n  ]\n}\n".to_owned(),
            (Format::Yaml, 0) => "items: []\n".to_owned(),
            (Format::Yaml, _) => String::new(),
            (Format::Table | Format::Wide, _) => self.block(),
        };
        io::stdout().lock().write_all(text.as_bytes())?;
        Ok(self.shown)
    }

    fn heads(&self) -> Vec<String> {
        let usual = ["NODE", "STATE", "GENERATION", "AGE", "GONE", "KEPT", "WITHHELD"];
        let wide = ["INCARNATION", "MACHINE", "FILED-UNDER", "RECORD", "STORED"];
        let wide = if self.format == Format::Wide { &wide[..] } else { &[] };
        usual.iter().chain(wide).map(|head| (*head).to_owned()).collect()
    }

    fn row(&self, shown: &Shown) -> Vec<String> {
        let none = || "-".to_owned();
        let since = |at: Option<Timestamp>| at.map_or_else(none, |at| age(self.now.duration_since(at)));
        let text = |text: Option<&str>| text.map_or_else(none, str::to_owned);
        let mut row = vec![
            shown.node.clone(),
            shown.state.as_str().to_owned(),
            shown.generation.map_or_else(none, |generation| generation.to_string()),
            since(shown.captured_at),
            since(shown.departed_at),
            shown.kept.len().to_string(),
            shown.withheld.len().to_string(),
        ];
        if self.format == Format::Wide {
            let stored: Vec<_> = shown.kept.iter().map(|(name, value)| format!("{name}={value}")).collect();
            row.extend([
                text(shown.node_uid.as_deref()),
                text(shown.machine.as_ref().map(ShownMachine::name)),
                text(shown.filed_under.as_deref()),
                shown.record.clone(),
                shown.problem.clone().unwrap_or_else(|| stored.join(",")),
            ]);
        }
        row
    }

    /// What has been collected, as text.
    fn block(&mut self) -> String {
        let rows = std::mem::take(&mut self.rows);
        let columns = rows.first().map(Vec::len).unwrap_or_default();
        self.widths.resize(columns.max(self.widths.len()), 0);
        for row in &rows {
            for (width, cell) in self.widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let line = |row: &Vec<String>| {
            let cells = row.iter().zip(&self.widths).map(|(cell, &width)| format!("{cell:<width$}   "));
            format!("{}\n", cells.collect::<String>().trim_end())
        };
        rows.iter().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_any_before_and_nothing_is_kept() {
        let mut stream = Stream::new(Format::Table, Timestamp::UNIX_EPOCH);
        let row = |cells: [&str; 2]| Vec::from(cells.map(str::to_owned));
        stream.rows = vec![row(["NODE", "STATE"]), row(["a-long-name", "present"])];
        assert_eq!(stream.block(), "NODE          STATE\na-long-name   present\n");
        stream.rows = vec![row(["b", "pending"])];
        assert_eq!(stream.block(), "b             pending\n");
        assert_eq!(stream.block(), "");
    }
}
