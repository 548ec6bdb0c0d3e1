//! Moving bytes between folders: opening without following a link, hashing while reading, copying while hashing.
//!
//! Everything here takes directory handles and names of one component. Invariant: the bytes that were hashed are the
//! bytes that were written; a file is never read twice for one decision.

use std::io::{self, Read, Write};
use std::path::Path;

use cap_fs_ext::{DirExt, FollowSymlinks, OpenOptionsFollowExt, OpenOptionsSyncExt};
use cap_std::fs::{Dir, File, Metadata, OpenOptions};
use sha2::{Digest, Sha256};

use super::access::EntryKind;
use crate::digest::hex;

/// Read at once: beyond this, larger reads gain nothing measurable, and it stays in the second-level cache.
const BUFFER_BYTES: usize = 128 << 10;

/// What an error of the system means to us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    /// It isn't there.
    Missing,
    /// Something of that name is there.
    Exists,
    /// A folder was needed; a file or a link is there.
    NotFolder,
    /// A file was needed; a folder is there.
    IsFolder,
    /// A link was there that isn't followed.
    Link,
    /// The permissions forbid it.
    Denied,
    /// No space, or no quota.
    Full,
    /// Anything else.
    Other,
}

/// `ELOOP`, which the standard library can't name on stable.
#[cfg(any(target_os = "linux", target_os = "android"))]
const LINK_NOT_FOLLOWED: i32 = 40;
/// As above: the number of macOS and the BSDs.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const LINK_NOT_FOLLOWED: i32 = 62;

impl Failure {
    #[expect(clippy::wildcard_enum_match_arm, reason = "the standard library adds kinds; what we don't know is Other")]
    pub(super) fn of(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::Missing,
            io::ErrorKind::AlreadyExists => Self::Exists,
            io::ErrorKind::NotADirectory => Self::NotFolder,
            io::ErrorKind::IsADirectory => Self::IsFolder,
            io::ErrorKind::PermissionDenied => Self::Denied,
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full,
            _ if cfg!(unix) && error.raw_os_error() == Some(LINK_NOT_FOLLOWED) => Self::Link,
            _ => Self::Other,
        }
    }
}

/// Whether an error on opening a file that was there before says that something else is in its place now.
///
/// Anything else (a host out of descriptors, a failing disk, a permission) is neither the skill's nor the guest's doing,
/// and must not be reported as an attack.
pub(super) fn says_changed(error: &io::Error) -> bool {
    /// `ENXIO`: what opening a socket gives.
    const SOCKET_OPENED: i32 = 6;
    match Failure::of(error) {
        Failure::Missing | Failure::NotFolder | Failure::IsFolder | Failure::Link => true,
        // A pipe or a device, by `open_regular`.
        Failure::Other if error.kind() == io::ErrorKind::InvalidInput => true,
        Failure::Other => cfg!(unix) && error.raw_os_error() == Some(SOCKET_OPENED),
        Failure::Exists | Failure::Denied | Failure::Full => false,
    }
}

/// `EMFILE` or `ENFILE`, which the standard library can't name.
pub(super) fn out_of_descriptors(error: &io::Error) -> bool {
    cfg!(unix) && matches!(error.raw_os_error(), Some(23 | 24))
}

/// The next step after an error that is the host's own.
pub(super) fn read_remedy(error: &io::Error) -> &'static str {
    if out_of_descriptors(error) {
        "too many files are open: raise the limit (`ulimit -n`), or run fewer at once"
    } else {
        "see that it can be read, then run again"
    }
}

/// What a file may become when it is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CreateMode {
    /// `0444` or `0555`: staged, not to be changed.
    ReadOnly,
    /// `0666` or `0777` less the umask: a result, given to the caller.
    Ordinary,
}

/// Opens a regular file for reading: never through a link, never blocking on a pipe.
///
/// # Errors
/// Of the system; [`InvalidInput`](io::ErrorKind::InvalidInput) when it is no regular file.
pub(super) fn open_regular(folder: &Dir, name: impl AsRef<Path>) -> io::Result<(File, Metadata)> {
    let mut options = OpenOptions::new();
    // A pipe put in the file's place would block an ordinary open for ever.
    options.read(true).follow(FollowSymlinks::No).nonblock(true);
    let file = folder.open_with(name, &options)?;
    let metadata = file.metadata()?;
    if EntryKind::of(metadata.file_type()) == EntryKind::File {
        Ok((file, metadata))
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"))
    }
}

/// Creates a file that must not exist, with the executable bit or without.
pub(super) fn create_new(folder: &Dir, name: impl AsRef<Path>, executable: bool, mode: CreateMode) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    {
        use cap_std::fs::OpenOptionsExt;
        options.mode(match (mode, executable) {
            (CreateMode::ReadOnly, false) => 0o444,
            (CreateMode::ReadOnly, true) => 0o555,
            (CreateMode::Ordinary, false) => 0o666,
            (CreateMode::Ordinary, true) => 0o777,
        });
    }
    #[cfg(not(unix))]
    let _ = (executable, mode);
    folder.open_with(name, &options)
}

/// Walks down by components without following a link.
pub(super) fn open_below<'a>(dir: &Dir, parts: impl IntoIterator<Item = &'a str>) -> io::Result<Dir> {
    let mut parts = parts.into_iter().filter(|part| !part.is_empty());
    let Some(first) = parts.next() else { return dir.try_clone() };
    parts.try_fold(dir.open_dir_nofollow(first)?, |folder, part| folder.open_dir_nofollow(part))
}

/// Whether anybody may execute the file.
pub(super) fn is_executable(metadata: &Metadata) -> bool {
    #[cfg(unix)]
    {
        use cap_std::fs::MetadataExt;
        metadata.mode() & 0o111 != 0
    }
    #[cfg(not(unix))]
    {
        let _ = metadata;
        false
    }
}

/// How many bytes there were, and their SHA-256 in lower-case hex.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hashed {
    pub(super) bytes: u64,
    pub(super) sha256: String,
}

/// Reads to the end, hashing and passing every byte on. Stops after `limit + 1` bytes, so that a file that grows for
/// ever ends: the caller sees more than `limit`.
pub(super) fn hash_into(
    source: &mut impl Read,
    size_hint: u64,
    limit: u64,
    sink: &mut impl Write,
) -> io::Result<Hashed> {
    let mut hasher = Sha256::new();
    // One more than the size, so that the second read of a small file sees the end with the same buffer.
    let capacity = usize::try_from(size_hint).unwrap_or(BUFFER_BYTES).saturating_add(1).clamp(512, BUFFER_BYTES);
    let mut buffer = vec![0; capacity];
    let mut bytes = 0u64;
    while bytes <= limit {
        let count = match source.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let Some(read) = buffer.get(..count) else { break };
        hasher.update(read);
        sink.write_all(read)?;
        bytes = bytes.saturating_add(count as u64);
    }
    Ok(Hashed { bytes, sha256: hex(&hasher.finalize()) })
}

/// Bytes of a name or path for a message: escaped, and short.
pub(super) fn shown(text: &str) -> String {
    const SHOWN: usize = 200;
    let cut: String = text.chars().take(SHOWN).collect();
    let dots = if cut.len() < text.len() { "…" } else { "" };
    format!("{}{dots}", cut.escape_debug())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn only_something_else_in_its_place_is_a_change() {
        let (missing, device, not_folder, is_folder, link) = (2, 6, 20, 21, LINK_NOT_FOLLOWED);
        for number in [missing, device, not_folder, is_folder, link] {
            assert!(says_changed(&io::Error::from_raw_os_error(number)), "{number}");
        }
        assert!(says_changed(&io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")));
        let (broken, again, no_memory, denied, table_full, too_many, stale) = (5, 11, 12, 13, 23, 24, 116);
        for number in [broken, again, no_memory, denied, table_full, too_many, stale] {
            assert!(!says_changed(&io::Error::from_raw_os_error(number)), "{number}");
        }
        assert!(read_remedy(&io::Error::from_raw_os_error(too_many)).contains("ulimit -n"));
    }
}
