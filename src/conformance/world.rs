//! One prepared sandbox with an outside of its own, and the ways in which cases look at it.
//!
//! Cases of one world run one after the other, each from an empty `out` and `tmp`, so that what is found changed was
//! changed by the case at hand.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::case::{Fault, Setting, broken, ensure};
use super::probe::{self, Answer};
use super::scratch::{Outside, Scratch};
use super::traces::{self, Traces};
use crate::audit::{AuditEvent, AuditScope, Decision, MemorySink, RunId};
use crate::error::{ErrorKind, Result, SkillRuntimeError};
use crate::policy::{
    Dimension, Enforcement, EnforcementMode, Limits, NetworkPolicy, OutMode, RequestedLimits, ResolvedNetwork,
    SandboxPolicy,
};
use crate::runtime::{
    PrepareContext, Progress, RunCommand, RuntimeConfig, RuntimeRunResult, SilentProgress, SkillRuntime,
    SkillRuntimeHandle,
};
use crate::skill::{SkillSource, TrustPolicy, VerifiedSkill};
use crate::workspace::{Area, Input, Workspace};

/// Ends a run that hangs. No case comes near it.
const HANG: Duration = Duration::from_secs(120);
/// Limits of the tight setting. Small enough to be met at once, large enough for the probe itself.
pub(super) const TIGHT_MEMORY: u64 = 64 << 20;
pub(super) const TIGHT_OUTPUT: u64 = 64 << 10;
pub(super) const TIGHT_OUTPUT_KEPT: u64 = 1 << 10;
pub(super) const TIGHT_DISK: u64 = 4 << 20;
pub(super) const TIGHT_FILES: u64 = 64;
pub(super) const TIGHT_PROCESSES: u32 = 32;
pub(super) const TIGHT_OPEN_FILES: u32 = 64;
/// The wall clock of the brief setting, and of the second try on a machine that was too busy.
const BRIEF: Duration = Duration::from_secs(2);
const LESS_BRIEF: Duration = Duration::from_secs(30);
/// Fuel that the probe's own start doesn't use up, and a loop does at once.
const FUEL: u64 = 50_000_000;
const PROCESSOR: Duration = Duration::from_secs(1);
/// Making a sandbox may fail for what other programs do at that moment (mounts that come and go). A claim can't be
/// broken by that, so it is tried again.
const TRIES: u32 = 3;
/// What stands in the inputs.
pub(super) const INPUT: &str = "text of the input";

/// What all worlds of one call share.
pub(super) struct Shared<'r> {
    pub(super) runtime: &'r dyn SkillRuntime,
    pub(super) config: RuntimeConfig,
    pub(super) scratch: Scratch,
    pub(super) program: &'static str,
}

/// A prepared sandbox.
pub(super) struct World<'r> {
    pub(super) shared: &'r Shared<'r>,
    pub(super) handle: SkillRuntimeHandle,
    pub(super) workspace: Arc<Workspace>,
    pub(super) sink: Arc<MemorySink>,
    pub(super) outside: Outside,
    /// What the sandbox itself writes on stderr before its guest does.
    pub(super) noise: String,
    /// A sealed trail of a run, made when first needed.
    pub(super) trail: tokio::sync::OnceCell<Vec<String>>,
    /// What strict mode refuses of the policy of this world.
    refused: BTreeSet<Dimension>,
    before: Traces,
}

/// A run of the probe with its answers.
pub(super) struct Ran {
    pub(super) result: RuntimeRunResult,
    pub(super) answers: Vec<Answer>,
}

/// The policy of a setting, in best-effort mode: what a runtime doesn't enforce is looked at, not refused.
pub(super) fn policy(setting: Setting) -> SandboxPolicy {
    let roomy = Limits { wall_time: HANG, ..Limits::default() };
    let network = |policy, allowlist| ResolvedNetwork { policy, allowlist };
    let policy = SandboxPolicy {
        limits: roomy.clone(),
        network: network(NetworkPolicy::None, Vec::new()),
        mode: EnforcementMode::BestEffort,
        ..SandboxPolicy::default()
    };
    let asked = |requested: RequestedLimits, limits: Limits| SandboxPolicy {
        limits: Limits { requested, ..limits },
        ..policy.clone()
    };
    let cpu = RequestedLimits { cpu: true, ..RequestedLimits::default() };
    match setting {
        Setting::Roomy => policy,
        Setting::Tight => asked(
            RequestedLimits { cpu: false, memory: true, processes: true, disk: true },
            Limits {
                memory: TIGHT_MEMORY,
                output: TIGHT_OUTPUT,
                output_kept: TIGHT_OUTPUT_KEPT,
                disk: TIGHT_DISK,
                files: TIGHT_FILES,
                processes: TIGHT_PROCESSES,
                open_files: TIGHT_OPEN_FILES,
                ..roomy
            },
        ),
        Setting::Brief => asked(RequestedLimits::default(), Limits { wall_time: BRIEF, ..roomy }),
        Setting::LessBrief => asked(RequestedLimits::default(), Limits { wall_time: LESS_BRIEF, ..roomy }),
        Setting::Fuel => asked(cpu, Limits { fuel: Some(FUEL), ..roomy }),
        Setting::Processor => asked(cpu, Limits { cpu_time: Some(PROCESSOR), ..roomy }),
        Setting::NoDelete => SandboxPolicy { out: OutMode::ReadWriteWithoutDelete, ..policy },
        Setting::Listed => {
            SandboxPolicy { network: network(NetworkPolicy::Allowlist, vec!["listed.example".to_owned()]), ..policy }
        }
        Setting::HostNetwork => SandboxPolicy { network: network(NetworkPolicy::Host, Vec::new()), ..policy },
    }
}

/// Stages a workspace as every world has it, and prepares it with a policy.
pub(super) async fn prepare_with(
    shared: &Shared<'_>,
    policy: &SandboxPolicy,
) -> Result<(SkillRuntimeHandle, Arc<Workspace>, Arc<MemorySink>)> {
    let runtime = shared.runtime;
    let run = RunId::random()?;
    let sink = Arc::new(MemorySink::default());
    let audit = AuditScope::new(run, runtime.name(), sink.clone());
    let skill = VerifiedSkill::verify(&SkillSource::Folder(shared.scratch.skill()), &TrustPolicy::Any, &audit)?;
    let mut workspace = Workspace::create(run)?;
    workspace.stage_tree(Area::Skill, skill.tree())?;
    let inputs = [Input::bytes("input.txt", INPUT), Input::from_host_path(&shared.scratch.nested())?];
    workspace.stage_inputs(&inputs, runtime.mount_support())?;
    let workspace = Arc::new(workspace);
    let progress: Arc<dyn Progress> = Arc::new(SilentProgress);
    let context = PrepareContext { policy, config: &shared.config, audit: &audit, progress: &progress };
    let mut tries = TRIES;
    let handle = loop {
        match runtime.prepare(&skill, workspace.clone(), &context).await {
            Err(error) if error.kind() == ErrorKind::Unavailable && tries > 1 => tries -= 1,
            prepared => break prepared?,
        }
    };
    Ok((handle, workspace, sink))
}

impl<'r> World<'r> {
    /// Prepares a world.
    pub(super) async fn prepare(shared: &'r Shared<'r>, setting: Setting, name: &str) -> Result<Self> {
        let policy = policy(setting);
        let outside = shared.scratch.outside(name)?;
        let (handle, workspace, sink) = prepare_with(shared, &policy).await?;
        let refused = strictly_refused(shared, &policy, &handle).await?;
        let before = Traces::new();
        let mut world = Self {
            shared,
            handle,
            workspace,
            sink,
            outside,
            noise: String::new(),
            trail: tokio::sync::OnceCell::new(),
            refused,
            before,
        };
        world.before = world.look().map_err(|error| {
            SkillRuntimeError::backend("could not look at the files of the conformance suite", error)
        })?;
        if let Ok(ran) = world.steps(&["exit 0"]).await {
            world.noise = ran.result.stderr.text();
        }
        Ok(world)
    }

    pub(super) fn runtime(&self) -> &'r dyn SkillRuntime {
        self.shared.runtime
    }

    /// What is done about a dimension, in the handle's words.
    pub(super) fn enforcement(&self, dimension: Dimension) -> Enforcement {
        self.handle.report().control(dimension)
    }

    /// Whether strict mode refuses this world's policy for the sake of a dimension.
    pub(super) fn strict_refuses(&self, dimension: Dimension) -> bool {
        self.refused.contains(&dimension)
    }

    /// A command that makes the probe do steps.
    pub(super) fn command(&self, steps: &[&str]) -> Result<RunCommand, Fault> {
        let words = probe::words(steps.iter().map(|step| self.step(step)));
        let program = format!("{}/{}", Area::Skill.guest_path(), self.shared.program);
        RunCommand::new(std::iter::once(program).chain(words)).map_err(|error| Fault::Broken(error.to_string()))
    }

    /// A command of the probe with words as they are.
    pub(super) fn command_of(&self, words: &[&str]) -> Result<RunCommand, Fault> {
        let program = format!("{}/{}", Area::Skill.guest_path(), self.shared.program);
        let words = words.iter().map(|word| (*word).to_owned());
        RunCommand::new(std::iter::once(program).chain(words)).map_err(|error| Fault::Broken(error.to_string()))
    }

    /// The words of a step; placeholders stand for places outside.
    fn step(&self, step: &str) -> Vec<String> {
        let path = self.outside.path.to_string_lossy();
        let up = format!("{}{}", "../".repeat(24), path.trim_start_matches('/'));
        let pid = std::process::id().to_string();
        let word =
            |word: &str| word.replace("{outside}", &path).replace("{up}", up.as_str()).replace("{pid}", pid.as_str());
        step.split_ascii_whitespace().map(word).collect()
    }

    /// Runs a command.
    pub(super) async fn run(&self, command: &RunCommand) -> Result<Ran, Fault> {
        let mut tries = TRIES;
        let ran = loop {
            match self.runtime().run(&self.handle, command).await {
                Err(error) if error.kind() == ErrorKind::Backend && tries > 1 => tries -= 1,
                ran => break ran,
            }
        };
        match ran {
            Ok(result) => Ok(Ran { answers: probe::answers(&result.stdout.text()), result }),
            Err(error) => broken(format!("the sandbox failed: {}", error.chain().join(": "))),
        }
    }

    /// Makes the probe do steps.
    pub(super) async fn steps(&self, steps: &[&str]) -> Result<Ran, Fault> {
        self.run(&self.command(steps)?).await
    }

    /// Makes the probe do steps that must all be done, and gives what the last one told.
    pub(super) async fn must(&self, steps: &[&str]) -> Result<String, Fault> {
        let ran = self.steps(steps).await?;
        ran.all_done(steps.len())
    }

    /// Whether nothing outside, and nothing that is read-only, looks different from before.
    pub(super) fn untouched(&self) -> Result<(), Fault> {
        let after = self.look().map_err(|error| Fault::Broken(format!("could not look at the files: {error}")))?;
        match traces::difference(&self.before, &after) {
            None => Ok(()),
            Some(difference) => broken(format!("it left a trace: {difference}")),
        }
    }

    fn look(&self) -> std::io::Result<Traces> {
        traces::look(&[
            ("outside", &self.outside.folder),
            ("skill", self.workspace.area(Area::Skill)),
            ("in", self.workspace.area(Area::In)),
            ("site", self.workspace.area(Area::Site)),
        ])
    }

    /// Empties what the guest may write to.
    pub(super) fn wipe(&self) -> std::io::Result<()> {
        for area in [Area::Out, Area::Tmp] {
            let folder = self.workspace.area(area);
            for entry in folder.entries()? {
                let entry = entry?;
                if entry.file_type()?.is_dir() {
                    folder.remove_dir_all(entry.file_name())?;
                } else {
                    folder.remove_file(entry.file_name())?;
                }
            }
        }
        Ok(())
    }

    /// How many events there are, for [`denials_since`](Self::denials_since).
    pub(super) fn mark(&self) -> usize {
        self.sink.events().len()
    }

    /// The denials among the events from a mark on.
    pub(super) fn denials_since(&self, mark: usize) -> Vec<AuditEvent> {
        let events = self.sink.events().into_iter().skip(mark);
        events.filter(|event| event.decision == Decision::Deny).collect()
    }

    /// Whether the host's own path of the workspace, or of what lies outside, stands in a text.
    pub(super) fn names_a_host_path(&self, text: &str) -> bool {
        let root = self.workspace.ambient_root().to_string_lossy();
        let name = root.rsplit('/').next().unwrap_or(&root);
        text.contains(name)
    }
}

/// What strict mode refuses of a policy: what the declaration says, or, where the handle says less than the
/// declaration (the machine gives less), what `prepare` refuses.
async fn strictly_refused(
    shared: &Shared<'_>,
    policy: &SandboxPolicy,
    handle: &SkillRuntimeHandle,
) -> Result<BTreeSet<Dimension>> {
    let strict = SandboxPolicy { mode: EnforcementMode::Strict, ..policy.clone() };
    let declared = shared.runtime.enforcement(&strict);
    let mut refused: BTreeSet<Dimension> = match declared.gate() {
        Ok(()) => BTreeSet::new(),
        Err(_) => declared.gaps().into_iter().collect(),
    };
    let less = |dimension: &Dimension| {
        declared.control(*dimension) == Enforcement::Enforced
            && handle.report().control(*dimension) != Enforcement::Enforced
    };
    let less: Vec<Dimension> = Dimension::ALL.into_iter().filter(less).collect();
    if !less.is_empty() {
        match prepare_with(shared, &strict).await {
            Err(error) if error.kind() == ErrorKind::PolicyUnenforceable => refused.extend(less),
            Err(error) => return Err(error),
            Ok((handle, ..)) => shared.runtime.cleanup(&handle).await?,
        }
    }
    Ok(refused)
}

impl Ran {
    /// Whether all of so many steps were done; what the last one told.
    pub(super) fn all_done(&self, steps: usize) -> Result<String, Fault> {
        let undone = self.answers.iter().position(|answer| !answer.done());
        ensure(self.result.success() && undone.is_none() && self.answers.len() == steps, || {
            format!("what is allowed did not work: {}", self.told())
        })?;
        Ok(self.answers.last().and_then(Answer::text).unwrap_or_default().to_owned())
    }

    /// What the guest wrote on stderr, without what its sandbox wrote before it.
    pub(super) fn stderr(&self, world: &World<'_>) -> String {
        let text = self.result.stderr.text();
        text.strip_prefix(world.noise.as_str()).map_or_else(|| text.clone(), str::to_owned)
    }

    /// Everything there is to say about a run, for a message.
    pub(super) fn told(&self) -> String {
        let mut stderr = self.result.stderr.text();
        if let Some((cut, _)) = stderr.char_indices().nth(300) {
            stderr.truncate(cut);
        }
        let answers: Vec<String> = self.answers.iter().map(|answer| format!("{answer:?}")).collect();
        let mut answers = answers.join(", ");
        if let Some((cut, _)) = answers.char_indices().nth(600) {
            answers.truncate(cut);
        }
        format!("{}; answers [{answers}]; stderr {stderr:?}", self.result.termination)
    }
}
