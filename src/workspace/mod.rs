//! The guest's world on this host: a private folder with `skill`, `in`, `out`, `tmp` and `site`, and everything that
//! goes in or comes out.
//!
//! This is the only code of the library that touches host files. It works through directory handles (cap-std
//! [`Dir`](cap_std::fs::Dir)) and never follows a link that a guest could have made; strings are parsed into
//! [`GuestPath`] before they get here. Where an engine insists on a host path there is one hole, named
//! [`Workspace::ambient_root`], so that it can be found.

mod access;
mod changes;
mod collect;
mod export;
#[cfg(unix)]
mod guards;
mod guest_path;
mod host_file;
mod host_tree;
mod ledger;
mod leftovers;
mod mounts;
#[cfg(all(feature = "ownership", target_os = "linux"))]
mod ownership;
mod private_dir;
#[cfg(all(feature = "archive", target_os = "linux"))]
mod receive;
mod remove;
mod root;
mod sealed;
mod stage;
mod store;
mod transfer;
mod tree_read;

pub use access::{EntryKind, GuestEntry};
pub use changes::{ApplyChanges, ChangeKind, MAX_CHANGES_LISTED, MAX_MOUNT_ENTRIES, MountChange, MountReport};
pub use collect::{
    CollectRules, Collected, DEFAULT_MAX_OUTPUT_BYTES, DEFAULT_MAX_OUTPUT_FILE_BYTES, DEFAULT_MAX_OUTPUT_FILES,
    MAX_ENTRIES_SEEN, MAX_HELD_BYTES, MAX_OUTPUT_DEPTH, MAX_SKIPPED_LISTED, OutputFile, SkipReason, SkippedOutput,
};
pub use export::{Overwrite, check_export_folder};
#[cfg(unix)]
pub use guards::{Guard, GuardKind, MAX_GUARDS};
pub(crate) use guest_path::check_name;
pub use guest_path::{Area, GuestPath, WORKSPACE_ROOT};
pub use host_file::{AppendFile, host_file_exists, list_host_folder, read_host_file, write_host_file};
pub use host_tree::{
    HostTree, MAX_TREE_BYTES, MAX_TREE_DEPTH, MAX_TREE_ENTRIES, MAX_TREE_FILE_BYTES, MAX_TREE_PATH_BYTES, TreeEntry,
};
#[cfg(all(feature = "groups", target_os = "linux"))]
pub(crate) use ledger::Outside;
pub use mounts::HostMount;
#[cfg(all(feature = "ownership", target_os = "linux"))]
pub(crate) use mounts::mount_points;
pub use private_dir::{PrivateDir, private_home, read_whole};
pub use root::Workspace;
pub use stage::{Input, InputSource, MAX_INPUTS, MountSupport, ReadOnlyMount};
pub use store::{StoredTree, TreeBuilder, TreeStore};
