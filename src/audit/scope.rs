//! [`AuditScope`]: one run's view of a sink. Numbers events, bounds floods, mirrors denials to `tracing`.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use super::{AuditEvent, AuditSink, CLOSING_ACTION, Decision, Layer, RunId};
use crate::error::Result;

/// Denials of one run that are kept one by one; a guest that is refused a million times must not fill a disk. The
/// rest are counted, and the count is in the closing event and the summary.
const MAX_DENIALS_KEPT: u64 = 1_000;
/// Objects and reasons come from guests and models: longer ones are cut.
const MAX_TEXT_CHARS: usize = 512;

/// One run's view of a sink; cheap to clone.
#[derive(Clone)]
pub struct AuditScope {
    run: RunId,
    runtime: Arc<str>,
    sink: Arc<dyn AuditSink>,
    state: Arc<Mutex<AuditSummary>>,
}

/// Counts of a run's trail; part of the step's result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct AuditSummary {
    /// Events written.
    pub events: u64,
    /// Denials among everything that happened, written or not.
    pub denials: u64,
    /// Denials that were counted but not written, because there were too many.
    pub suppressed: u64,
    /// Events the sink failed to keep.
    pub lost: u64,
}

impl AuditScope {
    /// A trail for `run`.
    #[must_use]
    pub fn new(run: RunId, runtime: &str, sink: Arc<dyn AuditSink>) -> Self {
        Self { run, runtime: runtime.into(), sink, state: Arc::default() }
    }

    /// The run.
    #[must_use]
    pub fn run(&self) -> RunId {
        self.run
    }

    /// Records something that was allowed or simply happened.
    ///
    /// # Errors
    /// When the sink can't keep it: the action must then not be done.
    pub fn allow(&self, layer: Layer, action: &'static str, object: &str, reason: &str) -> Result<()> {
        self.record(layer, Decision::Allow, action, object, reason)
    }

    /// Records a denial. The caller refuses in any case, so a sink that fails is counted, not returned.
    pub fn deny(&self, layer: Layer, action: &'static str, object: &str, reason: &str) {
        // The sink's error is counted in `lost`, which the step turns into a failure at the end.
        let _ = self.record(layer, Decision::Deny, action, object, reason);
    }

    /// Writes the closing event: the counts, so that a reader knows that nothing is missing and what was suppressed.
    ///
    /// # Errors
    /// When the sink can't keep it.
    pub fn close(&self) -> Result<()> {
        let AuditSummary { events, denials, suppressed, lost } = self.summary();
        let counts = format!("{events} events, {denials} denials, {suppressed} suppressed, {lost} lost");
        self.record(Layer::Step, Decision::Allow, CLOSING_ACTION, "", &counts)
    }

    /// Counts so far.
    #[must_use]
    pub fn summary(&self) -> AuditSummary {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record(&self, layer: Layer, decision: Decision, action: &'static str, object: &str, reason: &str) -> Result<()> {
        // The lock is held while writing, so that numbers and lines have the same order.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if decision == Decision::Deny {
            state.denials += 1;
            if state.denials > MAX_DENIALS_KEPT {
                // Not to `tracing` either: a guest can be refused millions of times a second.
                state.suppressed += 1;
                return Ok(());
            }
            tracing::warn!(run = %self.run, ?layer, action, object = %clip(object), reason = %clip(reason), "denied");
        }
        let event = AuditEvent {
            seq: state.events,
            time: SystemTime::now(),
            run: self.run,
            runtime: self.runtime.to_string(),
            layer,
            decision,
            action,
            object: clip(object),
            reason: clip(reason),
        };
        match self.sink.record(&event) {
            Ok(()) => {
                state.events += 1;
                Ok(())
            }
            Err(error) => {
                state.lost += 1;
                Err(error.operation("audit"))
            }
        }
    }
}

impl std::fmt::Debug for AuditScope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AuditScope").field("run", &self.run).field("summary", &self.summary()).finish_non_exhaustive()
    }
}

/// Escapes control characters and cuts long text.
fn clip(text: &str) -> String {
    let mut clipped: String = text.chars().take(MAX_TEXT_CHARS).flat_map(escape_control).collect();
    if text.chars().nth(MAX_TEXT_CHARS).is_some() {
        clipped.push('…');
    }
    clipped
}

fn escape_control(c: char) -> impl Iterator<Item = char> {
    // Bidirectional controls can make a log line read as something else.
    let hidden =
        c.is_control() || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let escaped = hidden.then(|| c.escape_unicode());
    let plain = (!hidden).then_some(c);
    escaped.into_iter().flatten().chain(plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::{JsonlSink, MemorySink};
    use crate::error::{ErrorKind, SkillRuntimeError};

    fn scope(sink: Arc<dyn AuditSink>) -> AuditScope {
        AuditScope::new(RunId::random().unwrap(), "wasm", sink)
    }

    #[test]
    fn floods_are_counted_not_kept_and_numbers_have_no_gaps() {
        let sink = Arc::new(MemorySink::default());
        let scope = scope(sink.clone());
        for _ in 0..MAX_DENIALS_KEPT + 50 {
            scope.deny(Layer::Files, "open", "/etc/passwd", "outside the workspace");
        }
        scope.allow(Layer::Runtime, "cleanup", "", "").unwrap();
        let events = sink.events();
        assert!(events.iter().map(|event| event.seq).eq(0..MAX_DENIALS_KEPT + 1));
        assert_eq!(scope.summary(), AuditSummary { events: 1001, denials: 1050, suppressed: 50, lost: 0 });
    }

    #[test]
    fn a_guest_cannot_forge_a_line_or_paint_a_terminal() {
        let lines: Arc<Mutex<Vec<u8>>> = Arc::default();
        struct Shared(Arc<Mutex<Vec<u8>>>);
        impl std::io::Write for Shared {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                self.0.lock().unwrap().extend_from_slice(bytes);
                Ok(bytes.len())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let scope = scope(Arc::new(JsonlSink::new(Shared(lines.clone()))));
        scope.deny(Layer::Files, "open", "x\n{\"seq\":0}\u{1b}[2J\u{202e}", &"y".repeat(10_000));
        let text = String::from_utf8(lines.lock().unwrap().clone()).unwrap();
        assert_eq!(text.lines().count(), 1);
        let event: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(event["object"], "x\\u{a}{\"seq\":0}\\u{1b}[2J\\u{202e}");
        assert_eq!(event["decision"], "deny");
        assert_eq!(event["reason"].as_str().unwrap().chars().count(), MAX_TEXT_CHARS + 1);
    }

    #[test]
    fn an_action_that_cannot_be_logged_is_an_error() {
        struct Full;
        impl AuditSink for Full {
            fn record(&self, _event: &AuditEvent) -> Result<()> {
                Err(SkillRuntimeError::new(ErrorKind::Backend, "disk full"))
            }
        }
        let scope = scope(Arc::new(Full));
        assert_eq!(scope.allow(Layer::Step, "plan", "", "").unwrap_err().to_string(), "disk full");
        scope.deny(Layer::Files, "open", "x", "y");
        assert_eq!(scope.summary(), AuditSummary { events: 0, denials: 1, suppressed: 0, lost: 2 });
    }
}
