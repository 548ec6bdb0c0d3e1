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

mod program;
mod run;
mod streams;
mod supervisor;
mod watch;

pub(super) use program::{ProgramError, find_program};
pub(super) use run::{ChildSpec, run};
pub(super) use watch::DiskWatch;

/// Whether this kernel and its `/proc` have what the supervisor needs; otherwise what is missing.
pub(super) fn missing_kernel_support() -> Option<&'static str> {
    rustix::fs::access("/proc/thread-self/children", rustix::fs::Access::READ_OK)
        .is_err()
        .then_some("/proc is not mounted or lists no children (CONFIG_PROC_CHILDREN)")
}
