//! Making a pack: inputs, the recipe's Rust part and script, the snapshot, the archive, the facts of the manifest.
//!
//! The recipe's `build.sh` compiles and links; it gets a folder of inputs whose digests were checked. What comes out
//! is the same, byte for byte, whoever builds it: the manifest's digests in the tree are the proof to compare with.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::archive::{compress, sha256};
use super::fetch::fetch;
use super::manifest::{MANIFEST_FILE, PackFile, PackManifest, Role, load};
use super::rust;
use super::snapshot::snapshot;
use super::verify::module_facts;

/// The time that an interpreter is told while it starts for the snapshot: 2026-08-11, the release of the Python in the
/// first pack. It must only be the same each time.
const SNAPSHOT_TIME: u64 = 1_786_406_400;

/// What to build and where.
#[derive(Debug, Clone)]
pub struct BuildRequest {
    /// The pack's folder; its manifest and archive are written anew.
    pub folder: PathBuf,
    /// Where the inputs are kept, and put if they are not there.
    pub inputs: PathBuf,
    /// Where the recipe works. Finished stages in it are used again.
    pub work: PathBuf,
    /// Where the pack is written instead of `folder`, for a comparison.
    pub output: Option<PathBuf>,
}

/// Builds a pack and gives its manifest.
///
/// # Errors
/// When an input can't be had, a stage fails (its log is named), or the interpreter does not start.
pub fn build(request: &BuildRequest, progress: &mut dyn FnMut(&str)) -> Result<PackManifest> {
    let mut manifest = load(&request.folder)?;
    fetch(&request.folder, &request.inputs, progress)?;
    fs::create_dir_all(&request.work).with_context(|| format!("can't make {}", request.work.display()))?;
    rust::compile(&request.folder, &request.work, progress)?;
    progress("building; the first time this takes about ten minutes");
    let status = Command::new("bash")
        .arg(request.folder.join("build.sh"))
        .args([&request.inputs, &request.work])
        .stdin(Stdio::null())
        .status()
        .context("can't start bash")?;
    if !status.success() {
        bail!("the recipe of pack {:?} failed ({status})", manifest.name);
    }

    progress("freezing");
    let made = request.work.join("out");
    let module = read(&made.join(&manifest.entry.module))?;
    // A pack whose interpreter has everything built in has no library.
    let frozen = match manifest.files.iter().find(|file| file.role == Role::Library) {
        Some(library) => {
            let laid_out = lay_out_library(&made, library)?;
            let folder = library.guest_path.as_deref().and_then(|path| path.rsplit_once('/')).map_or("/", |(at, _)| at);
            snapshot(&module, Some((laid_out.path(), folder)), SNAPSHOT_TIME)?
        }
        None => snapshot(&module, None, SNAPSHOT_TIME)?,
    };

    progress("compressing");
    let mut contents = Vec::with_capacity(manifest.files.len());
    for file in &mut manifest.files {
        let data = match file.role {
            Role::Module => frozen.clone(),
            Role::Library => read(&made.join(&file.name))?,
            Role::Archive => bail!("an archive can't hold {:?}, which is an archive", file.name),
        };
        describe(file, &data);
        contents.push(data);
    }
    let archive = compress(&contents.iter().map(Vec::as_slice).collect::<Vec<_>>())?;
    describe(&mut manifest.archive, &archive);
    let facts = module_facts(&frozen)?;
    manifest.imports = facts.imports;
    manifest.memory_bytes = facts.memory_bytes;

    let output = request.output.as_ref().unwrap_or(&request.folder);
    fs::create_dir_all(output).with_context(|| format!("can't make {}", output.display()))?;
    write(&output.join(&manifest.archive.name), &archive)?;
    let text = serde_json::to_string_pretty(&manifest).context("can't write the manifest")?;
    write(&output.join(MANIFEST_FILE), format!("{text}\n").as_bytes())?;
    Ok(manifest)
}

/// The guest must see the library under its name in a folder where nothing else is.
fn lay_out_library(made: &Path, library: &PackFile) -> Result<tempfile::TempDir> {
    let folder = tempfile::tempdir().context("can't make a folder")?;
    write(&folder.path().join(&library.name), &read(&made.join(&library.name))?)?;
    Ok(folder)
}

fn describe(file: &mut PackFile, data: &[u8]) {
    file.bytes = data.len() as u64;
    file.sha256 = sha256(data);
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("can't read {}", path.display()))
}

fn write(path: &Path, data: &[u8]) -> Result<()> {
    fs::write(path, data).with_context(|| format!("can't write {}", path.display()))
}
