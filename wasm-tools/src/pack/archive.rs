//! The archive of a pack: its files one behind the other, in one xz stream.
//!
//! One stream and not two, because the module and the library hold much of the same bytes; no container format,
//! because the manifest already says what lies where.
//!
//! Invariant: what [`unpack`] gives has the sizes and digests of the manifest, and no more memory is used than these
//! sizes ask for, whatever the bytes say.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use super::manifest::{PackFile, PackManifest};

/// More than any interpreter needs; a manifest that asks for more is not followed.
const UNPACKED_LIMIT: u64 = 1 << 30;

/// One file out of an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnpackedFile {
    /// Its name in the manifest.
    pub name: String,
    /// Its bytes, whose digest was checked.
    pub data: Vec<u8>,
}

/// The SHA-256 of `data`, in hex.
pub(super) fn sha256(data: &[u8]) -> String {
    Sha256::digest(data).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn check_file(what: &PackFile, data: &[u8]) -> Result<()> {
    let (bytes, digest) = (data.len() as u64, sha256(data));
    if bytes != what.bytes {
        bail!("{} has {bytes} bytes, the manifest says {}", what.name, what.bytes);
    }
    if digest != what.sha256 {
        bail!("{} has the digest {digest}, the manifest says {}", what.name, what.sha256);
    }
    Ok(())
}

/// Takes the archive of the pack in `folder` apart and checks every size and digest.
///
/// # Errors
/// When the archive can't be read, is damaged, or is not what the manifest says.
pub fn unpack(folder: &Path, manifest: &PackManifest) -> Result<Vec<UnpackedFile>> {
    let path = folder.join(&manifest.archive.name);
    let read = || -> Result<Vec<UnpackedFile>> {
        let mut packed = Vec::new();
        // One byte more than it should have, to see that it has no more.
        File::open(&path)?.take(manifest.archive.bytes.saturating_add(1)).read_to_end(&mut packed)?;
        check_file(&manifest.archive, &packed)?;
        if manifest.unpacked_bytes() > UNPACKED_LIMIT {
            bail!("the manifest asks for {} bytes, more than {UNPACKED_LIMIT}", manifest.unpacked_bytes());
        }
        let mut stream = lzma_rust2::XzReader::new(packed.as_slice(), false);
        let mut files = Vec::with_capacity(manifest.files.len());
        for file in &manifest.files {
            let mut data = Vec::new();
            stream.by_ref().take(file.bytes).read_to_end(&mut data).context("the archive is damaged")?;
            check_file(file, &data)?;
            files.push(UnpackedFile { name: file.name.clone(), data });
        }
        if stream.read(&mut [0]).context("the archive is damaged")? != 0 {
            bail!("the archive holds more than the files of the manifest");
        }
        Ok(files)
    };
    read().with_context(|| format!("can't unpack {}", path.display()))
}

/// Compresses `files`, one behind the other. The same bytes for the same files.
///
/// # Errors
/// When memory for the encoder can't be had.
#[cfg_attr(not(feature = "pack-build"), expect(dead_code, reason = "used to make packs and by tests"))]
pub(super) fn compress(files: &[&[u8]]) -> Result<Vec<u8>> {
    // Level 9 has a window of 64 MiB: the library must still see the module before it.
    let options = lzma_rust2::XzOptions::with_preset(9);
    let mut writer = lzma_rust2::XzWriter::new(Vec::new(), options).context("can't compress")?;
    for file in files {
        writer.write_all(file).context("can't compress")?;
    }
    writer.finish().context("can't compress")
}
