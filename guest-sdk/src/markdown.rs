//! [`Markdown`]: a report as text, written top to bottom.
//!
//! Content from data is escaped where Markdown would take it for structure: a cell can't end its row and a name can't
//! become a heading, a link, an image or HTML. Text that is meant as Markdown goes through [`Markdown::raw`].

use std::fmt;

/// How the cells of a column stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// For words.
    Left,
    /// For numbers.
    Right,
}

/// A report in Markdown.
///
/// ```
/// use skillcell_guest::{Align, Markdown};
/// let mut report = Markdown::new();
/// report.heading(1, "Sizes");
/// report.table(&[("file", Align::Left), ("bytes", Align::Right)], [["a|b", "7"]]);
/// assert_eq!(report.as_str(), "# Sizes\n\n| file | bytes |\n|:---|---:|\n| a\\|b | 7 |\n");
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Markdown {
    text: String,
    /// Whether the last block was a list item, which another item follows without an empty line.
    in_list: bool,
}

impl Markdown {
    /// An empty report.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The text so far.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// A heading; levels beyond 1 to 6 are taken as the nearest.
    pub fn heading(&mut self, level: u8, title: &str) -> &mut Self {
        self.begin_block();
        let marks = "#".repeat(usize::from(level.clamp(1, 6)));
        self.text.push_str(&format!("{marks} {}\n", escape(title)));
        self
    }

    /// A paragraph of plain text.
    pub fn paragraph(&mut self, text: &str) -> &mut Self {
        self.begin_block();
        self.text.push_str(&escape(text));
        self.text.push('\n');
        self
    }

    /// An item of a list.
    pub fn item(&mut self, text: &str) -> &mut Self {
        if !self.in_list {
            self.begin_block();
        }
        self.in_list = true;
        self.text.push_str(&format!("- {}\n", escape(text)));
        self
    }

    /// A table. A row with too few cells is filled up with empty ones; cells beyond the columns are left out, as
    /// Markdown readers do.
    pub fn table<R, C>(&mut self, columns: &[(&str, Align)], rows: impl IntoIterator<Item = R>) -> &mut Self
    where
        R: IntoIterator<Item = C>,
        C: AsRef<str>,
    {
        self.begin_block();
        for (title, _) in columns {
            self.text.push_str(&format!("| {} ", escape(title)));
        }
        self.text.push_str("|\n");
        for (_, align) in columns {
            self.text.push_str(match align {
                Align::Left => "|:---",
                Align::Right => "|---:",
            });
        }
        self.text.push_str("|\n");
        for row in rows {
            let mut cells = row.into_iter();
            for _ in columns {
                let cell = cells.next().map(|cell| escape(cell.as_ref())).unwrap_or_default();
                self.text.push_str(&format!("| {cell} "));
            }
            self.text.push_str("|\n");
        }
        self
    }

    /// Text that is Markdown already, as it is.
    pub fn raw(&mut self, text: &str) -> &mut Self {
        self.begin_block();
        self.text.push_str(text);
        if !text.ends_with('\n') {
            self.text.push('\n');
        }
        self
    }

    fn begin_block(&mut self) {
        self.in_list = false;
        if !self.text.is_empty() {
            self.text.push('\n');
        }
    }
}

impl fmt::Display for Markdown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// One line of text without any meaning to Markdown. Line breaks and control characters become spaces.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    let trimmed = text.trim();
    for (position, character) in trimmed.char_indices() {
        let starts_line = position == 0;
        match character {
            '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '|' | '~' => escaped.extend(['\\', character]),
            '#' | '+' | '-' | '=' if starts_line => escaped.extend(['\\', character]),
            // `1. ` and `1) ` at the start of a line begin a list; `1.5` doesn't.
            '.' | ')' if !starts_line && begins_numbered_item(trimmed, position) => {
                escaped.extend(['\\', character]);
            }
            '&' => escaped.push_str("&amp;"),
            character if character.is_control() => escaped.push(' '),
            character => escaped.push(character),
        }
    }
    escaped
}

/// Whether only digits stand before the mark at `position`, and a space or nothing after it.
fn begins_numbered_item(text: &str, position: usize) -> bool {
    let (before, after) = text.split_at(position);
    before.bytes().all(|byte| byte.is_ascii_digit()) && after.chars().nth(1).is_none_or(char::is_whitespace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_apart_and_list_items_together() {
        let mut report = Markdown::new();
        report.heading(2, "A").paragraph("text").item("one").item("two").paragraph("more").raw("**x**");
        assert_eq!(report.to_string(), "## A\n\ntext\n\n- one\n- two\n\nmore\n\n**x**\n");
    }

    #[test]
    fn data_cannot_become_structure() {
        for (text, expected) in [
            ("a|b", "a\\|b"),
            ("a\n# b", "a # b"),
            ("# b", "\\# b"),
            ("- b", "\\- b"),
            ("a-b #1", "a-b #1"),
            ("1. b", "1\\. b"),
            ("1.5", "1.5"),
            ("2)", "2\\)"),
            ("v1.5", "v1.5"),
            ("![x](http://y)", "!\\[x\\](http://y)"),
            ("<b>&amp;", "\\<b\\>&amp;amp;"),
            ("\u{1b}[2J", "\\[2J"),
            ("a\\", "a\\\\"),
            ("ü `x`", "ü \\`x\\`"),
        ] {
            let mut report = Markdown::new();
            report.paragraph(text);
            assert_eq!(report.as_str().trim(), expected, "{text:?}");
        }
    }

    #[test]
    fn rows_have_as_many_cells_as_columns() {
        let mut report = Markdown::new();
        let columns = [("a", Align::Left), ("b", Align::Right)];
        report.table(&columns, [vec!["1"], vec!["1", "2", "3"], vec![]]);
        assert_eq!(report.as_str(), "| a | b |\n|:---|---:|\n| 1 |  |\n| 1 | 2 |\n|  |  |\n");
    }
}
