//! [`TreeStore`]: fetched skills on this machine, each under the digest of its tree.
//!
//! Invariants: a tree is built in a folder nobody looks into and appears under its digest in one rename; what is
//! handed out was read again and has the digest it is stored under, so a damaged or tampered entry is fetched anew
//! rather than run; paths inside a tree are made of checked names only.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use cap_fs_ext::DirExt;
use cap_std::ambient_authority;
use cap_std::fs::{Dir, DirBuilder};

use super::access::write_whole;
use super::guest_path::{GuestPath, check_name};
use super::host_tree::HostTree;
use super::remove::{PATIENCE, remove_tree};
use super::transfer::{CreateMode, create_new, open_below, shown};
use crate::error::{ErrorKind, Result, SkillRuntimeError};

/// Names the layout, so that it can change.
const LAYOUT: &str = "v1";
/// Bytes of one record.
const MAX_RECORD_BYTES: u64 = 64 << 10;

/// A folder of this machine that keeps fetched trees.
#[derive(Debug)]
pub struct TreeStore {
    dir: Dir,
    path: PathBuf,
}

/// What is known about a stored tree: under which key it was asked for, and what it is.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct StoredTree {
    /// Digest of the tree, as [`HostTree::digest`].
    pub tree_sha256: String,
    /// The name of its folder.
    pub name: String,
    /// Where it came from, as a reference that means the same bytes for ever.
    pub origin: String,
}

impl TreeStore {
    /// Opens the store at `path`, making it if missing.
    ///
    /// # Errors
    /// [`Backend`](ErrorKind::Backend) when it can't be made.
    pub fn open(path: &Path) -> Result<Self> {
        let path = path.join(LAYOUT);
        let failed =
            |error| SkillRuntimeError::backend(format!("could not open the skill cache {}", path.display()), error);
        Dir::create_ambient_dir_all(&path, ambient_authority()).map_err(failed)?;
        let dir = Dir::open_ambient_dir(&path, ambient_authority()).map_err(failed)?;
        for folder in ["trees", "records"] {
            match dir.create_dir(folder) {
                Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(failed(error)),
                _ => {}
            }
        }
        Ok(Self { dir, path })
    }

    /// The tree stored under a key, and its folder. `None` when there is none, or when what is there is not what was
    /// stored; then it is removed.
    ///
    /// # Errors
    /// [`Backend`](ErrorKind::Backend) when a damaged entry can't be removed.
    pub fn get(&self, key: &str) -> Result<Option<(StoredTree, PathBuf)>> {
        let Some(record) = self.record(&record_name(key)?) else { return Ok(None) };
        let folder = self.path.join("trees").join(&record.tree_sha256).join(&record.name);
        match HostTree::open_folder(&folder) {
            Ok(tree) if tree.digest() == record.tree_sha256 => Ok(Some((record, folder))),
            Ok(_) | Err(_) => {
                tracing::warn!(origin = %record.origin, "a cached skill is damaged; it is fetched again");
                self.forget(&record_name(key)?, &record)?;
                Ok(None)
            }
        }
    }

    /// Builds a tree, stores it under its digest and records it under `key`.
    ///
    /// # Errors
    /// Those of `build`, of reading the tree, and [`Backend`](ErrorKind::Backend) when it can't be written. Nothing is
    /// left behind then.
    pub fn put(
        &self,
        key: &str,
        name: &str,
        origin: &str,
        build: impl FnOnce(&mut TreeBuilder<'_>) -> Result<()>,
    ) -> Result<(StoredTree, PathBuf)> {
        check_name(name).map_err(|why| {
            SkillRuntimeError::new(ErrorKind::PathDenied, format!("the skill's folder '{}' {why}", shown(name)))
        })?;
        let failed = |error| SkillRuntimeError::backend("could not write to the skill cache", error);
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(|error| failed(std::io::Error::other(error)))?;
        let temporary = format!(".new-{:016x}", u64::from_be_bytes(random));
        let mut private = DirBuilder::new();
        #[cfg(unix)]
        {
            use cap_std::fs::DirBuilderExt;
            private.mode(0o700);
        }
        self.dir.create_dir_with(&temporary, &private).map_err(failed)?;
        let built = self.build(&temporary, name, origin, build);
        // After a rename there is nothing to remove; after a failure it must not stay.
        let removed = discard(&self.dir, &temporary).map_err(failed);
        match (built, removed) {
            (Ok(stored), Ok(())) => {
                let text = serde_json::to_vec(&stored).map_err(|error| failed(error.into()))?;
                let records = self.dir.open_dir("records").map_err(failed)?;
                write_whole(&records, &record_name(key)?, &text).map_err(failed)?;
                let folder = self.path.join("trees").join(&stored.tree_sha256).join(&stored.name);
                Ok((stored, folder))
            }
            (Ok(_), Err(error)) => Err(error),
            (Err(error), Ok(())) => Err(error),
            (Err(error), Err(cleanup)) => Err(error.with_cleanup(cleanup)),
        }
    }

    fn build(
        &self,
        temporary: &str,
        name: &str,
        origin: &str,
        build: impl FnOnce(&mut TreeBuilder<'_>) -> Result<()>,
    ) -> Result<StoredTree> {
        let failed = |error| SkillRuntimeError::backend("could not write to the skill cache", error);
        let holder = self.dir.open_dir(temporary).map_err(failed)?;
        holder.create_dir(name).map_err(failed)?;
        let root = holder.open_dir(name).map_err(failed)?;
        build(&mut TreeBuilder { root: &root, folded: std::collections::HashSet::new() })?;
        let tree = HostTree::open_folder(&self.path.join(temporary).join(name))?;
        let stored =
            StoredTree { tree_sha256: tree.digest().to_owned(), name: name.to_owned(), origin: origin.to_owned() };
        let trees = self.dir.open_dir("trees").map_err(failed)?;
        match trees.create_dir(&stored.tree_sha256) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(failed(error)),
            _ => {}
        }
        let target = trees.open_dir(&stored.tree_sha256).map_err(failed)?;
        match holder.rename(name, &target, name) {
            Ok(()) => Ok(stored),
            // Somebody stored the same bytes under the same name meanwhile; `get` reads them again before use.
            Err(_) if target.symlink_metadata(name).is_ok_and(|found| found.is_dir()) => Ok(stored),
            Err(error) => Err(failed(error)),
        }
    }

    /// Every stored tree, by where it came from.
    ///
    /// # Errors
    /// [`Backend`](ErrorKind::Backend) when the store can't be read.
    pub fn list(&self) -> Result<Vec<StoredTree>> {
        let failed = |error| SkillRuntimeError::backend("could not read the skill cache", error);
        let mut all = Vec::new();
        for entry in self.dir.open_dir("records").and_then(|records| records.entries()).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            all.extend(name.to_str().and_then(|name| self.record(name)));
        }
        all.sort_by(|a, b| a.origin.cmp(&b.origin));
        Ok(all)
    }

    /// A record, if it is there and well formed: names in it become parts of paths.
    fn record(&self, name: &str) -> Option<StoredTree> {
        let file = self.dir.open_dir_nofollow("records").ok()?.open(name).ok()?;
        let mut bytes = Vec::new();
        file.take(MAX_RECORD_BYTES).read_to_end(&mut bytes).ok()?;
        let record: StoredTree = serde_json::from_slice(&bytes).ok()?;
        let hex = record.tree_sha256.len() == 64 && record.tree_sha256.bytes().all(|b| b.is_ascii_hexdigit());
        (hex && check_name(&record.name).is_ok()).then_some(record)
    }

    fn forget(&self, record: &str, stored: &StoredTree) -> Result<()> {
        let failed = |error| SkillRuntimeError::backend("could not remove a damaged entry of the skill cache", error);
        let trees = self.dir.open_dir("trees").map_err(failed)?;
        discard(&trees, &stored.tree_sha256).map_err(failed)?;
        match self.dir.open_dir("records").and_then(|records| records.remove_file(record)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(failed(error)),
            _ => Ok(()),
        }
    }
}

/// Removes a folder with all that is in it; one that isn't there is fine.
fn discard(parent: &Dir, name: &str) -> std::io::Result<()> {
    match parent.open_dir_nofollow(name) {
        Ok(top) => remove_tree(parent, name, &top, PATIENCE),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Keys are digests, so that any reference makes a file name.
fn record_name(key: &str) -> Result<String> {
    check_name(key).map_err(|why| {
        SkillRuntimeError::new(ErrorKind::Internal, format!("a key of the skill cache {why}; please report it"))
    })?;
    Ok(format!("{key}.json"))
}

/// Fills a new tree. Refuses names that some host can't store, and two names that some host can't tell apart.
#[derive(Debug)]
pub struct TreeBuilder<'a> {
    root: &'a Dir,
    folded: std::collections::HashSet<String>,
}

impl TreeBuilder<'_> {
    /// Writes one file, at most `limit` bytes of `content`. Gives the number of bytes.
    ///
    /// # Errors
    /// [`PathDenied`](ErrorKind::PathDenied): a path that leaves the tree, or a file of that name is there already (also
    /// when only the case differs); [`LimitExceeded`](ErrorKind::LimitExceeded): more bytes;
    /// [`Backend`](ErrorKind::Backend): the disk, or a source that fails.
    pub fn file(&mut self, path: &str, executable: bool, content: &mut dyn Read, limit: u64) -> Result<u64> {
        let path = GuestPath::root().join(path)?;
        let text = path.parts().join("/");
        let denied = |what: &str| SkillRuntimeError::new(ErrorKind::PathDenied, format!("'{}' {what}", shown(&text)));
        let Some((name, parents)) = path.parts().split_last() else {
            return Err(denied("names no file"));
        };
        if !self.folded.insert(text.to_lowercase()) {
            return Err(denied("stands twice, perhaps in another case; some hosts can't tell the two apart"));
        }
        let failed = |error| SkillRuntimeError::backend(format!("could not write '{}'", shown(&text)), error);
        let mut walked = String::new();
        for part in parents {
            walked = if walked.is_empty() { part.clone() } else { format!("{walked}/{part}") };
            if self.folded.contains(&walked.to_lowercase()) {
                return Err(denied("lies below something that is a file"));
            }
        }
        self.root
            .create_dir_all(parents.join("/"))
            .or_else(|error| if parents.is_empty() { Ok(()) } else { Err(error) })
            .map_err(failed)?;
        let folder = open_below(self.root, parents.iter().map(String::as_str)).map_err(failed)?;
        let mut file = create_new(&folder, name, executable, CreateMode::Ordinary).map_err(failed)?;
        let mut bytes = 0u64;
        let mut buffer = vec![0; 64 << 10];
        loop {
            let count = match content.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    return Err(SkillRuntimeError::backend(format!("could not read '{}'", shown(&text)), error));
                }
            };
            bytes += count as u64;
            if bytes > limit {
                return Err(SkillRuntimeError::new(
                    ErrorKind::LimitExceeded,
                    format!("'{}' is larger than the {limit} bytes that are left", shown(&text)),
                ));
            }
            file.write_all(buffer.get(..count).unwrap_or_default()).map_err(failed)?;
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(store: &TreeStore, key: &str, files: &[(&str, &str)]) -> Result<(StoredTree, PathBuf)> {
        store.put(key, "pdf", "test", |builder| {
            files.iter().try_for_each(|(path, text)| {
                builder.file(path, path.ends_with(".sh"), &mut text.as_bytes(), 100).map(drop)
            })
        })
    }

    #[test]
    fn a_tree_is_stored_once_and_checked_when_it_is_taken() {
        let folder = tempfile::tempdir().unwrap();
        let store = TreeStore::open(folder.path()).unwrap();
        assert_eq!(store.get("k").unwrap(), None);
        let (stored, path) = put(&store, "k", &[("SKILL.md", "x"), ("scripts/a.sh", "y")]).unwrap();
        assert!(path.ends_with(format!("{}/pdf", stored.tree_sha256)));
        assert_eq!(store.get("k").unwrap(), Some((stored.clone(), path.clone())));
        // The same bytes under another key are the same tree.
        assert_eq!(put(&store, "k2", &[("SKILL.md", "x"), ("scripts/a.sh", "y")]).unwrap().1, path);
        assert_eq!(store.list().unwrap().len(), 2);
        // Somebody changes a file: it is not handed out, and can be stored again.
        write_host(&path.join("scripts/a.sh"), "evil");
        assert_eq!(store.get("k").unwrap(), None);
        assert_eq!(put(&store, "k", &[("SKILL.md", "x"), ("scripts/a.sh", "y")]).unwrap().1, path);
        assert!(store.get("k").unwrap().is_some());
    }

    #[expect(clippy::disallowed_methods, reason = "the test plays the host's other programs")]
    fn write_host(path: &Path, text: &str) {
        std::fs::write(path, text).unwrap();
    }

    #[test]
    fn nothing_leaves_the_tree_and_failures_leave_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let store = TreeStore::open(&folder.path().join("cache")).unwrap();
        for (files, kind) in [
            (&[("../x", "")][..], ErrorKind::PathDenied),
            (&[("/etc/x", "")], ErrorKind::PathDenied),
            (&[("a/../x", "")], ErrorKind::PathDenied),
            (&[("a\\b", "")], ErrorKind::PathDenied),
            (&[(".", "")], ErrorKind::PathDenied),
            (&[("a", ""), ("A", "")], ErrorKind::PathDenied),
            (&[("a", ""), ("a/b", "")], ErrorKind::PathDenied),
            (&[("a/b", ""), ("a", "")], ErrorKind::Backend),
        ] {
            assert_eq!(put(&store, "k", files).unwrap_err().kind(), kind, "{files:?}");
        }
        let big = "x".repeat(101);
        assert_eq!(put(&store, "k", &[("a", &big)]).unwrap_err().kind(), ErrorKind::LimitExceeded);
        assert_eq!(store.list().unwrap(), []);
        let left: Vec<_> = store.dir.entries().unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left.len(), 2, "{left:?}");
    }

    #[test]
    fn a_record_can_not_name_another_folder() {
        let folder = tempfile::tempdir().unwrap();
        let store = TreeStore::open(folder.path()).unwrap();
        for record in [
            r#"{"tree_sha256":"../../x","name":"pdf","origin":"t"}"#.to_owned(),
            format!(r#"{{"tree_sha256":"{}","name":"../x","origin":"t"}}"#, "0".repeat(64)),
            "{".to_owned(),
        ] {
            write_host(&folder.path().join("v1/records/k.json"), &record);
            assert_eq!(store.get("k").unwrap(), None);
        }
    }
}
