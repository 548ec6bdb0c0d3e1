//! The flow, top to bottom: plan, trust, gate, packages, workspace, stage, prepare, run, collect, cleanup, result.
//!
//! The order is a security property. Nothing exists before the gate; nothing runs before its bytes are verified;
//! nothing is collected while the guest lives; cleanup happens on every way out, also when the future is dropped.
//! No branch here depends on which runtime it is.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;

use super::absent::refuse_absent_module;
use super::cancel::Cancel;
use super::config::{AgentSkillStepConfig, OutputDelivery};
use super::deliver::{Delivered, collect};
use super::packages::{self, Packages};
use super::plan::StepPlan;
use super::result::StepResult;
use crate::audit::{AuditScope, AuditSink, Layer, NullSink, RunId};
use crate::error::{ErrorKind, Result, SkillRuntimeError};
use crate::policy::{RequiredTier, check_tier, least_tier};
use crate::runtime::{
    OutputSink, PrepareContext, Progress, RunCommand, RuntimeRegistry, RuntimeRunResult, SilentProgress, SkillRuntime,
    SkillRuntimeHandle, Termination,
};
use crate::skill::VerifiedSkill;
use crate::workspace::{ApplyChanges, Area, HostTree, Workspace, check_export_folder};

/// What a step runs with: the runtimes there are, and who listens.
#[derive(Clone)]
pub struct StepContext {
    /// The runtimes.
    pub registry: RuntimeRegistry,
    /// Keeps audit events.
    pub audit: Arc<dyn AuditSink>,
    /// Hears about slow work.
    pub progress: Arc<dyn Progress>,
    /// Hears the script's output while it runs.
    pub sink: Option<Arc<dyn OutputSink>>,
    /// Ends the step from outside, with its cleanup done and an honest result.
    pub cancel: Cancel,
    /// The folder of installed packages; private, and made if it is missing.
    pub package_cache: PathBuf,
}

impl StepContext {
    /// A context in which nobody listens.
    #[must_use]
    pub fn new(registry: RuntimeRegistry) -> Self {
        Self {
            registry,
            audit: Arc::new(NullSink),
            progress: Arc::new(SilentProgress),
            sink: None,
            cancel: Cancel::default(),
            package_cache: packages::default_cache(),
        }
    }
}

/// Runs one step to its end.
///
/// A script that fails, traps or hits a limit gives a [`StepResult`], and so does one that was cancelled by
/// [`StepContext::cancel`]. Dropping the future ends the script too, and what was made for it is removed in the
/// background, by the executor; prefer cancelling where the process ends soon after.
///
/// # Errors
/// When the configuration is wrong, the skill isn't what was pinned, the runtime can't enforce the policy, or the
/// sandbox itself failed. [`SkillRuntimeError::failed_operation`] names the step of the flow.
///
/// ```no_run
/// # async fn example() -> skillcell::Result<()> {
/// use skillcell::skill::SkillSource;
/// use skillcell::step::{AgentSkillStepConfig, StepContext, execute};
/// let config = AgentSkillStepConfig::new(SkillSource::Script("report.wasm".into()));
/// let result = execute(config, &StepContext::new(skillcell::builtin_registry())).await?;
/// println!("{}: {}", result.run.termination, result.run.stdout.text());
/// # Ok(()) }
/// ```
pub async fn execute(config: AgentSkillStepConfig, context: &StepContext) -> Result<StepResult> {
    execute_work(config, context, &OneScript).await
}

/// What is done in the sandbox, between preparing and collecting.
#[async_trait]
pub(super) trait Work: Send + Sync {
    /// What is found in the verified skill, before anything exists.
    type Ready: Send + Sync;
    /// What comes of it.
    type Done: Send;

    /// Looks into the skill.
    fn ready(&self, plan: &StepPlan, skill: &Arc<VerifiedSkill>) -> Result<Self::Ready>;

    /// The Python files that may run, as paths in the skill: what they say they need may be installed.
    fn scripts(&self, skill: &VerifiedSkill, ready: &Self::Ready) -> Vec<String>;

    /// Refuses what certainly can't work, with the packages known. `instead` says where it may work.
    fn look(
        &self,
        plan: &StepPlan,
        skill: &VerifiedSkill,
        ready: &Self::Ready,
        site: Option<&HostTree>,
        instead: &str,
    ) -> Result<()>;

    /// Does it.
    async fn run(
        &self,
        plan: &StepPlan,
        handle: &SkillRuntimeHandle,
        ready: &Self::Ready,
        context: &StepContext,
    ) -> Result<Self::Done>;

    /// Whether it did what it was asked, so that what it changed may be kept.
    fn succeeded(done: &Self::Done) -> bool;

    /// Whether there is something to collect.
    fn leaves(done: &Self::Done) -> Leaves;

    /// In a few words, for the closing event.
    fn outcome(done: &Self::Done) -> String;
}

/// What is in `/workspace/out` afterwards.
pub(super) enum Leaves {
    /// What the work wanted to leave there.
    Results,
    /// Nothing that may be taken for a result.
    Nothing,
}

/// One script, once.
struct OneScript;

#[async_trait]
impl Work for OneScript {
    type Ready = RunCommand;
    type Done = RuntimeRunResult;

    fn ready(&self, plan: &StepPlan, skill: &Arc<VerifiedSkill>) -> Result<RunCommand> {
        plan.command(skill)
    }

    fn scripts(&self, skill: &VerifiedSkill, ready: &RunCommand) -> Vec<String> {
        let folder = Area::Skill.guest_path();
        // The program, or what the interpreter is given.
        let word = |path: &&str| {
            folder.join(path).is_ok_and(|path| ready.argv().iter().take(2).any(|word| *word == path.to_string()))
        };
        packages::python_files(skill).filter(word).map(str::to_owned).collect()
    }

    fn look(
        &self,
        plan: &StepPlan,
        skill: &VerifiedSkill,
        ready: &RunCommand,
        site: Option<&HostTree>,
        instead: &str,
    ) -> Result<()> {
        refuse_absent_module(plan, skill, ready, site, instead)
    }

    async fn run(
        &self,
        plan: &StepPlan,
        handle: &SkillRuntimeHandle,
        ready: &RunCommand,
        context: &StepContext,
    ) -> Result<RuntimeRunResult> {
        let mut command = ready.clone();
        command.sink = context.sink.clone();
        handle.audit().allow(Layer::Runtime, "run", command.program(), "")?;
        tokio::select! {
            biased;
            run = plan.runtime.run(handle, &command) => run.map_err(|error| error.operation("run")),
            // The future of the run is dropped, which ends the guest.
            () = context.cancel.wait() => Ok(RuntimeRunResult::cancelled()),
        }
    }

    fn succeeded(done: &RuntimeRunResult) -> bool {
        done.termination == Termination::Exited(0)
    }

    fn leaves(done: &RuntimeRunResult) -> Leaves {
        // What a cancelled script left isn't collected: it may be half of anything.
        if done.termination == Termination::Cancelled { Leaves::Nothing } else { Leaves::Results }
    }

    fn outcome(done: &RuntimeRunResult) -> String {
        done.termination.to_string()
    }
}

/// The flow around any work.
pub(super) async fn execute_work<W: Work>(
    config: AgentSkillStepConfig,
    context: &StepContext,
    work: &W,
) -> Result<StepResult<W::Done>> {
    let plan = StepPlan::new(config, &context.registry)?;
    let audit = AuditScope::new(RunId::random()?, plan.runtime.name(), context.audit.clone());
    audit.allow(Layer::Step, "plan", plan.runtime.name(), "")?;
    let result = flow(plan, context, &audit, work).await;
    if let Err(error) = &result {
        record_refusal(error, &audit);
    }
    let outcome = match &result {
        Ok(result) => W::outcome(&result.run),
        Err(error) => format!("{}: {}", error.kind(), error.failed_operation()),
    };
    let closed = audit.allow(Layer::Step, "result", &outcome, "").and_then(|()| audit.close());
    let mut result = match (result, closed) {
        (Ok(result), Ok(())) => result,
        (Ok(_), Err(error)) => return Err(error),
        (Err(error), Ok(())) => return Err(error),
        (Err(error), Err(audit)) => return Err(error.with_cleanup(audit)),
    };
    result.audit = audit.summary();
    if result.audit.lost > 0 {
        return Err(SkillRuntimeError::new(
            ErrorKind::Backend,
            format!(
                "the script ran, but {} audit events could not be kept; its results are not trusted",
                result.audit.lost
            ),
        )
        .operation("audit"));
    }
    Ok(result)
}

/// A refusal that nothing recorded as a denial yet gets its event here: where a link or a pipe is met, in a skill or an
/// input, there is no audit trail at hand.
fn record_refusal(error: &SkillRuntimeError, audit: &AuditScope) {
    let layer = match error.kind() {
        ErrorKind::PathDenied => Layer::Files,
        ErrorKind::TrustViolation => Layer::Trust,
        ErrorKind::PolicyUnenforceable => Layer::Policy,
        ErrorKind::LimitExceeded => Layer::Limit,
        ErrorKind::InvalidConfig
        | ErrorKind::UnknownRuntime
        | ErrorKind::NotFound
        | ErrorKind::Unavailable
        | ErrorKind::Backend
        | ErrorKind::Cancelled
        | ErrorKind::Internal => return,
    };
    if audit.summary().denials == 0 {
        audit.deny(layer, "refuse", error.failed_operation(), &error.to_string());
    }
}

/// The flow after the plan.
async fn flow<W: Work>(
    plan: StepPlan,
    context: &StepContext,
    audit: &AuditScope,
    work: &W,
) -> Result<StepResult<W::Done>> {
    let run_id = audit.run();

    // The gate comes before the skill is read: it costs nothing and needs only the policy.
    gate(&plan, audit)?;

    let plan = Arc::new(plan);
    if let OutputDelivery::Folder { path, .. } = &plan.output {
        let path = path.clone();
        blocking(move || check_export_folder(&path)).await?;
    }
    let skill = {
        let (plan, audit) = (plan.clone(), audit.clone());
        blocking(move || VerifiedSkill::verify(&plan.skill, &plan.trust, &audit)).await?
    };
    let skill = Arc::new(skill);
    let ready = work.ready(&plan, &skill)?;

    let scripts = work.scripts(&skill, &ready);
    let packages = {
        let install = packages::install(&plan, &skill, &scripts, context, audit);
        tokio::select! {
            biased;
            () = context.cancel.wait() => Err(SkillRuntimeError::new(ErrorKind::Cancelled, "cancelled before the script started")),
            packages = install => packages,
        }
    };
    context.progress.done();
    let (site, packages) = packages?.map_or((None, None), |Packages { tree, installed }| (Some(tree), Some(installed)));
    work.look(&plan, &skill, &ready, site.as_deref(), &packages::instead(&context.registry))?;

    let workspace = {
        let (plan, skill) = (plan.clone(), skill.clone());
        blocking(move || stage(&plan, &skill, site.as_deref(), run_id))
            .await
            .map_err(|error| error.operation("stage"))?
    };
    sweep_once(&workspace);
    audit.allow(Layer::Files, "stage", skill.name(), "")?;

    let prepared = {
        let prepare =
            PrepareContext { policy: &plan.policy, config: &plan.runtime_config, audit, progress: &context.progress };
        tokio::select! {
            biased;
            () = context.cancel.wait() => Err(SkillRuntimeError::new(ErrorKind::Cancelled, "cancelled before the script started")),
            prepared = plan.runtime.prepare(&skill, workspace.clone(), &prepare) => prepared,
        }
    };
    context.progress.done();
    let handle = match prepared {
        Ok(handle) => handle,
        Err(error) => return Err(removing(&workspace, error.operation("prepare"))),
    };
    // What this sandbox really does: on this machine it may be less than the runtime declares.
    let report = handle.report().clone();
    let sandbox = Sandbox::new(plan.runtime.clone(), handle, workspace.clone());
    let gaps = report.gaps();
    if gaps != plan.runtime.enforcement(&plan.policy).gaps() {
        let gaps = gaps.iter().map(|gap| gap.as_str()).collect::<Vec<_>>().join(", ");
        let reason = format!("on this machine, for this user, these are not enforced: {gaps}");
        audit.allow(Layer::Policy, "enforcement", plan.runtime.name(), &reason)?;
    }

    let outcome = async {
        let done = work.run(&plan, sandbox.handle(), &ready, context).await?;
        let collected = match W::leaves(&done) {
            Leaves::Results => {
                let apply = if W::succeeded(&done) { plan.apply_changes } else { ApplyChanges::Never };
                collect_outputs(&plan, sandbox.handle(), &workspace, apply, audit).await?
            }
            Leaves::Nothing => Delivered::default(),
        };
        Ok((done, collected))
    }
    .await;
    context.progress.done();
    let cleaned = sandbox.close(audit).await;
    let (run, collected) = match (outcome, cleaned) {
        (Ok(outcome), Ok(())) => outcome,
        (Ok(_), Err(cleanup)) => return Err(cleanup),
        (Err(error), Ok(())) => return Err(error),
        (Err(error), Err(cleanup)) => return Err(error.with_cleanup(cleanup)),
    };
    Ok(StepResult {
        run_id,
        runtime: plan.runtime.name().to_owned(),
        skill_digest: skill.digest().to_owned(),
        run,
        outputs: collected.outputs,
        skipped: collected.skipped,
        skipped_total: collected.skipped_total,
        packages,
        conflict: collected.conflict,
        mounts: collected.mounts,
        enforcement: report,
        audit: audit.summary(),
    })
}

/// Compares what is asked with what the runtime does about it; refuses, or records what is missing.
fn gate(plan: &StepPlan, audit: &AuditScope) -> Result<()> {
    let report = plan.runtime.enforcement(&plan.policy);
    let radius = plan.blast_radius();
    if let Err(error) = check_tier(plan.runtime.name(), report.isolation, plan.require, radius) {
        audit.deny(Layer::Policy, "tier", plan.runtime.name(), &error.to_string());
        return Err(error);
    }
    let (least, why) = least_tier(radius);
    if let RequiredTier::AtLeast(chosen) = plan.require
        && chosen < least
    {
        let reason = format!("the caller overrides the least isolation '{least}' ({why}) with '{chosen}'");
        audit.allow(Layer::Policy, "tier", plan.runtime.name(), &reason)?;
    }
    let gaps = report.gaps().iter().map(|gap| gap.as_str()).collect::<Vec<_>>().join(", ");
    match report.gate() {
        Ok(()) if gaps.is_empty() => {
            audit.allow(Layer::Policy, "gate", plan.runtime.name(), "every requested control is enforced")?
        }
        Ok(()) => audit.allow(
            Layer::Policy,
            "gate",
            plan.runtime.name(),
            &format!("the caller accepts that these are not enforced: {gaps}"),
        )?,
        Err(error) => {
            audit.deny(Layer::Policy, "gate", plan.runtime.name(), &format!("not enforced: {gaps}"));
            return Err(error);
        }
    }
    Ok(())
}

/// Makes the workspace and puts the skill, the inputs and the packages in.
fn stage(plan: &StepPlan, skill: &VerifiedSkill, site: Option<&HostTree>, run: RunId) -> Result<Arc<Workspace>> {
    let mut workspace = Workspace::create(run)?;
    workspace.stage_tree(Area::Skill, skill.tree())?;
    workspace.stage_inputs(&plan.inputs, plan.runtime.mount_support())?;
    if let Some(site) = site {
        workspace.stage_tree(Area::Site, site)?;
    }
    workspace.stage_mounts(&plan.mounts)?;
    Ok(Arc::new(workspace))
}

/// Removes what killed processes left in the temporary folder: once per process, beside the run.
fn sweep_once(workspace: &Arc<Workspace>) {
    static SWEPT: std::sync::Once = std::sync::Once::new();
    SWEPT.call_once(|| {
        let workspace = workspace.clone();
        tokio::task::spawn_blocking(move || {
            let swept = workspace.sweep_leftovers();
            if swept > 0 {
                tracing::info!(swept, "removed workspaces of processes that are gone");
            }
        });
    });
}

async fn collect_outputs(
    plan: &Arc<StepPlan>,
    handle: &SkillRuntimeHandle,
    workspace: &Arc<Workspace>,
    apply: ApplyChanges,
    audit: &AuditScope,
) -> Result<Delivered> {
    plan.runtime.sync_outputs(handle).await.map_err(|error| error.operation("collect"))?;
    let (plan, workspace, audit) = (plan.clone(), workspace.clone(), audit.clone());
    blocking(move || collect(&plan, &workspace, apply, &audit)).await.map_err(|error| error.operation("collect"))
}

/// Removes the workspace on the way out with an error, keeping both errors.
fn removing(workspace: &Workspace, error: SkillRuntimeError) -> SkillRuntimeError {
    match workspace.remove() {
        Ok(()) => error,
        Err(cleanup) => error.with_cleanup(cleanup),
    }
}

/// A prepared sandbox that is cleaned up on every way out.
pub(super) struct Sandbox {
    runtime: Arc<dyn SkillRuntime>,
    handle: Option<SkillRuntimeHandle>,
    workspace: Arc<Workspace>,
}

impl Sandbox {
    pub(super) fn new(runtime: Arc<dyn SkillRuntime>, handle: SkillRuntimeHandle, workspace: Arc<Workspace>) -> Self {
        Self { runtime, handle: Some(handle), workspace }
    }

    #[expect(clippy::expect_used, reason = "the handle is taken only by close and drop, which consume the sandbox")]
    pub(super) fn handle(&self) -> &SkillRuntimeHandle {
        self.handle.as_ref().expect("the sandbox is open")
    }

    /// Ends the sandbox, then removes the workspace.
    pub(super) async fn close(mut self, audit: &AuditScope) -> Result<()> {
        let cleaned = match &self.handle {
            Some(handle) => self.runtime.cleanup(handle).await,
            None => Ok(()),
        };
        // Taken only now: if this future is dropped while cleanup runs, `drop` starts it again.
        self.handle = None;
        let workspace = self.workspace.clone();
        // Off the executor's thread: a guest may have made a tree that takes long to remove.
        let removed = match blocking(move || workspace.remove()).await {
            // The guest's doing, not a failure of the sandbox: the run keeps its result, and the trail says what is left.
            Err(error) if error.kind() == ErrorKind::LimitExceeded => {
                tracing::error!(error = %error.chain().join(": "), "a workspace was left behind");
                let reason = "what the guest left takes too long to remove; the next start goes on with it";
                audit.deny(Layer::Limit, "removal_limit", "/workspace", reason);
                Ok(())
            }
            removed => removed,
        };
        match (cleaned, removed) {
            (Ok(()), removed) => removed,
            (Err(error), Ok(())) => Err(error.operation("cleanup")),
            (Err(error), Err(removing)) => Err(error.operation("cleanup").with_cleanup(removing)),
        }
    }
}

impl Drop for Sandbox {
    /// The future was dropped: the guest must die all the same. Runtimes end the run when its own future is dropped;
    /// what is left is what `prepare` made.
    fn drop(&mut self) {
        let Some(handle) = self.handle.take() else { return };
        let (runtime, workspace) = (self.runtime.clone(), self.workspace.clone());
        match tokio::runtime::Handle::try_current() {
            Ok(executor) => {
                executor.spawn(async move {
                    for failed in
                        [runtime.cleanup(&handle).await, workspace.remove()].into_iter().filter_map(Result::err)
                    {
                        tracing::warn!(error = %failed.chain().join(": "), "cleanup after a dropped run failed");
                    }
                });
            }
            Err(_) => tracing::warn!("a run was dropped outside its executor; its sandbox is swept at the next start"),
        }
    }
}

/// Runs file work off the executor's threads.
pub(super) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => {
            Err(SkillRuntimeError::new(ErrorKind::Internal, "file work ended unexpectedly; please report it")
                .caused_by(error))
        }
    }
}
