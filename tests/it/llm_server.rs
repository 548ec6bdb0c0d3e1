//! The wires and the loop against a server of models that this project did not write: llama.cpp, with a small model.
//! `tests/llm/with-server` starts it; without it these tests fail.
//!
//! Nothing here depends on what the model says. Where a run must take a certain way, the server is made to constrain the
//! answer to one text (`response_format`), which is llama.cpp's work and not the model's.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "helpers of tests read files, start the command, and fail like tests"
)]

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use serde_json::{Map, Value, json};
use skillcell::agent::{
    AgentConfig, AgentEvent, AgentSink, AgentSkillExecutionMode, Budget, ChatModel, FanOut, MemoryAgentSink, Message,
    ModeConfig, ModelCaps, ModelError, ModelErrorKind, ModelStop, NullAgentSink, ReplayModel, StopReason, Streaming,
    TokenUsage, Tool, ToolChoice, Transcript, Turn, TurnRequest, TurnSink, Wire, WireConfig, WireProtocol,
};
use skillcell::skill::{ManifestMode, SkillSource};
use skillcell::step::{AgentJob, AgentSkillStepConfig, ManifestNetwork, OutputCapture, StepContext, execute_agent};
use skillcell::workspace::Input;
use tokio_util::sync::CancellationToken;

use crate::agent_support::Bench;

const PROTOCOLS: [WireProtocol; 2] = [WireProtocol::Anthropic, WireProtocol::OpenAiChat];
/// More than the server's context of 2048 tokens holds, and few enough bytes to be sent at once.
const TOO_LONG: usize = 4_000;
/// Tokens of an answer that the server constrains. It has some 60, and as many blanks between them as the model likes.
const MAX_CALL_TOKENS: u32 = 250;

fn address() -> String {
    std::env::var("SKILLCELL_TEST_LLM")
        .unwrap_or_else(|_| panic!("no SKILLCELL_TEST_LLM: run these tests by tests/llm/with-server"))
}

fn base(protocol: WireProtocol) -> String {
    match protocol {
        WireProtocol::Anthropic => address(),
        WireProtocol::OpenAiChat => format!("{}/v1", address()),
    }
}

fn wire(protocol: WireProtocol, streaming: Streaming, max_output: u32, extra: Value) -> Wire {
    let mut config = WireConfig::new(protocol, "smollm2");
    config.base_url = base(protocol);
    config.streaming = streaming;
    config.caps = ModelCaps { max_context: None, max_output };
    config.extra = serde_json::from_value(extra).unwrap();
    Wire::new(config).unwrap()
}

/// A JSON schema that only this value has.
fn exactly(value: &Value) -> Value {
    let Value::Object(fields) = value else { return json!({"const": value}) };
    let properties: Map<String, Value> = fields.iter().map(|(key, value)| (key.clone(), exactly(value))).collect();
    let required: Vec<&String> = fields.keys().collect();
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

/// Fields that make the server answer with this value and nothing else.
fn forced(value: &Value) -> Value {
    json!({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": exactly(value)}}})
}

fn call(name: &str, arguments: Value) -> Value {
    json!({"name": name, "arguments": arguments})
}

/// The server's model, made to answer with these values in turn; with the last one from then on.
struct Guided {
    wires: Vec<Wire>,
    next: AtomicUsize,
}

impl Guided {
    fn new(answers: &[Value]) -> Self {
        let wire = |answer| wire(WireProtocol::OpenAiChat, Streaming::On, MAX_CALL_TOKENS, forced(answer));
        Self { wires: answers.iter().map(wire).collect(), next: AtomicUsize::new(0) }
    }
}

#[async_trait]
impl ChatModel for Guided {
    fn id(&self) -> &str {
        "guided"
    }

    fn caps(&self) -> ModelCaps {
        self.wires[0].caps()
    }

    async fn turn(&self, request: &TurnRequest<'_>, sink: &dyn TurnSink) -> Result<Turn, ModelError> {
        let index = self.next.fetch_add(1, Ordering::SeqCst).min(self.wires.len() - 1);
        self.wires[index].turn(request, sink).await
    }
}

#[derive(Default)]
struct Deltas(Mutex<String>);

impl TurnSink for Deltas {
    fn delta(&self, text: &str) {
        self.0.lock().unwrap().push_str(text);
    }
}

async fn ask(wire: &Wire, text: &str, max_output_tokens: u32) -> (Result<Turn, ModelError>, String) {
    let tools = [Tool::RunScript.spec()];
    let messages = [Message::User { text: text.into() }];
    let request = TurnRequest {
        system: "Be brief.",
        messages: &messages,
        tools: &tools,
        tool_choice: ToolChoice::Auto,
        max_output_tokens,
    };
    let deltas = Deltas::default();
    let turn = wire.turn(&request, &deltas).await;
    let text = deltas.0.lock().unwrap().clone();
    (turn, text)
}

#[tokio::test]
async fn turns_have_one_shape_on_every_wire_streamed_or_whole() {
    let mut inputs = Vec::new();
    for protocol in PROTOCOLS {
        for streaming in [Streaming::On, Streaming::Off] {
            let (turn, deltas) = ask(&wire(protocol, streaming, 6, json!({})), "Tell me a long story.", 6).await;
            let turn = turn.unwrap();
            assert_eq!((&turn.stop, turn.usage.output), (&ModelStop::MaxTokens, 6), "{protocol:?} {streaming:?}");
            assert!(!deltas.is_empty() && deltas == turn.assistant.text, "{deltas:?} {turn:?}");
            assert!(turn.usage.cached <= turn.usage.input, "{turn:?}");
            inputs.push(turn.usage.input);
        }
    }
    // The same conversation has the same number of tokens, whichever wire asks and whatever the cache held.
    assert!(inputs[0] > 0 && inputs.iter().all(|input| *input == inputs[0]), "{inputs:?}");
    let answer = json!({"answer": "done"});
    for streaming in [Streaming::On, Streaming::Off] {
        let (turn, _) = ask(&wire(WireProtocol::OpenAiChat, streaming, 60, forced(&answer)), "Hi", 60).await;
        let turn = turn.unwrap();
        assert_eq!(turn.stop, ModelStop::EndTurn);
        assert_eq!(serde_json::from_str::<Value>(&turn.assistant.text).unwrap(), answer);
    }
}

#[tokio::test]
async fn an_overflow_is_told_apart_and_not_sent_again() {
    let long = "word ".repeat(TOO_LONG);
    for protocol in PROTOCOLS {
        for streaming in [Streaming::On, Streaming::Off] {
            let error = ask(&wire(protocol, streaming, 4, json!({})), &long, 4).await.0.unwrap_err();
            let seen = (error.kind, error.status, error.kind.retryable());
            assert_eq!(seen, (ModelErrorKind::ContextOverflow, Some(400), false), "{error:?}");
        }
        let bench = Bench::new().await;
        let model = wire(protocol, Streaming::On, 4, json!({}));
        let outcome = bench.run(&model, &AgentConfig::new("Be brief.", long.clone())).await;
        assert_eq!((outcome.stop, outcome.iterations), (StopReason::ContextOverflow, 0), "{:?}", outcome.error);
        let events = bench.events.events();
        assert!(!events.iter().any(|event| matches!(event, AgentEvent::ModelRetry { .. })), "{events:?}");
    }
    // A request that is wrong in another way is no overflow.
    let wrong = wire(WireProtocol::OpenAiChat, Streaming::On, 4, json!({"response_format": {"type": "nonsense"}}));
    let error = ask(&wrong, "Hi", 4).await.0.unwrap_err();
    assert_eq!((error.kind, error.status), (ModelErrorKind::BadRequest, Some(400)), "{error:?}");
}

/// A skill whose script does what its arguments say.
fn skill(folder: &Path) -> std::path::PathBuf {
    let skill = folder.join("probe");
    crate::agent_support::write(&skill.join("SKILL.md"), "---\nname: probe\ndescription: Does as told.\n---\nUse it.");
    let probe = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guests/wat/probe.wat");
    std::fs::create_dir(skill.join("scripts")).unwrap();
    std::fs::copy(probe, skill.join("scripts/probe.wat")).unwrap();
    skill
}

fn config(skill: &Path) -> AgentSkillStepConfig {
    let mut config = AgentSkillStepConfig::new(SkillSource::Folder(skill.to_owned()));
    config.runtime = "wasm".to_owned();
    // Away from this user's cache folder.
    config.runtime_config.insert("cache_dir".to_owned(), "".into());
    config.inputs = vec![Input::bytes("data.csv", "a,b\n1,2\n")];
    config
}

fn job(model: Arc<dyn ChatModel>, events: Arc<dyn AgentSink>) -> AgentJob {
    let mut mode = ModeConfig::new("Copy the data.");
    mode.execution_mode = AgentSkillExecutionMode::LlmAgent;
    AgentJob {
        mode,
        manifest_network: ManifestNetwork::Ignore,
        manifest_mode: ManifestMode::Strict,
        output_capture: OutputCapture::Both,
        model: Some(model),
        events,
        cancel: CancellationToken::new(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_whole_run_over_wasm_with_calls_found_in_the_text() {
    let folder = tempfile::tempdir().unwrap();
    let skill = skill(folder.path());
    let script = |words: &[&str]| call("run_script", json!({"script_path": "scripts/probe.wat", "args": words}));
    let guided = Guided::new(&[
        script(&["write", "/workspace/out/copy.txt", "1+2"]),
        call("read_file", json!({"path": "/workspace/out/copy.txt"})),
        script(&["write", "/workspace/skill/x", "no"]),
        json!({"answer": "done"}),
    ]);
    let events = Arc::new(MemoryAgentSink::default());
    let path = folder.path().join("run.jsonl");
    let file = skillcell::agent::TranscriptFile::create(&path, skillcell::agent::Bounds::default()).unwrap();
    let both: Arc<dyn AgentSink> = Arc::new(FanOut(vec![events.clone(), Arc::new(file)]));
    let context = StepContext::new(skillcell::builtin_registry());
    let result = execute_agent(config(&skill), job(Arc::new(guided), both), &context).await.unwrap();
    let agent = result.run.agent.unwrap();
    assert_eq!((agent.stop, agent.iterations, agent.tool_calls_made), (StopReason::Final, 4, 3), "{:?}", agent.error);
    assert_eq!(serde_json::from_str::<Value>(&agent.text).unwrap(), json!({"answer": "done"}));
    let (mut told, mut recovered) = (Vec::new(), 0);
    for message in &agent.messages {
        match message {
            Message::Assistant(turn) => recovered += u32::from(turn.recovered),
            Message::ToolResults { results } => told.extend(results.iter().map(|result| result.content.as_str())),
            Message::User { .. } => {}
        }
    }
    // The probe says number 63, "perm", where it may not write.
    assert_eq!(told, ["write 0\n", "1+2", "write 63\n"]);
    assert_eq!(recovered, 3);
    assert_eq!(result.run.result_data["output_files"][0]["content"], "1+2");
    // What every turn cost, together, is what the run cost.
    let mut sum = TokenUsage::default();
    for event in events.events() {
        if let AgentEvent::ModelTurn { usage, .. } = event {
            assert!(usage.input > 0 && usage.output > 0, "{usage:?}");
            sum.add(usage);
        }
    }
    assert_eq!(agent.usage, sum);
    // The same conversation again, with nobody to ask: the script runs again, the result is the same.
    let replay = ReplayModel::new(&Transcript::read(&path).unwrap());
    let again = execute_agent(config(&skill), job(Arc::new(replay), Arc::new(NullAgentSink)), &context).await.unwrap();
    assert_eq!(again.run.agent.unwrap().messages, agent.messages);
    assert_eq!(again.run.result, result.run.result);
}

#[tokio::test]
async fn budgets_and_the_guard_against_circles_end_a_run() {
    let bench = Bench::new().await;
    let list = call("list_resources", json!({}));
    let run = |budget: Budget, task: &str| {
        let (bench, guided) = (&bench, Guided::new(std::slice::from_ref(&list)));
        let config = AgentConfig { budget, ..AgentConfig::new("Be brief.", task) };
        async move { bench.run(&guided, &config).await }
    };
    // The first turn is paid for and done; the second is not asked for. The task alone is as long as the budget, so that
    // the answer may be as long as it likes.
    let budget = Budget { tokens: Some(u64::from(MAX_CALL_TOKENS)), ..Budget::default() };
    let outcome = run(budget, &"word ".repeat(MAX_CALL_TOKENS as usize)).await;
    assert!(outcome.usage.input >= u64::from(MAX_CALL_TOKENS), "{:?}", outcome.usage);
    assert_eq!((outcome.stop, outcome.iterations, outcome.tool_calls_made), (StopReason::Tokens, 1, 1), "{outcome:?}");
    let outcome = run(Budget { tool_calls: 1, ..Budget::default() }, "Hi").await;
    assert_eq!((outcome.stop, outcome.iterations, outcome.tool_calls_made), (StopReason::ToolCalls, 2, 1));
    let outcome = run(Budget::default(), "Hi").await;
    assert_eq!((outcome.stop, outcome.iterations), (StopReason::LoopDetected, 5), "{:?}", outcome.error);
    // Answers that are cut at their limit, again and again, are none.
    let chatty = wire(WireProtocol::OpenAiChat, Streaming::On, 4, json!({"ignore_eos": true}));
    let outcome = bench.run(&chatty, &AgentConfig::new("Be brief.", "Tell me a long story.")).await;
    assert_eq!((outcome.stop, outcome.iterations), (StopReason::BadFormat, 3), "{:?}", outcome.error);
    assert_eq!(outcome.usage.output, 12);
}

/// Ends the run at the first piece of text.
struct CancelAtOnce(CancellationToken);

impl AgentSink for CancelAtOnce {
    fn event(&self, event: &AgentEvent) -> skillcell::Result<()> {
        if matches!(event, AgentEvent::ModelDelta { .. }) {
            self.0.cancel();
        }
        Ok(())
    }
}

#[tokio::test]
async fn a_cancel_ends_a_run_in_the_middle_of_a_stream() {
    let bench = Bench::new().await;
    // An answer that takes the server long, so that it can't have ended before the cancel is seen.
    let endless = wire(WireProtocol::OpenAiChat, Streaming::On, 1_800, json!({"ignore_eos": true}));
    let sink = CancelAtOnce(bench.cancel.clone());
    let mut environment = bench.environment(&endless);
    environment.events = &sink;
    let config = AgentConfig::new("Be brief.", "Tell me a long story.");
    let outcome = skillcell::agent::run_loop(&environment, &config).await.unwrap();
    assert_eq!((outcome.stop, outcome.iterations), (StopReason::Cancelled, 0), "{:?}", outcome.error);
    // The server is free again: it noticed that nobody listens.
    let (turn, _) = ask(&wire(WireProtocol::OpenAiChat, Streaming::On, 2, json!({})), "Hi", 2).await;
    assert!(turn.unwrap().usage.output <= 2);
}

fn skillcell(folder: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_skillcell"))
        .current_dir(folder)
        .env("XDG_CACHE_HOME", folder.join("cache"))
        .env_remove("OPENAI_API_KEY")
        .env_remove("ANTHROPIC_API_KEY")
        .args(args)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn document(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

#[test]
fn the_command_works_with_the_server() {
    let folder = tempfile::tempdir().unwrap();
    skill(folder.path());
    let script = call("run_script", json!({"script_path": "scripts/probe.wat", "args": ["say", "hello"]}));
    let step = format!(
        "skill = './probe'\ntask = 'Say it.'\nexecution_mode = 'llm_agent'\nllm_max_iterations = 2\n[model]\n\
         protocol = 'openai'\nname = 'smollm2'\nbase_url = '{}'\nmax_output = {MAX_CALL_TOKENS}\nextra = {}\n",
        base(WireProtocol::OpenAiChat),
        toml_of(&forced(&script)),
    );
    std::fs::write(folder.path().join("step.toml"), step).unwrap();
    let output = skillcell(folder.path(), &["step", "step.toml", "--json", "--transcript", "run.jsonl"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let seen = document(&output);
    assert_eq!((&seen["success"], &seen["runtime"]), (&json!(true), &json!("wasm")));
    let data = &seen["result_data"];
    assert_eq!(
        (&data["stop_reason"], &data["iterations"], &data["tool_calls_made"]),
        (&json!("final"), &json!(2), &json!(1)),
        "{seen}"
    );
    // The last round is for an answer, so what it said is one although it looks like a call.
    assert_eq!(serde_json::from_str::<Value>(seen["result"].as_str().unwrap()).unwrap(), script);
    let replayed = skillcell(folder.path(), &["replay", "run.jsonl"]);
    let text = String::from_utf8(replayed.stdout).unwrap();
    assert!(text.contains("[1] run_script done: hello") && text.contains("final: 2 rounds, 1 calls"), "{text}");
    // A model that is left alone: whatever it does, the run ends, says why, and has counted.
    for protocol in PROTOCOLS {
        let model = if protocol == WireProtocol::Anthropic { "anthropic:smollm2" } else { "openai:smollm2" };
        let (base, name) = (base(protocol), format!("{protocol:?}.jsonl"));
        let output = skillcell(
            folder.path(),
            &[
                "agent",
                "./probe",
                "--task",
                "Say hello.",
                "--model",
                model,
                "--base-url",
                &base,
                "--max-rounds",
                "2",
                "--max-tokens",
                "1200",
                "--transcript",
                &name,
                "--json",
            ],
        );
        let seen = document(&output);
        let stop = seen["result_data"]["stop_reason"].as_str().unwrap();
        let known = ["final", "max_rounds", "tokens", "bad_format", "context_overflow"];
        assert!(known.contains(&stop), "{seen}");
        assert_eq!(
            (output.status.code(), &seen["success"]),
            (Some(i32::from(stop != "final")), &json!(stop == "final"))
        );
        let transcript = Transcript::read(&folder.path().join(&name)).unwrap();
        assert_eq!(transcript.finished().map(|stop| stop.to_string()).as_deref(), Some(stop));
        assert_eq!(transcript.turns().len() as u64, seen["result_data"]["iterations"].as_u64().unwrap());
    }
}

/// A value as an inline table of TOML, which has other colons.
fn toml_of(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let fields: Vec<String> = fields.iter().map(|(key, value)| format!("{key} = {}", toml_of(value))).collect();
            format!("{{ {} }}", fields.join(", "))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(toml_of).collect::<Vec<_>>().join(", ")),
        Value::String(_) | Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::Null => panic!("TOML has no null"),
    }
}
