//! What the packs promise of their interpreters (`wasm-tools/packs/*/tests/proof.json`), shown on runtime `wasm` as it is
//! built: the same cases that `pack verify --run` has for the bare engine.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use serde::Deserialize;
use skillcell::audit::{AuditScope, NullSink, RunId};
use skillcell::runtime::{PrepareContext, Progress, RunCommand, RuntimeConfig, SilentProgress, Stdin};
use skillcell::skill::{SkillSource, TrustPolicy, VerifiedSkill};
use skillcell::workspace::{Area, GuestPath, Workspace};
use skillcell::{SandboxPolicy, SkillRuntime};

use crate::wasm_support::{generous, read_host, wat};

/// Cases about a world that skillcell never makes: it has its own variables, and refuses such a folder itself.
#[cfg(feature = "pack-python")]
const PYTHON_OF_THE_BARE_ENGINE: &[&str] =
    &["the environment is the run's", "a working folder that is not there is said"];
#[cfg(feature = "pack-js")]
const JAVASCRIPT_OF_THE_BARE_ENGINE: &[&str] = &["the environment is the given one"];

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    arguments: Vec<String>,
    #[serde(default)]
    environment: BTreeMap<String, String>,
    #[serde(default)]
    stdin: String,
    #[serde(default)]
    files: BTreeMap<String, String>,
    #[serde(default)]
    code: i32,
    stdout: Option<String>,
    #[serde(default)]
    stdout_contains: Vec<String>,
    stderr: Option<String>,
    #[serde(default)]
    stderr_contains: Vec<String>,
    #[serde(default)]
    files_after: BTreeMap<String, String>,
    #[serde(default)]
    absent_after: Vec<String>,
    #[serde(default)]
    differs_between_runs: bool,
}

/// Runs a case and gives its stdout, and what is not as it must be.
async fn call(runtime: &dyn SkillRuntime, program: &str, skill: &Path, case: &Case) -> (String, Vec<String>) {
    let run = RunId::random().unwrap();
    let audit = AuditScope::new(run, "wasm", Arc::new(NullSink));
    let verified = VerifiedSkill::verify(&SkillSource::Script(wat("hello.wat")), &TrustPolicy::Any, &audit).unwrap();
    let workspace = Workspace::create(run).unwrap();
    copy(skill, workspace.area(Area::Skill));
    for (file, text) in &case.files {
        if let Some((folder, _)) = file.rsplit_once('/') {
            workspace.root().create_dir_all(folder).unwrap();
        }
        workspace.root().write(file, text).unwrap();
    }
    let workspace = Arc::new(workspace);
    let policy = SandboxPolicy { limits: generous(), ..SandboxPolicy::default() };
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("proof-cache");
    let options = std::iter::once(("cache_dir".to_owned(), cache.to_str().unwrap().into())).collect();
    let (config, progress): (_, Arc<dyn Progress>) = (RuntimeConfig::new(options), Arc::new(SilentProgress));
    let context = PrepareContext { policy: &policy, config: &config, audit: &audit, progress: &progress };
    let handle = runtime.prepare(&verified, workspace.clone(), &context).await.unwrap();

    let mut command = RunCommand::new([program.to_owned()].into_iter().chain(case.arguments.clone())).unwrap();
    command.stdin = Stdin::Bytes(case.stdin.clone().into());
    for (name, value) in &case.environment {
        match name.as_str() {
            "PWD" => command.cwd = GuestPath::resolve(&GuestPath::root(), value).unwrap(),
            _ => command.env.set(name, value).unwrap(),
        }
    }
    let result = runtime.run(&handle, &command).await.unwrap();
    let (stdout, stderr) = (result.stdout.text(), result.stderr.text());
    let mut wrong = Vec::new();
    if result.exit_code() != case.code {
        wrong.push(format!("ended with {:?} instead of {}; stderr: {stderr}", result.termination, case.code));
    }
    for (stream, text, exact, parts) in [
        ("stdout", &stdout, &case.stdout, &case.stdout_contains),
        ("stderr", &stderr, &case.stderr, &case.stderr_contains),
    ] {
        if exact.as_ref().is_some_and(|exact| exact != text) {
            wrong.push(format!("{stream} is {text:?} instead of {exact:?}"));
        }
        wrong.extend(
            parts.iter().filter(|part| !text.contains(*part)).map(|part| format!("{stream} lacks {part:?}: {text:?}")),
        );
    }
    for (file, expected) in &case.files_after {
        let text = workspace.root().read_to_string(file);
        if text.as_ref().ok() != Some(expected) {
            wrong.push(format!("{file} holds {text:?} instead of {expected:?}"));
        }
    }
    wrong.extend(
        case.absent_after.iter().filter(|file| workspace.root().exists(file)).map(|file| format!("{file} is there")),
    );
    runtime.cleanup(&handle).await.unwrap();
    workspace.remove().unwrap();
    (stdout, wrong)
}

/// Copies a tree without its links.
fn copy(from: &Path, to: &Dir) {
    let from = Dir::open_ambient_dir(from, ambient_authority()).unwrap();
    let mut folders = vec![PathBuf::from(".")];
    while let Some(folder) = folders.pop() {
        for entry in from.read_dir(&folder).unwrap() {
            let entry = entry.unwrap();
            let path = folder.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                to.create_dir(&path).unwrap();
                folders.push(path);
            } else {
                from.copy(&path, to, &path).unwrap();
            }
        }
    }
}

async fn prove(pack: &str, program: &str, left_out: &[&str]) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("wasm-tools/packs").join(pack).join("tests");
    let cases: Vec<Case> = serde_json::from_slice(&read_host(&folder.join("proof.json"))).unwrap();
    let registry = skillcell::builtin_registry();
    let runtime = registry.get("wasm").unwrap();
    let (mut shown, mut failed) = (0, Vec::new());
    for case in cases.iter().filter(|case| !left_out.contains(&case.name.as_str())) {
        let (first, mut wrong) = call(runtime.as_ref(), program, &folder.join("skill"), case).await;
        if case.differs_between_runs {
            let (second, _) = call(runtime.as_ref(), program, &folder.join("skill"), case).await;
            let same = first.lines().zip(second.lines()).filter(|(one, other)| one == other);
            wrong.extend(same.map(|(line, _)| format!("two runs printed the same: {line}")));
            if first.is_empty() || first.lines().count() != second.lines().count() {
                wrong.push(format!("two runs printed {first:?} and {second:?}"));
            }
        }
        failed.extend(wrong.into_iter().map(|wrong| format!("{}: {wrong}", case.name)));
        shown += 1;
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    assert!(shown > 0);
    assert_eq!(shown + left_out.len(), cases.len(), "each case that is left out is there");
}

#[cfg(feature = "pack-python")]
#[tokio::test]
async fn python_keeps_its_promises() {
    prove("python", "python3", PYTHON_OF_THE_BARE_ENGINE).await;
}

#[cfg(feature = "pack-js")]
#[tokio::test]
async fn javascript_keeps_its_promises() {
    prove("js", "node", JAVASCRIPT_OF_THE_BARE_ENGINE).await;
}
