//! A short program of ours in a runtime, beside the step's own work: asking its Python what it is, having packages
//! fetched, compiling them. It has a workspace, a sandbox and an audit trail of its own, and leaves nothing.
//!
//! Invariant: its sandbox is cleaned up on every way out, as a step's is.

use std::path::Path;
use std::sync::Arc;

use super::execute::{Sandbox, StepContext, blocking};
use crate::audit::{AuditScope, Layer, NullSink, RunId};
use crate::error::{Result, SkillRuntimeError};
use crate::policy::SandboxPolicy;
use crate::runtime::{PrepareContext, RunCommand, RuntimeConfig, RuntimeRunResult, SkillRuntime, Stdin};
use crate::skill::{SkillSource, TrustPolicy, VerifiedSkill};
use crate::workspace::{Area, HostTree, Input, PrivateDir, Workspace, read_whole};

/// A program to run once.
pub(super) struct Errand<'a> {
    /// Where it runs.
    pub(super) runtime: &'a Arc<dyn SkillRuntime>,
    /// The runtime's options.
    pub(super) config: &'a RuntimeConfig,
    /// What it may do.
    pub(super) policy: SandboxPolicy,
    /// The name of its file.
    pub(super) name: &'static str,
    /// Its text.
    pub(super) text: &'static str,
    /// The words before its file.
    pub(super) interpreter: &'a [&'a str],
    /// What it reads on stdin.
    pub(super) stdin: Vec<u8>,
    /// Its variables.
    pub(super) env: crate::policy::EnvVars,
    /// Its inputs.
    pub(super) inputs: Vec<Input>,
    /// What it sees at `/workspace/site`.
    pub(super) site: Option<Arc<HostTree>>,
}

impl Errand<'_> {
    /// Runs it to its end and lets `take` look at what it left. `tools` is a private folder for its text.
    ///
    /// # Errors
    /// When the sandbox can't be made or failed; those of `take`. A program that failed is a result.
    pub(super) async fn run<T: Send + 'static>(
        self,
        tools: &Path,
        context: &StepContext,
        take: impl FnOnce(RuntimeRunResult, &Workspace) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let run = RunId::random()?;
        let audit = AuditScope::new(run, self.runtime.name(), context.audit.clone());
        audit.allow(Layer::Step, "errand", self.name, "a program of skillcell's own, for packages")?;
        let result = self.inside(run, &audit, tools, context, take).await;
        match (result, audit.close()) {
            (Ok(taken), Ok(())) => Ok(taken),
            (Ok(_), Err(error)) | (Err(error), Ok(())) => Err(error),
            (Err(error), Err(closing)) => Err(error.with_cleanup(closing)),
        }
    }

    async fn inside<T: Send + 'static>(
        self,
        run: RunId,
        audit: &AuditScope,
        tools: &Path,
        context: &StepContext,
        take: impl FnOnce(RuntimeRunResult, &Workspace) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (name, text, tools) = (self.name, self.text, tools.to_owned());
        let (inputs, site, mounts) = (self.inputs, self.site, self.runtime.mount_support());
        let (skill, workspace) = blocking(move || {
            let skill = tool(&tools, name, text)?;
            let mut workspace = Workspace::create(run)?;
            workspace.stage_tree(Area::Skill, skill.tree())?;
            workspace.stage_inputs(&inputs, mounts)?;
            if let Some(site) = &site {
                workspace.stage_tree(Area::Site, site)?;
            }
            Ok((skill, Arc::new(workspace)))
        })
        .await?;
        let program = Area::Skill.guest_path().join(name)?.to_string();
        let words = self.interpreter.iter().map(|word| (*word).to_owned()).chain([program]);
        let mut command = RunCommand::new(words)?;
        command.stdin = Stdin::Bytes(self.stdin.into());
        command.env = self.env;
        let prepare = PrepareContext { policy: &self.policy, config: self.config, audit, progress: &context.progress };
        let handle = self.runtime.prepare(&skill, workspace.clone(), &prepare).await?;
        let sandbox = Sandbox::new(self.runtime.clone(), handle, workspace.clone());
        let outcome = async {
            let run = self.runtime.run(sandbox.handle(), &command).await?;
            self.runtime.sync_outputs(sandbox.handle()).await?;
            let workspace = workspace.clone();
            blocking(move || take(run, &workspace)).await
        }
        .await;
        match (outcome, sandbox.close(audit).await) {
            (Ok(taken), Ok(())) => Ok(taken),
            (Ok(_), Err(error)) | (Err(error), Ok(())) => Err(error),
            (Err(error), Err(cleanup)) => Err(error.with_cleanup(cleanup)),
        }
    }
}

/// A program of ours as something that runtimes run: it has to lie in a file, which only this user can change.
fn tool(tools: &Path, name: &str, text: &str) -> Result<VerifiedSkill> {
    let folder = PrivateDir::open(tools)?;
    let there = folder.read(name).and_then(|file| read_whole(&file, text.len() as u64).ok());
    if there.as_deref() != Some(text.as_bytes()) {
        folder
            .write(name, &[text.as_bytes()])
            .map_err(|error| SkillRuntimeError::backend("could not write to the cache of packages", error))?;
    }
    // Not the caller's skill, so nothing of it in the caller's trail.
    let audit = AuditScope::new(RunId::random()?, "none", Arc::new(NullSink));
    VerifiedSkill::verify(&SkillSource::Script(folder.ambient_path().join(name)), &TrustPolicy::Any, &audit)
}
