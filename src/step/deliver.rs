//! Taking results out of the workspace, to where the caller wants them.
//!
//! Invariant: what a script left and the rules took is never lost because of what lies in the caller's folder, and
//! nothing in that folder is replaced unless the caller said so.

use std::path::Path;

use super::config::OutputDelivery;
use super::plan::StepPlan;
use super::result::{ConflictingOutput, DeliveredOutput, MAX_CONFLICTS_LISTED, OutputConflict};
use crate::audit::{AuditScope, RunId};
use crate::error::{ErrorKind, Result};
use crate::workspace::{ApplyChanges, Collected, MountReport, OutputFile, Overwrite, SkippedOutput, Workspace};

/// What was taken out of `/workspace/out`, where the caller wants it.
#[derive(Default)]
pub(super) struct Delivered {
    pub(super) outputs: Vec<DeliveredOutput>,
    pub(super) skipped: Vec<SkippedOutput>,
    pub(super) skipped_total: u64,
    pub(super) mounts: Vec<MountReport>,
    pub(super) conflict: Option<OutputConflict>,
}

/// Takes the results out, to where the caller wants them.
pub(super) fn collect(
    plan: &StepPlan,
    workspace: &Workspace,
    apply: ApplyChanges,
    audit: &AuditScope,
) -> Result<Delivered> {
    let mounts = workspace.mount_reports(apply, audit);
    let collected = workspace.collect(&plan.collect, audit)?;
    let (folder, conflict) = match &plan.output {
        OutputDelivery::InResult => (None, None),
        OutputDelivery::Folder { path, overwrite } => {
            let conflict = deliver(&collected, workspace, path, *overwrite, audit.run())?;
            (Some(conflict.as_ref().map_or(path.clone(), |conflict| conflict.folder.clone())), conflict)
        }
    };
    let copied_to = |file: &OutputFile| folder.as_ref().map(|folder| folder.join(&file.path));
    let outputs = collected
        .files()
        .iter()
        .map(|file| {
            let content = match plan.output {
                OutputDelivery::InResult => collected.held(&file.path),
                OutputDelivery::Folder { .. } => None,
            };
            DeliveredOutput { content, copied_to: copied_to(file), file: file.clone() }
        })
        .collect();
    Ok(Delivered {
        outputs,
        skipped: collected.skipped().to_vec(),
        skipped_total: collected.skipped_total(),
        mounts,
        conflict,
    })
}

/// Puts the results into the caller's folder; where names are taken, all of them into a new folder in it, so that a script
/// that ran for an hour doesn't lose its work and no file of the caller's is touched.
fn deliver(
    collected: &Collected,
    workspace: &Workspace,
    to: &Path,
    overwrite: Overwrite,
    run: RunId,
) -> Result<Option<OutputConflict>> {
    let mut taken = collected.conflicts(to, overwrite)?;
    if taken.is_empty() {
        match collected.export(workspace, to, overwrite) {
            Ok(()) => return Ok(None),
            // Somebody was quicker.
            Err(error) if matches!(error.kind(), ErrorKind::InvalidConfig | ErrorKind::PathDenied) => {
                taken = collected.conflicts(to, overwrite)?;
                if taken.is_empty() {
                    return Err(error);
                }
            }
            Err(error) => return Err(error),
        }
    }
    let folder = to.join(format!("skillcell-{run}"));
    collected.export(workspace, &folder, Overwrite::Refuse)?;
    let total = taken.len() as u64;
    taken.truncate(MAX_CONFLICTS_LISTED);
    let files = taken.into_iter().map(|(path, reason)| ConflictingOutput { path, reason }).collect();
    Ok(Some(OutputConflict { folder, files, total }))
}
