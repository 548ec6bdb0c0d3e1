//! The wires against a server that is slow, wrong, broken and rude.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use skillcell::agent::{
    ApiKey, AssistantTurn, ChatModel, Message, ModelError, ModelErrorKind, ModelStop, RawToolCall, Streaming,
    TokenUsage, Tool, ToolChoice, ToolResult, Turn, TurnRequest, TurnSink, Wire, WireConfig, WireProtocol,
};

use crate::http_server::{Reply, Server};

const KEY: &str = "sk-hunter2-hunter2";

#[derive(Default)]
struct Deltas(Mutex<String>);

impl TurnSink for Deltas {
    fn delta(&self, text: &str) {
        self.0.lock().unwrap().push_str(text);
    }
}

fn wire(server: &Server, protocol: WireProtocol, streaming: Streaming) -> Wire {
    let mut config = WireConfig::new(protocol, "a-model");
    config.base_url.clone_from(&server.url);
    config.key = Some(ApiKey::new(KEY).unwrap());
    config.streaming = streaming;
    config.idle_timeout = Duration::from_secs(20);
    Wire::new(config).unwrap()
}

async fn ask_with(wire: &Wire, messages: &[Message]) -> (Result<Turn, ModelError>, String) {
    let tools = [Tool::RunScript.spec()];
    let request = TurnRequest {
        system: "be good",
        messages,
        tools: &tools,
        tool_choice: ToolChoice::Auto,
        max_output_tokens: 100,
    };
    let deltas = Deltas::default();
    let turn = wire.turn(&request, &deltas).await;
    let text = deltas.0.lock().unwrap().clone();
    (turn, text)
}

async fn ask(wire: &Wire) -> (Result<Turn, ModelError>, String) {
    ask_with(wire, &[Message::User { text: "hi".into() }]).await
}

fn events(list: &[Value]) -> Vec<u8> {
    list.iter()
        .flat_map(|event| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or("x")).into_bytes())
        .collect()
}

fn chunks(list: &[Value]) -> Vec<u8> {
    let mut bytes: Vec<u8> = list.iter().flat_map(|chunk| format!("data: {chunk}\n\n").into_bytes()).collect();
    bytes.extend_from_slice(b"data: [DONE]\n\n");
    bytes
}

fn stream(bytes: Vec<u8>) -> Reply {
    Reply::new(200, bytes).header("content-type", "text/event-stream; charset=utf-8")
}

fn anthropic_stream() -> Vec<u8> {
    events(&[
        json!({"type": "message_start", "message": {"usage": {"input_tokens": 7, "cache_read_input_tokens": 3, "output_tokens": 1}}}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "hm"}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "sig"}}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "ping"}),
        json!({"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "Grüße "}}),
        json!({"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "😀"}}),
        json!({"type": "content_block_start", "index": 2, "content_block": {"type": "tool_use", "id": "toolu_1", "name": "run_script", "input": {}}}),
        json!({"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": "{\"script_path\""}}),
        json!({"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": ": \"a.py\"}"}}),
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 20}}),
        json!({"type": "message_stop"}),
    ])
}

fn anthropic_whole() -> Value {
    json!({
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "sig"},
            {"type": "text", "text": "Grüße 😀"},
            {"type": "tool_use", "id": "toolu_1", "name": "run_script", "input": {"script_path": "a.py"}}
        ],
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 7, "cache_read_input_tokens": 3, "output_tokens": 20}
    })
}

fn openai_stream() -> Vec<u8> {
    let delta = |delta: Value| json!({"choices": [{"index": 0, "delta": delta, "finish_reason": null}]});
    chunks(&[
        delta(json!({"role": "assistant", "content": null})),
        delta(json!({"content": "Grüße "})),
        delta(json!({"content": "😀"})),
        delta(
            json!({"tool_calls": [{"index": 0, "id": "toolu_1", "type": "function", "function": {"name": "run_script", "arguments": ""}}]}),
        ),
        delta(json!({"tool_calls": [{"index": 0, "function": {"arguments": "{\"script_path\""}}]})),
        delta(json!({"tool_calls": [{"index": 0, "function": {"arguments": ":\"a.py\"}"}}]})),
        json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}),
        json!({"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 20, "prompt_tokens_details": {"cached_tokens": 3}}}),
    ])
}

fn openai_whole() -> Value {
    json!({
        "choices": [{"index": 0, "finish_reason": "tool_calls", "message": {"role": "assistant", "content": "Grüße 😀", "tool_calls": [
            {"id": "toolu_1", "type": "function", "function": {"name": "run_script", "arguments": "{\"script_path\":\"a.py\"}"}}
        ]}}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 20, "prompt_tokens_details": {"cached_tokens": 3}}
    })
}

fn check(turn: &Turn) {
    assert_eq!(turn.assistant.text, "Grüße 😀");
    let [call] = turn.assistant.calls.as_slice() else { unreachable!("{turn:?}") };
    assert_eq!((call.id.as_str(), call.name.as_str()), ("toolu_1", "run_script"));
    assert_eq!(serde_json::from_str::<Value>(&call.arguments).unwrap(), json!({"script_path": "a.py"}));
    assert_eq!((&turn.stop, turn.usage), (&ModelStop::ToolUse, TokenUsage { input: 10, cached: 3, output: 20 }));
}

#[tokio::test]
async fn streamed_or_whole_in_any_pieces_the_turn_is_the_same() {
    for (protocol, streamed, whole) in [
        (WireProtocol::Anthropic, anthropic_stream(), anthropic_whole()),
        (WireProtocol::OpenAiChat, openai_stream(), openai_whole()),
    ] {
        // One byte a piece splits every character, number and line.
        for size in [1, 7, 100_000] {
            let server = Server::script(vec![stream(streamed.clone()).in_pieces(size)]);
            let (turn, deltas) = ask(&wire(&server, protocol, Streaming::On)).await;
            check(&turn.unwrap());
            assert_eq!(deltas, "Grüße 😀");
        }
        for streaming in [Streaming::On, Streaming::Off] {
            let server =
                Server::script(vec![Reply::new(200, whole.to_string()).header("content-type", "application/json")]);
            let (turn, deltas) = ask(&wire(&server, protocol, streaming)).await;
            check(&turn.unwrap());
            assert_eq!(deltas, "Grüße 😀");
            assert_eq!(server.requests()[0].json()["stream"], streaming == Streaming::On);
        }
    }
}

#[tokio::test]
async fn requests_have_the_protocols_form_and_the_key_in_one_header() {
    let turn = AssistantTurn {
        text: String::new(),
        calls: vec![
            RawToolCall { id: "c1".into(), name: "run_script".into(), arguments: "{\"script_path\":\"a.py\"}".into() },
            RawToolCall { id: "c2".into(), name: "run_script".into(), arguments: "not json".into() },
        ],
        ..AssistantTurn::default()
    };
    let result = |id: &str, content: &str, is_error| ToolResult {
        call_id: id.into(),
        name: "run_script".into(),
        content: content.into(),
        is_error,
    };
    let messages = [
        Message::User { text: "hi".into() },
        Message::Assistant(turn),
        Message::ToolResults { results: vec![result("c1", "5", false), result("c2", "bad", true)] },
        Message::User { text: "two rounds".into() },
    ];
    let server = Server::script(vec![Reply::new(200, anthropic_whole().to_string())]);
    ask_with(&wire(&server, WireProtocol::Anthropic, Streaming::Off), &messages).await.0.unwrap();
    let request = server.requests().remove(0);
    assert_eq!(request.path, "/v1/messages");
    assert_eq!((request.header("x-api-key"), request.header("authorization")), (Some(KEY), None));
    assert_eq!(request.header("anthropic-version"), Some("2023-06-01"));
    let body = request.json();
    assert_eq!(
        (&body["system"], &body["max_tokens"], &body["tool_choice"]),
        (&json!("be good"), &json!(100), &json!({"type": "auto"}))
    );
    assert_eq!(
        body["messages"],
        json!([
            {"role": "user", "content": [{"type": "text", "text": "hi"}]},
            {"role": "assistant", "content": [
                {"type": "tool_use", "id": "c1", "name": "run_script", "input": {"script_path": "a.py"}},
                {"type": "tool_use", "id": "c2", "name": "run_script", "input": {}}
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": "5", "is_error": false},
                {"type": "tool_result", "tool_use_id": "c2", "content": "bad", "is_error": true},
                {"type": "text", "text": "two rounds"}
            ]}
        ])
    );
    let server = Server::script(vec![Reply::new(200, openai_whole().to_string())]);
    ask_with(&wire(&server, WireProtocol::OpenAiChat, Streaming::Off), &messages).await.0.unwrap();
    let request = server.requests().remove(0);
    assert_eq!(request.path, "/chat/completions");
    assert_eq!(
        (request.header("authorization"), request.header("x-api-key")),
        (Some("Bearer sk-hunter2-hunter2"), None)
    );
    let roles: Vec<Value> =
        request.json()["messages"].as_array().unwrap().iter().map(|message| message["role"].clone()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "tool", "tool", "user"]);
    assert_eq!(request.json()["messages"][2]["tool_calls"][1]["function"]["arguments"], "{}");
    assert!(!String::from_utf8_lossy(&request.body).contains("hunter2"));
}

#[tokio::test]
async fn the_providers_blocks_go_back_as_they_came() {
    let server = Server::script(vec![stream(anthropic_stream()), Reply::new(200, anthropic_whole().to_string())]);
    let wire = wire(&server, WireProtocol::Anthropic, Streaming::On);
    let turn = ask(&wire).await.0.unwrap();
    let results = vec![ToolResult {
        call_id: "toolu_1".into(),
        name: "run_script".into(),
        content: String::new(),
        is_error: false,
    }];
    let messages =
        [Message::User { text: "hi".into() }, Message::Assistant(turn.assistant), Message::ToolResults { results }];
    ask_with(&wire, &messages).await.0.unwrap();
    assert_eq!(server.requests()[1].json()["messages"][1]["content"], anthropic_whole()["content"]);
}

#[tokio::test]
async fn errors_are_sorted_by_what_may_be_done() {
    let body = |kind: &str, message: &str| json!({"error": {"type": kind, "message": message}}).to_string();
    for (status, text, kind) in [
        (429, body("rate_limit_error", "slow down"), ModelErrorKind::RateLimited),
        (529, body("overloaded_error", "busy"), ModelErrorKind::Overloaded),
        (503, String::new(), ModelErrorKind::Overloaded),
        (500, "<html>".to_owned(), ModelErrorKind::Server),
        (401, body("authentication_error", &format!("bad key {KEY}")), ModelErrorKind::Auth),
        (403, String::new(), ModelErrorKind::Auth),
        (404, body("not_found_error", "no such model"), ModelErrorKind::BadRequest),
        (400, body("invalid_request_error", "temperature"), ModelErrorKind::BadRequest),
        (400, body("exceed_context_size_error", "the request exceeds"), ModelErrorKind::ContextOverflow),
        (400, body("invalid_request_error", "prompt is too long: 300000 tokens"), ModelErrorKind::ContextOverflow),
        (
            400,
            json!({"error": {"code": "context_length_exceeded", "message": "x"}}).to_string(),
            ModelErrorKind::ContextOverflow,
        ),
        (400, json!({"error": {"code": "content_filter", "message": "x"}}).to_string(), ModelErrorKind::ContentFilter),
        (302, String::new(), ModelErrorKind::BadRequest),
    ] {
        let reply =
            Reply::new(status, text.clone()).header("retry-after", "2.5").header("location", "http://127.0.0.1:1/");
        let server = Server::script(vec![reply]);
        let error = ask(&wire(&server, WireProtocol::Anthropic, Streaming::On)).await.0.unwrap_err();
        assert_eq!(
            (error.kind, error.status, error.retry_after),
            (kind, Some(status), Some(Duration::from_millis(2500))),
            "{text}"
        );
        assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
        assert_eq!(server.requests().len(), 1);
    }
}

#[tokio::test]
async fn streams_that_break_stall_or_lie_give_no_half_turn() {
    for (protocol, good) in [(WireProtocol::Anthropic, anthropic_stream()), (WireProtocol::OpenAiChat, openai_stream())]
    {
        // Cut anywhere before its end.
        for cut in [0, 10, good.len() / 2, good.len() - 200] {
            let server = Server::script(vec![stream(good[..cut].to_vec()).cut()]);
            let error = ask(&wire(&server, protocol, Streaming::On)).await.0.unwrap_err();
            assert!(error.kind.retryable(), "{protocol:?} {cut}: {error:?}");
        }
        // Ended in good order, too early.
        let server = Server::script(vec![stream(good[..good.len() / 3].to_vec())]);
        assert!(ask(&wire(&server, protocol, Streaming::On)).await.0.unwrap_err().kind.retryable());
        for bytes in [&b"data: \xff\n\n"[..], b"data: {\n\n", b"{}"] {
            let server = Server::script(vec![stream(bytes.to_vec())]);
            assert!(ask(&wire(&server, protocol, Streaming::On)).await.0.is_err());
        }
        for body in ["", "[]", "{}", "null", "{\"choices\": []}", "{\"content\": 5}"] {
            let server = Server::script(vec![Reply::new(200, body)]);
            let error = ask(&wire(&server, protocol, Streaming::Off)).await.0.unwrap_err();
            assert_eq!(error.kind, ModelErrorKind::Protocol, "{body}");
        }
    }
    // An error inside a stream, after a good status; what was used until then is paid for.
    let start = json!({"type": "message_start", "message": {"usage": {"input_tokens": 7}}});
    let error = json!({"type": "error", "error": {"type": "overloaded_error", "message": "busy"}});
    let server = Server::script(vec![stream(events(&[start, error]))]);
    let error = ask(&wire(&server, WireProtocol::Anthropic, Streaming::On)).await.0.unwrap_err();
    assert_eq!((error.kind, error.usage.input), (ModelErrorKind::Overloaded, 7));
    // Nobody listens.
    let mut config = WireConfig::new(WireProtocol::OpenAiChat, "m");
    config.base_url = "http://127.0.0.1:9".to_owned();
    let error = ask(&Wire::new(config).unwrap()).await.0.unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::Network);
}

#[tokio::test]
async fn calls_that_servers_stream_oddly_are_put_together() {
    let part = |part: Value| json!({"choices": [{"delta": {"tool_calls": [part]}}]});
    let function = |name: &str, arguments: &str| json!({"name": name, "arguments": arguments});
    type Case<'a> = (Vec<Value>, Vec<(&'a str, &'a str)>);
    let cases: [Case<'_>; 5] = [
        // No index at all.
        (
            vec![
                part(json!({"id": "a", "function": function("x", "{")})),
                part(json!({"function": function("", "}")})),
            ],
            vec![("x", "{}")],
        ),
        // Always index 0, but two ids.
        (
            vec![
                part(json!({"index": 0, "id": "a", "function": function("x", "{}")})),
                part(json!({"index": 0, "id": "b", "function": function("y", "{}")})),
            ],
            vec![("x", "{}"), ("y", "{}")],
        ),
        // Interleaved.
        (
            vec![
                part(json!({"index": 0, "id": "a", "function": function("x", "{")})),
                part(json!({"index": 1, "id": "b", "function": function("y", "[")})),
                part(json!({"index": 0, "function": {"arguments": "}"}})),
                part(json!({"index": 1, "function": {"arguments": "]"}})),
            ],
            vec![("x", "{}"), ("y", "[]")],
        ),
        // The name in each part, the arguments as an object.
        (
            vec![
                part(json!({"index": 0, "id": "a", "function": {"name": "x"}})),
                part(json!({"index": 0, "id": "a", "function": {"name": "x", "arguments": {"k": 1}}})),
            ],
            vec![("x", "{\"k\":1}")],
        ),
        // No id.
        (vec![part(json!({"index": 0, "function": function("x", "")}))], vec![("x", "")]),
    ];
    for (mut parts, expected) in cases {
        parts.push(json!({"choices": [{"delta": {}, "finish_reason": "stop"}]}));
        let server = Server::script(vec![stream(chunks(&parts))]);
        let turn = ask(&wire(&server, WireProtocol::OpenAiChat, Streaming::On)).await.0.unwrap();
        let calls: Vec<(&str, &str)> =
            turn.assistant.calls.iter().map(|call| (call.name.as_str(), call.arguments.as_str())).collect();
        assert_eq!(calls, expected);
    }
}

#[tokio::test]
async fn further_fields_reach_the_server_and_can_not_replace_the_wires_own() {
    for protocol in [WireProtocol::Anthropic, WireProtocol::OpenAiChat] {
        let server = Server::script(vec![Reply::new(500, "")]);
        let mut config = WireConfig::new(protocol, "a-model");
        config.base_url.clone_from(&server.url);
        config.extra = serde_json::from_value(json!({"temperature": 0, "a": {"b": [1]}})).unwrap();
        let _ = ask(&Wire::new(config.clone()).unwrap()).await;
        let body = server.requests()[0].json();
        assert_eq!((&body["temperature"], &body["a"]), (&json!(0), &json!({"b": [1]})));
        for own in ["model", "messages", "system", "tools", "tool_choice", "stream", "max_tokens"] {
            config.extra = std::iter::once((own.to_owned(), Value::Null)).collect();
            let error = Wire::new(config.clone()).unwrap_err().to_string();
            assert!(error.contains(&format!("extra field '{own}'")), "{error}");
        }
    }
}

#[test]
fn a_key_is_shown_nowhere_and_addresses_are_checked() {
    assert!(ApiKey::new(" ").is_err() && ApiKey::new("a b").is_err() && ApiKey::new("a\nb").is_err());
    let mut config = WireConfig::new(WireProtocol::Anthropic, "m");
    config.key = Some(ApiKey::new(KEY).unwrap());
    assert!(!format!("{config:?}").contains("hunter2"));
    let wire = Arc::new(Wire::new(config.clone()).unwrap());
    assert!(!format!("{wire:?}").contains("hunter2"));
    for base in ["", "ftp://x", "http://", "https://user:pass@host/", "host"] {
        config.base_url = base.to_owned();
        let error = Wire::new(config.clone()).unwrap_err().to_string();
        assert!(error.contains("base_url") && !error.contains("pass@"), "{base}: {error}");
    }
}
