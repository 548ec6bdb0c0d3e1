//! Integration tests, one module a behaviour.

#[cfg(all(feature = "bubblewrap", target_os = "linux"))]
mod bubblewrap;
#[cfg(all(feature = "cli", feature = "wasm"))]
mod cli;
#[cfg(all(feature = "firejail", target_os = "linux"))]
mod firejail;
#[cfg(all(feature = "cli", feature = "pack-js"))]
mod javascript;
#[cfg(all(feature = "local", target_os = "linux"))]
mod local_processes;
#[cfg(all(feature = "local", target_os = "linux"))]
mod local_support;
#[cfg(all(feature = "local", target_os = "linux"))]
mod local_world;
#[cfg(all(feature = "cli", feature = "pack-python"))]
mod python;
#[cfg(unix)]
mod workspace_files;
#[cfg(unix)]
mod workspace_outputs;
#[cfg(unix)]
mod workspace_trees;
