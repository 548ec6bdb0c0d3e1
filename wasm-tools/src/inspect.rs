//! Reading a `.wasm`: what it is, what it wants from its host, what it offers.
//!
//! The bytes are untrusted. They are validated whole before anything is said about them, names are cut and counted,
//! and nothing is indexed by a number from the file.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::Serialize;
use wasmparser::types::EntityType;
use wasmparser::{MemoryType, Parser, Payload, TypeRef, ValType, Validator};

use crate::verdict;

/// Larger files are refused: a guest with a whole interpreter in it is a tenth of this.
pub const MAX_FILE_BYTES: u64 = 256 << 20;
/// Names are shown to people; longer ones are cut.
const MAX_NAME_CHARACTERS: usize = 200;

/// What a file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A core module.
    Module,
    /// A component.
    Component,
}

/// Something that the host must give.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Import {
    /// The module or, for a component, the whole name of the interface.
    pub from: String,
    /// The name in the module; empty for a component.
    pub name: String,
    /// `function`, `memory`, `table`, `global` or `tag`; `interface` for a component.
    pub kind: &'static str,
}

/// Something that the guest offers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Export {
    /// The name.
    pub name: String,
    /// As for imports.
    pub kind: &'static str,
    /// Whether it is a function that takes and gives nothing, as a start function must be.
    pub takes_and_gives_nothing: bool,
}

/// A memory that the guest brings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// Bytes at the start.
    pub initial_bytes: u64,
    /// The most it can grow to, when it says so.
    pub maximum_bytes: Option<u64>,
    /// Whether addresses have 64 bits.
    pub memory64: bool,
    /// Whether it is meant to be shared between threads.
    pub shared: bool,
}

/// What a file is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Inspection {
    /// Module or component.
    pub kind: Kind,
    /// The size of the file in bytes.
    pub bytes: u64,
    /// What the host must give.
    pub imports: Vec<Import>,
    /// What the guest offers.
    pub exports: Vec<Export>,
    /// The module's own memories; for a component, those of the modules in it.
    pub memories: Vec<Memory>,
    /// Why skillcell's wasm runtime can't run it; empty when it can.
    pub problems: Vec<String>,
}

/// Reads a file for [`inspect`] and [`wrap`](crate::wrap).
///
/// # Errors
/// When it can't be read or is larger than [`MAX_FILE_BYTES`].
pub fn read_file(path: &Path) -> Result<Vec<u8>> {
    let file = File::open(path).with_context(|| format!("can't open {}", path.display()))?;
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).with_context(|| format!("can't read {}", path.display()))?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        bail!("{} is larger than {MAX_FILE_BYTES} bytes, the most that is read", path.display());
    }
    Ok(bytes)
}

/// Says what the bytes are.
///
/// # Errors
/// When they are no WebAssembly binary, or an invalid one; the message says where and what to do.
pub fn inspect(bytes: &[u8]) -> Result<Inspection> {
    check_header(bytes)?;
    let types = match Validator::new().validate_all(bytes) {
        Ok(types) => types,
        Err(error) => bail!(
            "invalid WebAssembly at byte {}: {}; build it again, or copy it again if it was cut short",
            error.offset(),
            shown(error.message())
        ),
    };
    let mut found = Inspection {
        kind: if Parser::is_component(bytes) { Kind::Component } else { Kind::Module },
        bytes: bytes.len() as u64,
        imports: Vec::new(),
        exports: Vec::new(),
        memories: Vec::new(),
        problems: Vec::new(),
    };
    // `parse_all` goes down into the modules of a component; what those import is the component's own business.
    let mut depth = 0_usize;
    for payload in Parser::new(0).parse_all(bytes) {
        #[expect(
            clippy::wildcard_enum_match_arm,
            reason = "a foreign enum of all sections; most say nothing to a user"
        )]
        match payload? {
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            Payload::ImportSection(section) if depth == 0 => {
                for import in section.into_imports() {
                    let import = import?;
                    found.imports.push(Import {
                        from: shown(import.module),
                        name: shown(import.name),
                        kind: kind_of(&import.ty),
                    });
                }
            }
            Payload::ComponentImportSection(section) if depth == 0 => {
                for import in section {
                    found.imports.push(Import {
                        from: shown(import?.name.name),
                        name: String::new(),
                        kind: "interface",
                    });
                }
            }
            Payload::ComponentExportSection(section) if depth == 0 => {
                for export in section {
                    found.exports.push(Export {
                        name: shown(export?.name.name),
                        kind: "interface",
                        takes_and_gives_nothing: false,
                    });
                }
            }
            Payload::MemorySection(section) => {
                for memory in section {
                    found.memories.push(memory_of(&memory?));
                }
            }
            _ => {}
        }
    }
    // The validated types know the signature of every export, which the export section alone doesn't.
    let types = types.as_ref();
    for (name, entity) in types.core_exports().into_iter().flatten() {
        let (kind, nothing) = match entity {
            EntityType::Func(id) | EntityType::FuncExact(id) => {
                let signature = types.get(id).map(|ty| &ty.composite_type.inner);
                let nothing = matches!(
                    signature,
                    Some(wasmparser::CompositeInnerType::Func(function))
                        if none(function.params()) && none(function.results())
                );
                ("function", nothing)
            }
            EntityType::Table(_) => ("table", false),
            EntityType::Memory(_) => ("memory", false),
            EntityType::Global(_) => ("global", false),
            EntityType::Tag(_) => ("tag", false),
        };
        found.exports.push(Export { name: shown(name), kind, takes_and_gives_nothing: nothing });
    }
    found.problems = verdict::problems(&found);
    Ok(found)
}

fn none(types: &[ValType]) -> bool {
    types.is_empty()
}

/// The first bytes tell the commonest mistakes apart, each with its own remedy.
fn check_header(bytes: &[u8]) -> Result<()> {
    if bytes.starts_with(b"\0asm") {
        if bytes.len() < 8 {
            bail!("the file ends after {} bytes, inside the header; copy it again", bytes.len());
        }
        if !(Parser::is_core_wasm(bytes) || Parser::is_component(bytes)) {
            let version: Vec<_> = bytes.iter().skip(4).take(4).map(|byte| format!("{byte:02x}")).collect();
            bail!(
                "unknown WebAssembly version (bytes {}); modules (01 00 00 00) and components (0d 00 01 00) are read",
                version.join(" ")
            );
        }
        return Ok(());
    }
    let text = bytes.iter().position(|byte| !byte.is_ascii_whitespace()).and_then(|start| bytes.get(start..));
    if bytes.is_empty() {
        bail!("the file is empty");
    } else if bytes.starts_with(b"\x7fELF") {
        bail!(
            "this is an ELF file (a native program, or a module that was compiled ahead); give the .wasm it came from"
        );
    } else if text.is_some_and(|text| text.starts_with(b"(") || text.starts_with(b";;")) {
        bail!("this looks like the text format; translate it to a binary first (`wat2wasm`, `wasm-tools parse`)");
    }
    bail!("this is no WebAssembly: a .wasm begins with the bytes 00 61 73 6d");
}

fn kind_of(ty: &TypeRef) -> &'static str {
    match ty {
        TypeRef::Func(_) | TypeRef::FuncExact(_) => "function",
        TypeRef::Table(_) => "table",
        TypeRef::Memory(_) => "memory",
        TypeRef::Global(_) => "global",
        TypeRef::Tag(_) => "tag",
    }
}

fn memory_of(memory: &MemoryType) -> Memory {
    let page = 1_u64.checked_shl(memory.page_size_log2.unwrap_or(16)).unwrap_or(u64::MAX);
    Memory {
        initial_bytes: memory.initial.saturating_mul(page),
        maximum_bytes: memory.maximum.map(|pages| pages.saturating_mul(page)),
        memory64: memory.memory64,
        shared: memory.shared,
    }
}

/// A name from the file for a message: control characters escaped, and short.
fn shown(name: &str) -> String {
    let mut text: String = name.chars().take(MAX_NAME_CHARACTERS).flat_map(char::escape_debug).collect();
    if name.chars().nth(MAX_NAME_CHARACTERS).is_some() {
        text.push('…');
    }
    text
}
