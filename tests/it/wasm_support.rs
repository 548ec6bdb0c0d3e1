//! Runs of runtime `wasm` for tests. Most guests are one probe (`tests/guests/wat/probe.wat`), which does to its world
//! what its arguments say and prints what came of it.
#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail like tests")]

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cap_std::fs::Dir;
use skillcell::audit::{AuditScope, Layer, MemorySink, RunId};
use skillcell::policy::{Limits, MountGrant, MountRequest};
use skillcell::runtime::{PrepareContext, RunCommand, RuntimeConfig, RuntimeRunResult, SilentProgress, Termination};
use skillcell::skill::{SkillSource, TrustPolicy, VerifiedSkill};
use skillcell::step::{AgentSkillStepConfig, StepContext, StepResult};
use skillcell::workspace::{Area, Input, Workspace};
use skillcell::{Result, SandboxPolicy, SkillRuntime, SkillRuntimeHandle};

/// Ends a test that hangs. No limit under test comes near it, so nothing is measured by it.
pub(crate) const HANG_GUARD: Duration = Duration::from_secs(600);

/// A guest in text form that lies with the tests.
pub(crate) fn wat(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guests/wat").join(name)
}

/// The bytes of a guest that lies with the tests.
pub(crate) fn wat_bytes(name: &str) -> Vec<u8> {
    read_host(&wat(name))
}

/// A guest in text form as a component: wrapped with the usual adapter of preview 1 to preview 2.
pub(crate) fn component(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let path = folder.join(format!("guests/{name}-component.wasm"));
    assert!(path.is_file(), "{} is missing; `bash tests/build-guests` makes it", path.display());
    read_host(&path)
}

pub(crate) fn read_host(path: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    std::fs::OpenOptions::new().read(true).open(path).unwrap().read_to_end(&mut bytes).unwrap();
    bytes
}

pub(crate) fn write_host(path: &Path, bytes: &[u8]) {
    std::fs::OpenOptions::new().write(true).create(true).truncate(true).open(path).unwrap().write_all(bytes).unwrap();
}

/// Limits that only a hang meets.
pub(crate) fn generous() -> Limits {
    Limits { wall_time: HANG_GUARD, ..Limits::default() }
}

/// Options of the runtime that keep it away from this user's cache folder.
pub(crate) fn no_cache() -> serde_json::Map<String, serde_json::Value> {
    std::iter::once(("cache_dir".to_owned(), "".into())).collect()
}

/// A step that runs one script alone.
pub(crate) fn step(script: &Path) -> AgentSkillStepConfig {
    let mut config = AgentSkillStepConfig::new(SkillSource::Script(script.to_owned()));
    config.runtime_config = no_cache();
    config.limits = generous();
    config
}

/// A step that runs the probe.
pub(crate) fn probe(words: &[&str]) -> AgentSkillStepConfig {
    let mut config = step(&wat("probe.wat"));
    config.args = words.iter().map(|word| (*word).to_owned()).collect();
    config
}

/// A step that runs a module given as bytes or text, under a file name of its own.
pub(crate) fn module(name: &str, content: impl AsRef<[u8]>) -> (AgentSkillStepConfig, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    write_host(&path, content.as_ref());
    (step(&path), folder)
}

pub(crate) async fn execute(config: AgentSkillStepConfig) -> Result<StepResult> {
    skillcell::step::execute(config, &StepContext::new(skillcell::builtin_registry())).await
}

/// Runs a step that must end with a result, and shows that nothing of it is left on the host.
pub(crate) async fn run(config: AgentSkillStepConfig) -> StepResult {
    let result = execute(config).await.unwrap_or_else(|error| panic!("{}", error.chain().join("\n")));
    let workspace = std::env::temp_dir().join(format!("skillcell-{}", result.run_id));
    assert!(!workspace.exists(), "a workspace was left behind");
    result
}

/// What a run showed: how it ended and what it printed, with the numbers of WASI errors as names.
#[derive(Debug, PartialEq)]
pub(crate) struct Seen {
    pub(crate) termination: Termination,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Seen {
    pub(crate) fn of(run: &RuntimeRunResult) -> Self {
        let stdout = run.stdout.text().split_inclusive('\n').map(named).collect();
        Self { termination: run.termination.clone(), stdout, stderr: run.stderr.text() }
    }
}

/// It ended by itself, with success, nothing on stderr, and this on stdout.
pub(crate) fn printed(stdout: &str) -> Seen {
    Seen { termination: Termination::Exited(0), stdout: stdout.to_owned(), stderr: String::new() }
}

/// Puts the name in the place of the number in a line of the probe, and sorts the names of a listing.
fn named(line: &str) -> String {
    let Some((verb, rest)) = line.split_once(' ') else { return line.to_owned() };
    let end = rest.find([' ', '\n']).unwrap_or(rest.len());
    let (number, rest) = rest.split_at(end);
    let name = match number {
        "0" => "ok",
        "2" => "acces",
        "8" => "badf",
        "20" => "exist",
        "22" => "fbig",
        "27" => "io",
        "28" => "inval",
        "31" => "isdir",
        "32" => "loop",
        "33" => "mfile",
        "37" => "nametoolong",
        "44" => "noent",
        "48" => "nomem",
        "51" => "nospc",
        "52" => "nosys",
        "54" => "notdir",
        "55" => "notempty",
        "58" => "notsup",
        "63" => "perm",
        "69" => "rofs",
        "75" => "xdev",
        "76" => "notcapable",
        other => other,
    };
    if verb != "list" {
        return format!("{verb} {name}{rest}");
    }
    let mut names: Vec<&str> = rest.split_whitespace().collect();
    names.sort_unstable();
    let names: String = names.iter().flat_map(|name| [" ", name]).collect();
    format!("{verb} {name}{names}\n")
}

/// A prepared runtime: for what needs the handle, or the workspace from the host's side.
pub(crate) struct Prepared {
    pub(crate) runtime: Arc<dyn SkillRuntime>,
    pub(crate) handle: SkillRuntimeHandle,
    pub(crate) workspace: Arc<Workspace>,
    pub(crate) sink: Arc<MemorySink>,
    script: String,
}

impl Prepared {
    /// With the probe in `/workspace/skill`.
    pub(crate) async fn new(limits: Limits) -> Self {
        Self::with(&wat("probe.wat"), limits, &[]).await
    }

    pub(crate) async fn with(script: &Path, limits: Limits, inputs: &[Input]) -> Self {
        let policy = SandboxPolicy { limits, ..SandboxPolicy::default() };
        Self::under(script, policy, inputs, &[]).await
    }

    /// With host folders; the policy is told of them.
    pub(crate) async fn under(
        script: &Path,
        mut policy: SandboxPolicy,
        inputs: &[Input],
        mounts: &[MountRequest],
    ) -> Self {
        let run = RunId::random().unwrap();
        let sink = Arc::new(MemorySink::default());
        let audit = AuditScope::new(run, "wasm", sink.clone());
        let source = SkillSource::Script(script.to_owned());
        let skill = VerifiedSkill::verify(&source, &TrustPolicy::Any, &audit).unwrap();
        let runtime = skillcell::builtin_registry().get("wasm").unwrap();
        let mut workspace = Workspace::create(run).unwrap();
        workspace.stage_tree(Area::Skill, skill.tree()).unwrap();
        workspace.stage_inputs(inputs, runtime.mount_support()).unwrap();
        workspace.stage_mounts(mounts).unwrap();
        let workspace = Arc::new(workspace);
        policy.mounts =
            mounts.iter().map(|mount| MountGrant { guest: mount.guest.clone(), mode: mount.mode }).collect();
        let config = RuntimeConfig::new(no_cache());
        let progress: Arc<dyn skillcell::runtime::Progress> = Arc::new(SilentProgress);
        let context = PrepareContext { policy: &policy, config: &config, audit: &audit, progress: &progress };
        let handle = runtime.prepare(&skill, workspace.clone(), &context).await.unwrap();
        let script = format!("/workspace/skill/{}", script.file_name().unwrap().to_str().unwrap());
        Self { runtime, handle, workspace, sink, script }
    }

    pub(crate) fn command(&self, words: &[&str]) -> RunCommand {
        RunCommand::new(std::iter::once(self.script.as_str()).chain(words.iter().copied())).unwrap()
    }

    pub(crate) async fn run(&self, words: &[&str]) -> Seen {
        Seen::of(&self.run_command(&self.command(words)).await)
    }

    pub(crate) async fn run_command(&self, command: &RunCommand) -> RuntimeRunResult {
        let result = self.runtime.run(&self.handle, command).await;
        result.unwrap_or_else(|error| panic!("{}", error.chain().join("\n")))
    }

    /// The limits that the trail says were hit.
    pub(crate) fn limits_hit(&self) -> Vec<&'static str> {
        let events = self.sink.events();
        events.iter().filter(|event| event.layer == Layer::Limit).map(|event| event.action).collect()
    }

    /// Everything in an area, as the host sees it.
    pub(crate) fn tree(&self, area: Area) -> BTreeMap<String, String> {
        let mut found = BTreeMap::new();
        look(self.workspace.area(area), "", &mut found);
        found
    }
}

/// Adds what lies in a folder: for each path its kind, times, and content or target.
fn look(folder: &Dir, prefix: &str, found: &mut BTreeMap<String, String>) {
    for entry in folder.entries().unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let path = format!("{prefix}{name}");
        let metadata = entry.metadata().unwrap();
        let modified = metadata.modified().unwrap();
        let content = if metadata.is_dir() {
            look(&folder.open_dir(&name).unwrap(), &format!("{path}/"), found);
            format!("folder {modified:?}")
        } else if metadata.is_symlink() {
            format!("link to {}", folder.read_link_contents(&name).unwrap().display())
        } else {
            format!("file {modified:?} {}", folder.read_to_string(&name).unwrap())
        };
        found.insert(path, content);
    }
}

/// Waits until `done` holds; a hang is for the test runner's own limit to find.
pub(crate) async fn until(mut done: impl FnMut() -> bool) {
    while !done() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
