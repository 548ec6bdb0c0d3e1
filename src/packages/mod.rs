//! Packages that a caller installs for a script (`extra_pip`): what may be asked for, for which
//! interpreter, what was chosen, and the tree that a guest sees at `/workspace/site`.
//!
//! This module starts nothing and speaks to no network. The step has a tool of this machine (`pip`) choose and fetch
//! the files, in a sandbox where there is one, and hands them over here. Installing is the caller's act and needs the
//! caller's word; nothing a script or a manifest says installs anything by itself.
//!
//! Invariants: no code of a package runs on the host, neither to build nor to install it; only wheels are taken; every
//! file is known by its SHA-256; what is unpacked can't leave its folder; the store is private and is verified when it
//! is read.

mod lock;
mod requirement;
mod site;
mod target;
mod wheel;

pub use lock::{LockedPackage, LockedTarget, PackageLock};
pub use requirement::{MAX_REQUIREMENTS, PipRequirement, requirements};
pub use site::{
    InstalledPackages, MAX_WHEELS, MAX_WHEELS_BYTES, NativeCode, PackageOrigin, Site, SiteParts, SiteRecord, SiteStore,
    files_key, native_only, request_key,
};
pub use target::{PROBE, PythonTarget};
pub use wheel::Wheel;

/// Has `pip` choose and fetch wheels; see its own text.
pub const PIP_TOOL: &str = include_str!("pip_tool.py");
/// Compiles installed packages with the interpreter they are for, in its sandbox; see its own text.
pub const FINISH: &str = include_str!("finish.py");
