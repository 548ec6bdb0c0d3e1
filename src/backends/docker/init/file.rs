//! `init file`: reading, writing and listing for a host that can't see the container's files. Runs as the guest's own
//! user, so the worst that a link or a swap can lead to is what the guest could do itself; links are refused all the
//! same, since the answer is the host's to use.

use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::protocol::{Entry, EntryKind, MAX_LISTED, NONCE_LEN};
use crate::system;

const O_NONBLOCK: i32 = 0o4000;
/// `O_NOFOLLOW`, which has its own number on arm.
const O_NOFOLLOW: i32 = if cfg!(target_arch = "aarch64") { 0o100_000 } else { 0o400_000 };
const ELOOP: i32 = 40;
const EFBIG: i32 = 27;

/// Does what the words say: `get PATH LIMIT`, `put PATH`, `list PATH`. The answer goes to standard output.
pub fn serve(words: &[String], nonce: [u8; NONCE_LEN]) -> Result<()> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match *words {
        ["get", path, limit] => get(Path::new(path), limit.parse().map_err(Error::other)?),
        ["put", path, size] => put(Path::new(path), size.parse().map_err(Error::other)?, nonce),
        ["list", path] => list(Path::new(path)),
        _ => Err(ErrorKind::InvalidInput.into()),
    }
}

/// Every folder on the way must be one. Made if `make` says so.
fn check_parents(path: &Path, make: bool) -> Result<()> {
    let mut parents: Vec<&Path> = path.ancestors().skip(1).filter(|parent| parent.starts_with("/workspace")).collect();
    parents.reverse();
    for parent in parents {
        match std::fs::symlink_metadata(parent) {
            Ok(metadata) if metadata.is_symlink() => return Err(Error::from_raw_os_error(ELOOP)),
            Ok(metadata) if !metadata.is_dir() => return Err(ErrorKind::NotADirectory.into()),
            Ok(_) => {}
            Err(error) if make && error.kind() == ErrorKind::NotFound => std::fs::create_dir(parent)?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn get(path: &Path, limit: u64) -> Result<()> {
    check_parents(path, false)?;
    let file = OpenOptions::new().read(true).custom_flags(O_NOFOLLOW | O_NONBLOCK).open(path)?;
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        return Err(ErrorKind::IsADirectory.into());
    }
    if !metadata.is_file() {
        return Err(ErrorKind::InvalidInput.into());
    }
    if metadata.len() > limit {
        return Err(Error::from_raw_os_error(EFBIG));
    }
    // One more than the limit, so that the host sees a file that grew.
    std::io::copy(&mut file.take(limit.saturating_add(1)), &mut std::io::stdout()).map(drop)
}

fn put(path: &Path, size: u64, nonce: [u8; NONCE_LEN]) -> Result<()> {
    check_parents(path, true)?;
    if std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir()) {
        return Err(ErrorKind::IsADirectory.into());
    }
    // Whole or not at all: beside the target, then in its place.
    let name: String = nonce.iter().map(|byte| format!("{byte:02x}")).collect();
    let temporary = path.with_file_name(format!(".skillcell-{name}"));
    let written = OpenOptions::new().write(true).create_new(true).open(&temporary).and_then(|file| {
        receive(file, size)?;
        std::fs::rename(&temporary, path)
    });
    if written.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    written
}

/// The bytes come after the request, as they are.
fn receive(mut file: File, mut left: u64) -> Result<()> {
    let mut buffer = vec![0; 64 << 10];
    while left > 0 {
        let want = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        let count = system::read_some(buffer.get_mut(..want).unwrap_or_default())?;
        if count == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        file.write_all(buffer.get(..count).unwrap_or_default())?;
        left = left.saturating_sub(count as u64);
    }
    Ok(())
}

fn list(path: &Path) -> Result<()> {
    check_parents(&path.join("x"), false)?;
    let mut answer = Vec::new();
    for (count, entry) in std::fs::read_dir(path)?.enumerate() {
        let entry = entry?;
        if count >= MAX_LISTED {
            return Err(Error::from_raw_os_error(EFBIG));
        }
        // It may vanish between the listing and the look.
        let Ok(metadata) = entry.metadata() else { continue };
        let kind = metadata.file_type();
        let (kind, size) = if kind.is_file() {
            (EntryKind::File, metadata.len())
        } else if kind.is_dir() {
            (EntryKind::Folder, 0)
        } else if kind.is_symlink() {
            (EntryKind::Link, 0)
        } else {
            (EntryKind::Special, 0)
        };
        Entry { kind, size, name: entry.file_name().to_string_lossy().into_owned() }.put(&mut answer);
    }
    std::io::stdout().write_all(&answer)
}
