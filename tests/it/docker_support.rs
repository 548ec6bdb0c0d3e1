//! A prepared `docker` runtime for tests. `tests/docker/with-daemon` gives the daemon and the image; without them these
//! tests fail.
#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail like tests")]

use std::sync::Arc;

use serde_json::{Value, json};
use skillcell::audit::{AuditScope, Layer, MemorySink, RunId};
use skillcell::policy::{EnforcementMode, Limits, MountRequest, grants_of};
use skillcell::runtime::{PrepareContext, Progress, RunCommand, RuntimeConfig, RuntimeRunResult, SilentProgress};
use skillcell::skill::{SkillSource, TrustPolicy, VerifiedSkill};
use skillcell::workspace::{Area, Input, MountSupport, Workspace};
use skillcell::{Result, SandboxPolicy, SkillRuntime, SkillRuntimeHandle};

/// The image that `tests/docker/make-image` made.
pub(crate) fn image() -> String {
    std::env::var("SKILLCELL_TEST_IMAGE")
        .unwrap_or_else(|_| panic!("no SKILLCELL_TEST_IMAGE: run these tests by tests/docker/with-daemon"))
}

/// A prepared container.
pub(crate) struct Prepared {
    pub(crate) runtime: Arc<dyn SkillRuntime>,
    pub(crate) handle: SkillRuntimeHandle,
    pub(crate) sink: Arc<MemorySink>,
    pub(crate) workspace: Arc<Workspace>,
}

/// What to prepare.
pub(crate) struct Setup {
    pub(crate) policy: SandboxPolicy,
    pub(crate) config: Value,
    /// Files of the workspace: area, name, content.
    pub(crate) files: Vec<(Area, &'static str, &'static str)>,
    pub(crate) mounts: Vec<MountRequest>,
    pub(crate) inputs: Vec<Input>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            policy: SandboxPolicy::default(),
            config: json!({}),
            files: Vec::new(),
            mounts: Vec::new(),
            inputs: Vec::new(),
        }
    }
}

impl Setup {
    pub(crate) fn limits(limits: Limits) -> Self {
        let policy = SandboxPolicy { limits, mode: EnforcementMode::BestEffort, ..SandboxPolicy::default() };
        Self { policy, ..Self::default() }
    }

    pub(crate) fn config(config: Value) -> Self {
        Self { config, ..Self::default() }
    }

    pub(crate) async fn try_prepare(mut self) -> Result<Prepared> {
        let run = RunId::random().unwrap();
        let sink = Arc::new(MemorySink::default());
        let audit = AuditScope::new(run, "docker", sink.clone());
        let script = tempfile::NamedTempFile::new().unwrap();
        let skill =
            VerifiedSkill::verify(&SkillSource::Script(script.path().to_owned()), &TrustPolicy::Any, &audit).unwrap();
        let mut workspace = Workspace::create(run).unwrap();
        workspace.stage_mounts(&self.mounts)?;
        workspace.stage_inputs(&self.inputs, MountSupport::Folders)?;
        self.policy.mounts = grants_of(&self.mounts)?;
        for (area, name, content) in &self.files {
            workspace.area(*area).write(name, content).unwrap();
        }
        let workspace = Arc::new(workspace);
        let map = self.config.as_object_mut().unwrap();
        map.entry("image").or_insert_with(|| image().into());
        let config = RuntimeConfig::new(map.clone());
        let runtime = skillcell::get_skill_runtime("docker").unwrap();
        runtime.check_config(&config)?;
        let progress: Arc<dyn Progress> = Arc::new(SilentProgress);
        let context = PrepareContext { policy: &self.policy, config: &config, audit: &audit, progress: &progress };
        let handle = runtime.prepare(&skill, workspace.clone(), &context).await?;
        Ok(Prepared { runtime, handle, sink, workspace })
    }

    pub(crate) async fn prepare(self) -> Prepared {
        self.try_prepare().await.unwrap_or_else(|error| panic!("{}", error.chain().join("\n")))
    }
}

impl Prepared {
    pub(crate) async fn new() -> Self {
        Setup::default().prepare().await
    }

    pub(crate) async fn try_run(&self, command: &RunCommand) -> Result<RuntimeRunResult> {
        self.runtime.run(&self.handle, command).await
    }

    pub(crate) async fn run(&self, command: &RunCommand) -> RuntimeRunResult {
        self.try_run(command).await.unwrap_or_else(|error| panic!("{}", error.chain().join("\n")))
    }

    /// Runs a shell line.
    pub(crate) async fn shell(&self, line: &str) -> RuntimeRunResult {
        self.run(&shell(line)).await
    }

    /// Runs a shell line that must succeed, and returns its output without the last line break.
    pub(crate) async fn output(&self, line: &str) -> String {
        let result = self.shell(line).await;
        assert!(result.success(), "{line}: {} {}{}", result.termination, result.stdout.text(), result.stderr.text());
        result.stdout.text().trim_end().to_owned()
    }

    /// The command lines of all processes in the container but the first and the asking ones.
    pub(crate) async fn processes(&self) -> Vec<String> {
        let lines = self
            .output("for p in /proc/[0-9]*; do [ ${p#/proc/} = $$ ] || { tr '\\0' ' ' <$p/cmdline; echo; } 2>/dev/null; done")
            .await;
        lines
            .lines()
            // `runc init` becomes a supervisor of ours.
            .filter(|line| !line.is_empty() && !line.contains("skillcell-init"))
            .filter(|line| !line.starts_with("tr ") && !line.starts_with("runc init"))
            .map(str::to_owned)
            .collect()
    }

    /// The limits that the trail says were hit.
    pub(crate) fn limits_hit(&self) -> Vec<&'static str> {
        let events = self.sink.events();
        events.iter().filter(|event| event.layer == Layer::Limit).map(|event| event.action).collect()
    }

    pub(crate) async fn cleanup(&self) {
        self.runtime.cleanup(&self.handle).await.unwrap_or_else(|error| panic!("{}", error.chain().join("\n")));
    }
}

pub(crate) fn shell(line: &str) -> RunCommand {
    RunCommand::new(["sh", "-c", line]).unwrap()
}

/// What the `docker` command prints; it must succeed.
pub(crate) fn docker(arguments: &[&str]) -> String {
    let output = client(arguments);
    assert!(output.status.success(), "docker {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Whether the `docker` command fails.
pub(crate) fn docker_fails(arguments: &[&str]) -> bool {
    !client(arguments).status.success()
}

#[expect(clippy::disallowed_methods, reason = "another program's view of the daemon is what is tested against")]
fn client(arguments: &[&str]) -> std::process::Output {
    std::process::Command::new("docker").args(arguments).output().unwrap()
}
