//! What a run costs in the runtimes of the operating system, beside a plain spawn of the same program, a bare `bwrap`
//! with the same root folder, a bare `firejail`, and `@anthropic-ai/sandbox-runtime`, in turns in the same process.
//!
//! `benches/with-srt`, which installs the sandbox from npm that is measured beside them and runs
//! `cargo bench --no-default-features --features bubblewrap,firejail --bench backends`.
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

/// A node process that runs the program in the sandbox of `@anthropic-ai/sandbox-runtime` once for each line.
struct Srt {
    child: std::process::Child,
    answers: std::io::Lines<std::io::BufReader<std::process::ChildStdout>>,
}

impl Srt {
    /// Nothing when it isn't installed: `benches/with-srt` does that.
    #[expect(clippy::disallowed_methods, reason = "a program that the runtimes are measured against")]
    fn start() -> Option<Self> {
        let folder = std::env::var_os("SKILLCELL_BENCH_SRT").map(std::path::PathBuf::from)?;
        let mut child = std::process::Command::new("node")
            .arg("srt.mjs")
            .arg(PROGRAM)
            .current_dir(&folder)
            .env("HOME", &folder)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .ok()?;
        let answers = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take()?));
        let mut started = Self { child, answers };
        started.call().map(|_| started)
    }

    /// What one call took, by its own clock.
    fn call(&mut self) -> Option<Duration> {
        std::io::Write::write_all(self.child.stdin.as_mut()?, b"\n").ok()?;
        self.answers.next()?.ok()?.trim().parse().ok().map(Duration::from_nanos)
    }
}

impl Drop for Srt {
    fn drop(&mut self) {
        // It ends when its input does.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

fn line(name: &str, times: &mut [Duration], plain: Duration, bwrap: Duration) {
    times.sort_unstable();
    let (median, late) = (times[times.len() / 2], times[times.len() * 9 / 10]);
    let ratio = |base: Duration| median.as_secs_f64() / base.as_secs_f64();
    println!(
        "{name:28} p50 {median:>10.2?}  p90 {late:>10.2?}  {:>6.2} x plain spawn  {:>6.2} x bare bwrap  {:>+9.2} ms over \
         plain spawn",
        ratio(plain),
        ratio(bwrap),
        (median.as_secs_f64() - plain.as_secs_f64()) * 1e3
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
    let (jail, jail_handle, _) = prepare("firejail").await;
    let mut srt = Srt::start();
    let names = [
        "plain spawn",
        "bare bwrap",
        "bare firejail",
        "local, each call",
        "bubblewrap, first call",
        "bubblewrap, further call",
        "firejail, further call",
        "sandbox-runtime (npm)",
    ];
    let mut times: [Vec<Duration>; 8] = Default::default();
    for _ in 0..ROUNDS {
        times[0].push(spawn(PROGRAM, &[]));
        times[1].push(spawn("/usr/bin/bwrap", &BARE_BWRAP));
        times[2].push(spawn("/usr/bin/firejail", &["--quiet", "--noprofile", "--net=none", PROGRAM]));
        times[3].push(run(&*local, &local_handle).await);
        let (runtime, handle, prepared) = prepare("bubblewrap").await;
        times[4].push(prepared + run(&*runtime, &handle).await);
        drop(handle);
        times[5].push(run(&*sandbox, &sandbox_handle).await);
        times[6].push(run(&*jail, &jail_handle).await);
        times[7].extend(srt.as_mut().map(|srt| srt.call().unwrap()));
    }
    let (plain, bwrap) = (median(&times[0]), median(&times[1]));
    for (name, times) in names.into_iter().zip(&mut times) {
        if times.is_empty() {
            println!("{name:28} NOT MEASURED: it is not installed here; run benches/with-srt");
        } else {
            line(name, times, plain, bwrap);
        }
    }
}
