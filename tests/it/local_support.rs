//! A prepared `local` runtime for tests, and a look at the process table.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use skillcell::audit::{AuditScope, Layer, MemorySink, RunId};
use skillcell::policy::{EnforcementMode, Limits, MountRequest, grants_of};
use skillcell::runtime::{PrepareContext, Progress, RunCommand, RuntimeConfig, RuntimeRunResult, SilentProgress};
use skillcell::skill::{SkillSource, TrustPolicy, VerifiedSkill};
use skillcell::workspace::{Area, Input, Workspace};
use skillcell::{Result, SandboxPolicy, SkillRuntime, SkillRuntimeHandle};

/// A prepared runtime with an empty workspace.
pub(crate) struct Prepared {
    pub(crate) runtime: Arc<dyn SkillRuntime>,
    pub(crate) handle: SkillRuntimeHandle,
    pub(crate) sink: Arc<MemorySink>,
    pub(crate) workspace: Arc<Workspace>,
}

impl Prepared {
    /// Runtime `local` with these limits; what it can't enforce is accepted.
    pub(crate) async fn new(limits: Limits) -> Self {
        let policy = SandboxPolicy { limits, mode: EnforcementMode::BestEffort, ..SandboxPolicy::default() };
        Self::on("local", policy, RuntimeConfig::default(), &[]).await.unwrap()
    }

    /// A runtime by name, with inputs.
    pub(crate) async fn on(name: &str, policy: SandboxPolicy, config: RuntimeConfig, inputs: &[Input]) -> Result<Self> {
        Self::mounted(name, policy, config, inputs, &[]).await
    }

    /// A runtime by name, with inputs and host folders.
    pub(crate) async fn mounted(
        name: &str,
        mut policy: SandboxPolicy,
        config: RuntimeConfig,
        inputs: &[Input],
        mounts: &[MountRequest],
    ) -> Result<Self> {
        policy.mounts = grants_of(mounts)?;
        let run = RunId::random().unwrap();
        let sink = Arc::new(MemorySink::default());
        let audit = AuditScope::new(run, name, sink.clone());
        let script = tempfile::NamedTempFile::new().unwrap();
        let source = SkillSource::Script(script.path().to_owned());
        let skill = VerifiedSkill::verify(&source, &TrustPolicy::Any, &audit).unwrap();
        let runtime = skillcell::get_skill_runtime(name).unwrap();
        let mut workspace = Workspace::create(run).unwrap();
        workspace.stage_inputs(inputs, runtime.mount_support()).unwrap();
        workspace.stage_mounts(mounts)?;
        let workspace = Arc::new(workspace);
        let progress: Arc<dyn Progress> = Arc::new(SilentProgress);
        let context = PrepareContext { policy: &policy, config: &config, audit: &audit, progress: &progress };
        let handle = runtime.prepare(&skill, workspace.clone(), &context).await?;
        Ok(Self { runtime, handle, sink, workspace })
    }

    /// Puts an executable script into the skill's folder.
    pub(crate) fn script(&self, name: &str, text: &str) {
        let skill = self.workspace.area(Area::Skill);
        let mut file = skill.create(name).unwrap().into_std();
        file.write_all(text.as_bytes()).unwrap();
        file.set_permissions(std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    pub(crate) async fn run(&self, command: &RunCommand) -> Result<RuntimeRunResult> {
        self.runtime.run(&self.handle, command).await
    }

    /// Runs a shell line.
    pub(crate) async fn shell(&self, line: &str) -> RuntimeRunResult {
        self.run(&shell(line)).await.unwrap()
    }

    /// The limits that the trail says were hit.
    pub(crate) fn limits_hit(&self) -> Vec<&'static str> {
        let events = self.sink.events();
        events.iter().filter(|event| event.layer == Layer::Limit).map(|event| event.action).collect()
    }
}

pub(crate) fn shell(line: &str) -> RunCommand {
    RunCommand::new(["sh", "-c", line]).unwrap()
}

/// A word that no other process has in its command line.
pub(crate) fn marker() -> String {
    format!("marker{}", RunId::random().unwrap())
}

/// How many living processes have `marker` in their command line.
pub(crate) fn alive(marker: &str) -> usize {
    let has = |entry: &std::fs::DirEntry| {
        let line = std::process::id().to_string() != entry.file_name().to_string_lossy();
        line && slurp(&entry.path().join("cmdline"))
            .is_some_and(|bytes| String::from_utf8_lossy(&bytes).contains(marker))
    };
    std::fs::read_dir("/proc").unwrap().flatten().filter(has).count()
}

fn slurp(path: &std::path::Path) -> Option<Vec<u8>> {
    use std::io::Read;
    let mut bytes = Vec::new();
    std::fs::OpenOptions::new().read(true).open(path).ok()?.read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// Waits until `done` holds; a hang is for the test runner's own limit to find.
pub(crate) async fn until(mut done: impl FnMut() -> bool) {
    while !done() {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}
