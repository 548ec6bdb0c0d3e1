//! Where events go.

use std::io::Write;
use std::sync::{Mutex, PoisonError};

use super::AuditEvent;
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
