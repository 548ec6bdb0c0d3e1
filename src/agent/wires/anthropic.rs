//! Anthropic Messages: pure code from values to the request and from the answer to values.

use serde_json::{Map, Value, json};

use super::super::model::{
    AssistantTurn, Message, ModelError, ModelStop, RawToolCall, TokenUsage, ToolChoice, Turn, TurnRequest, TurnSink,
};
use super::{StreamedTurn, number, protocol, stream_error};

/// Blocks of one answer; more are an attack on memory.
const MAX_BLOCKS: usize = 1_000;

/// The request.
pub(super) fn body(model: &str, request: &TurnRequest<'_>, streams: bool) -> Value {
    let mut messages: Vec<(&'static str, Vec<Value>)> = Vec::new();
    // Two messages of one side must be one.
    let mut push = |role: &'static str, blocks: Vec<Value>| match messages.last_mut() {
        Some((last, known)) if *last == role => known.extend(blocks),
        _ => messages.push((role, blocks)),
    };
    let mut recovered = false;
    for message in request.messages {
        match message {
            Message::User { text } => push("user", vec![text_block(text)]),
            Message::Assistant(turn) => {
                recovered = turn.recovered;
                push("assistant", assistant_blocks(turn));
            }
            Message::ToolResults { results } if recovered => {
                let text = |result: &super::super::model::ToolResult| {
                    text_block(&format!("[Result of {}]\n{}", result.name, result.content))
                };
                push("user", results.iter().map(text).collect());
            }
            Message::ToolResults { results } => {
                let block = |result: &super::super::model::ToolResult| {
                    json!({
                        "type": "tool_result", "tool_use_id": result.call_id,
                        // An empty text block is refused.
                        "content": if result.content.is_empty() { "(empty)" } else { &result.content },
                        "is_error": result.is_error,
                    })
                };
                push("user", results.iter().map(block).collect());
            }
        }
    }
    let messages: Vec<Value> =
        messages.into_iter().map(|(role, content)| json!({"role": role, "content": content})).collect();
    let mut body = json!({
        "model": model,
        "max_tokens": request.max_output_tokens,
        "messages": messages,
        "stream": streams,
    });
    if let Some(map) = body.as_object_mut() {
        if !request.system.is_empty() {
            map.insert("system".into(), request.system.into());
        }
        if !request.tools.is_empty() {
            let tool = |tool: &super::super::model::ToolSpec| json!({"name": tool.name, "description": tool.description, "input_schema": tool.parameters});
            map.insert("tools".into(), request.tools.iter().map(tool).collect());
            let choice = match request.tool_choice {
                ToolChoice::Auto => "auto",
                ToolChoice::None => "none",
            };
            map.insert("tool_choice".into(), json!({"type": choice}));
        }
    }
    body
}

fn text_block(text: &str) -> Value {
    // An empty block is refused.
    json!({"type": "text", "text": if text.is_empty() { "(empty)" } else { text }})
}

fn assistant_blocks(turn: &AssistantTurn) -> Vec<Value> {
    if let Some(Value::Array(blocks)) = &turn.provider
        && !turn.recovered
        && blocks_match(blocks, turn)
    {
        return blocks.clone();
    }
    let mut blocks = Vec::new();
    if !turn.text.trim().is_empty() || turn.calls.is_empty() || turn.recovered {
        blocks.push(text_block(&turn.text));
    }
    if !turn.recovered {
        blocks.extend(turn.calls.iter().map(|call| {
            // The protocol wants an object; what can't be one was answered with an error that quotes it.
            let input =
                serde_json::from_str(&call.arguments).ok().filter(Value::is_object).unwrap_or_else(|| json!({}));
            json!({"type": "tool_use", "id": call.id, "name": call.name, "input": input})
        }));
    }
    blocks
}

/// Kept blocks are of use only while the ids in them are those that the results name.
fn blocks_match(blocks: &[Value], turn: &AssistantTurn) -> bool {
    let ids = blocks.iter().filter(|block| block["type"] == "tool_use").map(|block| block["id"].as_str().unwrap_or(""));
    ids.eq(turn.calls.iter().map(|call| call.id.as_str()))
}

fn stop(reason: Option<&str>) -> ModelStop {
    match reason {
        Some("end_turn" | "stop_sequence") | None => ModelStop::EndTurn,
        Some("tool_use") => ModelStop::ToolUse,
        Some("max_tokens" | "model_context_window_exceeded") => ModelStop::MaxTokens,
        Some("refusal") => ModelStop::Refusal,
        Some(other) => ModelStop::Other(other.chars().take(80).collect()),
    }
}

fn usage(value: &Value) -> TokenUsage {
    let cached = number(value, "/cache_read_input_tokens");
    let written = number(value, "/cache_creation_input_tokens");
    TokenUsage {
        input: number(value, "/input_tokens").saturating_add(cached).saturating_add(written),
        cached,
        output: number(value, "/output_tokens"),
    }
}

/// Reads an answer that came whole.
pub(super) fn read_whole(value: &Value) -> Result<Turn, ModelError> {
    if let Some(error) = value.get("error").filter(|error| error.is_object()) {
        return Err(stream_error(error));
    }
    let usage = value.get("usage").map(usage).unwrap_or_default();
    let charged = |mut error: ModelError| {
        error.usage = usage;
        error
    };
    let blocks = value.get("content").and_then(Value::as_array);
    let blocks = blocks.ok_or_else(|| charged(protocol("the answer has no content")))?;
    Ok(Turn {
        assistant: assistant(blocks.clone(), &[]),
        stop: stop(value.get("stop_reason").and_then(Value::as_str)),
        usage,
    })
}

/// A turn from its blocks. `raw` has, for each block, the arguments as they were streamed.
fn assistant(blocks: Vec<Value>, raw: &[Option<String>]) -> AssistantTurn {
    let mut turn = AssistantTurn::default();
    let mut keep = false;
    for (index, block) in blocks.iter().enumerate() {
        match block.get("type").and_then(Value::as_str) {
            Some("text") => turn.text.push_str(block["text"].as_str().unwrap_or("")),
            Some("tool_use") => turn.calls.push(RawToolCall {
                id: block["id"].as_str().unwrap_or("").to_owned(),
                name: block["name"].as_str().unwrap_or("").to_owned(),
                arguments: raw.get(index).cloned().flatten().unwrap_or_else(|| block["input"].to_string()),
            }),
            // Thinking and what is yet to come must go back as it came.
            Some(_) => keep = true,
            None => {}
        }
    }
    turn.provider = keep.then_some(Value::Array(blocks));
    turn
}

/// A turn that is streamed.
#[derive(Default)]
pub(super) struct Streamed {
    blocks: Vec<Block>,
    stop: Option<String>,
    usage: TokenUsage,
    ended: bool,
}

struct Block {
    value: Map<String, Value>,
    /// Arguments of a call, as text.
    arguments: String,
}

impl StreamedTurn for Streamed {
    fn take(&mut self, data: &str, sink: &dyn TurnSink) -> Result<(), ModelError> {
        let event: Value = serde_json::from_str(data)
            .map_err(|error| protocol(format!("an event of the stream is no JSON: {error}")))?;
        match event.get("type").and_then(Value::as_str) {
            Some("message_start") => self.usage = event.pointer("/message/usage").map(usage).unwrap_or_default(),
            Some("content_block_start") => {
                if number(&event, "/index") != self.blocks.len() as u64 || self.blocks.len() >= MAX_BLOCKS {
                    return Err(protocol("a block of the stream has a number that doesn't follow"));
                }
                let value = event.get("content_block").and_then(Value::as_object).cloned().unwrap_or_default();
                if let Some(text) = value.get("text").and_then(Value::as_str).filter(|text| !text.is_empty()) {
                    sink.delta(text);
                }
                self.blocks.push(Block { value, arguments: String::new() });
            }
            Some("content_block_delta") => self.delta(&event, sink)?,
            Some("message_delta") => {
                self.stop = event.pointer("/delta/stop_reason").and_then(Value::as_str).map(str::to_owned);
                // Counts are of the whole turn; those that aren't given stay.
                let now = event.get("usage").map(usage).unwrap_or_default();
                self.usage.output = self.usage.output.max(now.output);
                self.usage.input = self.usage.input.max(now.input);
                self.usage.cached = self.usage.cached.max(now.cached);
            }
            Some("message_stop") => self.ended = true,
            Some("error") => return Err(stream_error(event.get("error").unwrap_or(&Value::Null))),
            // `ping`, `content_block_stop`, and what is yet to come.
            _ => {}
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
        if !self.ended {
            return Err(ModelError::new(super::ModelErrorKind::Network, "the model's stream broke off"));
        }
        let mut raw = Vec::new();
        let mut blocks = Vec::new();
        for Block { mut value, arguments } in self.blocks {
            let is_call = value.get("type").and_then(Value::as_str) == Some("tool_use");
            if is_call {
                let text = if arguments.is_empty() {
                    value.get("input").map_or_else(|| "{}".to_owned(), |input| input.to_string())
                } else {
                    arguments
                };
                // The kept form needs an object; the raw text is what is decoded.
                let input = serde_json::from_str(&text).ok().filter(Value::is_object).unwrap_or_else(|| json!({}));
                value.insert("input".into(), input);
                raw.push(Some(text));
            } else {
                raw.push(None);
            }
            blocks.push(Value::Object(value));
        }
        Ok(Turn { assistant: assistant(blocks, &raw), stop: stop(self.stop.as_deref()), usage: self.usage })
    }
}

impl Streamed {
    fn delta(&mut self, event: &Value, sink: &dyn TurnSink) -> Result<(), ModelError> {
        let index = usize::try_from(number(event, "/index")).unwrap_or(usize::MAX);
        let block = self.blocks.get_mut(index).ok_or_else(|| protocol("a piece of the stream belongs to no block"))?;
        let text =
            |key: &str| event.get("delta").and_then(|delta| delta.get(key)).and_then(Value::as_str).unwrap_or("");
        let mut append = |key: &str, more: &str| match block.value.get_mut(key) {
            Some(Value::String(known)) => known.push_str(more),
            _ => {
                block.value.insert(key.to_owned(), more.into());
            }
        };
        match event.pointer("/delta/type").and_then(Value::as_str) {
            Some("text_delta") => {
                append("text", text("text"));
                sink.delta(text("text"));
            }
            Some("thinking_delta") => append("thinking", text("thinking")),
            Some("signature_delta") => append("signature", text("signature")),
            Some("input_json_delta") => block.arguments.push_str(text("partial_json")),
            _ => {}
        }
        Ok(())
    }
}
