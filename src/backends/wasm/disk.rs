//! Looks while a guest runs at how much lies in `/workspace/out` and `/workspace/tmp`, and ends it over the limit.
//!
//! The guest writes straight to host files, so an excess is seen after it happened: what can be written between two
//! looks may lie there when the run ends, and a guest that keeps moving its folders about can hide what lies in them from
//! a look. So the limit is declared advisory. Sizes count sparse holes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cap_fs_ext::DirExt;
use cap_std::fs::Dir;

use super::interrupt::{Interrupt, Reason};
use crate::policy::Limits;
use crate::workspace::{Area, Workspace};

/// Between two looks. In this time a guest can write some tens of megabytes or create some hundreds of files.
const INTERVAL: Duration = Duration::from_millis(5);
/// Looking may take this part of the time at most: a look at 10,000 files takes some milliseconds.
const SHARE: u32 = 5;

/// Ready when the limit is passed and the guest was told to end.
pub(super) async fn watch(workspace: &Arc<Workspace>, limits: &Limits, interrupt: &Interrupt) {
    let mut pause = INTERVAL;
    loop {
        tokio::time::sleep(pause).await;
        let (workspace, limits) = (workspace.clone(), limits.clone());
        let looked = tokio::task::spawn_blocking(move || {
            let started = Instant::now();
            (exceeded(&workspace, &limits), started.elapsed())
        });
        let Ok((exceeded, took)) = looked.await else { continue };
        if exceeded {
            interrupt.fire(Reason::Disk);
            // The run's own thread says how it ended; it is at most one host call away.
            tokio::time::sleep(super::run::GRACE).await;
            return;
        }
        pause = INTERVAL.max(took * SHARE);
    }
}

/// Whether more lies there than may.
pub(super) fn exceeded(workspace: &Workspace, limits: &Limits) -> bool {
    let mut found = Found::default();
    [Area::Out, Area::Tmp]
        .into_iter()
        .any(|area| workspace.area(area).try_clone().is_ok_and(|dir| found.add(dir, limits)))
}

#[derive(Default)]
struct Found {
    bytes: u64,
    files: u64,
}

impl Found {
    /// Adds up a tree, with a list rather than recursion (a guest chooses the depth), and stops at the limit.
    fn add(&mut self, dir: Dir, limits: &Limits) -> bool {
        let mut folders = vec![dir];
        while let Some(folder) = folders.pop() {
            let Ok(entries) = folder.entries() else { continue };
            // A file may vanish between the listing and the look.
            for entry in entries.flatten() {
                self.files += 1;
                let Ok(metadata) = entry.metadata() else { continue };
                if metadata.is_file() {
                    self.bytes = self.bytes.saturating_add(metadata.len());
                }
                if self.bytes > limits.disk || self.files > limits.files {
                    return true;
                }
                if metadata.is_dir()
                    && let Ok(below) = folder.open_dir_nofollow(entry.file_name())
                {
                    folders.push(below);
                }
            }
        }
        false
    }
}
