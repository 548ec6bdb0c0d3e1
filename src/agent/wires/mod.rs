//! The models' wires: how a turn is asked for over HTTP, and how its answer is read.
//!
//! [`Wire`] holds what the wires share: address, key, limits, the stream. What differs is in `anthropic` and `openai`, as
//! pure code from bytes to values, so that recorded answers test it. Invariants: the key is only ever in one header; no
//! error, event or `Debug` holds it; a stream that stalls, breaks or lies gives an error of a kind, never a half turn.

mod anthropic;
mod openai;
#[cfg(test)]
mod played;
mod sse;

use std::time::Duration;

use async_trait::async_trait;
use reqwest::{Client, RequestBuilder, Response, StatusCode};
use serde_json::{Map, Value};

use self::sse::SseReader;
use super::model::{ChatModel, ModelCaps, ModelError, ModelErrorKind, TokenUsage, Turn, TurnRequest, TurnSink};
use crate::error::{Result, SkillRuntimeError};

/// To connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
/// Between two pieces of an answer. Models think for minutes before the first one.
const DEFAULT_IDLE_TIMEOUT: Duration = Duration::from_secs(300);
/// Bytes of one answer. The longest answers of models have some hundred KB.
const MAX_ANSWER_BYTES: usize = 32 << 20;
/// Bytes of an error's body that are looked at.
const MAX_ERROR_BYTES: usize = 64 << 10;
/// Characters of a provider's own words in an error of ours.
const SHOWN_ERROR: usize = 300;

/// Fields that a wire writes: one of the caller's by such a name would silently win or lose.
const OWN_FIELDS: [&str; 9] = [
    "model",
    "messages",
    "system",
    "tools",
    "tool_choice",
    "stream",
    "stream_options",
    "max_tokens",
    "max_completion_tokens",
];

/// The protocol of a model's server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WireProtocol {
    /// Anthropic Messages.
    Anthropic,
    /// OpenAI Chat Completions, and all servers that speak it.
    OpenAiChat,
}

impl WireProtocol {
    /// The address of the provider the protocol is named for.
    #[must_use]
    pub fn default_base_url(self) -> &'static str {
        match self {
            Self::Anthropic => "https://api.anthropic.com",
            Self::OpenAiChat => "https://api.openai.com/v1",
        }
    }

    /// The environment variable that holds its key by custom.
    #[must_use]
    pub fn key_variable(self) -> &'static str {
        match self {
            Self::Anthropic => "ANTHROPIC_API_KEY",
            Self::OpenAiChat => "OPENAI_API_KEY",
        }
    }

    fn path(self) -> &'static str {
        match self {
            Self::Anthropic => "/v1/messages",
            Self::OpenAiChat => "/chat/completions",
        }
    }
}

/// A key. Shown nowhere.
#[derive(Clone)]
pub struct ApiKey(String);

impl ApiKey {
    /// Takes a key.
    ///
    /// # Errors
    /// [`InvalidConfig`](crate::ErrorKind::InvalidConfig) when it is empty or can't stand in a header; it is not shown.
    pub fn new(key: impl Into<String>) -> Result<Self> {
        let key = key.into().trim().to_owned();
        if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(SkillRuntimeError::invalid("the model's key is empty or has characters that no key has"));
        }
        Ok(Self(key))
    }

    /// The key, to be redacted from whatever a model or a transcript is shown.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ApiKey(…)")
    }
}

/// Whether answers are streamed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Streaming {
    /// Piece by piece.
    #[default]
    On,
    /// Whole: for servers whose streams are broken.
    Off,
}

/// How a model is reached.
#[derive(Debug, Clone)]
pub struct WireConfig {
    /// The protocol.
    pub protocol: WireProtocol,
    /// The model's name at its provider.
    pub model: String,
    /// The server; `/v1/messages` or `/chat/completions` is added. Default: the provider's.
    pub base_url: String,
    /// The key; local servers need none.
    pub key: Option<ApiKey>,
    /// What the model can do.
    pub caps: ModelCaps,
    /// Whether answers are streamed.
    pub streaming: Streaming,
    /// The longest silence.
    pub idle_timeout: Duration,
    /// Further fields of every request (`temperature`, `seed`, `response_format`, …), as the server has them. What the
    /// wire itself writes can't be replaced.
    pub extra: Map<String, Value>,
}

impl WireConfig {
    /// A configuration with every default: 200,000 tokens of context for Anthropic's models, unknown for others; answers
    /// of 8192 tokens.
    #[must_use]
    pub fn new(protocol: WireProtocol, model: impl Into<String>) -> Self {
        let max_context = match protocol {
            WireProtocol::Anthropic => Some(200_000),
            WireProtocol::OpenAiChat => None,
        };
        Self {
            protocol,
            model: model.into(),
            base_url: protocol.default_base_url().to_owned(),
            key: None,
            caps: ModelCaps { max_context, max_output: 8_192 },
            streaming: Streaming::On,
            idle_timeout: DEFAULT_IDLE_TIMEOUT,
            extra: Map::new(),
        }
    }
}

/// A model behind HTTP.
#[derive(Debug)]
pub struct Wire {
    config: WireConfig,
    url: String,
    client: Client,
}

impl Wire {
    /// Prepares a client; connects nowhere.
    ///
    /// # Errors
    /// [`InvalidConfig`](crate::ErrorKind::InvalidConfig): an empty model name, an address that isn't `http(s)` or holds a
    /// user, a field in `extra` that the wire writes itself. [`Backend`](crate::ErrorKind::Backend): TLS can't be set up.
    pub fn new(config: WireConfig) -> Result<Self> {
        let base = config.base_url.trim_end_matches('/');
        let authority = base.strip_prefix("https://").or_else(|| base.strip_prefix("http://"));
        let host =
            authority.and_then(|rest| rest.split('/').next()).filter(|host| !host.is_empty() && !host.contains('@'));
        if host.is_none() {
            return Err(SkillRuntimeError::invalid(
                "the model's base_url must be like https://host/path, without a user or password",
            ));
        }
        if config.model.trim().is_empty() {
            return Err(SkillRuntimeError::invalid("the model's name is empty; name a model of the provider"));
        }
        if let Some(own) = config.extra.keys().find(|key| OWN_FIELDS.contains(&key.as_str())) {
            return Err(SkillRuntimeError::invalid(format!(
                "extra field '{own}' of the model's requests is written by skillcell itself; leave it out"
            )));
        }
        let url = format!("{base}{}", config.protocol.path());
        let client = crate::http::client_builder()?
            // A redirect would carry the key to whoever answers.
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(config.idle_timeout)
            .build()
            .map_err(|error| SkillRuntimeError::backend("could not set up the HTTP client", error))?;
        Ok(Self { config, url, client })
    }

    fn request(&self, body: Vec<u8>) -> RequestBuilder {
        let mut call = self.client.post(&self.url).header("content-type", "application/json").body(body);
        if self.config.protocol == WireProtocol::Anthropic {
            call = call.header("anthropic-version", "2023-06-01");
        }
        match (&self.config.key, self.config.protocol) {
            (None, _) => call,
            (Some(key), WireProtocol::Anthropic) => call.header("x-api-key", sensitive(key)),
            (Some(key), WireProtocol::OpenAiChat) => call.header("authorization", sensitive_bearer(key)),
        }
    }

    async fn whole(&self, mut response: Response) -> Result<Turn, ModelError> {
        let mut bytes = Vec::new();
        while let Some(piece) = response.chunk().await.map_err(|error| self.broken(error))? {
            bytes.extend_from_slice(&piece);
            if bytes.len() > MAX_ANSWER_BYTES {
                return Err(too_long());
            }
        }
        let value: Value =
            serde_json::from_slice(&bytes).map_err(|error| protocol(format!("the answer is no JSON: {error}")))?;
        match self.config.protocol {
            WireProtocol::Anthropic => anthropic::read_whole(&value),
            WireProtocol::OpenAiChat => openai::read_whole(&value),
        }
    }

    async fn streamed(&self, mut response: Response, sink: &dyn TurnSink) -> Result<Turn, ModelError> {
        let mut reader = SseReader::default();
        let mut turn: Box<dyn StreamedTurn> = match self.config.protocol {
            WireProtocol::Anthropic => Box::new(anthropic::Streamed::default()),
            WireProtocol::OpenAiChat => Box::new(openai::Streamed::default()),
        };
        let mut total = 0usize;
        loop {
            let piece = match response.chunk().await {
                Ok(Some(piece)) => piece,
                Ok(None) => break,
                Err(error) => return Err(charged(self.broken(error), turn.usage())),
            };
            total += piece.len();
            if total > MAX_ANSWER_BYTES {
                return Err(charged(too_long(), turn.usage()));
            }
            for data in reader.push(&piece).map_err(|error| charged(error, turn.usage()))? {
                let taken = turn.take(&data, sink);
                taken.map_err(|error| charged(error, turn.usage()))?;
                if turn.ended() {
                    // Some servers leave the connection open; what follows the end is not waited for.
                    return finished(turn);
                }
            }
        }
        for data in reader.finish().map_err(|error| charged(error, turn.usage()))? {
            turn.take(&data, sink).map_err(|error| charged(error, turn.usage()))?;
        }
        finished(turn)
    }

    /// An error of the connection, without the address and so without what may stand in it.
    fn broken(&self, error: reqwest::Error) -> ModelError {
        let kind = if error.is_timeout() { ModelErrorKind::Timeout } else { ModelErrorKind::Network };
        let error = error.without_url();
        // reqwest's own words name the stage; the cause is below.
        let mut text = error.to_string();
        let mut source = std::error::Error::source(&error);
        while let Some(cause) = source {
            text = format!("{text}: {cause}");
            source = cause.source();
        }
        ModelError::new(kind, format!("the connection to the model failed: {text}"))
    }

    /// An answer that is an error.
    async fn refused(&self, mut response: Response) -> ModelError {
        let status = response.status();
        let retry_after = retry_after(&response);
        let mut bytes = Vec::new();
        // A body that breaks off says less, but the status says enough.
        while let Ok(Some(piece)) = response.chunk().await {
            bytes.extend_from_slice(&piece);
            if bytes.len() > MAX_ERROR_BYTES {
                bytes.truncate(MAX_ERROR_BYTES);
                break;
            }
        }
        let body: Value = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        let words = body.pointer("/error/message").or_else(|| body.get("message")).or_else(|| body.get("error"));
        let words = words.and_then(Value::as_str).unwrap_or("");
        let kind = classify(status, &body, words);
        let mut shown: String = words.chars().take(SHOWN_ERROR).flat_map(char::escape_debug).collect();
        if let Some(key) = &self.config.key {
            // Some servers print the key they refuse.
            shown = shown.replace(key.expose(), "[redacted]");
        }
        let message = if shown.is_empty() {
            "the model's server refused".to_owned()
        } else {
            format!("the model's server refused: {shown}")
        };
        ModelError { status: Some(status.as_u16()), retry_after, ..ModelError::new(kind, message) }
    }
}

#[async_trait]
impl ChatModel for Wire {
    fn id(&self) -> &str {
        &self.config.model
    }

    fn caps(&self) -> ModelCaps {
        self.config.caps
    }

    async fn turn(&self, request: &TurnRequest<'_>, sink: &dyn TurnSink) -> Result<Turn, ModelError> {
        let streams = self.config.streaming == Streaming::On;
        let mut body = match self.config.protocol {
            WireProtocol::Anthropic => anthropic::body(&self.config.model, request, streams),
            WireProtocol::OpenAiChat => openai::body(&self.config.model, request, streams, self.answer_limit_field()),
        };
        if let Some(fields) = body.as_object_mut() {
            fields.extend(self.config.extra.clone());
        }
        let body = serde_json::to_vec(&body)
            .map_err(|error| protocol(format!("the request could not be written: {error}")))?;
        let response = self.request(body).send().await.map_err(|error| self.broken(error))?;
        if response.status() != StatusCode::OK {
            return Err(self.refused(response).await);
        }
        let is_stream = response
            .headers()
            .get("content-type")
            .and_then(|value| value.to_str().ok())
            .is_some_and(|value| value.starts_with("text/event-stream"));
        // Some servers answer whole although a stream was asked for.
        if streams && is_stream {
            self.streamed(response, sink).await
        } else {
            self.whole_with_delta(response, sink).await
        }
    }
}

impl Wire {
    /// The provider's newer models refuse `max_tokens`; other servers know no other name.
    fn answer_limit_field(&self) -> &'static str {
        if self.url.starts_with(WireProtocol::OpenAiChat.default_base_url()) {
            "max_completion_tokens"
        } else {
            "max_tokens"
        }
    }

    async fn whole_with_delta(&self, response: Response, sink: &dyn TurnSink) -> Result<Turn, ModelError> {
        let turn = self.whole(response).await?;
        if !turn.assistant.text.is_empty() {
            sink.delta(&turn.assistant.text);
        }
        Ok(turn)
    }
}

/// A turn that comes in pieces.
trait StreamedTurn: Send {
    /// Takes the data of one event.
    fn take(&mut self, data: &str, sink: &dyn TurnSink) -> Result<(), ModelError>;
    /// What is known of the cost so far.
    fn usage(&self) -> TokenUsage;
    /// Whether the stream said that nothing follows.
    fn ended(&self) -> bool;
    /// The stream ended: the turn, if it was whole.
    fn end(self: Box<Self>) -> Result<Turn, ModelError>;
}

fn finished(turn: Box<dyn StreamedTurn>) -> Result<Turn, ModelError> {
    let usage = turn.usage();
    turn.end().map_err(|error| charged(error, usage))
}

fn sensitive(key: &ApiKey) -> reqwest::header::HeaderValue {
    marked(key.expose())
}

fn sensitive_bearer(key: &ApiKey) -> reqwest::header::HeaderValue {
    marked(&format!("Bearer {}", key.expose()))
}

/// Marked, so that no log of the HTTP stack prints it. The characters were checked when the key was taken.
fn marked(text: &str) -> reqwest::header::HeaderValue {
    let mut value =
        reqwest::header::HeaderValue::from_str(text).unwrap_or_else(|_| reqwest::header::HeaderValue::from_static(""));
    value.set_sensitive(true);
    value
}

/// `retry-after` in seconds; a date is rare and means no more than "later".
fn retry_after(response: &Response) -> Option<Duration> {
    let header = |name: &str| response.headers().get(name)?.to_str().ok()?.trim().parse::<f64>().ok();
    let seconds = header("retry-after-ms").map(|ms| ms / 1000.0).or_else(|| header("retry-after"))?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// Sorts an error by its structured code first, then its status, then its words: an overflow must not be taken for a
/// plain bad request, nor be sent again.
fn classify(status: StatusCode, body: &Value, words: &str) -> ModelErrorKind {
    let code = |pointer: &str| body.pointer(pointer).and_then(Value::as_str).unwrap_or("");
    let codes = [code("/error/type"), code("/error/code")];
    let lower = words.to_lowercase();
    let overflow = codes.iter().any(|code| matches!(*code, "exceed_context_size_error" | "context_length_exceeded"))
        || ["context length", "context window", "prompt is too long", "context size", "maximum context"]
            .iter()
            .any(|phrase| lower.contains(phrase));
    match status.as_u16() {
        400 | 413 | 422 if overflow => ModelErrorKind::ContextOverflow,
        _ if codes.contains(&"content_filter") => ModelErrorKind::ContentFilter,
        _ if codes.contains(&"overloaded_error") => ModelErrorKind::Overloaded,
        // An account without money has the status of a client that is too quick, and waiting is of no use.
        429 if codes.contains(&"insufficient_quota") => ModelErrorKind::BadRequest,
        401 | 403 => ModelErrorKind::Auth,
        408 | 409 => ModelErrorKind::Timeout,
        429 => ModelErrorKind::RateLimited,
        503 | 529 => ModelErrorKind::Overloaded,
        500..=599 => ModelErrorKind::Server,
        _ => ModelErrorKind::BadRequest,
    }
}

fn protocol(message: impl Into<String>) -> ModelError {
    ModelError::new(ModelErrorKind::Protocol, message)
}

fn too_long() -> ModelError {
    ModelError::new(ModelErrorKind::BadRequest, format!("the model's answer has more than {MAX_ANSWER_BYTES} bytes"))
}

fn charged(mut error: ModelError, usage: TokenUsage) -> ModelError {
    error.usage = usage;
    error
}

/// An error that came inside a stream, after a good status.
fn stream_error(error: &Value) -> ModelError {
    let body = serde_json::json!({ "error": error });
    let words = error.get("message").and_then(Value::as_str).unwrap_or("");
    // Without a status the codes decide; what they don't know is a failure of the server.
    let sorted = classify(StatusCode::BAD_REQUEST, &body, words);
    let kind = match error.get("type").and_then(Value::as_str) {
        _ if sorted != ModelErrorKind::BadRequest => sorted,
        Some("invalid_request_error") => ModelErrorKind::BadRequest,
        Some("rate_limit_error") => ModelErrorKind::RateLimited,
        _ => ModelErrorKind::Server,
    };
    let shown: String = words.chars().take(SHOWN_ERROR).flat_map(char::escape_debug).collect();
    ModelError::new(kind, format!("the model's server failed while answering: {shown}"))
}

fn number(value: &Value, pointer: &str) -> u64 {
    value.pointer(pointer).and_then(Value::as_u64).unwrap_or(0)
}
