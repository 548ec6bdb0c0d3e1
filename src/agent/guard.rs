//! Notices a model that goes round in circles.
//!
//! Repetitions of a call with the same result are counted since the run last saw anything new, so that A, B, A, B is a
//! circle too, while a file that is read again after other work is not.

use std::collections::{HashMap, HashSet};

use sha2::{Digest, Sha256};

/// The third identical call gets an error in the place of its result.
const WARN_AT: u32 = 3;
/// The fifth ends the run.
const STOP_AT: u32 = 5;

/// What to do about a call whose result is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Give the result.
    Fine,
    /// Give an error that says it was the same before.
    Warn(u32),
    /// End the run.
    Stop(u32),
}

/// Counts calls of one run.
#[derive(Debug, Default)]
pub(super) struct LoopGuard {
    /// Digests of (call, result) seen at any time. 32 bytes a call; calls are budgeted.
    seen: HashSet<[u8; 32]>,
    /// Repetitions since the last new pair.
    repeated: HashMap<[u8; 32], u32>,
}

impl LoopGuard {
    /// Takes a call with its canonical arguments, and its result.
    pub(super) fn take(&mut self, name: &str, arguments: &str, result: &str) -> Verdict {
        let mut hasher = Sha256::new();
        for part in [name, arguments, result] {
            hasher.update((part.len() as u64).to_be_bytes());
            hasher.update(part.as_bytes());
        }
        let key: [u8; 32] = hasher.finalize().into();
        if self.seen.insert(key) {
            self.repeated.clear();
            self.repeated.insert(key, 1);
            return Verdict::Fine;
        }
        let count = self.repeated.entry(key).or_insert(0);
        *count += 1;
        match *count {
            count if count >= STOP_AT => Verdict::Stop(count),
            count if count >= WARN_AT => Verdict::Warn(count),
            _ => Verdict::Fine,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn circles_are_seen_and_work_is_not() {
        let mut guard = LoopGuard::default();
        let verdicts: Vec<Verdict> = (0..5).map(|_| guard.take("read_file", "{}", "x")).collect();
        assert_eq!(verdicts, [Verdict::Fine, Verdict::Fine, Verdict::Warn(3), Verdict::Warn(4), Verdict::Stop(5)]);

        let mut guard = LoopGuard::default();
        guard.take("a", "{}", "1");
        guard.take("b", "{}", "1");
        let verdicts: Vec<Verdict> =
            (0..5).flat_map(|_| [guard.take("a", "{}", "1"), guard.take("b", "{}", "1")]).collect();
        assert!(matches!(verdicts.last(), Some(Verdict::Stop(_))), "{verdicts:?}");

        let mut guard = LoopGuard::default();
        for round in 0..20 {
            // A poll whose answer changes, and a file that is read after each.
            assert_eq!(guard.take("run_script", "{}", &round.to_string()), Verdict::Fine);
            assert_eq!(guard.take("read_file", "{}", "same"), Verdict::Fine);
        }
    }

    #[test]
    fn parts_do_not_run_together() {
        let mut guard = LoopGuard::default();
        for (name, arguments) in [("ab", "c"), ("a", "bc"), ("", "abc")] {
            for _ in 0..2 {
                assert_eq!(guard.take(name, arguments, ""), Verdict::Fine);
            }
        }
    }
}
