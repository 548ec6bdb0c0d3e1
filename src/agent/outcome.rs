//! What came of a run of the loop.

use serde_json::Value;

use super::model::{Message, TokenUsage};

/// Why a run ended. Only [`Final`](Self::Final) is an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The model answered.
    Final,
    /// No rounds were left.
    MaxRounds,
    /// No time was left.
    Deadline,
    /// No tokens were left.
    Tokens,
    /// The cost limit was reached.
    Cost,
    /// No tool calls were left.
    ToolCalls,
    /// The caller cancelled.
    Cancelled,
    /// The model repeated itself.
    LoopDetected,
    /// The model's turns could not be understood several times running.
    BadFormat,
    /// The answer did not fit the output schema.
    SchemaMismatch,
    /// The model or its provider refused.
    Refused,
    /// The conversation does not fit the model's context, and nothing is left to take out.
    ContextOverflow,
    /// The model failed.
    ModelError,
    /// The sandbox failed.
    SandboxFailed,
}

impl StopReason {
    /// The word in JSON and logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Final => "final",
            Self::MaxRounds => "max_rounds",
            Self::Deadline => "deadline",
            Self::Tokens => "tokens",
            Self::Cost => "cost",
            Self::ToolCalls => "tool_calls",
            Self::Cancelled => "cancelled",
            Self::LoopDetected => "loop_detected",
            Self::BadFormat => "bad_format",
            Self::SchemaMismatch => "schema_mismatch",
            Self::Refused => "refused",
            Self::ContextOverflow => "context_overflow",
            Self::ModelError => "model_error",
            Self::SandboxFailed => "sandbox_failed",
        }
    }
}

impl std::fmt::Display for StopReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What came of a run: always all of it, however it ended.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentOutcome {
    /// Why it ended.
    pub stop: StopReason,
    /// The answer; when there is none, the last text of the model.
    pub text: String,
    /// What went wrong, in words; `None` for an answer.
    pub error: Option<String>,
    /// The answer as JSON, when a schema was given and it fits (or needn't).
    pub parsed_output: Option<Value>,
    /// How the answer departs from the schema, when that was allowed.
    pub schema_warnings: Vec<String>,
    /// Turns of the model (CARL's `iterations`).
    pub iterations: u32,
    /// Calls that were begun.
    pub tool_calls_made: u32,
    /// Tokens.
    pub usage: TokenUsage,
    /// Cost, where prices are known.
    pub cost: Option<f64>,
    /// The conversation.
    pub messages: Vec<Message>,
}

impl AgentOutcome {
    /// Whether there is an answer.
    #[must_use]
    pub fn success(&self) -> bool {
        self.stop == StopReason::Final
    }
}
