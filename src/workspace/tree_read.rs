//! Reading a file out of a [`HostTree`] after it was verified.
//!
//! Invariant: the bytes returned are the bytes that the tree's digest covers; a file that changed since is an error,
//! never data.

use std::io::Read;

use super::host_tree::HostTree;
use super::transfer::{hash_into, open_below, open_regular, read_remedy, says_changed, shown};
use crate::error::{ErrorKind, Result, SkillRuntimeError};

impl HostTree {
    /// Reads a file of the tree whole, at most `limit` bytes, and compares it with the digest taken when the tree was
    /// read.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound): no such file. [`LimitExceeded`](ErrorKind::LimitExceeded): it is larger.
    /// [`TrustViolation`](ErrorKind::TrustViolation): it changed since the tree was read.
    /// [`Backend`](ErrorKind::Backend): the system failed.
    pub fn read(&self, path: &str, limit: u64) -> Result<Vec<u8>> {
        let named = |kind, what: String| {
            SkillRuntimeError::new(kind, format!("'{}' in '{}' {what}", shown(path), shown(self.name())))
        };
        let entry = self.entry(path).ok_or_else(|| named(ErrorKind::NotFound, "does not exist".to_owned()))?;
        if entry.size > limit {
            return Err(named(ErrorKind::LimitExceeded, format!("has {} bytes; at most {limit} are read", entry.size)));
        }
        let changed = || {
            named(ErrorKind::TrustViolation, "changed since it was verified; leave it alone during a run".to_owned())
                .operation("trust")
        };
        let (parent, name) = entry.origin.rsplit_once('/').unwrap_or(("", &entry.origin));
        let mut bytes = Vec::with_capacity(usize::try_from(entry.size).unwrap_or(0));
        let hashed = open_below(self.root(), parent.split('/'))
            .and_then(|folder| open_regular(&folder, name))
            // One byte more than there was shows growth without reading what was added.
            .and_then(|(file, _)| {
                hash_into(&mut file.take(entry.size.saturating_add(1)), entry.size, entry.size, &mut bytes)
            })
            .map_err(|error| {
                if says_changed(&error) {
                    changed().caused_by(error)
                } else {
                    named(ErrorKind::Backend, format!("could not be read; {}", read_remedy(&error))).caused_by(error)
                }
            })?;
        if hashed.bytes == entry.size && hashed.sha256 == entry.sha256 { Ok(bytes) } else { Err(changed()) }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the test plays the host's other programs")]
    fn what_is_read_is_what_was_verified() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.txt");
        std::fs::write(&path, "one").unwrap();
        let tree = HostTree::open_folder(folder.path()).unwrap();
        assert_eq!(tree.read("a.txt", 3).unwrap(), b"one");
        assert_eq!(tree.read("a.txt", 2).unwrap_err().kind(), ErrorKind::LimitExceeded);
        assert_eq!(tree.read("b.txt", 2).unwrap_err().kind(), ErrorKind::NotFound);
        for changed in ["two", "onemore", "o", ""] {
            std::fs::write(&path, changed).unwrap();
            assert_eq!(tree.read("a.txt", 3).unwrap_err().kind(), ErrorKind::TrustViolation, "{changed}");
        }
        std::fs::remove_file(&path).unwrap();
        assert_eq!(tree.read("a.txt", 3).unwrap_err().kind(), ErrorKind::TrustViolation);
    }
}
