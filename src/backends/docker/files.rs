//! The workspace of a container that can't see ours: packed into the container before it starts, its files read and
//! written by the init, its outputs fetched as an archive.
//!
//! The daemon writes as root and follows links in a container's file system, so after the start nothing is written
//! through it: the init does that, as the guest's own user, so that a link a guest made leads nowhere the guest
//! couldn't go itself.

use std::io::Read;

use bollard::Docker;
use bollard::query_parameters::{DownloadFromContainerOptions, UploadToContainerOptions};
use bytes::Bytes;
use cap_fs_ext::DirExt;
use cap_std::fs::{Dir, MetadataExt, PermissionsExt};
use futures_util::StreamExt;
use tar::{Builder, EntryType, Header};
use tokio::io::AsyncWriteExt;

use super::capture::Streams;
use super::config::OutAccess;
use super::connect::call_error;
use super::container::{INIT_FILE, INIT_MODE};
use super::exec::{Exec, start_exec};
use super::init;
use super::init::protocol::{Entry, EntryKind as InitKind, NONCE_LEN, Outcome, Request};
use super::session::Session;
use crate::error::{ErrorKind, Result, SkillRuntimeError};
use crate::policy::Limits;
use crate::workspace::{Area, EntryKind, GuestEntry, GuestPath, Workspace};

/// The most bytes of a workspace that is copied: the archive is held in memory while it is sent, and inputs of this
/// size belong where the daemon runs.
const MAX_PACKED: u64 = 512 << 20;
/// Deeper trees were not staged by us, and recursion has to end.
const MAX_DEPTH: usize = 128;
/// The most bytes of a listing: ten thousand names of the greatest length.
const MAX_LISTING: u64 = 4 << 20;
/// How long one call about a file may take; it is as long as the daemon's own limit.
const FILE_TIME: std::time::Duration = std::time::Duration::from_secs(120);
/// The archive's own share of what is fetched: a header and padding for each file.
const ENTRY_OVERHEAD: u64 = 2 << 10;

/// Packs all areas and the init. Read-only areas belong to root there, the others to the guest.
///
/// # Errors
/// [`LimitExceeded`](ErrorKind::LimitExceeded), [`Backend`](ErrorKind::Backend).
pub(super) fn pack(workspace: &Workspace, user: u32, out: OutAccess) -> Result<Bytes> {
    let failed = |error| SkillRuntimeError::backend("could not pack the workspace for the container", error);
    let mut packer = Packer { archive: Builder::new(Vec::new()), left: MAX_PACKED };
    packer.file(INIT_FILE, &mut &*init::PROGRAM, init::PROGRAM.len() as u64, INIT_MODE, 0).map_err(failed)?;
    for area in Area::ALL {
        let owner = if area.writable() && !(area == Area::Out && out == OutAccess::ReadOnly) { user } else { 0 };
        packer.folder(area.name(), owner).map_err(failed)?;
        packer.tree(area.name(), workspace.area(area), owner, 0)?;
    }
    for mount in workspace.mounts() {
        let name = mount.guest.parts().join("/");
        packer.folder(&name, 0).map_err(failed)?;
        packer.tree(&name, &mount.dir, 0, 0)?;
    }
    packer.archive.into_inner().map(Bytes::from).map_err(failed)
}

struct Packer {
    archive: Builder<Vec<u8>>,
    left: u64,
}

impl Packer {
    fn tree(&mut self, at: &str, dir: &Dir, owner: u32, depth: usize) -> Result<()> {
        let failed =
            |error| SkillRuntimeError::backend(format!("could not pack '/workspace/{at}' for the container"), error);
        if depth > MAX_DEPTH {
            return Err(SkillRuntimeError::new(
                ErrorKind::LimitExceeded,
                format!("'/workspace/{at}' is deeper than {MAX_DEPTH} folders"),
            ));
        }
        for entry in dir.entries().map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let file_name = entry.file_name();
            let name = format!("{at}/{}", file_name.to_string_lossy());
            let metadata = entry.metadata().map_err(failed)?;
            if metadata.is_dir() {
                self.folder(&name, owner).map_err(failed)?;
                self.tree(&name, &dir.open_dir_nofollow(&file_name).map_err(failed)?, owner, depth + 1)?;
            } else if metadata.is_symlink() {
                let target = dir.read_link_contents(&file_name).map_err(failed)?;
                let mut header = header(EntryType::Symlink, 0o777, owner);
                header.set_size(0);
                self.archive.append_link(&mut header, &name, target).map_err(failed)?;
            } else if metadata.is_file() {
                self.left = self.left.checked_sub(metadata.size().saturating_add(ENTRY_OVERHEAD)).ok_or_else(|| {
                    SkillRuntimeError::new(
                        ErrorKind::LimitExceeded,
                        format!("the workspace is larger than the {MAX_PACKED} bytes that are copied into a container; run where the daemon runs, so that it is mounted"),
                    )
                })?;
                let mode = if metadata.permissions().mode() & 0o111 != 0 { 0o755 } else { 0o644 };
                let mut file = entry.open().map_err(failed)?.take(metadata.size());
                self.file(&name, &mut file, metadata.size(), mode, owner).map_err(failed)?;
            }
        }
        Ok(())
    }

    fn folder(&mut self, name: &str, owner: u32) -> std::io::Result<()> {
        let mut header = header(EntryType::Directory, 0o755, owner);
        header.set_size(0);
        self.archive.append_data(&mut header, format!("{name}/"), std::io::empty())
    }

    fn file(&mut self, name: &str, data: &mut impl Read, size: u64, mode: u32, owner: u32) -> std::io::Result<()> {
        let mut header = header(EntryType::Regular, mode, owner);
        header.set_size(size);
        self.archive.append_data(&mut header, name, data)
    }
}

fn header(kind: EntryType, mode: u32, owner: u32) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(u64::from(owner));
    header.set_gid(0);
    header.set_mtime(0);
    header
}

/// Unpacks an archive in a container that has not started.
///
/// # Errors
/// [`Backend`](ErrorKind::Backend), [`Unavailable`](ErrorKind::Unavailable).
pub(super) async fn upload(docker: &Docker, container: &str, folder: &str, archive: Bytes) -> Result<()> {
    let options = UploadToContainerOptions { path: folder.to_owned(), ..Default::default() };
    docker
        .upload_to_container(container, Some(options), bollard::body_full(archive))
        .await
        .map_err(|error| call_error("copy the workspace into the container", error))
}

/// Reads a file. See [`SkillRuntime::read_file`](crate::runtime::SkillRuntime::read_file).
pub(super) async fn read(session: &Session, path: &GuestPath, limit: u64) -> Result<Bytes> {
    let answer = ask(session, path, vec!["get".into(), path.to_string(), limit.to_string()], limit, &[]).await?;
    if answer.len() as u64 > limit { Err(too_large(path, limit)) } else { Ok(answer.into()) }
}

/// Writes a file. See [`SkillRuntime::write_file`](crate::runtime::SkillRuntime::write_file).
pub(super) async fn write(session: &Session, path: &GuestPath, data: &[u8], limits: &Limits) -> Result<()> {
    let (area, inside) = path.in_area()?;
    if !area.writable() {
        return Err(SkillRuntimeError::new(
            ErrorKind::PathDenied,
            format!("'{path}' is read-only; write to /workspace/out or /workspace/tmp"),
        ));
    }
    if inside == "." {
        return Err(SkillRuntimeError::new(ErrorKind::PathDenied, format!("'{path}' is a folder; name a file in it")));
    }
    if data.len() as u64 > limits.disk {
        return Err(SkillRuntimeError::new(
            ErrorKind::LimitExceeded,
            format!("'{path}' would be larger than the disk limit of {} bytes", limits.disk),
        ));
    }
    ask(session, path, vec!["put".into(), path.to_string(), data.len().to_string()], 0, data).await.map(drop)
}

/// Lists a folder. See [`SkillRuntime::list_files`](crate::runtime::SkillRuntime::list_files).
pub(super) async fn list(session: &Session, path: &GuestPath) -> Result<Vec<GuestEntry>> {
    let answer = ask(session, path, vec!["list".into(), path.to_string()], MAX_LISTING, &[]).await?;
    let entries = Entry::all(&answer).ok_or_else(|| {
        SkillRuntimeError::new(ErrorKind::Backend, format!("the listing of '{path}' came back damaged; try again"))
    })?;
    // The init lies there for the container's start; it is no part of the guest's world.
    let ours = |entry: &Entry| path.parts().is_empty() && entry.name == INIT_FILE;
    let mut entries: Vec<GuestEntry> = entries
        .into_iter()
        .filter(|entry| !ours(entry))
        .map(|entry| GuestEntry {
            name: entry.name,
            kind: match entry.kind {
                InitKind::File => EntryKind::File,
                InitKind::Folder => EntryKind::Folder,
                InitKind::Link => EntryKind::Link,
                InitKind::Special => EntryKind::Special,
            },
            size: entry.size,
        })
        .collect();
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(entries)
}

/// Has the init do something with a file, as the guest's user and in a group of its own, and returns its answer: at
/// most a byte more than `most`.
async fn ask(session: &Session, path: &GuestPath, argv: Vec<String>, most: u64, data: &[u8]) -> Result<Vec<u8>> {
    let mut nonce = [0; NONCE_LEN];
    getrandom::fill(&mut nonce)
        .map_err(|error| SkillRuntimeError::backend("the system's random source failed", error))?;
    let request = Request { nonce, cwd: "/".into(), argv, env: Vec::new(), stdin: false, cpu_seconds: 0 };
    let bytes = request.encode().ok_or_else(|| SkillRuntimeError::invalid("the path is too long"))?;
    let live = session.current().await?;
    let Exec { mut output, mut input, .. } = start_exec(session, &live.id, "file", session.next_group()).await?;
    let kept = most.saturating_add(1).saturating_mul(2);
    let mut streams = Streams::new(&Limits { output: u64::MAX, output_kept: kept, ..Limits::default() }, nonce, None);
    let talk = async {
        let send = async {
            input.write_all(&bytes).await?;
            input.write_all(data).await?;
            input.flush().await
        };
        let hear = async {
            while let Some(piece) = output.next().await {
                streams.push(&piece.map_err(|error| call_error("work on a file in the container", error))?);
            }
            Ok::<(), SkillRuntimeError>(())
        };
        // The answer matters, also when not all was taken.
        let (_, heard) = tokio::join!(send, hear);
        heard
    };
    tokio::time::timeout(FILE_TIME, talk).await.map_err(|_| {
        SkillRuntimeError::new(ErrorKind::Backend, format!("work on '{path}' in the container took too long"))
    })??;
    let (stdout, _, report) = streams.finish();
    match report.map(|report| report.outcome) {
        Some(Outcome::Exited(0)) => Ok(stdout.head().to_vec()),
        Some(Outcome::NotStarted(number)) => Err(file_error(path, number, most)),
        _ => Err(SkillRuntimeError::new(
            ErrorKind::Backend,
            format!("work on '{path}' in the container was ended from inside; try again when no command runs"),
        )),
    }
}

fn too_large(path: &GuestPath, limit: u64) -> SkillRuntimeError {
    SkillRuntimeError::new(
        ErrorKind::LimitExceeded,
        format!("'{path}' is larger than the {limit} bytes that may be read"),
    )
}

/// The init's number in the words of the workspace.
fn file_error(path: &GuestPath, number: i32, limit: u64) -> SkillRuntimeError {
    const ENOENT: i32 = 2;
    const EACCES: i32 = 13;
    const ENOTDIR: i32 = 20;
    const EISDIR: i32 = 21;
    const EINVAL: i32 = 22;
    const EFBIG: i32 = 27;
    const EROFS: i32 = 30;
    const ELOOP: i32 = 40;
    let (kind, message) = match number {
        ENOENT => (ErrorKind::NotFound, format!("'{path}' does not exist")),
        ENOTDIR => (
            ErrorKind::PathDenied,
            format!("a folder on the way to '{path}' is a link or a file, which is not followed"),
        ),
        ELOOP => (ErrorKind::PathDenied, format!("'{path}' is a link, or leads through one, which is never followed")),
        EISDIR => (ErrorKind::PathDenied, format!("'{path}' is a folder, not a file")),
        EINVAL => (ErrorKind::PathDenied, format!("'{path}' is not a regular file")),
        EACCES | EROFS => (ErrorKind::PathDenied, format!("'{path}' can't be opened")),
        EFBIG => return too_large(path, limit),
        _ => (ErrorKind::Backend, format!("could not access '{path}'")),
    };
    SkillRuntimeError::new(kind, message).caused_by(std::io::Error::from_raw_os_error(number))
}

/// Fetches `/workspace/out` into the local workspace, in place of what is there.
///
/// # Errors
/// [`Backend`](ErrorKind::Backend), [`Unavailable`](ErrorKind::Unavailable), and
/// [`LimitExceeded`](ErrorKind::LimitExceeded) over the policy's disk and file limits.
pub(super) async fn fetch_outputs(session: &Session, workspace: &Workspace, limits: &Limits) -> Result<()> {
    let live = session.current().await?;
    let options = DownloadFromContainerOptions { path: "/workspace/out".to_owned() };
    let mut pieces = std::pin::pin!(session.docker.download_from_container(&live.id, Some(options)));
    let most = limits.disk.saturating_add(limits.files.saturating_mul(ENTRY_OVERHEAD)).min(MAX_PACKED);
    let mut archive = Vec::new();
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(|error| call_error("fetch the outputs", error))?;
        if archive.len() as u64 + piece.len() as u64 > most {
            return Err(SkillRuntimeError::new(
                ErrorKind::LimitExceeded,
                format!("/workspace/out holds more than the {most} bytes that are fetched from a container"),
            ));
        }
        archive.extend_from_slice(&piece);
    }
    workspace.replace_outputs(&mut tar::Archive::new(&archive[..]), limits)
}
