//! What a guest did to a mounted folder: the folder is looked at before and after, and the difference is the change
//! list. For a private copy the list can be applied to the host's folder; removals are only ever listed.
//!
//! No link is followed. A file counts as unchanged when its number, size and both times are the same: a guest can set one of
//! the times, not the other. Invariant: applying replaces no file that changed on the host since the copy was made,
//! touches no protected name, and leaves each file whole, old or new.

use std::collections::BTreeMap;
use std::io;

use cap_fs_ext::DirExt;
use cap_std::fs::{Dir, Metadata};

use super::access::EntryKind;
use super::guest_path::check_name;
use super::ledger::{Outside, temporary_name};
use super::mounts::HostMount;
use super::transfer::{CreateMode, create_new, hash_into, is_executable, open_below, open_regular};
use super::{MAX_TREE_FILE_BYTES, Workspace};
use crate::audit::{AuditScope, Layer};
use crate::error::{ErrorKind, Result, SkillRuntimeError};
use crate::policy::{MountMode, MountPoint, Protection};

/// Entries of a writable mount: what changed in it must be known afterwards, so each is looked at twice.
pub const MAX_MOUNT_ENTRIES: usize = 200_000;
/// Folders on the way down.
const MAX_MOUNT_DEPTH: usize = 128;
/// Changes listed one by one; the rest are counted.
pub const MAX_CHANGES_LISTED: usize = 1_000;

/// What happened to one path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// It was not there before.
    Added,
    /// It is another file, or has other content, times or rights.
    Changed,
    /// It is gone; in a private copy that is a wish, and the host's file is still there.
    Removed,
}

/// One change in a mounted folder.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct MountChange {
    /// The path below the mount, `/` between parts; bytes that are no UTF-8 are shown as U+FFFD.
    pub path: String,
    /// What happened.
    pub change: ChangeKind,
    /// What it is now, or was.
    pub kind: EntryKind,
    /// Bytes of a file that is there.
    pub size: Option<u64>,
    /// SHA-256 of a file that is there and not larger than [`MAX_TREE_FILE_BYTES`].
    pub sha256: Option<String>,
    /// Whether it can be executed now.
    pub executable: bool,
    /// Why somebody should look at it: a name that runs code or grants access when it is met.
    pub protected: Option<&'static str>,
}

/// What a guest did to one mount.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct MountReport {
    /// Where the guest saw it.
    pub guest: MountPoint,
    /// What it was allowed.
    pub mode: MountMode,
    /// The changes, sorted by path, the protected and executable ones first; at most [`MAX_CHANGES_LISTED`].
    pub changes: Vec<MountChange>,
    /// How many there are in all.
    pub changes_total: u64,
    /// Paths written to the host's folder from a private copy.
    pub applied: Vec<String>,
    /// Paths that were to be applied and were not, each with the reason.
    pub not_applied: Vec<(String, String)>,
}

/// What a folder held at one moment.
#[derive(Debug, Default)]
pub(super) struct Snapshot {
    entries: BTreeMap<String, Stamp>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Stamp {
    kind: EntryKind,
    size: u64,
    executable: bool,
    /// Number, time of change and time of modification, where the host has them.
    identity: [i64; 5],
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        let kind = EntryKind::of(metadata.file_type());
        Self { kind, size: metadata.len(), executable: is_executable(metadata), identity: identity(metadata) }
    }
}

#[cfg(unix)]
fn identity(metadata: &Metadata) -> [i64; 5] {
    use cap_std::fs::MetadataExt;
    [metadata.ino().cast_signed(), metadata.mtime(), metadata.mtime_nsec(), metadata.ctime(), metadata.ctime_nsec()]
}

#[cfg(not(unix))]
fn identity(metadata: &Metadata) -> [i64; 5] {
    let modified = metadata
        .modified()
        .ok()
        .and_then(|time| time.into_std().duration_since(std::time::SystemTime::UNIX_EPOCH).ok());
    let seconds = modified.map_or(0, |time| time.as_secs().cast_signed());
    [0, seconds, modified.map_or(0, |time| i64::from(time.subsec_nanos())), 0, 0]
}

impl Snapshot {
    /// What there was: path and kind, sorted by path.
    pub(super) fn kinds(&self) -> impl Iterator<Item = (&str, EntryKind)> {
        self.entries.iter().map(|(path, stamp)| (path.as_str(), stamp.kind))
    }

    /// Looks at everything in a folder. What disappears meanwhile is left out; what can't be looked into is an error.
    pub(super) fn take(dir: &Dir) -> Result<Self> {
        let mut snapshot = Self::default();
        snapshot.folder(dir, "", 0)?;
        Ok(snapshot)
    }

    fn folder(&mut self, dir: &Dir, path: &str, depth: usize) -> Result<()> {
        let failed = |path: &str, error: io::Error| {
            SkillRuntimeError::new(
                ErrorKind::PathDenied,
                format!(
                    "'{}' in a mounted folder can't be looked at, so changes could not be told",
                    path.escape_debug()
                ),
            )
            .caused_by(error)
        };
        let over = |what: String| {
            SkillRuntimeError::new(
                ErrorKind::LimitExceeded,
                format!("a mounted folder has {what}; mount a smaller folder, or mount it read-only"),
            )
        };
        if depth > MAX_MOUNT_DEPTH {
            return Err(over(format!("folders deeper than {MAX_MOUNT_DEPTH}")));
        }
        for entry in dir.entries().map_err(|error| failed(path, error))? {
            let entry = entry.map_err(|error| failed(path, error))?;
            let name = entry.file_name();
            let shown = name.to_string_lossy();
            let below = if path.is_empty() { shown.into_owned() } else { format!("{path}/{shown}") };
            let metadata = match dir.symlink_metadata(&name) {
                Ok(metadata) => metadata,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(failed(&below, error)),
            };
            let stamp = Stamp::of(&metadata);
            if stamp.kind == EntryKind::Folder {
                match dir.open_dir_nofollow(&name) {
                    Ok(folder) => self.folder(&folder, &below, depth + 1)?,
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    Err(error) => return Err(failed(&below, error)),
                }
                // A folder's own times change with its entries, which are listed themselves.
                self.entries.insert(below, Stamp { size: 0, executable: false, identity: [0; 5], ..stamp });
            } else {
                self.entries.insert(below, stamp);
            }
            if self.entries.len() > MAX_MOUNT_ENTRIES {
                return Err(over(format!("more than {MAX_MOUNT_ENTRIES} entries")));
            }
        }
        Ok(())
    }
}

/// Whether changes in private copies go to the host's folders.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ApplyChanges {
    /// They are listed.
    #[default]
    Never,
    /// What was added or changed is written to the host's folders when the run succeeded; removals are listed.
    OnSuccess,
}

impl Workspace {
    /// What the guest did to the mounts it could write to, and the copying of it to the host where that is wanted. A run
    /// must not be under way.
    ///
    /// # Errors
    /// As [`Workspace::stage_mounts`] when a folder can't be looked at any more. What can't be applied is no error: it is in
    /// the report, and one denial in the audit trail.
    pub fn mount_reports(&self, apply: ApplyChanges, audit: &AuditScope) -> Result<Vec<MountReport>> {
        let reports = self.host_mounts().iter().filter_map(|mount| mount.before.as_ref().map(|before| (mount, before)));
        reports
            .map(|(mount, before)| {
                let changes = changes_of(mount, before)?;
                let mut report = MountReport {
                    guest: mount.guest().clone(),
                    mode: mount.mode(),
                    changes_total: changes.len() as u64,
                    changes: Vec::new(),
                    applied: Vec::new(),
                    not_applied: Vec::new(),
                };
                if apply == ApplyChanges::OnSuccess && mount.original.is_some() {
                    apply_changes(self, mount, &changes, &mut report, audit);
                }
                report.changes = listed(changes);
                Ok(report)
            })
            .collect::<Result<_>>()
            .map_err(|error: SkillRuntimeError| error.operation("collect"))
    }
}

/// The first of the changes, those that somebody should look at before the others.
fn listed(mut changes: Vec<MountChange>) -> Vec<MountChange> {
    changes.sort_by_key(|change| (change.protected.is_none(), !change.executable));
    changes.truncate(MAX_CHANGES_LISTED);
    changes
}

fn changes_of(mount: &HostMount, before: &Snapshot) -> Result<Vec<MountChange>> {
    let after = Snapshot::take(mount.dir())?;
    let mut changes = Vec::new();
    let protected = |path: &str| match mount.protection_on_host(path.split('/')) {
        Protection::Protected(why) => Some(why),
        Protection::Free | Protection::Above => None,
    };
    for (path, stamp) in &before.entries {
        if !after.entries.contains_key(path) {
            changes.push(MountChange {
                path: path.clone(),
                change: ChangeKind::Removed,
                kind: stamp.kind,
                size: None,
                sha256: None,
                executable: false,
                protected: protected(path),
            });
        }
    }
    for (path, stamp) in &after.entries {
        let change = match before.entries.get(path) {
            Some(before) if before == stamp => continue,
            Some(_) => ChangeKind::Changed,
            None => ChangeKind::Added,
        };
        let file = stamp.kind == EntryKind::File;
        changes.push(MountChange {
            path: path.clone(),
            change,
            kind: stamp.kind,
            size: file.then_some(stamp.size),
            sha256: if file { digest(mount.dir(), path) } else { None },
            executable: file && stamp.executable,
            protected: protected(path),
        });
    }
    changes.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(changes)
}

/// The digest of a file, unless it is too large or gone.
fn digest(root: &Dir, path: &str) -> Option<String> {
    let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
    let folder = open_below(root, parent.split('/')).ok()?;
    let (mut file, metadata) = open_regular(&folder, name).ok()?;
    if metadata.len() > MAX_TREE_FILE_BYTES {
        return None;
    }
    let hashed = hash_into(&mut file, metadata.len(), MAX_TREE_FILE_BYTES, &mut io::sink()).ok()?;
    (hashed.bytes <= MAX_TREE_FILE_BYTES).then_some(hashed.sha256)
}

/// Writes what was added or changed to the host's folder, file by file.
fn apply_changes(
    workspace: &Workspace,
    mount: &HostMount,
    changes: &[MountChange],
    report: &mut MountReport,
    audit: &AuditScope,
) {
    let Some((host, stamps)) = &mount.original else { return };
    for change in changes {
        let object = format!("{}/{}", mount.guest(), change.path);
        let outcome = match (change.change, change.kind) {
            (ChangeKind::Removed, _) | (_, EntryKind::Folder) => continue,
            (_, EntryKind::Link | EntryKind::Special) => Err("is a link or a special file".to_owned()),
            (ChangeKind::Added | ChangeKind::Changed, EntryKind::File) => {
                apply_file(workspace, mount, (host, stamps), change)
            }
        };
        match outcome {
            Ok(()) => report.applied.push(change.path.clone()),
            Err(why) => {
                audit.deny(Layer::Files, "apply", &object, &why);
                report.not_applied.push((change.path.clone(), why));
            }
        }
    }
}

fn apply_file(
    workspace: &Workspace,
    mount: &HostMount,
    (host, stamps): (&Dir, &Snapshot),
    change: &MountChange,
) -> std::result::Result<(), String> {
    let said = |error: io::Error| format!("could not be written: {error}");
    for name in change.path.split('/') {
        check_name(name)?;
    }
    match mount.protection_on_host(change.path.split('/')) {
        Protection::Free => {}
        Protection::Above => return Err("is a file where a folder with protected names belongs".to_owned()),
        Protection::Protected(why) => return Err(format!("is protected: {why}")),
    }
    let Some(sha256) = &change.sha256 else { return Err("is too large to be applied".to_owned()) };
    let (parent, name) = change.path.rsplit_once('/').unwrap_or(("", &change.path));
    let source = open_below(mount.dir(), parent.split('/')).map_err(said)?;
    let (mut source, metadata) = open_regular(&source, name).map_err(said)?;
    let mut folder = host.try_clone().map_err(said)?;
    for part in parent.split('/').filter(|part| !part.is_empty()) {
        match folder.create_dir(part) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(said(error)),
            _ => {}
        }
        folder = folder.open_dir_nofollow(part).map_err(said)?;
    }
    let now = folder.symlink_metadata(name).ok().map(|metadata| Stamp::of(&metadata));
    if now.as_ref() != stamps.entries.get(&change.path) {
        return Err("changed on the host during the run; it was left as it is".to_owned());
    }
    if now.is_some_and(|now| now.kind != EntryKind::File) {
        return Err("is no regular file on the host".to_owned());
    }
    // A fixed name could be in use, or planted; a file of a process that died is never taken for ours.
    let temporary = temporary_name().map_err(|error| error.to_string())?;
    let place = mount.host.join(parent).join(&temporary);
    workspace.record(&Outside::File(place)).map_err(|error| error.to_string())?;
    let written = create_new(&folder, &temporary, change.executable, CreateMode::Ordinary).and_then(|mut file| {
        let hashed = hash_into(&mut source, metadata.len(), MAX_TREE_FILE_BYTES, &mut file)?;
        if hashed.sha256 != *sha256 {
            return Err(io::Error::other("it changed while it was applied"));
        }
        file.sync_all()?;
        folder.rename(&temporary, &folder, name)
    });
    written.map_err(|error| {
        // Our own file under a random name; the first error says more.
        let _ = folder.remove_file(&temporary);
        said(error)
    })
}
