//! What came of a step.

use std::path::PathBuf;

use bytes::Bytes;

use crate::audit::{AuditSummary, RunId};
use crate::packages::InstalledPackages;
use crate::policy::EnforcementReport;
use crate::runtime::RuntimeRunResult;
use crate::workspace::{MountReport, OutputFile, SkippedOutput};

/// What came of a step that ran to its end: the run's result, the files it left, what was really enforced.
///
/// `T` is what was done in the sandbox: one run of a script, unless it was a mode of the agent.
#[derive(Debug)]
pub struct StepResult<T = RuntimeRunResult> {
    /// The run, as it stands in the audit trail.
    pub run_id: RunId,
    /// The runtime's name.
    pub runtime: String,
    /// The digest of the skill's whole tree.
    pub skill_digest: String,
    /// What came of it; for a script, how it ended and what it wrote on its streams.
    pub run: T,
    /// The files it left in `/workspace/out`, sorted by path.
    pub outputs: Vec<DeliveredOutput>,
    /// What it left there that was not taken: links, special files, too much.
    pub skipped: Vec<SkippedOutput>,
    /// How much was not taken in all; `skipped` lists the first of it.
    pub skipped_total: u64,
    /// Packages that were installed for it.
    pub packages: Option<InstalledPackages>,
    /// Why results are not where the caller wanted them, when they are not.
    pub conflict: Option<OutputConflict>,
    /// What the guest did to the host folders it could write to.
    pub mounts: Vec<MountReport>,
    /// What was really enforced.
    pub enforcement: EnforcementReport,
    /// Counts of the audit trail.
    pub audit: AuditSummary,
}

/// Results that could not be put into the caller's folder: names were taken there. Nothing in it was changed, and no
/// result is lost.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct OutputConflict {
    /// The new folder, inside the caller's, that holds all results instead.
    pub folder: PathBuf,
    /// The results whose names were taken, each with the reason; at most [`MAX_CONFLICTS_LISTED`].
    pub files: Vec<ConflictingOutput>,
    /// How many there were.
    pub total: u64,
}

/// One result whose name was taken.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct ConflictingOutput {
    /// Its path below `/workspace/out`.
    pub path: String,
    /// What is in the way.
    pub reason: String,
}

/// More than a person reads; the rest is counted.
pub const MAX_CONFLICTS_LISTED: usize = 100;

/// One result file and where its content is now.
#[derive(Debug, Clone)]
pub struct DeliveredOutput {
    /// Path, size, digest, media type.
    pub file: OutputFile,
    /// The content, when it was to stay with the result and the results together are small enough.
    pub content: Option<Bytes>,
    /// The copy on this machine, when a folder was named.
    pub copied_to: Option<PathBuf>,
}
