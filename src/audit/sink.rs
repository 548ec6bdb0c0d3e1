//! Where events go.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::sync::{Mutex, PoisonError};

use super::AuditEvent;
use super::chain::{GENESIS, hash_of, seal};
use crate::error::{Result, SkillRuntimeError};

/// Keeps events. Called from any thread, before the answer that the event is about is returned.
pub trait AuditSink: Send + Sync {
    /// Keeps one event.
    ///
    /// # Errors
    /// [`Backend`](crate::ErrorKind::Backend) when it can't be kept. The step treats that as a failure of the run: an
    /// action that can't be logged isn't done.
    fn record(&self, event: &AuditEvent) -> Result<()>;
}

/// Keeps nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NullSink;

impl AuditSink for NullSink {
    fn record(&self, _event: &AuditEvent) -> Result<()> {
        Ok(())
    }
}

/// Keeps events in memory, for tests and for embedders that show them.
///
/// Bounded by the scope, which suppresses floods.
#[derive(Debug, Default)]
pub struct MemorySink(Mutex<Vec<AuditEvent>>);

impl MemorySink {
    /// Everything kept so far.
    #[must_use]
    pub fn events(&self) -> Vec<AuditEvent> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl AuditSink for MemorySink {
    fn record(&self, event: &AuditEvent) -> Result<()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(event.clone());
        Ok(())
    }
}

/// Writes one JSON object a line. JSON strings escape control characters, so a guest can't forge a line.
pub struct JsonlSink<W> {
    writer: Mutex<W>,
}

impl<W: Write + Send> JsonlSink<W> {
    /// Writes to `writer`, flushing after every event. For a file, open it for appending.
    pub fn new(writer: W) -> Self {
        Self { writer: Mutex::new(writer) }
    }
}

impl<W: Write + Send> AuditSink for JsonlSink<W> {
    fn record(&self, event: &AuditEvent) -> Result<()> {
        let failed = |error: std::io::Error| SkillRuntimeError::backend("could not write to the audit log", error);
        let mut line = serde_json::to_vec(event).map_err(|error| failed(error.into()))?;
        line.push(b'\n');
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        writer.write_all(&line).and_then(|()| writer.flush()).map_err(failed)
    }
}

impl<W> std::fmt::Debug for JsonlSink<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JsonlSink")
    }
}

/// Writes hash-chained JSON lines to a file (see [`verify_chain`](super::verify_chain)). Several processes may append
/// to one file: each event is written under the file's lock, after the line that is last by then.
#[derive(Debug)]
pub struct JsonlFileSink {
    file: Mutex<File>,
}

/// Enough to hold the last line of any file of ours.
const TAIL_BYTES: u64 = 64 << 10;

impl JsonlFileSink {
    /// Writes to a file that was opened for reading and appending.
    #[must_use]
    pub fn new(file: File) -> Self {
        Self { file: Mutex::new(file) }
    }
}

impl AuditSink for JsonlFileSink {
    fn record(&self, event: &AuditEvent) -> Result<()> {
        let failed = |error: std::io::Error| SkillRuntimeError::backend("could not write to the audit log", error);
        let event = serde_json::to_string(event).map_err(|error| failed(error.into()))?;
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.lock().map_err(failed)?;
        let written = append(&mut file, &event);
        let unlocked = file.unlock();
        written.and(unlocked).map_err(failed)
    }
}

/// Appends one sealed line after the last one.
fn append(file: &mut File, event: &str) -> std::io::Result<()> {
    let length = file.seek(SeekFrom::End(0))?;
    let start = length.saturating_sub(TAIL_BYTES);
    file.seek(SeekFrom::Start(start))?;
    let mut tail = Vec::new();
    // By reference: the file stays ours.
    Read::by_ref(file).take(TAIL_BYTES).read_to_end(&mut tail)?;
    let whole = tail.is_empty() || tail.last() == Some(&b'\n');
    let text = String::from_utf8_lossy(&tail);
    let last = text.lines().next_back().unwrap_or_default();
    let prev = match hash_of(last) {
        Some(hash) if whole => hash,
        _ if tail.is_empty() => GENESIS,
        // A chain can't go on from a line that isn't ours, and must not hide that it was cut.
        _ => {
            return Err(std::io::Error::new(
                std::io::ErrorKind::InvalidData,
                "the file does not end in a whole sealed event; name a new file, and look at the old one with `skillcell audit verify`",
            ));
        }
    };
    let (mut line, _) = seal(event, prev);
    line.push('\n');
    file.write_all(line.as_bytes())?;
    file.flush()
}
