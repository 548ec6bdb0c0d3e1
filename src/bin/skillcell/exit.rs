//! Exit codes: one table from what happened to a number.

use std::process::ExitCode;

use skillcell::runtime::Termination;
use skillcell::step::OutputConflict;
use skillcell::{ErrorKind, SkillRuntimeError};

pub(crate) const USAGE: u8 = 2;
pub(crate) const REFUSED: u8 = 3;
pub(crate) const UNAVAILABLE: u8 = 4;
pub(crate) const DEFECT: u8 = 70;
pub(crate) const CANCELLED: u8 = 130;

/// The code for a script that ended.
pub(crate) fn of_termination(termination: &Termination) -> u8 {
    match termination {
        // A status is eight bits wide; a failure must not become success by being cut.
        Termination::Exited(code) => match (*code, code & 0xff) {
            (0, _) => 0,
            (_, 0) => 1,
            (_, low) => low as u8,
        },
        // As shells have it.
        Termination::Signaled(signal) => 128 + (signal & 0x7f) as u8,
        Termination::TimedOut
        | Termination::OutOfFuel
        | Termination::OutOfMemory
        | Termination::OutputLimit
        | Termination::DiskLimit
        | Termination::ProcessLimit
        | Termination::Trapped(_)
        | Termination::Cancelled => termination.exit_code() as u8,
    }
}

/// The code of a run whose results are not where they were wanted: a script that counts on them must not take them for
/// there.
pub(crate) fn with_conflict(code: u8, conflict: Option<&OutputConflict>) -> u8 {
    if code == 0 && conflict.is_some() { USAGE } else { code }
}

/// Ends the process after a second interrupt. Whoever asks twice doesn't want to wait for the cleanup; the guests'
/// supervisors end them by themselves, and the next start removes the workspace.
#[expect(
    clippy::exit,
    clippy::disallowed_methods,
    reason = "returning would wait for the file work that the person at the terminal gave up on"
)]
pub(crate) fn at_once() -> ! {
    crate::terminal::note("interrupted twice; cleanup was not waited for, the next start does what is left");
    std::process::exit(i32::from(CANCELLED))
}

/// The code for a sandbox that failed or refused.
pub(crate) fn of_error(error: &SkillRuntimeError) -> u8 {
    match error.kind() {
        ErrorKind::InvalidConfig
        | ErrorKind::UnknownRuntime
        | ErrorKind::NotFound
        | ErrorKind::PathDenied
        | ErrorKind::LimitExceeded => USAGE,
        ErrorKind::TrustViolation | ErrorKind::PolicyUnenforceable => REFUSED,
        ErrorKind::Unavailable | ErrorKind::Backend => UNAVAILABLE,
        ErrorKind::Cancelled => CANCELLED,
        ErrorKind::Internal => DEFECT,
    }
}

/// Prints an error with all its causes, once, and gives its code.
pub(crate) fn fail(error: &SkillRuntimeError) -> ExitCode {
    crate::terminal::note(&format!("error: {}", error.chain().join("\n  caused by: ")));
    ExitCode::from(of_error(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_never_becomes_success() {
        for (termination, code) in [
            (Termination::Exited(0), 0),
            (Termination::Exited(3), 3),
            (Termination::Exited(256), 1),
            (Termination::Exited(-1), 255),
            (Termination::Exited(300), 44),
            (Termination::Signaled(9), 137),
            (Termination::TimedOut, 124),
            (Termination::OutOfMemory, 137),
            (Termination::Cancelled, 130),
        ] {
            assert_eq!(of_termination(&termination), code, "{termination}");
        }
    }
}
