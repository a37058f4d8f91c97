//! A file taken apart into its documents, with their places in it. Memory holds one of them at a time.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek};
use std::os::unix::fs::FileExt;

/// The largest document: what a ConfigMap takes is a mebibyte, and YAML may need more for the same.
const MAX_BYTES: usize = 8 << 20;

/// Where a document is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    /// In bytes, from the beginning of the file.
    offset: u64,
    pub(super) bytes: usize,
    /// The line that it begins on, from 1.
    pub(super) line: u64,
}

/// A document, as far as it can be told from the others.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) place: Place,
    /// `None` where it is too large, or no text.
    pub(super) text: Option<String>,
}

/// Copies all of the input into a file without a name: it is read twice, and must not change meanwhile.
pub(super) fn spool(mut input: impl Read) -> io::Result<File> {
    let mut file = tempfile::tempfile()?;
    io::copy(&mut input, &mut file)?;
    file.rewind()?;
    Ok(file)
}

/// The text of a document that was read before.
pub(super) fn read_at(file: &File, place: Place) -> io::Result<String> {
    let mut bytes = vec![0; place.bytes];
    file.read_exact_at(&mut bytes, place.offset)?;
    String::from_utf8(bytes).map_err(io::Error::other)
}

/// The documents of a file, one after the other.
pub(super) struct Pieces<R> {
    input: BufReader<R>,
    offset: u64,
    line: u64,
    is_over: bool,
}

impl<R: Read> Pieces<R> {
    pub(super) fn new(input: R) -> Self {
        Self { input: BufReader::with_capacity(1 << 16, input), offset: 0, line: 1, is_over: false }
    }

    fn next_piece(&mut self) -> io::Result<Piece> {
        let mut place = Place { offset: self.offset, bytes: 0, line: self.line };
        let (mut text, mut line) = (Vec::new(), Vec::new());
        let mut is_too_large = false;
        loop {
            line.clear();
            // A line without an end is read in parts, lest all of it is in memory.
            let read = self.input.by_ref().take(MAX_BYTES as u64).read_until(b'\n', &mut line)?;
            self.offset += read as u64;
            self.line += u64::from(line.ends_with(b"\n"));
            self.is_over = read == 0;
            if self.is_over || is_mark(&line) {
                break;
            }
            place.bytes += read;
            is_too_large |= place.bytes > MAX_BYTES;
            if !is_too_large {
                text.extend_from_slice(&line);
            }
        }
        let text = if is_too_large { None } else { String::from_utf8(text).ok() };
        Ok(Piece { place, text })
    }
}

impl<R: Read> Iterator for Pieces<R> {
    type Item = io::Result<Piece>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.is_over {
            match self.next_piece() {
                Ok(piece) if piece.text.as_deref().is_some_and(is_blank) => (),
                other => return Some(other),
            }
        }
        None
    }
}

/// Whether a document begins, or ends, here. Within a text of several lines YAML forbids such a line, unless it is indented.
fn is_mark(line: &[u8]) -> bool {
    let rest = line.strip_prefix(b"---").or_else(|| line.strip_prefix(b"..."));
    rest.is_some_and(|rest| rest.trim_ascii().is_empty() || rest.starts_with(b" #"))
}

/// Whether nothing but comments stands there.
fn is_blank(text: &str) -> bool {
    text.lines().all(|line| line.trim_start().is_empty() || line.trim_start().starts_with('#'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(text: &str) -> Vec<(u64, Option<String>)> {
        let pieces = Pieces::new(text.as_bytes()).map(|piece| piece.expect("a piece"));
        pieces.map(|piece| (piece.place.line, piece.text)).collect()
    }

    fn some(line: u64, text: &str) -> (u64, Option<String>) {
        (line, Some(text.to_owned()))
    }

    #[test]
    fn documents_are_told_apart_and_their_lines_counted() {
        assert_eq!(pieces(""), []);
        assert_eq!(
            pieces("# head\n---\na: 1\n---\n# nothing\n---\nb: |\n  ---\n  x"),
            [some(3, "a: 1\n"), some(7, "b: |\n  ---\n  x")]
        );
        assert_eq!(pieces("a: 1\r\n---\r\nb: 2\r\n...\r\n"), [some(1, "a: 1\r\n"), some(3, "b: 2\r\n")]);
        assert_eq!(pieces("--- # one\na: 1\n---b\n"), [some(2, "a: 1\n---b\n")]);
    }

    #[test]
    fn what_is_too_large_or_no_text_is_told_of_and_the_rest_is_read() {
        let large = format!("a: {}\n---\nb: 1\n", "x".repeat(MAX_BYTES));
        assert_eq!(pieces(&large), [(1, None), some(3, "b: 1\n")]);
        let pieces: Vec<_> = Pieces::new(&b"a: \xff\n---\nb: 1\n"[..]).flatten().collect();
        assert_eq!(pieces[0].text, None);
        assert_eq!(pieces[1].text.as_deref(), Some("b: 1\n"));
    }

    #[test]
    fn a_document_is_found_again() {
        let file = spool(&b"# head\n---\na: 1\n---\nb: \xc3\xa4\n"[..]).expect("a file");
        let all: Vec<_> = Pieces::new(file.try_clone().expect("a file")).flatten().collect();
        for piece in &all {
            assert_eq!(read_at(&file, piece.place).ok(), piece.text);
        }
        assert_eq!(all.len(), 2);
    }
}
