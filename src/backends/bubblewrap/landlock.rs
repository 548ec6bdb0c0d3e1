//! Landlock: rights that mounts can't express (writing without removing), and a second line behind the mounts.
//!
//! How strictly it is asked for is a stated choice, [`Strictness`]; a kernel that offers less is never passed over in
//! silence.

use std::ffi::CString;
use std::os::fd::OwnedFd;

use landlock::{ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, Ruleset, RulesetAttr, Scope};

use crate::backends::child;
use crate::error::{ErrorKind, Result, SkillRuntimeError};
use crate::policy::{MountMode, OutMode, SandboxPolicy};

/// What the rules need at least: `REFER`, without which renaming between folders can't be told from writing (Linux 5.19).
const NEEDED: ABI = ABI::V2;
/// The newest interface whose rights are used. Newer ones add nothing that the other layers leave open.
const NEWEST: ABI = ABI::V6;

/// How strictly Landlock is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Strictness {
    /// A kernel without what the rules need is refused.
    #[default]
    Strict,
    /// What the kernel has is used, and the handle says what that is.
    Degraded,
    /// It isn't used.
    Off,
}

impl Strictness {
    /// Parses the option `landlock` of `runtime_config`.
    pub(super) fn parse(text: &str) -> Result<Self> {
        match text {
            "strict" => Ok(Self::Strict),
            "degraded" => Ok(Self::Degraded),
            "off" => Ok(Self::Off),
            other => Err(SkillRuntimeError::invalid(format!(
                "runtime_config['landlock'] must be strict, degraded or off, got '{}'",
                other.escape_debug()
            ))),
        }
    }
}

/// Whether some folder is to be writable without anything in it being removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keeps {
    Nothing,
    WhatIsThere,
}

impl Keeps {
    /// What a policy asks for.
    pub(super) fn of(policy: &SandboxPolicy) -> Self {
        let mounts = policy.mounts.iter().any(|mount| mount.mode == MountMode::ReadWriteWithoutDelete);
        if mounts || policy.out == OutMode::ReadWriteWithoutDelete { Self::WhatIsThere } else { Self::Nothing }
    }
}

/// What is used on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Use {
    abi: ABI,
}

impl Use {
    /// Decides what is used.
    ///
    /// # Errors
    /// [`Unavailable`](ErrorKind::Unavailable) when strictness asks for more than the kernel has;
    /// [`PolicyUnenforceable`](ErrorKind::PolicyUnenforceable) when a mode of `/workspace/out` needs what isn't used.
    pub(super) fn decide(strictness: Strictness, kernel: i32, keeps: Keeps) -> Result<Self> {
        let offered = ABI::from(kernel.clamp(0, NEWEST as i32));
        let abi = match strictness {
            Strictness::Off => ABI::Unsupported,
            Strictness::Degraded => offered,
            Strictness::Strict if offered >= NEEDED => offered,
            Strictness::Strict => {
                return Err(SkillRuntimeError::new(
                    ErrorKind::Unavailable,
                    format!(
                        "this kernel offers Landlock ABI {kernel} and ABI {} is needed (Linux 5.19 with lsm=landlock); \
                         boot such a kernel, or set runtime_config['landlock'] = 'degraded' to go without",
                        NEEDED as i32
                    ),
                ));
            }
        };
        if keeps == Keeps::WhatIsThere && abi < NEEDED {
            return Err(SkillRuntimeError::new(
                ErrorKind::PolicyUnenforceable,
                "read-write-without-delete needs Landlock, which is off or missing here; set \
                 runtime_config['landlock'] = 'strict' on Linux 5.19 or later, or let the guest remove files",
            ));
        }
        Ok(Self { abi })
    }

    /// For the handle: `off`, or the ABI.
    pub(super) fn describe(self) -> String {
        if self.abi == ABI::Unsupported { "off".into() } else { format!("abi {}", self.abi as i32) }
    }

    /// The rules: a path inside and the rights beneath it. Empty when Landlock is off.
    pub(super) fn rules(self, policy: &SandboxPolicy) -> Vec<(CString, u64)> {
        if self.abi == ABI::Unsupported {
            return Vec::new();
        }
        let all = AccessFs::from_all(self.abi);
        let read: BitFlags<AccessFs> = AccessFs::from_read(self.abi);
        // Devices and sockets aren't made in a workspace.
        let write = all & !(AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::MakeSock);
        let remove: BitFlags<AccessFs> = AccessFs::RemoveFile | AccessFs::RemoveDir | AccessFs::Refer;
        let out_rights = match policy.out {
            OutMode::ReadWrite => write,
            OutMode::ReadWriteWithoutDelete => write & !remove,
        };
        let mounts = policy.mounts.iter().filter_map(|mount| {
            let rights = match mount.mode {
                MountMode::ReadOnly => return None,
                MountMode::ReadWrite | MountMode::CopyOnWrite => write,
                // Both kinds of removing, or neither: with one of them a folder could be moved aside and replaced.
                MountMode::ReadWriteWithoutDelete => write & !remove,
            };
            // A mount point holds no NUL.
            Some((CString::new(mount.guest.as_str()).ok()?, rights.bits()))
        });
        let existing = read | (all & (AccessFs::WriteFile | AccessFs::Truncate | AccessFs::IoctlDev));
        [
            (c"/", read),
            (c"/workspace/out", out_rights),
            (c"/workspace/tmp", write),
            (c"/tmp", write),
            (c"/dev/shm", write),
            (c"/dev", existing),
            (c"/proc", existing),
        ]
        .into_iter()
        .map(|(path, rights)| (path.to_owned(), rights.bits()))
        .chain(mounts)
        .collect()
    }

    /// A fresh ruleset without rules; none when Landlock is off. One is made for each run, since rules about a run's own
    /// mounts are added to it.
    ///
    /// # Errors
    /// [`Backend`](ErrorKind::Backend) when the kernel refuses what it said it has.
    pub(super) fn ruleset(self) -> Result<Option<OwnedFd>> {
        if self.abi == ABI::Unsupported {
            return Ok(None);
        }
        let refused = |error: landlock::RulesetError| SkillRuntimeError::backend("Landlock made no ruleset", error);
        let mut ruleset = Ruleset::default()
            .set_compatibility(CompatLevel::HardRequirement)
            .handle_access(AccessFs::from_all(self.abi))
            .map_err(refused)?;
        if self.abi >= ABI::V6 {
            // Signals and abstract sockets of processes outside: the namespaces hide them, this refuses them.
            ruleset = ruleset.scope(Scope::Signal | Scope::AbstractUnixSocket).map_err(refused)?;
        }
        Ok(ruleset.create().map_err(refused)?.into())
    }
}

/// The ABI of this kernel; 0 without Landlock.
pub(super) fn kernel_abi() -> i32 {
    child::landlock_abi()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::MountGrant;

    #[test]
    fn less_than_asked_is_never_passed_over() {
        let decide = |strictness, kernel, keeps| {
            Use::decide(strictness, kernel, keeps).map(Use::describe).map_err(|error| error.kind())
        };
        use Keeps::{Nothing, WhatIsThere};
        for (strictness, kernel, keeps, expected) in [
            (Strictness::Strict, 7, Nothing, Ok("abi 6".to_owned())),
            (Strictness::Strict, 2, WhatIsThere, Ok("abi 2".to_owned())),
            (Strictness::Strict, 1, Nothing, Err(ErrorKind::Unavailable)),
            (Strictness::Strict, 0, Nothing, Err(ErrorKind::Unavailable)),
            (Strictness::Degraded, 1, Nothing, Ok("abi 1".to_owned())),
            (Strictness::Degraded, 0, Nothing, Ok("off".to_owned())),
            (Strictness::Degraded, 1, WhatIsThere, Err(ErrorKind::PolicyUnenforceable)),
            (Strictness::Off, 7, Nothing, Ok("off".to_owned())),
            (Strictness::Off, 7, WhatIsThere, Err(ErrorKind::PolicyUnenforceable)),
        ] {
            assert_eq!(decide(strictness, kernel, keeps), expected, "{strictness:?} {kernel}");
        }
    }

    #[test]
    fn rules_ask_only_for_rights_that_are_handled() {
        for kernel in 1..=7 {
            let used = Use::decide(Strictness::Degraded, kernel, Keeps::Nothing).unwrap();
            let handled = AccessFs::from_all(used.abi).bits();
            let mounts = MountMode::ALL.map(|mode| MountGrant { guest: format!("/{mode}").parse().unwrap(), mode });
            let policy = SandboxPolicy { mounts: mounts.to_vec(), ..SandboxPolicy::default() };
            for (path, rights) in used.rules(&policy) {
                assert_eq!(rights & !handled, 0, "{path:?} with ABI {kernel}");
                assert_ne!(rights, 0, "{path:?}");
            }
        }
    }
}
