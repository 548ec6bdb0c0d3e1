//! The list of cases, a file a group.

mod environment;
mod files;
mod handle;
mod leaks;
mod lifecycle;
mod limits;
mod log;
mod network;
mod output;
mod processes;

use super::case::Case;

/// All cases, in the order of the matrix.
pub(super) fn all() -> Vec<Case> {
    [
        files::CASES,
        handle::CASES,
        processes::CASES,
        limits::CASES,
        leaks::CASES,
        output::CASES,
        environment::CASES,
        lifecycle::CASES,
        network::CASES,
        log::CASES,
    ]
    .concat()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::conformance::case::Work;

    #[test]
    fn names_are_unique_and_every_denial_has_a_twin() {
        let all = all();
        let names: BTreeSet<String> = all.iter().map(Case::full_name).collect();
        assert_eq!(names.len(), all.len());
        for case in &all {
            if let Work::Denied { attempt, twin } = case.work {
                assert!(!attempt.is_empty() && !twin.is_empty(), "{}", case.full_name());
                assert!(case.claim.is_some(), "{}: a denial tests a claim", case.full_name());
            }
        }
    }
}
