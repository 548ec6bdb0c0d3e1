//! [`ChatModel`]: what the loop needs of a model, and the values that go in and come out.
//!
//! Arguments of tool calls stay raw text here: a wire must not fail a whole answer because one argument string is
//! malformed, and must not turn it into `{}`. Invariant: these types hold no key and no address with one.

use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;

/// One message of the conversation after the system prompt.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum Message {
    /// From the caller: the task, or a note of the loop.
    User {
        /// The text.
        text: String,
    },
    /// From the model.
    Assistant(AssistantTurn),
    /// What came of every call of the turn before, in the order of the calls.
    ToolResults {
        /// One for each call.
        results: Vec<ToolResult>,
    },
}

/// What a model said in one turn.
#[derive(Debug, Clone, PartialEq, Default, serde::Serialize, serde::Deserialize)]
pub struct AssistantTurn {
    /// Its text.
    pub text: String,
    /// The calls it asks for, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<RawToolCall>,
    /// The provider's own blocks, kept to be sent back as they were (signed thinking). Only the wire that made them
    /// reads them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<Value>,
    /// The calls were found in the text, because the model or its server doesn't speak the tool protocol. They are
    /// answered in text too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub recovered: bool,
}

/// A call as the model wrote it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct RawToolCall {
    /// Names the call within its turn.
    pub id: String,
    /// The tool's name, which need not exist.
    pub name: String,
    /// The arguments, which need not be JSON.
    pub arguments: String,
}

/// What came of a call, as the model is told.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ToolResult {
    /// The call's id.
    pub call_id: String,
    /// The tool's name.
    pub name: String,
    /// The text.
    pub content: String,
    /// Whether it is an error.
    pub is_error: bool,
}

/// A tool as it is offered.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolSpec {
    /// Its name.
    pub name: &'static str,
    /// What it does, for the model.
    pub description: String,
    /// A JSON schema of its arguments.
    pub parameters: Value,
}

/// Whether the model may call tools in this turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolChoice {
    /// As it likes.
    Auto,
    /// Not any more: it must answer.
    None,
}

/// One turn that is asked for.
#[derive(Debug, Clone, Copy)]
pub struct TurnRequest<'a> {
    /// The system prompt.
    pub system: &'a str,
    /// The conversation; never empty, and begins with the caller.
    pub messages: &'a [Message],
    /// The tools.
    pub tools: &'a [ToolSpec],
    /// Whether they may be called.
    pub tool_choice: ToolChoice,
    /// The most tokens of the answer.
    pub max_output_tokens: u32,
}

/// Why a model ended its turn.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelStop {
    /// It has said what it wanted.
    EndTurn,
    /// It waits for results of calls.
    ToolUse,
    /// It reached the limit of the answer: text and calls may be cut.
    MaxTokens,
    /// It or its provider refused.
    Refusal,
    /// Something else, in the provider's word.
    Other(String),
}

/// Tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct TokenUsage {
    /// Read, those from a cache included.
    pub input: u64,
    /// Of these, read from a cache.
    pub cached: u64,
    /// Written.
    pub output: u64,
}

impl TokenUsage {
    /// All together.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.input.saturating_add(self.output)
    }

    /// Adds another turn's.
    pub fn add(&mut self, other: Self) {
        self.input = self.input.saturating_add(other.input);
        self.cached = self.cached.saturating_add(other.cached);
        self.output = self.output.saturating_add(other.output);
    }
}

/// One turn that came.
#[derive(Debug, Clone, PartialEq)]
pub struct Turn {
    /// What was said.
    pub assistant: AssistantTurn,
    /// Why it ended.
    pub stop: ModelStop,
    /// What it cost.
    pub usage: TokenUsage,
}

/// What kind of failure, named for what may be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelErrorKind {
    /// Too many requests: wait.
    RateLimited,
    /// The provider has too much to do: wait.
    Overloaded,
    /// Nothing came for too long.
    Timeout,
    /// No connection, or it broke.
    Network,
    /// The server failed.
    Server,
    /// The conversation doesn't fit: shorten it; sending it again is of no use.
    ContextOverflow,
    /// The key is missing or not accepted.
    Auth,
    /// The request is not accepted.
    BadRequest,
    /// The provider's filter refused.
    ContentFilter,
    /// The answer can't be understood.
    Protocol,
}

impl ModelErrorKind {
    /// Whether the same request may succeed later.
    #[must_use]
    pub fn retryable(self) -> bool {
        match self {
            // A stream that broke or was garbled often is whole the next time.
            Self::RateLimited | Self::Overloaded | Self::Timeout | Self::Network | Self::Server | Self::Protocol => {
                true
            }
            Self::ContextOverflow | Self::Auth | Self::BadRequest | Self::ContentFilter => false,
        }
    }
}

/// A turn that failed.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelError {
    /// What kind.
    pub kind: ModelErrorKind,
    /// For people; no key, no whole body.
    pub message: String,
    /// The HTTP status, if there was one.
    pub status: Option<u16>,
    /// How long the provider asks to wait.
    pub retry_after: Option<Duration>,
    /// What it cost all the same.
    pub usage: TokenUsage,
}

impl ModelError {
    /// An error of a kind.
    pub fn new(kind: ModelErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), status: None, retry_after: None, usage: TokenUsage::default() }
    }
}

impl std::fmt::Display for ModelError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)?;
        match self.status {
            Some(status) => write!(f, " (status {status})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for ModelError {}

/// What a model can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelCaps {
    /// Tokens of conversation and answer together, where that is known.
    pub max_context: Option<u64>,
    /// Tokens of one answer.
    pub max_output: u32,
}

/// Hears a turn while it comes. Called in order, from the task that waits for the turn.
pub trait TurnSink: Send + Sync {
    /// The next piece of text.
    fn delta(&self, text: &str);
}

/// A model that can be asked for turns. Dropping the future of `turn` ends the request.
#[async_trait]
pub trait ChatModel: Send + Sync {
    /// Its name, for results and transcripts.
    fn id(&self) -> &str;

    /// What it can do.
    fn caps(&self) -> ModelCaps;

    /// Asks for one turn. No retry is done here: the loop does that, within its budgets.
    ///
    /// # Errors
    /// Sorted by what may be done.
    async fn turn(&self, request: &TurnRequest<'_>, sink: &dyn TurnSink) -> Result<Turn, ModelError>;
}
