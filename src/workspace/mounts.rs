//! Extra host folders: opened once, before anything runs, and held by handle. A copy-on-write mount is a private copy in
//! the workspace's own folder, so every runtime can show it as it shows any writable folder.
//!
//! What a guest does with names in a writable mount is decided by [`HostMount::protection`]; what it did is found by
//! `changes.rs`. Nothing here writes to the host.

use std::path::{Path, PathBuf};

use cap_fs_ext::DirExt;
use cap_std::ambient_authority;
use cap_std::fs::Dir;

use super::changes::Snapshot;
use super::host_tree::{HostTree, open_error};
use super::private_dir::{PRIVATE_MARK, private_home};
use super::root::Workspace;
use super::stage::copy_tree;
use super::transfer::CreateMode;
use crate::error::{ErrorKind, Result, SkillRuntimeError};
use crate::policy::{MountMode, MountPoint, MountRequest, Protection, protection};

/// Components of the host's own path that are looked at to know what a mounted folder is: no protected pattern is longer.
const NAMED_ABOVE: usize = 3;

/// Folders of the host that hold no data but the system's own state, sockets of its services among it: whoever can reach
/// those is outside of every sandbox.
const NEVER: [&str; 5] = ["/proc", "/sys", "/dev", "/run", "/var/run"];

/// A host folder that the guest sees beside its workspace.
#[derive(Debug)]
pub struct HostMount {
    guest: MountPoint,
    mode: MountMode,
    dir: Dir,
    /// The host's own folder, where that isn't what the guest gets.
    pub(super) original: Option<(Dir, Snapshot)>,
    /// What was there before the run, in a folder the guest may change.
    pub(super) before: Option<Snapshot>,
    above: Vec<String>,
    /// The host's folder as it was named: for the ledger.
    pub(super) host: PathBuf,
}

impl HostMount {
    /// Where the guest sees it.
    #[must_use]
    pub fn guest(&self) -> &MountPoint {
        &self.guest
    }

    /// What was asked for.
    #[must_use]
    pub fn mode(&self) -> MountMode {
        self.mode
    }

    /// What a runtime has to do: as [`mode`](Self::mode), but copy-on-write is read-write here, since
    /// [`dir`](Self::dir) is a private copy then.
    #[must_use]
    pub fn access(&self) -> MountMode {
        match self.mode {
            MountMode::CopyOnWrite => MountMode::ReadWrite,
            MountMode::ReadOnly | MountMode::ReadWrite | MountMode::ReadWriteWithoutDelete => self.mode,
        }
    }

    /// The folder to show, held open: a swap of the host path changes nothing.
    #[must_use]
    pub fn dir(&self) -> &Dir {
        &self.dir
    }

    /// The user whom the folder belongs to.
    ///
    /// # Errors
    /// [`Backend`](ErrorKind::Backend) when the system doesn't say.
    #[cfg(unix)]
    pub fn owner(&self) -> Result<u32> {
        use cap_std::fs::MetadataExt;
        let metadata = self.dir.dir_metadata();
        metadata.map(|metadata| metadata.uid()).map_err(|error| {
            SkillRuntimeError::backend(format!("could not look at the folder mounted at '{}'", self.guest), error)
        })
    }

    /// What a path below the mount means (components, top first, links resolved). Nothing is protected in a private copy:
    /// that is decided when changes are applied.
    #[must_use]
    pub fn protection<'a>(&self, parts: impl IntoIterator<Item = &'a str>) -> Protection {
        if self.mode.writes_to_host() { self.protection_on_host(parts) } else { Protection::Free }
    }

    /// What a path means in the host's folder.
    pub(super) fn protection_on_host<'a>(&self, parts: impl IntoIterator<Item = &'a str>) -> Protection {
        protection(&self.above, parts)
    }
}

impl Workspace {
    /// Opens the host folders of a run and copies those that are copy-on-write.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound) with the path as typed; [`PathDenied`](ErrorKind::PathDenied) for what is no
    /// folder, or for a protected folder that the guest could write to; as [`HostTree::open_folder`] for a copy;
    /// [`LimitExceeded`](ErrorKind::LimitExceeded) for a writable folder with too many entries to say what changed.
    pub fn stage_mounts(&mut self, requests: &[MountRequest]) -> Result<()> {
        for (index, request) in requests.iter().enumerate() {
            let mount = self.stage_mount(index, request).map_err(|error| error.operation("stage"))?;
            self.host_mounts.push(mount);
        }
        Ok(())
    }

    /// The host folders the guest sees beside its workspace.
    #[must_use]
    pub fn host_mounts(&self) -> &[HostMount] {
        &self.host_mounts
    }

    /// Whether a folder of the host (its real path) holds this workspace, or lies in it.
    fn shares_a_tree_with(&self, real: &Path) -> Result<bool> {
        let ours = real_path(self.ambient_root())?;
        Ok(ours.starts_with(real) || real.starts_with(&ours))
    }

    fn stage_mount(&self, index: usize, request: &MountRequest) -> Result<HostMount> {
        let path = &request.host;
        let dir =
            Dir::open_ambient_dir(path, ambient_authority()).map_err(|error| open_error(path, "folder", error))?;
        let real = real_path(path)?;
        let mut mount = HostMount {
            guest: request.guest.clone(),
            mode: request.mode,
            dir,
            original: None,
            before: None,
            above: names_above(path, &real)?,
            host: path.clone(),
        };
        if request.mode.writes_to_host() && self.shares_a_tree_with(&real)? {
            return Err(SkillRuntimeError::new(
                ErrorKind::PathDenied,
                format!(
                    "'{}' holds the folder of this very run, whose read-only parts could then be changed; mount a folder \
                     beside it, or set TMPDIR to another place",
                    path.display()
                ),
            ));
        }
        if request.mode != MountMode::ReadOnly && holds_private_folders(&real) {
            return Err(SkillRuntimeError::new(
                ErrorKind::PathDenied,
                format!(
                    "'{}' is, holds or lies in a folder of skillcell's own, whose content is trusted; mount another folder, \
                     or mount it read-only",
                    path.display()
                ),
            ));
        }
        if let Protection::Protected(why) = mount.protection([]) {
            return Err(SkillRuntimeError::new(
                ErrorKind::PathDenied,
                format!(
                    "'{}' can't be mounted '{}': {why}; mount it read-only or copy-on-write",
                    path.display(),
                    request.mode
                ),
            ));
        }
        let snapshot = |dir: &Dir| {
            let snapshot = Snapshot::take(dir).map_err(|error| error.with("mount", request.guest.as_str()))?;
            let private = snapshot.kinds().find(|(name, _)| name.rsplit('/').next() == Some(PRIVATE_MARK));
            match private {
                None => Ok(snapshot),
                Some((found, _)) => Err(SkillRuntimeError::new(
                    ErrorKind::PathDenied,
                    format!(
                        "'{}' holds a folder of skillcell's own ('{}' marks it), whose content is trusted; mount another \
                         folder, or mount it read-only",
                        path.display(),
                        found.escape_debug()
                    ),
                )),
            }
        };
        match request.mode {
            MountMode::ReadOnly => {}
            MountMode::ReadWrite | MountMode::ReadWriteWithoutDelete => mount.before = Some(snapshot(&mount.dir)?),
            MountMode::CopyOnWrite => {
                let tree = HostTree::open_folder(path)?;
                let stamps = snapshot(&mount.dir)?;
                let name = format!("copy-{index}");
                let copy =
                    self.root().create_dir(&name).and_then(|()| self.root().open_dir_nofollow(&name)).map_err(
                        |error| SkillRuntimeError::backend("could not make a private copy of a mount", error),
                    )?;
                copy_tree(&copy, &request.guest, &tree, CreateMode::Ordinary)?;
                mount.before = Some(snapshot(&copy)?);
                mount.original = Some((std::mem::replace(&mut mount.dir, copy), stamps));
            }
        }
        Ok(mount)
    }
}

/// A folder's path without links.
fn real_path(path: &Path) -> Result<PathBuf> {
    std::fs::canonicalize(path).map_err(|error| open_error(path, "folder", error))
}

/// Whether a folder (its real path) is, holds or lies in the place of this user's private folders, there or not, or lies in another private
/// folder. (One that it holds elsewhere is met when it is looked through.)
fn holds_private_folders(real: &Path) -> bool {
    if real.ancestors().any(|above| above.join(PRIVATE_MARK).symlink_metadata().is_ok()) {
        return true;
    }
    let Some(home) = private_home() else { return false };
    // Links are followed as far as something is there.
    let there = home.ancestors().find_map(|above| Some((above, std::fs::canonicalize(above).ok()?)));
    let home = match there {
        Some((above, there)) => there.join(home.strip_prefix(above).unwrap_or(&home)),
        None => home,
    };
    home.starts_with(real) || real.starts_with(&home)
}

/// The last components of a folder's real path, top first.
fn names_above(path: &Path, real: &Path) -> Result<Vec<String>> {
    if real.parent().is_none() || NEVER.iter().any(|never| real.starts_with(never)) {
        return Err(SkillRuntimeError::new(
            ErrorKind::PathDenied,
            format!(
                "'{}' can't be mounted: it is, or holds, the system's own state; mount a folder of data",
                path.display()
            ),
        ));
    }
    let mut names: Vec<String> =
        real.iter().rev().take(NAMED_ABOVE).map(|name| name.to_string_lossy().into_owned()).collect();
    names.retain(|name| name != "/");
    names.reverse();
    Ok(names)
}

/// Where other file systems are mounted in this process's world.
///
/// # Errors
/// [`Backend`](ErrorKind::Backend) when `/proc` can't be read.
#[cfg(all(feature = "ownership", target_os = "linux"))]
pub(crate) fn mount_points() -> Result<Vec<String>> {
    #[expect(clippy::disallowed_methods, reason = "a file of the kernel's, not of the host's user")]
    let table = std::fs::read_to_string("/proc/self/mountinfo")
        .map_err(|error| SkillRuntimeError::backend("could not read the table of mounts", error))?;
    // The fifth field, in which the kernel writes spaces and the like as three octal digits.
    Ok(table.lines().filter_map(|line| line.split(' ').nth(4)).map(unescaped).collect())
}

#[cfg(all(feature = "ownership", target_os = "linux"))]
fn unescaped(field: &str) -> String {
    ["\\040", "\\011", "\\012", "\\134"]
        .iter()
        .zip([" ", "\t", "\n", "\\"])
        .fold(field.to_owned(), |text, (code, character)| text.replace(code, character))
}
