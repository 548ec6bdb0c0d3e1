//! [`HostTree`]: a folder or a single file of the host, chosen by the caller, read whole and known by digest.
//!
//! The path the caller typed is followed as people expect, links included. What lies in the folder is not trusted: a
//! skill may come from anywhere. A link inside counts as a copy of what it points to, as long as that lies inside too;
//! pipes, sockets and devices are never opened.
//!
//! Invariant: [`HostTree::digest`] covers every file that staging copies, and staging copies nothing else. It must
//! not write.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use cap_fs_ext::DirExt;
use cap_std::ambient_authority;
use cap_std::fs::Dir;
use sha2::{Digest, Sha256};

use super::access::EntryKind;
use super::guest_path::check_name;
use super::transfer::{Failure, hash_into, is_executable, open_below, open_regular, shown};
use crate::digest::{from_hex, hex};
use crate::error::{ErrorKind, Result, SkillRuntimeError};

/// Files and folders of one tree, links counted as often as they are followed. A large skill has hundreds; a tree of
/// links to folders of links doubles at every level and ends here.
pub const MAX_TREE_ENTRIES: usize = 20_000;
/// Folders on the way to a file, so that each staged file still has a [`GuestPath`](super::GuestPath), which holds 64
/// parts: `in`, the name of the input, the folders, and the file.
pub const MAX_TREE_DEPTH: usize = 61;
/// Bytes of one file. All is hashed and copied before a run, and a larger file is better mounted.
pub const MAX_TREE_FILE_BYTES: u64 = 512 << 20;
/// Bytes of all files together.
pub const MAX_TREE_BYTES: u64 = 2 << 30;

/// Bytes of a path in a tree: what a [`GuestPath`](super::GuestPath) holds, less `/workspace/in/` and a long name.
pub const MAX_TREE_PATH_BYTES: usize = 1_700;

/// Names the encoding behind [`HostTree::digest`], so that it can change without two meanings for one digest.
const DIGEST_DOMAIN: &[u8] = b"skillcell tree v1\n";

/// A folder or file of the host whose every byte was read.
#[derive(Debug)]
pub struct HostTree {
    name: String,
    root: Dir,
    entries: Vec<TreeEntry>,
    total_bytes: u64,
    digest: String,
}

/// One file of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeEntry {
    /// Path from the tree's root, `/` between parts, whatever the host uses.
    pub path: String,
    /// Bytes.
    pub size: u64,
    /// SHA-256 of the content, lower-case hex.
    pub sha256: String,
    /// Whether anybody may execute it; always false on hosts without that notion.
    pub executable: bool,
    /// Where the bytes lie below the root: another path when a link led there.
    pub(super) origin: String,
}

impl HostTree {
    /// Reads a folder, all of it: `.git` and other hidden names too. Empty folders leave no trace.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound); [`PathDenied`](ErrorKind::PathDenied) for what is no folder, can't be read, a
    /// link that leaves the tree, dangles or goes in circles, a special file, or a name that some host can't store;
    /// [`LimitExceeded`](ErrorKind::LimitExceeded) over [`MAX_TREE_ENTRIES`], [`MAX_TREE_DEPTH`],
    /// [`MAX_TREE_FILE_BYTES`] or [`MAX_TREE_BYTES`].
    pub fn open_folder(path: &Path) -> Result<Self> {
        let name = own_name(path)?;
        let root =
            Dir::open_ambient_dir(path, ambient_authority()).map_err(|error| open_error(path, "folder", error))?;
        let mut walk =
            Walk { name: &name, root: &root, chain: vec![String::new()], seen: 0, entries: Vec::new(), bytes: 0 };
        walk.folder(&root, "", "")?;
        let (mut entries, total_bytes) = (walk.entries, walk.bytes);
        // Folders were walked in order of their names, which isn't the order of whole paths: 'a-b' < 'a/b'.
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        let digest = digest(&entries);
        Ok(Self { name, root, entries, total_bytes, digest })
    }

    /// Reads one file; what lies beside it stays out. Its path in the tree is its name.
    ///
    /// # Errors
    /// As [`open_folder`](Self::open_folder).
    pub fn open_file(path: &Path) -> Result<Self> {
        let name = own_name(path)?;
        let real = std::fs::canonicalize(path).map_err(|error| open_error(path, "file", error))?;
        let (Some(parent), Some(origin)) = (real.parent(), real.file_name()) else {
            return Err(not_a(path, "file"));
        };
        let root =
            Dir::open_ambient_dir(parent, ambient_authority()).map_err(|error| open_error(path, "file", error))?;
        if root.symlink_metadata(origin).is_ok_and(|metadata| !metadata.is_file()) {
            return Err(not_a(path, "regular file"));
        }
        let origin = utf8(origin, "")?.to_owned();
        let mut walk = Walk { name: &name, root: &root, chain: Vec::new(), seen: 0, entries: Vec::new(), bytes: 0 };
        walk.file(&root, &origin, name.clone(), origin.clone())?;
        let (entries, total_bytes) = (walk.entries, walk.bytes);
        let digest = digest(&entries);
        Ok(Self { name, root, entries, total_bytes, digest })
    }

    /// The name of the folder or file: the last part of the path, resolved when that is `.` or `..`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The files, sorted by path (by bytes).
    #[must_use]
    pub fn entries(&self) -> &[TreeEntry] {
        &self.entries
    }

    /// The file at this path of the tree, or nothing.
    #[must_use]
    pub fn entry(&self, path: &str) -> Option<&TreeEntry> {
        let index = self.entries.binary_search_by(|entry| entry.path.as_str().cmp(path)).ok()?;
        self.entries.get(index)
    }

    /// Whether there is a file at this path of the tree.
    #[must_use]
    pub fn contains(&self, path: &str) -> bool {
        self.entry(path).is_some()
    }

    /// The first bytes of a file, at most `limit`: enough to see what it is.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound) when the tree has no such file, or it is gone since the tree was read.
    pub fn read_head(&self, path: &str, limit: usize) -> Result<Vec<u8>> {
        let missing =
            || SkillRuntimeError::new(ErrorKind::NotFound, format!("'{}' has no file '{}'", self.name, shown(path)));
        let entry = self.entry(path).ok_or_else(missing)?;
        let (parent, name) = entry.origin.rsplit_once('/').unwrap_or(("", &entry.origin));
        let mut head = Vec::new();
        open_below(&self.root, parent.split('/'))
            .and_then(|folder| open_regular(&folder, name))
            .and_then(|(file, _)| io::Read::read_to_end(&mut io::Read::take(file, limit as u64), &mut head))
            .map_err(|error| missing().caused_by(error))?;
        Ok(head)
    }

    /// Bytes of all files together.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    /// The digest of the whole tree: 64 lower-case hex digits.
    ///
    /// SHA-256 over: the text `skillcell tree v1` and a line feed; the number of files; then for each file, in the
    /// order of the bytes of its path: the length of the path and the path (UTF-8, `/` between parts), one byte that
    /// is 1 for an executable file and else 0, the size, and the 32 bytes of the content's SHA-256. Numbers are 64 bits,
    /// big-endian. Times, owners, other permissions, empty folders, and whether a file was reached by a link don't
    /// count. A file that isn't executable has the same digest on every host.
    #[must_use]
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// The folder that the origins of the entries are relative to.
    pub(super) fn root(&self) -> &Dir {
        &self.root
    }
}

fn digest(entries: &[TreeEntry]) -> String {
    let mut hasher = Sha256::new();
    hasher.update(DIGEST_DOMAIN);
    hasher.update((entries.len() as u64).to_be_bytes());
    for entry in entries {
        hasher.update((entry.path.len() as u64).to_be_bytes());
        hasher.update(entry.path.as_bytes());
        hasher.update([u8::from(entry.executable)]);
        hasher.update(entry.size.to_be_bytes());
        hasher.update(from_hex(&entry.sha256));
    }
    hex(&hasher.finalize())
}

/// A walk over one tree.
struct Walk<'a> {
    name: &'a str,
    root: &'a Dir,
    /// Real paths of the folders being walked; meeting one of them again means going in circles.
    chain: Vec<String>,
    seen: usize,
    entries: Vec<TreeEntry>,
    bytes: u64,
}

impl Walk<'_> {
    /// `logical` is the path in the tree, `real` where the folder lies, which differs below a link.
    fn folder(&mut self, dir: &Dir, logical: &str, real: &str) -> Result<()> {
        if self.chain.len() > MAX_TREE_DEPTH + 1 {
            return Err(self.over(logical, format!("lies deeper than {MAX_TREE_DEPTH} folders")));
        }
        let mut names = Vec::new();
        let failed = |error| self.io(logical, error);
        for entry in dir.entries().map_err(failed)? {
            let entry = entry.map_err(failed)?;
            names.push((entry.file_name(), EntryKind::of(entry.file_type().map_err(failed)?)));
            if self.seen + names.len() > MAX_TREE_ENTRIES {
                return Err(self.over(logical, format!("brings the tree over {MAX_TREE_ENTRIES} files and folders")));
            }
        }
        self.seen += names.len();
        names.sort_by(|(a, _), (b, _)| a.cmp(b));
        for (name, kind) in names {
            let name = utf8(&name, &self.path(logical))?;
            check_name(name).map_err(|why| self.denied(&below(logical, name), &format!("{why}; rename it")))?;
            let (logical, real) = (below(logical, name), below(real, name));
            if logical.len() > MAX_TREE_PATH_BYTES {
                return Err(self.over(&logical, format!("has a path longer than {MAX_TREE_PATH_BYTES} bytes")));
            }
            match kind {
                EntryKind::File => self.file(dir, name, logical, real)?,
                EntryKind::Folder => {
                    let folder = dir.open_dir_nofollow(name).map_err(|error| self.io(&logical, error))?;
                    self.enter(&folder, &logical, real)?;
                }
                EntryKind::Link => self.link(&logical, &real)?,
                EntryKind::Special => {
                    return Err(self.denied(&logical, "is a pipe, socket or device; remove it from the tree"));
                }
            }
        }
        Ok(())
    }

    fn enter(&mut self, folder: &Dir, logical: &str, real: String) -> Result<()> {
        if self.chain.contains(&real) {
            return Err(self.denied(logical, "is reached again through a link inside itself; remove that link"));
        }
        self.chain.push(real.clone());
        self.folder(folder, logical, &real)?;
        self.chain.pop();
        Ok(())
    }

    fn link(&mut self, logical: &str, real: &str) -> Result<()> {
        const WHY: &str =
            "is a link that leaves the tree or leads nowhere; replace it with a copy of what it points to";
        // cap-std resolves below the handle and refuses absolute targets and `..` past the root.
        let target = self.root.canonicalize(real).map_err(|error| self.denied(logical, WHY).caused_by(error))?;
        let target =
            portable(&target).ok_or_else(|| self.denied(logical, "is a link to a name that is no UTF-8; rename it"))?;
        let (parent, name) = target.rsplit_once('/').unwrap_or(("", &target));
        let failed = |error| self.io(logical, error);
        let folder = open_below(self.root, parent.split('/')).map_err(failed)?;
        if name.is_empty() {
            return self.enter(&folder, logical, String::new());
        }
        match EntryKind::of(folder.symlink_metadata(name).map_err(failed)?.file_type()) {
            EntryKind::File => self.file(&folder, name, logical.to_owned(), target.clone()),
            EntryKind::Folder => {
                let folder = folder.open_dir_nofollow(name).map_err(failed)?;
                self.enter(&folder, logical, target.clone())
            }
            EntryKind::Link | EntryKind::Special => Err(self.denied(logical, WHY)),
        }
    }

    fn file(&mut self, dir: &Dir, name: &str, logical: String, origin: String) -> Result<()> {
        let (mut file, metadata) = open_regular(dir, name).map_err(|error| self.io(&logical, error))?;
        let left = MAX_TREE_BYTES.saturating_sub(self.bytes);
        let limit = left.min(MAX_TREE_FILE_BYTES);
        let over = |walk: &Self| {
            let what = if left < MAX_TREE_FILE_BYTES {
                format!("brings the tree over {MAX_TREE_BYTES} bytes")
            } else {
                format!("is larger than {MAX_TREE_FILE_BYTES} bytes")
            };
            walk.over(&logical, what)
        };
        // A sparse file of terabytes is refused by its size, not by reading it.
        if metadata.len() > limit {
            return Err(over(self));
        }
        let hashed =
            hash_into(&mut file, metadata.len(), limit, &mut io::sink()).map_err(|error| self.io(&logical, error))?;
        if hashed.bytes > limit {
            return Err(over(self));
        }
        self.bytes += hashed.bytes;
        let executable = is_executable(&metadata);
        self.entries.push(TreeEntry { path: logical, size: hashed.bytes, sha256: hashed.sha256, executable, origin });
        Ok(())
    }

    /// The path for a message: from the tree's name down, so that no path of this machine is shown.
    fn path(&self, logical: &str) -> String {
        shown(&if self.chain.is_empty() { self.name.to_owned() } else { below(self.name, logical) })
    }

    fn denied(&self, logical: &str, why: &str) -> SkillRuntimeError {
        SkillRuntimeError::new(ErrorKind::PathDenied, format!("'{}' {why}", self.path(logical))).operation("trust")
    }

    fn over(&self, logical: &str, what: String) -> SkillRuntimeError {
        SkillRuntimeError::new(
            ErrorKind::LimitExceeded,
            format!("'{}' {what}; take out what the run doesn't need, or mount it", self.path(logical)),
        )
        .operation("trust")
    }

    fn io(&self, logical: &str, error: io::Error) -> SkillRuntimeError {
        let why = if Failure::of(&error) == Failure::Denied {
            "can't be read; check its permissions"
        } else {
            "changed or could not be read while the tree was read; try again when nothing writes to it"
        };
        self.denied(logical, why).caused_by(error)
    }
}

fn below(folder: &str, name: &str) -> String {
    match (folder.is_empty(), name.is_empty()) {
        (true, _) => name.to_owned(),
        (false, true) => folder.to_owned(),
        (false, false) => format!("{folder}/{name}"),
    }
}

/// A relative path as text with `/`, or nothing when it isn't UTF-8. `.` becomes the empty path.
fn portable(path: &Path) -> Option<String> {
    let parts: Option<Vec<&str>> = path.iter().filter(|part| *part != OsStr::new(".")).map(OsStr::to_str).collect();
    Some(parts?.join("/"))
}

fn utf8<'a>(name: &'a OsStr, folder: &str) -> Result<&'a str> {
    name.to_str().ok_or_else(|| {
        SkillRuntimeError::new(
            ErrorKind::PathDenied,
            format!("'{}' in '{folder}' is a name that is no UTF-8; rename it", shown(&name.to_string_lossy())),
        )
        .operation("trust")
    })
}

/// The last part of a path the caller typed.
pub(super) fn own_name(path: &Path) -> Result<String> {
    let resolved: PathBuf;
    let name = match path.file_name() {
        // `skills/..` has no file name, `skills/.` has `skills`, and `.` has none.
        Some(name) => name,
        None => {
            resolved = std::fs::canonicalize(path).map_err(|error| open_error(path, "folder", error))?;
            resolved.file_name().ok_or_else(|| {
                SkillRuntimeError::new(
                    ErrorKind::PathDenied,
                    format!("'{}' is the root of a file system; name a folder in it", typed(path)),
                )
            })?
        }
    };
    let name = utf8(name, "").map_err(|_| {
        SkillRuntimeError::new(
            ErrorKind::PathDenied,
            format!("'{}' has a name that is no UTF-8; rename it", typed(path)),
        )
    })?;
    check_name(name)
        .map_err(|why| SkillRuntimeError::new(ErrorKind::PathDenied, format!("'{}' {why}; rename it", typed(path))))?;
    Ok(name.to_owned())
}

/// A path as the caller typed it, for a message to the caller.
pub(super) fn typed(path: &Path) -> String {
    shown(&path.to_string_lossy())
}

pub(super) fn open_error(path: &Path, what: &str, error: io::Error) -> SkillRuntimeError {
    let path_shown = typed(path);
    let (kind, message) = match Failure::of(&error) {
        Failure::Missing => (ErrorKind::NotFound, format!("'{path_shown}' does not exist; check the path")),
        Failure::NotFolder => return not_a(path, what).caused_by(error),
        Failure::Denied => (ErrorKind::PathDenied, format!("'{path_shown}' can't be opened; check its permissions")),
        Failure::Full => (ErrorKind::Backend, format!("no space left for '{path_shown}'")),
        Failure::Exists | Failure::IsFolder | Failure::Link | Failure::Other => {
            (ErrorKind::Backend, format!("could not open '{path_shown}'"))
        }
    };
    SkillRuntimeError::new(kind, message).caused_by(error)
}

fn not_a(path: &Path, what: &str) -> SkillRuntimeError {
    SkillRuntimeError::new(ErrorKind::PathDenied, format!("'{}' is not a {what}; name a {what}", typed(path)))
}
