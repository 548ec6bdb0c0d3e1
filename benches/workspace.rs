//! What the workspace costs on the common small path, beside the standard library doing the same work with none of
//! the guarantees: make the folders, stage one script, let a "guest" write one result, collect it, remove all.
//!
//! Run with `cargo bench --no-default-features --bench workspace`. Both kinds alternate, so that a busy machine slows
//! both; the figure to quote is the ratio. With `TMPDIR` on a disk, freeing folders can be nearly all of it; on a file
//! system in memory the work of the processor shows.
#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "the plain side uses the standard library, and a benchmark prints and may fail"
)]

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use skillcell::audit::{AuditScope, NullSink, RunId};
use skillcell::workspace::{Area, CollectRules, HostTree, Workspace};

/// Enough for a 99th percentile that twenty values lie above.
const ROUNDS: usize = 2_000;
/// Not counted: page cache, allocator and branch predictors settle.
const WARM_UP: usize = 200;

fn main() {
    let parent = tempfile::tempdir().unwrap();
    let script = parent.path().join("script.py");
    fs::write(&script, "print('hello')\n".repeat(20)).unwrap();
    let mut ours = Vec::with_capacity(ROUNDS);
    let mut plain = Vec::with_capacity(ROUNDS);
    for round in 0..WARM_UP + ROUNDS {
        let (a, b) = (skillcell(parent.path(), &script), standard(parent.path(), &script, round));
        if round >= WARM_UP {
            ours.push(a);
            plain.push(b);
        }
    }
    println!("{:<12} {:>10} {:>10}", "", "p50", "p99");
    let [ours_50, ours_99] = percentiles(&mut ours);
    let [plain_50, plain_99] = percentiles(&mut plain);
    println!("{:<12} {ours_50:>10.1?} {ours_99:>10.1?}", "skillcell");
    println!("{:<12} {plain_50:>10.1?} {plain_99:>10.1?}", "std::fs");
    println!("{:<12} {:>10.2} {:>10.2}", "ratio", ratio(ours_50, plain_50), ratio(ours_99, plain_99));
}

fn skillcell(parent: &Path, script: &Path) -> Duration {
    let start = Instant::now();
    let run = RunId::random().unwrap();
    let audit = AuditScope::new(run, "bench", Arc::new(NullSink));
    let tree = HostTree::open_file(script).unwrap();
    let workspace = Workspace::create_in(parent, run).unwrap();
    workspace.stage_tree(Area::Skill, &tree).unwrap();
    fs::write(workspace.ambient_root().join("out/report.txt"), "done").unwrap();
    let found = workspace.collect(&CollectRules::default(), &audit).unwrap();
    assert_eq!(found.held("report.txt").unwrap(), "done");
    workspace.remove().unwrap();
    // Closing the last handle is what frees a removed folder: some disks take milliseconds for it.
    drop((workspace, tree));
    start.elapsed()
}

fn standard(parent: &Path, script: &Path, round: usize) -> Duration {
    let start = Instant::now();
    let root = parent.join(format!("plain-{round}"));
    for area in Area::ALL {
        fs::create_dir_all(root.join(area.name())).unwrap();
    }
    fs::copy(script, root.join("skill/script.py")).unwrap();
    fs::write(root.join("out/report.txt"), "done").unwrap();
    let mut found = Vec::new();
    for entry in fs::read_dir(root.join("out")).unwrap() {
        found.push(fs::read(entry.unwrap().path()).unwrap());
    }
    assert_eq!(found, [b"done"]);
    fs::remove_dir_all(&root).unwrap();
    start.elapsed()
}

/// The median and the 99th percentile.
fn percentiles(times: &mut [Duration]) -> [Duration; 2] {
    times.sort();
    [times.len() / 2, times.len() * 99 / 100].map(|index| times.get(index).copied().unwrap_or_default())
}

fn ratio(ours: Duration, plain: Duration) -> f64 {
    ours.as_secs_f64() / plain.as_secs_f64()
}
