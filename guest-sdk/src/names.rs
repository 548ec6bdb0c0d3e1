//! The check of names that a program gives for its inputs and outputs.
//!
//! The sandbox holds whatever a name says; this check exists so that a slip (an absolute path, a `..` taken from the
//! data) gives the program's author a plain message and not a refusal of the operating system.

use std::io;
use std::path::{Component, Path, PathBuf};

/// Joins a relative name to a folder.
///
/// # Errors
/// `InvalidInput` when the name is empty, absolute, ends in `/`, or holds `..` or a NUL.
pub(crate) fn join(folder: &Path, name: &str) -> io::Result<PathBuf> {
    let refuse = |why: &str| {
        Err(io::Error::new(io::ErrorKind::InvalidInput, format!("the name '{}' {why}", name.escape_debug())))
    };
    if name.is_empty() {
        return refuse("is empty");
    }
    if name.contains('\0') {
        return refuse("holds a NUL");
    }
    if name.ends_with('/') {
        return refuse("ends in '/'; name a file");
    }
    let mut path = folder.to_path_buf();
    let mut parts = 0;
    for part in Path::new(name).components() {
        match part {
            Component::Normal(part) => {
                path.push(part);
                parts += 1;
            }
            Component::CurDir => {}
            Component::ParentDir => return refuse("holds '..'; name the file from the folder down"),
            Component::RootDir | Component::Prefix(_) => return refuse("is absolute; give it relative to the folder"),
        }
    }
    if parts == 0 { refuse("names no file") } else { Ok(path) }
}

/// Puts the file's name before the operating system's words, which never have it.
pub(crate) fn named(error: &io::Error, what: &str, path: &Path) -> io::Error {
    io::Error::new(error.kind(), format!("{what} {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_below_the_folder() {
        let folder = Path::new("/f");
        for (name, expected) in [("a.txt", "/f/a.txt"), ("./a/b", "/f/a/b"), ("..a", "/f/..a"), ("a//b", "/f/a/b")] {
            assert_eq!(join(folder, name).unwrap(), Path::new(expected), "{name}");
        }
        for name in ["", ".", "/etc/passwd", "..", "a/../b", "a/", "a\0b"] {
            assert_eq!(join(folder, name).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{name:?}");
        }
    }
}
