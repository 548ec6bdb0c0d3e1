//! Where sysroots and intermediate files are kept between builds.
//!
//! Everything here can be deleted at any time. Nothing is written in place: a folder is made under a temporary name
//! and renamed when it is complete, so a build that is interrupted, or two at once, never leave half a sysroot.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use sha2::{Digest, Sha256};

/// The folder for what may be deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cache {
    folder: PathBuf,
}

impl Cache {
    /// The cache in `folder`, which is made when something is put there.
    ///
    /// # Errors
    /// When the path can't be made absolute (the current folder is gone).
    pub fn at(folder: &Path) -> Result<Self> {
        // Absolute, because compilers are started in other folders.
        let folder = std::path::absolute(folder)
            .with_context(|| format!("can't tell where the cache folder {} lies", folder.display()))?;
        Ok(Self { folder })
    }

    /// The user's cache: `$SKILLCELL_GUEST_CACHE`, else `$XDG_CACHE_HOME/skillcell/guest`, else
    /// `$HOME/.cache/skillcell/guest`.
    ///
    /// # Errors
    /// When none of the three is set.
    pub fn of_user() -> Result<Self> {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let folder = set("SKILLCELL_GUEST_CACHE")
            .or_else(|| set("XDG_CACHE_HOME").map(|folder| folder.join("skillcell/guest")))
            .or_else(|| set("HOME").map(|folder| folder.join(".cache/skillcell/guest")))
            .ok_or_else(|| anyhow!("no place for a cache: give --cache FOLDER, or set HOME"))?;
        Self::at(&folder)
    }

    /// The sysroot with this key.
    pub(crate) fn sysroot(&self, key: &str) -> PathBuf {
        self.folder.join(format!("sysroot-{key}"))
    }

    /// The folder in which the guest at `source` is built with the compiler of `key`. It is the same for every build
    /// of one source, so the second one compiles only what changed; cargo locks it against a build at the same time.
    pub(crate) fn build_folder(&self, source: &Path, key: &str) -> Result<PathBuf> {
        let digest = hex_digest(&[source.as_os_str().as_encoded_bytes(), key.as_bytes()]);
        let folder = self.folder.join("build").join(digest);
        fs::create_dir_all(&folder).with_context(|| format!("can't make the folder {}", folder.display()))?;
        Ok(folder)
    }

    /// A folder beside the others that goes away with the value.
    pub(crate) fn scratch(&self) -> Result<tempfile::TempDir> {
        fs::create_dir_all(&self.folder)
            .with_context(|| format!("can't make the cache folder {}", self.folder.display()))?;
        tempfile::Builder::new()
            .prefix("unfinished-")
            .tempdir_in(&self.folder)
            .with_context(|| format!("can't make a folder in {}", self.folder.display()))
    }
}

/// 16 hex digits that differ when any part does. Parts are told apart by their lengths.
pub(crate) fn hex_digest(parts: &[&[u8]]) -> String {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update((part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    hasher.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_tells_parts_apart() {
        let digest = hex_digest(&[b"ab", b"c"]);
        assert_eq!(digest.len(), 16);
        assert_eq!(digest, hex_digest(&[b"ab", b"c"]));
        assert_ne!(digest, hex_digest(&[b"a", b"bc"]));
        assert_ne!(digest, hex_digest(&[b"abc"]));
    }

    #[test]
    fn sources_and_compilers_have_their_own_build_folders() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path()).unwrap();
        let one = cache.build_folder(Path::new("/a.rs"), "1").unwrap();
        assert_eq!(one, cache.build_folder(Path::new("/a.rs"), "1").unwrap());
        assert_ne!(one, cache.build_folder(Path::new("/a.rs"), "2").unwrap());
        assert_ne!(one, cache.build_folder(Path::new("/b.rs"), "1").unwrap());
    }
}
