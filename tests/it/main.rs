//! Integration tests, one module a behaviour.

#[cfg(all(feature = "llm", unix))]
mod agent_cassettes;
#[cfg(unix)]
mod agent_loop;
#[cfg(unix)]
mod agent_modes;
#[cfg(all(feature = "docker", feature = "pack-python", target_os = "linux"))]
mod agent_runtimes;
#[cfg(unix)]
mod agent_support;
#[cfg(unix)]
mod agent_transcript;
#[cfg(feature = "llm")]
mod agent_wires;
#[cfg(all(feature = "bubblewrap", target_os = "linux"))]
mod bubblewrap;
#[cfg(all(feature = "bubblewrap", target_os = "linux"))]
mod bubblewrap_mounts;
#[cfg(all(feature = "cli", feature = "wasm"))]
mod cli;
#[cfg(all(feature = "cli", feature = "wasm"))]
mod cli_agent;
#[cfg(feature = "cli")]
mod cli_skill;
#[cfg(all(feature = "docker", target_os = "linux"))]
mod docker_copied;
#[cfg(all(feature = "docker", target_os = "linux"))]
mod docker_hardening;
#[cfg(all(feature = "docker", target_os = "linux"))]
mod docker_leftovers;
#[cfg(all(feature = "docker", target_os = "linux"))]
mod docker_limits;
#[cfg(all(feature = "docker", target_os = "linux"))]
mod docker_mounts;
#[cfg(all(feature = "docker", target_os = "linux"))]
mod docker_runs;
#[cfg(all(feature = "docker", target_os = "linux"))]
mod docker_support;
#[cfg(all(feature = "firejail", target_os = "linux"))]
mod firejail;
#[cfg(any(feature = "fetch", feature = "llm"))]
mod http_server;
#[cfg(all(feature = "cli", feature = "pack-js"))]
mod javascript;
#[cfg(all(feature = "cli", feature = "wasm", feature = "bubblewrap", target_os = "linux"))]
mod kill_hosts;
#[cfg(all(feature = "cli", feature = "wasm", unix))]
mod llm_server;
#[cfg(all(feature = "local", target_os = "linux"))]
mod local_processes;
#[cfg(all(feature = "local", target_os = "linux"))]
mod local_support;
#[cfg(all(feature = "local", target_os = "linux"))]
mod local_world;
#[cfg(all(any(feature = "bubblewrap", feature = "firejail"), target_os = "linux"))]
mod ordinary_user;
#[cfg(all(unix, any(feature = "pack-python", feature = "pack-js")))]
mod pack_proof;
#[cfg(all(feature = "cli", feature = "pack-python", feature = "docker", target_os = "linux"))]
mod packages;
#[cfg(all(feature = "cli", feature = "pack-python"))]
mod python;
#[cfg(feature = "fetch")]
mod skill_fetch;
#[cfg(unix)]
mod skill_shapes;
#[cfg(all(feature = "wasm", unix))]
mod wasm_cache;
#[cfg(all(feature = "wasm", unix))]
mod wasm_files;
#[cfg(all(feature = "wasm", unix))]
mod wasm_limits;
#[cfg(all(feature = "wasm", unix))]
mod wasm_modules;
#[cfg(all(feature = "wasm", target_os = "linux"))]
mod wasm_mounts;
#[cfg(all(feature = "wasm", unix))]
mod wasm_quota;
#[cfg(all(feature = "wasm", unix))]
mod wasm_refusals;
#[cfg(all(feature = "wasm", unix))]
mod wasm_support;
#[cfg(unix)]
mod workspace_files;
mod workspace_mounts;
#[cfg(unix)]
mod workspace_outputs;
#[cfg(unix)]
mod workspace_trees;
