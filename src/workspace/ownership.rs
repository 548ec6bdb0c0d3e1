//! Giving the workspace to the user a guest runs as, for runtimes whose guest has another user id than this process.
//!
//! Works through directory handles and never through a link: by the time a single file is given, guests may have put
//! links anywhere in the writable areas.

use cap_fs_ext::DirExt;
use cap_std::fs::Dir;
use rustix::fs::{AtFlags, Gid, Uid};

use super::access::io_error;
use super::guest_path::{Area, GuestPath};
use super::mounts::HostMount;
use super::root::Workspace;
use crate::error::{Result, SkillRuntimeError};
use crate::policy::MountMode;

/// Deeper trees were not staged by us, and recursion has to end.
const MAX_DEPTH: usize = 128;

impl Workspace {
    /// Makes `user` the owner of every area, of every private copy of a mount, and of all that lies in them. Before the guest starts.
    ///
    /// # Errors
    /// [`Backend`](crate::ErrorKind::Backend): only a privileged process may give files away.
    pub(crate) fn give_to(&self, user: u32) -> Result<()> {
        Area::ALL.into_iter().try_for_each(|area| {
            let dir = self.area(area);
            give_dir(dir, user)
                .and_then(|()| give_tree(dir, user, 0))
                .map_err(|error| io_error(&area.guest_path(), error))
        })?;
        // Private copies are ours to give; folders of the host are not.
        let copies = self.host_mounts().iter().filter(|mount| mount.mode() == MountMode::CopyOnWrite);
        copies.map(HostMount::dir).try_for_each(|dir| {
            give_dir(dir, user).and_then(|()| give_tree(dir, user, 0)).map_err(|error| {
                SkillRuntimeError::backend("could not give the private copy of a mount to the guest's user", error)
            })
        })
    }

    /// Makes `user` the owner of one file and of the folders on the way to it, after `write_file` made them.
    ///
    /// # Errors
    /// As [`give_to`](Self::give_to), and [`PathDenied`](crate::ErrorKind::PathDenied) when a link stands in the way.
    pub(crate) fn give_path_to(&self, path: &GuestPath, user: u32) -> Result<()> {
        let (area, inside) = path.in_area()?;
        let failed = |error| io_error(path, error);
        let mut folder = self.area(area).try_clone().map_err(failed)?;
        let parts: Vec<&str> = inside.split('/').collect();
        let Some((name, parents)) = parts.split_last() else { return Ok(()) };
        for part in parents {
            folder = folder.open_dir_nofollow(part).map_err(failed)?;
            give_dir(&folder, user).map_err(failed)?;
        }
        give_entry(&folder, name.as_ref(), user).map_err(failed)
    }

    /// Puts an executable of ours beside the areas, where no guest sees it unless it is mounted. Removed with the
    /// workspace.
    ///
    /// # Errors
    /// [`Backend`](crate::ErrorKind::Backend) when it can't be written.
    pub(crate) fn place_executable(&self, name: &str, bytes: &[u8], mode: u32) -> Result<()> {
        use cap_std::fs::{Permissions, PermissionsExt};
        super::access::write_whole(self.root(), name, bytes)
            .and_then(|()| self.root().set_permissions(name, Permissions::from_mode(mode)))
            .map_err(|error| {
                SkillRuntimeError::backend("could not write into the workspace's folder; is there space?", error)
            })
    }
}

fn give_dir(dir: &Dir, user: u32) -> std::io::Result<()> {
    // Handles of folders are opened for their path alone, which an ordinary `fchown` refuses.
    Ok(rustix::fs::chownat(dir, "", Some(Uid::from_raw(user)), None::<Gid>, AtFlags::EMPTY_PATH)?)
}

fn give_entry(folder: &Dir, name: &std::ffi::OsStr, user: u32) -> std::io::Result<()> {
    Ok(rustix::fs::chownat(folder, name, Some(Uid::from_raw(user)), None::<Gid>, AtFlags::SYMLINK_NOFOLLOW)?)
}

fn give_tree(dir: &Dir, user: u32, depth: usize) -> std::io::Result<()> {
    if depth > MAX_DEPTH {
        return Err(std::io::Error::other("the tree is too deep"));
    }
    for entry in dir.entries()? {
        let entry = entry?;
        let name = entry.file_name();
        give_entry(dir, &name, user)?;
        if entry.file_type()?.is_dir() {
            give_tree(&dir.open_dir_nofollow(&name)?, user, depth + 1)?;
        }
    }
    Ok(())
}
