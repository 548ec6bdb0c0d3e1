//! What a run makes outside its workspace's folder, written down in that folder before it is made: temporary files beside
//! results that are being copied, and control groups. Whoever removes the workspace, its own process or the next start,
//! undoes this first.
//!
//! A guest of a runtime that confines nothing can write to the ledger. So an entry is no order: only what is of its kind,
//! ours by name and ours by owner is undone, and that is nothing such a guest couldn't remove itself.

use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use cap_fs_ext::{FollowSymlinks, OpenOptionsFollowExt};
use cap_std::ambient_authority;
use cap_std::fs::{Dir, OpenOptions};

use super::root::Workspace;
use crate::digest::hex;
use crate::error::{Result, SkillRuntimeError};

/// What temporary files of ours begin with; sixteen hexadecimal digits follow.
const TEMPORARY: &str = ".skillcell-";
/// What control groups of a run begin with; its id follows.
const GROUP: &str = "skillcell-";
/// A longer ledger isn't ours: an entry takes some hundred bytes, and a run makes a few.
const MAX_LEDGER_BYTES: u64 = 8 << 20;

/// One thing outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outside {
    /// A temporary file, named by [`temporary_name`].
    File(PathBuf),
    /// A control group, named by [`Workspace::group_name`].
    #[cfg_attr(not(feature = "groups"), expect(dead_code, reason = "only processes have control groups"))]
    Group(PathBuf),
}

/// A name for a temporary file that the ledger knows for ours.
pub(super) fn temporary_name() -> io::Result<String> {
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(io::Error::other)?;
    Ok(format!("{TEMPORARY}{:016x}", u64::from_be_bytes(random)))
}

impl Workspace {
    /// The name of the ledger in the workspace's own folder, beside the areas. No business of a guest.
    pub const LEDGER: &str = "ledger";

    /// Writes down what is about to be made.
    ///
    /// # Errors
    /// [`Backend`](crate::ErrorKind::Backend); then it must not be made.
    pub(crate) fn record(&self, outside: &Outside) -> Result<()> {
        let (kind, path) = match outside {
            Outside::File(path) => ("file", path),
            Outside::Group(path) => ("group", path),
        };
        let line = || -> io::Result<()> {
            let path = std::path::absolute(path)?;
            let mut options = OpenOptions::new();
            options.append(true).create(true).follow(FollowSymlinks::No);
            // One write, so that a line is there whole or not at all.
            let line = format!("{kind} {}\n", hex(path.as_os_str().as_encoded_bytes()));
            self.root().open_with(Workspace::LEDGER, &options)?.write_all(line.as_bytes())
        };
        line().map_err(|error| SkillRuntimeError::backend("could not write to the ledger of the run", error))
    }

    /// A name for a control group of this run.
    #[cfg(all(feature = "groups", target_os = "linux"))]
    pub(crate) fn group_name(&self, number: u64) -> String {
        format!("{GROUP}{}-{number}", id_of(self.name()))
    }
}

/// The run's id in the name of its workspace.
fn id_of(workspace: &str) -> &str {
    workspace.strip_prefix(super::leftovers::PREFIX).unwrap_or(workspace)
}

/// Undoes what the ledger of a workspace names. What is gone already, or isn't ours, is passed over.
///
/// # Errors
/// When something of ours is there and can't be removed.
pub(super) fn undo(root: &Dir, workspace: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.read(true).follow(FollowSymlinks::No);
    let file = match root.open_with(Workspace::LEDGER, &options) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        // A guest put something else in its place; what the run made can't be told any more.
        Err(_) => return Ok(()),
    };
    if !file.metadata()?.is_file() {
        return Ok(());
    }
    let mut text = String::new();
    if file.take(MAX_LEDGER_BYTES).read_to_string(&mut text).is_err() {
        return Ok(());
    }
    // A last line without an end was being written when the process was killed: what it names was not made.
    for line in text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
        let Some((kind, path)) = line.split_once(' ').and_then(|(kind, path)| Some((kind, path_of(path)?))) else {
            continue;
        };
        let (Some(parent), Some(name)) = (path.parent(), path.file_name().and_then(OsStr::to_str)) else { continue };
        match kind {
            "file" if is_temporary(name) => remove_file(parent, name)?,
            "group" if is_group_of(name, id_of(workspace)) => remove_group(parent, name, is_group_file_system)?,
            _ => {}
        }
    }
    Ok(())
}

fn path_of(text: &str) -> Option<PathBuf> {
    let bytes: Option<Vec<u8>> = (0..text.len())
        .step_by(2)
        .map(|at| text.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok()))
        .collect();
    #[cfg(unix)]
    let path = PathBuf::from(<std::ffi::OsString as std::os::unix::ffi::OsStringExt>::from_vec(bytes?));
    #[cfg(not(unix))]
    let path = PathBuf::from(String::from_utf8(bytes?).ok()?);
    path.is_absolute().then_some(path)
}

fn is_temporary(name: &str) -> bool {
    name.strip_prefix(TEMPORARY)
        .is_some_and(|digits| digits.len() == 16 && digits.bytes().all(|b| b.is_ascii_hexdigit()))
}

fn is_group_of(name: &str, id: &str) -> bool {
    let number =
        name.strip_prefix(GROUP).and_then(|rest| rest.strip_prefix(id)).and_then(|rest| rest.strip_prefix('-'));
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
}

fn remove_file(parent: &Path, name: &str) -> io::Result<()> {
    let Ok(folder) = Dir::open_ambient_dir(parent, ambient_authority()) else { return Ok(()) };
    let Ok(metadata) = folder.symlink_metadata(name) else { return Ok(()) };
    if !metadata.is_file() || !is_ours(&metadata) {
        return Ok(());
    }
    match folder.remove_file(name) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(unix)]
fn is_ours(metadata: &cap_std::fs::Metadata) -> bool {
    cap_std::fs::MetadataExt::uid(metadata) == rustix::process::geteuid().as_raw()
}

#[cfg(not(unix))]
fn is_ours(_metadata: &cap_std::fs::Metadata) -> bool {
    true
}

/// Ends what is left in a control group, and removes it.
fn remove_group(parent: &Path, name: &str, is_right_place: impl Fn(&Dir) -> bool) -> io::Result<()> {
    /// The kernel takes a moment to take dead processes out of a group.
    const ATTEMPTS: u32 = 100;
    const PAUSE: std::time::Duration = std::time::Duration::from_millis(5);
    let Ok(folder) = Dir::open_ambient_dir(parent, ambient_authority()) else { return Ok(()) };
    let Ok(group) = folder.open_dir(name) else { return Ok(()) };
    if !is_right_place(&group) {
        return Ok(());
    }
    let mut options = OpenOptions::new();
    options.write(true);
    // Before Linux 5.14 there is no such file; a killed host's processes die with their supervisor then.
    if let Ok(mut kill) = group.open_with("cgroup.kill", &options) {
        kill.write_all(b"1")?;
    }
    drop(group);
    let mut last = Ok(());
    for _ in 0..ATTEMPTS {
        last = match folder.remove_dir(name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other,
        };
        if last.is_ok() {
            return Ok(());
        }
        std::thread::sleep(PAUSE);
    }
    last
}

#[cfg(target_os = "linux")]
fn is_group_file_system(folder: &Dir) -> bool {
    /// `CGROUP2_SUPER_MAGIC`.
    const CGROUP2: u64 = 0x6367_7270;
    rustix::fs::fstatfs(folder).is_ok_and(|statistics| statistics.f_type as u64 == CGROUP2)
}

#[cfg(not(target_os = "linux"))]
fn is_group_file_system(_folder: &Dir) -> bool {
    false
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use crate::audit::RunId;

    #[test]
    fn only_what_is_ours_by_kind_name_and_owner_is_undone() {
        let (parent, host) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let workspace = Workspace::create_in(parent.path(), RunId::random().unwrap()).unwrap();
        let folder = Dir::open_ambient_dir(host.path(), ambient_authority()).unwrap();
        let ours = temporary_name().unwrap();
        let kept = ["results.csv", ".skillcell-notes", ".skillcell-0123456789abcdeg", ".skillcell-0123456789abcdef0"];
        for name in kept.into_iter().chain([ours.as_str()]) {
            folder.write(name, "x").unwrap();
        }
        // Of our name, but no file; and a link to something of the person's.
        folder.create_dir(".skillcell-00000000000000aa").unwrap();
        folder.symlink("results.csv", ".skillcell-00000000000000bb").unwrap();
        folder.create_dir("skillcell-1-1").unwrap();
        for name in kept.into_iter().chain([&ours, ".skillcell-00000000000000aa", ".skillcell-00000000000000bb"]) {
            workspace.record(&Outside::File(host.path().join(name))).unwrap();
        }
        // A folder that isn't in the file system of control groups.
        let group = format!("{GROUP}{}-1", id_of(workspace.name()));
        folder.create_dir(&group).unwrap();
        for name in [&group, "skillcell-1-1", "results.csv"] {
            workspace.record(&Outside::Group(host.path().join(name))).unwrap();
        }
        // Torn, and forged.
        let mut options = OpenOptions::new();
        let mut ledger = workspace.root().open_with(Workspace::LEDGER, options.append(true)).unwrap();
        ledger.write_all(b"file zz\nfile 2f\nfile \nother 2f61\n\n file\nfile 2f746d70").unwrap();
        undo(workspace.root(), workspace.name()).unwrap();
        let mut left: Vec<String> =
            folder.entries().unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        left.sort();
        let mut expected = kept.map(str::to_owned).to_vec();
        expected.extend([".skillcell-00000000000000aa".into(), ".skillcell-00000000000000bb".into()]);
        expected.extend([group, "skillcell-1-1".into()]);
        expected.sort();
        assert_eq!(left, expected);
    }

    #[test]
    fn a_group_is_emptied_and_removed() {
        let place = tempfile::tempdir().unwrap();
        let folder = Dir::open_ambient_dir(place.path(), ambient_authority()).unwrap();
        folder.create_dir("skillcell-1-1").unwrap();
        remove_group(place.path(), "skillcell-1-1", |_| false).unwrap();
        assert!(folder.exists("skillcell-1-1"));
        remove_group(place.path(), "skillcell-1-1", |_| true).unwrap();
        assert!(!folder.exists("skillcell-1-1"));
        remove_group(place.path(), "skillcell-1-1", |_| true).unwrap();
        assert!(is_group_of("skillcell-ab-0", "ab") && !is_group_of("skillcell-ab-", "ab"));
        assert!(!is_group_of("skillcell-ab-0/..", "ab") && !is_group_of("skillcell-abc-0", "ab"));
    }
}
