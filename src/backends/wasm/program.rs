//! The one seam between `argv[0]` and something that can run. Interpreter packs are plugged in here.
//!
//! Must not compile or run. Invariant: bytes come out of the workspace only, never through a link, never unbounded.

use bytes::Bytes;

use super::cache::Kind;
use crate::error::{ErrorKind, Result, SkillRuntimeError};
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
    /// The binary form of the module or component.
    pub(super) bytes: Bytes,
    /// Digest of `bytes`.
    pub(super) digest: blake3::Hash,
    /// How it is started.
    pub(super) entry: Entry,
}

impl Program {
    /// Finds the program that `word` names.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound) for an interpreter that this runtime doesn't have, or a file that isn't there;
    /// [`InvalidConfig`](ErrorKind::InvalidConfig) for a file that is no module.
    pub(super) fn resolve(workspace: &Workspace, cwd: &GuestPath, word: &str) -> Result<Self> {
        if !word.contains('/') {
            return Err(SkillRuntimeError::new(
                ErrorKind::NotFound,
                format!(
                    "runtime 'wasm' has no '{}'; choose a runtime that runs programs of this machine (see `skillcell \
                     runtimes`), or build the script to WebAssembly",
                    word.escape_debug()
                ),
            ));
        }
        let path = GuestPath::resolve(cwd, word)?;
        let bytes = workspace.read_file(&path, MAX_MODULE_BYTES)?;
        Self::new(path.to_string(), bytes)
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
        let program = Self { digest: blake3::hash(&bytes), name, bytes, entry: Entry::Command };
        program.kind()?;
        Ok(program)
    }

    /// Module or component, by the version that follows the magic number.
    ///
    /// # Errors
    /// [`InvalidConfig`](ErrorKind::InvalidConfig) for a version of the format that isn't known, or a cut header.
    pub(super) fn kind(&self) -> Result<Kind> {
        match self.bytes.get(MAGIC.len()..HEADER_BYTES) {
            Some([1, 0, 0, 0]) => Ok(Kind::Core),
            Some([0x0d, 0, 1, 0]) => Ok(Kind::Component),
            Some(version) => Err(SkillRuntimeError::invalid(format!(
                "'{}' has version {version:02x?} of the WebAssembly format; known are [01, 00, 00, 00] (module) and \
                 [0d, 00, 01, 00] (component): build it with a current tool",
                self.name
            ))),
            None => Err(SkillRuntimeError::invalid(format!(
                "'{}' ends within its header; copy or build it again",
                self.name
            ))),
        }
    }
}
