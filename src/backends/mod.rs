//! The runtimes: one file or folder each, and the only place with heavy dependencies.
//!
//! Nothing outside this module names a runtime. To add one: a module, a feature, a line in [`builtin_registry`].

#[cfg(all(feature = "bubblewrap", target_os = "linux"))]
mod bubblewrap;
#[cfg(all(feature = "local", target_os = "linux"))]
mod child;
#[cfg(all(feature = "docker", target_os = "linux"))]
mod docker;
#[cfg(all(feature = "firejail", target_os = "linux"))]
mod firejail;
#[cfg(all(feature = "local", target_os = "linux"))]
mod guest;
#[cfg(all(feature = "local", target_os = "linux"))]
mod local;
#[cfg(all(any(feature = "bubblewrap", feature = "firejail"), target_os = "linux"))]
mod ownership;
mod seatbelt;
#[cfg(all(feature = "bubblewrap", target_os = "linux"))]
mod toolchain;
#[cfg(feature = "wasm")]
mod wasm;

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

pub use self::seatbelt::{SeatbeltWorld, seatbelt_profile};
use crate::error::Result;
use crate::runtime::{RuntimeFactory, RuntimeRegistry, SkillRuntime};

/// The built-in runtimes, one line each. A failing line is a defect that the first test meets.
#[must_use]
pub fn builtin_registry() -> RuntimeRegistry {
    let registry = RuntimeRegistry::new();
    #[cfg(all(feature = "local", target_os = "linux"))]
    let registry = with(registry, "local", || Arc::new(local::LocalRuntime));
    #[cfg(feature = "wasm")]
    let registry = with(registry, "wasm", || Arc::new(wasm::WasmRuntime));
    #[cfg(all(feature = "bubblewrap", target_os = "linux"))]
    let registry = with(registry, "bubblewrap", || Arc::new(bubblewrap::BubblewrapRuntime));
    #[cfg(all(feature = "firejail", target_os = "linux"))]
    let registry = with(registry, "firejail", || Arc::new(firejail::FirejailRuntime));
    #[cfg(all(feature = "docker", target_os = "linux"))]
    let registry = with(registry, "docker", || Arc::new(docker::DockerRuntime));
    registry
}

/// Adds one built-in runtime. Names in this file are right by construction, so the error can't be; a test looks.
#[cfg(any(
    all(feature = "local", target_os = "linux"),
    all(feature = "docker", target_os = "linux"),
    feature = "wasm"
))]
fn with(
    mut registry: RuntimeRegistry,
    name: &str,
    make: impl Fn() -> Arc<dyn SkillRuntime> + Send + Sync + 'static,
) -> RuntimeRegistry {
    let _ = registry.register(name, Arc::new(make));
    registry
}

/// The process-wide registry that CARL's three functions act on. It begins with the built-in runtimes.
fn process_registry() -> &'static Mutex<RuntimeRegistry> {
    static REGISTRY: OnceLock<Mutex<RuntimeRegistry>> = OnceLock::new();
    REGISTRY.get_or_init(|| Mutex::new(builtin_registry()))
}

/// Registers a runtime for the whole process; a name that is taken is replaced (CARL's function).
///
/// # Errors
/// [`InvalidConfig`](crate::ErrorKind::InvalidConfig) for a bad name.
pub fn register_skill_runtime(name: &str, factory: RuntimeFactory) -> Result<()> {
    process_registry().lock().unwrap_or_else(PoisonError::into_inner).register(name, factory)
}

/// The runtime registered under a name (CARL's function).
///
/// # Errors
/// [`UnknownRuntime`](crate::ErrorKind::UnknownRuntime) listing the names there are.
pub fn get_skill_runtime(name: &str) -> Result<Arc<dyn SkillRuntime>> {
    process_registry().lock().unwrap_or_else(PoisonError::into_inner).get(name)
}

/// The registered names, sorted (CARL's function).
#[must_use]
pub fn list_skill_runtimes() -> Vec<String> {
    let registry = process_registry().lock().unwrap_or_else(PoisonError::into_inner);
    registry.names().into_iter().map(str::to_owned).collect()
}
