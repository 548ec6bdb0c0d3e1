//! The probe: the program that runs inside, as WebAssembly and as a native program, and the lines it answers with.
//!
//! Its source is `tests/guests/probe`. The WebAssembly is committed beside this file, since who builds skillcell need
//! not have a compiler for guests; `tests/make-probe` makes it, and a test compares it with what the source gives. The
//! native one is compiled by `build.rs` as one static executable, which needs nothing of the sandbox it runs in.

use crate::error::{ErrorKind, Result, SkillRuntimeError};
use crate::policy::Isolation;

/// The probe as WebAssembly.
pub(super) const WASM: &[u8] = include_bytes!("probe.wasm");
/// The probe as a program of this machine; empty where a build has none.
pub(super) const NATIVE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/skillcell-probe"));

/// The names in the skill's folder.
pub(super) const WASM_NAME: &str = "probe.wasm";
pub(super) const NATIVE_NAME: &str = "probe";

/// The word that separates steps.
const SEPARATOR: &str = "::";

/// Which of the two a runtime gets: WebAssembly where that is what separates it from the host.
///
/// # Errors
/// [`Unavailable`](ErrorKind::Unavailable) when this build has no native probe.
pub(super) fn name_for(isolation: Isolation) -> Result<&'static str> {
    match isolation {
        Isolation::Wasm => Ok(WASM_NAME),
        Isolation::None | Isolation::Process | Isolation::Container | Isolation::Microvm | Isolation::Unknown
            if NATIVE.is_empty() =>
        {
            Err(SkillRuntimeError::new(
                ErrorKind::Unavailable,
                "this build carries no native probe, which runtimes of the operating system need; build skillcell on \
                 Linux from its repository",
            ))
        }
        Isolation::None | Isolation::Process | Isolation::Container | Isolation::Microvm | Isolation::Unknown => {
            Ok(NATIVE_NAME)
        }
    }
}

/// What the probe said of one step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    /// It was done.
    Done(String),
    /// It was refused, and how.
    Refused(String),
    /// A guest of this machine has no such operation.
    Absent,
}

impl Answer {
    /// What a step that was done told.
    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Self::Done(text) => Some(text),
            Self::Refused(_) | Self::Absent => None,
        }
    }

    pub(super) fn done(&self) -> bool {
        self.text().is_some()
    }

    fn parse(line: &str) -> Option<Self> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "ok" => Some(Self::Done(unescaped(rest))),
            "err" => Some(Self::Refused(rest.to_owned())),
            "absent" => Some(Self::Absent),
            _ => None,
        }
    }
}

/// The answers on the probe's stdout; a last line that was cut off is none.
pub(super) fn answers(stdout: &str) -> Vec<Answer> {
    stdout.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')).filter_map(Answer::parse).collect()
}

fn unescaped(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some('n') => plain.push('\n'),
                Some(other) => plain.push(other),
                None => plain.push('\\'),
            },
            c => plain.push(c),
        }
    }
    plain
}

/// The words of steps for a command, without the program.
pub(super) fn words<'a>(steps: impl IntoIterator<Item = Vec<String>> + 'a) -> Vec<String> {
    let mut words = Vec::new();
    for (index, step) in steps.into_iter().enumerate() {
        if index > 0 {
            words.push(SEPARATOR.to_owned());
        }
        words.extend(step);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_told_apart_and_half_lines_are_none() {
        let all = answers("ok a\\nb\\\\n\nerr NotFound 2\nabsent\nnoise\nok\nok cut");
        assert_eq!(
            all,
            [
                Answer::Done("a\nb\\n".into()),
                Answer::Refused("NotFound 2".into()),
                Answer::Absent,
                Answer::Done(String::new()),
            ]
        );
    }

    #[test]
    fn steps_become_words() {
        let steps = [vec!["read".to_owned(), "@in/a".to_owned()], vec!["folder".to_owned()]];
        assert_eq!(words(steps), ["read", "@in/a", "::", "folder"]);
    }
}
