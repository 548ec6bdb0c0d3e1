//! [`PrivateDir`]: a folder of this user's that nobody else, and no guest, can write to. Holds what will be trusted
//! later, such as compiled code.
//!
//! Invariant: a file is only handed out when it, its folder and every folder on the way are beyond the reach of other
//! users. Guests never see it: it is in no workspace.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use cap_fs_ext::{FollowSymlinks, OpenOptionsFollowExt};
use cap_std::ambient_authority;
use cap_std::fs::{Dir, OpenOptions};

use crate::error::{ErrorKind, Result, SkillRuntimeError};

/// An empty file in every private folder that lies in no other: what holds one is never shown to a guest for writing.
pub(super) const PRIVATE_MARK: &str = ".skillcell-private";

/// Where this user's private folders lie unless the caller names others: `$XDG_CACHE_HOME/skillcell`, or
/// `~/.cache/skillcell`; nothing where there is neither. It need not be there yet. What keeps such a folder and what keeps
/// guests out of it both ask here.
#[must_use]
pub fn private_home() -> Option<PathBuf> {
    let named = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || std::env::home_dir().filter(|home| home.is_absolute()).map(|home| home.join(".cache"));
    let base = named.or_else(home)?;
    Some(base.join("skillcell"))
}

/// A folder that only this user can write to.
#[derive(Debug)]
pub struct PrivateDir {
    dir: Dir,
    /// Only for [`ambient_path`](Self::ambient_path).
    path: PathBuf,
}

impl PrivateDir {
    /// Opens a folder, making it (`0700`) where it is missing.
    ///
    /// # Errors
    /// [`PathDenied`](ErrorKind::PathDenied) when another user could change what lies in it;
    /// [`Backend`](ErrorKind::Backend) when it can't be made.
    pub fn open(path: &Path) -> Result<Self> {
        let failed = |error: std::io::Error| {
            SkillRuntimeError::backend(format!("could not open the private folder {}", path.display()), error)
        };
        let mut builder = std::fs::DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(path).map_err(failed)?;
        let real = std::fs::canonicalize(path).map_err(failed)?;
        if let Some(bad) = reachable_by_others(&real).map_err(failed)? {
            return Err(SkillRuntimeError::new(
                ErrorKind::PathDenied,
                format!(
                    "the private folder {} is not private: {} can be changed by other users; remove their rights or name another folder",
                    path.display(),
                    bad.display()
                ),
            ));
        }
        let opened = Self { dir: Dir::open_ambient_dir(&real, ambient_authority()).map_err(failed)?, path: real };
        opened.sweep();
        // By which a folder that holds this one is known, wherever it lies. One in a private folder is known by that.
        if !opened.path.ancestors().any(|above| above.join(PRIVATE_MARK).symlink_metadata().is_ok()) {
            opened.dir.write(PRIVATE_MARK, b"").map_err(failed)?;
        }
        Ok(opened)
    }

    /// Removes what killed processes left half-written. Taking one that was made this very moment costs its writer a file
    /// that it would have kept for later, no more.
    fn sweep(&self) {
        let Ok(entries) = self.dir.entries() else { return };
        for name in entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()) {
            let digits = name.strip_prefix('.').unwrap_or_default();
            if digits.len() == 16
                && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
                && self.read(&name).is_some_and(|file| file.try_lock().is_ok())
            {
                let _ = self.dir.remove_file(&name);
            }
        }
    }

    /// The folder's path on the host, for an engine that insists on one. What it leads to can't be exchanged by others:
    /// every folder on the way was looked at.
    #[must_use]
    pub fn ambient_path(&self) -> &Path {
        &self.path
    }

    /// Opens a file for reading: a regular one, of this user, that nobody else can write to, and no link. Anything else
    /// counts as missing.
    #[must_use]
    pub fn read(&self, name: &str) -> Option<std::fs::File> {
        let mut options = OpenOptions::new();
        options.read(true).follow(FollowSymlinks::No);
        let file = self.dir.open_with(name, &options).ok()?.into_std();
        let metadata = file.metadata().ok()?;
        (metadata.is_file() && is_ours(&metadata)).then_some(file)
    }

    /// Writes a file whole or not at all, replacing an old one. Readers that have the old one open keep it.
    ///
    /// # Errors
    /// Of the file system.
    pub fn write(&self, name: &str, parts: &[&[u8]]) -> std::io::Result<()> {
        self.put(name, parts, |_| Ok(())).map(drop)
    }

    /// Writes a file as [`write`](Self::write) does, and has its content on disk before it gets its name. A machine that
    /// loses power else may keep the name and lose the content.
    pub(super) fn write_through(&self, name: &str, parts: &[&[u8]]) -> std::io::Result<std::fs::File> {
        self.put(name, parts, std::fs::File::sync_all)
    }

    fn put(
        &self,
        name: &str,
        parts: &[&[u8]],
        finish: impl FnOnce(&std::fs::File) -> std::io::Result<()>,
    ) -> std::io::Result<std::fs::File> {
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(std::io::Error::other)?;
        let temporary = format!(".{:016x}", u64::from_be_bytes(random));
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        cap_std::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let written = self.dir.open_with(&temporary, &options).and_then(|file| {
            let mut file = file.into_std();
            // Held until the file has its name: what nobody holds is a leftover of a process that was killed.
            file.lock()?;
            parts.iter().try_for_each(|part| file.write_all(part))?;
            finish(&file)?;
            self.dir.rename(&temporary, &self.dir, name)?;
            file.unlock()?;
            Ok(file)
        });
        if written.is_err() {
            let _ = self.dir.remove_file(&temporary);
        }
        written
    }

    /// Removes the files longest unused, until all together are at most `limit` bytes. Errors leave files behind, which
    /// the next call meets again.
    pub fn shrink(&self, limit: u64) {
        let Ok(entries) = self.dir.entries() else { return };
        let mut files: Vec<_> = entries
            .filter_map(std::result::Result::ok)
            .filter(|entry| entry.file_name() != PRIVATE_MARK)
            .filter_map(|entry| {
                let metadata = entry.metadata().ok().filter(cap_std::fs::Metadata::is_file)?;
                let used = metadata.accessed().or_else(|_| metadata.modified()).ok()?;
                Some((used.into_std(), metadata.len(), entry.file_name()))
            })
            .collect();
        let mut total: u64 = files.iter().map(|(_, size, _)| size).sum();
        files.sort();
        for (_, size, name) in files {
            if total <= limit {
                break;
            }
            if self.dir.remove_file(&name).is_ok() {
                total -= size;
            }
            let mut seal = name;
            seal.push(super::sealed::SUFFIX);
            let _ = self.dir.remove_file(&seal);
        }
    }
}

/// Reads a file whole, at most `limit` bytes.
///
/// # Errors
/// Of the file system; [`FileTooLarge`](std::io::ErrorKind::FileTooLarge) over the limit.
pub fn read_whole(file: &std::fs::File, limit: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(usize::try_from(file.metadata()?.len().min(limit)).unwrap_or(0));
    let mut reader = file;
    Read::by_ref(&mut reader).take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit { Err(std::io::ErrorKind::FileTooLarge.into()) } else { Ok(bytes) }
}

/// The folder itself, or the first on the way to it, whose content another user could exchange.
#[cfg(unix)]
fn reachable_by_others(path: &Path) -> std::io::Result<Option<PathBuf>> {
    use std::os::unix::fs::MetadataExt;
    const STICKY: u32 = 0o1000;
    const OTHERS_WRITE: u32 = 0o022;
    for (index, folder) in path.ancestors().enumerate() {
        let metadata = std::fs::metadata(folder)?;
        let mode = metadata.mode();
        let fine = if index == 0 {
            is_ours(&metadata)
        } else {
            // In a sticky folder (/tmp) others can't rename what is ours.
            (metadata.uid() == 0 || metadata.uid() == own_user()) && (mode & OTHERS_WRITE == 0 || mode & STICKY != 0)
        };
        if !fine {
            return Ok(Some(folder.to_owned()));
        }
    }
    Ok(None)
}

#[cfg(unix)]
fn is_ours(metadata: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    metadata.uid() == own_user() && metadata.mode() & 0o022 == 0
}

#[cfg(unix)]
fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Windows profiles are private to their user by default; access lists are not looked at.
#[cfg(not(unix))]
fn reachable_by_others(_path: &Path) -> std::io::Result<Option<PathBuf>> {
    Ok(None)
}

#[cfg(not(unix))]
fn is_ours(_metadata: &std::fs::Metadata) -> bool {
    true
}

#[cfg(all(test, unix))]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn files_are_whole_and_come_back() {
        let parent = tempfile::tempdir().unwrap();
        let private = PrivateDir::open(&parent.path().join("a/b")).unwrap();
        private.write("x", &[b"one", b"two"]).unwrap();
        assert_eq!(read_whole(&private.read("x").unwrap(), 100).unwrap(), b"onetwo");
        assert!(read_whole(&private.read("x").unwrap(), 5).is_err());
        assert!(private.read("y").is_none());
        private.write("y", &[&[0; 100]]).unwrap();
        private.shrink(106);
        assert!(private.read("x").is_some() && private.read("y").is_some());
        private.shrink(0);
        assert!(private.read("x").is_none() && private.read("y").is_none());
    }

    #[test]
    fn what_a_killed_process_left_is_removed_and_what_is_being_written_is_not() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("a");
        let private = PrivateDir::open(&path).unwrap();
        let (left, written) = (".0123456789abcdef", ".fedcba9876543210");
        for name in [left, written, ".notes", "0123456789abcdef", ".0123456789abcdeg"] {
            private.write(name, &[b"x"]).unwrap();
        }
        let held = private.read(written).unwrap();
        held.lock().unwrap();
        let again = PrivateDir::open(&path).unwrap();
        assert!(again.read(left).is_none());
        for name in [written, ".notes", "0123456789abcdef", ".0123456789abcdeg"] {
            assert!(again.read(name).is_some(), "{name}");
        }
    }

    #[test]
    fn what_others_can_change_is_not_used() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("cache");
        let private = PrivateDir::open(&path).unwrap();
        private.write("open", &[b"x"]).unwrap();
        fs::set_permissions(path.join("open"), Permissions::from_mode(0o666)).unwrap();
        assert!(private.read("open").is_none(), "a file that others can write");
        Dir::open_ambient_dir(parent.path(), ambient_authority()).unwrap().write("elsewhere", "x").unwrap();
        symlink("../elsewhere", path.join("link")).unwrap();
        assert!(private.read("link").is_none(), "a link");
        fs::set_permissions(&path, Permissions::from_mode(0o777)).unwrap();
        let error = PrivateDir::open(&path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PathDenied, "{error}");
        fs::set_permissions(&path, Permissions::from_mode(0o700)).unwrap();
        fs::set_permissions(parent.path(), Permissions::from_mode(0o777)).unwrap();
        assert!(PrivateDir::open(&path).is_err(), "a folder on the way that others can write");
        fs::set_permissions(parent.path(), Permissions::from_mode(0o1777)).unwrap();
        PrivateDir::open(&path).unwrap();
    }
}
