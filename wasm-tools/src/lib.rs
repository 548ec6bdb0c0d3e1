//! Builds and inspects the WebAssembly guests of skillcell.
//!
//! - [`build`] makes a `.wasm` from a Rust file or crate, with the toolchain that [`Toolchain::find`] chose.
//! - [`setup`] makes the private sysroot that Debian's compiler needs.
//! - [`inspect`] says what a `.wasm` is, and whether skillcell's wasm runtime can run it and if not why.
//! - [`wrap`] makes a component of a preview 1 module.
//! - [`pack`] reads, checks and, with feature `pack-build`, makes interpreter packs.
//!
//! This crate must not run guests: it has an engine only with `pack-build`, to freeze and try interpreters of our own.
//! It starts compilers with the caller's own rights: sources are trusted here as they are by `cargo build` (build
//! scripts and procedural macros run), and untrusted only as guests. Bytes that are inspected, wrapped or unpacked are
//! untrusted: they give an error, never a panic.

mod build;
mod cache;
mod component;
mod inspect;
pub mod pack;
mod process;
mod sdk;
mod sysroot;
mod toolchain;
mod verdict;

pub use build::{BuildRequest, Built, Encoding, Profile, build};
pub use cache::Cache;
pub use component::wrap;
pub use inspect::{Export, Import, Inspection, Kind, MAX_FILE_BYTES, Memory, inspect, read_file};
pub use sysroot::setup;
pub use toolchain::{DEBIAN_PACKAGES, DebianToolchain, RustupToolchain, TARGET, Toolchain};
