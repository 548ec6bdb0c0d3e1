//! Server-sent events: cuts a stream of bytes into the data of its events.
//!
//! Bytes are joined before they are read as text, so a character split between two pieces is whole again. Invariant: the
//! memory held is bounded by one event.

use super::{ModelError, protocol};

/// Bytes of one event.
const MAX_EVENT_BYTES: usize = 8 << 20;

/// Reads a stream.
#[derive(Debug, Default)]
pub(super) struct SseReader {
    /// Bytes of the line that isn't complete.
    line: Vec<u8>,
    /// Data of the event that isn't complete.
    data: String,
    has_data: bool,
    /// The last line ended with a carriage return: a line feed now belongs to it.
    after_return: bool,
    begun: bool,
}

impl SseReader {
    /// Takes the next bytes; gives the data of every event that is complete now.
    ///
    /// # Errors
    /// [`Protocol`](super::ModelErrorKind::Protocol): an event over 8 MiB, or text that is no UTF-8.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<Vec<String>, ModelError> {
        let mut events = Vec::new();
        for byte in bytes {
            match byte {
                b'\n' if self.after_return => self.after_return = false,
                b'\n' | b'\r' => {
                    self.after_return = *byte == b'\r';
                    events.extend(self.line()?);
                }
                other => {
                    self.after_return = false;
                    self.line.push(*other);
                    if self.line.len() + self.data.len() > MAX_EVENT_BYTES {
                        return Err(protocol("an event of the model's stream is too large"));
                    }
                }
            }
        }
        Ok(events)
    }

    /// The stream ended. A last event without an empty line after it counts: some servers leave it out.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub(super) fn finish(&mut self) -> Result<Vec<String>, ModelError> {
        let mut events: Vec<String> = Vec::new();
        if !self.line.is_empty() {
            events.extend(self.line()?);
        }
        events.extend(self.event());
        Ok(events)
    }

    fn line(&mut self) -> Result<Option<String>, ModelError> {
        let line = std::mem::take(&mut self.line);
        let text = std::str::from_utf8(&line).map_err(|_| protocol("the model's stream is no UTF-8"))?;
        let text = if self.begun { text } else { text.strip_prefix('\u{feff}').unwrap_or(text) };
        self.begun = true;
        if text.is_empty() {
            return Ok(self.event());
        }
        let (field, value) = text.split_once(':').unwrap_or((text, ""));
        if field == "data" {
            if self.has_data {
                self.data.push('\n');
            }
            self.has_data = true;
            self.data.push_str(value.strip_prefix(' ').unwrap_or(value));
        }
        Ok(None)
    }

    fn event(&mut self) -> Option<String> {
        std::mem::take(&mut self.has_data).then(|| std::mem::take(&mut self.data))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pieces: &[&[u8]]) -> Vec<String> {
        let mut reader = SseReader::default();
        let mut events: Vec<String> = pieces.iter().flat_map(|piece| reader.push(piece).unwrap()).collect();
        events.extend(reader.finish().unwrap());
        events
    }

    #[test]
    fn every_split_gives_the_same_events() {
        let text =
            "\u{feff}: hello\r\nevent: x\r\ndata: {\"a\":\r\ndata:\"ü€😀\"}\r\n\r\nid: 5\n\ndata: two\n\ndata: last"
                .as_bytes();
        let expected = ["{\"a\":\n\"ü€😀\"}", "two", "last"];
        assert_eq!(read(&[text]), expected);
        for cut in 0..text.len() {
            let (first, second) = text.split_at(cut);
            assert_eq!(read(&[first, second]), expected, "{cut}");
        }
        let bytes: Vec<&[u8]> = text.chunks(1).collect();
        assert_eq!(read(&bytes), expected);
    }

    #[test]
    fn garbage_is_an_error_and_floods_end() {
        assert!(SseReader::default().push(b"data: \xff\n").is_err());
        let mut reader = SseReader::default();
        let line = vec![b'x'; 1 << 20];
        assert!((0..9).any(|_| reader.push(&line).is_err()));
        let mut reader = SseReader::default();
        let line = [b"data: ".to_vec(), vec![b'x'; 1 << 20], b"\n".to_vec()].concat();
        assert!((0..9).any(|_| reader.push(&line).is_err()));
    }
}
