//! What a run costs in the runtimes of the operating system, beside a plain spawn of the same program and a bare `bwrap`
//! with the same root folder, in turns in the same process.
//!
//! `cargo bench --no-default-features --features bubblewrap --bench backends`
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a program for developers, not part of the library")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use skillcell::audit::{AuditScope, NullSink, RunId};
use skillcell::policy::EnforcementMode;
use skillcell::runtime::{PrepareContext, Progress, RunCommand, RuntimeConfig, SilentProgress};
use skillcell::skill::{SkillSource, TrustPolicy, VerifiedSkill};
use skillcell::workspace::Workspace;
use skillcell::{SandboxPolicy, SkillRuntime, SkillRuntimeHandle};

/// Rounds; each measures everything once, so that a busy moment hits all alike.
const ROUNDS: usize = 60;
const PROGRAM: &str = "/usr/bin/true";

#[expect(clippy::disallowed_methods, reason = "the bare programs that the runtimes are measured against")]
fn spawn(program: &str, arguments: &[&str]) -> Duration {
    let start = Instant::now();
    let output = std::process::Command::new(program)
        .args(arguments)
        .env_clear()
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    start.elapsed()
}

/// `bwrap` as somebody would call it for the same purpose.
const BARE_BWRAP: [&str; 27] = [
    "--unshare-all",
    "--die-with-parent",
    "--new-session",
    "--clearenv",
    "--uid",
    "1000",
    "--gid",
    "1000",
    "--ro-bind",
    "/usr",
    "/usr",
    "--symlink",
    "usr/lib",
    "/lib",
    "--symlink",
    "usr/lib64",
    "/lib64",
    "--symlink",
    "usr/bin",
    "/bin",
    "--proc",
    "/proc",
    "--dev",
    "/dev",
    "--remount-ro",
    "/",
    PROGRAM,
];

async fn prepare(name: &str) -> (Arc<dyn SkillRuntime>, SkillRuntimeHandle, Duration) {
    let run = RunId::random().unwrap();
    let audit = AuditScope::new(run, name, Arc::new(NullSink));
    let source = SkillSource::Script(std::env::current_exe().unwrap().with_extension("d"));
    let skill = VerifiedSkill::verify(&source, &TrustPolicy::Any, &audit).unwrap();
    let workspace = Arc::new(Workspace::create(run).unwrap());
    let policy = SandboxPolicy { mode: EnforcementMode::BestEffort, ..SandboxPolicy::default() };
    let config = RuntimeConfig::default();
    let runtime = skillcell::get_skill_runtime(name).unwrap();
    let progress: Arc<dyn Progress> = Arc::new(SilentProgress);
    let context = PrepareContext { policy: &policy, config: &config, audit: &audit, progress: &progress };
    let start = Instant::now();
    let handle = runtime.prepare(&skill, workspace, &context).await.unwrap();
    (runtime, handle, start.elapsed())
}

async fn run(runtime: &dyn SkillRuntime, handle: &SkillRuntimeHandle) -> Duration {
    let command = RunCommand::new(["true"]).unwrap();
    let start = Instant::now();
    let result = runtime.run(handle, &command).await.unwrap();
    assert!(result.success());
    start.elapsed()
}

fn line(name: &str, times: &mut [Duration], plain: Duration, bwrap: Duration) {
    times.sort_unstable();
    let (median, late) = (times[times.len() / 2], times[times.len() * 9 / 10]);
    let ratio = |base: Duration| median.as_secs_f64() / base.as_secs_f64();
    println!(
        "{name:28} p50 {median:>10.2?}  p90 {late:>10.2?}  {:>6.2} x plain spawn  {:>6.2} x bare bwrap",
        ratio(plain),
        ratio(bwrap)
    );
}

fn median(times: &[Duration]) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    sorted[sorted.len() / 2]
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let (local, local_handle, _) = prepare("local").await;
    let (sandbox, sandbox_handle, _) = prepare("bubblewrap").await;
    let mut times: [Vec<Duration>; 5] = Default::default();
    for _ in 0..ROUNDS {
        times[0].push(spawn(PROGRAM, &[]));
        times[1].push(spawn("/usr/bin/bwrap", &BARE_BWRAP));
        times[2].push(run(&*local, &local_handle).await);
        let (runtime, handle, prepared) = prepare("bubblewrap").await;
        times[3].push(prepared + run(&*runtime, &handle).await);
        times[4].push(run(&*sandbox, &sandbox_handle).await);
    }
    let (plain, bwrap) = (median(&times[0]), median(&times[1]));
    let names = ["plain spawn", "bare bwrap", "local, each call", "bubblewrap, first call", "bubblewrap, further call"];
    for (name, times) in names.into_iter().zip(&mut times) {
        line(name, times, plain, bwrap);
    }
}
