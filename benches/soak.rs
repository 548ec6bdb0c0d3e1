//! Many short runs on runtime `wasm` in one process: memory, open files and threads must stay flat. A check rather than a
//! measurement: it ends with an error when they don't.
//!
//! `TMPDIR=/dev/shm cargo bench --bench soak -- 100000` (without a number: 1,000). One run in four is a denied attempt,
//! one a trap, one leaves a file, so that those ways are walked as well.
#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::panic,
    reason = "it reads /proc, prints, and fails by panicking"
)]

use std::fs;
use std::path::Path;
use std::time::Instant;

use skillcell::runtime::Termination;
use skillcell::skill::SkillSource;
use skillcell::step::{AgentSkillStepConfig, StepContext, execute};

/// Growth that is no leak: the allocator's arenas settle late.
const SLACK_KIB: u64 = 24 << 10;

fn main() {
    let runs: usize = std::env::args().skip(1).find_map(|argument| argument.parse().ok()).unwrap_or(1_000);
    let executor = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let context = StepContext::new(skillcell::builtin_registry());
    let start = Instant::now();
    let mut settled = None;
    println!("{:>9} {:>9} {:>11} {:>6} {:>8}", "runs", "seconds", "memory KiB", "files", "threads");
    for run in 0..=runs {
        // The first tenth is for caches to fill and threads to start.
        if run % (runs / 10).max(1) == 0 && run > 0 {
            let now = State::read();
            println!(
                "{run:>9} {:>9.1} {:>11} {:>6} {:>8}",
                start.elapsed().as_secs_f64(),
                now.memory_kib,
                now.files,
                now.threads
            );
            let first = settled.get_or_insert(now);
            assert!(now.memory_kib <= first.memory_kib + SLACK_KIB, "memory grows");
            assert!(now.files <= first.files, "open files grow");
            assert!(now.threads <= first.threads + 2, "threads grow");
        }
        let result = executor.block_on(execute(step(run), &context)).unwrap_or_else(|error| panic!("{error}"));
        match (run % 4, &result.run.termination) {
            (2, Termination::Trapped(_)) | (0 | 1 | 3, Termination::Exited(_)) => {}
            (_, other) => panic!("run {run} ended as {other}"),
        }
    }
    println!("flat");
}

fn step(run: usize) -> AgentSkillStepConfig {
    let (name, args): (&str, &[&str]) = match run % 4 {
        0 => ("hello", &[]),
        1 => ("probe", &["write", "/workspace/out/report", "done"]),
        2 => ("traps", &[]),
        _ => ("probe", &["write", "/workspace/in/denied", "no"]),
    };
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guests/wat").join(format!("{name}.wat"));
    let mut config = AgentSkillStepConfig::new(SkillSource::Script(path));
    config.args = args.iter().map(|argument| (*argument).to_owned()).collect();
    config
}

#[derive(Clone, Copy)]
struct State {
    memory_kib: u64,
    files: usize,
    threads: u64,
}

impl State {
    fn read() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let number = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_whitespace().nth(1).unwrap().parse().unwrap()
        };
        let files = fs::read_dir("/proc/self/fd").unwrap().count();
        Self { memory_kib: number("VmRSS:"), files, threads: number("Threads:") }
    }
}
