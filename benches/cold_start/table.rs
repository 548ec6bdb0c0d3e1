//! Figures and how they are printed: as rows of Markdown, each beside the first of its kind.

use std::time::Duration;

/// One measurement.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    pub(crate) wall: Duration,
    pub(crate) cpu: Duration,
}

/// Prints the head of a table of times.
pub(crate) fn head(title: &str, against: &str) {
    println!("\n### {title}\n");
    println!("| job | way | wall p50 | p99 | CPU p50 | p99 | CPU / {against} | n |");
    println!("|---|---|---|---|---|---|---|---|");
}

/// Prints the rows of one job; the first way is what the others are compared with.
pub(crate) fn rows(job: &str, ways: &[(String, Vec<Sample>)]) {
    let cpu = |samples: &[Sample]| percentiles(samples.iter().map(|sample| sample.cpu));
    let base = ways.first().map_or(Duration::ZERO, |(_, samples)| cpu(samples)[0]);
    for (name, samples) in ways {
        let wall = percentiles(samples.iter().map(|sample| sample.wall));
        let cpu = cpu(samples);
        // A process that is killed at its limit has no time that counts.
        let ratio = if job.starts_with("endless") { f64::NAN } else { cpu[0].as_secs_f64() / base.as_secs_f64() };
        let ratio = if ratio.is_nan() { String::new() } else { format!("{ratio:.3}") };
        println!(
            "| {job} | {name} | {} | {} | {} | {} | {ratio} | {} |",
            milliseconds(wall[0]),
            milliseconds(wall[1]),
            milliseconds(cpu[0]),
            milliseconds(cpu[1]),
            samples.len()
        );
    }
}

/// Milliseconds with three significant digits or so.
pub(crate) fn milliseconds(time: Duration) -> String {
    let time = time.as_secs_f64() * 1000.0;
    let digits = if time < 10.0 { 2 } else { usize::from(time < 100.0) };
    format!("{time:.digits$}")
}

pub(crate) fn mebibytes(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / f64::from(1 << 20))
}

/// The median and the 99th percentile.
fn percentiles(times: impl Iterator<Item = Duration>) -> [Duration; 2] {
    let mut times: Vec<_> = times.collect();
    times.sort();
    [times.len() / 2, times.len() * 99 / 100].map(|index| times[index.min(times.len() - 1)])
}
