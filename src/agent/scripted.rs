//! Models without a model: [`ScriptedModel`] says what it is told, [`ReplayModel`] what a transcript says. For tests of
//! those who build on the loop, and for replays.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use serde_json::Value;

use super::model::{
    AssistantTurn, ChatModel, Message, ModelCaps, ModelError, ModelErrorKind, ModelStop, RawToolCall, TokenUsage, Turn,
    TurnRequest, TurnSink,
};
use super::transcript::Transcript;

/// Gives prepared turns, one after the other, and remembers what it was asked.
///
/// ```
/// use skillcell::agent::ScriptedModel;
/// let model = ScriptedModel::new().call("list_resources", serde_json::json!({})).say("There is one script.");
/// assert_eq!(model.turns_left(), 2);
/// ```
#[derive(Debug, Default)]
pub struct ScriptedModel {
    turns: Mutex<VecDeque<Result<Turn, ModelError>>>,
    asked: Mutex<Vec<AskedTurn>>,
    max_context: Option<u64>,
}

/// What a scripted model was asked.
#[derive(Debug, Clone, PartialEq)]
pub struct AskedTurn {
    /// The system prompt.
    pub system: String,
    /// The conversation.
    pub messages: Vec<Message>,
    /// The names of the tools that were offered.
    pub tools: Vec<&'static str>,
    /// Whether they could be called.
    pub may_call: bool,
    /// The limit of the answer.
    pub max_output_tokens: u32,
}

impl ScriptedModel {
    /// A model that has nothing to say.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a turn of text.
    #[must_use]
    pub fn say(self, text: &str) -> Self {
        let assistant = AssistantTurn { text: text.to_owned(), ..AssistantTurn::default() };
        self.turn(Turn { assistant, stop: ModelStop::EndTurn, usage: counted(text) })
    }

    /// Adds a turn with one call.
    #[must_use]
    pub fn call(self, name: &str, arguments: Value) -> Self {
        self.calls(&[(name, arguments)])
    }

    /// Adds a turn with several calls.
    #[must_use]
    pub fn calls(self, calls: &[(&str, Value)]) -> Self {
        let raw: Vec<(&str, String)> = calls.iter().map(|(name, value)| (*name, value.to_string())).collect();
        let raw: Vec<(&str, &str)> = raw.iter().map(|(name, text)| (*name, text.as_str())).collect();
        self.raw_calls(&raw)
    }

    /// Adds a turn with calls whose arguments are any text.
    #[must_use]
    pub fn raw_calls(self, calls: &[(&str, &str)]) -> Self {
        let call = |(index, (name, arguments)): (usize, &(&str, &str))| RawToolCall {
            id: format!("call_{index}"),
            name: (*name).to_owned(),
            arguments: (*arguments).to_owned(),
        };
        let calls: Vec<RawToolCall> = calls.iter().enumerate().map(call).collect();
        let usage = TokenUsage { input: 10, cached: 0, output: 10 };
        let assistant = AssistantTurn { calls, ..AssistantTurn::default() };
        self.turn(Turn { assistant, stop: ModelStop::ToolUse, usage })
    }

    /// Adds any turn.
    #[must_use]
    pub fn turn(self, turn: Turn) -> Self {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner).push_back(Ok(turn));
        self
    }

    /// Adds a failure.
    #[must_use]
    pub fn fail(self, error: ModelError) -> Self {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner).push_back(Err(error));
        self
    }

    /// Says how many tokens fit.
    #[must_use]
    pub fn with_context(mut self, tokens: u64) -> Self {
        self.max_context = Some(tokens);
        self
    }

    /// Turns that were not asked for yet.
    #[must_use]
    pub fn turns_left(&self) -> usize {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Everything it was asked so far.
    #[must_use]
    pub fn asked(&self) -> Vec<AskedTurn> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn counted(text: &str) -> TokenUsage {
    TokenUsage { input: 10, cached: 0, output: text.split_whitespace().count() as u64 }
}

#[async_trait]
impl ChatModel for ScriptedModel {
    fn id(&self) -> &str {
        "scripted"
    }

    fn caps(&self) -> ModelCaps {
        ModelCaps { max_context: self.max_context, max_output: 4_096 }
    }

    async fn turn(&self, request: &TurnRequest<'_>, sink: &dyn TurnSink) -> Result<Turn, ModelError> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).push(AskedTurn {
            system: request.system.to_owned(),
            messages: request.messages.to_vec(),
            tools: request.tools.iter().map(|tool| tool.name).collect(),
            may_call: request.tool_choice == super::model::ToolChoice::Auto,
            max_output_tokens: request.max_output_tokens,
        });
        let next = self.turns.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let turn = next.unwrap_or_else(|| {
            Err(ModelError::new(ModelErrorKind::BadRequest, "the scripted model has no more turns; add one"))
        })?;
        if !turn.assistant.text.is_empty() {
            sink.delta(&turn.assistant.text);
        }
        Ok(turn)
    }
}

/// Gives the turns of a transcript again.
#[derive(Debug)]
pub struct ReplayModel {
    id: String,
    turns: Mutex<VecDeque<Turn>>,
}

impl ReplayModel {
    /// A model that says what the model of this transcript said.
    #[must_use]
    pub fn new(transcript: &Transcript) -> Self {
        Self { id: format!("replay of {}", transcript.model()), turns: Mutex::new(transcript.turns().into()) }
    }
}

#[async_trait]
impl ChatModel for ReplayModel {
    fn id(&self) -> &str {
        &self.id
    }

    fn caps(&self) -> ModelCaps {
        ModelCaps { max_context: None, max_output: u32::MAX }
    }

    async fn turn(&self, _request: &TurnRequest<'_>, sink: &dyn TurnSink) -> Result<Turn, ModelError> {
        let next = self.turns.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let turn = next.ok_or_else(|| {
            ModelError::new(
                ModelErrorKind::BadRequest,
                "the transcript has no more turns: this run asks for more than that one did",
            )
        })?;
        if !turn.assistant.text.is_empty() {
            sink.delta(&turn.assistant.text);
        }
        Ok(turn)
    }
}
