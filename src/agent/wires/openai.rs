//! OpenAI Chat Completions, as many servers speak it: pure code from values to the request and from the answer to values.
//!
//! "Compatible" servers merge, repeat and leave out parts of streamed calls. A part belongs to the call with its index,
//! or with its id, or to the last one; what comes out is raw text that the loop checks.

use serde_json::{Value, json};

use super::super::model::{
    AssistantTurn, Message, ModelError, ModelErrorKind, ModelStop, RawToolCall, TokenUsage, ToolChoice, ToolResult,
    ToolSpec, Turn, TurnRequest, TurnSink,
};
use super::{StreamedTurn, number, protocol, stream_error};

/// Calls of one answer; more are an attack on memory.
const MAX_CALLS: usize = 256;

/// The request. `limit` is the name of the field that limits the answer.
pub(super) fn body(model: &str, request: &TurnRequest<'_>, streams: bool, limit: &str) -> Value {
    let mut messages = Vec::new();
    if !request.system.is_empty() {
        messages.push(json!({"role": "system", "content": request.system}));
    }
    let mut recovered = false;
    for message in request.messages {
        match message {
            Message::User { text } => messages.push(json!({"role": "user", "content": text})),
            Message::Assistant(turn) => {
                recovered = turn.recovered;
                messages.push(assistant_message(turn));
            }
            Message::ToolResults { results } if recovered => {
                // The model wrote its calls as text, so its server may not know the other form.
                let text = |result: &ToolResult| format!("[Result of {}]\n{}", result.name, result.content);
                let all: Vec<String> = results.iter().map(text).collect();
                messages.push(json!({"role": "user", "content": all.join("\n\n")}));
            }
            Message::ToolResults { results } => {
                messages.extend(results.iter().map(|result| {
                    // The protocol has no place for "this is an error"; the text says it.
                    json!({"role": "tool", "tool_call_id": result.call_id, "content": result.content})
                }));
            }
        }
    }
    let mut body = json!({
        "model": model,
        "messages": messages,
        limit: request.max_output_tokens,
        "stream": streams,
    });
    if let Some(map) = body.as_object_mut() {
        if streams {
            map.insert("stream_options".into(), json!({"include_usage": true}));
        }
        if !request.tools.is_empty() {
            let tool = |tool: &ToolSpec| {
                json!({"type": "function", "function": {
                    "name": tool.name, "description": tool.description, "parameters": tool.parameters
                }})
            };
            map.insert("tools".into(), request.tools.iter().map(tool).collect());
            let choice = match request.tool_choice {
                ToolChoice::Auto => "auto",
                ToolChoice::None => "none",
            };
            map.insert("tool_choice".into(), choice.into());
        }
    }
    body
}

fn assistant_message(turn: &AssistantTurn) -> Value {
    let mut message = json!({"role": "assistant", "content": turn.text});
    if !turn.calls.is_empty()
        && !turn.recovered
        && let Some(map) = message.as_object_mut()
    {
        let call = |call: &RawToolCall| {
            // Strict servers parse the text; what can't be parsed was answered with an error that quotes it.
            let object = serde_json::from_str::<Value>(&call.arguments).is_ok_and(|value| value.is_object());
            let arguments = if object { call.arguments.as_str() } else { "{}" };
            json!({"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}})
        };
        map.insert("tool_calls".into(), turn.calls.iter().map(call).collect());
    }
    message
}

fn stop(reason: Option<&str>) -> ModelStop {
    match reason {
        Some("stop") | None => ModelStop::EndTurn,
        Some("tool_calls" | "function_call") => ModelStop::ToolUse,
        Some("length") => ModelStop::MaxTokens,
        Some("content_filter") => ModelStop::Refusal,
        Some(other) => ModelStop::Other(other.chars().take(80).collect()),
    }
}

fn usage(value: &Value) -> TokenUsage {
    TokenUsage {
        input: number(value, "/prompt_tokens"),
        cached: number(value, "/prompt_tokens_details/cached_tokens"),
        output: number(value, "/completion_tokens"),
    }
}

/// Arguments are text; some servers send the object itself.
fn arguments(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => other.to_string(),
    }
}

/// Reads an answer that came whole.
pub(super) fn read_whole(value: &Value) -> Result<Turn, ModelError> {
    if let Some(error) = value.get("error").filter(|error| error.is_object()) {
        return Err(stream_error(error));
    }
    let usage = value.get("usage").map(usage).unwrap_or_default();
    let Some(choice) = value.pointer("/choices/0") else {
        return Err(ModelError { usage, ..protocol("the answer has no choices") });
    };
    let message = choice.get("message").unwrap_or(&Value::Null);
    let text = |key: &str| message.get(key).and_then(Value::as_str).unwrap_or("");
    let calls = message.get("tool_calls").and_then(Value::as_array).into_iter().flatten().take(MAX_CALLS);
    let call = |call: &Value| RawToolCall {
        id: call.get("id").and_then(Value::as_str).unwrap_or("").to_owned(),
        name: call.pointer("/function/name").and_then(Value::as_str).unwrap_or("").to_owned(),
        arguments: call.pointer("/function/arguments").map(arguments).unwrap_or_default(),
    };
    let calls: Vec<RawToolCall> = calls.map(call).collect();
    let refused = !text("refusal").is_empty();
    let stop = if refused { ModelStop::Refusal } else { stop(choice.get("finish_reason").and_then(Value::as_str)) };
    let text = if refused { text("refusal") } else { text("content") };
    Ok(Turn {
        assistant: AssistantTurn { text: text.to_owned(), calls, provider: None, recovered: false },
        stop,
        usage,
    })
}

/// A turn that is streamed.
#[derive(Default)]
pub(super) struct Streamed {
    text: String,
    refusal: String,
    calls: Vec<(Option<u64>, RawToolCall)>,
    stop: Option<String>,
    usage: TokenUsage,
    ended: bool,
}

impl StreamedTurn for Streamed {
    fn take(&mut self, data: &str, sink: &dyn TurnSink) -> Result<(), ModelError> {
        if data.trim() == "[DONE]" {
            self.ended = true;
            return Ok(());
        }
        let chunk: Value = serde_json::from_str(data)
            .map_err(|error| protocol(format!("an event of the stream is no JSON: {error}")))?;
        if let Some(error) = chunk.get("error").filter(|error| error.is_object()) {
            return Err(stream_error(error));
        }
        if let Some(now) = chunk.get("usage").filter(|usage| usage.is_object()) {
            self.usage = usage(now);
        }
        let Some(choice) = chunk.pointer("/choices/0") else { return Ok(()) };
        if let Some(text) = choice.pointer("/delta/content").and_then(Value::as_str).filter(|text| !text.is_empty()) {
            self.text.push_str(text);
            sink.delta(text);
        }
        if let Some(text) = choice.pointer("/delta/refusal").and_then(Value::as_str) {
            self.refusal.push_str(text);
        }
        for part in choice.pointer("/delta/tool_calls").and_then(Value::as_array).into_iter().flatten() {
            self.part(part)?;
        }
        if let Some(reason) = choice.get("finish_reason").and_then(Value::as_str) {
            self.stop = Some(reason.to_owned());
        }
        Ok(())
    }

    fn usage(&self) -> TokenUsage {
        self.usage
    }

    fn ended(&self) -> bool {
        self.ended
    }

    fn end(self: Box<Self>) -> Result<Turn, ModelError> {
        // `[DONE]` is missing on some servers, the reason is not.
        if !self.ended && self.stop.is_none() {
            return Err(ModelError::new(ModelErrorKind::Network, "the model's stream broke off"));
        }
        let refused = !self.refusal.is_empty();
        let stop = if refused { ModelStop::Refusal } else { stop(self.stop.as_deref()) };
        let text = if refused { self.refusal } else { self.text };
        let calls = self.calls.into_iter().map(|(_, call)| call).collect();
        Ok(Turn { assistant: AssistantTurn { text, calls, provider: None, recovered: false }, stop, usage: self.usage })
    }
}

impl Streamed {
    /// One part of a call.
    fn part(&mut self, part: &Value) -> Result<(), ModelError> {
        let index = part.get("index").and_then(Value::as_u64);
        let id = part.get("id").and_then(Value::as_str).filter(|id| !id.is_empty());
        let name = part.pointer("/function/name").and_then(Value::as_str).unwrap_or("");
        let more = part.pointer("/function/arguments").map(arguments).unwrap_or_default();
        let known = self.calls.iter().position(|(known, call)| match (index, id) {
            // A new id under a known index is another call on servers that always say 0.
            (Some(index), Some(id)) => *known == Some(index) && (call.id.is_empty() || call.id == id),
            (Some(index), None) => *known == Some(index),
            (None, Some(id)) => call.id == id,
            (None, None) => false,
        });
        let last = self.calls.len().checked_sub(1).filter(|_| index.is_none() && id.is_none());
        // Parts without an id continue the newest call of their index.
        let newest = self.calls.iter().rposition(|(known, _)| id.is_none() && index.is_some() && *known == index);
        let at = match newest.or(known).or(last) {
            Some(at) => at,
            None if self.calls.len() >= MAX_CALLS => return Err(protocol("the stream has too many calls")),
            None => {
                self.calls
                    .push((index, RawToolCall { id: String::new(), name: String::new(), arguments: String::new() }));
                self.calls.len() - 1
            }
        };
        let Some((_, call)) = self.calls.get_mut(at) else { return Ok(()) };
        if let Some(id) = id {
            id.clone_into(&mut call.id);
        }
        // Some servers send the name in each part, others in pieces.
        if call.name != name {
            call.name.push_str(name);
        }
        call.arguments.push_str(&more);
        Ok(())
    }
}
