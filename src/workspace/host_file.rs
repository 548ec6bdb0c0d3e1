//! Files of this machine that the caller names: a lock file, a transcript, a step's configuration.
//!
//! The path is the caller's own, so links are followed as anywhere. Nothing a guest, a model or a skill wrote may
//! ever be used as a path here.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::Path;

use cap_std::ambient_authority;
use cap_std::fs::Dir;

use super::access::write_whole;
use crate::error::{ErrorKind, Result, SkillRuntimeError};

/// Reads a file whole, at most `limit` bytes.
///
/// # Errors
/// [`NotFound`](ErrorKind::NotFound), [`PathDenied`](ErrorKind::PathDenied) (a folder, no permission),
/// [`LimitExceeded`](ErrorKind::LimitExceeded).
pub fn read_host_file(path: &Path, limit: u64) -> Result<Vec<u8>> {
    let failed = |error: std::io::Error| {
        let (kind, what) = match error.kind() == std::io::ErrorKind::NotFound {
            true => (ErrorKind::NotFound, "does not exist"),
            false => (ErrorKind::PathDenied, "can't be read"),
        };
        SkillRuntimeError::new(kind, format!("{} {what}", path.display())).caused_by(error)
    };
    #[expect(clippy::disallowed_methods, reason = "this module is the home of files the caller names")]
    let file = File::open(path).map_err(failed)?;
    if file.metadata().map_err(failed)?.is_dir() {
        return Err(SkillRuntimeError::new(
            ErrorKind::PathDenied,
            format!("{} is a folder, not a file", path.display()),
        ));
    }
    let mut bytes = Vec::new();
    // Counted while reading: a pipe or a device has no size.
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > limit {
        return Err(SkillRuntimeError::new(
            ErrorKind::LimitExceeded,
            format!("{} has more than {limit} bytes", path.display()),
        ));
    }
    Ok(bytes)
}

/// Whether there is a regular file, or a link to one.
#[must_use]
pub fn host_file_exists(path: &Path) -> bool {
    path.is_file()
}

/// The names in a folder, sorted; names that are no UTF-8 are left out. A folder that isn't there has none.
///
/// # Errors
/// [`LimitExceeded`](ErrorKind::LimitExceeded) for more than `limit` names; [`PathDenied`](ErrorKind::PathDenied) when it
/// can't be read.
pub fn list_host_folder(path: &Path, limit: usize) -> Result<Vec<String>> {
    let failed = |error: std::io::Error| {
        SkillRuntimeError::new(ErrorKind::PathDenied, format!("{} can't be listed", path.display())).caused_by(error)
    };
    let entries = match path.read_dir() {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        names.extend(entry.map_err(failed)?.file_name().into_string().ok());
        if names.len() > limit {
            return Err(SkillRuntimeError::new(
                ErrorKind::LimitExceeded,
                format!("{} holds more than {limit} entries; name the skill's folder itself", path.display()),
            ));
        }
    }
    names.sort();
    Ok(names)
}

/// Writes a file whole or not at all, replacing what is there.
///
/// # Errors
/// [`Backend`](ErrorKind::Backend) naming the path.
pub fn write_host_file(path: &Path, data: &[u8]) -> Result<()> {
    let failed =
        |error: std::io::Error| SkillRuntimeError::backend(format!("could not write {}", path.display()), error);
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = path.file_name().and_then(|name| name.to_str()).ok_or_else(|| {
        SkillRuntimeError::invalid(format!("{} has no file name that could be written", path.display()))
    })?;
    let folder = Dir::open_ambient_dir(parent, ambient_authority()).map_err(failed)?;
    write_whole(&folder, name, data).map_err(failed)
}

/// A file that only grows: each line is on the disk before the call returns.
#[derive(Debug)]
pub struct AppendFile {
    file: File,
    shown: String,
}

impl AppendFile {
    /// Makes a new file, readable by the owner only: a transcript holds what the task holds.
    ///
    /// # Errors
    /// [`InvalidConfig`](ErrorKind::InvalidConfig) when the file exists, [`Backend`](ErrorKind::Backend) otherwise.
    pub fn create(path: &Path) -> Result<Self> {
        let mut options = OpenOptions::new();
        options.append(true).create_new(true);
        #[cfg(unix)]
        {
            use std::os::unix::fs::OpenOptionsExt;
            options.mode(0o600);
        }
        let file = options.open(path).map_err(|error| match error.kind() == std::io::ErrorKind::AlreadyExists {
            true => SkillRuntimeError::invalid(format!("{} exists; name a new file", path.display())),
            false => SkillRuntimeError::backend(format!("could not make {}", path.display()), error),
        })?;
        Ok(Self { file, shown: path.display().to_string() })
    }

    /// Opens a file that exists, to go on at its end.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound) or [`Backend`](ErrorKind::Backend).
    pub fn open_existing(path: &Path) -> Result<Self> {
        let file = OpenOptions::new().append(true).open(path).map_err(|error| {
            let kind = match error.kind() == std::io::ErrorKind::NotFound {
                true => ErrorKind::NotFound,
                false => ErrorKind::Backend,
            };
            SkillRuntimeError::new(kind, format!("could not open {} for appending", path.display())).caused_by(error)
        })?;
        Ok(Self { file, shown: path.display().to_string() })
    }

    /// Appends bytes and waits until they are on the disk.
    ///
    /// # Errors
    /// [`Backend`](ErrorKind::Backend) naming the path.
    pub fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.file
            .write_all(bytes)
            .and_then(|()| self.file.sync_data())
            .map_err(|error| SkillRuntimeError::backend(format!("could not write to {}", self.shown), error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_bounded_whole_and_never_silently_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        write_host_file(&path, b"one").unwrap();
        write_host_file(&path, b"three").unwrap();
        assert_eq!(read_host_file(&path, 5).unwrap(), b"three");
        assert_eq!(read_host_file(&path, 4).unwrap_err().kind(), ErrorKind::LimitExceeded);
        assert_eq!(read_host_file(folder.path(), 4).unwrap_err().kind(), ErrorKind::PathDenied);
        assert_eq!(read_host_file(&folder.path().join("b"), 4).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(AppendFile::create(&path).unwrap_err().kind(), ErrorKind::InvalidConfig);
        let log = folder.path().join("log");
        assert_eq!(AppendFile::open_existing(&log).unwrap_err().kind(), ErrorKind::NotFound);
        AppendFile::create(&log).unwrap().append(b"a\n").unwrap();
        AppendFile::open_existing(&log).unwrap().append(b"b\n").unwrap();
        assert_eq!(read_host_file(&log, 99).unwrap(), b"a\nb\n");
    }
}
