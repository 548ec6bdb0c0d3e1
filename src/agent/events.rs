//! What happens in a run of the loop, as a typed stream: for live progress, and written as the transcript.
//!
//! Invariant: an event holds nothing that the caller named as a secret; texts went through
//! [`Bounds`](super::bound::Bounds) before.

use crate::error::Result;

use super::model::{AssistantTurn, ModelErrorKind, ModelStop, TokenUsage};
use super::outcome::StopReason;

/// One event.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum AgentEvent {
    /// The run begins.
    RunStarted {
        /// The model.
        model: String,
        /// The runtime.
        runtime: String,
        /// The skill's name.
        skill: String,
        /// The digest of the skill's tree.
        skill_digest: String,
        /// Whether the network policy is enforced.
        network_enforced: bool,
        /// The tools that are offered.
        tools: Vec<String>,
        /// The system prompt.
        system: String,
        /// The first message.
        task: String,
    },
    /// The run goes on after a break: what came before is in the transcript.
    RunResumed {
        /// The model.
        model: String,
        /// The runtime.
        runtime: String,
    },
    /// A note of the loop to the model, as a message of the caller.
    Note {
        /// The text.
        text: String,
    },
    /// A piece of the model's text. Not in the transcript; dropped when nobody keeps up.
    ModelDelta {
        /// The text.
        text: String,
    },
    /// A turn failed and is asked for again.
    ModelRetry {
        /// Which try failed, from 1.
        attempt: u32,
        /// Why.
        kind: ModelErrorKind,
        /// In words.
        message: String,
        /// How long it waits, in seconds.
        wait: f64,
        /// What the try cost.
        usage: TokenUsage,
    },
    /// The model's turn.
    ModelTurn {
        /// Which, from 1.
        round: u32,
        /// What it said.
        turn: AssistantTurn,
        /// Why it ended.
        stop: ModelStop,
        /// What it cost.
        usage: TokenUsage,
    },
    /// A call begins.
    ToolStarted {
        /// The round.
        round: u32,
        /// Which call of the turn, from 0.
        index: usize,
        /// The call's id.
        call_id: String,
        /// The tool.
        tool: String,
        /// Its arguments, canonical.
        arguments: String,
    },
    /// A call ended, or was never begun.
    ToolFinished {
        /// The round.
        round: u32,
        /// Which call of the turn, from 0.
        index: usize,
        /// The call's id.
        call_id: String,
        /// The tool.
        tool: String,
        /// What became of it.
        outcome: ToolOutcome,
        /// What the model is told.
        content: String,
        /// Bytes of the whole output that the model isn't shown.
        omitted_bytes: u64,
        /// Seconds.
        duration: f64,
    },
    /// Results were taken out of the conversation to make room.
    Compacted {
        /// How many results are stubs now.
        stubbed: usize,
        /// How many old rounds were left out.
        dropped: usize,
        /// Tokens before, estimated.
        before: u64,
        /// Tokens after, estimated.
        after: u64,
    },
    /// The run ended.
    RunFinished {
        /// Why.
        stop: StopReason,
        /// Turns of the model.
        rounds: u32,
        /// Calls that were begun.
        tool_calls: u32,
        /// Tokens.
        usage: TokenUsage,
        /// The answer, or the last text.
        text: String,
    },
}

/// What became of a call. Never guessed: *interrupted* means that it ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolOutcome {
    /// It ran to its end; the script may have failed.
    Done,
    /// It ran into a time limit and was stopped.
    TimedOut,
    /// The sandbox or the policy refused it.
    Denied,
    /// The arguments, the tool's name or the named thing were wrong; nothing was run.
    Invalid,
    /// It was running when the run ended, and was stopped.
    Interrupted,
    /// It was never begun.
    NotStarted,
}

impl ToolOutcome {
    /// Whether the model is told that it is an error.
    #[must_use]
    pub fn is_error(self) -> bool {
        match self {
            Self::Done => false,
            Self::TimedOut | Self::Denied | Self::Invalid | Self::Interrupted | Self::NotStarted => true,
        }
    }
}

/// Hears events, in order.
pub trait AgentSink: Send + Sync {
    /// One event. Must not block for long.
    ///
    /// # Errors
    /// When it must be kept and can't be: the run ends then, since what can't be written down isn't done.
    fn event(&self, event: &AgentEvent) -> Result<()>;
}

/// Hears nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NullAgentSink;

impl AgentSink for NullAgentSink {
    fn event(&self, _event: &AgentEvent) -> Result<()> {
        Ok(())
    }
}

/// Passes events to several, in order; the first error is returned after all have heard.
#[derive(Default)]
pub struct FanOut(pub Vec<std::sync::Arc<dyn AgentSink>>);

impl AgentSink for FanOut {
    fn event(&self, event: &AgentEvent) -> Result<()> {
        let mut first = Ok(());
        for sink in &self.0 {
            // All hear it, whoever failed before.
            let heard = sink.event(event);
            if first.is_ok() {
                first = heard;
            }
        }
        first
    }
}

/// Keeps events in memory, for tests and embedders. Deltas are not kept.
#[derive(Debug, Default)]
pub struct MemoryAgentSink(std::sync::Mutex<Vec<AgentEvent>>);

impl MemoryAgentSink {
    /// Everything kept so far.
    #[must_use]
    pub fn events(&self) -> Vec<AgentEvent> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }
}

impl AgentSink for MemoryAgentSink {
    fn event(&self, event: &AgentEvent) -> Result<()> {
        if !matches!(event, AgentEvent::ModelDelta { .. }) {
            self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(event.clone());
        }
        Ok(())
    }
}

/// Sends events into a bounded channel, from which another task reads. Deltas are dropped when it is full, so that a
/// slow reader never holds up a run; any other event then ends the run, since a reader that lost one would show a lie.
#[derive(Debug, Clone)]
pub struct ChannelSink(pub tokio::sync::mpsc::Sender<AgentEvent>);

impl AgentSink for ChannelSink {
    fn event(&self, event: &AgentEvent) -> Result<()> {
        match (self.0.try_send(event.clone()), event) {
            // A reader that is gone doesn't want any more.
            (Ok(()) | Err(tokio::sync::mpsc::error::TrySendError::Closed(_)), _)
            | (Err(tokio::sync::mpsc::error::TrySendError::Full(_)), AgentEvent::ModelDelta { .. }) => Ok(()),
            (Err(tokio::sync::mpsc::error::TrySendError::Full(_)), _) => Err(crate::SkillRuntimeError::new(
                crate::ErrorKind::LimitExceeded,
                "the reader of the run's events doesn't keep up; give it a larger channel",
            )),
        }
    }
}
