//! Removing a tree that a guest made, whatever it did to it.
//!
//! A guest can nest folders 100,000 deep (by changing into each before making the next), which ends recursive removers
//! by their stack, their open files or `PATH_MAX`; take every right from folders; and leave millions of entries. So
//! this remover holds three folders open at most: a folder inside a folder is moved up to the top, where it becomes one
//! more to empty. Nothing is followed through a link.

use std::cell::Cell;
use std::ffi::{OsStr, OsString};
use std::io;
use std::time::{Duration, Instant};

use cap_fs_ext::DirExt;
use cap_std::fs::Dir;

/// Folders noted before the top is listed again: bounds memory for a guest that made millions.
const MAX_PENDING: usize = 1_024;
/// Passes that removed nothing before giving up: something else keeps making entries, or can't be removed.
const MAX_IDLE_PASSES: usize = 3;

/// How long one removal may take. An ordinary workspace is gone in milliseconds; millions of entries, or a process that
/// escaped and makes them as fast as they go, would hold the caller for as long as they like.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// What one removal did so far.
struct Done {
    hoisted: Cell<u64>,
    deadline: Instant,
}

impl Done {
    fn new(patience: Duration) -> Self {
        Self { hoisted: Cell::new(0), deadline: Instant::now() + patience }
    }

    /// Called for every entry. Reading the clock costs far less than removing one.
    fn in_time(&self) -> io::Result<()> {
        if Instant::now() < self.deadline {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::TimedOut, "it holds more than can be removed in the time there is"))
    }
}

/// Empties the folder behind `top`, known to `parent` as `name`, and removes it there.
///
/// # Errors
/// [`TimedOut`](io::ErrorKind::TimedOut) after `patience`, with what was not removed still there; else the system's.
pub(super) fn remove_tree(parent: &Dir, name: &str, top: &Dir, patience: Duration) -> io::Result<()> {
    let done = Done::new(patience);
    match empty_until(top, &done) {
        // A guest that runs as our user may have closed the top folder itself.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            if parent.symlink_metadata(name).is_ok_and(|metadata| metadata.is_dir()) {
                reopen(parent, OsStr::new(name));
            }
            empty_until(top, &done)?;
        }
        other => other?,
    }
    ignore_missing(parent.remove_dir(name))
}

/// Removes everything in the folder behind `top`.
#[cfg(all(feature = "archive", target_os = "linux"))]
pub(super) fn empty(top: &Dir) -> io::Result<()> {
    empty_until(top, &Done::new(PATIENCE))
}

fn empty_until(top: &Dir, done: &Done) -> io::Result<()> {
    let mut idle = 0;
    loop {
        let mut pending = Vec::new();
        let mut removed = sweep(top, done, &mut |name| {
            if pending.len() < MAX_PENDING {
                pending.push(name);
            }
            Ok(())
        })?;
        if pending.is_empty() {
            return Ok(());
        }
        let mut failure = None;
        while let Some(name) = pending.pop() {
            match flatten(top, &name, done, &mut pending) {
                Ok(()) => removed = true,
                Err(error) if error.kind() == io::ErrorKind::TimedOut => return Err(error),
                Err(error) => failure = Some(error),
            }
        }
        idle = if removed { 0 } else { idle + 1 };
        if idle > MAX_IDLE_PASSES {
            return Err(failure.unwrap_or_else(|| io::ErrorKind::DirectoryNotEmpty.into()));
        }
    }
}

/// Removes the files of `top/name`, moves its folders up, and removes it.
fn flatten(top: &Dir, name: &OsStr, done: &Done, pending: &mut Vec<OsString>) -> io::Result<()> {
    let folder = match open_or_reopen(top, name) {
        Ok(folder) => folder,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        // Swapped for something else by a process that still lives.
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => return ignore_missing(top.remove_file(name)),
        Err(error) => return Err(error),
    };
    let mut hoist = |inner: OsString| {
        let up = hoist(top, &folder, &inner, done)?;
        if let Some(up) = up
            && pending.len() < MAX_PENDING
        {
            pending.push(up);
        }
        Ok(())
    };
    match sweep(&folder, done, &mut hoist) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            reopen(top, name);
            sweep(&folder, done, &mut hoist)?;
        }
        other => {
            other?;
        }
    }
    ignore_missing(top.remove_dir(name))
}

/// Moves `folder/inner` to a free name in `top`.
fn hoist(top: &Dir, folder: &Dir, inner: &OsStr, done: &Done) -> io::Result<Option<OsString>> {
    // Most folders are empty, and need no move.
    match folder.remove_dir(inner) {
        Ok(()) => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(_) => {}
    }
    loop {
        done.hoisted.set(done.hoisted.get() + 1);
        let up = OsString::from(format!(".skillcell-removing-{}", done.hoisted.get()));
        match folder.rename(inner, top, &up) {
            Ok(()) => return Ok(Some(up)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            // The guest guessed the name.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory
                ) => {}
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                // Moving a folder elsewhere rewrites its `..`, which needs the right to write it.
                reopen(folder, inner);
                folder.rename(inner, top, &up)?;
                return Ok(Some(up));
            }
            Err(error) => return Err(error),
        }
    }
}

/// Removes everything in `folder` that is no folder, and hands over the names of folders. Says whether it removed any.
fn sweep(folder: &Dir, done: &Done, on_folder: &mut dyn FnMut(OsString) -> io::Result<()>) -> io::Result<bool> {
    let mut removed = false;
    for entry in folder.entries()? {
        let entry = entry?;
        let name = entry.file_name();
        done.in_time()?;
        if entry.file_type()?.is_dir() {
            on_folder(name)?;
        } else {
            ignore_missing(folder.remove_file(&name))?;
            removed = true;
        }
    }
    Ok(removed)
}

fn open_or_reopen(top: &Dir, name: &OsStr) -> io::Result<Dir> {
    match top.open_dir_nofollow(name) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            reopen(top, name);
            top.open_dir_nofollow(name)
        }
        other => other,
    }
}

/// Gives us back the rights to a folder. A link in its place leads no further than `parent`, which is being removed.
fn reopen(parent: &Dir, name: &OsStr) {
    #[cfg(unix)]
    {
        use cap_std::fs::{Permissions, PermissionsExt};
        // When this fails, the call that needed it fails again and says so.
        let _ = parent.set_permissions(name, Permissions::from_mode(0o700));
    }
    #[cfg(not(unix))]
    let _ = (parent, name);
}

fn ignore_missing(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removal_ends_in_time_and_can_be_gone_on_with() {
        let place = tempfile::tempdir().unwrap();
        let parent = Dir::open_ambient_dir(place.path(), cap_std::ambient_authority()).unwrap();
        parent.create_dir_all("top/a/b/c").unwrap();
        parent.write("top/a/file", "x").unwrap();
        let top = parent.open_dir("top").unwrap();
        let error = remove_tree(&parent, "top", &top, Duration::ZERO).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
        assert!(parent.exists("top"));
        remove_tree(&parent, "top", &top, PATIENCE).unwrap();
        assert!(!parent.exists("top"));
    }
}
