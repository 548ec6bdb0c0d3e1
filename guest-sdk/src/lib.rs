//! For programs that run inside a skillcell: where the inputs lie, where results go, and how to write them down.
//!
//! The same source builds to WebAssembly (`wasm32-wasip1`) and to an ordinary program, and behaves the same in every
//! runtime: the folders come from the environment that each of them sets, with the fixed guest paths as defaults.
//!
//! | folder | variable | default | what it is |
//! |---|---|---|---|
//! | [`inputs`](Workspace::inputs_dir) | `WORKSPACE_IN` | `/workspace/in` | what the caller gave, read-only |
//! | [`outputs`](Workspace::outputs_dir) | `WORKSPACE_OUT` | `/workspace/out` | results, collected after the run |
//! | [`skill`](Workspace::skill_dir) | `SKILL_DIR` | `/workspace/skill` | the skill's own files, read-only |
//! | [`tmp`](Workspace::tmp_dir) | `TMPDIR` | `/workspace/tmp` | scratch, thrown away |
//!
//! A whole guest:
//!
//! ```no_run
//! use std::process::ExitCode;
//! use skillcell_guest::{Markdown, Workspace};
//!
//! fn main() -> ExitCode {
//!     match report(&Workspace::from_env()) {
//!         Ok(()) => ExitCode::SUCCESS,
//!         Err(error) => {
//!             eprintln!("report: {error}");
//!             ExitCode::from(2)
//!         }
//!     }
//! }
//!
//! fn report(workspace: &Workspace) -> std::io::Result<()> {
//!     let mut report = Markdown::new();
//!     report.heading(1, "Inputs");
//!     for input in workspace.inputs()? {
//!         report.item(&format!("{}, {} bytes", input.name(), input.size()));
//!     }
//!     workspace.write_output("report.md", report.as_str())
//! }
//! ```
//!
//! What is not here: network access. skillcell gives guests no network until it has a gateway that decides and
//! records every request; this crate gets its `fetch` with that gateway and not before.
//!
//! This crate must not have dependencies (each would be compiled into every guest), must not panic on what lies in the
//! inputs, and must build with the Rust of Debian 12's `rustc-web` as well as with the one skillcell is built with.

mod inputs;
mod markdown;
mod names;
mod outputs;
mod workspace;

pub use inputs::{Input, MAX_INPUT_DEPTH, MAX_INPUT_FILES};
pub use markdown::{Align, Markdown};
pub use outputs::Output;
pub use workspace::Workspace;
