//! Calls in a process that lives: a whole step, and a further call on a handle; each in fresh state.

use std::sync::Arc;
use std::time::{Duration, Instant};

use skillcell::SandboxPolicy;
use skillcell::audit::{AuditScope, NullSink, RunId};
use skillcell::policy::Limits;
use skillcell::runtime::{
    PrepareContext, Progress, RunCommand, RuntimeConfig, RuntimeRunResult, SilentProgress, SkillRuntime,
    SkillRuntimeHandle, Termination,
};
use skillcell::skill::{SkillSource, TrustPolicy, VerifiedSkill};
use skillcell::step::{AgentSkillStepConfig, StepContext, execute};
use skillcell::workspace::{Area, Input, MountSupport, Workspace};

use crate::jobs::{Job, Language, Material};
use crate::process::private_memory;
use crate::table::Sample;

/// Not counted: page cache and allocator settle.
const WARM_UP: usize = 10;
/// Instances that wait at the same time while their memory is looked at.
const IDLE: usize = 16;

pub(crate) struct Warm<'a> {
    material: &'a Material,
    executor: tokio::runtime::Runtime,
    context: StepContext,
}

impl<'a> Warm<'a> {
    pub(crate) fn new(material: &'a Material) -> Self {
        Self {
            material,
            executor: tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap(),
            context: StepContext::new(skillcell::builtin_registry()),
        }
    }

    /// Stage, prepare, run, collect, clean up.
    pub(crate) fn step(&self, language: Language, job: Job, rounds: usize) -> Vec<Sample> {
        samples(rounds, || {
            let mut config = AgentSkillStepConfig::new(SkillSource::Script(self.material.script(language, job)));
            config.limits = limits(job);
            if job == Job::Files {
                config.inputs.push(Input::from_host_path(&self.material.input().join("rows.json")).unwrap());
            }
            let result = self.executor.block_on(execute(config, &self.context)).unwrap();
            check(job, &result.run);
            assert_eq!(result.outputs.len(), usize::from(job == Job::Files));
        })
    }

    /// A further call on a handle that is prepared.
    pub(crate) fn call(&self, language: Language, job: Job, rounds: usize) -> Vec<Sample> {
        let (runtime, handle, command) = self.prepared(language, job);
        let found = samples(rounds, || {
            let result = self.executor.block_on(runtime.run(&handle, &command)).unwrap();
            check(job, &result);
        });
        self.executor.block_on(runtime.cleanup(&handle)).unwrap();
        found
    }

    /// Private memory that one more waiting instance takes, in bytes.
    pub(crate) fn idle_memory(&self, language: Language) -> u64 {
        let (runtime, handle, command) = self.prepared(language, Job::Idle);
        let own = std::process::id();
        // The first makes what all share.
        self.executor.block_on(runtime.run(&handle, &command)).unwrap();
        let before = private_memory(own);
        let (runtime, handle) = (Arc::new(runtime), Arc::new(handle));
        let waiting: Vec<_> = (0..IDLE)
            .map(|_| {
                let (runtime, handle, command) = (runtime.clone(), handle.clone(), command.clone());
                self.executor.spawn(async move { runtime.run(&handle, &command).await.unwrap() })
            })
            .collect();
        // They wait for a second; the most that is seen in that time counts.
        let mut most = before;
        while waiting.iter().any(|run| !run.is_finished()) {
            most = most.max(private_memory(own));
            std::thread::sleep(Duration::from_millis(20));
        }
        for run in waiting {
            check(Job::Idle, &self.executor.block_on(run).unwrap());
        }
        self.executor.block_on(runtime.cleanup(&handle)).unwrap();
        (most - before) / IDLE as u64
    }

    fn prepared(&self, language: Language, job: Job) -> (Arc<dyn SkillRuntime>, SkillRuntimeHandle, RunCommand) {
        let runtime = self.context.registry.get("wasm").unwrap();
        let run = RunId::random().unwrap();
        let audit = AuditScope::new(run, "wasm", Arc::new(NullSink));
        let script = self.material.script(language, job);
        let skill = VerifiedSkill::verify(&SkillSource::Script(script.clone()), &TrustPolicy::Any, &audit).unwrap();
        let mut workspace = Workspace::create(run).unwrap();
        workspace.stage_tree(Area::Skill, skill.tree()).unwrap();
        if job == Job::Files {
            let input = Input::from_host_path(&self.material.input().join("rows.json")).unwrap();
            workspace.stage_inputs(&[input], MountSupport::None).unwrap();
        }
        let policy = SandboxPolicy { limits: limits(job), ..SandboxPolicy::default() };
        let config = RuntimeConfig::default();
        let progress: Arc<dyn Progress> = Arc::new(SilentProgress);
        let context = PrepareContext { policy: &policy, config: &config, audit: &audit, progress: &progress };
        let handle = self.executor.block_on(runtime.prepare(&skill, Arc::new(workspace), &context)).unwrap();
        let program = match language {
            Language::Python => "python3",
            Language::JavaScript => "node",
        };
        let name = script.file_name().unwrap().to_str().unwrap();
        let command = RunCommand::new([program.to_owned(), format!("/workspace/skill/{name}")]).unwrap();
        (runtime, handle, command)
    }
}

/// The default limits; the endless loop ends after half a second.
fn limits(job: Job) -> Limits {
    let mut limits = Limits::default();
    if job == Job::Endless {
        limits.wall_time = Duration::from_millis(500);
    }
    limits
}

fn check(job: Job, result: &RuntimeRunResult) {
    match job.prints() {
        Some(prints) => assert_eq!(result.stdout.text(), prints, "{result:?}"),
        None => assert_eq!(result.termination, Termination::TimedOut),
    }
}

fn samples(rounds: usize, mut work: impl FnMut()) -> Vec<Sample> {
    for _ in 0..WARM_UP.min(rounds) {
        work();
    }
    (0..rounds)
        .map(|_| {
            let (cpu, started) = (processor_time(), Instant::now());
            work();
            Sample { wall: started.elapsed(), cpu: processor_time() - cpu }
        })
        .collect()
}

/// Processor time of this process so far, all threads.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap(), time.tv_nsec.try_into().unwrap())
}
