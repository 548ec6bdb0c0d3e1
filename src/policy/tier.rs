//! Isolation matched to the blast radius: from what a run may touch to the least isolation it should have.
//!
//! A table, not a model: a reader can check it. It never widens anything; a caller who wants less than it says must
//! override it by name, and the override is recorded.

use std::fmt;
use std::str::FromStr;

use super::enforcement::Isolation;
use super::network::NetworkPolicy;
use crate::error::{ErrorKind, Result, SkillRuntimeError};

/// How strongly a run is separated from the host, weakest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// An ordinary process.
    None,
    /// A WebAssembly instance: no system calls, only the host's own functions; a fault of the engine is a fault of the
    /// wall.
    Wasm,
    /// Namespaces, Landlock, seccomp around a process tree.
    Process,
    /// A hardened container.
    Container,
    /// A virtual machine.
    Microvm,
}

impl Tier {
    /// All, weakest first.
    pub const ALL: [Self; 5] = [Self::None, Self::Wasm, Self::Process, Self::Container, Self::Microvm];

    /// The word in configurations and messages.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Wasm => "wasm",
            Self::Process => "process",
            Self::Container => "container",
            Self::Microvm => "microvm",
        }
    }

    /// The tier of a runtime by what separates it from the host. What isn't declared counts as nothing.
    #[must_use]
    pub fn of(isolation: Isolation) -> Self {
        match isolation {
            Isolation::None | Isolation::Unknown => Self::None,
            Isolation::Wasm => Self::Wasm,
            Isolation::Process => Self::Process,
            Isolation::Container => Self::Container,
            Isolation::Microvm => Self::Microvm,
        }
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a caller demands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RequiredTier {
    /// Nothing: the caller chose the runtime and that is enough.
    #[default]
    Unset,
    /// At least this.
    AtLeast(Tier),
    /// At least what [`least_tier`] says of the run.
    Auto,
}

impl FromStr for RequiredTier {
    type Err = SkillRuntimeError;

    /// Parses `auto` or a tier's word.
    fn from_str(text: &str) -> Result<Self> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        Tier::ALL.into_iter().find(|tier| tier.as_str() == text).map(Self::AtLeast).ok_or_else(|| {
            SkillRuntimeError::invalid(format!(
                "unknown isolation '{}'; use auto, none, wasm, process, container or microvm",
                text.escape_debug()
            ))
        })
    }
}

/// Who looks after the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Operator {
    /// Somebody who reads the code and the output.
    Developer,
    /// Somebody who can't judge either.
    NonExpert,
    /// Nobody: CI, a server, an agent.
    #[default]
    Unattended,
}

impl FromStr for Operator {
    type Err = SkillRuntimeError;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "developer" => Ok(Self::Developer),
            "non-expert" => Ok(Self::NonExpert),
            "unattended" => Ok(Self::Unattended),
            other => Err(SkillRuntimeError::invalid(format!(
                "unknown operator '{}'; use developer, non-expert or unattended",
                other.escape_debug()
            ))),
        }
    }
}

/// What a run may touch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlastRadius {
    /// Where it may connect to.
    pub network: NetworkPolicy,
    /// Whether it is given variables of the caller's, any of which may be a secret.
    pub credentials: Credentials,
    /// Whether its code is pinned by digest.
    pub code: CodeTrust,
    /// Who looks after it.
    pub operator: Operator,
    /// What of the host it may change.
    pub writes: WriteScope,
}

/// What a run may change on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WriteScope {
    /// Nothing but its own workspace, which is collected afterwards.
    Workspace,
    /// Folders of the host.
    HostFolders,
}

/// Whether a run holds something worth stealing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Credentials {
    /// Nothing.
    Withheld,
    /// Something.
    Given,
}

/// Whether the code is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CodeTrust {
    /// Pinned by digest: somebody looked at these bytes.
    Pinned,
    /// Whatever is there.
    Any,
}

/// The least isolation for a run, and why.
///
/// The rule, in words: a developer may run pinned code that holds nothing and reaches nothing as an ordinary process.
/// Anything else is at least `wasm`. What can reach the network can also attack or leak, so it is at least `process`;
/// with something to leak, or with nobody looking, at least `container`; code nobody looked at, with something to leak,
/// the whole network, and nobody looking, is for a virtual machine. Code nobody looked at that changes folders of the host
/// while nobody looks is at least `process`, so that two walls stand before them.
#[must_use]
pub fn least_tier(radius: BlastRadius) -> (Tier, &'static str) {
    let BlastRadius { network, credentials, code, operator, writes } = radius;
    match (network, credentials, code, operator) {
        (NetworkPolicy::None, Credentials::Withheld, CodeTrust::Pinned, Operator::Developer)
            if writes == WriteScope::Workspace =>
        {
            (Tier::None, "pinned code that holds nothing and reaches nothing, run by a developer")
        }
        (NetworkPolicy::None, _, CodeTrust::Any, Operator::NonExpert | Operator::Unattended)
            if writes == WriteScope::HostFolders =>
        {
            (Tier::Process, "unknown code that changes folders of the host, and nobody who can judge it")
        }
        (NetworkPolicy::None, _, _, _) => (Tier::Wasm, "code that reaches no network"),
        (NetworkPolicy::Host, Credentials::Given, CodeTrust::Any, Operator::NonExpert | Operator::Unattended) => (
            Tier::Microvm,
            "unknown code with the caller's variables and the whole network, and nobody who can judge it",
        ),
        (_, Credentials::Given, _, _) => {
            (Tier::Container, "code that holds the caller's variables and reaches a network")
        }
        (NetworkPolicy::Host, Credentials::Withheld, _, Operator::NonExpert | Operator::Unattended) => {
            (Tier::Container, "code that reaches the whole network, and nobody who can judge it")
        }
        (NetworkPolicy::Host | NetworkPolicy::Allowlist, Credentials::Withheld, _, _) => {
            (Tier::Process, "code that reaches a network")
        }
    }
}

/// Checks a runtime's isolation against what is required.
///
/// # Errors
/// [`PolicyUnenforceable`](ErrorKind::PolicyUnenforceable) with the reason and the next step.
pub fn check_tier(runtime: &str, isolation: Isolation, required: RequiredTier, radius: BlastRadius) -> Result<()> {
    let (least, why) = match required {
        RequiredTier::Unset => return Ok(()),
        RequiredTier::AtLeast(tier) => (tier, "the caller requires it"),
        RequiredTier::Auto => least_tier(radius),
    };
    let found = Tier::of(isolation);
    if found >= least {
        return Ok(());
    }
    Err(SkillRuntimeError::new(
        ErrorKind::PolicyUnenforceable,
        format!(
            "runtime '{runtime}' isolates by '{found}', but this run needs at least '{least}' ({why}); choose a stronger \
             runtime, give the run less, or override with --require {found}"
        ),
    )
    .operation("gate"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NETWORKS: [NetworkPolicy; 3] = [NetworkPolicy::None, NetworkPolicy::Allowlist, NetworkPolicy::Host];
    const CREDENTIALS: [Credentials; 2] = [Credentials::Withheld, Credentials::Given];
    const CODE: [CodeTrust; 2] = [CodeTrust::Pinned, CodeTrust::Any];
    const OPERATORS: [Operator; 3] = [Operator::Developer, Operator::NonExpert, Operator::Unattended];

    fn radius(network: usize, credentials: usize, code: usize, operator: usize) -> BlastRadius {
        BlastRadius {
            network: NETWORKS[network],
            credentials: CREDENTIALS[credentials],
            code: CODE[code],
            operator: OPERATORS[operator],
            writes: WriteScope::Workspace,
        }
    }

    #[test]
    fn more_to_lose_never_means_less_isolation() {
        let tier = |n, c, t, o| least_tier(radius(n, c, t, o)).0;
        for (n, c, t, o) in
            (0..3).flat_map(|n| (0..2).flat_map(move |c| (0..2).flat_map(move |t| (0..3).map(move |o| (n, c, t, o)))))
        {
            let here = tier(n, c, t, o);
            assert!(n == 2 || tier(n + 1, c, t, o) >= here, "{:?}", radius(n, c, t, o));
            assert!(c == 1 || tier(n, c + 1, t, o) >= here, "{:?}", radius(n, c, t, o));
            assert!(t == 1 || tier(n, c, t + 1, o) >= here, "{:?}", radius(n, c, t, o));
            assert!(o == 2 || tier(n, c, t, o + 1) >= here, "{:?}", radius(n, c, t, o));
            let writing = BlastRadius { writes: WriteScope::HostFolders, ..radius(n, c, t, o) };
            assert!(least_tier(writing).0 >= here, "{writing:?}");
        }
    }

    #[test]
    fn the_corners() {
        assert_eq!(least_tier(radius(0, 0, 0, 0)).0, Tier::None);
        assert_eq!(least_tier(radius(0, 0, 1, 0)).0, Tier::Wasm);
        assert_eq!(least_tier(radius(0, 1, 1, 2)).0, Tier::Wasm);
        assert_eq!(least_tier(radius(1, 0, 1, 2)).0, Tier::Process);
        assert_eq!(least_tier(radius(2, 0, 0, 2)).0, Tier::Container);
        assert_eq!(least_tier(radius(2, 1, 1, 2)).0, Tier::Microvm);
        let writing = |radius| least_tier(BlastRadius { writes: WriteScope::HostFolders, ..radius }).0;
        assert_eq!(writing(radius(0, 0, 0, 0)), Tier::Wasm);
        assert_eq!(writing(radius(0, 0, 1, 2)), Tier::Process);
    }

    #[test]
    fn refusal_names_the_reason_and_the_override() {
        let error = check_tier("local", Isolation::None, RequiredTier::Auto, radius(0, 0, 1, 2)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PolicyUnenforceable);
        assert_eq!(
            error.to_string(),
            "runtime 'local' isolates by 'none', but this run needs at least 'wasm' (code that reaches no network); choose a \
             stronger runtime, give the run less, or override with --require none"
        );
        check_tier("wasm", Isolation::Wasm, RequiredTier::Auto, radius(0, 0, 1, 2)).unwrap();
        check_tier("local", Isolation::None, RequiredTier::Unset, radius(2, 1, 1, 2)).unwrap();
        check_tier("x", Isolation::Unknown, "wasm".parse().unwrap(), radius(0, 0, 0, 0)).unwrap_err();
        assert!("strong".parse::<RequiredTier>().is_err());
    }
}
