//! What came of the cases: a word and a reason each, as values, as JSON, and as a matrix for people.

use std::collections::BTreeMap;

use serde::Serialize;

/// What came of one case on one runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// The attempt failed and left no trace, and its twin worked.
    Held,
    /// The runtime doesn't declare that it keeps this, and strict mode refuses a policy that asks for it.
    Disclaimed,
    /// A claim is not kept, something that is allowed doesn't work, or the case could not be decided.
    Failed,
}

impl Outcome {
    /// The word in JSON and in the matrix.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Disclaimed => "disclaimed",
            Self::Failed => "failed",
        }
    }
}

/// One case on one runtime.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CaseReport {
    /// `group::name`.
    pub case: String,
    /// The runtime's registered name.
    pub runtime: String,
    /// What came of it.
    pub outcome: Outcome,
    /// Why, as a short sentence.
    pub reason: String,
}

/// All cases on one runtime, in the order of the list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The runtime's registered name.
    pub runtime: String,
    /// The cases.
    pub cases: Vec<CaseReport>,
}

impl Report {
    /// Cases that failed.
    pub fn failures(&self) -> impl Iterator<Item = &CaseReport> {
        self.cases.iter().filter(|case| case.outcome == Outcome::Failed)
    }

    /// Whether there were cases, and none failed.
    #[must_use]
    pub fn passed(&self) -> bool {
        !self.cases.is_empty() && self.failures().next().is_none()
    }

    /// How many cases ended so.
    #[must_use]
    pub fn count(&self, outcome: Outcome) -> usize {
        self.cases.iter().filter(|case| case.outcome == outcome).count()
    }

    /// What came of a case, by its name.
    #[must_use]
    pub fn case(&self, name: &str) -> Option<&CaseReport> {
        self.cases.iter().find(|case| case.case == name)
    }
}

/// A table of cases and runtimes for a terminal, with the reasons of what failed and the counts below it.
#[must_use]
pub fn matrix(reports: &[Report]) -> String {
    let mut rows: Vec<&str> = Vec::new();
    let mut words: BTreeMap<(&str, &str), Outcome> = BTreeMap::new();
    for case in reports.iter().flat_map(|report| &report.cases) {
        if !rows.contains(&case.case.as_str()) {
            rows.push(&case.case);
        }
        words.insert((&case.case, &case.runtime), case.outcome);
    }
    let first = rows.iter().map(|row| row.len()).max().unwrap_or(0);
    let width = |report: &Report| report.runtime.len().max(Outcome::Disclaimed.as_str().len());
    let mut text = format!("{:first$}", "");
    for report in reports {
        text.push_str(&format!("  {:width$}", report.runtime, width = width(report)));
    }
    text = format!("{}\n", text.trim_end());
    for row in rows {
        let mut line = format!("{row:first$}");
        for report in reports {
            let word = words.get(&(row, report.runtime.as_str())).map_or("-", |outcome| outcome.as_str());
            line.push_str(&format!("  {word:width$}", width = width(report)));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text.push('\n');
    for case in reports.iter().flat_map(Report::failures) {
        // A reason may quote what a guest printed.
        let reason: String = case.reason.chars().flat_map(|c| if c == '\n' { vec![' '] } else { escaped(c) }).collect();
        text.push_str(&format!("failed: {} on {}: {reason}\n", case.case, case.runtime));
    }
    for report in reports {
        text.push_str(&format!(
            "{}: {} held, {} disclaimed, {} failed\n",
            report.runtime,
            report.count(Outcome::Held),
            report.count(Outcome::Disclaimed),
            report.count(Outcome::Failed)
        ));
    }
    text
}

fn escaped(c: char) -> Vec<char> {
    if c.is_control() { c.escape_unicode().collect() } else { vec![c] }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(name: &str, outcome: Outcome, reason: &str) -> CaseReport {
        CaseReport { case: name.into(), runtime: "x".into(), outcome, reason: reason.into() }
    }

    #[test]
    fn the_matrix_shows_each_word_and_the_reasons_of_failures() {
        let report = Report {
            runtime: "x".into(),
            cases: vec![
                case("files::a", Outcome::Held, ""),
                case("log::bb", Outcome::Failed, "it \u{1b}[2Jdid"),
                case("log::c", Outcome::Disclaimed, "said so"),
            ],
        };
        assert!(!report.passed());
        assert_eq!(
            matrix(std::slice::from_ref(&report)),
            "          x\nfiles::a  held\nlog::bb   failed\nlog::c    disclaimed\n\n\
             failed: log::bb on x: it \\u{1b}[2Jdid\nx: 1 held, 1 disclaimed, 1 failed\n"
        );
        assert!(!Report { runtime: "x".into(), cases: vec![] }.passed(), "nothing was shown");
    }
}
