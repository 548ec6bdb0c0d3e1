//! The hash chain of an audit file: how a line is sealed, and how a file is verified.
//!
//! Each line is one JSON object that ends in `"prev":"…","hash":"…"}`. `hash` is the SHA-256 of everything on the line
//! before `,"hash"`; `prev` is the hash of the line before, or [`GENESIS`]. So no line can be changed, dropped or moved
//! without all later hashes being wrong, and a run whose trail was cut lacks its closing event. What the file alone
//! can't show is that whole runs are missing from its end: keep the last hash elsewhere and compare.
//!
//! This module only computes; it must not open files.

use std::io::BufRead;

use serde_json::Value;
use sha2::{Digest, Sha256};

/// What stands for the hash before the first line.
pub const GENESIS: &str = "0000000000000000000000000000000000000000000000000000000000000000";
/// The action of the event that closes a run's trail.
pub const CLOSING_ACTION: &str = "close";
/// Longer lines aren't ours: an event's texts are clipped far below that.
const MAX_LINE_BYTES: usize = 64 << 10;
/// Findings that are reported one by one; a file of another kind would give one for each line.
const MAX_FINDINGS: usize = 100;

/// Seals one event: its JSON object with `prev` and `hash` added. Returns the line, without its line feed, and the hash.
pub(super) fn seal(event: &str, prev: &str) -> (String, String) {
    let open = event.strip_suffix('}').unwrap_or(event);
    let body = format!(r#"{open},"prev":"{prev}""#);
    let hash = digest(&body);
    (format!(r#"{body},"hash":"{hash}"}}"#), hash)
}

/// The hash a sealed line claims to have, or nothing when it isn't one of ours.
pub(super) fn hash_of(line: &str) -> Option<&str> {
    split(line).map(|(_, hash)| hash)
}

fn digest(body: &str) -> String {
    crate::digest::hex(&Sha256::digest(body.as_bytes()))
}

/// Splits a sealed line into what is hashed and the hash.
fn split(line: &str) -> Option<(&str, &str)> {
    let (body, tail) = line.rsplit_once(r#","hash":""#)?;
    let hash = tail.strip_suffix(r#""}"#)?;
    (hash.len() == GENESIS.len() && hash.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some((body, hash))
}

/// What verifying a file found.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize)]
pub struct ChainReport {
    /// Lines read.
    pub lines: u64,
    /// Runs that have events in it.
    pub runs: u64,
    /// The last hash; [`GENESIS`] for an empty file.
    pub head: String,
    /// What is wrong, in the order of lines; empty when nothing is.
    pub findings: Vec<ChainFinding>,
}

/// One thing that is wrong with a file.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct ChainFinding {
    /// The line, from 1; 0 for the file as a whole.
    pub line: u64,
    /// What is wrong.
    pub problem: String,
}

impl ChainReport {
    /// Nothing is wrong.
    #[must_use]
    pub fn intact(&self) -> bool {
        self.findings.is_empty()
    }

    fn find(&mut self, line: u64, problem: impl Into<String>) {
        if self.findings.len() < MAX_FINDINGS {
            self.findings.push(ChainFinding { line, problem: problem.into() });
        }
    }
}

/// One run's trail as it is read.
#[derive(Default)]
struct Trail {
    next: u64,
    closed: bool,
}

/// Verifies a file of sealed lines.
///
/// # Errors
/// Only when reading fails; everything that is wrong with the content is a finding.
///
/// ```
/// let report = skillcell::audit::verify_chain(&b"not ours\n"[..]).unwrap();
/// assert_eq!(report.findings[0].problem, "not a sealed audit event");
/// ```
pub fn verify_chain(mut reader: impl BufRead) -> std::io::Result<ChainReport> {
    let mut report = ChainReport { head: GENESIS.to_owned(), ..ChainReport::default() };
    let mut trails: std::collections::BTreeMap<String, Trail> = std::collections::BTreeMap::new();
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        let read = std::io::Read::take(&mut reader, MAX_LINE_BYTES as u64 + 1).read_until(b'\n', &mut bytes)?;
        if read == 0 {
            break;
        }
        report.lines += 1;
        let number = report.lines;
        let complete = bytes.pop_if(|byte| *byte == b'\n').is_some();
        if !complete {
            report.find(
                number,
                if read > MAX_LINE_BYTES { "the line is longer than any event" } else { "the last line is cut" },
            );
            if read > MAX_LINE_BYTES {
                break;
            }
        }
        check_line(&mut report, &mut trails, number, &bytes);
    }
    report.runs = trails.len() as u64;
    for (run, trail) in trails.iter().filter(|(_, trail)| !trail.closed) {
        report.find(
            0,
            format!(
                "run {run} has no closing event: its trail was cut, or its process was killed ({} events)",
                trail.next
            ),
        );
    }
    Ok(report)
}

fn check_line(
    report: &mut ChainReport,
    trails: &mut std::collections::BTreeMap<String, Trail>,
    number: u64,
    bytes: &[u8],
) {
    let sealed =
        std::str::from_utf8(bytes).ok().and_then(|text| split(text).zip(serde_json::from_str::<Value>(text).ok()));
    let Some(((body, hash), event)) = sealed else {
        report.find(number, "not a sealed audit event");
        return;
    };
    if digest(body) != hash {
        report.find(number, "the line was changed: its hash doesn't fit");
    }
    if event["prev"].as_str() != Some(report.head.as_str()) {
        report.find(number, "lines before this one were dropped, moved or changed: it follows another line");
    }
    report.head = hash.to_owned();
    let (Some(run), Some(seq)) = (event["run"].as_str(), event["seq"].as_u64()) else {
        report.find(number, "the event has no run or no number");
        return;
    };
    let trail = trails.entry(run.to_owned()).or_default();
    let mut problems = Vec::new();
    if seq != trail.next {
        problems.push(format!("event {seq} of run {run} stands where event {} is expected", trail.next));
    }
    if trail.closed {
        problems.push(format!("run {run} has an event after its closing event"));
    }
    trail.next = seq.saturating_add(1);
    trail.closed |= event["action"] == CLOSING_ACTION;
    for problem in problems {
        report.find(number, problem);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> Vec<String> {
        let mut prev = GENESIS.to_owned();
        let mut lines = Vec::new();
        for (run, seq, action) in
            [("a", 0, "plan"), ("b", 0, "plan"), ("a", 1, "run"), ("b", 1, "close"), ("a", 2, "close")]
        {
            let (line, hash) = seal(&format!(r#"{{"seq":{seq},"run":"{run}","action":"{action}"}}"#), &prev);
            lines.push(line);
            prev = hash;
        }
        lines
    }

    fn problems(lines: &[String]) -> Vec<String> {
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let report = verify_chain(text.as_bytes()).unwrap();
        report.findings.into_iter().map(|finding| format!("{}: {}", finding.line, finding.problem)).collect()
    }

    #[test]
    fn an_untouched_file_is_intact() {
        let lines = file();
        assert_eq!(problems(&lines), Vec::<String>::new());
        let text = lines.join("\n") + "\n";
        let report = verify_chain(text.as_bytes()).unwrap();
        assert_eq!((report.lines, report.runs, report.head.as_str()), (5, 2, hash_of(&lines[4]).unwrap()));
        assert!(verify_chain(&b""[..]).unwrap().intact());
    }

    #[test]
    fn every_change_is_reported() {
        for dropped in 0..5 {
            let mut lines = file();
            lines.remove(dropped);
            assert!(!problems(&lines).is_empty(), "line {dropped} dropped");
        }
        for (a, b) in [(0, 1), (1, 2), (3, 4), (0, 4)] {
            let mut lines = file();
            lines.swap(a, b);
            assert!(!problems(&lines).is_empty(), "lines {a} and {b} swapped");
        }
        let mut edited = file();
        edited[2] = edited[2].replace("run\",\"action", "rum\",\"action").replace("\"run\"", "\"rum\"");
        assert!(problems(&edited)[0].contains("the line was changed"), "{:?}", problems(&edited));
        let mut doubled = file();
        doubled.insert(1, doubled[1].clone());
        assert!(!problems(&doubled).is_empty());
        // An edit whose author also made a new hash shows at the next line.
        let mut resealed = file();
        resealed[1] = seal(r#"{"seq":0,"run":"b","action":"other"}"#, hash_of(&file()[0]).unwrap()).0;
        assert_eq!(
            problems(&resealed),
            ["3: lines before this one were dropped, moved or changed: it follows another line"]
        );
    }

    #[test]
    fn a_cut_file_is_reported() {
        for kept in 1..5 {
            let lines = file();
            assert!(!problems(&lines[..kept]).is_empty(), "{kept} lines kept");
        }
        let text = file().join("\n");
        assert_eq!(verify_chain(text.as_bytes()).unwrap().findings[0].problem, "the last line is cut");
        let long = vec![b'x'; MAX_LINE_BYTES * 3];
        assert_eq!(verify_chain(&long[..]).unwrap().findings[0].problem, "the line is longer than any event");
    }
}
