//! Draws a terminal session: lines of text with colours, which appear one command after the other, and scroll.
//!
//! The SVG needs no script, so it also plays where it is embedded as an image. Readers who prefer reduced motion, and viewers without
//! animation, get the first screen.

use std::fmt::Write;

/// Width and height of a character, in pixels.
const CELL: (f64, f64) = (8.4, 18.0);
/// The space around the text, in pixels.
const MARGIN: f64 = 16.0;
/// Width and height of the terminal, in characters.
pub(crate) const SCREEN: (usize, usize) = (110, 30);
/// The eight colours of a terminal.
const COLOURS: [&str; 8] =
    ["#7f848e", "#e06c75", "#98c379", "#e5c07b", "#61afef", "#c678dd", "#56b6c2", "#dcdfe4"];

/// A command and its output.
pub(crate) struct Scene {
    pub(crate) typed: String,
    /// With escape codes for colours.
    pub(crate) output: String,
}

/// A piece of a line in one style.
#[derive(Debug, Clone, Default, PartialEq)]
struct Span {
    text: String,
    style: Style,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Style {
    bold: bool,
    dim: bool,
    colour: Option<usize>,
}

impl Style {
    /// The style after an escape code such as `1;31`.
    fn after(mut self, codes: &str) -> Self {
        for code in codes.split(';') {
            match code.parse().unwrap_or(0) {
                1 => self.bold = true,
                2 => self.dim = true,
                22 => (self.bold, self.dim) = (false, false),
                39 => self.colour = None,
                colour @ (30..=37 | 90..=97) => self.colour = Some(colour % 10),
                0 => self = Self::default(),
                _ => {}
            }
        }
        self
    }
}

/// The lines of a text, as a terminal of this width shows them.
fn lines(text: &str) -> Vec<Vec<Span>> {
    let mut style = Style::default();
    let mut all = Vec::new();
    for line in text.lines() {
        let (mut spans, mut column) = (vec![Span { style, ..Span::default() }], 0);
        let mut rest = line;
        while let Some(character) = rest.chars().next() {
            if let Some((codes, after)) = rest.strip_prefix("\x1b[").and_then(|rest| rest.split_once('m')) {
                style = style.after(codes);
                spans.push(Span { style, ..Span::default() });
                rest = after;
                continue;
            }
            if column == SCREEN.0 {
                all.push(std::mem::replace(&mut spans, vec![Span { style, ..Span::default() }]));
                column = 0;
            }
            if let Some(span) = spans.last_mut() {
                span.text.push(character);
            }
            column += 1;
            rest = &rest[character.len_utf8()..];
        }
        all.push(spans);
    }
    all
}

/// The session as an SVG.
pub(crate) fn draw(title: &str, scenes: &[Scene]) -> String {
    let (columns, rows) = SCREEN;
    let (width, height) = (columns as f64 * CELL.0 + 2.0 * MARGIN, rows as f64 * CELL.1 + 2.0 * MARGIN);
    // For each part of the text: the time at which it appears, in seconds, and the scroll offset.
    let (mut time, mut row) = (0.0, 0);
    let (mut text, mut steps) = (String::new(), Vec::new());
    for scene in scenes {
        let typed = lines(&format!("\x1b[32m$\x1b[0m \x1b[1m{}\x1b[0m", scene.typed));
        let output = lines(&scene.output);
        for (part, pause) in [(typed, 1.0), (output, 0.0)] {
            let count = part.len();
            let _ = writeln!(text, "<g class=\"s{}\">", steps.len());
            for line in part {
                text += &draw_line(row, &line);
                row += 1;
            }
            text += "</g>\n";
            steps.push((time, row.saturating_sub(rows)));
            time += pause;
            // Time to read the output, by its length.
            if pause == 0.0 {
                time += 1.5 + 0.2 * count as f64;
            }
        }
        row += 1;
    }
    let whole = time + 2.0;
    let mut style = String::new();
    let mut scroll = String::new();
    let percent = |time: f64| 100.0 * time / whole;
    for (step, (time, offset)) in steps.iter().enumerate() {
        let at = percent(*time);
        if step > 0 {
            let _ = writeln!(style, ".s{step}{{animation:k{step} {whole:.1}s step-end infinite}}");
            let _ = writeln!(style, "@keyframes k{step}{{0%{{opacity:0}}{at:.2}%{{opacity:1}}}}");
        }
        let _ = write!(scroll, "{at:.2}%{{transform:translateY({:.0}px)}}", -(*offset as f64) * CELL.1);
    }
    let _ = writeln!(
        style,
        "@keyframes scroll{{{scroll}}}\n.all{{animation:scroll {whole:.1}s step-end infinite}}"
    );
    style += "@media (prefers-reduced-motion:reduce){*{animation:none!important}}\n";
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" role=\"img\" aria-label=\"{0}\">\n\
         <title>{0}</title>\n<style>\n\
         text{{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#dcdfe4;white-space:pre}}\n\
         .b{{font-weight:bold}}.d{{opacity:.6}}\n{style}</style>\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#282c34\"/>\n\
         <svg x=\"{MARGIN}\" y=\"{MARGIN}\" width=\"{1:.0}\" height=\"{2:.0}\"><g class=\"all\">\n{text}</g></svg>\n</svg>\n",
        escaped(title),
        columns as f64 * CELL.0,
        rows as f64 * CELL.1,
    )
}

fn draw_line(row: usize, spans: &[Span]) -> String {
    let characters: usize = spans.iter().map(|span| span.text.chars().count()).sum();
    if characters == 0 {
        return String::new();
    }
    let (y, length) = ((row as f64 + 0.75) * CELL.1, characters as f64 * CELL.0);
    // Sets the width, whatever font is used.
    let mut line = format!("<text y=\"{y:.1}\" textLength=\"{length:.1}\" xml:space=\"preserve\">");
    for Span { text, style } in spans.iter().filter(|span| !span.text.is_empty()) {
        let class = match (style.bold, style.dim) {
            (true, _) => " class=\"b\"",
            (false, true) => " class=\"d\"",
            _ => "",
        };
        let fill = style
            .colour
            .map(|colour| format!(" fill=\"{0}\" style=\"fill:{0}\"", COLOURS[colour]))
            .unwrap_or_default();
        let _ = write!(line, "<tspan{class}{fill}>{}</tspan>", escaped(text));
    }
    line + "</text>\n"
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(text: &str, style: Style) -> Span {
        Span { text: text.to_owned(), style }
    }

    #[test]
    fn escapes_become_colours_and_long_lines_are_broken() {
        let plain = Style::default();
        let red = Style { bold: true, colour: Some(1), ..plain };
        let mut read = lines("a\x1b[1;31mb\x1b[0mc\n\nend");
        read.iter_mut().for_each(|line| line.retain(|span| !span.text.is_empty()));
        assert_eq!(
            read,
            [vec![span("a", plain), span("b", red), span("c", plain)], vec![], vec![span("end", plain)]]
        );
        let long = lines(&"x".repeat(SCREEN.0 * 2 + 1));
        assert_eq!(long.iter().map(|line| line[0].text.len()).collect::<Vec<_>>(), [SCREEN.0, SCREEN.0, 1]);
    }

    #[test]
    fn what_is_drawn_is_what_was_said() {
        let scene = Scene { typed: "say <hello>".to_owned(), output: "a & b".to_owned() };
        let drawn = draw("a \"session\"", &[scene]);
        for part in ["say &lt;hello&gt;", "a &amp; b", "a &quot;session&quot;", "@keyframes k1"] {
            assert!(drawn.contains(part), "{part}: {drawn}");
        }
    }
}
