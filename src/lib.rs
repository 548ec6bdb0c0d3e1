//! skillcell: the runtime that agent skills run in.
//!
//! A script that somebody else, or a model, wrote runs in a sandbox that the caller chooses by name, behind one
//! contract: the same workspace, policy, result and audit trail everywhere.

pub mod agent;
pub mod audit;
mod backends;
#[cfg(feature = "conformance")]
pub mod conformance;
mod digest;
mod error;
#[cfg(any(feature = "fetch", feature = "llm"))]
mod http;
pub mod packages;
pub mod policy;
pub mod runtime;
pub mod skill;
pub mod step;
pub mod workspace;

pub use backends::{
    SeatbeltWorld, builtin_registry, get_skill_runtime, list_skill_runtimes, register_skill_runtime, seatbelt_profile,
};
pub use error::{ErrorKind, Result, SkillRuntimeError};
pub use policy::{
    EnforcementReport, NetworkPolicy, RuntimeCapabilities, SandboxPolicy, assess_runtime_enforcement,
    parse_network_allowlist_from_allowed_tools, resolve_network_policy,
};
pub use runtime::{RuntimeRegistry, RuntimeRunResult, SkillRuntime, SkillRuntimeHandle, enforcement_table};
