//! Does a pack keep what its manifest promises? Digests, sizes, imports, entry, memory, licences.
//!
//! Must not run anything: the module is read, not executed.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail};

use super::archive::{UnpackedFile, unpack};
use super::manifest::{PackManifest, Role, load};
use crate::inspect::{Kind, inspect};

/// What a manifest says about its module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ModuleFacts {
    /// Imported functions by import module, sorted.
    pub(super) imports: BTreeMap<String, Vec<String>>,
    /// The exported functions that take and give nothing.
    entries: Vec<String>,
    /// The memory before the module runs.
    pub(super) memory_bytes: u64,
}

/// A pack that was found to be in order.
#[derive(Debug)]
pub struct Verified {
    /// Its manifest.
    pub manifest: PackManifest,
    /// Its files.
    pub files: Vec<UnpackedFile>,
}

impl Verified {
    /// The bytes of the file with this role.
    ///
    /// # Errors
    /// When the pack has none.
    pub fn data(&self, role: Role) -> Result<&[u8]> {
        let name = &self.manifest.file(role)?.name;
        let file = self.files.iter().find(|file| &file.name == name);
        file.map(|file| file.data.as_slice()).with_context(|| format!("the archive holds no {name}"))
    }
}

/// Reads what the manifest has to say about a module.
pub(super) fn module_facts(wasm: &[u8]) -> Result<ModuleFacts> {
    let found = inspect(wasm)?;
    if found.kind != Kind::Module {
        bail!("the entry of a pack must be a core module, not a component");
    }
    let mut imports: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for import in found.imports {
        if import.kind != "function" {
            bail!("the module imports {}.{}, which is a {} and no function", import.from, import.name, import.kind);
        }
        imports.entry(import.from).or_default().push(import.name);
    }
    imports.values_mut().for_each(|names| names.sort());
    let entries = found.exports.into_iter().filter(|export| export.takes_and_gives_nothing).map(|export| export.name);
    let memory_bytes = found.memories.iter().fold(0_u64, |sum, memory| sum.saturating_add(memory.initial_bytes));
    Ok(ModuleFacts { imports, entries: entries.collect(), memory_bytes })
}

/// Checks the pack in `folder`.
///
/// # Errors
/// Names the first thing that is not as the manifest says.
pub fn verify(folder: &Path) -> Result<Verified> {
    let manifest = load(folder)?;
    let verified = Verified { files: unpack(folder, &manifest)?, manifest };
    check(folder, &verified).with_context(|| format!("the pack in {} is not in order", folder.display()))?;
    Ok(verified)
}

fn check(folder: &Path, verified: &Verified) -> Result<()> {
    let manifest = &verified.manifest;
    let facts = module_facts(verified.data(Role::Module)?)?;
    if facts.imports != manifest.imports {
        bail!("the module imports {:?}, the manifest says {:?}", facts.imports, manifest.imports);
    }
    if !facts.entries.contains(&manifest.entry.export) {
        bail!("the module has no function {:?} to enter by", manifest.entry.export);
    }
    if facts.memory_bytes != manifest.memory_bytes {
        bail!("the module's memory has {} bytes, the manifest says {}", facts.memory_bytes, manifest.memory_bytes);
    }
    for licence in &manifest.licences {
        let text = folder.join("licences").join(&licence.file);
        if std::fs::metadata(&text).map(|found| found.len()).unwrap_or(0) == 0 {
            bail!("the licence of {} should be in {}", licence.part, text.display());
        }
    }
    Ok(())
}
