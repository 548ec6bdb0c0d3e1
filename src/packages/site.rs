//! [`SiteStore`]: installed packages on this machine, as trees that are shown to guests at `/workspace/site`.
//!
//! Invariants: the store is a folder that only this user can change, and a tree is handed out only when it still has the
//! digest it was stored under; what a tree holds comes from wheels whose digests are recorded in it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::lock::LockedPackage;
use super::wheel::{Native, Unpacked, Wheel, hex_digest};
use crate::error::{ErrorKind, Result, SkillRuntimeError};
use crate::skill::unpack_files;
use crate::workspace::{HostTree, PrivateDir, TreeBuilder, TreeStore};

/// The list of packages in a tree.
const RECORD: &str = "skillcell-packages.json";
/// Bytes of that list.
const MAX_RECORD_BYTES: u64 = 4 << 20;
/// Wheels of one tree. A large application has some hundred.
pub const MAX_WHEELS: usize = 256;
/// Bytes of all wheels of one tree: they are held in memory while it is made.
pub const MAX_WHEELS_BYTES: u64 = 512 << 20;

/// Installed packages, kept.
#[derive(Debug)]
pub struct SiteStore {
    trees: TreeStore,
}

/// What was installed for a step, and how it came here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InstalledPackages {
    /// The files.
    pub files: Vec<LockedPackage>,
    /// Native modules that were left out, by package.
    pub left_out: BTreeMap<String, Vec<String>>,
    /// Where they came from.
    pub origin: PackageOrigin,
}

/// Where installed packages came from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "from", rename_all = "snake_case")]
pub enum PackageOrigin {
    /// They lay on this machine already.
    Cache,
    /// They were fetched from the index that this machine's tool is set up for.
    Index {
        /// The runtime in which the tool ran.
        tool_runtime: String,
        /// Whether that runtime confined it.
        confined: bool,
    },
}

/// A tree of installed packages.
#[derive(Debug)]
pub struct Site {
    /// The files.
    pub tree: HostTree,
    /// What they are.
    pub record: SiteRecord,
}

/// What is in a tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SiteRecord {
    /// What was asked for.
    pub requirements: Vec<String>,
    /// The files it was made from.
    pub files: Vec<LockedPackage>,
    /// Native modules that were left out, by package: their Python stands in for them.
    pub left_out: BTreeMap<String, Vec<String>>,
}

/// What a tree is made from.
#[derive(Debug, Clone)]
pub struct SiteParts<'a> {
    /// What was asked for, sorted.
    pub requirements: &'a [String],
    /// The wheels, sorted by name.
    pub wheels: &'a [Wheel],
    /// What becomes of native code.
    pub native: NativeCode<'a>,
    /// Compiled Python: an archive of `__pycache__/*.pyc`.
    pub compiled: Option<Bytes>,
}

/// What a target does about native code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NativeCode<'a> {
    /// It loads it.
    Loaded,
    /// It can't, so that a package must do without.
    LeftOut {
        /// Where such packages work, for the message when one can't.
        instead: &'a str,
    },
}

impl SiteStore {
    /// Opens the store at `path`, making it (`0700`) if it is missing.
    ///
    /// # Errors
    /// [`PathDenied`](ErrorKind::PathDenied) when another user could change what lies there;
    /// [`Backend`](ErrorKind::Backend) when it can't be made.
    pub fn open(path: &Path) -> Result<Self> {
        let private = PrivateDir::open(path)?;
        Ok(Self { trees: TreeStore::open(private.ambient_path())? })
    }

    /// The tree stored under a key. `None` when there is none, or it is damaged.
    ///
    /// # Errors
    /// [`Backend`](ErrorKind::Backend) when a damaged one can't be removed.
    pub fn get(&self, key: &str) -> Result<Option<Site>> {
        let Some((stored, folder)) = self.trees.get(key)? else { return Ok(None) };
        let tree = HostTree::open_folder(&folder)?;
        // Read again after the store looked: it may have been exchanged in between.
        if tree.digest() != stored.tree_sha256 {
            return Ok(None);
        }
        let record = serde_json::from_slice(&tree.read(RECORD, MAX_RECORD_BYTES)?).map_err(|error| {
            SkillRuntimeError::backend("a list of installed packages is damaged; remove the cache of packages", error)
        })?;
        Ok(Some(Site { tree, record }))
    }

    /// Makes a tree and stores it under `keys`. Gives what became of each wheel, too.
    ///
    /// # Errors
    /// [`Unavailable`](ErrorKind::Unavailable) for a package that needs native code where none can be loaded; those of
    /// the extractor; [`Backend`](ErrorKind::Backend) of the disk.
    pub fn put(&self, keys: &[&str], parts: &SiteParts<'_>) -> Result<(Site, BTreeMap<String, BTreeSet<String>>)> {
        let mut checks = BTreeMap::new();
        for key in keys {
            self.trees.put(key, "site", &parts.requirements.join(" "), |builder| {
                checks = fill(builder, parts)?;
                Ok(())
            })?;
        }
        let made = match keys.first() {
            Some(key) => self.get(key)?,
            None => None,
        };
        let site = made.ok_or_else(|| {
            SkillRuntimeError::new(ErrorKind::Backend, "installed packages changed while they were stored; try again")
        })?;
        Ok((site, checks))
    }
}

/// The key of what was asked for: where no lock says what was chosen.
#[must_use]
pub fn request_key(target: &str, requirements: &[String]) -> String {
    key("request", target, requirements.iter().map(String::as_str))
}

/// The key of what was chosen.
#[must_use]
pub fn files_key(target: &str, files: &[LockedPackage]) -> String {
    key("files", target, files.iter().map(|package| package.sha256.as_str()))
}

fn key<'a>(kind: &str, target: &str, words: impl Iterator<Item = &'a str>) -> String {
    // Bumped when the same wheels would give another tree.
    let mut text = format!("skillcell site v1\n{kind}\n{target}\n");
    words.for_each(|word| {
        text.push_str(word);
        text.push('\n');
    });
    hex_digest(text.as_bytes())
}

/// The error for a package that a target can't run. `what` is the part that is missing, `instead` where it would work.
#[must_use]
pub fn native_only(package: &LockedPackage, what: &str, instead: &str) -> SkillRuntimeError {
    SkillRuntimeError::new(
        ErrorKind::Unavailable,
        format!(
            "the package '{}' {} needs native code ({what}), which the Python of this runtime can't load; {instead}",
            package.name.escape_debug(),
            package.version.escape_debug()
        ),
    )
}

/// Writes the files. Gives the modules to try of each package that lost native code.
fn fill(builder: &mut TreeBuilder<'_>, parts: &SiteParts<'_>) -> Result<BTreeMap<String, BTreeSet<String>>> {
    let (native, instead) = match parts.native {
        NativeCode::Loaded => (Native::Kept, ""),
        NativeCode::LeftOut { instead } => (Native::LeftOut, instead),
    };
    let mut seen = BTreeSet::from([RECORD.to_owned()]);
    let mut checks = BTreeMap::new();
    let mut left_out = BTreeMap::new();
    for wheel in parts.wheels {
        let Unpacked { left_out: modules, modules: top, needed } = wheel.unpack(builder, native, &mut seen)?;
        if let Some(module) = needed {
            return Err(native_only(
                &LockedPackage::of(wheel),
                &format!("the module {}", module.escape_debug()),
                instead,
            ));
        }
        if !modules.is_empty() {
            if top.is_empty() {
                return Err(native_only(&LockedPackage::of(wheel), "all of it", instead));
            }
            left_out.insert(wheel.normal_name(), modules);
            checks.insert(wheel.normal_name(), top);
        }
    }
    if let Some(compiled) = &parts.compiled {
        let sources = seen.clone();
        unpack_files(compiled, builder, &mut |path| Ok(is_compiled_of(path, &sources).then(|| path.to_owned())))?;
    }
    let files = parts.wheels.iter().map(LockedPackage::of).collect();
    let record = SiteRecord { requirements: parts.requirements.to_vec(), files, left_out };
    let text = serde_json::to_vec_pretty(&record)
        .map_err(|error| SkillRuntimeError::backend("the list of packages could not be written", error))?;
    builder.file(RECORD, false, &mut text.as_slice(), MAX_RECORD_BYTES)?;
    Ok(checks)
}

/// Whether a path is `a/__pycache__/b.cpython-313.pyc` of a source `a/b.py` that is there, and not there itself.
fn is_compiled_of(path: &str, sources: &BTreeSet<String>) -> bool {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let parent = match folder.strip_suffix("__pycache__") {
        Some(parent) if parent.is_empty() || parent.ends_with('/') => parent,
        Some(_) | None => return false,
    };
    let Some((stem, _)) = name.strip_suffix(".pyc").and_then(|name| name.rsplit_once('.')) else { return false };
    !sources.contains(path) && sources.contains(&format!("{parent}{stem}.py"))
}

#[cfg(test)]
#[cfg(feature = "fetch")]
mod tests {
    use std::io::{Cursor, Write};

    use super::*;

    fn zipped(files: &[(&str, &str)]) -> Bytes {
        let mut out = zip::ZipWriter::new(Cursor::new(Vec::new()));
        for (name, content) in files {
            out.start_file(*name, zip::write::SimpleFileOptions::default()).unwrap();
            out.write_all(content.as_bytes()).unwrap();
        }
        out.finish().unwrap().into_inner().into()
    }

    fn wheel(file: &str, files: &[(&str, &str)]) -> Wheel {
        Wheel::new(file, zipped(files)).unwrap()
    }

    const WITHOUT: NativeCode<'_> = NativeCode::LeftOut { instead: "use another" };
    const NATIVE_WHEEL: &str = "fast-1-cp313-cp313-manylinux_2_17_x86_64.whl";

    fn put(wheels: &[Wheel], native: NativeCode<'_>) -> Result<(Vec<String>, SiteRecord)> {
        let folder = tempfile::tempdir().unwrap();
        let store = SiteStore::open(&folder.path().join("cache")).unwrap();
        let requirements = ["fast".to_owned()];
        let parts = SiteParts { requirements: &requirements, wheels, native, compiled: None };
        let key = request_key("t", &requirements);
        assert!(store.get(&key).unwrap().is_none());
        store.put(&[&key], &parts)?;
        let site = store.get(&key).unwrap().unwrap();
        Ok((site.tree.entries().iter().map(|entry| entry.path.clone()).collect(), site.record))
    }

    #[test]
    fn native_code_is_left_out_where_it_can_not_be_loaded() {
        let speedups = [("fast/__init__.py", ""), ("fast/_speedups.cpython-313-x86_64-linux-gnu.so", "")];
        let wheels = [wheel(NATIVE_WHEEL, &speedups)];
        let (files, record) = put(&wheels, WITHOUT).unwrap();
        assert_eq!(files, ["fast/__init__.py", RECORD]);
        assert_eq!(record.left_out, BTreeMap::from([("fast".to_owned(), vec!["fast._speedups".to_owned()])]));
        assert_eq!(record.files, [LockedPackage::of(&wheels[0])]);
        let (files, record) = put(&wheels, NativeCode::Loaded).unwrap();
        assert_eq!((files.len(), record.left_out.len()), (3, 0));
        // A compiled copy of Python is no loss either; a native module that nothing stands in for is.
        let copy = [("fast/__init__.py", ""), ("fast/core.py", ""), ("fast/core.abi3.so", "")];
        put(&[wheel(NATIVE_WHEEL, &copy)], WITHOUT).unwrap();
        for files in [
            &[("fast/__init__.py", ""), ("fast/etree.abi3.so", "")][..],
            &[("fast.abi3.so", "")],
            &[("_fast.abi3.so", "")],
        ] {
            let error = put(&[wheel(NATIVE_WHEEL, files)], WITHOUT).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            let text = error.to_string();
            assert!(text.starts_with("the package 'fast' 1 needs native code"), "{text}");
            assert!(text.ends_with("can't load; use another"), "{text}");
        }
    }

    #[test]
    fn wheels_can_not_leave_the_tree_or_forge_the_list() {
        let name = "evil-1-py3-none-any.whl";
        for bad in ["../x.py", "/etc/x.py", "a/../../x.py", "evil-1.data/purelib/../../x.py"] {
            let error = put(&[wheel(name, &[(bad, "")])], WITHOUT).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::PathDenied, "{bad}: {error}");
        }
        let (files, record) = put(&[wheel(name, &[(RECORD, "{}"), ("evil.py", "")])], WITHOUT).unwrap();
        assert_eq!((files.as_slice(), record.files.len()), (&["evil.py".to_owned(), RECORD.to_owned()][..], 1));
        // The first of two files of one name stays.
        let two = [
            wheel("a-1-py3-none-any.whl", &[("x/__init__.py", "1")]),
            wheel("b-1-py3-none-any.whl", &[("x/__init__.py", "22")]),
        ];
        assert_eq!(put(&two, WITHOUT).unwrap().0, [RECORD, "x/__init__.py"]);
        assert_eq!(
            put(&[Wheel::new(name, Bytes::from_static(b"no zip")).unwrap()], WITHOUT).unwrap_err().kind(),
            ErrorKind::InvalidConfig
        );
    }

    #[test]
    fn only_compiled_forms_of_what_is_there_are_taken() {
        let sources = BTreeSet::from(["a/b.py".to_owned(), "c.py".to_owned()]);
        for good in ["a/__pycache__/b.cpython-313.pyc", "__pycache__/c.cpython-313.pyc"] {
            assert!(is_compiled_of(good, &sources), "{good}");
        }
        for bad in [
            "a/b.py",
            "a/__pycache__/d.cpython-313.pyc",
            "a__pycache__/b.x.pyc",
            "__pycache__/c.pyc",
            "c.pyc",
            "../__pycache__/c.x.pyc",
        ] {
            assert!(!is_compiled_of(bad, &sources), "{bad}");
        }
    }

    #[test]
    fn a_tree_that_was_changed_is_not_handed_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cache");
        let store = SiteStore::open(&path).unwrap();
        let wheels = [wheel("a-1-py3-none-any.whl", &[("a.py", "1")])];
        let parts = SiteParts { requirements: &["a".to_owned()], wheels: &wheels, native: WITHOUT, compiled: None };
        let (site, _) = store.put(&["k"], &parts).unwrap();
        let changed = path.join("v1/trees").join(site.tree.digest()).join("site/a.py");
        crate::workspace::write_host_file(&changed, b"2").unwrap();
        assert!(store.get("k").unwrap().is_none());
        store.put(&["k"], &parts).unwrap();
        assert!(store.get("k").unwrap().is_some());
    }
}
