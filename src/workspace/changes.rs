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
/// Bits of a mode by which a file runs as its owner or group.
#[cfg(unix)]
const SET_ID: u32 = 0o6000;
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
    /// The path below the mount, `/` between parts; a byte that is no UTF-8 is shown as `\xNN`, a backslash as two.
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
    /// Why the list isn't whole: what the guest made could not all be looked at. Nothing is applied then, and removals are
    /// not told.
    pub incomplete: Option<String>,
    /// Paths written to the host's folder from a private copy.
    pub applied: Vec<String>,
    /// Paths that were to be applied and were not, each with the reason.
    pub not_applied: Vec<(String, String)>,
}

/// What a folder held at one moment.
#[derive(Debug, Default)]
pub(super) struct Snapshot {
    entries: BTreeMap<String, Stamp>,
    /// The first thing that could not be looked at.
    missed: Option<SkillRuntimeError>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Stamp {
    kind: EntryKind,
    size: u64,
    executable: bool,
    set_id: bool,
    /// Number, time of change and time of modification, where the host has them.
    identity: [i64; 5],
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        let kind = EntryKind::of(metadata.file_type());
        Self {
            kind,
            size: metadata.len(),
            executable: is_executable(metadata),
            set_id: kind == EntryKind::File && runs_as_its_owner(metadata),
            identity: identity(metadata),
        }
    }
}

#[cfg(unix)]
fn identity(metadata: &Metadata) -> [i64; 5] {
    use cap_std::fs::MetadataExt;
    [metadata.ino().cast_signed(), metadata.mtime(), metadata.mtime_nsec(), metadata.ctime(), metadata.ctime_nsec()]
}

#[cfg(unix)]
fn runs_as_its_owner(metadata: &Metadata) -> bool {
    cap_std::fs::MetadataExt::mode(metadata) & SET_ID != 0
}

#[cfg(not(unix))]
fn runs_as_its_owner(_metadata: &Metadata) -> bool {
    false
}

/// Takes from a file the right to run as its owner or group; what to say of it.
#[cfg(unix)]
fn take_set_id(root: &Dir, path: &str) -> &'static str {
    use cap_std::fs::{MetadataExt, Permissions, PermissionsExt};
    let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
    let taken = open_below(root, parent.split('/'))
        .and_then(|folder| open_regular(&folder, name))
        .and_then(|(file, metadata)| file.set_permissions(Permissions::from_mode(metadata.mode() & 0o7777 & !SET_ID)));
    match taken {
        Ok(()) => "it ran as its owner or group, which was taken from it",
        Err(_) => "it runs as its owner or group, and that could not be taken from it",
    }
}

#[cfg(not(unix))]
fn take_set_id(_root: &Dir, _path: &str) -> &'static str {
    "it runs as its owner or group"
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
        let mut snapshot = Self::of_what_can_be_seen(dir);
        snapshot.missed.take().map_or(Ok(snapshot), Err)
    }

    /// The same after a guest: what can't be looked into is noted, and the rest is looked at.
    fn of_what_can_be_seen(dir: &Dir) -> Self {
        let mut snapshot = Self::default();
        snapshot.folder(dir, "", 0);
        snapshot
    }

    fn unseen(&mut self, path: &str, error: io::Error) {
        self.missed.get_or_insert_with(|| {
            SkillRuntimeError::new(
                ErrorKind::PathDenied,
                format!(
                    "'{}' in a mounted folder can't be looked at, so changes could not be told",
                    path.escape_debug()
                ),
            )
            .caused_by(error)
        });
    }

    fn over(&mut self, what: &str) {
        self.missed.get_or_insert_with(|| {
            SkillRuntimeError::new(
                ErrorKind::LimitExceeded,
                format!("a mounted folder has {what}; mount a smaller folder, or mount it read-only"),
            )
        });
    }

    fn folder(&mut self, dir: &Dir, path: &str, depth: usize) {
        if depth > MAX_MOUNT_DEPTH {
            return self.over(&format!("folders deeper than {MAX_MOUNT_DEPTH}"));
        }
        let entries = match dir.entries() {
            Ok(entries) => entries,
            Err(error) => return self.unseen(path, error),
        };
        for entry in entries {
            if self.entries.len() >= MAX_MOUNT_ENTRIES {
                return self.over(&format!("more than {MAX_MOUNT_ENTRIES} entries"));
            }
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => return self.unseen(path, error),
            };
            let name = entry.file_name();
            let shown = distinct(&name);
            let below = if path.is_empty() { shown } else { format!("{path}/{shown}") };
            let metadata = match dir.symlink_metadata(&name) {
                Ok(metadata) => metadata,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => {
                    self.unseen(&below, error);
                    continue;
                }
            };
            let stamp = Stamp::of(&metadata);
            if stamp.kind == EntryKind::Folder {
                match dir.open_dir_nofollow(&name) {
                    Ok(folder) => self.folder(&folder, &below, depth + 1),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    Err(error) => self.unseen(&below, error),
                }
                // A folder's own times change with its entries, which are listed themselves.
                self.entries.insert(below, Stamp { size: 0, executable: false, identity: [0; 5], ..stamp });
            } else {
                self.entries.insert(below, stamp);
            }
        }
    }
}

/// A name as text that no other name has: bytes that are no UTF-8, and backslashes, are escaped.
fn distinct(name: &std::ffi::OsStr) -> String {
    let mut text = String::new();
    for chunk in name.as_encoded_bytes().utf8_chunks() {
        text.push_str(&chunk.valid().replace('\\', "\\\\"));
        chunk.invalid().iter().for_each(|byte| text.push_str(&format!("\\x{byte:02x}")));
    }
    text
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
    /// What can't be looked at or applied is in the report, and a denial in the audit trail.
    pub fn mount_reports(&self, apply: ApplyChanges, audit: &AuditScope) -> Vec<MountReport> {
        let reports = self.host_mounts().iter().filter_map(|mount| mount.before.as_ref().map(|before| (mount, before)));
        reports
            .map(|(mount, before)| {
                let (changes, missed) = changes_of(mount, before);
                let mut report = MountReport {
                    guest: mount.guest().clone(),
                    mode: mount.mode(),
                    changes_total: changes.len() as u64,
                    changes: Vec::new(),
                    incomplete: missed.map(|missed| missed.to_string()),
                    applied: Vec::new(),
                    not_applied: Vec::new(),
                };
                if let Some(why) = &report.incomplete {
                    audit.deny(Layer::Files, "changes", mount.guest().as_str(), why);
                } else if apply == ApplyChanges::OnSuccess && mount.original.is_some() {
                    apply_changes(self, mount, &changes, &mut report, audit);
                }
                report.changes = listed(changes);
                report
            })
            .collect()
    }
}

/// The first of the changes, those that somebody should look at before the others.
fn listed(mut changes: Vec<MountChange>) -> Vec<MountChange> {
    changes.sort_by_key(|change| (change.protected.is_none(), !change.executable));
    changes.truncate(MAX_CHANGES_LISTED);
    changes
}

fn changes_of(mount: &HostMount, before: &Snapshot) -> (Vec<MountChange>, Option<SkillRuntimeError>) {
    let after = Snapshot::of_what_can_be_seen(mount.dir());
    let mut changes = Vec::new();
    let protected = |path: &str| match mount.protection_on_host(path.split('/')) {
        Protection::Protected(why) => Some(why),
        Protection::Free | Protection::Above => None,
    };
    for (path, stamp) in &before.entries {
        if after.missed.is_none() && !after.entries.contains_key(path) {
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
            protected: if stamp.set_id { Some(take_set_id(mount.dir(), path)) } else { protected(path) },
        });
    }
    changes.sort_by(|a, b| a.path.cmp(&b.path));
    (changes, after.missed)
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
        if let Ok(old) = folder.symlink_metadata(name) {
            keep_owner_and_rights(&file, &old, change.executable)?;
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

/// Gives a file the owner and the rights of the one whose place it takes; who may execute it follows the guest.
#[cfg(unix)]
fn keep_owner_and_rights(file: &cap_std::fs::File, old: &Metadata, executable: bool) -> io::Result<()> {
    use cap_std::fs::{MetadataExt, Permissions, PermissionsExt};
    let new = file.metadata()?;
    if (new.uid(), new.gid()) != (old.uid(), old.gid()) {
        let (user, group) = (rustix::fs::Uid::from_raw(old.uid()), rustix::fs::Gid::from_raw(old.gid()));
        rustix::fs::fchown(file, Some(user), Some(group))?;
    }
    let mode = old.mode() & 0o777;
    let mode = match (executable, mode & 0o111 != 0) {
        (true, false) => mode | (mode & 0o444) >> 2,
        (false, true) => mode & !0o111,
        (true, true) | (false, false) => mode,
    };
    file.set_permissions(Permissions::from_mode(mode))
}

#[cfg(not(unix))]
fn keep_owner_and_rights(_file: &cap_std::fs::File, _old: &Metadata, _executable: bool) -> io::Result<()> {
    Ok(())
}
