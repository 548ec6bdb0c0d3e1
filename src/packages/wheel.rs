//! One wheel: what its name says, and which of its files go where.
//!
//! A wheel is a zip file that strangers made; it is unpacked by the extractor of skills, which nothing escapes. No code
//! in it is run. Invariant: for a Python that loads nothing native, no native file is left in the tree, and what was
//! left out is known by name.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use crate::error::{Result, SkillRuntimeError};
use crate::skill::unpack_files;
use crate::workspace::{TreeBuilder, check_name};

/// Endings of native code.
const NATIVE: [&str; 4] = ["so", "pyd", "dll", "dylib"];
/// Bytes of a name: PyPI's are below 200.
const MAX_NAME_BYTES: usize = 255;

/// A wheel that was fetched, named and hashed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wheel {
    /// The name of its file.
    pub file: String,
    /// The package.
    pub name: String,
    /// Its version.
    pub version: String,
    /// SHA-256 of the file.
    pub sha256: String,
    /// The file.
    pub bytes: Bytes,
}

/// What became of a wheel.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Unpacked {
    /// Native modules that were left out, as Python names them.
    pub(super) left_out: Vec<String>,
    /// Modules at the top.
    pub(super) modules: BTreeSet<String>,
    /// Native modules among those left out that nothing can stand in for.
    pub(super) needed: Option<String>,
}

impl Wheel {
    /// Takes a file that a tool fetched.
    ///
    /// # Errors
    /// [`InvalidConfig`](crate::ErrorKind::InvalidConfig) when its name is none of a wheel.
    pub fn new(file: &str, bytes: Bytes) -> Result<Self> {
        let (name, version) = parts(file)?;
        Ok(Self { sha256: hex_digest(&bytes), file: file.to_owned(), name, version, bytes })
    }

    /// The name by which two spellings of a package are one (PEP 503).
    #[must_use]
    pub fn normal_name(&self) -> String {
        normal_name(&self.name)
    }

    /// Whether its name says that there is no native code in it.
    #[must_use]
    pub fn is_pure(&self) -> bool {
        self.file.ends_with("-none-any.whl")
    }

    /// Puts its files into a tree. `seen` holds the files of the wheels before: the first of two wins.
    ///
    /// # Errors
    /// Those of the extractor.
    pub(super) fn unpack(
        &self,
        builder: &mut TreeBuilder<'_>,
        native: Native,
        seen: &mut BTreeSet<String>,
    ) -> Result<Unpacked> {
        let mut done = Unpacked::default();
        let mut files: BTreeSet<String> = BTreeSet::new();
        let mut native_files: BTreeMap<String, String> = BTreeMap::new();
        unpack_files(&self.bytes, builder, &mut |path| {
            let Some(inside) = placed(path) else { return Ok(None) };
            if is_native(inside) && native == Native::LeftOut {
                if let Some(module) = module_of(inside) {
                    native_files.insert(module, inside.to_owned());
                }
                return Ok(None);
            }
            if let Some(module) = top_module(inside) {
                done.modules.insert(module);
            }
            files.insert(inside.to_owned());
            Ok(seen.insert(inside.to_owned()).then(|| inside.to_owned()))
        })
        .map_err(|error| error.with("wheel", self.file.as_str()))?;
        for module in native_files.into_keys() {
            // `_speedups` by custom stands beside Python that does the same; so does a compiled copy of a `.py`.
            let path = module.replace('.', "/");
            let stands_in = files.contains(&format!("{path}.py")) || files.contains(&format!("{path}/__init__.py"));
            let private = module.rsplit('.').next().is_some_and(|last| last.starts_with('_'));
            if !stands_in && !private && done.needed.is_none() {
                done.needed = Some(module.clone());
            }
            done.left_out.push(module);
        }
        Ok(done)
    }
}

/// What becomes of native code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Native {
    /// It is unpacked.
    Kept,
    /// It is not.
    LeftOut,
}

/// Name and version in the name of a wheel's file.
fn parts(file: &str) -> Result<(String, String)> {
    let bad = || {
        let shown: String = file.chars().take(80).flat_map(char::escape_debug).collect();
        SkillRuntimeError::invalid(format!("'{shown}' is not the name of a wheel; only wheels are installed"))
    };
    let stem = file.strip_suffix(".whl").ok_or_else(bad)?;
    let words: Vec<&str> = stem.split('-').collect();
    let plain = |word: &&str| {
        !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._+!".contains(&byte))
    };
    if !(5..=6).contains(&words.len())
        || file.len() > MAX_NAME_BYTES
        || check_name(file).is_err()
        || !words.iter().all(plain)
    {
        return Err(bad());
    }
    match words.as_slice() {
        [name, version, ..] => Ok(((*name).to_owned(), (*version).to_owned())),
        _ => Err(bad()),
    }
}

/// PEP 503.
pub(super) fn normal_name(name: &str) -> String {
    let mut normal = String::new();
    for c in name.chars() {
        if "._-".contains(c) {
            if !normal.ends_with('-') {
                normal.push('-');
            }
        } else {
            normal.push(c.to_ascii_lowercase());
        }
    }
    normal
}

/// Where a file of a wheel goes; programs, headers and data for elsewhere on a machine have no place in a workspace.
fn placed(path: &str) -> Option<&str> {
    match path.split_once('/') {
        Some((top, rest)) if top.ends_with(".data") => {
            rest.strip_prefix("purelib/").or_else(|| rest.strip_prefix("platlib/"))
        }
        // Libraries that a repaired wheel brings.
        Some(_) | None => Some(path),
    }
}

/// By its ending, or by the folder that tools put native libraries in.
fn is_native(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let native = |ending: &str| NATIVE.contains(&ending);
    name.rsplit_once('.').is_some_and(|(_, ending)| native(ending))
        || name.split('.').skip(1).any(native)
        || path.split_once('/').is_some_and(|(top, _)| top.ends_with(".libs"))
}

/// The module that a native file is; `None` for a mere library.
fn module_of(path: &str) -> Option<String> {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    if folder.ends_with(".libs") || name.contains(".so.") || name.starts_with("lib") && !name.contains("cpython") {
        return None;
    }
    let stem = name.split('.').next()?;
    let module = if folder.is_empty() { stem.to_owned() } else { format!("{}.{stem}", folder.replace('/', ".")) };
    Some(module)
}

/// The module at the top that a file belongs to.
fn top_module(path: &str) -> Option<String> {
    let name = match path.split_once('/') {
        Some((top, "__init__.py")) => top,
        Some(_) => return None,
        None => path.strip_suffix(".py")?,
    };
    let identifier = name.chars().all(|c| c == '_' || c.is_ascii_alphanumeric());
    (identifier && !name.starts_with('_')).then(|| name.to_owned())
}

/// SHA-256 in hex.
pub(super) fn hex_digest(bytes: &[u8]) -> String {
    use sha2::{Digest, Sha256};
    crate::digest::hex(&Sha256::digest(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_wheels() {
        let wheel = Wheel::new("ruamel.yaml-0.18.6-py3-none-any.whl", Bytes::new()).unwrap();
        assert_eq!((wheel.name.as_str(), wheel.version.as_str()), ("ruamel.yaml", "0.18.6"));
        assert!(wheel.is_pure());
        assert_eq!(wheel.normal_name(), "ruamel-yaml");
        assert_eq!(wheel.sha256, hex_digest(b""));
        let native = Wheel::new("a-1.0-1-cp313-cp313-manylinux2014_x86_64.manylinux_2_17_x86_64.whl", Bytes::new());
        assert!(!native.unwrap().is_pure());
        for bad in [
            "",
            ".whl",
            "a.whl",
            "a-1-py3-none.whl",
            "a-1-py3-none-any.zip",
            "../a-1-py3-none-any.whl",
            "a-1-py3-none-any\n.whl",
            "a--py3-none-any.whl",
            "a-1-1-1-py3-none-any.whl",
            "a-1.tar.gz",
        ] {
            Wheel::new(bad, Bytes::new()).unwrap_err();
        }
    }

    #[test]
    fn files_find_their_place() {
        assert_eq!(placed("a/b.py"), Some("a/b.py"));
        assert_eq!(placed("a-1.data/purelib/a/b.py"), Some("a/b.py"));
        assert_eq!(placed("a-1.data/platlib/c.so"), Some("c.so"));
        for elsewhere in ["a-1.data/scripts/a", "a-1.data/headers/a.h", "a-1.data/data/etc/a"] {
            assert_eq!(placed(elsewhere), None);
        }
        for (path, module) in [
            ("yaml/_yaml.cpython-313-x86_64-linux-gnu.so", Some("yaml._yaml")),
            ("x.abi3.so", Some("x")),
            ("a/b/lib.pyd", None),
            ("numpy.libs/libopenblas-1.so", None),
            ("a/libz.so.1", None),
        ] {
            assert!(is_native(path), "{path}");
            assert_eq!(module_of(path).as_deref(), module, "{path}");
        }
        assert!(!is_native("a/so.py") && !is_native("a/dll/__init__.py"));
        assert_eq!(top_module("yaml/__init__.py").as_deref(), Some("yaml"));
        assert_eq!(top_module("six.py").as_deref(), Some("six"));
        for none in ["_yaml/__init__.py", "yaml/loader.py", "a-1.dist-info/METADATA", "a.b.py"] {
            assert_eq!(top_module(none), None, "{none}");
        }
    }
}
