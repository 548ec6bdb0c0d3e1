//! The one choke point for what a model is shown of a result: how much, which characters, and what is said of the rest.
//!
//! Invariants: head and tail survive, every byte is counted, what is missing is said first and not buried; the whole
//! output lies in `/workspace/tmp/outputs`; cuts never split a character; a secret of the caller never passes.

use sha2::{Digest, Sha256};

use crate::digest::hex;
use crate::error::{Result, SkillRuntimeError};
use crate::runtime::{SkillRuntime, SkillRuntimeHandle};
use crate::workspace::{Area, GuestPath};

/// Bytes shown of the head of a stream or file, and as many of its tail.
pub(super) const SHOWN_EACH_END: usize = 16 << 10;
/// Shorter secrets would redact ordinary words.
const MIN_SECRET_BYTES: usize = 8;
/// What stands in a secret's place.
const REDACTED: &str = "[redacted]";

/// How results are bounded in one run.
#[derive(Clone, Default)]
pub struct Bounds {
    secrets: Vec<String>,
}

impl Bounds {
    /// Bounds that let none of these texts pass. Texts under 8 bytes are refused: they would redact ordinary words.
    ///
    /// # Errors
    /// [`InvalidConfig`](crate::ErrorKind::InvalidConfig) for a short one (which is not shown).
    pub fn new(secrets: Vec<String>) -> Result<Self> {
        if secrets.iter().any(|secret| secret.len() < MIN_SECRET_BYTES) {
            return Err(SkillRuntimeError::invalid(
                "a secret to redact has fewer than 8 bytes; shorter ones can't be told from ordinary text",
            ));
        }
        let mut secrets = secrets;
        // The longest first: one may be part of another.
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        Ok(Self { secrets })
    }

    /// The text without secrets.
    #[must_use]
    pub fn redact(&self, text: &str) -> String {
        self.secrets.iter().fold(text.to_owned(), |text, secret| {
            if text.contains(secret) { text.replace(secret, REDACTED) } else { text }
        })
    }

    /// The bytes with stars in the place of secrets, so that offsets stay.
    pub(super) fn mask<'a>(&self, bytes: &'a [u8]) -> std::borrow::Cow<'a, [u8]> {
        let mut masked = std::borrow::Cow::Borrowed(bytes);
        for secret in &self.secrets {
            let mut from = 0;
            while let Some(at) = find(masked.get(from..).unwrap_or_default(), secret.as_bytes()) {
                let (start, end) = (from + at, from + at + secret.len());
                if let Some(part) = masked.to_mut().get_mut(start..end) {
                    part.fill(b'*');
                }
                from = end;
            }
        }
        masked
    }

    /// What is shown of some bytes.
    pub(super) fn show(&self, bytes: &[u8]) -> Shown {
        if is_binary(bytes) {
            let text = format!("(binary, {} bytes, sha256 {})", bytes.len(), hex(&Sha256::digest(bytes)));
            return Shown { text, omitted: bytes.len() as u64, lossy: false };
        }
        let (clean, lossy) = readable(bytes);
        // Before the cut: a secret that straddles it must not leave its halves.
        let clean = self.redact(&clean);
        if clean.len() <= 2 * SHOWN_EACH_END {
            return Shown { text: clean, omitted: 0, lossy };
        }
        let head_end = floor(&clean, SHOWN_EACH_END);
        let tail_start = ceil(&clean, clean.len() - SHOWN_EACH_END);
        let (head, tail) = (clean.get(..head_end).unwrap_or(""), clean.get(tail_start..).unwrap_or(""));
        let omitted = (tail_start - head_end) as u64;
        Shown { text: format!("{head}\n[... {omitted} bytes not shown ...]\n{tail}"), omitted, lossy }
    }
}

impl std::fmt::Debug for Bounds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Bounds({} secrets)", self.secrets.len())
    }
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

/// What is shown of a stream or file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) text: String,
    /// Bytes that aren't shown.
    pub(super) omitted: u64,
    /// Some bytes were no UTF-8.
    pub(super) lossy: bool,
}

/// Writes a whole stream where the model can page through it. Gives the path.
///
/// # Errors
/// Those of the runtime's `write_file`.
pub(super) async fn spill(
    runtime: &dyn SkillRuntime,
    handle: &SkillRuntimeHandle,
    name: &str,
    bytes: &[u8],
) -> Result<GuestPath> {
    let path = Area::Tmp.guest_path().join(&format!("outputs/{name}"))?;
    runtime.write_file(handle, &path, bytes).await?;
    Ok(path)
}

/// Text with a NUL in its first part is none. Looking at a part is enough: what looks like text is shown as text.
fn is_binary(bytes: &[u8]) -> bool {
    const SNIFFED: usize = 8 << 10;
    let part = bytes.get(..SNIFFED.min(bytes.len())).unwrap_or(bytes);
    let zeros = part.iter().filter(|byte| **byte == 0).count();
    // A lone NUL may be a separator (`find -print0`); binary files are full of them.
    zeros > 0 && zeros * 50 > part.len()
}

/// Text for a model: bytes that are no UTF-8 become U+FFFD, terminal escapes go, other controls are written out.
fn readable(bytes: &[u8]) -> (String, bool) {
    let text = String::from_utf8_lossy(bytes);
    let lossy = matches!(text, std::borrow::Cow::Owned(_));
    let mut clean = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => skip_escape(&mut chars),
            '\r' if chars.peek() == Some(&'\n') => {}
            '\n' | '\t' => clean.push(c),
            c if c.is_control() => clean.extend(c.escape_unicode()),
            // Tags and zero-width marks can carry text that only a model reads.
            '\u{e0000}'..='\u{e007f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                clean.extend(c.escape_unicode());
            }
            c => clean.push(c),
        }
    }
    (clean, lossy)
}

/// Skips one terminal escape after its ESC: `[`…letter, `]`…BEL or ESC, or one character.
fn skip_escape(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    match chars.next() {
        Some('[') => {
            for c in chars.by_ref() {
                if ('@'..='~').contains(&c) {
                    break;
                }
            }
        }
        Some(']') => {
            while let Some(c) = chars.next() {
                if c == '\u{7}' {
                    break;
                }
                if c == '\u{1b}' {
                    chars.next_if_eq(&'\\');
                    break;
                }
            }
        }
        _ => {}
    }
}

/// The last character boundary at or before an index.
pub(super) fn floor(text: &str, index: usize) -> usize {
    (0..=index.min(text.len())).rev().find(|index| text.is_char_boundary(*index)).unwrap_or(0)
}

fn ceil(text: &str, index: usize) -> usize {
    (index..=text.len()).find(|index| text.is_char_boundary(*index)).unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_and_tail_survive_and_the_rest_is_counted() {
        let bounds = Bounds::default();
        let text = format!("{}{}{}", "h".repeat(SHOWN_EACH_END), "m".repeat(1000), "t".repeat(SHOWN_EACH_END));
        let shown = bounds.show(text.as_bytes());
        assert_eq!(shown.omitted, 1000);
        assert!(shown.text.starts_with('h') && shown.text.ends_with('t') && !shown.text.contains('m'), "no middle");
        assert!(shown.text.contains("[... 1000 bytes not shown ...]"));
        let exact = "x".repeat(2 * SHOWN_EACH_END);
        assert_eq!(bounds.show(exact.as_bytes()), Shown { text: exact, omitted: 0, lossy: false });
    }

    #[test]
    fn odd_bytes_are_readable() {
        let bounds = Bounds::default();
        let show = |bytes: &[u8]| bounds.show(bytes);
        assert_eq!(show(b"a\xffb"), Shown { text: "a\u{fffd}b".into(), omitted: 0, lossy: true });
        assert_eq!(show(b"\x1b[31mred\x1b[0m\x1b]0;title\x07!\x1b]8;;x\x1b\\y\x1bc").text, "red!y");
        assert_eq!(show(b"a\r\nb\rc\x08").text, "a\nb\\u{d}c\\u{8}");
        assert_eq!(show("x\u{e0041}\u{202e}y".as_bytes()).text, "x\\u{e0041}\\u{202e}y");
        assert!(show(b"one two three four five six seven eight nine ten eleven\0").text.ends_with("\\u{0}"));
        assert!(show(&[0, 1, 2, 3]).text.starts_with("(binary, 4 bytes, sha256 054edec1"), "{:?}", show(&[0, 1, 2, 3]));
    }

    #[test]
    fn secrets_never_pass_even_across_a_cut() {
        let bounds = Bounds::new(vec!["hunter2-hunter2".into(), "hunter2-hunter2-long".into()]).unwrap();
        assert_eq!(bounds.redact("a hunter2-hunter2-long b hunter2-hunter2"), "a [redacted] b [redacted]");
        let text = format!("{}hunter2-hunter2{}", "x".repeat(SHOWN_EACH_END - 7), "y".repeat(2 * SHOWN_EACH_END));
        assert!(!bounds.show(text.as_bytes()).text.contains("hunter2"));
        assert_eq!(&*bounds.mask(b"a hunter2-hunter2 b"), b"a *************** b");
        assert!(Bounds::new(vec!["short".into()]).is_err());
        assert!(!format!("{bounds:?}").contains("hunter2"));
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_shown_within_bounds(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..300), repeat in 1usize..400) {
            let shown = Bounds::default().show(&bytes.repeat(repeat));
            proptest::prop_assert!(shown.text.len() <= 2 * SHOWN_EACH_END + 100);
            let (any, _) = readable(&bytes);
            proptest::prop_assert!(any.chars().all(|c| !c.is_control() || c == '\n' || c == '\t'));
        }
    }
}
