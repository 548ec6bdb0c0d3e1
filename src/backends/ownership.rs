//! Giving the writable part of a workspace to the guest's user, when the host is root and the guest is not.
//!
//! Only the owner changes, never through a link, and only of what lies in the two writable areas.

use cap_fs_ext::DirExt;
use cap_std::fs::{Dir, Permissions, PermissionsExt};
use rustix::fs::{AtFlags, Gid, Uid};

use crate::error::{Result, SkillRuntimeError};
use crate::workspace::{Area, GuestPath, Workspace};

/// The user that guests of a host which is root run as: the kernel's own "nobody in particular".
pub(super) const NOBODY: u32 = 65_534;
/// Folders of a fresh workspace aren't deep; what is deeper was made by a guest, which owns it.
const MAX_DEPTH: usize = 128;
/// Everybody may look into the areas. The workspace's own folder stays closed to other users of the host.
const AREA_MODE: u32 = 0o755;

/// Gives the writable areas and everything in them to `user`, and lets it look into the others.
pub(super) fn give_areas(workspace: &Workspace, user: u32) -> Result<()> {
    for area in Area::ALL {
        let folder = workspace.area(area);
        let given = workspace
            .root()
            .set_permissions(area.name(), Permissions::from_mode(AREA_MODE))
            .and_then(|()| if area.writable() { give_tree(folder, user, 0) } else { Ok(()) });
        given.map_err(|error| not_given(&area.guest_path(), error))?;
    }
    Ok(())
}

/// Gives a file that the host wrote, and the folders made for it.
pub(super) fn give_path(workspace: &Workspace, path: &GuestPath, user: u32) -> Result<()> {
    let (area, inside) = path.in_area()?;
    let given = || -> std::io::Result<()> {
        let mut folder = workspace.area(area).try_clone()?;
        let (parents, name) = inside.rsplit_once('/').map_or(("", inside.as_str()), |(parents, name)| (parents, name));
        for part in parents.split('/').filter(|part| !part.is_empty()) {
            give(&folder, part, user)?;
            folder = folder.open_dir_nofollow(part)?;
        }
        give(&folder, name, user)
    };
    given().map_err(|error| not_given(path, error))
}

fn give_tree(folder: &Dir, user: u32, depth: usize) -> std::io::Result<()> {
    let (owner, group) = (Some(Uid::from_raw(user)), Some(Gid::from_raw(user)));
    rustix::fs::chownat(folder, "", owner, group, AtFlags::EMPTY_PATH)?;
    if depth >= MAX_DEPTH {
        return Ok(());
    }
    for entry in folder.entries()? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            give_tree(&folder.open_dir_nofollow(entry.file_name())?, user, depth + 1)?;
        } else {
            give(folder, entry.file_name(), user)?;
        }
    }
    Ok(())
}

fn give(folder: &Dir, name: impl rustix::path::Arg, user: u32) -> std::io::Result<()> {
    let (user, group) = (Some(Uid::from_raw(user)), Some(Gid::from_raw(user)));
    Ok(rustix::fs::chownat(folder, name, user, group, AtFlags::SYMLINK_NOFOLLOW)?)
}

fn not_given(path: &GuestPath, error: std::io::Error) -> SkillRuntimeError {
    SkillRuntimeError::backend(format!("could not give '{path}' to the guest's user"), error)
}
