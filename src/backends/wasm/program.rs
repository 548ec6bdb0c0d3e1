//! The one seam between `argv[0]` and something that can run: a module in the workspace, or an interpreter of a pack.
//!
//! Must not compile or run. Invariant: bytes come out of the workspace or of this library, never through a link, never
//! unbounded.

use bytes::Bytes;

use super::cache::{CompileCache, Kind};
use super::packs::{self, Library, Pack};
use crate::error::{ErrorKind, Result, SkillRuntimeError};
use crate::runtime::Progress;
use crate::workspace::{GuestPath, Workspace};

/// The largest module that is read. Compiling takes many times the size in memory.
const MAX_MODULE_BYTES: u64 = 128 << 20;
/// How every module and component begins.
const MAGIC: &[u8] = b"\0asm";
/// Length of the magic number and the version that follows it.
const HEADER_BYTES: usize = 8;

/// How a core module is started. A component says so itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Entry {
    /// A command of WASI preview 1: `_start()`.
    Command,
}

impl Entry {
    /// The export to call.
    pub(super) fn export(self) -> &'static str {
        match self {
            Self::Command => "_start",
        }
    }

    /// How many values it returns.
    pub(super) fn results(self) -> usize {
        match self {
            Self::Command => 0,
        }
    }
}

/// Something that can run.
pub(super) struct Program {
    /// For messages.
    pub(super) name: String,
    source: Source,
    /// Module or component.
    pub(super) kind: Kind,
    /// Names the code: no other code has it.
    pub(super) digest: blake3::Hash,
    /// How it is started.
    pub(super) entry: Entry,
    /// What it must see beside the workspace.
    pub(super) library: Option<Library>,
}

/// Where the binary form of the module or component is.
enum Source {
    Bytes(Bytes),
    /// In a pack, from where it is got only when it must be compiled.
    Pack(&'static Pack),
}

impl Program {
    /// Finds the program that `word` names.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound) for an interpreter that this runtime doesn't have, or a file that isn't there;
    /// [`InvalidConfig`](ErrorKind::InvalidConfig) for a file that is no module; those of [`Pack::prepare`].
    pub(super) fn resolve(
        workspace: &Workspace,
        cwd: &GuestPath,
        word: &str,
        cache: &CompileCache,
        progress: &dyn Progress,
    ) -> Result<Self> {
        if !word.contains('/') {
            return match packs::find(word)? {
                Some(pack) => Self::of_pack(word, pack, cache, progress),
                None => Err(unknown(word)),
            };
        }
        let path = GuestPath::resolve(cwd, word)?;
        let bytes = workspace.read_file(&path, MAX_MODULE_BYTES)?;
        Self::new(path.to_string(), bytes)
    }

    fn of_pack(word: &str, pack: &'static Pack, cache: &CompileCache, progress: &dyn Progress) -> Result<Self> {
        let prepared = pack.prepare(cache, progress)?;
        Ok(Self {
            name: word.to_owned(),
            source: prepared.module.map_or(Source::Pack(pack), Source::Bytes),
            kind: Kind::Core,
            digest: pack.digest()?,
            entry: Entry::Command,
            library: prepared.library,
        })
    }

    /// The binary form. For an interpreter that takes long.
    ///
    /// # Errors
    /// Those of [`Pack::module`].
    pub(super) fn bytes(&self) -> Result<Bytes> {
        match &self.source {
            Source::Bytes(bytes) => Ok(bytes.clone()),
            Source::Pack(pack) => pack.module(),
        }
    }

    /// Checks that bytes are a module or a component, in binary or text form.
    fn new(name: String, bytes: Bytes) -> Result<Self> {
        let bytes = if bytes.starts_with(MAGIC) {
            bytes
        } else if name.ends_with(".wat") {
            wat::parse_bytes(&bytes)
                .map_err(|error| {
                    SkillRuntimeError::invalid(format!("'{name}' is not valid WebAssembly text: {error}"))
                })?
                .into_owned()
                .into()
        } else if bytes.starts_with(b"\x7fELF") {
            return Err(SkillRuntimeError::invalid(format!(
                "'{name}' is machine code, which runtime 'wasm' never loads; give the .wasm it was made from"
            )));
        } else {
            return Err(SkillRuntimeError::invalid(format!(
                "'{name}' is not a WebAssembly module: it doesn't begin with \\0asm; build the script for wasm32-wasip1, \
                 or name a runtime that can run it"
            )));
        };
        Ok(Self {
            digest: blake3::hash(&bytes),
            kind: kind(&name, &bytes)?,
            name,
            source: Source::Bytes(bytes),
            entry: Entry::Command,
            library: None,
        })
    }
}

fn unknown(word: &str) -> SkillRuntimeError {
    let programs = packs::programs();
    let there = if programs.is_empty() { String::new() } else { format!(" (it has {})", programs.join(", ")) };
    SkillRuntimeError::new(
        ErrorKind::NotFound,
        format!(
            "runtime 'wasm' has no '{}'{there}; choose a runtime that runs programs of this machine (see `skillcell \
             runtimes`), or build the script to WebAssembly",
            word.escape_debug()
        ),
    )
}

/// Module or component, by the version that follows the magic number.
fn kind(name: &str, bytes: &[u8]) -> Result<Kind> {
    match bytes.get(MAGIC.len()..HEADER_BYTES) {
        Some([1, 0, 0, 0]) => Ok(Kind::Core),
        Some([0x0d, 0, 1, 0]) => Ok(Kind::Component),
        Some(version) => Err(SkillRuntimeError::invalid(format!(
            "'{name}' has version {version:02x?} of the WebAssembly format; known are [01, 00, 00, 00] (module) and \
             [0d, 00, 01, 00] (component): build it with a current tool"
        ))),
        None => Err(SkillRuntimeError::invalid(format!("'{name}' ends within its header; copy or build it again"))),
    }
}
