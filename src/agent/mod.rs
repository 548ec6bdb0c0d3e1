//! The tool loop: a model works on a task with a skill, in whatever runtime was chosen.
//!
//! This module sees only `dyn SkillRuntime` and `dyn ChatModel`. [`run_loop`] is the loop; [`run_mode`] is CARL's five
//! execution modes, of which the loop is one. Nothing here knows a runtime by name, reads a key, or touches a file of the
//! host but the transcript the caller names.
//!
//! Invariant: a result of a tool is foreign text. It is bounded, cleaned and shown; it is never obeyed.

mod approve;
mod asking;
mod bound;
mod budget;
mod calls;
mod context;
mod events;
mod guard;
mod model;
mod modes;
mod outcome;
mod recover;
mod run_loop;
mod schema;
mod screen;
mod scripted;
mod toolbox;
mod tools;
mod transcript;
#[cfg(feature = "llm")]
mod wires;

pub use approve::{Approval, Approver, ProposedCall};
pub use asking::RetryPolicy;
pub use bound::Bounds;
pub use budget::{Budget, Prices};
pub use events::{AgentEvent, AgentSink, ChannelSink, FanOut, MemoryAgentSink, NullAgentSink, ToolOutcome};
pub use model::{
    AssistantTurn, ChatModel, Message, ModelCaps, ModelError, ModelErrorKind, ModelStop, RawToolCall, TokenUsage,
    ToolChoice, ToolResult, ToolSpec, Turn, TurnRequest, TurnSink,
};
pub use modes::{AgentSkillExecutionMode, ModeConfig, ModeEnvironment, ModeOutcome, run_mode};
pub use outcome::{AgentOutcome, StopReason};
pub use run_loop::{AgentConfig, AgentEnvironment, SchemaMode, ToolOffer, run_loop};
pub use schema::OutputSchema;
pub use screen::{BasicScreen, NoScreen, ResultScreen, Screened};
pub use scripted::{AskedTurn, ReplayModel, ScriptedModel};
pub use tools::Tool;
pub use transcript::{Conversation, Transcript, TranscriptFile};
#[cfg(feature = "llm")]
pub use wires::{ApiKey, Streaming, Wire, WireConfig, WireProtocol};
