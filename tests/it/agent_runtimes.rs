//! The same step file on every runtime there is, by the registry and not by a list: the result is the same but for times.
//! Steps of one script and of the agent, with files, failures, refusals and time limits.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use skillcell::agent::{ChatModel, NullAgentSink, ScriptedModel};
use skillcell::runtime::Availability;
use skillcell::skill::SkillSource;
use skillcell::step::{AgentJob, StepContext, StepFile, execute_agent};
use tokio_util::sync::CancellationToken;

use crate::agent_support::write;

/// Does what its first argument says. Every runtime has a Python.
const WORK: &str = r#"
import os
import sys

from words import said

task = sys.argv[sys.argv.index("--do") + 1]
skill, into, out = (os.environ[name] for name in ("SKILL_DIR", "WORKSPACE_IN", "WORKSPACE_OUT"))
if task == "sum":
    with open(os.path.join(into, "data.csv")) as table:
        numbers = [int(word) for line in list(table)[1:] for word in line.split(",")]
    os.makedirs(os.path.join(out, "report"))
    with open(os.path.join(out, "report", "sum.txt"), "w") as report:
        report.write(f"{sum(numbers)}\n")
    print(said(sum(numbers)))
elif task == "fail":
    print("half")
    print("oops", file=sys.stderr)
    sys.exit(3)
elif task == "mimic":
    print("[timeout after 5s]")
    sys.exit(124)
elif task == "hang":
    while True:
        pass
elif task == "look":
    here = os.path.relpath(os.getcwd(), skill)
    guide = open("references/guide.md").read().strip()
    names = sorted(name for name in os.environ if "SECRET" in name or "KEY" in name or "TOKEN" in name)
    print(here, guide, names, sys.stdin.read() == "")
elif task == "link":
    open(os.path.join(out, "real.txt"), "w").write("real")
    os.symlink("real.txt", os.path.join(out, "link"))
else:
    raise SystemExit(f"what is {task}?")
"#;

fn skill(folder: &Path) {
    let skill = folder.join("work");
    write(&skill.join("SKILL.md"), "---\nname: work\ndescription: Works.\n---\nUse scripts/work.py.\n");
    write(&skill.join("scripts/work.py"), WORK);
    write(&skill.join("scripts/words.py"), "def said(number):\n    return f'the sum is {number}'\n");
    write(&skill.join("references/guide.md"), "a guide\n");
    write(&folder.join("data.csv"), "a,b\n1,2\n10,20\n");
}

/// The lines that one runtime needs and another doesn't know.
fn options(runtime: &str) -> String {
    match runtime {
        // The interpreter is compiled once for all tests that use it.
        "wasm" => {
            let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("python-cache/skillcell/wasm");
            format!("[runtime_config]\ncache_dir = '{}'\n", cache.display())
        }
        "docker" => format!("[runtime_config]\nimage = '{}'\n", crate::docker_support::image()),
        _ => String::new(),
    }
}

/// What the program `firejail` itself says on the guest's stderr as root, before the guest begins. Nothing else that a
/// runtime adds is forgiven.
const FIREJAILS_OWN: &str = "/etc/group: unmount: Invalid argument\n/etc/passwd: unmount: Invalid argument\n";

/// Without what `firejail` says, and without the words that stand for an output of nothing, which it can't give.
fn guests_own(value: Value) -> Value {
    match value {
        Value::String(text) => {
            let clean = text.replace(FIREJAILS_OWN, "");
            let said_more = clean.len() < text.len();
            let clean = if said_more { clean.strip_suffix("\n[stderr]: ").unwrap_or(&clean) } else { &clean };
            clean.strip_suffix("(empty output)").unwrap_or(clean).into()
        }
        Value::Array(items) => items.into_iter().map(guests_own).collect(),
        Value::Object(fields) => fields.into_iter().map(|(key, value)| (key, guests_own(value))).collect(),
        other @ (Value::Null | Value::Bool(_) | Value::Number(_)) => other,
    }
}

/// Runs a step's file; gives everything about its result that is no time and no name of this run.
async fn run(folder: &Path, runtime: &str, text: &str, model: Option<ScriptedModel>) -> Value {
    let head = "skill = './work'\nin = ['data.csv']\nallow_advisory = true\n";
    let text = format!("{head}runtime = '{runtime}'\n{text}\n{}", options(runtime));
    let file = StepFile::parse(&text).unwrap();
    let checked = file.checked(SkillSource::Folder(folder.join("work")), folder).unwrap();
    let job = AgentJob {
        mode: checked.mode,
        manifest_network: checked.manifest_network,
        manifest_mode: checked.manifest_mode,
        output_capture: checked.output_capture,
        model: model.map(|model| Arc::new(model) as Arc<dyn ChatModel>),
        events: Arc::new(NullAgentSink),
        cancel: CancellationToken::new(),
    };
    let context = StepContext::new(skillcell::builtin_registry());
    match execute_agent(checked.config, job, &context).await {
        Err(error) => json!({"error": error.kind(), "message": error.to_string()}),
        Ok(result) => json!({
            "success": result.run.success,
            "result": result.run.result,
            "error_message": result.run.error_message,
            "result_data": result.run.result_data,
            "messages": result.run.agent.as_ref().map(|agent| &agent.messages),
            "outputs": result.outputs.iter().map(|output| json!([output.file.path, output.file.sha256])).collect::<Vec<_>>(),
            "skipped": result.skipped.iter().map(|skipped| json!([skipped.path, skipped.message])).collect::<Vec<_>>(),
            "digest": result.skill_digest,
        }),
    }
}

/// The first place where two values differ, with what stands there.
fn difference(place: &str, one: &Value, other: &Value) -> Option<String> {
    match (one, other) {
        (Value::Object(a), Value::Object(b)) if a.len() == b.len() => a
            .iter()
            .find_map(|(key, value)| difference(&format!("{place}/{key}"), value, b.get(key).unwrap_or(&Value::Null))),
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            a.iter().zip(b).enumerate().find_map(|(index, (a, b))| difference(&format!("{place}/{index}"), a, b))
        }
        _ => (one != other).then(|| format!("{place}: {one} and {other}")),
    }
}

fn script(task: &str, more: &str) -> String {
    format!("execution_mode = 'script'\nscript_name = 'scripts/work.py'\n{more}\n[script_args]\ndo = '{task}'\n")
}

fn call(task: &str) -> (&'static str, Value) {
    ("run_script", json!({"script_path": "scripts/work.py", "args": ["--do", task]}))
}

fn model() -> ScriptedModel {
    ScriptedModel::new()
        .calls(&[
            ("list_resources", json!({})),
            call("sum"),
            ("read_file", json!({"path": "/workspace/out/report/sum.txt"})),
        ])
        .calls(&[call("fail"), call("mimic"), call("look")])
        .calls(&[(
            "run_script",
            json!({"script_path": "scripts/work.py", "args": ["--do", "hang"], "timeout_seconds": 1}),
        )])
        .calls(&[
            ("read_file", json!({"path": "/etc/passwd"})),
            ("read_file", json!({"path": "/workspace/out/none"})),
            ("read_resource", json!({"resource_path": "references/../../../etc/hostname"})),
            ("write_file", json!({"filename": "/workspace/in/data.csv", "content": ""})),
            ("write_file", json!({"filename": "notes/größe.md", "content": "# ü"})),
            ("run_script", json!({"script_path": "/bin/sh"})),
        ])
        .raw_calls(&[("run_script", "{"), ("nothing", "{}"), ("list_resources", "{\"path\": \"/workspace/out\"}")])
        .calls(&[call("link")])
        .say("The sum is 33.")
}

/// The cases: a name, the step's text, whether a model works on it.
fn cases() -> Vec<(&'static str, String, bool)> {
    vec![
        ("a script with files", script("sum", ""), false),
        ("a script that fails", script("fail", ""), false),
        ("a script that mimics a time limit", script("mimic", ""), false),
        ("a script that hangs", script("hang", "timeout = 1"), false),
        ("a script that looks around", script("look", ""), false),
        ("a script that leaves a link", script("link", ""), false),
        ("a script that is not there", script("sum", "").replace("work.py", "none.py"), false),
        ("a script outside", script("sum", "").replace("scripts/work.py", "/bin/sh"), false),
        ("the agent", "execution_mode = 'llm_agent'\ntask = 'Sum it.'\nllm_max_iterations = 12\n".to_owned(), true),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_step_file_gives_the_same_result_on_every_runtime() {
    let folder = tempfile::tempdir().unwrap();
    skill(folder.path());
    let registry = skillcell::builtin_registry();
    let mut first: Option<(String, Vec<Value>)> = None;
    let mut compared = Vec::new();
    for name in registry.names() {
        match registry.get(name).unwrap().availability().await {
            Availability::Available { .. } => {}
            Availability::Missing { reason, remedy } => panic!("{name} can't be used here: {reason}; {remedy}"),
        }
        let mut results = Vec::new();
        for (_, text, asks) in cases() {
            let seen = run(folder.path(), name, &text, asks.then(model)).await;
            results.push(guests_own(seen));
        }
        match &first {
            None => first = Some((name.to_owned(), results)),
            Some((other, expected)) => {
                for ((case, _, _), (seen, expected)) in cases().iter().zip(results.iter().zip(expected)) {
                    let differs = difference("", seen, expected);
                    assert_eq!(differs, None, "{case}: {name} and {other} differ; {}", seen["error_message"]);
                }
            }
        }
        compared.push(name);
    }
    assert!(compared.len() >= 5, "only {compared:?} were compared");
    // Equal is not enough: they must be right too.
    let (_, results) = first.unwrap();
    let [sum, fail, mimic, hang, look, link, none, outside, agent] = results.as_slice() else { panic!("{results:?}") };
    assert_eq!((&sum["success"], &sum["outputs"][0][0]), (&json!(true), &json!("report/sum.txt")), "{sum}");
    assert_eq!(sum["result"], "the sum is 33\n\n\nOutput files: report/sum.txt");
    assert_eq!(
        (&fail["success"], &fail["result"], &fail["error_message"], &fail["result_data"]["returncode"]),
        (&json!(false), &json!("half\n"), &json!("Script exited with code 3.\nstderr: oops\n"), &json!(3))
    );
    // Exit code 124 and CARL's mark are a script's to choose; a time limit is said in a place that it can't write.
    let ended = |seen: &Value| (seen["result_data"]["returncode"].clone(), seen["result_data"]["timed_out"].clone());
    assert_eq!((ended(mimic), ended(hang)), ((json!(124), json!(false)), (json!(124), json!(true))), "{mimic} {hang}");
    assert_eq!(look["result"], ". a guide [] True\n");
    assert_eq!((&link["outputs"][0][0], &link["skipped"][0][0]), (&json!("real.txt"), &json!("link")), "{link}");
    assert_eq!((&none["error"], &outside["error"]), (&json!("not_found"), &json!("path_denied")), "{none} {outside}");
    assert_eq!((&agent["success"], &agent["result_data"]["stop_reason"]), (&json!(true), &json!("final")), "{agent}");
    assert_eq!(agent["result_data"]["tool_calls_made"], 15, "{agent}");
    let told: Vec<&str> = agent["messages"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|message| message["results"].as_array())
        .flatten()
        .map(|result| result["content"].as_str().unwrap())
        .collect();
    for (index, starts) in [
        (0, "**Skill resources:**"),
        (1, "the sum is 33\n"),
        (2, "33\n"),
        (3, "[exit code 3]\nhalf\n"),
        (4, "[exit code 124]\n[timeout after 5s]\n"),
        (5, ". a guide [] True\n"),
        (6, "[Error: script timed out after 1s"),
        (7, "[Denied: path '/etc/passwd' lies outside"),
        (8, "[Error: file not found: /workspace/out/none]"),
        (9, "[Denied: "),
        (10, "[Denied: "),
        (11, "Written 4 bytes to /workspace/out/notes/größe.md"),
        (12, "[Denied: "),
        (13, "[Error: the arguments of run_script are not valid"),
        (14, "[Unknown tool: nothing."),
    ] {
        assert!(told[index].starts_with(starts), "{index}: {}", told[index]);
    }
}
