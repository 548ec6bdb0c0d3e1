//! A runtime for tests of the loop: a real workspace, and scripts that do what their name says.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use skillcell::agent::{AgentConfig, AgentEnvironment, AgentOutcome, ChatModel, MemoryAgentSink, run_loop};
use skillcell::audit::{AuditEvent, AuditScope, Decision, MemorySink, RunId};
use skillcell::policy::{Isolation, Limits, RuntimeCapabilities, SandboxPolicy};
use skillcell::runtime::{
    Availability, CapturedOutput, PrepareContext, RunCommand, RuntimeConfig, SkillRuntime, SkillRuntimeHandle, Stream,
    Termination, Usage,
};
use skillcell::skill::{LoadedSkill, ManifestMode, SkillSource, TrustPolicy, VerifiedSkill};
use skillcell::workspace::{Area, Input, MountSupport, Workspace};
use skillcell::{ErrorKind, Result, RuntimeRunResult, SkillRuntimeError};
use tokio_util::sync::CancellationToken;

/// Scripts: `echo.py` prints its arguments; `count.py` prints a number that grows; `fail.py` exits with 3; `big.py`
/// writes 100,000 bytes; `hang.py` never ends; `broken.py` breaks the sandbox; `binary.py` writes bytes.
#[derive(Default)]
pub(crate) struct FakeRuntime {
    pub(crate) runs: AtomicU32,
    /// How many `run` futures were dropped before their end.
    pub(crate) dropped: Arc<AtomicU32>,
}

struct OnDrop(Arc<AtomicU32>, bool);

impl Drop for OnDrop {
    fn drop(&mut self) {
        if self.1 {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
}

#[async_trait]
impl SkillRuntime for FakeRuntime {
    fn name(&self) -> &str {
        "fake"
    }

    fn capabilities(&self) -> RuntimeCapabilities {
        RuntimeCapabilities::none(Isolation::None)
    }

    async fn availability(&self) -> Availability {
        Availability::Available { detail: String::new() }
    }

    fn check_config(&self, config: &RuntimeConfig) -> Result<()> {
        config.only("fake", &[])
    }

    async fn prepare(
        &self,
        _skill: &VerifiedSkill,
        workspace: Arc<Workspace>,
        context: &PrepareContext<'_>,
    ) -> Result<SkillRuntimeHandle> {
        let report = self.enforcement(context.policy);
        Ok(SkillRuntimeHandle::new(report, context.policy, workspace, context.audit.clone(), ()))
    }

    async fn run(&self, _handle: &SkillRuntimeHandle, command: &RunCommand) -> Result<RuntimeRunResult> {
        let number = self.runs.fetch_add(1, Ordering::SeqCst) + 1;
        let script = command.argv().get(1).map_or("", String::as_str).rsplit('/').next().unwrap_or("");
        let args = command.argv().get(2..).unwrap_or_default().join(" ");
        let (code, stdout, stderr): (i32, Vec<u8>, &str) = match script {
            "echo.py" => (0, args.into_bytes(), ""),
            "count.py" => (0, number.to_string().into_bytes(), ""),
            "fail.py" => (3, b"half".to_vec(), "oops"),
            "big.py" => (0, [b"head ".to_vec(), vec![b'x'; 100_000], b" tail".to_vec()].concat(), ""),
            "binary.py" => (0, vec![0, 159, 146, 150], ""),
            "hang.py" => {
                if let Some(sink) = &command.sink {
                    sink.write(Stream::Stdout, b"partial");
                }
                let _guard = OnDrop(self.dropped.clone(), true);
                std::future::pending::<()>().await;
                unreachable!("a pending future never ends")
            }
            _ => return Err(SkillRuntimeError::new(ErrorKind::Backend, "the engine is on fire")),
        };
        if let Some(sink) = &command.sink {
            sink.write(Stream::Stdout, &stdout);
            sink.write(Stream::Stderr, stderr.as_bytes());
        }
        Ok(RuntimeRunResult {
            termination: Termination::Exited(code),
            stdout: CapturedOutput::whole(stdout),
            stderr: CapturedOutput::whole(stderr.as_bytes().to_vec()),
            duration: Duration::ZERO,
            usage: Usage::default(),
        })
    }

    async fn cleanup(&self, _handle: &SkillRuntimeHandle) -> Result<()> {
        Ok(())
    }
}

/// A prepared sandbox with the skill of `skill_files`.
pub(crate) struct Bench {
    pub(crate) runtime: FakeRuntime,
    pub(crate) handle: SkillRuntimeHandle,
    pub(crate) skill: LoadedSkill,
    pub(crate) events: MemoryAgentSink,
    pub(crate) cancel: CancellationToken,
    audit: Arc<MemorySink>,
    _folder: tempfile::TempDir,
}

pub(crate) fn skill_files(folder: &Path, allowed_tools: &str) {
    let manifest = format!("---\nname: demo\ndescription: A demo.\n{allowed_tools}\n---\nUse the scripts.");
    write(&folder.join("SKILL.md"), &manifest);
    for script in ["echo", "count", "fail", "big", "hang", "broken", "binary"] {
        write(&folder.join(format!("scripts/{script}.py")), "# a script\n");
    }
    write(&folder.join("references/guide.md"), "a guide\n");
    write(&folder.join("references/long.txt"), &"0123456789abcde\n".repeat(4_000));
}

#[expect(clippy::disallowed_methods, reason = "the test makes the host's files")]
pub(crate) fn write(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

impl Bench {
    pub(crate) async fn new() -> Self {
        Self::with("", Limits::default()).await
    }

    pub(crate) async fn with(allowed_tools: &str, limits: Limits) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("demo");
        skill_files(&path, allowed_tools);
        let sink = Arc::new(MemorySink::default());
        let audit = AuditScope::new(RunId::random().unwrap(), "fake", sink.clone());
        let verified = VerifiedSkill::verify(&SkillSource::Folder(path), &TrustPolicy::Any, &audit).unwrap();
        let skill = LoadedSkill::load(Arc::new(verified), ManifestMode::Lenient).unwrap();
        let mut workspace = Workspace::create_in(folder.path(), audit.run()).unwrap();
        workspace.stage_tree(Area::Skill, skill.verified.tree()).unwrap();
        workspace.stage_inputs(&[Input::bytes("data.csv", "a,b\n1,2\n")], MountSupport::None).unwrap();
        let runtime = FakeRuntime::default();
        let policy = SandboxPolicy { limits, ..SandboxPolicy::default() };
        let progress: Arc<dyn skillcell::runtime::Progress> = Arc::new(skillcell::runtime::SilentProgress);
        let context =
            PrepareContext { policy: &policy, config: &RuntimeConfig::default(), audit: &audit, progress: &progress };
        let handle = runtime.prepare(&skill.verified, Arc::new(workspace), &context).await.unwrap();
        Self {
            runtime,
            handle,
            skill,
            events: MemoryAgentSink::default(),
            cancel: CancellationToken::new(),
            audit: sink,
            _folder: folder,
        }
    }

    pub(crate) fn environment<'a>(&'a self, model: &'a dyn ChatModel) -> AgentEnvironment<'a> {
        AgentEnvironment {
            runtime: &self.runtime,
            handle: &self.handle,
            skill: &self.skill,
            model,
            events: &self.events,
            cancel: &self.cancel,
            output: None,
        }
    }

    pub(crate) async fn run(&self, model: &dyn ChatModel, config: &AgentConfig) -> AgentOutcome {
        run_loop(&self.environment(model), config).await.unwrap()
    }

    pub(crate) fn denials(&self) -> Vec<AuditEvent> {
        self.audit.events().into_iter().filter(|event| event.decision == Decision::Deny).collect()
    }

    pub(crate) fn runs(&self) -> u32 {
        self.runtime.runs.load(Ordering::SeqCst)
    }
}
