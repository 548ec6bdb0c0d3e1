//! The harness: prepares the worlds, runs the cases in them, and turns what came of it into words.
//!
//! All worlds are prepared before the first case runs: a program that was just written can't be started while another
//! start of this process still holds it open for writing. Worlds run side by side, cases of a world one by one.

use futures_util::future::join_all;

use super::case::{Case, Fault, Group, Harm, Order, Setting, Verdict, Work, broken};
use super::cases;
use super::probe::{self, Answer};
use super::report::{CaseReport, Outcome, Report};
use super::scratch::Scratch;
use super::world::{Shared, World};
use crate::error::{ErrorKind, Result, SkillRuntimeError};
use crate::policy::Enforcement;
use crate::runtime::{RuntimeConfig, SkillRuntime};

/// Worlds of the roomy setting, which has most cases.
const ROOMY_WORLDS: usize = 2;
/// Worlds of the brief setting, whose cases mostly wait for the clock.
const BRIEF_WORLDS: usize = 3;

/// How the suite is run.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Options of the runtime, such as an image.
    pub config: RuntimeConfig,
    /// Only these groups; empty for all.
    pub groups: Vec<Group>,
    /// Another build of the probe for WebAssembly, in the place of the one that is built in.
    pub wasm_probe: Option<Vec<u8>>,
}

/// The names of all cases, in order.
#[must_use]
pub fn case_names() -> Vec<String> {
    cases::all().iter().map(Case::full_name).collect()
}

/// Runs the suite on a runtime. A case that fails is in the report.
///
/// # Errors
/// When nothing could be tried: the runtime isn't there, refuses its options, or can't prepare a plain world.
pub async fn run(runtime: &dyn SkillRuntime, options: &Options) -> Result<Report> {
    runtime.check_config(&options.config)?;
    let shared = Shared {
        runtime,
        config: options.config.clone(),
        scratch: Scratch::make(options.wasm_probe.as_deref().unwrap_or(probe::WASM))?,
        program: probe::name_for(runtime.capabilities().isolation)?,
    };
    let wanted = |case: &Case| options.groups.is_empty() || options.groups.contains(&case.group);
    let cases: Vec<Case> = cases::all().into_iter().filter(wanted).collect();
    let mut lanes = prepare(&shared, &cases).await?;
    let mut verdicts: Vec<Option<Verdict>> = cases.iter().map(|_| None).collect();
    place(&mut verdicts, join_all(lanes.iter().map(|lane| lane.run(&cases))).await.into_iter().flatten().collect());
    try_again(&shared, &cases, &mut verdicts, &mut lanes).await?;
    let of_last = |(_, case): &(usize, &Case)| case.order == Order::Last;
    let last: Vec<usize> = cases.iter().enumerate().filter(of_last).map(|(index, _)| index).collect();
    if !last.is_empty() {
        let lane = Lane { world: World::prepare(&shared, Setting::Roomy, "outside-last").await, cases: last };
        place(&mut verdicts, lane.run(&cases).await);
        lanes.push(lane);
    }
    let mut left = None;
    for lane in &lanes {
        if let Ok(world) = &lane.world
            && let Err(error) = runtime.cleanup(&world.handle).await
        {
            left = Some(error);
        }
    }
    let mut report = Report { runtime: runtime.name().to_owned(), cases: Vec::new() };
    for (case, verdict) in cases.iter().zip(verdicts) {
        let verdict = verdict.unwrap_or_else(|| broken("it was not run"));
        report.cases.push(told(runtime.name(), case, verdict));
    }
    match left {
        None => Ok(report),
        Some(error) => Err(error.operation("cleanup")),
    }
}

fn told(runtime: &str, case: &Case, verdict: Verdict) -> CaseReport {
    let (outcome, reason) = match verdict {
        Ok(reason) => (Outcome::Held, reason),
        Err(Fault::Disclaimed(reason)) => (Outcome::Disclaimed, reason),
        Err(Fault::Broken(reason)) => (Outcome::Failed, reason),
        Err(Fault::TooSoon) => (Outcome::Failed, "the machine was too busy to decide it; run it again".to_owned()),
    };
    CaseReport { case: case.full_name(), runtime: runtime.to_owned(), outcome, reason }
}

/// A world, or why there is none, and the cases that run in it, by their place in the list.
struct Lane<'r> {
    world: std::result::Result<World<'r>, SkillRuntimeError>,
    cases: Vec<usize>,
}

/// Prepares a lane for each setting that is needed, and several for the one with most cases.
async fn prepare<'r>(shared: &'r Shared<'r>, cases: &[Case]) -> Result<Vec<Lane<'r>>> {
    let beside = |case: &&Case| case.order == Order::Any;
    let mut settings: Vec<Setting> = cases.iter().filter(beside).map(|case| case.setting).collect();
    settings.sort_unstable();
    settings.dedup();
    let mut lanes = Vec::new();
    for setting in settings {
        let of_setting: Vec<usize> = cases
            .iter()
            .enumerate()
            .filter(|(_, case)| beside(case) && case.setting == setting)
            .map(|(index, _)| index)
            .collect();
        let count = match setting {
            Setting::Roomy => ROOMY_WORLDS,
            Setting::Brief => BRIEF_WORLDS,
            Setting::Tight
            | Setting::LessBrief
            | Setting::Fuel
            | Setting::Processor
            | Setting::NoDelete
            | Setting::Listed
            | Setting::HostNetwork => 1,
        }
        .min(of_setting.len());
        for number in 0..count {
            let world = World::prepare(shared, setting, &format!("outside-{setting:?}-{number}")).await;
            let world = match world {
                // Without a plain world there is nothing to say about the runtime.
                Err(error) if setting == Setting::Roomy => return Err(error),
                world => world,
            };
            let cases = of_setting.iter().copied().skip(number).step_by(count).collect();
            lanes.push(Lane { world, cases });
        }
    }
    Ok(lanes)
}

fn place(verdicts: &mut [Option<Verdict>], found: Vec<(usize, Verdict)>) {
    for (index, verdict) in found {
        if let Some(place) = verdicts.get_mut(index) {
            *place = Some(verdict);
        }
    }
}

/// Runs again, one by one and with more time, what a busy machine left undecided.
async fn try_again<'r>(
    shared: &'r Shared<'r>,
    cases: &[Case],
    verdicts: &mut [Option<Verdict>],
    lanes: &mut Vec<Lane<'r>>,
) -> Result<()> {
    let again: Vec<usize> = verdicts
        .iter()
        .enumerate()
        .filter(|(_, verdict)| matches!(verdict, Some(Err(Fault::TooSoon))))
        .map(|(index, _)| index)
        .collect();
    if again.is_empty() {
        return Ok(());
    }
    let world = World::prepare(shared, Setting::LessBrief, "outside-again").await;
    let lane = Lane { world, cases: again };
    place(verdicts, lane.run(cases).await);
    lanes.push(lane);
    Ok(())
}

impl Lane<'_> {
    async fn run(&self, cases: &[Case]) -> Vec<(usize, Verdict)> {
        let mut verdicts = Vec::new();
        for index in &self.cases {
            let Some(case) = cases.get(*index) else { continue };
            let verdict = match &self.world {
                Ok(world) => judge(world, case).await,
                Err(error) => unprepared(error),
            };
            verdicts.push((*index, verdict));
        }
        verdicts
    }
}

/// The verdict where a policy was refused, or preparing failed.
fn unprepared(error: &SkillRuntimeError) -> Verdict {
    let said = error.chain().join(": ");
    if error.kind() == ErrorKind::PolicyUnenforceable {
        return Err(Fault::Disclaimed(format!("refused before anything was started: {said}")));
    }
    broken(format!("the sandbox could not be prepared: {said}"))
}

/// Runs one case by what is declared about its claim.
async fn judge(world: &World<'_>, case: &Case) -> Verdict {
    let declared = case.claim.map(|claim| (claim, world.enforcement(claim)));
    let verdict = match declared {
        None | Some((_, Enforcement::Enforced)) => attempted(world, case).await,
        Some((claim, Enforcement::Advisory | Enforcement::Unsupported | Enforcement::NotRequested))
            if !world.strict_refuses(claim) =>
        {
            broken(format!("'{claim}' is not enforced, and strict mode accepts a policy that asks for it"))
        }
        Some((claim, word)) => match unclaimed(world, case).await {
            Ok(tried) => Err(Fault::Disclaimed(format!("{claim} is {word} here, and strict mode refuses it{tried}"))),
            Err(fault) => Err(fault),
        },
    };
    match world.wipe() {
        Ok(()) => verdict,
        Err(error) if verdict.is_ok() => broken(format!("what the guest left could not be removed: {error}")),
        Err(_) => verdict,
    }
}

/// A claim that is declared: the attempt, its traces, its twin.
async fn attempted(world: &World<'_>, case: &Case) -> Verdict {
    let verdict = match case.work {
        Work::Denied { attempt, twin } => {
            let (refusal, absent) = denied(world, attempt).await?;
            world.untouched()?;
            world
                .wipe()
                .map_err(|error| Fault::Broken(format!("what the guest left could not be removed: {error}")))?;
            if !absent {
                allowed(world, twin).await?;
            }
            Ok(refusal)
        }
        Work::Works { steps, told } => works(world, steps, told).await,
        Work::Written(written) => written(world).await,
    }?;
    match case.order {
        Order::Any => world.untouched()?,
        Order::Last => {}
    }
    Ok(verdict)
}

/// A claim that isn't declared: what is allowed must work all the same, and a harmless attempt is made for the record.
async fn unclaimed(world: &World<'_>, case: &Case) -> Result<String, Fault> {
    match case.work {
        Work::Denied { attempt, twin } => {
            let mut tried = String::new();
            if case.harm == Harm::None {
                let ran = world.steps(attempt).await?;
                let done = ran.answers.len() == attempt.len() && ran.answers.iter().all(Answer::done);
                tried = format!("; the attempt {}", if done { "succeeds" } else { "does not succeed" });
            }
            allowed(world, twin).await?;
            Ok(tried)
        }
        Work::Works { steps, told } => works(world, steps, told).await.map(|_| String::new()),
        Work::Written(_) => Ok(String::new()),
    }
}

/// A twin: every step must be done. Where a guest's machine has no such operation, reading an input stands for it.
async fn allowed(world: &World<'_>, twin: &[&str]) -> Result<(), Fault> {
    let ran = world.steps(twin).await?;
    if ran.answers.contains(&Answer::Absent) {
        return world.must(&["read @in/input.txt"]).await.map(drop);
    }
    ran.all_done(twin.len()).map(drop)
}

async fn works(world: &World<'_>, steps: &[&str], told: Option<&str>) -> Verdict {
    let said = world.must(steps).await?;
    match told {
        Some(told) if told != said => broken(format!("expected {told:?}, got {said:?}")),
        Some(_) | None => Ok("it works".to_owned()),
    }
}

/// Makes an attempt that must be refused. Gives how, and whether a guest has no such operation at all.
pub(super) async fn denied(world: &World<'_>, attempt: &[&str]) -> Result<(String, bool), Fault> {
    // The first step shows that the probe was there at all; without it "nothing was done" proves nothing.
    let steps: Vec<&str> = std::iter::once("arguments").chain(attempt.iter().copied()).collect();
    let ran = world.steps(&steps).await?;
    if ran.answers.first().is_none_or(|answer| !answer.done()) {
        return broken(format!("the probe did not start: {}", ran.told()));
    }
    let printed = format!("{}{}", ran.result.stdout.text(), ran.result.stderr.text());
    if printed.contains(&world.outside.secret) {
        return broken(format!("the secret outside was read: {}", ran.told()));
    }
    // Every step is needed to get anywhere, so the first that is refused refuses the attempt.
    let rest = ran.answers.get(1..).unwrap_or_default();
    match rest.iter().find(|answer| !answer.done()) {
        Some(Answer::Refused(how)) => Ok((format!("refused: {how}"), false)),
        Some(Answer::Absent) => Ok(("a guest of this runtime has no such operation".to_owned(), true)),
        Some(Answer::Done(_)) | None if rest.len() == attempt.len() => {
            broken(format!("the attempt succeeded: {}", ran.told()))
        }
        Some(Answer::Done(_)) | None if ran.result.success() => {
            broken(format!("the probe said nothing of the attempt: {}", ran.told()))
        }
        Some(Answer::Done(_)) | None => Ok((format!("the guest was ended: {}", ran.result.termination), false)),
    }
}
