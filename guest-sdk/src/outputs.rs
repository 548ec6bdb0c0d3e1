//! Writing results, whole or not at all.
//!
//! A run can end at any instruction (a time limit, no more fuel), and what then lies in the outputs folder is
//! collected. So a file is written under a hidden name beside its place and renamed when it is complete: under its
//! own name it is never half. Where the runtime lets a program add files but not rename them, the complete text is
//! copied instead; that is the one case in which a reader can meet half a file.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::names::{join, named};
use crate::workspace::Workspace;

/// Hidden names tried before giving up: leftovers of this many earlier runs in one folder are a defect.
const MAX_PARTIAL_NAMES: u32 = 100;

/// A result that is being written. It appears under its name when [`commit`](Self::commit) succeeds; dropped before
/// that, it leaves nothing.
#[derive(Debug)]
pub struct Output {
    /// `None` once the file was closed by `commit`.
    file: Option<File>,
    partial: PathBuf,
    path: PathBuf,
    committed: bool,
}

impl Output {
    /// Where the result will lie.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Gives the result its name, replacing an earlier one.
    ///
    /// # Errors
    /// What the file system says, with the path; then nothing changed under that name, but for the case of a folder
    /// without renaming, where the copy may be incomplete.
    pub fn commit(mut self) -> io::Result<()> {
        // Closed first: some hosts rename no open file.
        drop(self.file.take());
        match fs::rename(&self.partial, &self.path) {
            Ok(()) => {
                self.committed = true;
                Ok(())
            }
            Err(error) if renaming_is_refused(&error) && !self.path.is_dir() => {
                // `partial` is removed by Drop, where the folder allows that.
                fs::copy(&self.partial, &self.path).map_err(|error| named(&error, "can't write", &self.path))?;
                Ok(())
            }
            Err(error) => Err(named(&error, "can't write", &self.path)),
        }
    }
}

/// A folder that takes new files but no renames answers with one of these.
fn renaming_is_refused(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported | io::ErrorKind::CrossesDevices)
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.file {
            Some(file) => file.write(bytes).map_err(|error| named(&error, "can't write", &self.path)),
            None => Err(io::Error::other("the output is closed")),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.file {
            Some(file) => file.flush(),
            None => Ok(()),
        }
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        drop(self.file.take());
        if !self.committed {
            // Nobody can be told: an unfinished file that can't be removed stays under its hidden name.
            let _ = fs::remove_file(&self.partial);
        }
    }
}

impl Workspace {
    /// Begins a result; `name` is relative to the outputs folder, and folders in it are made.
    ///
    /// # Errors
    /// `InvalidInput` for a name that is absolute or holds `..`; else what the file system says, with the path.
    pub fn create_output(&self, name: &str) -> io::Result<Output> {
        let path = join(self.outputs_dir(), name)?;
        let (Some(folder), Some(file_name)) = (path.parent(), path.file_name()) else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("the name '{name}' names no file")));
        };
        fs::create_dir_all(folder).map_err(|error| named(&error, "can't make the folder", folder))?;
        for attempt in 0..MAX_PARTIAL_NAMES {
            let partial = folder.join(format!(".{}.partial{attempt}", file_name.to_string_lossy()));
            match OpenOptions::new().write(true).create_new(true).open(&partial) {
                Ok(file) => return Ok(Output { file: Some(file), partial, path, committed: false }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(named(&error, "can't create", &path)),
            }
        }
        Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            format!("{} has {MAX_PARTIAL_NAMES} unfinished versions beside it; remove them", path.display()),
        ))
    }

    /// Writes a whole result at once.
    ///
    /// # Errors
    /// As [`create_output`](Self::create_output) and [`Output::commit`].
    pub fn write_output(&self, name: &str, content: impl AsRef<[u8]>) -> io::Result<()> {
        let mut output = self.create_output(name)?;
        output.write_all(content.as_ref())?;
        output.commit()
    }
}
