//! A case: its name, the claim it tests, the world it needs, and what is tried.

use futures_util::future::BoxFuture;

use super::world::World;
use crate::policy::Dimension;

/// What a case is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Group {
    /// Which files exist for a guest, and which it may change; the file calls of the handle; collection.
    Files,
    /// Other processes, and system calls that lead out.
    Processes,
    /// Time, memory, output, disk and so on.
    Limits,
    /// What a guest could learn of its host.
    Leaks,
    /// What it writes, and how it ends.
    Output,
    /// What it is given: arguments, variables, stdin, its folder.
    Environment,
    /// Prepare, many runs, cleanup, and the declaration itself.
    Lifecycle,
    /// Where it may connect to.
    Network,
    /// The audit trail.
    Log,
}

impl Group {
    /// All, in the order of the matrix.
    pub const ALL: [Self; 9] = [
        Self::Files,
        Self::Processes,
        Self::Limits,
        Self::Leaks,
        Self::Output,
        Self::Environment,
        Self::Lifecycle,
        Self::Network,
        Self::Log,
    ];

    /// The first part of the names of its cases.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Files => "files",
            Self::Processes => "processes",
            Self::Limits => "limits",
            Self::Leaks => "leaks",
            Self::Output => "output",
            Self::Environment => "environment",
            Self::Lifecycle => "lifecycle",
            Self::Network => "network",
            Self::Log => "log",
        }
    }
}

/// The policy a case needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Setting {
    /// No network, and limits that nothing here meets.
    Roomy,
    /// Small limits of memory, output, disk, files and processes, and time enough.
    Tight,
    /// A wall clock of a second or two.
    Brief,
    /// The same, much longer, for a machine that was too busy to get anywhere in that time. Made only when needed.
    LessBrief,
    /// Little fuel.
    Fuel,
    /// Little processor time.
    Processor,
    /// `/workspace/out` without deleting.
    NoDelete,
    /// Network policy `allowlist`.
    Listed,
    /// Network policy `host`.
    HostNetwork,
}

/// Whether an attempt does no harm where it succeeds, so that it may be made on a runtime that doesn't claim to stop it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Harm {
    /// It only looks.
    None,
    /// It would change something.
    Some,
}

/// When a case is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// Beside cases of other worlds.
    Any,
    /// Alone, after all others: it prepares worlds of its own, or leaves its world changed.
    Last,
}

/// Why a case is not held.
#[derive(Debug)]
pub(super) enum Fault {
    /// A claim isn't kept, or something that is allowed doesn't work.
    Broken(String),
    /// The machine was too slow for the time limit of the setting: nothing can be said. Tried again with more.
    TooSoon,
    /// The runtime says that it doesn't keep this.
    Disclaimed(String),
}

/// What came of a case: a word for the reason, or a fault.
pub(super) type Verdict = Result<String, Fault>;

/// Shorthand for a broken claim.
pub(super) fn broken<T>(why: impl Into<String>) -> Result<T, Fault> {
    Err(Fault::Broken(why.into()))
}

/// Holds, or is broken with a reason that is made only then.
pub(super) fn ensure(holds: bool, why: impl FnOnce() -> String) -> Result<(), Fault> {
    if holds { Ok(()) } else { broken(why()) }
}

/// A case written as a function.
pub(super) type Written = for<'a> fn(&'a World<'a>) -> BoxFuture<'a, Verdict>;

/// What is tried.
#[derive(Clone, Copy)]
pub(super) enum Work {
    /// The last step of `attempt` must not be done, and nothing may come of it; every step of `twin` must be done.
    Denied { attempt: &'static [&'static str], twin: &'static [&'static str] },
    /// Every step must be done; the last one must tell exactly this, if given.
    Works { steps: &'static [&'static str], told: Option<&'static str> },
    /// Anything else.
    Written(Written),
}

/// One case.
#[derive(Clone, Copy)]
pub(super) struct Case {
    pub(super) group: Group,
    pub(super) name: &'static str,
    /// The claim it tests; `None`: what every runtime must keep.
    pub(super) claim: Option<Dimension>,
    pub(super) setting: Setting,
    pub(super) harm: Harm,
    pub(super) order: Order,
    pub(super) work: Work,
}

impl Case {
    /// A case that every runtime must keep, in a roomy world.
    pub(super) const fn new(group: Group, name: &'static str, work: Work) -> Self {
        Self { group, name, claim: None, setting: Setting::Roomy, harm: Harm::Some, order: Order::Any, work }
    }

    pub(super) const fn denied(
        group: Group,
        name: &'static str,
        attempt: &'static [&'static str],
        twin: &'static [&'static str],
    ) -> Self {
        Self::new(group, name, Work::Denied { attempt, twin })
    }

    pub(super) const fn works(
        group: Group,
        name: &'static str,
        steps: &'static [&'static str],
        told: Option<&'static str>,
    ) -> Self {
        Self::new(group, name, Work::Works { steps, told })
    }

    pub(super) const fn written(group: Group, name: &'static str, written: Written) -> Self {
        Self::new(group, name, Work::Written(written))
    }

    /// The claim it tests.
    pub(super) const fn claims(mut self, claim: Dimension) -> Self {
        self.claim = Some(claim);
        self
    }

    pub(super) const fn in_setting(mut self, setting: Setting) -> Self {
        self.setting = setting;
        self
    }

    /// When everything else has ended.
    pub(super) const fn last(mut self) -> Self {
        self.order = Order::Last;
        self
    }

    /// The attempt may be made anywhere.
    pub(super) const fn harmless(mut self) -> Self {
        self.harm = Harm::None;
        self
    }

    /// `group::name`.
    pub(super) fn full_name(&self) -> String {
        format!("{}::{}", self.group.as_str(), self.name)
    }
}

/// Wraps an `async fn(&World) -> Verdict`.
macro_rules! written {
    ($function:path) => {
        |world| Box::pin($function(world))
    };
}
pub(super) use written;
