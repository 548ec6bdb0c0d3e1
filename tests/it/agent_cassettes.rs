//! The wires against the answers in `tests/data/cassettes`, over a real connection: whole, in single bytes, cut, stalled,
//! held open; and the loop's answer to servers that are busy.

#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests read their data and fail by unwrapping")]

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use skillcell::agent::{
    AgentConfig, AgentEvent, ChatModel, Message, ModelError, ModelErrorKind, RetryPolicy, StopReason, Streaming, Tool,
    ToolChoice, Turn, TurnRequest, TurnSink, Wire, WireConfig, WireProtocol,
};

use crate::agent_support::Bench;
use crate::http_server::{Reply, Server};

struct Cassette {
    name: String,
    reply: Reply,
    expected: Value,
}

impl Cassette {
    fn protocol(&self) -> WireProtocol {
        if self.name.starts_with("anthropic") { WireProtocol::Anthropic } else { WireProtocol::OpenAiChat }
    }

    fn streaming(&self) -> Streaming {
        if self.name.contains("-whole-") { Streaming::Off } else { Streaming::On }
    }

    fn body(&self) -> Vec<u8> {
        self.reply.pieces.concat()
    }
}

fn cassettes() -> Vec<Cassette> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/cassettes");
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|end| end == "http") {
            let text = std::fs::read_to_string(&path).unwrap();
            let (head, body) = text.split_once("\n\n").unwrap();
            let mut lines = head.lines();
            let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
            let mut reply = Reply::new(status, body);
            for line in lines {
                let (name, value) = line.split_once(": ").unwrap();
                reply = reply.header(name, value);
            }
            let expected = std::fs::read(path.with_extension("json")).unwrap();
            all.push(Cassette {
                name: path.file_stem().unwrap().to_str().unwrap().to_owned(),
                reply,
                expected: serde_json::from_slice(&expected).unwrap(),
            });
        }
    }
    assert!(all.len() > 25, "only {} cassettes", all.len());
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

fn wire(server: &Server, protocol: WireProtocol, streaming: Streaming, idle: Duration) -> Wire {
    let mut config = WireConfig::new(protocol, "a-model");
    config.base_url.clone_from(&server.url);
    config.streaming = streaming;
    config.idle_timeout = idle;
    Wire::new(config).unwrap()
}

/// No test comes near it.
const PATIENT: Duration = Duration::from_secs(60);

struct Quiet;

impl TurnSink for Quiet {
    fn delta(&self, _text: &str) {}
}

async fn ask(wire: &Wire) -> Result<Turn, ModelError> {
    let tools = [Tool::RunScript.spec()];
    let messages = [Message::User { text: "hi".into() }];
    let request = TurnRequest {
        system: "",
        messages: &messages,
        tools: &tools,
        tool_choice: ToolChoice::Auto,
        max_output_tokens: 100,
    };
    wire.turn(&request, &Quiet).await
}

/// In the form of the files beside the cassettes.
fn seen(answer: &Result<Turn, ModelError>) -> Value {
    match answer {
        Ok(turn) => json!({"turn": {
            "text": turn.assistant.text, "calls": turn.assistant.calls, "stop": turn.stop, "usage": turn.usage,
            "provider_kept": turn.assistant.provider.is_some(),
        }}),
        Err(error) => json!({"error": {
            "kind": error.kind, "status": error.status,
            "retry_after_ms": error.retry_after.map(|wait| wait.as_millis()), "usage": error.usage,
        }}),
    }
}

#[tokio::test]
async fn every_cassette_gives_what_stands_beside_it() {
    for cassette in cassettes() {
        for size in [1, 5, usize::MAX] {
            let server = Server::script(vec![cassette.reply.clone().in_pieces(size)]);
            let answer = ask(&wire(&server, cassette.protocol(), cassette.streaming(), PATIENT)).await;
            assert_eq!(seen(&answer), cassette.expected, "{} in pieces of {size}: {answer:?}", cassette.name);
        }
    }
}

#[tokio::test]
async fn a_connection_that_breaks_gives_no_half_turn() {
    for cassette in cassettes().into_iter().filter(|cassette| cassette.reply.status == 200) {
        let body = cassette.body();
        // In the last bytes stands what a turn can do without.
        let end = body.len().saturating_sub(200);
        for at in (0..end).step_by(end / 12 + 1) {
            let mut reply = cassette.reply.clone().cut();
            reply.pieces = vec![body[..at].to_vec()];
            let server = Server::script(vec![reply]);
            let error = ask(&wire(&server, cassette.protocol(), cassette.streaming(), PATIENT)).await.unwrap_err();
            assert!(error.kind.retryable(), "{} at {at}: {error:?}", cassette.name);
        }
    }
}

#[tokio::test]
async fn a_silent_server_is_left_and_one_that_holds_on_is_not_waited_for() {
    for name in ["anthropic-stream-text", "openai-stream-text"] {
        let cassette = cassettes().into_iter().find(|cassette| cassette.name == name).unwrap();
        // All was said: that the connection stays open is of no interest.
        let server = Server::script(vec![cassette.reply.clone().hold()]);
        let answer = ask(&wire(&server, cassette.protocol(), Streaming::On, PATIENT)).await;
        assert_eq!(seen(&answer), cassette.expected);
        // Silence in the middle, and before the first byte: the wait ends, whenever that is.
        for length in [0, 300] {
            let mut reply = cassette.reply.clone().hold();
            reply.pieces = vec![cassette.body()[..length].to_vec()];
            let server = Server::script(vec![reply]);
            let brief = Duration::from_millis(50);
            let error = ask(&wire(&server, cassette.protocol(), Streaming::On, brief)).await.unwrap_err();
            assert_eq!(error.kind, ModelErrorKind::Timeout, "{error:?}");
        }
    }
}

#[tokio::test]
async fn floods_and_garbage_end_with_an_error() {
    let stream = |body: Vec<u8>| Reply::new(200, body).header("content-type", "text/event-stream");
    for protocol in [WireProtocol::Anthropic, WireProtocol::OpenAiChat] {
        let flood = |start: &str, size: usize| [start.as_bytes().to_vec(), vec![b'x'; size]].concat();
        for (reply, kind) in [
            // One line without end; one event of many lines; an answer that is no stream.
            (stream(flood("data: ", 9 << 20)), ModelErrorKind::Protocol),
            (stream("data: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\n".repeat(300_000).into_bytes()), ModelErrorKind::Protocol),
            (Reply::new(200, flood("", 33 << 20)), ModelErrorKind::BadRequest),
            (Reply::new(500, flood("", 1 << 20)), ModelErrorKind::Server),
            (stream(b"data: [DONE\n\n".to_vec()), ModelErrorKind::Protocol),
            (stream(b"\0\0\0\xff\xfe\n\n".to_vec()), ModelErrorKind::Protocol),
            (stream(b"<html>\n\n".to_vec()), ModelErrorKind::Network),
            (Reply::new(200, "<html>"), ModelErrorKind::Protocol),
            (Reply::new(204, ""), ModelErrorKind::BadRequest),
        ] {
            let head: Vec<u8> = reply.pieces.concat().into_iter().take(20).collect();
            let server = Server::script(vec![reply]);
            let error = ask(&wire(&server, protocol, Streaming::On, PATIENT)).await.unwrap_err();
            assert_eq!(error.kind, kind, "{protocol:?} {head:?}: {error:?}");
            assert!(error.message.len() < 1_000, "{}", error.message.len());
        }
    }
}

#[tokio::test]
async fn busy_servers_are_asked_again_when_they_say_and_others_are_not() {
    let find = |name: &str| {
        let found = cassettes().into_iter().find(|cassette| cassette.name == name);
        found.unwrap_or_else(|| unreachable!("{name}")).reply
    };
    let busy = |reply: Reply| Reply { headers: vec![("retry-after-ms".into(), "3".into())], ..reply };
    let server = Server::script(vec![
        busy(find("anthropic-error-429")),
        find("anthropic-error-529"),
        find("anthropic-stream-overloaded"),
        find("anthropic-stream-text"),
    ]);
    let bench = Bench::new().await;
    let model = wire(&server, WireProtocol::Anthropic, Streaming::On, PATIENT);
    let mut config = AgentConfig::new("system", "task");
    config.retry = RetryPolicy { tries: 5, base: Duration::from_nanos(1) };
    let outcome = bench.run(&model, &config).await;
    assert_eq!((outcome.stop, outcome.text.as_str()), (StopReason::Final, "Größe: 12 € 👍"), "{:?}", outcome.error);
    // The try that broke in its middle is paid for too.
    assert_eq!((outcome.usage.input, outcome.usage.output), (12 + 40, 1 + 9));
    let events = bench.events.events();
    let retries: Vec<(u32, ModelErrorKind)> = events
        .iter()
        .filter_map(|event| {
            let AgentEvent::ModelRetry { attempt, kind, .. } = event else { return None };
            Some((*attempt, *kind))
        })
        .collect();
    let expected = [ModelErrorKind::RateLimited, ModelErrorKind::Overloaded, ModelErrorKind::Overloaded];
    assert_eq!(retries, [(1, expected[0]), (2, expected[1]), (3, expected[2])]);
    let AgentEvent::ModelRetry { wait, .. } =
        events.iter().find(|event| matches!(event, AgentEvent::ModelRetry { .. })).unwrap()
    else {
        unreachable!("found as one")
    };
    assert_eq!(*wait, 0.003);
    // The same request each time: nothing was lost or doubled.
    let bodies: Vec<Value> = server.requests().iter().map(crate::http_server::Request::json).collect();
    assert!(bodies.len() == 4 && bodies.iter().all(|body| *body == bodies[0]), "{bodies:?}");
    for (name, stop) in [
        ("openai-error-quota", StopReason::ModelError),
        ("openai-error-too-long", StopReason::ContextOverflow),
        ("openai-error-text", StopReason::ModelError),
    ] {
        let server = Server::script(vec![find(name)]);
        let model = wire(&server, WireProtocol::OpenAiChat, Streaming::On, PATIENT);
        let outcome = bench.run(&model, &config).await;
        assert_eq!((outcome.stop, server.requests().len()), (stop, 1), "{name}: {:?}", outcome.error);
    }
}
