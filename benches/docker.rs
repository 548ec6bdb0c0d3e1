//! What a command costs on runtime `docker`, beside a container per command (`docker run`) and beside CARL's own docker
//! runtime, in one run and in turns, so that a busy machine slows all alike; the figures to quote are the ratios.
//!
//!     python3.12 -m venv V && V/bin/pip install mmar-carl==0.4.0
//!     SKILLCELL_BENCH_CARL=V/bin/python tests/docker/with-daemon \
//!         cargo bench --no-default-features --features docker --bench docker
//!
//! Without `SKILLCELL_BENCH_CARL` CARL is left out, and the table says so. The command is `true`, so that what is
//! measured is the way there and back.
#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::panic,
    reason = "the others are separate programs, and a benchmark prints and may fail"
)]

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use skillcell::audit::{AuditScope, NullSink, RunId};
use skillcell::runtime::{PrepareContext, Progress, RunCommand, RuntimeConfig, SilentProgress};
use skillcell::skill::{SkillSource, TrustPolicy, VerifiedSkill};
use skillcell::workspace::Workspace;
use skillcell::{SandboxPolicy, SkillRuntime, SkillRuntimeHandle};

/// Rounds; a round has one of everything.
const ROUNDS: usize = 40;
/// Not counted: caches of the daemon and of the page cache settle.
const WARM_UP: usize = 3;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let image = std::env::var("SKILLCELL_TEST_IMAGE").unwrap_or_else(|_| panic!("run by tests/docker/with-daemon"));
    let mut carl = std::env::var("SKILLCELL_BENCH_CARL").ok().map(|python| Carl::start(&python, &image));
    let command = RunCommand::new(["true"]).unwrap();
    let (runtime, handle) = prepare(&image).await;
    let mut times: [Vec<Duration>; 5] = Default::default();
    for round in 0..WARM_UP + ROUNDS {
        let start = Instant::now();
        let (fresh, fresh_handle) = prepare(&image).await;
        assert!(fresh.run(&fresh_handle, &command).await.unwrap().success());
        let first = start.elapsed();
        fresh.cleanup(&fresh_handle).await.unwrap();

        let start = Instant::now();
        assert!(runtime.run(&handle, &command).await.unwrap().success());
        let further = start.elapsed();

        // The supervisor for this one is only being started.
        let start = Instant::now();
        assert!(runtime.run(&handle, &command).await.unwrap().success());
        let at_once = start.elapsed();

        let start = Instant::now();
        docker_run(&image);
        let plain = start.elapsed();

        let carls = carl.as_mut().map(Carl::run);
        if round >= WARM_UP {
            for (list, time) in times.iter_mut().zip([Some(first), Some(further), Some(at_once), Some(plain), carls]) {
                list.extend(time);
            }
        }
    }
    runtime.cleanup(&handle).await.unwrap();
    println!("{:<28} {:>10} {:>10} {:>22}", "", "p50", "p90", "p50 over further call");
    let names = [
        "skillcell, first call",
        "skillcell, further call",
        "the same, at once after it",
        "docker run, per command",
        "CARL, per command",
    ];
    let base = percentile(&mut times[1].clone(), 50);
    for (name, list) in names.iter().zip(&mut times) {
        if list.is_empty() {
            println!("{name:<28} not measured: SKILLCELL_BENCH_CARL is not set");
            continue;
        }
        let (half, most) = (percentile(list, 50), percentile(list, 90));
        println!("{name:<28} {half:>10.1?} {most:>10.1?} {:>22.1}", half.as_secs_f64() / base.as_secs_f64());
    }
}

async fn prepare(image: &str) -> (Arc<dyn SkillRuntime>, SkillRuntimeHandle) {
    let run = RunId::random().unwrap();
    let audit = AuditScope::new(run, "docker", Arc::new(NullSink));
    let script = tempfile::NamedTempFile::new().unwrap();
    let source = SkillSource::Script(script.path().to_owned());
    let skill = VerifiedSkill::verify(&source, &TrustPolicy::Any, &audit).unwrap();
    let workspace = Arc::new(Workspace::create(run).unwrap());
    let config = serde_json::json!({"image": image}).as_object().cloned().unwrap();
    let (policy, config) = (SandboxPolicy::default(), RuntimeConfig::new(config));
    let runtime = skillcell::get_skill_runtime("docker").unwrap();
    let progress: Arc<dyn Progress> = Arc::new(SilentProgress);
    let context = PrepareContext { policy: &policy, config: &config, audit: &audit, progress: &progress };
    let handle = runtime.prepare(&skill, workspace, &context).await.unwrap();
    (runtime, handle)
}

/// A container for one command, with CARL's options as far as they cost time.
fn docker_run(image: &str) {
    let options = ["run", "--rm", "--pull=never", "--network", "none", "--read-only", "--cap-drop=ALL"];
    let status = Command::new("docker").args(options).args([image, "true"]).stdin(Stdio::null()).status().unwrap();
    assert!(status.success());
}

/// CARL's runtime in a Python process of its own, which measures each run by itself.
struct Carl {
    _process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

const CARL: &str = r#"
import asyncio, sys, time
from mmar_carl import get_skill_runtime

async def main(image):
    runtime = get_skill_runtime("docker")
    handle = await runtime.prepare(None, None, {"image": image})
    for line in sys.stdin:
        start = time.perf_counter()
        result = await runtime.run(handle, ["true"])
        print(int((time.perf_counter() - start) * 1e6), result.exit_code, flush=True)
    await runtime.cleanup(handle)

asyncio.run(main(sys.argv[1]))
"#;

impl Carl {
    fn start(python: &str, image: &str) -> Self {
        let mut process = Command::new(python)
            .args(["-c", CARL, image])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{python}: {error}"));
        let (input, output) = (process.stdin.take().unwrap(), BufReader::new(process.stdout.take().unwrap()));
        Self { _process: process, input, output }
    }

    fn run(&mut self) -> Duration {
        writeln!(self.input).unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        let (micros, code) = line.trim().split_once(' ').unwrap_or_else(|| panic!("CARL ended: {line}"));
        assert_eq!(code, "0");
        Duration::from_micros(micros.parse().unwrap())
    }
}

fn percentile(times: &mut [Duration], percent: usize) -> Duration {
    times.sort();
    times[(times.len() - 1) * percent / 100]
}
