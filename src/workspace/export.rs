//! Copying collected files to a folder of the caller's.
//!
//! The folder's own path is the caller's and followed as typed. Below it nothing is followed: a folder given for
//! results may hold what an earlier run left. Each file appears whole or not at all. Times, owners, extended attributes
//! and the set-id bits stay behind; the executable bit is kept, since a built program is a result too.

use std::io;
use std::path::Path;

use cap_fs_ext::DirExt;
use cap_std::ambient_authority;
use cap_std::fs::Dir;

use super::collect::{Collected, OutputFile, copy_output};
use super::guest_path::Area;
use super::host_tree::{open_error, typed};
use super::ledger::{Outside, temporary_name};
use super::root::Workspace;
use super::transfer::{CreateMode, Failure, create_new};
use crate::error::{ErrorKind, Result, SkillRuntimeError};

/// What to do where a file of that name exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Overwrite {
    /// Refuse the whole export, before anything is written.
    #[default]
    Refuse,
    /// Put the new file in its place. A link is replaced, not followed; a folder is never replaced.
    Replace,
}

/// Whether results could be put into a folder, which need not exist: found out before anything runs, since afterwards
/// it is too late. Makes nothing.
///
/// # Errors
/// [`InvalidConfig`](ErrorKind::InvalidConfig) naming what stands in the way and what to do.
pub fn check_export_folder(to: &Path) -> Result<()> {
    let named = |what: &str| {
        SkillRuntimeError::invalid(format!("results can't be put into '{}': {what}; name another folder", typed(to)))
            .operation("output")
    };
    // `canonicalize` follows the links that the caller typed; of a path that isn't there, its nearest folder counts.
    for place in to.ancestors() {
        let place = if place.as_os_str().is_empty() { Path::new(".") } else { place };
        match std::fs::metadata(place) {
            Ok(metadata) if metadata.is_dir() => {
                return if may_make_files(place) { Ok(()) } else { Err(named("files can't be made there")) };
            }
            Ok(_) => return Err(named("a file is where a folder must be")),
            // A link that leads nowhere is there, and nothing can be made in its place.
            Err(error) if error.kind() == io::ErrorKind::NotFound && std::fs::symlink_metadata(place).is_err() => {}
            Err(error) => return Err(named("it can't be opened").caused_by(error)),
        }
    }
    Err(named("there is no such place"))
}

#[cfg(unix)]
fn may_make_files(folder: &Path) -> bool {
    use rustix::fs::{Access, AtFlags, CWD, accessat};
    accessat(CWD, folder, Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS).is_ok()
}

/// The attribute says nothing about folders there.
#[cfg(not(unix))]
fn may_make_files(_folder: &Path) -> bool {
    true
}

impl Collected {
    /// The files that could not be put into `to` as it is now, each with the reason; empty when all could.
    ///
    /// # Errors
    /// As [`export`](Self::export) where the folder itself can't be used.
    pub fn conflicts(&self, to: &Path, overwrite: Overwrite) -> Result<Vec<(String, String)>> {
        let target = match Dir::open_ambient_dir(to, ambient_authority()) {
            Ok(target) => target,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(open_error(to, "folder", error).operation("export")),
        };
        let failed = |file: &OutputFile| Some(check_free(&target, to, file, overwrite).err()?.to_string());
        Ok(self.files().iter().filter_map(|file| Some((file.path.clone(), failed(file)?))).collect())
    }

    /// Copies all files to `to`, which is made if it is missing. Every name is checked before anything is written;
    /// should a later write fail, the files written so far stay, each whole.
    ///
    /// # Errors
    /// [`InvalidConfig`](ErrorKind::InvalidConfig) naming the file that exists; [`PathDenied`](ErrorKind::PathDenied) when a
    /// link or file stands where a folder is needed; [`TrustViolation`](ErrorKind::TrustViolation) when a file changed
    /// since it was collected; [`Backend`](ErrorKind::Backend) when it can't be written.
    pub fn export(&self, workspace: &Workspace, to: &Path, overwrite: Overwrite) -> Result<()> {
        self.export_to(workspace, to, overwrite).map_err(|error| error.operation("export"))
    }

    fn export_to(&self, workspace: &Workspace, to: &Path, overwrite: Overwrite) -> Result<()> {
        Dir::create_ambient_dir_all(to, ambient_authority()).map_err(|error| match Failure::of(&error) {
            Failure::Exists => open_error(to, "folder", io::ErrorKind::NotADirectory.into()),
            Failure::Missing
            | Failure::NotFolder
            | Failure::IsFolder
            | Failure::Link
            | Failure::Denied
            | Failure::Full
            | Failure::Other => open_error(to, "folder", error),
        })?;
        let target = Dir::open_ambient_dir(to, ambient_authority()).map_err(|error| open_error(to, "folder", error))?;
        for file in self.files() {
            check_free(&target, to, file, overwrite)?;
        }
        let out = workspace.area(Area::Out);
        let temporary =
            temporary_name().map_err(|error| SkillRuntimeError::backend("the system's random source failed", error))?;
        let mut recorded = None;
        for file in self.files() {
            let (parent, name) = split(&file.path);
            if recorded != Some(parent) {
                // Files are sorted, so those of one folder stand together.
                workspace.record(&Outside::File(to.join(parent).join(&temporary)))?;
                recorded = Some(parent);
            }
            let folder = make_below(&target, parent).map_err(|error| in_the_way(to, file, error))?;
            let place = Place { folder: &folder, name, temporary: &temporary };
            write_one(out, &place, to, file, overwrite)?;
        }
        Ok(())
    }
}

fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

/// Whether the file could be written, going by what is there now.
fn check_free(target: &Dir, to: &Path, file: &OutputFile, overwrite: Overwrite) -> Result<()> {
    let (parent, name) = split(&file.path);
    let mut folder = target.try_clone().map_err(|error| in_the_way(to, file, error))?;
    for part in parent.split('/').filter(|part| !part.is_empty()) {
        folder = match folder.open_dir_nofollow(part) {
            Ok(folder) => folder,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(in_the_way(to, file, error)),
        };
    }
    match (folder.symlink_metadata(name), overwrite) {
        (Err(error), _) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        (Err(error), _) => Err(in_the_way(to, file, error)),
        (Ok(metadata), _) if metadata.is_dir() => Err(in_the_way(to, file, io::ErrorKind::IsADirectory.into())),
        (Ok(_), Overwrite::Replace) => Ok(()),
        (Ok(_), Overwrite::Refuse) => Err(exists(to, file)),
    }
}

/// Makes folders as needed and opens the last, following no link.
fn make_below(target: &Dir, parent: &str) -> io::Result<Dir> {
    let mut folder = target.try_clone()?;
    for part in parent.split('/').filter(|part| !part.is_empty()) {
        match folder.create_dir(part) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        folder = folder.open_dir_nofollow(part)?;
    }
    Ok(folder)
}

/// Where a file is put: its folder, its name there, and the name it has until it is whole.
struct Place<'a> {
    folder: &'a Dir,
    name: &'a str,
    temporary: &'a str,
}

fn write_one(out: &Dir, place: &Place<'_>, to: &Path, file: &OutputFile, overwrite: Overwrite) -> Result<()> {
    let Place { folder, name, temporary } = *place;
    let mut copy = create_new(folder, temporary, file.executable, CreateMode::Ordinary)
        .map_err(|error| in_the_way(to, file, error))?;
    let placed = copy_output(out, file, &mut copy).and_then(|()| {
        let placed = match overwrite {
            Overwrite::Replace => folder.rename(temporary, folder, name),
            // A hard link fails where a name exists, which renaming doesn't, so that a file made since the check stays.
            Overwrite::Refuse => folder.hard_link(temporary, folder, name),
        };
        match placed {
            Err(error) if Failure::of(&error) == Failure::Exists => Err(exists(to, file)),
            // File systems without hard links (FAT, some network ones). The name is claimed by creating it.
            Err(_) if overwrite == Overwrite::Refuse => claim(out, folder, name, to, file),
            other => other.map_err(|error| in_the_way(to, file, error)),
        }
    });
    // After a rename it is gone already.
    let _ = folder.remove_file(temporary);
    placed
}

/// Writes straight to a name that must not exist, and takes it away again when that fails.
fn claim(out: &Dir, folder: &Dir, name: &str, to: &Path, file: &OutputFile) -> Result<()> {
    let mut copy =
        create_new(folder, name, file.executable, CreateMode::Ordinary).map_err(|error| in_the_way(to, file, error))?;
    copy_output(out, file, &mut copy).inspect_err(|_| {
        let _ = folder.remove_file(name);
    })
}

fn exists(to: &Path, file: &OutputFile) -> SkillRuntimeError {
    SkillRuntimeError::invalid(format!(
        "'{}' exists in '{}' already; choose another folder, or ask for files to be replaced",
        file.path,
        typed(to)
    ))
}

fn in_the_way(to_path: &Path, file: &OutputFile, error: io::Error) -> SkillRuntimeError {
    let (path, to) = (&file.path, typed(to_path));
    let (kind, message) = match Failure::of(&error) {
        Failure::Exists => return exists(to_path, file),
        Failure::NotFolder | Failure::IsFolder | Failure::Link => (
            ErrorKind::PathDenied,
            format!(
                "a folder, file or link stands in the way of '{path}' in '{to}'; remove it or choose another folder"
            ),
        ),
        Failure::Full => (ErrorKind::Backend, format!("no space left for '{path}' in '{to}'")),
        Failure::Missing | Failure::Denied | Failure::Other => {
            (ErrorKind::Backend, format!("could not write '{path}' in '{to}'"))
        }
    };
    SkillRuntimeError::new(kind, message).caused_by(error)
}
