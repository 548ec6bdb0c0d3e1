//! What one run knows about its open files and folders, and how it says no.
//!
//! Invariant: a refusal is one audit event, and the event is written before the guest has its
//! answer.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use wasmtime_wasi::p1::WasiP1Ctx;

use super::account::{Account, Booking, Excess, Opened};
use super::census::count;
use crate::audit::{AuditScope, Layer};
use crate::policy::Protection;
use crate::workspace::Workspace;

/// The longest path of an open folder, as hosts have it. Without a bound, a guest that opens folder in folder, round a
/// circle of links, would make the host keep ever longer ones.
pub(super) const MAX_PATH_BYTES: usize = 4_096;

/// What a guest may do in a part of its world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::backends::wasm) enum Access {
    /// Read what was staged for it.
    Staged,
    /// Read a folder of the host, in which anything may lie.
    Shown,
    /// Everything, in an area of the workspace; or everything but removing.
    Area(Removal),
    /// Everything, in a private copy of a host folder.
    Copied,
    /// Change a folder of the host.
    Host(HostFolder),
}

/// A folder of the host that a guest may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::backends::wasm) struct HostFolder {
    /// Its place among the workspace's host folders.
    pub(in crate::backends::wasm) index: usize,
    pub(in crate::backends::wasm) removal: Removal,
}

/// Whether what lies in a folder may be removed, moved or replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::backends::wasm) enum Removal {
    Allowed,
    Refused,
}

impl Access {
    pub(super) fn read_only(self) -> bool {
        self.booking().is_none()
    }

    /// How changes are booked.
    pub(super) fn booking(self) -> Option<Booking> {
        match self {
            Self::Staged | Self::Shown => None,
            Self::Area(_) | Self::Copied => Some(Booking::Held),
            Self::Host(_) => Some(Booking::Spent),
        }
    }

    /// Whether something may be moved or linked from one part into the other, as between folders of one disk.
    pub(super) fn moves_to(self, other: Self) -> bool {
        matches!((self, other), (Self::Area(_), Self::Area(_)))
    }

    /// Whether what lies there may go.
    pub(super) fn removal(self) -> Removal {
        match self {
            Self::Staged | Self::Shown | Self::Copied => Removal::Allowed,
            Self::Area(removal) | Self::Host(HostFolder { removal, .. }) => removal,
        }
    }
}

/// One part of the guest's world, as it was opened before the run.
#[derive(Debug, Clone)]
pub(in crate::backends::wasm) struct Mount {
    /// Where the guest sees it.
    pub(in crate::backends::wasm) guest: String,
    pub(in crate::backends::wasm) access: Access,
}

/// Where a descriptor leads.
pub(super) struct Place {
    /// In which part it lies.
    pub(super) mount: usize,
    /// The path by which it was opened, without dots.
    pub(super) path: String,
    /// No link was followed to come here, so that the path names what it is.
    pub(super) straight: bool,
    /// Opened for writing.
    pub(super) writable: bool,
    /// Writes go to the end (preview 1).
    pub(super) append: bool,
    /// For a file of an area: that it is open.
    pub(super) open: Option<Opened>,
}

/// What is shared with streams, which live on their own.
pub(super) struct Shared {
    pub(super) account: Arc<Account>,
    audit: AuditScope,
    exceeded: AtomicBool,
}

impl Shared {
    /// Ends the run for a limit of the account: the error is for the engine, not for the guest.
    pub(super) fn exceed(&self, path: &str, excess: Excess) -> wasmtime::Error {
        self.exceeded.store(true, Ordering::SeqCst);
        self.audit.deny(Layer::Limit, "disk_limit", path, &excess.to_string());
        wasmtime::Error::msg(excess.to_string())
    }

    pub(super) fn deny(&self, layer: Layer, action: &'static str, path: &str, reason: &str) {
        self.audit.deny(layer, action, path, reason);
    }
}

/// The files of one run.
pub(in crate::backends::wasm) struct Files {
    pub(super) shared: Arc<Shared>,
    workspace: Arc<Workspace>,
    mounts: Vec<Mount>,
    /// The call in hand was refused here, not by the engine, and has its event.
    pub(super) refused: bool,
    /// By descriptor of preview 1. The first three are streams.
    pub(super) places: HashMap<u32, Place>,
    /// By handle of preview 2.
    pub(super) handles: HashMap<u32, Place>,
}

/// The first descriptor of preview 1 that is a folder: the others are the standard streams.
const FIRST_PREOPEN: u32 = 3;

impl Files {
    /// For a run that sees these parts, in the order in which they were opened.
    pub(in crate::backends::wasm) fn new(
        workspace: &Arc<Workspace>,
        (account, audit): (&Arc<Account>, &AuditScope),
        mounts: Vec<Mount>,
    ) -> Self {
        let shared = Shared { account: account.clone(), audit: audit.clone(), exceeded: AtomicBool::new(false) };
        let places = (FIRST_PREOPEN..).zip(mounts.iter().enumerate());
        let places = places.map(|(fd, (index, mount))| (fd, Place::root(index, mount))).collect();
        Self {
            shared: Arc::new(shared),
            workspace: workspace.clone(),
            mounts,
            refused: false,
            places,
            handles: HashMap::new(),
        }
    }

    /// Counts what lies in the areas, before the run: the host and other runs may have left something.
    pub(in crate::backends::wasm) fn count(&self, wasi: &mut WasiP1Ctx) -> wasmtime::Result<()> {
        let _turn = self.shared.account.turn();
        count(wasi, self)
    }

    /// Whether the run was ended by the disk limit.
    pub(in crate::backends::wasm) fn exceeded(&self) -> bool {
        self.shared.exceeded.load(Ordering::SeqCst)
    }

    /// The part of the guest's world with this number.
    pub(super) fn mount(&self, index: usize) -> Option<&Mount> {
        self.mounts.get(index)
    }

    /// What this guest path means, when it is one of the parts that are counted.
    pub(super) fn counted(&self, guest: &str) -> Option<Access> {
        let mount = self.mounts.iter().find(|mount| mount.guest == guest)?;
        (mount.access.booking() == Some(Booking::Held)).then_some(mount.access)
    }

    /// What a path below a host folder means to the person who owns it.
    pub(super) fn protection<'a>(&self, folder: HostFolder, parts: impl IntoIterator<Item = &'a str>) -> Protection {
        let mount = self.workspace.host_mounts().get(folder.index);
        mount.map_or(Protection::Protected("the folder isn't known"), |mount| mount.protection(parts))
    }

    /// Notes the handles of preview 2 that a component was given for the parts.
    pub(super) fn opened_roots(&mut self, handles: impl Iterator<Item = (u32, String)>) {
        for (handle, guest) in handles {
            if let Some((index, mount)) = self.mounts.iter().enumerate().find(|(_, mount)| mount.guest == guest) {
                self.handles.insert(handle, Place::root(index, mount));
            }
        }
    }
}

impl Place {
    fn root(index: usize, mount: &Mount) -> Self {
        Self { mount: index, path: mount.guest.clone(), straight: true, writable: false, append: false, open: None }
    }

    /// A path as the guest asked for it, from the root of its world.
    pub(super) fn shown(&self, path: &str) -> String {
        if path.is_empty() { self.path.clone() } else { format!("{}/{path}", self.path) }
    }

    /// The same without dots, for something that was opened; nothing when it is too long. Links are not followed: it
    /// is for people, and for nothing else.
    pub(super) fn joined(&self, path: &str) -> Option<String> {
        let mut parts: Vec<&str> = self.path.split('/').collect();
        for part in path.split('/') {
            match part {
                "" | "." => {}
                ".." => {
                    parts.pop();
                }
                name => parts.push(name),
            }
        }
        let joined = parts.join("/");
        (joined.len() <= MAX_PATH_BYTES).then_some(joined)
    }
}
