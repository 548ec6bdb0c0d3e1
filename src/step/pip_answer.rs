//! What came of the tool that chooses and fetches wheels: the wheels, or why there are none.
//!
//! What `pip` writes is foreign text: it is told by its own words where that helps the caller, and shown without
//! addresses and paths. Invariant: whatever the tool left is bounded, and only wheels are taken.

use crate::error::{ErrorKind, Result, SkillRuntimeError};
use crate::packages::{MAX_WHEELS, MAX_WHEELS_BYTES, Wheel};
use crate::runtime::{RuntimeRunResult, Termination};
use crate::skill::MAX_ARCHIVE_BYTES;
use crate::workspace::{Area, Workspace};

/// How the tool ends when its Python has no `pip`, or one that can't choose for another Python.
const NO_PIP: [i32; 2] = [41, 44];
/// How it ends when `pip` said no.
const PIP_FAILED: i32 = 42;
/// How it ends when the script wants another Python.
const OTHER_PYTHON: i32 = 43;
/// Characters of a foreign message in an error of ours.
const MAX_SHOWN: usize = 600;
/// The operation of errors that another tool would meet again.
pub(super) const PACKAGES: &str = "pip";

/// What the tool says.
pub(super) enum Answer {
    /// The files it fetched, sorted by package.
    Wheels(Vec<Wheel>),
    /// There is no `pip` that would do.
    NoTool,
}

/// The wheels the tool left, or why there are none.
pub(super) fn taken(run: &RuntimeRunResult, workspace: &Workspace) -> Result<Answer> {
    let stderr = run.stderr.text();
    let code = if let Termination::Exited(code) = run.termination { Some(code) } else { None };
    match code {
        Some(0) => {}
        Some(code) if NO_PIP.contains(&code) => return Ok(Answer::NoTool),
        Some(PIP_FAILED) => return Err(pip_failed(&stderr)),
        Some(OTHER_PYTHON) => {
            return Err(SkillRuntimeError::new(
                ErrorKind::Unavailable,
                "the script's 'requires-python' doesn't allow the Python of this runtime; choose another runtime or change \
                 the block",
            )
            .operation(PACKAGES));
        }
        Some(_) | None => {
            return Err(SkillRuntimeError::new(ErrorKind::Backend, format!("pip ended badly: {}", run.termination))
                .operation(PACKAGES)
                .caused_by(shown(&stderr)));
        }
    }
    let out = Area::Out.guest_path();
    let entries = workspace.list(&out)?;
    let too_large = || {
        SkillRuntimeError::new(
            ErrorKind::LimitExceeded,
            format!("the packages are more than {MAX_WHEELS} files or {MAX_WHEELS_BYTES} bytes; ask for fewer"),
        )
    };
    if entries.len() > MAX_WHEELS {
        return Err(too_large());
    }
    let mut left = MAX_WHEELS_BYTES;
    let mut wheels = Vec::with_capacity(entries.len());
    for entry in entries {
        let bytes = workspace.read_file(&out.join(&entry.name)?, MAX_ARCHIVE_BYTES)?;
        left = left.checked_sub(bytes.len() as u64).ok_or_else(too_large)?;
        wheels.push(Wheel::new(&entry.name, bytes)?);
    }
    wheels.sort_by_key(Wheel::normal_name);
    Ok(Answer::Wheels(wheels))
}

/// What `pip` said, told by its own words.
fn pip_failed(stderr: &str) -> SkillRuntimeError {
    let lines: Vec<&str> = stderr.lines().filter(|line| line.trim_start().starts_with("ERROR:")).collect();
    let said = shown(&lines.join(" "));
    let error = |kind, what: &str| SkillRuntimeError::new(kind, what).operation(PACKAGES).caused_by(said.clone());
    if stderr.contains("Failed to establish a new connection")
        || stderr.contains("NewConnectionError")
        || stderr.contains("ConnectionError")
        || stderr.contains("Max retries exceeded")
        || stderr.contains("Temporary failure in name resolution")
        || stderr.contains("Name or service not known")
    {
        return error(
            ErrorKind::Unavailable,
            "pip could not reach the package index that this machine is set up for; packages that are in the cache need no \
             network",
        );
    }
    if stderr.contains("DO NOT MATCH THE HASHES") {
        return error(
            ErrorKind::TrustViolation,
            "a package is not the one that the lock of packages names; review the change, then remove the entry to lock anew",
        );
    }
    if stderr.contains("No matching distribution found") || stderr.contains("ResolutionImpossible") {
        return error(
            ErrorKind::NotFound,
            "pip found no set of wheels for these requirements and the Python of this runtime; packages that exist as source \
             only are not installed, since building them would run their code on this machine",
        );
    }
    error(ErrorKind::Backend, "pip failed")
}

/// Foreign text for a message: no addresses, which may hold a password, no paths of this machine, not long.
pub(super) fn shown(text: &str) -> String {
    let word = |word: &str| -> String {
        if word.contains("://") {
            "<address>".to_owned()
        } else if word.trim_start_matches(['\'', '"', '(']).starts_with('/') {
            "<path>".to_owned()
        } else {
            word.chars().flat_map(|c| if c.is_control() { c.escape_debug().collect() } else { vec![c] }).collect()
        }
    };
    let words: Vec<String> = text.split_whitespace().map(word).collect();
    let text = words.join(" ");
    let from = text.chars().count().saturating_sub(MAX_SHOWN);
    text.chars().skip(from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_pip_says_is_told_without_addresses_and_paths() {
        let said = "WARNING: x\nERROR: Could not find a version that satisfies the requirement nope (from versions: none)\n\
                    ERROR: No matching distribution found for nope, see https://user:secret@127.0.0.1/simple '/home/x/y'\n";
        let error = pip_failed(said);
        assert_eq!(error.kind(), ErrorKind::NotFound);
        let chain = error.chain().join("; ");
        assert!(chain.contains("No matching distribution found for nope, see <address> <path>"), "{chain}");
        assert!(!chain.contains("secret") && !chain.contains("/home"), "{chain}");
        for (said, kind) in [
            ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.", ErrorKind::TrustViolation),
            ("ERROR: ResolutionImpossible: x", ErrorKind::NotFound),
            ("WARNING: NewConnectionError\nERROR: No matching distribution found for x", ErrorKind::Unavailable),
            ("ERROR: x", ErrorKind::Backend),
            ("", ErrorKind::Backend),
        ] {
            assert_eq!(pip_failed(said).kind(), kind, "{said}");
        }
        assert_eq!(shown(&"a ".repeat(10_000)).chars().count(), MAX_SHOWN);
    }
}
