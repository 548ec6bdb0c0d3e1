//! Putting things in.

use cap_std::fs::Dir;

use super::guest_path::GuestPath;

/// A host folder shown read-only at a guest path inside `/workspace/in`.
#[derive(Debug)]
pub struct ReadOnlyMount {
    /// Where the guest sees it.
    pub guest: GuestPath,
    /// The folder, held open: a swap of the host path changes nothing.
    pub dir: Dir,
}

/// One input of a run.
#[derive(Debug, Clone)]
pub struct Input {
    /// Its name in `/workspace/in`.
    pub name: String,
    /// What it is.
    pub source: InputSource,
}

/// Where an input comes from.
#[derive(Debug, Clone)]
pub enum InputSource {
    /// A file or folder on this machine, copied.
    Copy(std::path::PathBuf),
    /// A folder on this machine, shown read-only where the runtime can, copied where it can't.
    Mount(std::path::PathBuf),
    /// Bytes.
    Bytes(bytes::Bytes),
}
