//! Interpreter packs: programs such as `python3` that are part of this library, compressed, and run like any module.
//!
//! A pack's archive holds a module and, for some, a library file, one behind the other in one xz stream; its manifest
//! says where each ends and what its digest is. The archive is taken apart when a machine meets it first: the library
//! is laid into a private folder and the compiled code into the compile cache. Later calls touch neither archive nor
//! module.
//!
//! Must not run anything. Invariant: the library a guest reads has the manifest's digest, in a folder that only this
//! user can write to and that the guest sees read-only.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use bytes::Bytes;
use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::cache::CompileCache;
use crate::error::{ErrorKind, Result, SkillRuntimeError};
use crate::runtime::Progress;
use crate::workspace::PrivateDir;

/// What is built in.
const EMBEDDED: &[(&str, &[u8])] = &[
    #[cfg(feature = "pack-python")]
    (
        include_str!("../../../wasm-tools/packs/python/manifest.json"),
        include_bytes!("../../../wasm-tools/packs/python/python.pack.xz"),
    ),
    #[cfg(feature = "pack-js")]
    (
        include_str!("../../../wasm-tools/packs/js/manifest.json"),
        include_bytes!("../../../wasm-tools/packs/js/js.pack.xz"),
    ),
];

/// The part of a pack's folder that a guest sees; beside it lie the seals, which tell of this machine.
const SHOWN: &str = "files";

/// An interpreter that is built in.
#[derive(Debug)]
pub(super) struct Pack {
    manifest: Manifest,
    archive: &'static [u8],
}

/// What this file reads of a manifest; the rest is for people and for the tool that checks packs.
#[derive(Debug, Deserialize)]
struct Manifest {
    name: String,
    language: String,
    programs: Vec<String>,
    files: Vec<PackFile>,
}

#[derive(Debug, Deserialize)]
struct PackFile {
    name: String,
    role: Role,
    bytes: u64,
    sha256: String,
    #[serde(default)]
    guest_path: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Role {
    Module,
    Library,
}

/// A folder that a pack's programs must see, read-only.
#[derive(Debug, Clone)]
pub(super) struct Library {
    /// The private folder on the host.
    pub(super) folder: PathBuf,
    /// Where the guest sees it.
    pub(super) guest: String,
}

/// A pack made ready for one run.
pub(super) struct Prepared {
    /// None when the interpreter has everything built in.
    pub(super) library: Option<Library>,
    /// The module, when the archive had to be taken apart anyway.
    pub(super) module: Option<Bytes>,
}

/// The pack that is called by `word`.
///
/// # Errors
/// When a built-in manifest is damaged, which is a defect of this build.
pub(super) fn find(word: &str) -> Result<Option<&'static Pack>> {
    static PACKS: OnceLock<std::result::Result<Vec<Pack>, String>> = OnceLock::new();
    let read = || {
        EMBEDDED
            .iter()
            .map(|(manifest, archive)| Ok(Pack { manifest: serde_json::from_str(manifest)?, archive }))
            .collect::<serde_json::Result<Vec<_>>>()
            .map_err(|error| error.to_string())
    };
    match PACKS.get_or_init(read) {
        Ok(packs) => Ok(packs.iter().find(|pack| pack.manifest.programs.iter().any(|program| program == word))),
        Err(error) => Err(SkillRuntimeError::new(
            ErrorKind::Internal,
            format!("the manifest of a built-in interpreter is damaged: {error}"),
        )),
    }
}

/// The names of all programs that packs bring.
pub(super) fn programs() -> Vec<String> {
    let named = |(manifest, _): &(&str, &[u8])| serde_json::from_str::<Manifest>(manifest).ok();
    EMBEDDED.iter().filter_map(named).flat_map(|manifest| manifest.programs).collect()
}

impl Pack {
    /// What it interprets.
    pub(super) fn language(&self) -> &str {
        &self.manifest.language
    }

    /// A digest that names the module. Taken from the manifest, so that the module itself need not be at hand.
    pub(super) fn digest(&self) -> Result<blake3::Hash> {
        Ok(blake3::hash(self.file(Role::Module)?.sha256.as_bytes()))
    }

    /// Makes sure that the library is laid out.
    ///
    /// # Errors
    /// [`Unavailable`](ErrorKind::Unavailable) when there is no folder for it;
    /// [`Internal`](ErrorKind::Internal) when the archive in this build is damaged.
    pub(super) fn prepare(&self, cache: &CompileCache, progress: &dyn Progress) -> Result<Prepared> {
        let Some(library) = self.manifest.files.iter().find(|file| file.role == Role::Library) else {
            return Ok(Prepared { library: None, module: None });
        };
        let guest = library.guest_path.as_deref().and_then(|path| Some(path.rsplit_once('/')?.0.to_owned()));
        let guest = guest.ok_or_else(|| self.damaged("its library has no place in the guest"))?;
        let short = library.sha256.get(..16).unwrap_or_default();
        let place = Path::new("packs").join(format!("{}-{short}", self.manifest.name));
        let folders = cache.private_folder(&place)?.zip(cache.private_folder(&place.join(SHOWN))?);
        let (folder, files) = folders.ok_or_else(|| {
            SkillRuntimeError::new(
                ErrorKind::Unavailable,
                format!(
                    "the interpreter '{}' needs a private folder for its library: set HOME, or runtime_config['cache_dir']",
                    self.manifest.name
                ),
            )
        })?;
        let module = if in_order(&folder, library) { None } else { Some(self.lay_out(&folder, library, progress)?) };
        Ok(Prepared { library: Some(Library { folder: files.ambient_path().to_owned(), guest }), module })
    }

    /// Takes the archive apart for its module.
    ///
    /// # Errors
    /// [`Internal`](ErrorKind::Internal) when the archive in this build is damaged.
    pub(super) fn module(&self) -> Result<Bytes> {
        let module = self.file(Role::Module)?;
        let mut files = self.unpack()?;
        let at = self.manifest.files.iter().position(|file| file.name == module.name);
        at.and_then(|at| (at < files.len()).then(|| files.swap_remove(at)))
            .ok_or_else(|| self.damaged("it has no module"))
    }

    fn lay_out(&self, folder: &PrivateDir, library: &PackFile, progress: &dyn Progress) -> Result<Bytes> {
        progress.working(&format!("unpacking the interpreter {}", self.manifest.name));
        let mut module = None;
        for (file, data) in self.manifest.files.iter().zip(self.unpack()?) {
            match file.role {
                Role::Module => module = Some(data),
                Role::Library => folder.write_checked(&shown(library), &library.sha256, &[&data]).map_err(|error| {
                    SkillRuntimeError::backend("the library of an interpreter could not be written", error)
                })?,
            }
        }
        module.ok_or_else(|| self.damaged("it has no module"))
    }

    fn unpack(&self) -> Result<Vec<Bytes>> {
        let mut stream = lzma_rust2::XzReader::new(self.archive, false);
        let mut files = Vec::with_capacity(self.manifest.files.len());
        for file in &self.manifest.files {
            let mut data = Vec::new();
            stream
                .by_ref()
                .take(file.bytes)
                .read_to_end(&mut data)
                .map_err(|error| self.damaged(&error.to_string()))?;
            if !fits(file, &data) {
                return Err(self.damaged(&format!("{} is not what the manifest says", file.name)));
            }
            files.push(data.into());
        }
        Ok(files)
    }

    fn file(&self, role: Role) -> Result<&PackFile> {
        let found = self.manifest.files.iter().find(|file| file.role == role);
        found.ok_or_else(|| self.damaged("its manifest lacks a file"))
    }

    fn damaged(&self, how: &str) -> SkillRuntimeError {
        SkillRuntimeError::new(
            ErrorKind::Internal,
            format!(
                "the interpreter '{}' in this build is damaged: {how}; install skillcell again",
                self.manifest.name
            ),
        )
    }
}

/// The name of a library file in the pack's folder.
fn shown(file: &PackFile) -> String {
    format!("{SHOWN}/{}", file.name)
}

/// Whether the folder holds the file, whole. It is read only when its seal doesn't say so.
fn in_order(folder: &PrivateDir, file: &PackFile) -> bool {
    folder.read_checked(&shown(file), &file.sha256, file.bytes, |data| fits(file, data)).is_some()
}

fn fits(file: &PackFile, data: &[u8]) -> bool {
    let digest: String = Sha256::digest(data).iter().map(|byte| format!("{byte:02x}")).collect();
    data.len() as u64 == file.bytes && digest == file.sha256
}

#[cfg(all(test, feature = "pack-python"))]
mod tests {
    use super::*;
    use crate::runtime::SilentProgress;
    use crate::workspace::read_whole;

    #[test]
    fn the_library_is_laid_out_once_and_again_when_it_was_damaged() {
        let parent = tempfile::tempdir().unwrap();
        let cache = CompileCache::at(&parent.path().join("cache")).unwrap();
        let pack = find("python3").unwrap().unwrap();
        let first = pack.prepare(&cache, &SilentProgress).unwrap();
        assert!(first.module.is_some_and(|module| module == pack.module().unwrap()));
        let library = first.library.unwrap();
        assert_eq!(library.guest, "/usr/local/lib");
        assert!(pack.prepare(&cache, &SilentProgress).unwrap().module.is_none(), "in order: nothing to do");

        let folder = PrivateDir::open(&library.folder).unwrap();
        let mut data = read_whole(&folder.read("python313.zip").unwrap(), 1 << 30).unwrap();
        data[1000] ^= 1;
        folder.write("python313.zip", &[&data]).unwrap();
        assert!(pack.prepare(&cache, &SilentProgress).unwrap().module.is_some(), "damaged: laid out anew");
        assert!(pack.prepare(&cache, &SilentProgress).unwrap().module.is_none());
    }

    #[test]
    fn names_lead_to_packs_and_others_do_not() {
        assert!(find("python").unwrap().is_some());
        for word in ["python2", "", "./python3", "Python3", "perl"] {
            assert!(find(word).unwrap().is_none(), "{word}");
        }
        assert_eq!(programs().get(..3).unwrap(), ["python3", "python", "python3.13"]);
    }

    #[test]
    fn without_a_folder_for_the_library_it_says_so() {
        let error = find("python3").unwrap().unwrap().prepare(&CompileCache::off(), &SilentProgress).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().contains("cache_dir"), "{error}");
    }
}

#[cfg(all(test, feature = "pack-js"))]
mod javascript_tests {
    use super::*;
    use crate::runtime::SilentProgress;

    #[test]
    fn an_interpreter_without_a_library_needs_no_folder() {
        let pack = find("node").unwrap().unwrap();
        let prepared = pack.prepare(&CompileCache::off(), &SilentProgress).unwrap();
        assert!(prepared.library.is_none() && prepared.module.is_none());
        assert!(pack.module().unwrap().starts_with(b"\0asm"));
    }
}
