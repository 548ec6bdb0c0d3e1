//! Listing and reading what the caller gave.
//!
//! Links are not followed while listing: a link into another folder would list a file twice or never end. Order is
//! by name, so that a report does not change with the host's file system.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::names::{join, named};
use crate::workspace::Workspace;

/// More files than this are not listed: a program that wants a million names at once should walk them itself.
pub const MAX_INPUT_FILES: usize = 100_000;
/// Deeper folders than this are not listed; skillcell stages none that are deeper.
pub const MAX_INPUT_DEPTH: usize = 64;

/// One input file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Input {
    name: String,
    path: PathBuf,
    size: u64,
}

impl Input {
    /// The name below the inputs folder, with `/` between folders. Bytes that are no UTF-8 show as `U+FFFD`;
    /// [`path`](Self::path) has them as they are.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The whole path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The size in bytes when it was listed.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }
}

impl Workspace {
    /// Every regular file below the inputs folder, sorted by name.
    ///
    /// # Errors
    /// What the file system says, with the path; `InvalidData` past [`MAX_INPUT_FILES`] or [`MAX_INPUT_DEPTH`].
    pub fn inputs(&self) -> io::Result<Vec<Input>> {
        let mut found = Vec::new();
        let mut waiting = vec![(self.inputs_dir().to_path_buf(), String::new(), 0)];
        while let Some((folder, prefix, depth)) = waiting.pop() {
            if depth > MAX_INPUT_DEPTH {
                return Err(too_much(&folder, "is deeper than 64 folders"));
            }
            for entry in fs::read_dir(&folder).map_err(|error| named(&error, "can't list", &folder))? {
                let entry = entry.map_err(|error| named(&error, "can't list", &folder))?;
                let path = entry.path();
                let kind = entry.file_type().map_err(|error| named(&error, "can't look at", &path))?;
                let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
                if kind.is_dir() {
                    waiting.push((path, format!("{name}/"), depth + 1));
                } else if kind.is_file() {
                    let size = entry.metadata().map_err(|error| named(&error, "can't look at", &path))?.len();
                    found.push(Input { name, path, size });
                }
                if found.len() + waiting.len() > MAX_INPUT_FILES {
                    return Err(too_much(self.inputs_dir(), "holds more than 100000 files"));
                }
            }
        }
        found.sort_by(|one, other| one.name.cmp(&other.name).then_with(|| one.path.cmp(&other.path)));
        Ok(found)
    }

    /// Opens an input by its name below the inputs folder.
    ///
    /// # Errors
    /// `InvalidInput` for a name that is absolute or holds `..`; else what the file system says, with the path.
    pub fn open_input(&self, name: &str) -> io::Result<File> {
        let path = join(self.inputs_dir(), name)?;
        File::open(&path).map_err(|error| named(&error, "can't open", &path))
    }

    /// Reads an input that is text and at most `limit` bytes long.
    ///
    /// # Errors
    /// As [`open_input`](Self::open_input); `InvalidData` when it is longer or no UTF-8.
    pub fn read_input_text(&self, name: &str, limit: u64) -> io::Result<String> {
        let path = join(self.inputs_dir(), name)?;
        let mut bytes = Vec::new();
        // One byte more than allowed tells "exactly the limit" from "more" without trusting the size it claims.
        self.open_input(name)?
            .take(limit.saturating_add(1))
            .read_to_end(&mut bytes)
            .map_err(|error| named(&error, "can't read", &path))?;
        if bytes.len() as u64 > limit {
            return Err(too_much(&path, &format!("is longer than {limit} bytes")));
        }
        String::from_utf8(bytes).map_err(|error| {
            let position = error.utf8_error().valid_up_to();
            too_much(&path, &format!("is no UTF-8 text (byte {position})"))
        })
    }
}

fn too_much(path: &Path, why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{} {why}", path.display()))
}
