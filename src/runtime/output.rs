//! Bounded capture of what a guest writes: head and tail are kept, every byte is counted, and nothing grows with
//! the guest's appetite.

use std::borrow::Cow;
use std::collections::VecDeque;

/// Which of the two streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Hears a guest's output as it is written. Called from any thread; must not block for long, since a slow listener
/// holds up the guest (whose clock runs on).
pub trait OutputSink: Send + Sync {
    /// A piece of one stream, in order.
    fn write(&self, stream: Stream, bytes: &[u8]);
}

/// What was kept of one stream.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CapturedOutput {
    head: Vec<u8>,
    tail: Vec<u8>,
    total: u64,
}

impl CapturedOutput {
    /// Everything that was written, when it all fitted.
    #[must_use]
    pub fn whole(bytes: Vec<u8>) -> Self {
        Self { total: bytes.len() as u64, head: bytes, tail: Vec::new() }
    }

    /// The first bytes.
    #[must_use]
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    /// The last bytes; empty when nothing was dropped.
    #[must_use]
    pub fn tail(&self) -> &[u8] {
        &self.tail
    }

    /// How many bytes the guest wrote.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// How many bytes are missing between head and tail.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.total - self.head.len() as u64 - self.tail.len() as u64
    }

    /// Whether bytes are missing.
    #[must_use]
    pub fn truncated(&self) -> bool {
        self.dropped() > 0
    }

    /// What was kept, with a line in the place of what was dropped.
    #[must_use]
    pub fn bytes(&self) -> Cow<'_, [u8]> {
        if !self.truncated() && self.tail.is_empty() {
            return Cow::Borrowed(&self.head);
        }
        let mut bytes = self.head.clone();
        if self.truncated() {
            bytes.extend_from_slice(format!("\n[... {} bytes not kept ...]\n", self.dropped()).as_bytes());
        }
        bytes.extend_from_slice(&self.tail);
        Cow::Owned(bytes)
    }

    /// The same as text; bytes that are no UTF-8 become U+FFFD.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes()).into_owned()
    }
}

/// Captures one stream. Memory use is at most the limit it was made with, whatever comes.
#[derive(Debug)]
pub struct OutputCapture {
    head: Vec<u8>,
    head_limit: usize,
    tail: VecDeque<u8>,
    tail_limit: usize,
    total: u64,
}

impl OutputCapture {
    /// Keeps at most `limit` bytes: half from the head, half from the tail.
    #[must_use]
    pub fn new(limit: u64) -> Self {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let tail_limit = limit / 2;
        Self { head: Vec::new(), head_limit: limit - tail_limit, tail: VecDeque::new(), tail_limit, total: 0 }
    }

    /// Takes the next bytes of the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let room = (self.head_limit - self.head.len()).min(bytes.len());
        let (head, rest) = bytes.split_at(room);
        self.head.extend_from_slice(head);
        // Only the last `tail_limit` bytes of `rest` can survive.
        let rest = &rest[rest.len().saturating_sub(self.tail_limit)..];
        let overflow = (self.tail.len() + rest.len()).saturating_sub(self.tail_limit);
        self.tail.drain(..overflow);
        self.tail.extend(rest);
    }

    /// How many bytes came.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// What was kept so far.
    #[must_use]
    pub fn snapshot(&self) -> CapturedOutput {
        let (mut head, mut tail) = (self.head.clone(), Vec::with_capacity(self.tail.len()));
        let (first, second) = self.tail.as_slices();
        tail.extend_from_slice(first);
        tail.extend_from_slice(second);
        if (head.len() + tail.len()) as u64 == self.total {
            // Nothing is missing, so the seam means nothing.
            head.append(&mut tail);
        }
        CapturedOutput { head, tail, total: self.total }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn head_and_tail_survive_and_every_byte_counts() {
        let mut capture = OutputCapture::new(6);
        for piece in ["ab", "cdef", "", "ghij", "k"] {
            capture.push(piece.as_bytes());
        }
        let output = capture.snapshot();
        assert_eq!((output.head(), output.tail(), output.total(), output.dropped()), (&b"abc"[..], &b"ijk"[..], 11, 5));
        assert_eq!(output.text(), "abc\n[... 5 bytes not kept ...]\nijk");
    }

    #[test]
    fn nothing_is_marked_when_all_fitted() {
        let mut capture = OutputCapture::new(6);
        capture.push(b"abcdef");
        assert_eq!(capture.snapshot(), CapturedOutput::whole(b"abcdef".to_vec()));
        let mut none = OutputCapture::new(0);
        none.push(b"abc");
        assert_eq!(none.snapshot().dropped(), 3);
    }

    proptest! {
        #[test]
        fn the_split_into_pieces_makes_no_difference(bytes in prop::collection::vec(any::<u8>(), 0..200), limit in 0u64..64, cuts in prop::collection::vec(0usize..200, 0..8)) {
            let mut whole = OutputCapture::new(limit);
            whole.push(&bytes);
            let mut pieces = OutputCapture::new(limit);
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            for pair in cuts.windows(2) {
                pieces.push(&bytes[pair[0]..pair[1]]);
            }
            prop_assert_eq!(whole.snapshot(), pieces.snapshot());
            prop_assert_eq!(whole.snapshot().total(), bytes.len() as u64);
        }
    }
}
