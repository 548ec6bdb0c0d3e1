//! Files of a [`PrivateDir`] whose content was checked once: a seal beside the file says what the file was when its
//! content was found right, so that later calls need not read it again.
//!
//! A seal names the file by device, inode, size and the times of its last change of content and of status. The kernel
//! sets the latter by its own clock at every change, and no program can set it back; so whatever writes to the file,
//! replaces it or copies it elsewhere and back, makes the seal void, and the content is read and checked again. It is a
//! record against damage and mistakes, not a proof against this user: who can write to the folder is this user, and this
//! user can exchange the command itself.
//!
//! Invariant: a seal is only written for a file that was found right, or that was just written and lies safely on disk.

use std::fs::File;

use super::private_dir::{PrivateDir, read_whole};

/// Changes with what a seal says.
const FORMAT: &str = "skillcell seal 1";
/// Longer than any seal.
const MAX_SEAL_BYTES: u64 = 1024;
/// What a seal is called: the file's name and this.
pub(super) const SUFFIX: &str = ".seal";

impl PrivateDir {
    /// Opens a file, which may lie in a folder of this folder, whose content is right: as its seal says, or else as
    /// `fits` says of its bytes, of which there may be `limit`. `content` names what is expected in the file, on one
    /// line; another expectation voids a seal. Anything that [`read`](Self::read) doesn't give counts as missing.
    #[must_use]
    pub fn read_checked(
        &self,
        name: &str,
        content: &str,
        limit: u64,
        fits: impl FnOnce(&[u8]) -> bool,
    ) -> Option<File> {
        let file = self.read(name)?;
        // Taken before the content is read: a change meanwhile gives the file another one.
        let seal = seal(&file, content);
        if seal.is_some() && seal == self.seal_of(name) {
            return Some(file);
        }
        if !fits(&read_whole(&file, limit).ok()?) {
            return None;
        }
        self.put_seal(name, seal);
        Some(file)
    }

    /// Writes a file as [`write`](Self::write) does, waits until the disk has it, and seals it.
    ///
    /// # Errors
    /// Of the file system. A seal that can't be written is no error: the content is checked instead.
    pub fn write_checked(&self, name: &str, content: &str, parts: &[&[u8]]) -> std::io::Result<()> {
        let file = self.write_through(name, parts)?;
        // Of the file that was written here: another process may have put its own in its place meanwhile.
        self.put_seal(name, seal(&file, content));
        Ok(())
    }

    fn seal_of(&self, name: &str) -> Option<String> {
        let bytes = read_whole(&self.read(&seal_name(name))?, MAX_SEAL_BYTES).ok()?;
        String::from_utf8(bytes).ok()
    }

    fn put_seal(&self, name: &str, seal: Option<String>) {
        let Some(seal) = seal else { return };
        if let Err(error) = self.write(&seal_name(name), &[seal.as_bytes()]) {
            tracing::debug!(%error, name, "a checked file could not be sealed; it is checked again next time");
        }
    }
}

/// Where a file's seal is: in the folder itself, also for a file further down, so that a guest that is shown what lies
/// further down sees no seal.
fn seal_name(name: &str) -> String {
    let last = name.rsplit_once('/').map_or(name, |(_, last)| last);
    format!("{last}{SUFFIX}")
}

/// What a seal says of a file.
#[cfg(unix)]
fn seal(file: &File, content: &str) -> Option<String> {
    use std::os::unix::fs::MetadataExt;
    let is = file.metadata().ok()?;
    Some(format!(
        "{FORMAT}\n{content}\n{} {} {} {}.{:09} {}.{:09}\n",
        is.dev(),
        is.ino(),
        is.size(),
        is.mtime(),
        is.mtime_nsec(),
        is.ctime(),
        is.ctime_nsec()
    ))
}

/// Elsewhere nothing tells reliably whether a file was changed: its content is checked each time.
#[cfg(not(unix))]
fn seal(_file: &File, _content: &str) -> Option<String> {
    None
}

#[cfg(all(test, unix))]
#[expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]
mod tests {
    use std::cell::Cell;
    use std::os::unix::fs::FileExt;
    use std::path::Path;
    use std::time::SystemTime;

    use super::*;

    /// Opens "x", which should hold "right", and says whether it was found and whether its content was looked at.
    fn open(folder: &PrivateDir, content: &str) -> (bool, bool) {
        let looked = Cell::new(false);
        let found = folder.read_checked("x", content, 100, |bytes| {
            looked.set(true);
            bytes == b"right"
        });
        (found.is_some(), looked.get())
    }

    fn change(path: &Path, change: impl FnOnce(&File)) {
        let file = File::options().write(true).open(path).unwrap();
        change(&file);
    }

    const MISSING: (bool, bool) = (false, false);
    const TRUSTED: (bool, bool) = (true, false);
    const CHECKED: (bool, bool) = (true, true);
    const REFUSED: (bool, bool) = (false, true);

    #[test]
    fn content_is_looked_at_once_and_again_after_every_change() {
        let parent = tempfile::tempdir().unwrap();
        let folder = PrivateDir::open(parent.path()).unwrap();
        let path = parent.path().join("x");
        assert_eq!(open(&folder, "a"), MISSING);
        folder.write("x", &[b"right"]).unwrap();
        assert_eq!([open(&folder, "a"), open(&folder, "a")], [CHECKED, TRUSTED]);
        assert_eq!([open(&folder, "b"), open(&folder, "b")], [CHECKED, TRUSTED], "another expectation");
        folder.write_checked("x", "b", &[b"ri", b"ght"]).unwrap();
        assert_eq!(open(&folder, "b"), TRUSTED, "sealed when it was written");

        // The same size and, as a careful writer would leave it, the same time of the last change of content.
        let before = std::fs::metadata(&path).unwrap().modified().unwrap();
        change(&path, |file| {
            file.write_all_at(b"wrong", 0).unwrap();
            file.set_modified(before).unwrap();
        });
        assert_eq!([open(&folder, "b"), open(&folder, "b")], [REFUSED, REFUSED], "never sealed");
        change(&path, |file| file.write_all_at(b"right", 0).unwrap());
        assert_eq!([open(&folder, "b"), open(&folder, "b")], [CHECKED, TRUSTED]);
        change(&path, |file| file.set_modified(SystemTime::UNIX_EPOCH).unwrap());
        assert_eq!([open(&folder, "b"), open(&folder, "b")], [CHECKED, TRUSTED], "touched");
        folder.write("x", &[b"right"]).unwrap();
        assert_eq!([open(&folder, "b"), open(&folder, "b")], [CHECKED, TRUSTED], "replaced");
        change(&path, |file| file.set_len(3).unwrap());
        assert_eq!(open(&folder, "b"), REFUSED, "cut");
    }

    #[test]
    fn a_seal_that_is_damaged_or_not_private_counts_for_nothing() {
        use std::os::unix::fs::PermissionsExt;
        let parent = tempfile::tempdir().unwrap();
        let folder = PrivateDir::open(parent.path()).unwrap();
        folder.write_checked("x", "a", &[b"right"]).unwrap();
        let seal = folder.seal_of("x").unwrap();
        for damaged in ["", "x", &seal[1..], &seal[..seal.len() - 1], &format!("{seal}x"), &"x".repeat(5000)] {
            folder.write("x.seal", &[damaged.as_bytes()]).unwrap();
            assert_eq!([open(&folder, "a"), open(&folder, "a")], [CHECKED, TRUSTED], "{damaged:?}");
        }
        assert_eq!(folder.seal_of("x").unwrap(), seal);
        let mode = |mode| std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(parent.path().join("x.seal"), mode(0o622)).unwrap();
        assert_eq!([open(&folder, "a"), open(&folder, "a")], [CHECKED, TRUSTED]);
        std::fs::set_permissions(parent.path().join("x"), mode(0o622)).unwrap();
        assert_eq!(open(&folder, "a"), MISSING, "the file itself is not private");
    }

    fn names(path: &Path) -> usize {
        std::fs::read_dir(path).unwrap().count()
    }

    #[test]
    fn a_file_further_down_has_its_seal_above() {
        let parent = tempfile::tempdir().unwrap();
        let folder = PrivateDir::open(parent.path()).unwrap();
        PrivateDir::open(&parent.path().join("shown")).unwrap();
        folder.write_checked("shown/x", "a", &[b"right"]).unwrap();
        let found = || folder.read_checked("shown/x", "a", 100, |_| panic!("it is sealed"));
        assert!(found().is_some());
        // The upper folder has its mark besides.
        assert_eq!((names(parent.path()), names(&parent.path().join("shown"))), (3, 1));
    }

    #[test]
    fn seals_go_with_their_files() {
        let parent = tempfile::tempdir().unwrap();
        let folder = PrivateDir::open(parent.path()).unwrap();
        folder.write_checked("x", "a", &[b"right"]).unwrap();
        folder.shrink(0);
        assert_eq!(names(parent.path()), 1, "only the folder's mark");
    }
}
