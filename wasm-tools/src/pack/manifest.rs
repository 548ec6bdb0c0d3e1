//! What a pack says about itself: `manifest.json`.
//!
//! The words (what it can do, licences) are written by people; the facts (digests, sizes, imports) are written by
//! `pack build` and checked by `pack verify`. Both live in one file, so that a change of either shows in one diff.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

/// The file in a pack's folder.
pub(super) const MANIFEST_FILE: &str = "manifest.json";
/// The only format there is so far; another number is refused rather than guessed at.
const FORMAT: u32 = 1;
/// A manifest is a page or two of text. More is a mistake or an attack, and is not read.
const MANIFEST_LIMIT: u64 = 1 << 20;

/// A pack's manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PackManifest {
    /// Always 1.
    pub format: u32,
    /// The pack's name, which is also its folder's.
    pub name: String,
    /// The language, for people.
    pub language: String,
    /// The interpreter's version.
    pub version: String,
    /// The names under which a command may call it.
    pub programs: Vec<String>,
    /// How a run enters the module.
    pub entry: Entry,
    /// The compressed archive.
    pub archive: PackFile,
    /// What the archive holds, one behind the other, in this order.
    pub files: Vec<PackFile>,
    /// Every function that the module imports, by import module.
    pub imports: BTreeMap<String, Vec<String>>,
    /// What the module's memory is before it runs, in bytes: a lower limit of what a run must be allowed.
    pub memory_bytes: u64,
    /// What scripts can rely on.
    pub can: Vec<String>,
    /// What can't work, and what to do instead.
    pub cannot: Vec<String>,
    /// What is built in, and under which terms.
    pub licences: Vec<Licence>,
}

/// How a run enters the module.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// A name in [`PackManifest::files`].
    pub module: String,
    /// The function to call: no parameters, no results; the exit code is that of `proc_exit`, 0 without one.
    pub export: String,
}

/// A file by size and digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PackFile {
    /// A plain file name.
    pub name: String,
    /// What it is for.
    pub role: Role,
    /// Its length.
    pub bytes: u64,
    /// Its SHA-256, in hex.
    pub sha256: String,
    /// Where a run must find it, for a file that a run reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest_path: Option<String>,
}

/// What a file of a pack is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// All files, one behind the other, in one xz stream.
    Archive,
    /// The WebAssembly module.
    Module,
    /// A file that the interpreter reads while it runs.
    Library,
}

/// One part that is built in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Licence {
    /// The part.
    pub part: String,
    /// Its version.
    pub version: String,
    /// Its terms, as an SPDX expression.
    pub licence: String,
    /// The file in `licences/` with the text.
    pub file: String,
}

impl PackManifest {
    /// The file with this role in the archive.
    ///
    /// # Errors
    /// When there is none.
    pub fn file(&self, role: Role) -> Result<&PackFile> {
        self.files
            .iter()
            .find(|file| file.role == role)
            .with_context(|| format!("the manifest of pack {:?} names no file with role {role:?}", self.name))
    }

    /// The length of everything in the archive.
    #[must_use]
    pub fn unpacked_bytes(&self) -> u64 {
        self.files.iter().fold(0, |sum, file| sum.saturating_add(file.bytes))
    }

    fn check(&self) -> Result<()> {
        if self.format != FORMAT {
            bail!("manifest format {} is unknown: this program reads format {FORMAT}", self.format);
        }
        let names = self.files.iter().map(|file| &file.name).chain([&self.name, &self.archive.name]);
        for name in names {
            if name.is_empty() || name.starts_with('.') || name.contains(['/', '\\', '\0']) {
                bail!("{name:?} is not a plain file name");
            }
        }
        let module = self.file(Role::Module)?;
        if module.name != self.entry.module {
            bail!("the entry is in {:?}, but the module is {:?}", self.entry.module, module.name);
        }
        if self.programs.is_empty() {
            bail!("no program name is given, so nothing could call the pack");
        }
        Ok(())
    }
}

/// Reads the manifest of the pack in `folder`.
///
/// # Errors
/// When it can't be read, is too long, or says something that is unknown or contradicts itself.
pub fn load(folder: &Path) -> Result<PackManifest> {
    let path = folder.join(MANIFEST_FILE);
    let read = || -> Result<PackManifest> {
        let length = fs::metadata(&path)?.len();
        if length > MANIFEST_LIMIT {
            bail!("it has {length} bytes, more than {MANIFEST_LIMIT}");
        }
        let manifest: PackManifest = serde_json::from_slice(&fs::read(&path)?)?;
        manifest.check()?;
        Ok(manifest)
    };
    read().with_context(|| format!("can't use the manifest {}", path.display()))
}

/// Every pack in `packs`, with its folder, by name.
///
/// # Errors
/// When the folder can't be read or one manifest in it can't be used.
pub fn list(packs: &Path) -> Result<Vec<(PathBuf, PackManifest)>> {
    let entries = fs::read_dir(packs).with_context(|| format!("can't read the folder of packs {}", packs.display()))?;
    let mut folders = Vec::new();
    for entry in entries {
        let folder = entry.with_context(|| format!("can't read the folder of packs {}", packs.display()))?.path();
        if folder.join(MANIFEST_FILE).is_file() {
            folders.push(folder);
        }
    }
    folders.sort();
    folders.into_iter().map(|folder| load(&folder).map(|manifest| (folder, manifest))).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A manifest that is right, for tests that make one thing wrong.
    pub(crate) fn example() -> PackManifest {
        let file = |name: &str, role, bytes| PackFile {
            name: name.to_owned(),
            role,
            bytes,
            sha256: String::new(),
            guest_path: None,
        };
        PackManifest {
            format: FORMAT,
            name: "example".to_owned(),
            language: "Example".to_owned(),
            version: "1".to_owned(),
            programs: vec!["example".to_owned()],
            entry: Entry { module: "example.wasm".to_owned(), export: "_start".to_owned() },
            archive: file("example.xz", Role::Archive, 0),
            files: vec![file("example.wasm", Role::Module, 0)],
            imports: BTreeMap::new(),
            memory_bytes: 0,
            can: vec![],
            cannot: vec![],
            licences: vec![],
        }
    }

    fn problem(manifest: &PackManifest) -> Option<String> {
        manifest.check().err().map(|error| format!("{error:#}"))
    }

    #[test]
    fn a_manifest_that_contradicts_itself_is_refused() {
        assert_eq!(problem(&example()), None);
        let mut other = example();
        other.format = 2;
        assert_eq!(problem(&other).as_deref(), Some("manifest format 2 is unknown: this program reads format 1"));
        for name in ["", "../x", "a/b", "a\\b", ".hidden"] {
            let mut other = example();
            other.files[0].name = name.to_owned();
            assert_eq!(problem(&other), Some(format!("{name:?} is not a plain file name")));
        }
        let mut other = example();
        other.entry.module = "other.wasm".to_owned();
        assert_eq!(
            problem(&other).as_deref(),
            Some(r#"the entry is in "other.wasm", but the module is "example.wasm""#)
        );
        let mut other = example();
        other.programs.clear();
        assert_eq!(problem(&other).as_deref(), Some("no program name is given, so nothing could call the pack"));
    }

    #[test]
    fn unknown_words_in_a_manifest_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let mut text = serde_json::to_value(example()).unwrap();
        text["sign"] = "x".into();
        fs::write(folder.path().join(MANIFEST_FILE), text.to_string()).unwrap();
        let error = format!("{:#}", load(folder.path()).unwrap_err());
        assert!(error.contains("unknown field `sign`"), "{error}");
    }
}
