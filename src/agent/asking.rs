//! Asks the model for one turn: within the budgets, cancellable, with retries of what may succeed later.
//!
//! Only the model call is ever retried, never a tool. Every try is paid for, also one that failed. An overflow is told
//! apart at once: the same conversation is not sent again.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::budget::Meter;
use super::events::{AgentEvent, AgentSink};
use super::model::{ChatModel, ModelError, ModelErrorKind, Turn, TurnRequest, TurnSink};
use super::outcome::StopReason;
use crate::error::Result;

/// The longest wait a provider can ask for.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(60);

/// How failed turns are asked for again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Tries in all. Default 5.
    pub tries: u32,
    /// The wait after the first failure, doubled after each; a random part of it is taken. Default 0.5 s.
    pub base: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { tries: 5, base: Duration::from_millis(500) }
    }
}

/// What came of asking.
#[derive(Debug)]
pub(super) enum Asked {
    Turn(Turn),
    /// The conversation doesn't fit; it must be made smaller.
    Overflow(ModelError),
    /// The run ends.
    Ended(StopReason, String),
}

/// Passes text on as events; a reader that is slow or gone doesn't hold up the model.
struct Deltas<'a>(&'a dyn AgentSink);

impl TurnSink for Deltas<'_> {
    fn delta(&self, text: &str) {
        // Deltas are for watching; what counts is the turn, which is written whole.
        let _ = self.0.event(&AgentEvent::ModelDelta { text: text.to_owned() });
    }
}

/// Asks for one turn.
///
/// # Errors
/// When an event can't be kept.
pub(super) async fn ask(
    model: &dyn ChatModel,
    request: &TurnRequest<'_>,
    policy: RetryPolicy,
    meter: &mut Meter,
    events: &dyn AgentSink,
    cancel: &CancellationToken,
) -> Result<Asked> {
    let mut attempt = 0u32;
    loop {
        attempt += 1;
        let deltas = Deltas(events);
        let answer = tokio::select! {
            biased;
            () = cancel.cancelled() => return Ok(Asked::Ended(StopReason::Cancelled, "cancelled while the model was answering".to_owned())),
            () = tokio::time::sleep_until(meter.deadline()) => {
                return Ok(Asked::Ended(StopReason::Deadline, "the time budget ended while the model was answering".to_owned()));
            }
            answer = model.turn(request, &deltas) => answer,
        };
        let error = match answer {
            Ok(turn) => {
                meter.usage.add(turn.usage);
                return Ok(Asked::Turn(turn));
            }
            Err(error) => error,
        };
        meter.usage.add(error.usage);
        match error.kind {
            ModelErrorKind::ContextOverflow => return Ok(Asked::Overflow(error)),
            ModelErrorKind::ContentFilter => return Ok(Asked::Ended(StopReason::Refused, error.to_string())),
            ModelErrorKind::Auth | ModelErrorKind::BadRequest => {
                return Ok(Asked::Ended(StopReason::ModelError, error.to_string()));
            }
            ModelErrorKind::RateLimited
            | ModelErrorKind::Overloaded
            | ModelErrorKind::Timeout
            | ModelErrorKind::Network
            | ModelErrorKind::Server
            | ModelErrorKind::Protocol => {}
        }
        let wait = match error.retry_after {
            Some(asked) => asked.min(MAX_RETRY_AFTER),
            None => jitter(policy.base.saturating_mul(1 << attempt.min(16).saturating_sub(1))),
        };
        let too_late = Instant::now() + wait >= meter.deadline();
        if attempt >= policy.tries || too_late {
            let why = if too_late { "the time budget leaves no room to ask again" } else { "no tries are left" };
            return Ok(Asked::Ended(StopReason::ModelError, format!("{error}; asked {attempt} times, {why}")));
        }
        events.event(&AgentEvent::ModelRetry {
            attempt,
            kind: error.kind,
            message: error.to_string(),
            wait: wait.as_secs_f64(),
            usage: error.usage,
        })?;
        tokio::select! {
            biased;
            () = cancel.cancelled() => {
                return Ok(Asked::Ended(StopReason::Cancelled, "cancelled while waiting to ask the model again".to_owned()));
            }
            () = sleep(wait) => {}
        }
    }
}

/// A random part of a wait, so that many clients don't come back together. A random source that fails means no wait is
/// saved.
fn jitter(wait: Duration) -> Duration {
    let mut bytes = [0; 4];
    match getrandom::fill(&mut bytes) {
        Ok(()) => wait.mul_f64(f64::from(u32::from_be_bytes(bytes)) / f64::from(u32::MAX)),
        Err(_) => wait,
    }
}
