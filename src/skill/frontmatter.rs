//! The text of a `SKILL.md`: splits YAML front matter from the body and reads the YAML into plain values.
//!
//! A manifest is written by somebody else. Invariants: every scalar stays text (`version: 1.0` is "1.0", `no` is
//! "no"); an alias is refused, so no text can grow while it is read; depth, nodes and bytes are bounded. This module
//! knows YAML, not what a manifest must hold.

use std::borrow::Cow;

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError};
use serde_json::Value;

use crate::error::{ErrorKind, Result, SkillRuntimeError};

/// Bytes of a whole `SKILL.md`. The largest published ones have 75 KB; a model could not read a tenth of this.
pub const MAX_SKILL_MD_BYTES: u64 = 1 << 20;
/// Bytes of the part between the `---` lines. A description has at most 1024 characters.
const MAX_FRONT_MATTER_BYTES: usize = 64 << 10;
/// Levels of nesting. `metadata` needs two.
const MAX_DEPTH: usize = 16;
/// Values in all, so that a wide document costs no more than a deep one.
const MAX_NODES: usize = 4_096;

/// A `SKILL.md`, split.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SplitText<'a> {
    /// The YAML between the two `---` lines.
    pub(super) front_matter: &'a str,
    /// What follows, trimmed.
    pub(super) body: &'a str,
    /// A byte-order mark stood before the first line.
    pub(super) byte_order_mark: bool,
}

/// One value of the front matter and the line of the file it begins on, from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) value: NodeValue,
    pub(super) line: usize,
}

/// A value. There are no numbers or booleans: a manifest holds text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NodeValue {
    /// Nothing, `~` or `null`.
    Null,
    /// A scalar of any style.
    Text(String),
    /// A sequence.
    List(Vec<Node>),
    /// A mapping, in the order written; a key that stands twice is there twice.
    Map(Vec<(String, Node)>),
}

impl Node {
    /// The value as JSON; of a key that stands twice the last counts, as in CARL.
    pub(super) fn to_json(&self) -> Value {
        match &self.value {
            NodeValue::Null => Value::Null,
            NodeValue::Text(text) => Value::String(text.clone()),
            NodeValue::List(items) => items.iter().map(Self::to_json).collect(),
            NodeValue::Map(entries) => {
                Value::Object(entries.iter().map(|(key, node)| (key.clone(), node.to_json())).collect())
            }
        }
    }

    /// What it is, for a message.
    pub(super) fn kind(&self) -> &'static str {
        match &self.value {
            NodeValue::Null => "nothing",
            NodeValue::Text(_) => "a text",
            NodeValue::List(_) => "a list",
            NodeValue::Map(_) => "a map",
        }
    }
}

/// Splits a file. The front matter ends at the first later line that is `---` and nothing else: dashes inside a
/// value don't end it.
///
/// # Errors
/// [`InvalidConfig`](ErrorKind::InvalidConfig) when the bytes are no UTF-8 or a `---` line is missing,
/// [`LimitExceeded`](ErrorKind::LimitExceeded) over the caps.
pub(super) fn split(bytes: &[u8]) -> Result<SplitText<'_>> {
    if bytes.len() as u64 > MAX_SKILL_MD_BYTES {
        return Err(SkillRuntimeError::new(
            ErrorKind::LimitExceeded,
            format!(
                "SKILL.md has {} bytes; at most {MAX_SKILL_MD_BYTES} are read, move detail to references/",
                bytes.len()
            ),
        ));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| {
        SkillRuntimeError::invalid(format!("SKILL.md is not UTF-8 at byte {}; save it as UTF-8", error.valid_up_to()))
    })?;
    let (text, byte_order_mark) = match text.strip_prefix('\u{feff}') {
        Some(rest) => (rest, true),
        None => (text, false),
    };
    let missing = |what: &str| {
        SkillRuntimeError::invalid(format!(
            "SKILL.md {what}; begin the file with '---', YAML, and '---' on lines of their own"
        ))
    };
    let mut lines = text.split_inclusive('\n');
    let first = lines.next().unwrap_or("");
    if first.trim_end() != "---" {
        return Err(missing("does not begin with a line '---'"));
    }
    let start = first.len();
    let mut end = start;
    for line in lines {
        if line.trim_end() == "---" {
            let (front_matter, rest) = (text.get(start..end), text.get(end + line.len()..));
            let (Some(front_matter), Some(body)) = (front_matter, rest) else { break };
            if front_matter.len() > MAX_FRONT_MATTER_BYTES {
                return Err(SkillRuntimeError::new(
                    ErrorKind::LimitExceeded,
                    format!(
                        "the front matter of SKILL.md has more than {MAX_FRONT_MATTER_BYTES} bytes; move detail to the body"
                    ),
                ));
            }
            return Ok(SplitText { front_matter, body: body.trim(), byte_order_mark });
        }
        end += line.len();
    }
    Err(missing("has no second line '---'"))
}

/// Reads YAML whose outermost value is a map.
///
/// # Errors
/// [`InvalidConfig`](ErrorKind::InvalidConfig) with line and column of the file (the front matter begins on line 2),
/// [`LimitExceeded`](ErrorKind::LimitExceeded) over the caps.
pub(super) fn parse(front_matter: &str) -> Result<Vec<(String, Node)>> {
    let mut builder = Builder::default();
    let mut parser = Parser::new_from_str(front_matter);
    while let Some(next) = parser.next_event() {
        let (event, span) = next.map_err(|error| yaml_error(&error))?;
        builder.take(event, span.start.line() + 1)?;
    }
    match builder.root.map(|node| node.value) {
        Some(NodeValue::Map(entries)) => Ok(entries),
        None | Some(NodeValue::Null) => Ok(Vec::new()),
        Some(NodeValue::Text(_) | NodeValue::List(_)) => Err(SkillRuntimeError::invalid(
            "the front matter of SKILL.md must be 'key: value' lines, such as 'name: my-skill'",
        )),
    }
}

fn yaml_error(error: &ScanError) -> SkillRuntimeError {
    // The parser's words may quote the text.
    let why: String = error.info().chars().take(200).flat_map(char::escape_debug).collect();
    SkillRuntimeError::invalid(format!(
        "the front matter of SKILL.md is not YAML at line {}, column {}: {why}; put a value that holds ': ' or ' #' in quotes",
        error.marker().line() + 1,
        error.marker().col() + 1,
    ))
}

/// Quotes values of top-level `key: value` lines that plain YAML can't hold (`description: Use when: x`), which
/// clients are asked to forgive. `None` when there is no such line.
pub(super) fn quote_plain_values(front_matter: &str) -> Option<String> {
    let mut changed = false;
    let mut quoted = String::with_capacity(front_matter.len() + 16);
    for line in front_matter.lines() {
        match quoted_line(line) {
            Some(new) => {
                changed = true;
                quoted.push_str(&new);
            }
            None => quoted.push_str(line),
        }
        quoted.push('\n');
    }
    changed.then_some(quoted)
}

fn quoted_line(line: &str) -> Option<String> {
    let (key, value) = line.split_once(':')?;
    let value = value.trim();
    let is_key = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let plain = !value.starts_with(['"', '\'', '[', '{', '|', '>', '&', '*', '!', '#']);
    if key.is_empty() || !key.chars().all(is_key) || !plain || !value.contains([':', '#']) {
        return None;
    }
    Some(format!("{key}: \"{}\"", value.replace('\\', "\\\\").replace('"', "\\\"")))
}

/// A collection that is being read.
enum Open {
    List(usize, Vec<Node>),
    /// With the key that waits for its value.
    Map(usize, Vec<(String, Node)>, Option<String>),
}

#[derive(Default)]
struct Builder {
    open: Vec<Open>,
    root: Option<Node>,
    nodes: usize,
}

impl Builder {
    fn take(&mut self, event: Event<'_>, line: usize) -> Result<()> {
        match event {
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => Ok(()),
            Event::DocumentStart(_) if self.root.is_some() => {
                Err(at(line, "a second YAML document begins; a manifest is one"))
            }
            Event::DocumentStart(_) => Ok(()),
            Event::Alias(_) => Err(at(line, "a YAML alias ('*name') is not accepted; write the value out")),
            Event::Scalar(text, style, _anchor, tag) => {
                no_tag(tag.is_some(), line)?;
                self.close(Node { value: scalar(text, style), line })
            }
            Event::SequenceStart(_anchor, tag) => {
                no_tag(tag.is_some(), line)?;
                self.enter(Open::List(line, Vec::new()), line)
            }
            Event::MappingStart(_anchor, tag) => {
                no_tag(tag.is_some(), line)?;
                self.enter(Open::Map(line, Vec::new(), None), line)
            }
            Event::SequenceEnd | Event::MappingEnd => match self.open.pop() {
                Some(Open::List(line, items)) => self.close(Node { value: NodeValue::List(items), line }),
                Some(Open::Map(line, entries, _)) => self.close(Node { value: NodeValue::Map(entries), line }),
                None => Ok(()),
            },
        }
    }

    fn enter(&mut self, open: Open, line: usize) -> Result<()> {
        if self.open.len() >= MAX_DEPTH {
            return Err(over(line, format!("is nested deeper than {MAX_DEPTH} levels")));
        }
        self.open.push(open);
        Ok(())
    }

    /// A value is complete: it belongs to the innermost open collection.
    fn close(&mut self, node: Node) -> Result<()> {
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            return Err(over(node.line, format!("holds more than {MAX_NODES} values")));
        }
        match self.open.last_mut() {
            None => self.root = Some(node),
            Some(Open::List(_, items)) => items.push(node),
            Some(Open::Map(_, entries, waiting)) => match waiting.take() {
                Some(key) => entries.push((key, node)),
                None => match node.value {
                    NodeValue::Text(key) => *waiting = Some(key),
                    NodeValue::Null => *waiting = Some(String::new()),
                    NodeValue::List(_) | NodeValue::Map(_) => return Err(at(node.line, "a key must be text")),
                },
            },
        }
        Ok(())
    }
}

fn scalar(text: Cow<'_, str>, style: ScalarStyle) -> NodeValue {
    let null = style == ScalarStyle::Plain && matches!(&*text, "" | "~" | "null" | "Null" | "NULL");
    if null { NodeValue::Null } else { NodeValue::Text(text.into_owned()) }
}

fn no_tag(tagged: bool, line: usize) -> Result<()> {
    if tagged { Err(at(line, "a YAML tag ('!name') is not accepted; write the plain value")) } else { Ok(()) }
}

fn at(line: usize, what: &str) -> SkillRuntimeError {
    SkillRuntimeError::invalid(format!("in SKILL.md, line {line}: {what}"))
}

fn over(line: usize, what: String) -> SkillRuntimeError {
    SkillRuntimeError::new(ErrorKind::LimitExceeded, format!("the front matter of SKILL.md {what} (line {line})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(yaml: &str) -> Value {
        Node { value: NodeValue::Map(parse(yaml).unwrap()), line: 1 }.to_json()
    }

    #[test]
    fn only_a_line_of_three_dashes_ends_the_front_matter() {
        let text = "---\nname: x\ndescription: uses --- dashes\nmore: |\n  ---x\n---  \r\n\n# Body\n---\n";
        let split = split(text.as_bytes()).unwrap();
        assert_eq!(split.body, "# Body\n---");
        assert_eq!(
            json(split.front_matter),
            serde_json::json!({"name": "x", "description": "uses --- dashes", "more": "---x\n"})
        );
    }

    #[test]
    fn a_mark_and_windows_line_ends_are_read() {
        let split = split("\u{feff}---\r\nname: x\r\nlist:\r\n- a\r\n---\r\nbody\r\n".as_bytes()).unwrap();
        assert!(split.byte_order_mark);
        assert_eq!(json(split.front_matter), serde_json::json!({"name": "x", "list": ["a"]}));
        assert_eq!(split.body, "body");
    }

    #[test]
    fn files_without_front_matter_say_what_is_missing() {
        for (text, what) in [
            (&b""[..], "does not begin with a line '---'"),
            (b" ---\nname: x\n---\n", "does not begin with a line '---'"),
            (b"---\nname: x\n", "has no second line '---'"),
            (b"---\nname: x\n ---\n", "has no second line '---'"),
            (b"---", "has no second line '---'"),
        ] {
            assert!(split(text).unwrap_err().to_string().contains(what), "{text:?}");
        }
        assert_eq!(split(b"---\nn\xff").unwrap_err().to_string(), "SKILL.md is not UTF-8 at byte 5; save it as UTF-8");
        assert_eq!(split(&vec![b'x'; (1 << 20) + 1]).unwrap_err().kind(), ErrorKind::LimitExceeded);
        let fat = format!("---\nx: {}\n---\n", "y".repeat(MAX_FRONT_MATTER_BYTES));
        assert_eq!(split(fat.as_bytes()).unwrap_err().kind(), ErrorKind::LimitExceeded);
    }

    #[test]
    fn scalars_stay_text_in_every_style() {
        assert_eq!(
            json(
                "a: 1.0\nb: no\nc: 'it''s'\nd: \"x\\ty\"\ne: >\n  folded\n  text\nf: |\n  two\n  lines\ng:\nh: ~\ni: 2026-01-01\n"
            ),
            serde_json::json!({
                "a": "1.0", "b": "no", "c": "it's", "d": "x\ty", "e": "folded text\n", "f": "two\nlines\n",
                "g": null, "h": null, "i": "2026-01-01"
            })
        );
    }

    #[test]
    fn bombs_and_puzzles_are_refused() {
        let deep = format!("a: {}{}", "[".repeat(100), "]".repeat(100));
        // The parser's own limit comes first.
        let deeper = format!("a: {}{}", "[".repeat(30_000), "]".repeat(30_000));
        let wide = format!("a: [{}]", "x,".repeat(5_000));
        let laughs = "a: &a [x,x]\nb: &b [*a,*a]\nc: [*b,*b]\n";
        for (yaml, what) in [
            (deep.as_str(), "nested deeper than 16"),
            (&deeper, "recursion limit exceeded"),
            (&wide, "more than 4096 values"),
            (laughs, "alias"),
            ("a: !!python/object:os.system x", "tag"),
            ("a: 1\n...\n--- \nb: 2", "second YAML document"),
            ("? [a]\n: b", "a key must be text"),
            ("- a\n", "must be 'key: value' lines"),
            ("text", "must be 'key: value' lines"),
            ("a: b: c", "not YAML at line 2, column"),
            ("a: \"open", "not YAML at line"),
            ("a: \tx\n\tb: y", ""),
            ("%TAG ! x\n", ""),
        ] {
            let error = parse(yaml).map_or_else(|error| error.to_string(), |entries| format!("{entries:?}"));
            assert!(error.contains(what), "{yaml:?}: {error}");
        }
    }

    #[test]
    fn plain_values_with_colons_can_be_quoted() {
        let fixed = quote_plain_values("name: x\ndescription: Use when: \"a\" # b\n  more: y\n").unwrap();
        assert_eq!(fixed, "name: x\ndescription: \"Use when: \\\"a\\\" # b\"\n  more: y\n");
        assert_eq!(quote_plain_values("name: x\nd: 'a: b'\n"), None);
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics_or_hangs(text in "(?s).{0,200}", yaml in "[-a:\\[\\]{}#&*!|>'\"%@ \n\t?,.~]{0,60}") {
            let _ = split(text.as_bytes());
            let _ = parse(&text);
            let _ = parse(&yaml);
            let _ = quote_plain_values(&yaml).map(|quoted| parse(&quoted).is_ok());
        }
    }
}
