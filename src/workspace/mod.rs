//! The guest's world on this host: a private folder with `skill`, `in`, `out`, `tmp` and `site`, and everything that
//! goes in or comes out.
//!
//! This is the only code of the library that touches host files. It works through directory handles (cap-std
//! [`Dir`](cap_std::fs::Dir)) and never follows a link that a guest could have made; strings are parsed into
//! [`GuestPath`] before they get here. Where an engine insists on a host path there is one hole, named
//! [`Workspace::ambient_root`], so that it can be found.

mod access;
mod collect;
mod guest_path;
mod host_tree;
mod root;
mod stage;

pub use access::{EntryKind, GuestEntry};
pub use collect::{CollectRules, Collected, OutputFile, SkippedOutput};
pub use guest_path::{Area, GuestPath, WORKSPACE_ROOT};
pub use host_tree::{HostTree, TreeEntry};
pub use root::Workspace;
pub use stage::{Input, InputSource, ReadOnlyMount};
