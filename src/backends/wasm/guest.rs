//! The one seam where the guest's world is built: preopens, standard streams, environment, network.
//!
//! Invariant: the guest sees the five areas, the mounted folders and its interpreter's own library, nothing else, and no
//! network.

use std::sync::Arc;

use wasmtime_wasi::p1::WasiP1Ctx;
use wasmtime_wasi::p2::pipe::MemoryInputPipe;
use wasmtime_wasi::{FsPerms, WasiCtxBuilder, WasiCtxView, WasiView};

use super::fs::{Access, Account, Files, HostFolder, Mount, Removal};
use super::limits::Limiter;
use super::packs::Library;
use super::stdio::{FileInput, Output};
use crate::audit::AuditScope;
use crate::error::{Result, SkillRuntimeError};
use crate::policy::{Limits, MountMode, OutMode};
use crate::runtime::{RunCommand, Stdin, Stream, guest_env};
use crate::workspace::{Area, Workspace};

/// The most random bytes of one call; a guest that needs more calls again.
const MAX_RANDOM_BYTES: u64 = 64 << 10;
/// Things that aren't open files but stand in the same table: preopens, streams, pollables of one call.
const TABLE_MARGIN: usize = 64;

/// What a store holds for its guest.
pub(super) struct Guest {
    // Before the files, so that they are closed before the account hears of it.
    pub(super) wasi: WasiP1Ctx,
    pub(super) files: Files,
    pub(super) limiter: Limiter,
}

impl WasiView for Guest {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        self.wasi.ctx()
    }
}

impl Guest {
    /// Builds the guest's world.
    pub(super) fn new(
        workspace: &Arc<Workspace>,
        library: Option<&Library>,
        command: &RunCommand,
        (limits, out): (&Limits, OutMode),
        output: &Output,
        (account, audit): (&Arc<Account>, &AuditScope),
    ) -> Result<Self> {
        let mut mounts = Vec::new();
        let mut seen = |guest: &str, access: Access| mounts.push(Mount { guest: guest.to_owned(), access });
        let mut wasi = WasiCtxBuilder::new();
        wasi.args(command.argv()).max_random_size(MAX_RANDOM_BYTES).initial_cwd(command.cwd.to_string());
        wasi.allow_tcp(false).allow_udp(false).allow_ip_name_lookup(false);
        // The guest has a thread of its own, so a file call may hold it up.
        wasi.allow_blocking_current_thread(true);
        for (name, value) in guest_env(command)?.iter() {
            wasi.env(name, value);
        }
        match &command.stdin {
            Stdin::Closed => {}
            Stdin::Bytes(bytes) => {
                wasi.stdin(MemoryInputPipe::new(bytes.clone()));
            }
            Stdin::File(file) => {
                wasi.stdin(FileInput::new(file.clone()));
            }
        }
        wasi.stdout(output.stream(Stream::Stdout)).stderr(output.stream(Stream::Stderr));
        if let Some(library) = library {
            seen(&library.guest, Access::Staged);
            wasi.preopened_dir(&library.folder, &library.guest, FsPerms::ReadOnly).map_err(|error| {
                SkillRuntimeError::backend(
                    "the library of the interpreter could not be opened for the guest",
                    format!("{error:#}"),
                )
            })?;
        }
        for area in Area::ALL {
            let (perms, access) = match (area, out) {
                (Area::Out, OutMode::ReadWriteWithoutDelete) => (FsPerms::ReadWrite, Access::Area(Removal::Refused)),
                (Area::Out, OutMode::ReadWrite) | (Area::Tmp, _) => {
                    (FsPerms::ReadWrite, Access::Area(Removal::Allowed))
                }
                (Area::Skill | Area::In | Area::Site, _) => (FsPerms::ReadOnly, Access::Staged),
            };
            let guest = area.guest_path().to_string();
            seen(&guest, access);
            wasi.preopened_dir(workspace.ambient_root().join(area.name()), &guest, perms).map_err(|error| {
                SkillRuntimeError::backend(format!("{guest} could not be opened for the guest"), format!("{error:#}"))
            })?;
        }
        let inputs = workspace.mounts().iter().map(|mount| (mount.guest.to_string(), &mount.dir, Access::Shown));
        let folders = workspace.host_mounts().iter().enumerate().map(|(index, mount)| {
            let access = match (mount.mode(), mount.access()) {
                (MountMode::CopyOnWrite, _) => Access::Copied,
                (_, MountMode::ReadOnly) => Access::Shown,
                (_, MountMode::ReadWrite | MountMode::CopyOnWrite) => {
                    Access::Host(HostFolder { index, removal: Removal::Allowed })
                }
                (_, MountMode::ReadWriteWithoutDelete) => Access::Host(HostFolder { index, removal: Removal::Refused }),
            };
            (mount.guest().to_string(), mount.dir(), access)
        });
        for (guest, dir, access) in inputs.chain(folders) {
            let perms = match access {
                Access::Staged | Access::Shown => FsPerms::ReadOnly,
                Access::Area(_) | Access::Copied | Access::Host(_) => FsPerms::ReadWrite,
            };
            let path = handle_path(dir)?;
            seen(&guest, access);
            wasi.preopened_dir(path, &guest, perms).map_err(|error| {
                SkillRuntimeError::backend(
                    format!("the mount {guest} could not be opened for the guest"),
                    format!("{error:#}"),
                )
            })?;
        }
        let mut wasi = wasi.build_p1();
        wasi.ctx().table.set_max_capacity(open_files(limits));
        let files = Files::new(workspace, (account, audit), mounts);
        files.count(&mut wasi).map_err(|error| {
            SkillRuntimeError::backend("what lies in the workspace could not be counted", format!("{error:#}"))
        })?;
        Ok(Self { wasi, files, limiter: Limiter::new(limits.memory, limits.table_elements) })
    }
}

/// How many things a guest may have open. Its files are files of the host's process, which must keep some for itself:
/// whatever the limit says, no guest gets more than half of what the process may open.
fn open_files(limits: &Limits) -> usize {
    let asked = u64::from(limits.open_files);
    #[cfg(unix)]
    let asked = {
        let process = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        process.map_or(asked, |process| asked.min(process / 2))
    };
    usize::try_from(asked).unwrap_or(usize::MAX).saturating_add(TABLE_MARGIN)
}

/// A path that leads to an open folder, so that a swap of its host path since it was opened changes nothing.
#[cfg(target_os = "linux")]
fn handle_path(dir: &cap_std::fs::Dir) -> Result<std::path::PathBuf> {
    use std::os::fd::AsRawFd;
    Ok(format!("/proc/self/fd/{}", dir.as_raw_fd()).into())
}

/// Elsewhere no such path exists: [`MountSupport`](crate::workspace::MountSupport) says so, and inputs are copied.
#[cfg(not(target_os = "linux"))]
fn handle_path(_dir: &cap_std::fs::Dir) -> Result<std::path::PathBuf> {
    Err(SkillRuntimeError::invalid("this system can't show a folder without copying it; give it as a copied input"))
}
