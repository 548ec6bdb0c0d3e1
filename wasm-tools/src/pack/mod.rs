//! Interpreter packs: an interpreter compiled to WASI, frozen after its start, with its library and its licences.
//!
//! A pack is a folder with `manifest.json`, the recipe that makes it, the licences of all that is linked in, and one
//! compressed archive. The manifest is the promise: [`verify`] checks that the archive keeps it, and a runtime may
//! use only what was checked.
//!
//! Making a pack (feature `pack-build`) takes a WebAssembly engine; reading and checking one does not.

mod archive;
#[cfg(feature = "pack-build")]
mod build;
mod command;
#[cfg(feature = "pack-build")]
mod fetch;
mod manifest;
#[cfg(feature = "pack-build")]
mod proof;
#[cfg(feature = "pack-build")]
mod run;
#[cfg(feature = "pack-build")]
mod rust;
#[cfg(feature = "pack-build")]
mod snapshot;
mod verify;

pub use archive::{UnpackedFile, unpack};
#[cfg(feature = "pack-build")]
pub use build::{BuildRequest, build};
pub use command::{PackCommand, run_pack_command};
pub use manifest::{Entry, Licence, PackFile, PackManifest, Role, list, load};
#[cfg(feature = "pack-build")]
pub use proof::prove;
#[cfg(feature = "pack-build")]
pub use run::{FolderAccess, Outcome, PackEngine, PackProgram, Run, Streams};
pub use verify::{Verified, verify};
