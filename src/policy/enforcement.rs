//! What a runtime can enforce, and what it really does about a policy.
//!
//! A runtime declares [`RuntimeCapabilities`] once. [`assess_runtime_enforcement`] is the only place that turns
//! them and a policy into an [`EnforcementReport`]; the gate, the result, the handle's `network_enforced` and the
//! table in the README all read that report. The conformance suite proves the declarations.

use std::collections::BTreeMap;
use std::fmt;

use super::{MountMode, NetworkPolicy, SandboxPolicy};
use crate::error::{ErrorKind, Result, SkillRuntimeError};

/// How a runtime is separated from the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Isolation {
    /// An ordinary process of the same user.
    None,
    /// A process confined by the operating system.
    Process,
    /// A container.
    Container,
    /// A WebAssembly instance inside the host's process.
    Wasm,
    /// A virtual machine.
    Microvm,
    /// Not declared.
    Unknown,
}

/// What a runtime says about one control.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Support {
    /// It holds against a hostile guest.
    Enforced,
    /// It is applied, but a hostile guest can get round it.
    Advisory,
    /// Nothing is done.
    Unsupported,
}

/// One thing a sandbox may confine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Dimension {
    /// Which files exist for the guest, and which it may change.
    Files,
    /// Where it may connect to.
    Network,
    /// Wall-clock time.
    WallTime,
    /// Processor time, or fuel.
    Cpu,
    /// Memory.
    Memory,
    /// Processes and threads: how many, and that none outlives the run.
    Processes,
    /// Bytes on stdout and stderr.
    Output,
    /// Bytes and files left in the workspace.
    Disk,
    /// What the guest may do in mounted host folders.
    Mounts,
}

impl Dimension {
    /// All of them, in the order tables show them.
    pub const ALL: [Self; 9] = [
        Self::Files,
        Self::Network,
        Self::WallTime,
        Self::Cpu,
        Self::Memory,
        Self::Processes,
        Self::Output,
        Self::Disk,
        Self::Mounts,
    ];

    /// The name in JSON, tables and messages.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Files => "files",
            Self::Network => "network",
            Self::WallTime => "wall_time",
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Processes => "processes",
            Self::Output => "output",
            Self::Disk => "disk",
            Self::Mounts => "mounts",
        }
    }
}

impl fmt::Display for Dimension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a runtime does about one dimension of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Enforcement {
    /// It holds.
    Enforced,
    /// It is applied, but a hostile guest can get round it.
    Advisory,
    /// It was asked for and nothing is done.
    Unsupported,
    /// The policy doesn't ask for it.
    NotRequested,
}

impl Enforcement {
    /// The word in JSON and tables.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Enforced => "enforced",
            Self::Advisory => "advisory",
            Self::Unsupported => "unsupported",
            Self::NotRequested => "not_requested",
        }
    }
}

impl fmt::Display for Enforcement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl From<Support> for Enforcement {
    fn from(support: Support) -> Self {
        match support {
            Support::Enforced => Self::Enforced,
            Support::Advisory => Self::Advisory,
            Support::Unsupported => Self::Unsupported,
        }
    }
}

/// Whether a gap between policy and enforcement refuses the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EnforcementMode {
    /// Every requested control must be enforced; otherwise nothing starts.
    #[default]
    Strict,
    /// The run starts; what isn't enforced is in the result and the audit trail.
    BestEffort,
}

/// What a runtime can do, declared once by its author and proved by the conformance suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RuntimeCapabilities {
    /// What separates it from the host.
    pub isolation: Isolation,
    /// The guest sees the workspace only; read-only parts are read-only.
    pub files: Support,
    /// Policy `none` is kept.
    pub network_none: Support,
    /// Policy `allowlist` is kept.
    pub network_allowlist: Support,
    /// The wall clock ends a run and everything it started.
    pub wall_time: Support,
    /// Processor time is limited.
    pub cpu_time: Support,
    /// Fuel is counted.
    pub fuel: Support,
    /// Memory is limited.
    pub memory: Support,
    /// The number of processes is limited and none outlives the run.
    pub processes: Support,
    /// Output is bounded.
    pub output: Support,
    /// What the guest leaves in the workspace is bounded while it runs.
    pub disk: Support,
    /// What it can do with host folders.
    pub mounts: MountCapabilities,
}

/// What a runtime can do with extra host folders, mode by mode. Copy-on-write needs what read-write needs: the guest
/// writes to a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct MountCapabilities {
    /// Shown, and nothing in it can be changed.
    pub read_only: Support,
    /// Shown, and changes reach the folder.
    pub read_write: Support,
    /// As above, and nothing that is there can be removed, renamed away or replaced.
    pub without_delete: Support,
}

impl MountCapabilities {
    /// None at all.
    pub const NONE: Self = Self {
        read_only: Support::Unsupported,
        read_write: Support::Unsupported,
        without_delete: Support::Unsupported,
    };

    /// What is done about one mode.
    #[must_use]
    pub fn of(&self, mode: MountMode) -> Support {
        match mode {
            MountMode::ReadOnly => self.read_only,
            MountMode::ReadWrite | MountMode::CopyOnWrite => self.read_write,
            MountMode::ReadWriteWithoutDelete => self.without_delete,
        }
    }
}

impl RuntimeCapabilities {
    /// Nothing at all: the starting point for a declaration, so that a new field is unsupported until proved.
    #[must_use]
    pub const fn none(isolation: Isolation) -> Self {
        Self {
            isolation,
            files: Support::Unsupported,
            network_none: Support::Unsupported,
            network_allowlist: Support::Unsupported,
            wall_time: Support::Unsupported,
            cpu_time: Support::Unsupported,
            fuel: Support::Unsupported,
            memory: Support::Unsupported,
            processes: Support::Unsupported,
            output: Support::Unsupported,
            disk: Support::Unsupported,
            mounts: MountCapabilities::NONE,
        }
    }
}

/// What one runtime does about one policy, dimension by dimension.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct EnforcementReport {
    /// The runtime's registered name.
    pub runtime: String,
    /// What separates it from the host.
    pub isolation: Isolation,
    /// How the caller wants gaps treated.
    pub mode: EnforcementMode,
    /// Every dimension with what is done about it.
    pub controls: BTreeMap<Dimension, Enforcement>,
}

impl EnforcementReport {
    /// What is done about one dimension.
    #[must_use]
    pub fn control(&self, dimension: Dimension) -> Enforcement {
        self.controls.get(&dimension).copied().unwrap_or(Enforcement::Unsupported)
    }

    /// The requested controls that aren't enforced.
    #[must_use]
    pub fn gaps(&self) -> Vec<Dimension> {
        self.controls
            .iter()
            .filter(|(_, status)| matches!(status, Enforcement::Advisory | Enforcement::Unsupported))
            .map(|(dimension, _)| *dimension)
            .collect()
    }

    /// No gaps.
    #[must_use]
    pub fn fully_enforced(&self) -> bool {
        self.gaps().is_empty()
    }

    /// CARL's flag: whether the network policy is really kept. `host` asks for nothing, so it is never "enforced".
    #[must_use]
    pub fn network_enforced(&self) -> bool {
        self.control(Dimension::Network) == Enforcement::Enforced
    }

    /// Refuses in strict mode when there are gaps.
    ///
    /// # Errors
    /// [`PolicyUnenforceable`](ErrorKind::PolicyUnenforceable) naming the runtime, the gaps and the ways on.
    pub fn gate(&self) -> Result<()> {
        let mut gaps = self.gaps();
        if self.mode == EnforcementMode::BestEffort {
            // A folder that isn't there is no weaker sandbox but another run: nobody can accept that gap.
            gaps.retain(|gap| *gap == Dimension::Mounts && self.control(*gap) == Enforcement::Unsupported);
        }
        if gaps.is_empty() {
            return Ok(());
        }
        let named: Vec<String> =
            gaps.iter().map(|dimension| format!("{dimension} ({})", self.control(*dimension))).collect();
        Err(SkillRuntimeError::new(
            ErrorKind::PolicyUnenforceable,
            format!(
                "runtime '{}' can't enforce what was asked: {}; choose a runtime that does (see `skillcell runtimes`), \
                 or accept the gap with --allow-advisory (enforcement = \"best_effort\")",
                self.runtime,
                named.join(", ")
            ),
        )
        .operation("gate"))
    }
}

/// Derives what a runtime with these capabilities does about a policy. Pure; called before anything exists.
///
/// Files, wall time, processes and output are always asked for: they are what a sandbox is. The network is asked
/// for unless the policy is `host`; cpu, memory and disk when the caller set the limit. A control that nobody asked
/// for but that is applied anyway is reported as enforced, never as a gap.
#[must_use]
pub fn assess_runtime_enforcement(
    runtime: &str,
    capabilities: &RuntimeCapabilities,
    policy: &SandboxPolicy,
) -> EnforcementReport {
    let requested = policy.limits.requested;
    let if_asked = |asked: bool, support: Support| match (asked, support) {
        (true, support) => support.into(),
        (false, Support::Enforced) => Enforcement::Enforced,
        (false, Support::Advisory | Support::Unsupported) => Enforcement::NotRequested,
    };
    let weaker = |a: Support, b: Support| match (a, b) {
        (Support::Unsupported, _) | (_, Support::Unsupported) => Support::Unsupported,
        (Support::Advisory, _) | (_, Support::Advisory) => Support::Advisory,
        (Support::Enforced, Support::Enforced) => Support::Enforced,
    };
    let cpu = match (policy.limits.fuel, policy.limits.cpu_time) {
        (Some(_), Some(_)) => weaker(capabilities.fuel, capabilities.cpu_time),
        (Some(_), None) => capabilities.fuel,
        (None, Some(_)) => capabilities.cpu_time,
        (None, None) => Support::Unsupported,
    };
    let network = match policy.network.policy {
        NetworkPolicy::None => capabilities.network_none.into(),
        NetworkPolicy::Allowlist => capabilities.network_allowlist.into(),
        NetworkPolicy::Host => Enforcement::NotRequested,
    };
    let mounts = policy.mounts.iter().map(|mount| capabilities.mounts.of(mount.mode)).reduce(weaker);
    let controls = BTreeMap::from([
        (Dimension::Files, capabilities.files.into()),
        (Dimension::Network, network),
        (Dimension::WallTime, capabilities.wall_time.into()),
        (Dimension::Cpu, if_asked(requested.cpu, cpu)),
        (Dimension::Memory, if_asked(requested.memory, capabilities.memory)),
        (Dimension::Processes, capabilities.processes.into()),
        (Dimension::Output, capabilities.output.into()),
        (Dimension::Disk, if_asked(requested.disk, capabilities.disk)),
        (Dimension::Mounts, mounts.map_or(Enforcement::NotRequested, Enforcement::from)),
    ]);
    EnforcementReport { runtime: runtime.to_owned(), isolation: capabilities.isolation, mode: policy.mode, controls }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Limits, MountGrant, ResolvedNetwork};

    const STRONG: RuntimeCapabilities = RuntimeCapabilities {
        files: Support::Enforced,
        network_none: Support::Enforced,
        wall_time: Support::Enforced,
        fuel: Support::Enforced,
        processes: Support::Enforced,
        output: Support::Enforced,
        memory: Support::Advisory,
        ..RuntimeCapabilities::none(Isolation::Wasm)
    };

    fn policy(network: NetworkPolicy) -> SandboxPolicy {
        SandboxPolicy { network: ResolvedNetwork { policy: network, allowlist: vec![] }, ..SandboxPolicy::default() }
    }

    #[test]
    fn an_unasked_limit_is_no_gap_and_an_asked_one_is() {
        let mut policy = policy(NetworkPolicy::None);
        let report = assess_runtime_enforcement("x", &STRONG, &policy);
        assert_eq!(report.gaps(), []);
        assert_eq!(report.control(Dimension::Memory), Enforcement::NotRequested);
        report.gate().unwrap();
        policy.limits.requested.memory = true;
        policy.limits = Limits { fuel: Some(1), ..policy.limits };
        policy.limits.requested.cpu = true;
        let report = assess_runtime_enforcement("x", &STRONG, &policy);
        assert_eq!(report.gaps(), [Dimension::Memory]);
        assert_eq!(report.control(Dimension::Cpu), Enforcement::Enforced);
        // The same with a processor time, which this runtime doesn't know: the weaker of the two counts.
        policy.limits.cpu_time = Some(std::time::Duration::from_secs(1));
        assert_eq!(assess_runtime_enforcement("x", &STRONG, &policy).gaps(), [Dimension::Cpu, Dimension::Memory]);
    }

    #[test]
    fn the_gate_refuses_in_strict_mode_and_names_the_gap() {
        let mut policy = policy(NetworkPolicy::Allowlist);
        let report = assess_runtime_enforcement("wasm", &STRONG, &policy);
        assert!(!report.network_enforced());
        let error = report.gate().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PolicyUnenforceable);
        assert!(
            error.to_string().starts_with("runtime 'wasm' can't enforce what was asked: network (unsupported);"),
            "{error}"
        );
        policy.mode = EnforcementMode::BestEffort;
        assess_runtime_enforcement("wasm", &STRONG, &policy).gate().unwrap();
    }

    #[test]
    fn the_weakest_mount_counts_and_a_missing_folder_is_never_accepted() {
        let mounts = MountCapabilities {
            read_only: Support::Enforced,
            without_delete: Support::Advisory,
            ..MountCapabilities::NONE
        };
        let runtime = RuntimeCapabilities { mounts, ..STRONG };
        let with = |modes: &[MountMode], mode| {
            let grant =
                |(n, mode): (usize, &MountMode)| MountGrant { guest: format!("/m{n}").parse().unwrap(), mode: *mode };
            let mounts = modes.iter().enumerate().map(grant).collect();
            let policy = SandboxPolicy { mounts, mode, ..policy(NetworkPolicy::None) };
            let report = assess_runtime_enforcement("x", &runtime, &policy);
            (report.control(Dimension::Mounts), report.gate().is_ok())
        };
        use EnforcementMode::{BestEffort, Strict};
        use MountMode::{CopyOnWrite, ReadOnly, ReadWriteWithoutDelete};
        assert_eq!(with(&[], Strict), (Enforcement::NotRequested, true));
        assert_eq!(with(&[ReadOnly], Strict), (Enforcement::Enforced, true));
        assert_eq!(with(&[ReadOnly, ReadWriteWithoutDelete], Strict), (Enforcement::Advisory, false));
        assert_eq!(with(&[ReadOnly, ReadWriteWithoutDelete], BestEffort), (Enforcement::Advisory, true));
        assert_eq!(with(&[ReadOnly, CopyOnWrite], BestEffort), (Enforcement::Unsupported, false));
    }

    #[test]
    fn network_enforced_follows_the_report() {
        for (network, expected) in
            [(NetworkPolicy::None, true), (NetworkPolicy::Allowlist, false), (NetworkPolicy::Host, false)]
        {
            assert_eq!(
                assess_runtime_enforcement("x", &STRONG, &policy(network)).network_enforced(),
                expected,
                "{network}"
            );
        }
    }
}
