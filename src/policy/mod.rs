//! What a run may do, as values. Pure: no IO, no async, no clock, no environment (a tidy test checks it).
//!
//! *Policy* is what was asked for; *enforcement* is what a runtime really does about it. The one function that
//! derives the second from the first and from a runtime's declared capabilities is
//! [`assess_runtime_enforcement`], so that a flag and a fact can't differ.

mod allowed_tools;
mod enforcement;
mod env;
mod host;
mod limits;
mod mount;
mod network;
mod protected;
mod tier;

pub use allowed_tools::{AllowedTools, ToolEntry, parse_network_allowlist_from_allowed_tools};
pub use enforcement::{
    Dimension, Enforcement, EnforcementMode, EnforcementReport, Isolation, MountCapabilities, RuntimeCapabilities,
    Support, assess_runtime_enforcement,
};
pub use env::EnvVars;
pub use host::{normalize_network_allowlist_hosts, normalize_network_host};
pub use limits::{Limits, MAX_WALL_TIME, RequestedLimits, parse_duration, parse_size};
pub use mount::{MAX_MOUNTS, MountGrant, MountMode, MountPoint, MountRequest, grants_of};
pub use network::{NetworkPolicy, ResolvedNetwork, resolve_network_policy};
pub(crate) use protected::protected_patterns;
pub use protected::{Protection, protection};
pub use tier::{BlastRadius, CodeTrust, Credentials, Operator, RequiredTier, Tier, WriteScope, check_tier, least_tier};

/// Everything a run is allowed, parsed and complete: the value that runtimes act on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SandboxPolicy {
    /// Where the guest may connect to.
    pub network: ResolvedNetwork,
    /// How much of everything it may use.
    pub limits: Limits,
    /// What the guest may do in `/workspace/out`.
    pub out: OutMode,
    /// Host folders the guest sees beside its workspace.
    pub mounts: Vec<MountGrant>,
    /// Strict refuses a run whose requested controls aren't all enforced; best effort runs and reports.
    pub mode: EnforcementMode,
}

/// How `/workspace/out` is given to the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OutMode {
    /// Create, change and remove.
    #[default]
    ReadWrite,
    /// Create and append; nothing that is there can be removed or renamed.
    ReadWriteWithoutDelete,
}
