//! Reading, writing and listing in the workspace, one component at a time, never through a link.

use std::io::{Read, Write};

use bytes::Bytes;
use cap_fs_ext::{DirExt, FollowSymlinks, OpenOptionsFollowExt, OpenOptionsSyncExt};
use cap_std::fs::{Dir, OpenOptions};

use super::guest_path::{Area, GuestPath, MAX_DEPTH};
use super::root::Workspace;
use super::transfer::Failure;
use crate::error::{ErrorKind, Result, SkillRuntimeError};
use crate::policy::Limits;

/// Entries of one folder that can be listed; a guest can make millions.
const MAX_LISTED: usize = 10_000;

/// Bytes set aside before a file is read.
const MAX_READ_AHEAD: u64 = 1 << 20;

/// What a directory entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// A symbolic link; never followed.
    Link,
    /// A socket, pipe or device; never opened.
    Special,
}

impl EntryKind {
    pub(super) fn of(kind: cap_std::fs::FileType) -> Self {
        if kind.is_file() {
            Self::File
        } else if kind.is_dir() {
            Self::Folder
        } else if kind.is_symlink() {
            Self::Link
        } else {
            Self::Special
        }
    }
}

/// One entry of a folder of the guest's world.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct GuestEntry {
    /// Its name; bytes that are no UTF-8 are shown as U+FFFD.
    pub name: String,
    /// What it is.
    pub kind: EntryKind,
    /// Bytes, for files.
    pub size: u64,
}

impl Workspace {
    /// Reads a file whole. See [`SkillRuntime::read_file`](crate::runtime::SkillRuntime::read_file).
    ///
    /// # Errors
    /// As there.
    pub fn read_file(&self, path: &GuestPath, limit: u64) -> Result<Bytes> {
        let (dir, inside) = self.locate(path)?;
        let (folder, name) = open_parent(&dir, &inside, path)?;
        let file = open_file_nofollow(&folder, name, path)?;
        let size = file.metadata().map_err(|error| io_error(path, error))?.len();
        let over = || {
            SkillRuntimeError::new(
                ErrorKind::LimitExceeded,
                format!("'{path}' is larger than the {limit} bytes that may be read"),
            )
        };
        if size > limit {
            return Err(over());
        }
        // A sparse file may claim any size, so no more than a little is set aside on its word.
        let mut bytes = Vec::with_capacity(usize::try_from(size.min(MAX_READ_AHEAD)).unwrap_or(0));
        // It may grow while it is read.
        file.take(limit.saturating_add(1)).read_to_end(&mut bytes).map_err(|error| io_error(path, error))?;
        if bytes.len() as u64 > limit { Err(over()) } else { Ok(bytes.into()) }
    }

    /// Writes a file whole or not at all. See [`SkillRuntime::write_file`](crate::runtime::SkillRuntime::write_file).
    ///
    /// # Errors
    /// As there.
    pub fn write_file(&self, path: &GuestPath, data: &[u8], limits: &Limits) -> Result<()> {
        let (area, inside) = path.in_area()?;
        if !area.writable() {
            return Err(SkillRuntimeError::new(
                ErrorKind::PathDenied,
                format!("'{path}' is read-only; write to /workspace/out or /workspace/tmp"),
            ));
        }
        let parts: Vec<&str> = inside.split('/').filter(|part| *part != ".").collect();
        let Some((name, parents)) = parts.split_last() else {
            return Err(SkillRuntimeError::new(
                ErrorKind::PathDenied,
                format!("'{path}' is a folder; name a file in it"),
            ));
        };
        self.check_room(area, &inside, path, data.len() as u64, limits)?;
        let mut folder = self.area(area).try_clone().map_err(|error| io_error(path, error))?;
        for part in parents {
            match folder.create_dir(part) {
                Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(io_error(path, error)),
                _ => {}
            }
            folder = folder.open_dir_nofollow(part).map_err(|error| io_error(path, error))?;
        }
        write_whole(&folder, name, data).map_err(|error| io_error(path, error))
    }

    /// Lists a folder, sorted by name.
    ///
    /// # Errors
    /// See [`SkillRuntime::list_files`](crate::runtime::SkillRuntime::list_files).
    pub fn list(&self, path: &GuestPath) -> Result<Vec<GuestEntry>> {
        if path.parts().is_empty() {
            let folder = |area: Area| GuestEntry { name: area.name().to_owned(), kind: EntryKind::Folder, size: 0 };
            let mut all: Vec<GuestEntry> = Area::ALL.into_iter().map(folder).collect();
            all.sort_by(|a, b| a.name.cmp(&b.name));
            return Ok(all);
        }
        let (dir, inside) = self.locate(path)?;
        let mut folder = dir;
        for part in inside.split('/').filter(|part| *part != ".") {
            folder = folder.open_dir_nofollow(part).map_err(|error| io_error(path, error))?;
        }
        let mut entries = Vec::new();
        for entry in folder.entries().map_err(|error| io_error(path, error))? {
            let entry = entry.map_err(|error| io_error(path, error))?;
            // A file may vanish between the listing and the look.
            let Ok(metadata) = entry.metadata() else { continue };
            let kind = EntryKind::of(metadata.file_type());
            let size = if kind == EntryKind::File { metadata.len() } else { 0 };
            entries.push(GuestEntry { name: entry.file_name().to_string_lossy().into_owned(), kind, size });
            if entries.len() > MAX_LISTED {
                return Err(SkillRuntimeError::new(
                    ErrorKind::LimitExceeded,
                    format!("'{path}' holds more than {MAX_LISTED} entries; list a folder below it"),
                ));
            }
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    /// Whether a write keeps the guest's world within its limits. A look before the act: a guest that writes at the same
    /// time is held by its runtime, not by this.
    fn check_room(&self, area: Area, inside: &str, path: &GuestPath, bytes: u64, limits: &Limits) -> Result<()> {
        let over = |what: String| {
            SkillRuntimeError::new(
                ErrorKind::LimitExceeded,
                format!("writing '{path}' would pass {what}; remove something first"),
            )
        };
        let mut usage = Usage { bytes: 0, entries: 0, max_entries: limits.files };
        for writable in [Area::Out, Area::Tmp] {
            usage.add(self.area(writable), 0).map_err(|error| io_error(path, error))?;
        }
        let mut replaced = 0;
        let mut missing = 0;
        let mut folder = Some(self.area(area).try_clone().map_err(|error| io_error(path, error))?);
        let (parents, name) = inside.rsplit_once('/').unwrap_or(("", inside));
        for part in parents.split('/').filter(|part| !part.is_empty()) {
            folder = folder.and_then(|folder| folder.open_dir_nofollow(part).ok());
            missing += u64::from(folder.is_none());
        }
        match folder.map(|folder| folder.symlink_metadata(name)) {
            Some(Ok(metadata)) => replaced = metadata.len(),
            Some(Err(_)) | None => missing += 1,
        }
        if usage.entries.saturating_add(missing) > limits.files {
            return Err(over(format!("the limit of {} files and folders", limits.files)));
        }
        if usage.bytes.saturating_sub(replaced).saturating_add(bytes) > limits.disk {
            return Err(over(format!("the disk limit of {} bytes", limits.disk)));
        }
        Ok(())
    }

    /// The folder handle behind a guest path (a mount or an area) and the path inside it.
    fn locate(&self, path: &GuestPath) -> Result<(Dir, String)> {
        let clone = |dir: &Dir| dir.try_clone().map_err(|error| io_error(path, error));
        for mount in &self.mounts {
            if let Some(inside) = path.parts().strip_prefix(mount.guest.parts()) {
                let inside = if inside.is_empty() { ".".to_owned() } else { inside.join("/") };
                return Ok((clone(&mount.dir)?, inside));
            }
        }
        let (area, inside) = path.in_area()?;
        Ok((clone(self.area(area))?, inside))
    }
}

/// What lies in the writable areas.
struct Usage {
    bytes: u64,
    entries: u64,
    /// Counting ends above it: a guest can make more than anybody wants to count.
    max_entries: u64,
}

impl Usage {
    /// Counts a folder and what lies below it, to the depth that guest paths reach. Deeper folders can't be named by the
    /// host and are the runtime's business.
    fn add(&mut self, dir: &Dir, depth: usize) -> std::io::Result<()> {
        for entry in dir.entries()? {
            if self.entries > self.max_entries {
                break;
            }
            let entry = entry?;
            self.entries += 1;
            // What vanishes or is closed meanwhile has been counted as an entry.
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.is_dir() && depth < MAX_DEPTH {
                if let Ok(below) = dir.open_dir_nofollow(entry.file_name()) {
                    // A folder that can't be listed is the guest's own doing; its files are within what it made before.
                    let _ = self.add(&below, depth + 1);
                }
            } else {
                self.bytes = self.bytes.saturating_add(metadata.len());
            }
        }
        Ok(())
    }
}

/// Walks to the folder of the last component without following a link.
fn open_parent<'a>(dir: &Dir, inside: &'a str, path: &GuestPath) -> Result<(Dir, &'a str)> {
    let (parents, name) = inside.rsplit_once('/').map_or((None, inside), |(parents, name)| (Some(parents), name));
    if name == "." {
        return Err(SkillRuntimeError::new(ErrorKind::PathDenied, format!("'{path}' is a folder; name a file in it")));
    }
    let mut folder = dir.try_clone().map_err(|error| io_error(path, error))?;
    for part in parents.into_iter().flat_map(|parents| parents.split('/')) {
        folder = folder.open_dir_nofollow(part).map_err(|error| io_error(path, error))?;
    }
    Ok((folder, name))
}

/// Opens a regular file for reading: no link, no pipe that would block, no device.
fn open_file_nofollow(folder: &Dir, name: &str, path: &GuestPath) -> Result<cap_std::fs::File> {
    let mut options = OpenOptions::new();
    options.read(true).follow(FollowSymlinks::No).nonblock(true);
    let file = folder.open_with(name, &options).map_err(|error| io_error(path, error))?;
    let kind = EntryKind::of(file.metadata().map_err(|error| io_error(path, error))?.file_type());
    match kind {
        EntryKind::File => Ok(file),
        EntryKind::Folder => {
            Err(SkillRuntimeError::new(ErrorKind::PathDenied, format!("'{path}' is a folder, not a file")))
        }
        EntryKind::Link | EntryKind::Special => {
            Err(SkillRuntimeError::new(ErrorKind::PathDenied, format!("'{path}' is not a regular file")))
        }
    }
}

/// Writes beside the target and renames over it: a reader sees the old file or the new one, never a part.
pub(super) fn write_whole(folder: &Dir, name: &str, data: &[u8]) -> std::io::Result<()> {
    if folder.symlink_metadata(name).is_ok_and(|metadata| metadata.is_dir()) {
        return Err(std::io::ErrorKind::IsADirectory.into());
    }
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(std::io::Error::other)?;
    let temporary = format!(".skillcell-{:016x}", u64::from_be_bytes(random));
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    let written = folder
        .open_with(&temporary, &options)
        .and_then(|mut file| file.write_all(data))
        // Renaming replaces a link itself, not what it points to.
        .and_then(|()| folder.rename(&temporary, folder, name));
    if written.is_err() {
        let _ = folder.remove_file(&temporary);
    }
    written
}

/// Turns an error of the host's file system into ours, without the host's path.
fn io_error(path: &GuestPath, error: std::io::Error) -> SkillRuntimeError {
    let (kind, message) = match Failure::of(&error) {
        Failure::Missing => (ErrorKind::NotFound, format!("'{path}' does not exist")),
        Failure::NotFolder => (
            ErrorKind::PathDenied,
            format!("a folder on the way to '{path}' is a link or a file, which is not followed"),
        ),
        Failure::IsFolder => (ErrorKind::PathDenied, format!("'{path}' is a folder, not a file")),
        Failure::Link => (ErrorKind::PathDenied, format!("'{path}' is a link, which is never followed")),
        Failure::Denied => (ErrorKind::PathDenied, format!("'{path}' can't be opened")),
        Failure::Full => (ErrorKind::Backend, format!("no space left for '{path}'")),
        Failure::Exists | Failure::Other => (ErrorKind::Backend, format!("could not access '{path}'")),
    };
    SkillRuntimeError::new(kind, message).caused_by(error)
}
