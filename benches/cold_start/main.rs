//! What a Python or JavaScript script costs in a fresh process and as a warm call, with all limits on, beside the plain
//! interpreters of this machine and beside other sandboxes; ways take turns, so that a busy machine slows all alike.
//!
//! `cargo bench --bench cold_start`, with `-- --quick` for a short look that only shows that everything still runs.
//! Other sandboxes: see `peers/install`. docs/speed.md keeps the output and says how to read it.
#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a benchmark starts processes, prints and may fail"
)]

mod jobs;
mod peers;
mod process;
mod table;
mod warm;

use self::jobs::{Job, Language, Material};
use self::peers::Peers;
use self::process::Line;
use self::table::Sample;
use self::warm::Warm;

/// How often each thing is done. A loop takes a second, so fewer.
struct Rounds {
    fresh: usize,
    warm: usize,
    long: usize,
}

impl Rounds {
    fn of(&self, job: Job, short: usize) -> usize {
        if matches!(job, Job::Loop | Job::Endless) { self.long } else { short }
    }
}

fn main() {
    // `cargo test --benches` runs benchmarks too, without this argument.
    let measure = std::env::args().any(|argument| argument == "--bench");
    let quick = !measure || std::env::args().any(|argument| argument == "--quick");
    let rounds = if quick {
        Rounds { fresh: 2, warm: 5, long: 1 }
    } else {
        // Enough for a 99th percentile that some values lie above, but for the long ones.
        Rounds { fresh: 60, warm: 500, long: 10 }
    };
    let (material, peers) = (Material::new(), Peers::find());
    // Fresh processes first: this one is small as long as it has run no guest.
    for (language, name, plain) in
        [(Language::Python, "Python", "python3"), (Language::JavaScript, "JavaScript", "node")]
    {
        table::head(&format!("{name}, a fresh process"), plain);
        for job in Job::TIMED {
            fresh(&material, &peers, language, job, rounds.of(job, rounds.fresh));
        }
        println!("\n| idle process | private MiB | peak resident MiB |\n|---|---|---|");
        let mut ways = peers.fresh(&material, language, Job::Idle);
        ways.push(("skillcell".to_owned(), skillcell(&material, language, Job::Idle)));
        for (name, line) in ways {
            let (private, peak) = line.memory();
            println!("| {name} | {} | {} |", table::mebibytes(private), table::mebibytes(peak));
        }
    }
    let warm = Warm::new(&material);
    for (language, name) in [(Language::Python, "Python"), (Language::JavaScript, "JavaScript")] {
        table::head(&format!("{name}, a call in a process that lives"), "call on a handle");
        for job in Job::TIMED {
            let count = rounds.of(job, rounds.warm);
            let mut ways = vec![
                ("skillcell, call on a handle".to_owned(), warm.call(language, job, count)),
                ("skillcell, whole step".to_owned(), warm.step(language, job, count)),
            ];
            ways.extend(peers.warm(&material, language, job, count.min(rounds.fresh)));
            table::rows(job.title(), &ways);
        }
        println!("\nPrivate memory of one more idle instance: {} MiB", table::mebibytes(warm.idle_memory(language)));
    }
}

fn fresh(material: &Material, peers: &Peers, language: Language, job: Job, rounds: usize) {
    let mut ways: Vec<(String, Line, Vec<Sample>)> =
        peers.fresh(material, language, job).into_iter().map(|(name, line)| (name, line, Vec::new())).collect();
    ways.push(("skillcell".to_owned(), skillcell(material, language, job), Vec::new()));
    for (_, line, _) in &ways {
        // The first run fills caches: of the system, and of compiled code.
        line.run(job.prints());
    }
    for _ in 0..rounds {
        for (_, line, samples) in &mut ways {
            samples.push(line.run(job.prints()));
        }
    }
    let ways: Vec<_> = ways.into_iter().map(|(name, _, samples)| (name, samples)).collect();
    table::rows(job.title(), &ways);
}

/// The command as a user would call it.
fn skillcell(material: &Material, language: Language, job: Job) -> Line {
    let path = |path: std::path::PathBuf| path.to_str().unwrap().to_owned();
    let mut words = vec![env!("CARGO_BIN_EXE_skillcell").to_owned(), "run".to_owned()];
    words.push(path(material.script(language, job)));
    if job == Job::Files {
        words.extend(["--in".to_owned(), path(material.input().join("rows.json"))]);
        words.extend(["--out".to_owned(), path(material.output()), "--overwrite".to_owned()]);
    }
    if job == Job::Endless {
        words.extend(["--timeout", "500ms"].map(str::to_owned));
    }
    Line::new(words)
}
