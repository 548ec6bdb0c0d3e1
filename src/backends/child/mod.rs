//! The only code that starts processes: spawn, supervise, capture, kill the tree.
//!
//! [`run`] runs one [`ChildSpec`] to its end. Each run has its own supervisor process ([`supervisor`]) that ends
//! everything the guest started, whatever it forked; the host only talks to that through two pipes.
//!
//! This module knows nothing of skills and guest paths, and must not: it is used by every runtime that needs a program
//! of the operating system. Nothing of the host's environment, descriptors or standard input reaches a guest unless the
//! [`ChildSpec`] names it.
//!
//! Invariants: when [`run`] returns, or its future is dropped, nothing of the run is left or is being killed by a
//! supervisor that needs no help from the host; capture is bounded; a grandchild that holds a pipe extends nothing.

mod confined;
mod group;
mod home;
#[cfg(feature = "bubblewrap")]
mod idmap;
mod program;
mod record;
mod run;
#[cfg(feature = "bubblewrap")]
mod service;
mod streams;
mod supervisor;
mod system;
mod watch;

#[cfg(feature = "bubblewrap")]
pub(super) use confined::{Confined, Sandbox};
pub(super) use group::{Group, delegation};
#[cfg(feature = "firejail")]
pub(super) use home::{Access, HOME, HOME_SOURCE, Home, Room};
#[cfg(feature = "bubblewrap")]
pub(super) use idmap::{Identity, shown_as};
#[cfg(feature = "bubblewrap")]
pub(super) use program::TrustedFolders;
pub(super) use program::{ProgramError, find_program};
pub(super) use run::{ChildEnd, ChildSpec, run};
#[cfg(feature = "bubblewrap")]
pub(super) use service::{Service, ServiceSpec, read_object};
#[cfg(feature = "bubblewrap")]
pub(super) use supervisor::MAX_FOLDERS;
pub(super) use supervisor::{OnHost, Place, Rights};
#[cfg(feature = "bubblewrap")]
pub(super) use system::landlock_abi;
pub(super) use watch::DiskWatch;

/// Whether this kernel and its `/proc` have what the supervisor needs; otherwise what is missing.
pub(super) fn missing_kernel_support() -> Option<&'static str> {
    rustix::fs::access("/proc/thread-self/children", rustix::fs::Access::READ_OK)
        .is_err()
        .then_some("/proc is not mounted or lists no children (CONFIG_PROC_CHILDREN)")
}
