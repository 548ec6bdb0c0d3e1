//! `skillcell agent`, `step` and `replay` as people and scripts use them, with a model that a server of the loopback
//! plays: what stands on which stream, exit codes, files, refusals.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::panic,
    reason = "tests read files, start the command, and fail by panicking"
)]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::cli::{HELLO_WAT, LOOP_WAT};
use crate::http_server::{Reply, Server};

/// Well formed, and nobody's.
const KEY: &str = "sk-synthetic-hunter2-hunter2";

struct Scene {
    folder: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        let scene = Self { folder: tempfile::tempdir().unwrap() };
        scene.file("demo/SKILL.md", "---\nname: demo\ndescription: A demo.\n---\nUse the scripts.\n");
        scene.file("demo/scripts/hello.wat", HELLO_WAT);
        scene.file("demo/scripts/loop.wat", LOOP_WAT);
        scene.file("data.csv", "a,b\n1,2\n");
        scene
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn file(&self, name: &str, content: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_skillcell"));
        command
            .current_dir(self.folder.path())
            .env("XDG_CACHE_HOME", self.path("cache"))
            .env_remove("ANTHROPIC_API_KEY")
            .env("OPENAI_API_KEY", KEY)
            .args(args)
            .stdin(Stdio::null());
        command
    }

    fn skillcell(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// `skillcell agent` on the demo, with this server as its model.
    fn agent(&self, server: &Server, more: &[&str]) -> Output {
        let first = ["agent", "./demo", "--task", "Do it.", "--model", "openai:m", "--base-url", &server.url];
        self.skillcell(&[&first[..], more].concat())
    }
}

/// Code, stdout, stderr.
fn shown(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn document(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

fn say(text: &str) -> Reply {
    answer(json!({"role": "assistant", "content": text}), "stop")
}

fn call(name: &str, arguments: Value) -> Reply {
    let call = json!({"id": "call_synthetic_1", "type": "function", "function": {"name": name, "arguments": arguments.to_string()}});
    answer(json!({"role": "assistant", "content": null, "tool_calls": [call]}), "tool_calls")
}

fn answer(message: Value, reason: &str) -> Reply {
    let usage = json!({"prompt_tokens": 10, "completion_tokens": 2});
    Reply::new(200, json!({"choices": [{"message": message, "finish_reason": reason}], "usage": usage}).to_string())
}

fn run_script(name: &str) -> Reply {
    call("run_script", json!({"script_path": format!("scripts/{name}")}))
}

fn write_file() -> Reply {
    call("write_file", json!({"filename": "a/b.txt", "content": "written"}))
}

#[test]
fn the_answer_is_on_stdout_and_the_way_to_it_on_stderr() {
    let scene = Scene::new();
    let server = Server::script(vec![
        run_script("hello.wat"),
        write_file(),
        call("read_file", json!({"path": "/etc/passwd"})),
        say("Done:\n\u{1b}[31mred"),
    ]);
    let output = scene.agent(
        &server,
        &["--in", "data.csv", "--out", "results", "--transcript", "run.jsonl", "--audit", "audit.jsonl"],
    );
    let (code, stdout, stderr) = shown(&output);
    assert_eq!((code, stdout.as_str()), (Some(0), "Done:\n\\u{1b}[31mred\n"), "{stderr}");
    assert_eq!(
        stderr.lines().collect::<Vec<_>>(),
        [
            r#"skillcell: [1] run_script {"script_path":"scripts/hello.wat"}"#,
            r"skillcell: [1] run_script done: [exit code 3]\nhello\n\n[stderr]: oops\n",
            r#"skillcell: [2] write_file {"content":"written","filename":"a/b.txt"}"#,
            "skillcell: [2] write_file done: Written 7 bytes to /workspace/out/a/b.txt",
            r#"skillcell: [3] read_file {"path":"/etc/passwd"}"#,
            "skillcell: [3] read_file denied: [Denied: path '/etc/passwd' lies outside /workspace; use /workspace/in, /workspace/out or /workspace/skill. Don't try this again; it will be refused again.]",
            "skillcell: final: 4 rounds, 3 calls, 48 tokens",
        ]
    );
    assert_eq!(scene.read("results/a/b.txt"), "written");
    // The key is in one header, and nowhere else.
    let requests = server.requests();
    assert_eq!(requests[0].header("authorization"), Some(format!("Bearer {KEY}").as_str()));
    for text in [scene.read("run.jsonl"), scene.read("audit.jsonl"), stderr] {
        assert!(!text.contains("hunter2"), "{text}");
    }
    // What was refused stands in the audit trail, once, and the trail is whole.
    assert_eq!(scene.read("audit.jsonl").matches("\"deny\"").count(), 1);
    assert_eq!(scene.skillcell(&["audit", "verify", "audit.jsonl"]).status.code(), Some(0));
    // The input is named to the model by its path in the sandbox.
    let body = String::from_utf8(requests[0].body.clone()).unwrap();
    assert!(body.contains("/workspace/in") && !body.contains(scene.folder.path().to_str().unwrap()), "{body}");
}

#[test]
fn json_is_one_document_and_nothing_else() {
    let scene = Scene::new();
    let server = Server::script(vec![write_file(), say("Done.")]);
    let output = scene.agent(&server, &["--json"]);
    let (code, _, stderr) = shown(&output);
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    let mut seen = document(&output);
    let keys: Vec<&String> = seen.as_object().unwrap().keys().collect();
    assert_eq!(
        keys,
        [
            "run",
            "runtime",
            "skill_sha256_tree",
            "success",
            "result",
            "error_message",
            "result_data",
            "skipped",
            "output_conflict",
            "enforcement",
            "network_enforced",
            "audit"
        ]
    );
    assert_eq!(
        (&seen["runtime"], &seen["success"], &seen["result"], &seen["error_message"], &seen["network_enforced"]),
        (&json!("wasm"), &json!(true), &json!("Done."), &Value::Null, &json!(true))
    );
    let data = seen["result_data"].as_object_mut().unwrap();
    let file = data["output_files"][0].as_object_mut().unwrap();
    assert_eq!(file.remove("sha256").unwrap().as_str().unwrap().len(), 64);
    assert_eq!(
        Value::Object(data.clone()),
        json!({
            "skill_name": "demo", "execution_mode": "llm_agent", "stop_reason": "final", "iterations": 2,
            "tool_calls_made": 1, "usage": {"input": 20, "cached": 0, "output": 4},
            "output_files": [{"name": "a/b.txt", "size": 7, "content_type": "text/plain", "content": "written"}],
        })
    );
}

#[test]
fn a_run_without_an_answer_has_code_1_and_says_why() {
    let scene = Scene::new();
    let again = || Server::start(|_| run_script("hello.wat"));
    let (code, stdout, stderr) = shown(&scene.agent(&again(), &["--max-rounds", "3"]));
    assert_eq!((code, stdout.as_str()), (Some(1), ""), "{stderr}");
    assert!(
        stderr.ends_with(
            "skillcell: max_rounds: 3 rounds, 2 calls, 36 tokens\nskillcell: max_rounds: the run has no rounds left\n"
        ),
        "{stderr}"
    );
    let (code, _, stderr) = shown(&scene.agent(&again(), &["--max-tokens", "12"]));
    assert_eq!(code, Some(1));
    assert!(
        stderr.ends_with(
            "skillcell: tokens: 1 rounds, 1 calls, 12 tokens\nskillcell: tokens: the token budget is used up\n"
        ),
        "{stderr}"
    );
    let refusing = Server::start(|_| {
        Reply::new(401, json!({"error": {"message": format!("no such key: {KEY}"), "type": "x"}}).to_string())
    });
    let (code, stdout, stderr) = shown(&scene.agent(&refusing, &[]));
    assert_eq!((code, stdout.as_str()), (Some(1), ""));
    assert_eq!(
        stderr,
        "skillcell: model_error: 0 rounds, 0 calls, 0 tokens\n\
         skillcell: model_error: the model's server refused: no such key: [redacted] (status 401)\n"
    );
    assert_eq!(refusing.requests().len(), 1);
}

#[test]
fn what_can_not_be_done_is_said_before_anything_is_asked() {
    let scene = Scene::new();
    scene.file("results/a.txt", "mine");
    let server = Server::script(vec![]);
    let agent = |args: &[&str]| scene.skillcell(&[&["agent"], args].concat());
    let url = server.url.as_str();
    let model = ["--task", "t", "--model", "openai:m", "--base-url", url];
    let with = |first: &[&'static str], last: &[&'static str]| agent(&[first, &model[..], last].concat());
    let zeros = "0000000000000000000000000000000000000000000000000000000000000000";
    for (output, code, what) in [
        (agent(&["./demo", "--task", "t"]), 2, "the following required arguments were not provided"),
        (agent(&["./demo", "--task", "t", "--model", "m"]), 2, "--model is given as anthropic:NAME or openai:NAME"),
        (agent(&["./demo", "--task", "t", "--model", "x:m"]), 2, "unknown protocol 'x' of a model"),
        (agent(&["./demo", "--task", "t", "--model", "anthropic:m"]), 2, "ANTHROPIC_API_KEY has no key"),
        (agent(&["./demo", "--task", "t", "--model", "openai:m", "--base-url", "ftp://x"]), 2, "base_url"),
        (
            agent(&["./demo", "--task", "t", "--model", "openai:m", "--key-env", "SKILLCELL_NO_SUCH"]),
            2,
            "SKILLCELL_NO_SUCH has no key",
        ),
        (with(&["./nowhere"], &[]), 2, "No SKILL.md found at path: ./nowhere"),
        (with(&["no-such-skill"], &[]), 2, "Skill 'no-such-skill' not found in any search path"),
        (with(&["module://x"], &[]), 2, "Python package"),
        (with(&["./demo"], &["--runtime", "nonsense"]), 2, "nonsense"),
        (with(&["./demo"], &["--pin", zeros]), 3, "is not what was pinned"),
        (with(&["./demo"], &["--pin", "12"]), 2, "64 hex digits"),
        (with(&["./demo"], &["--max-rounds", "0"]), 2, "zero"),
        (with(&["./demo"], &["--max-time", "soon"]), 2, "is not a duration"),
        (with(&["./demo"], &["--timeout", "0"]), 2, ""),
        (with(&["./demo"], &["--in", "nowhere.csv"]), 2, "nowhere.csv"),
        (with(&["./demo"], &["--approve", "perhaps"]), 2, "invalid value 'perhaps'"),
        (with(&["./demo"], &["--overwrite"]), 2, "--out"),
        (with(&["./demo"], &["--resume", "none.jsonl"]), 2, "none.jsonl"),
        (with(&["./demo"], &["--audit", "no/such/folder.jsonl"]), 2, "--audit"),
        (with(&["./demo"], &["--runtime", "local"]), 3, ""),
    ] {
        let (seen, stdout, stderr) = shown(&output);
        assert_eq!((seen, stdout.as_str()), (Some(code), ""), "{what}: {stderr}");
        assert!(
            stderr.contains(what) && !stderr.contains("hunter2") && !stderr.contains("panicked"),
            "{what}: {stderr}"
        );
    }
    assert_eq!(server.requests().len(), 0, "a model was asked");
}

#[test]
fn a_step_of_each_kind_from_its_file() {
    let scene = Scene::new();
    let head = "skill = './demo'\n";
    scene.file("script.toml", &format!("{head}execution_mode = 'script'\nscript_name = 'scripts/hello.wat'\n"));
    // A script that fails ends with its own code; what it printed is not lost.
    let (code, stdout, stderr) = shown(&scene.skillcell(&["step", "script.toml"]));
    assert_eq!((code, stdout.as_str()), (Some(3), "hello\n"), "{stderr}");
    assert_eq!(stderr, "skillcell: Script exited with code 3.\nstderr: oops\n\n");
    let output = scene.skillcell(&["step", "script.toml", "--json"]);
    assert_eq!((output.status.code(), &document(&output)["result_data"]["returncode"]), (Some(3), &json!(3)));
    scene.file(
        "loop.toml",
        &format!("{head}execution_mode = 'script'\nscript_name = 'scripts/loop.wat'\ntimeout = 0.2\n"),
    );
    assert_eq!(scene.skillcell(&["step", "loop.toml"]).status.code(), Some(124));

    let server = Server::start(|request| match request.json()["tools"].as_array() {
        None => say("no tools"),
        Some(_) => say("five tools"),
    });
    let model = format!(
        "[model]\nprotocol = 'openai'\nname = 'm'\nbase_url = '{}'\nstream = false\nextra = {{ seed = 7 }}\n",
        server.url
    );
    for (mode, answer) in
        [("llm", "no tools"), ("hybrid", "no tools"), ("subagent", "no tools"), ("llm_agent", "five tools")]
    {
        let script = if mode == "hybrid" || mode == "subagent" { "script_name = 'scripts/hello.wat'\n" } else { "" };
        scene.file(
            "step.toml",
            &format!(
                "{head}task = 'Do {{what}}.'\nexecution_mode = '{mode}'\n{script}[input_mapping]\nwhat = 'it'\n{model}"
            ),
        );
        let output = scene.skillcell(&["step", "step.toml", "--json"]);
        let seen = document(&output);
        assert_eq!((output.status.code(), &seen["result"]), (Some(0), &json!(answer)), "{mode}: {seen}");
        let data = &seen["result_data"];
        assert_eq!(data["execution_mode"], mode);
        // A script that failed is a fallback, and said to be one.
        assert_eq!(data.get("llm_fallback"), (!script.is_empty()).then_some(&json!(true)), "{mode}: {seen}");
        let body = server.requests().pop().unwrap().json();
        assert_eq!((&body["seed"], &body["stream"]), (&json!(7), &json!(false)));
        assert!(body["messages"][1]["content"].as_str().unwrap().starts_with("Do it."), "{body}");
    }
}

#[test]
fn a_file_that_is_no_step_is_refused_with_its_fault() {
    let scene = Scene::new();
    fs::write(scene.path("latin.toml"), b"skill = '\xfc'").unwrap();
    scene.file("big.toml", &"#".repeat(2 << 20));
    for (file, text, what) in [
        ("none.toml", None, "none.toml"),
        ("latin.toml", None, "latin.toml is not UTF-8"),
        ("big.toml", None, "big.toml"),
        ("a.toml", Some("skill = "), "not valid"),
        ("a.toml", Some("skill = './demo'\ntask = 't'\nextra_npm = ['x']"), "unknown field `extra_npm`"),
        ("a.toml", Some("skill = './demo'\ntask = 't'"), "needs a model"),
        ("a.toml", Some("skill = './nowhere'\ntask = 't'\nexecution_mode = 'script'"), "No SKILL.md found"),
        ("a.toml", Some("skill = './demo'\nexecution_mode = 'script'\nscript_name = '/bin/sh'"), "/bin/sh"),
        ("a.toml", Some("skill = './demo'\nexecution_mode = 'script'\nscript_name = '../x.py'"), "../x.py"),
        ("a.toml", Some("skill = './demo'\nexecution_mode = 'script'"), "has no scripts"),
        (
            "a.toml",
            Some(
                "skill = './demo'\ntask = 't'\n[model]\nprotocol = 'openai'\nname = 'm'\nbase_url = 'http://127.0.0.1:1'\nextra = { messages = [] }",
            ),
            "extra field 'messages'",
        ),
    ] {
        if let Some(text) = text {
            scene.file(file, text);
        }
        let (code, stdout, stderr) = shown(&scene.skillcell(&["step", file]));
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "{what}: {stderr}");
        assert!(stderr.starts_with("skillcell: error: ") && stderr.contains(what), "{what}: {stderr}");
    }
}

#[test]
fn a_transcript_is_shown_run_again_and_gone_on_with() {
    let scene = Scene::new();
    let server = Server::script(vec![run_script("hello.wat"), write_file(), say("Done.")]);
    assert_eq!(scene.agent(&server, &["--transcript", "run.jsonl"]).status.code(), Some(0));
    let (code, stdout, stderr) = shown(&scene.skillcell(&["replay", "run.jsonl"]));
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    let lines: Vec<&str> = stdout.lines().collect();
    assert!(lines[0].starts_with("model m, skill ") && lines[0].len() == "model m, skill ".len() + 64, "{}", lines[0]);
    assert_eq!(
        lines[1..],
        [
            r#"[1] run_script {"script_path":"scripts/hello.wat"}"#,
            r"[1] run_script done: [exit code 3]\nhello\n\n[stderr]: oops\n",
            r#"[2] write_file {"content":"written","filename":"a/b.txt"}"#,
            "[2] write_file done: Written 7 bytes to /workspace/out/a/b.txt",
            "[3] model: Done.",
            "final: 3 rounds, 2 calls, 36 tokens",
        ]
    );
    // One file is one run, and a run that ended can't go on.
    let (code, _, stderr) = shown(&scene.agent(&server, &["--transcript", "run.jsonl"]));
    assert!(code == Some(2) && stderr.contains("run.jsonl"), "{stderr}");
    let (code, _, stderr) = shown(&scene.agent(&server, &["--resume", "run.jsonl"]));
    assert!(code == Some(2) && stderr.contains("the run of run.jsonl ended already (final)"), "{stderr}");

    // Again in a sandbox, with the transcript in the place of the model: no key, no server.
    scene.file("step.toml", "skill = './demo'\ntask = 'Do it.'\nexecution_mode = 'llm_agent'\nout = 'again'\n");
    let output = scene
        .command(&["replay", "run.jsonl", "--step", "step.toml", "--json"])
        .env_remove("OPENAI_API_KEY")
        .output()
        .unwrap();
    assert_eq!((output.status.code(), &document(&output)["result_data"]["iterations"]), (Some(0), &json!(3)));
    assert_eq!(scene.read("again/a/b.txt"), "written");

    // The machine went down after the script: the run goes on, and the script is not run again.
    let text = scene.read("run.jsonl");
    let kept: Vec<&str> = text.lines().take(5).collect();
    assert!(kept[4].contains("tool_finished"), "{}", kept[4]);
    scene.file("cut.jsonl", &format!("{}\n{{\"event\":\"model_tu", kept.join("\n")));
    let (_, stdout, _) = shown(&scene.skillcell(&["replay", "cut.jsonl"]));
    assert!(
        stdout.ends_with("(a line of the transcript is cut)\n(the run has no end: go on with --resume)\n"),
        "{stdout}"
    );
    let rest = Server::script(vec![say("Went on.")]);
    let (code, stdout, stderr) = shown(&scene.agent(&rest, &["--resume", "cut.jsonl"]));
    assert_eq!(
        (code, stdout.as_str(), stderr.as_str()),
        (Some(0), "Went on.\n", "skillcell: final: 2 rounds, 1 calls, 24 tokens\n")
    );
    let asked = rest.requests()[0].json();
    assert!(asked["messages"][3]["content"].as_str().unwrap().contains("hello"), "{asked}");
    assert!(shown(&scene.skillcell(&["replay", "cut.jsonl"])).1.ends_with("(a line of the transcript is cut)\n"));

    for (text, what) in
        [("", "is no transcript"), ("{\"transcript\":\"skillcell.agent\",\"version\":9}\n", "version 9")]
    {
        scene.file("other.jsonl", text);
        let (code, stdout, stderr) = shown(&scene.skillcell(&["replay", "other.jsonl"]));
        assert!(code == Some(2) && stdout.is_empty() && stderr.contains(what), "{stderr}");
    }
}

#[test]
fn calls_are_done_only_when_somebody_says_yes() {
    let scene = Scene::new();
    let replies = || vec![write_file(), call("list_resources", json!({})), say("ok")];
    for (mode, said) in [
        ("never", Some("[Denied: it was rejected: calls that change something are switched off (--approve never)")),
        ("ask", Some("[Denied: it was rejected: nobody can be asked: this is no terminal (--approve ask)")),
        ("always", None),
    ] {
        let server = Server::script(replies());
        let output = scene.agent(&server, &["--approve", mode, "--json"]);
        let files = document(&output)["result_data"]["output_files"].as_array().unwrap().len();
        assert_eq!((output.status.code(), files), (Some(0), usize::from(said.is_none())), "{mode}");
        let requests = server.requests();
        let told = |request: usize| {
            requests[request].json()["messages"].as_array().unwrap().last().unwrap()["content"].clone()
        };
        assert!(told(1).as_str().unwrap().starts_with(said.unwrap_or("Written 7 bytes")), "{mode}: {}", told(1));
        // Reading needs nobody's yes.
        assert!(told(2).as_str().unwrap().starts_with("**Skill resources:**"), "{mode}: {}", told(2));
    }
}

/// A terminal that `script` makes; the test is the person at it.
#[cfg(target_os = "linux")]
#[test]
fn the_person_at_the_terminal_is_asked() {
    let scene = Scene::new();
    for (typed, files) in [("y", 1), ("", 0), ("yes please", 0)] {
        let server = Server::script(vec![write_file(), say("ok")]);
        let line = format!(
            "'{}' agent ./demo --task t --model openai:m --base-url {} --approve ask --audit audit-{files}.jsonl --out {}",
            env!("CARGO_BIN_EXE_skillcell"),
            server.url,
            scene.path(&format!("out-{}", typed.len())).display(),
        );
        let mut child = Command::new("script")
            .args(["--quiet", "--return", "--command", &line, "/dev/null"])
            .current_dir(scene.folder.path())
            .env("OPENAI_API_KEY", KEY)
            .env("XDG_CACHE_HOME", scene.path("cache"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut seen = String::new();
        while !seen.contains("Type y and Enter") {
            assert_ne!(output.read_line(&mut seen).unwrap(), 0, "it did not ask: {seen}");
        }
        assert!(seen.contains(r#"the model asks for write_file {"content":"written","filename":"a/b.txt"}"#), "{seen}");
        input.write_all(format!("{typed}\n").as_bytes()).unwrap();
        output.read_to_string(&mut seen).unwrap();
        assert!(child.wait().unwrap().success(), "{seen}");
        let out = scene.path(&format!("out-{}", typed.len()));
        assert_eq!(out.join("a/b.txt").exists(), files == 1, "{typed}: {seen}");
    }
    // A yes is on record too.
    assert_eq!(scene.read("audit-1.jsonl").matches("the approver said yes").count(), 1);
}
