//! Workspaces of processes that are gone: known by a lock that only a living process holds, and removed.
//!
//! The lock is the kernel's (`flock` on the folder), so it ends with its process however that ends; no pid and no clock
//! is compared. Invariant: a folder whose lock is held, or that isn't ours by name, kind and owner, is never touched.

use std::fs::{File, TryLockError};
use std::io;

use cap_fs_ext::DirExt;
use cap_std::fs::Dir;

use super::ledger::undo;
use super::remove::{PATIENCE, remove_tree};
use super::root::Workspace;

/// What the name of every workspace that is marked begins with; the run's id follows.
pub(super) const PREFIX: &str = "skillcell-run-";
/// The length of a run's id in hex.
const ID_LENGTH: usize = 32;

/// Opens a folder in a way that can be locked; handles opened for their path alone can't be.
fn lockable(dir: &Dir) -> io::Result<File> {
    Ok(dir.open(".")?.into_std())
}

/// Marks a new folder as in use, for as long as the returned file is open.
///
/// # Errors
/// [`NotFound`](io::ErrorKind::NotFound) when another process took it for a leftover before it was marked: make another.
pub(super) fn mark(parent: &Dir, name: &str, root: &Dir) -> io::Result<File> {
    let file = lockable(root)?;
    file.lock()?;
    // Whoever removes a leftover holds its lock, so from here on the folder stays if it is still there.
    if is_same(&parent.open_dir_nofollow(name)?, root)? { Ok(file) } else { Err(io::ErrorKind::NotFound.into()) }
}

#[cfg(unix)]
fn is_same(one: &Dir, other: &Dir) -> io::Result<bool> {
    use cap_std::fs::MetadataExt;
    let (one, other) = (one.dir_metadata()?, other.dir_metadata()?);
    Ok((one.dev(), one.ino()) == (other.dev(), other.ino()))
}

#[cfg(not(unix))]
fn is_same(_one: &Dir, _other: &Dir) -> io::Result<bool> {
    // An open folder can't be removed there.
    Ok(true)
}

impl Workspace {
    /// Removes the workspaces beside this one whose processes are gone. Returns how many. What can't be looked at or
    /// removed stays.
    pub(crate) fn sweep_leftovers(&self) -> usize {
        let parent = self.parent();
        let Ok(entries) = parent.entries() else { return 0 };
        entries
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| is_workspace_name(name) && self.sweep_one(parent, name).unwrap_or(false))
            .count()
    }

    fn sweep_one(&self, parent: &Dir, name: &str) -> io::Result<bool> {
        let dir = parent.open_dir_nofollow(name)?;
        if !self.has_same_owner(&dir)? {
            return Ok(false);
        }
        let file = lockable(&dir)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(false),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        undo(&dir, name)?;
        remove_tree(parent, name, &dir, PATIENCE)?;
        Ok(true)
    }

    #[cfg(unix)]
    fn has_same_owner(&self, dir: &Dir) -> io::Result<bool> {
        use cap_std::fs::MetadataExt;
        Ok(dir.dir_metadata()?.uid() == self.root().dir_metadata()?.uid())
    }

    #[cfg(not(unix))]
    fn has_same_owner(&self, _dir: &Dir) -> io::Result<bool> {
        Ok(true)
    }
}

fn is_workspace_name(name: &str) -> bool {
    name.strip_prefix(PREFIX).is_some_and(|id| {
        id.len() == ID_LENGTH && id.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::RunId;

    #[test]
    fn only_folders_that_nobody_holds_are_removed() {
        let parent = tempfile::tempdir().unwrap();
        let create = || Workspace::create_in(parent.path(), RunId::random().unwrap()).unwrap();
        let (mine, other) = (create(), create());
        let dir = Dir::open_ambient_dir(parent.path(), cap_std::ambient_authority()).unwrap();
        // As a killed process leaves it.
        let left = format!("{PREFIX}{}", RunId::random().unwrap());
        dir.create_dir_all(format!("{left}/out/a/b")).unwrap();
        dir.write(format!("{left}/out/a/b/x"), "1").unwrap();
        let foreign = ["skillcell-run-", "skillcell-notes", "other", "skillcell-run-0123456789ABCDEF0123456789ABCDEF"];
        foreign.iter().for_each(|name| dir.create_dir(name).unwrap());
        let linked = format!("{PREFIX}{}", RunId::random().unwrap());
        dir.symlink("other", &linked).unwrap();
        assert_eq!(mine.sweep_leftovers(), 1);
        assert!(dir.symlink_metadata(&left).is_err());
        for name in foreign.iter().map(|name| (*name).to_owned()).chain([linked]) {
            assert!(dir.symlink_metadata(&name).is_ok(), "{name}");
        }
        assert!(mine.ambient_root().is_dir() && other.ambient_root().is_dir());
        assert_eq!(other.sweep_leftovers(), 0);
    }

    #[test]
    fn a_workspace_is_made_while_others_look_for_leftovers() {
        let parent = tempfile::tempdir().unwrap();
        let create = || Workspace::create_in(parent.path(), RunId::random().unwrap()).unwrap();
        let sweeper = create();
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(std::sync::atomic::Ordering::SeqCst) {
                    sweeper.sweep_leftovers();
                }
            });
            for _ in 0..200 {
                let workspace = create();
                assert!(workspace.ambient_root().join("out").is_dir());
            }
            done.store(true, std::sync::atomic::Ordering::SeqCst);
        });
    }
}
