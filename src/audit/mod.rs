//! The audit trail: one event at every boundary of a run, written before the answer is returned.
//!
//! [`AuditEvent`] says who tried what and what was decided; an [`AuditSink`] keeps it ([`MemorySink`], [`JsonlSink`], the hash-chained [`JsonlFileSink`]);
//! an [`AuditScope`] is a run's own view of a sink: it numbers events, bounds floods and mirrors denials to `tracing`.
//!
//! Invariants: every denial emits exactly one event; no secret is ever in an event (values of environment variables
//! and contents of files are never put in); control characters of guests are escaped on the way to disk.

mod chain;
mod event;
mod scope;
mod sink;

pub use chain::{CLOSING_ACTION, ChainFinding, ChainReport, GENESIS, verify_chain};
pub use event::{AuditEvent, Decision, Layer, RunId};
pub use scope::{AuditScope, AuditSummary};
pub use sink::{AuditSink, JsonlFileSink, JsonlSink, MemorySink, NullSink};
