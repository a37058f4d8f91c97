//! Printing records while they come in.

use std::io::Write;

use anyhow::Result;
use console::measure_text_width;
use jiff::Timestamp;

use super::shown::{Shown, ShownMachine};
use crate::cli::WideFormat as Format;
use crate::output::{age, plain};

/// So many rows have columns of one width: that of the widest among them, and among those before.
const BLOCK: usize = 500;

/// So much text is not kept for the sake of columns.
const LARGE: usize = 1 << 20;

/// Prints records as they come, and keeps no more of them than a block of rows.
pub(super) struct Stream<W> {
    out: W,
    format: Format,
    now: Timestamp,
    shown: usize,
    rows: Vec<Vec<String>>,
    /// How much text these are.
    size: usize,
    widths: Vec<usize>,
    /// What went wrong first: nobody can be told while a list is read.
    failed: Option<anyhow::Error>,
}

impl<W: Write> Stream<W> {
    pub(super) fn new(out: W, format: Format, now: Timestamp) -> Self {
        Self { out, format, now, shown: 0, rows: Vec::new(), size: 0, widths: Vec::new(), failed: None }
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
                let row = self.row(shown);
                self.size += row.iter().map(String::len).sum::<usize>();
                self.rows.push(row);
                if self.rows.len() < BLOCK && self.size < LARGE {
                    return Ok(());
                }
                self.block()
            }
        };
        Ok(self.out.write_all(text.as_bytes())?)
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
        self.out.write_all(text.as_bytes())?;
        self.out.flush()?;
        Ok(self.shown)
    }

    /// Where it was written to.
    pub(super) fn out(&mut self) -> &mut W {
        &mut self.out
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
        row.iter().map(|cell| plain(cell)).collect()
    }

    /// What has been collected, as text. The last column, which may be long, is followed by nothing, so it needs no width.
    fn block(&mut self) -> String {
        let rows = std::mem::take(&mut self.rows);
        self.size = 0;
        let columns = rows.first().map(Vec::len).unwrap_or_default();
        self.widths.resize(columns.max(self.widths.len()), 0);
        for row in &rows {
            for (width, cell) in self.widths.iter_mut().zip(row) {
                *width = (*width).max(measure_text_width(cell));
            }
        }
        let mut text = String::new();
        for row in &rows {
            let mut room = 0;
            for (cell, width) in row.iter().zip(&self.widths) {
                text.extend(std::iter::repeat_n(' ', room));
                text += cell;
                room = width + 3 - measure_text_width(cell);
            }
            text.truncate(text.trim_end().len());
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_any_before_and_nothing_is_kept() {
        let mut stream = Stream::new(Vec::new(), Format::Table, Timestamp::UNIX_EPOCH);
        let row = |cells: [&str; 2]| Vec::from(cells.map(str::to_owned));
        stream.rows = vec![row(["NODE", "STATE"]), row(["a-long-name", "present"])];
        assert_eq!(stream.block(), "NODE          STATE\na-long-name   present\n");
        stream.rows = vec![row(["b", "pending"])];
        assert_eq!(stream.block(), "b             pending\n");
        assert_eq!(stream.block(), "");
        let long = "x".repeat(70_000);
        stream.rows = vec![row(["c", &long]), row(["d", "-"])];
        assert_eq!(stream.block(), format!("c             {long}\nd             -\n"));
    }
}
