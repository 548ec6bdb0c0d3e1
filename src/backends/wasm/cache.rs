//! Compiled code on disk, so that a module is compiled once per machine.
//!
//! What is loaded here runs as machine code in the host's process, so the whole of this file is about never loading
//! anything else than what this engine wrote: the folder is private ([`PrivateDir`]), entries are keyed by the digest of
//! the module and by everything in the engine that code depends on, and each carries the digest of its content, checked
//! on the very file that is then mapped. An entry that was not touched since it was written or checked is not read again:
//! its seal says so ([`PrivateDir::read_checked`]), and hashing an interpreter's 50 MB takes ten times as long as running
//! a script. Anything that doesn't fit is compiled anew and replaced.

use std::fs::File;
use std::path::{Path, PathBuf};

use wasmtime::Engine;
use wasmtime::Module;
use wasmtime::component::Component;

use crate::error::Result;
use crate::workspace::{PrivateDir, private_home, read_whole};

/// Changes with the layout of an entry.
const FORMAT: &[u8] = b"skillcell compiled code 1\n";
/// What stands behind the code: the digest of the code, then the format's name.
const TRAILER_BYTES: usize = blake3::OUT_LEN + FORMAT.len();
/// The largest entry that is read: machine code is three to four times the size of its module.
const MAX_ENTRY_BYTES: u64 = 1 << 30;
/// All entries together; the longest unused go first. A skill's module takes under a megabyte, an interpreter 50.
const MAX_CACHE_BYTES: u64 = 2 << 30;

/// Compiled code on disk. Without a folder nothing is kept, and everything is compiled by each process.
#[derive(Debug)]
pub(super) struct CompileCache {
    folder: Option<PrivateDir>,
}

/// Which kind of program an entry holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Core,
    Component,
}

impl CompileCache {
    /// Keeps nothing.
    pub(super) fn off() -> Self {
        Self { folder: None }
    }

    /// Keeps entries in a folder that the caller names.
    ///
    /// # Errors
    /// When it isn't private or can't be made.
    pub(super) fn at(path: &Path) -> Result<Self> {
        Ok(Self { folder: Some(PrivateDir::open(path)?) })
    }

    /// Keeps entries in this user's cache folder. Where that isn't private or can't be made, nothing is kept: slower,
    /// and no less safe.
    pub(super) fn default_place() -> Self {
        let folder = default_folder().and_then(|path| match PrivateDir::open(&path) {
            Ok(folder) => Some(folder),
            Err(error) => {
                tracing::warn!(error = %error.chain().join(": "), "compiled code is not kept");
                None
            }
        });
        Self { folder }
    }

    /// A private folder within the cache's, for what isn't code; nothing when nothing is kept.
    ///
    /// # Errors
    /// When it isn't private or can't be made.
    pub(super) fn private_folder(&self, place: &Path) -> Result<Option<PrivateDir>> {
        self.folder.as_ref().map(|folder| PrivateDir::open(&folder.ambient_path().join(place))).transpose()
    }

    /// The name of an entry.
    pub(super) fn key(engine: &Engine, kind: Kind, digest: &blake3::Hash) -> String {
        use std::hash::{Hash, Hasher};
        /// Feeds what wasmtime hashes into BLAKE3, so that the key has no collisions an attacker could make.
        struct Sink(blake3::Hasher);
        impl Hasher for Sink {
            fn write(&mut self, bytes: &[u8]) {
                self.0.update(bytes);
            }
            fn finish(&self) -> u64 {
                0
            }
        }
        let mut sink = Sink(blake3::Hasher::new());
        sink.write(FORMAT);
        sink.write(digest.as_bytes());
        sink.write(&[match kind {
            Kind::Core => 0,
            Kind::Component => 1,
        }]);
        engine.precompile_compatibility_hash().hash(&mut sink);
        format!("{}.cwasm", sink.0.finalize().to_hex())
    }

    /// A module that was compiled before.
    pub(super) fn module(&self, engine: &Engine, key: &str) -> Option<Module> {
        let file = self.verified(key)?;
        // SAFETY: the file was written by `store`, below, from what this engine compiled: it lies in a folder that only
        // this user can write to and is named after the module and the engine's settings. The digest behind the code was
        // checked on this very descriptor, or the file is by its seal the one that was checked or written before,
        // untouched since. It is never written again: entries are replaced by renaming.
        #[expect(unsafe_code, reason = "mapping our own compiled code is what makes a start quick")]
        let module = unsafe { Module::deserialize_open_file(engine, file) };
        module
            .inspect_err(|error| tracing::warn!(%error, key, "compiled code could not be loaded; compiling anew"))
            .ok()
    }

    /// A component that was compiled before.
    pub(super) fn component(&self, engine: &Engine, key: &str) -> Option<Component> {
        let code = read_whole(&self.verified(key)?, MAX_ENTRY_BYTES).ok()?;
        let code = code.get(..code.len().checked_sub(TRAILER_BYTES)?)?;
        // SAFETY: as in `module`.
        #[expect(unsafe_code, reason = "loading our own compiled code is what makes a start quick")]
        let component = unsafe { Component::deserialize(engine, code) };
        component
            .inspect_err(|error| tracing::warn!(%error, key, "compiled code could not be loaded; compiling anew"))
            .ok()
    }

    /// Opens an entry whose content fits its digest.
    fn verified(&self, key: &str) -> Option<File> {
        self.folder.as_ref()?.read_checked(key, key, MAX_ENTRY_BYTES, |bytes| {
            let fits = entry_fits(key, bytes);
            if !fits {
                tracing::warn!(key, "an entry of the compile cache is damaged; compiling anew");
            }
            fits
        })
    }

    /// Keeps compiled code. A failure costs the next process a compilation and is only logged.
    pub(super) fn store(&self, key: &str, code: wasmtime::Result<Vec<u8>>) {
        let Some(folder) = &self.folder else { return };
        let written = code.map_err(|error| format!("{error:#}")).and_then(|code| {
            let digest = entry_digest(key, &code);
            folder.write_checked(key, key, &[&code, digest.as_bytes(), FORMAT]).map_err(|error| error.to_string())
        });
        match written {
            Ok(()) => folder.shrink(MAX_CACHE_BYTES),
            Err(error) => tracing::warn!(error, "compiled code could not be kept"),
        }
    }
}

/// Whether an entry is whole: the code, the digest of name and code, the format.
fn entry_fits(key: &str, bytes: &[u8]) -> bool {
    let split = bytes.len().checked_sub(TRAILER_BYTES).and_then(|length| bytes.split_at_checked(length));
    split.is_some_and(|(code, trailer)| {
        trailer.strip_prefix(entry_digest(key, code).as_bytes().as_slice()).is_some_and(|format| format == FORMAT)
    })
}

/// What stands behind the code of an entry. The name is part of it, so that an entry under another's name doesn't fit.
fn entry_digest(key: &str, code: &[u8]) -> blake3::Hash {
    blake3::Hasher::new().update(key.as_bytes()).update(code).finalize()
}

/// `$XDG_CACHE_HOME/skillcell/wasm`, or `~/.cache/skillcell/wasm`; nothing where there is neither.
fn default_folder() -> Option<PathBuf> {
    Some(private_home()?.join("wasm"))
}
