//! The system-call filter: what a script never needs and escapes are made of.
//!
//! A deny list on top of the namespaces, Landlock and dropped capabilities, not a wall of its own. What is refused gives
//! `EPERM`; `clone3` and `io_uring` give `ENOSYS`, at which programs fall back to calls that can be looked at: the flags
//! of `clone3` lie behind a pointer, and `io_uring` opens sockets and files without any system call.
//!
//! Invariant: a call made through another architecture's table is refused, so numbers mean what they say.

use std::collections::BTreeMap;

use libc::c_long;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen::Dword, SeccompCmpArgLen::Qword, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch,
};

use crate::error::{ErrorKind, Result, SkillRuntimeError};

/// Calls that are refused whatever their arguments.
const DENIED: &[c_long] = &[
    // Other processes' memory and descriptors.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    // Kernel interfaces with a history of faults, and none of a script's business.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_fanotify_init,
    libc::SYS_lookup_dcookie,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_acct,
    libc::SYS_syslog,
    libc::SYS_vhangup,
    // The machine itself.
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_reboot,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    // Mounts and namespaces.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_setns,
    libc::SYS_unshare,
    // Files without names: they would be run although no rule about paths allows them.
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    libc::SYS_memfd_create,
    libc::SYS_memfd_secret,
];

/// Calls that seem not to exist.
const ABSENT: &[c_long] = &[
    libc::SYS_clone3,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_openat2,
];

/// Flags of `clone` that make a namespace.
const NAMESPACE_FLAGS: [libc::c_int; 7] = [
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWCGROUP,
];

/// Bits of a mode by which a file runs as its owner or group.
const SET_ID: [u64; 2] = [0o4000, 0o2000];
/// Flags with which `open` looks at the mode: `O_CREAT`, and what `O_TMPFILE` adds to `O_DIRECTORY`.
const CREATING: [u64; 2] = [libc::O_CREAT as u64, (libc::O_TMPFILE & !libc::O_DIRECTORY) as u64];
/// The same number on every architecture; libc doesn't have it everywhere.
const SYS_FCHMODAT2: c_long = 452;

/// `socket`: the bits of the type that aren't flags.
const SOCKET_TYPE: u64 = 0xf;
/// Requests of `ioctl`; written out, as their type in libc differs from target to target.
const TIOCSTI: u64 = 0x5412;
const TIOCLINUX: u64 = 0x541c;
/// `personality`: asks without changing anything.
const PERSONALITY_QUERY: u64 = 0xffff_ffff;

/// The filters, in the order in which they are installed. All of them are asked at every call; the strictest answer
/// counts.
pub(super) fn filters() -> Result<Vec<Vec<libc::sock_filter>>> {
    let compiled = || -> std::result::Result<Vec<BpfProgram>, seccompiler::BackendError> {
        let denied = filter(denied_rules()?, SeccompAction::Errno(libc::EPERM as u32))?;
        let absent = filter(ABSENT.iter().map(|call| (*call, vec![])), SeccompAction::Errno(libc::ENOSYS as u32))?;
        Ok(vec![denied, absent])
    };
    let compiled = compiled().map_err(|error| {
        SkillRuntimeError::new(ErrorKind::Unavailable, "no system-call filter can be made for this machine's processor")
            .caused_by(error)
    })?;
    let convert = |program: BpfProgram| {
        program
            .into_iter()
            .map(|step| libc::sock_filter { code: step.code, jt: step.jt, jf: step.jf, k: step.k })
            .collect()
    };
    let mut all: Vec<Vec<libc::sock_filter>> = compiled.into_iter().map(convert).collect();
    if cfg!(target_arch = "x86_64") {
        all.push(without_x32());
    }
    Ok(all)
}

fn filter(
    rules: impl IntoIterator<Item = (c_long, Vec<SeccompRule>)>,
    action: SeccompAction,
) -> std::result::Result<BpfProgram, seccompiler::BackendError> {
    let rules: BTreeMap<i64, Vec<SeccompRule>> = rules.into_iter().collect();
    let arch: TargetArch = std::env::consts::ARCH.try_into()?;
    SeccompFilter::new(rules, SeccompAction::Allow, action, arch)?.try_into()
}

/// The x32 calls of x86-64 carry the same architecture word and a bit in the number, so they would match no rule.
fn without_x32() -> Vec<libc::sock_filter> {
    const X32_BIT: u32 = 0x4000_0000;
    let step = |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter { code: code as u16, jt, jf, k };
    vec![
        // The number of the call is the first word of what a filter sees.
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 0, 1, X32_BIT),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ]
}

/// Rules of one call; it is refused when all conditions of any rule hold.
type Rules = std::result::Result<Vec<SeccompRule>, seccompiler::BackendError>;

fn denied_rules() -> std::result::Result<Vec<(c_long, Vec<SeccompRule>)>, seccompiler::BackendError> {
    let mut rules: Vec<(c_long, Vec<SeccompRule>)> = DENIED.iter().map(|call| (*call, vec![])).collect();
    rules.extend(set_id_rules()?);
    rules.push((libc::SYS_clone, clone_rules()?));
    rules.push((libc::SYS_socket, socket_rules()?));
    rules.push((libc::SYS_ioctl, ioctl_rules()?));
    let differs = |value| SeccompCondition::new(0, Dword, SeccompCmpOp::Ne, value);
    rules.push((libc::SYS_personality, vec![SeccompRule::new(vec![differs(0)?, differs(PERSONALITY_QUERY)?])?]));
    let empty_path = libc::AT_EMPTY_PATH as u64;
    let by_descriptor = SeccompCondition::new(4, Dword, SeccompCmpOp::MaskedEq(empty_path), empty_path)?;
    rules.push((libc::SYS_execveat, vec![SeccompRule::new(vec![by_descriptor])?]));
    #[cfg(target_arch = "x86_64")]
    rules.extend([(libc::SYS_iopl, vec![]), (libc::SYS_ioperm, vec![]), (libc::SYS_modify_ldt, vec![])]);
    Ok(rules)
}

/// No file that runs as its owner: in a folder of the host it would be there for everybody. `openat2`, whose mode lies
/// behind a pointer, seems not to exist.
fn set_id_rules() -> std::result::Result<Vec<(c_long, Vec<SeccompRule>)>, seccompiler::BackendError> {
    let has = |argument: u8, bits: u64| SeccompCondition::new(argument, Dword, SeccompCmpOp::MaskedEq(bits), bits);
    let with_mode =
        |mode: u8| -> Rules { SET_ID.into_iter().map(|bit| SeccompRule::new(vec![has(mode, bit)?])).collect() };
    let creating = |flags: u8, mode: u8| -> Rules {
        let pairs = SET_ID.into_iter().flat_map(|bit| CREATING.map(|flag| (bit, flag)));
        pairs.map(|(bit, flag)| SeccompRule::new(vec![has(flags, flag)?, has(mode, bit)?])).collect()
    };
    let mut rules = vec![
        (libc::SYS_fchmod, with_mode(1)?),
        (libc::SYS_fchmodat, with_mode(2)?),
        (SYS_FCHMODAT2, with_mode(2)?),
        (libc::SYS_mknodat, with_mode(2)?),
        (libc::SYS_openat, creating(2, 3)?),
    ];
    #[cfg(target_arch = "x86_64")]
    rules.extend([
        (libc::SYS_chmod, with_mode(1)?),
        (libc::SYS_creat, with_mode(1)?),
        (libc::SYS_mknod, with_mode(1)?),
        (libc::SYS_open, creating(1, 2)?),
    ]);
    Ok(rules)
}

/// Threads and processes, but no namespaces.
fn clone_rules() -> Rules {
    let rule = |flag: libc::c_int| {
        let flag = flag as u64;
        SeccompRule::new(vec![SeccompCondition::new(0, Qword, SeccompCmpOp::MaskedEq(flag), flag)?])
    };
    NAMESPACE_FLAGS.into_iter().map(rule).collect()
}

/// Internet sockets without raw access, and the part of netlink that lists interfaces. No unix sockets: a path visible
/// through a read-only mount could lead to a daemon of the host. `socketpair` stays, it connects to nobody.
fn socket_rules() -> Rules {
    let family = |operator, value: libc::c_int| SeccompCondition::new(0, Dword, operator, value as u64);
    let other_family = vec![
        family(SeccompCmpOp::Ne, libc::AF_INET)?,
        family(SeccompCmpOp::Ne, libc::AF_INET6)?,
        family(SeccompCmpOp::Ne, libc::AF_NETLINK)?,
    ];
    let raw = vec![
        family(SeccompCmpOp::Ne, libc::AF_NETLINK)?,
        SeccompCondition::new(1, Dword, SeccompCmpOp::MaskedEq(SOCKET_TYPE), libc::SOCK_RAW as u64)?,
    ];
    let other_netlink = vec![
        family(SeccompCmpOp::Eq, libc::AF_NETLINK)?,
        SeccompCondition::new(2, Dword, SeccompCmpOp::Ne, libc::NETLINK_ROUTE as u64)?,
    ];
    [other_family, raw, other_netlink].into_iter().map(SeccompRule::new).collect()
}

/// Pushing characters into a terminal, as if somebody had typed them.
fn ioctl_rules() -> Rules {
    let rule = |request: u64| SeccompRule::new(vec![SeccompCondition::new(1, Dword, SeccompCmpOp::Eq, request)?]);
    [TIOCSTI, TIOCLINUX].into_iter().map(rule).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filters_compile_and_fit() {
        let filters = filters().unwrap();
        assert!(filters.len() >= 2);
        for filter in filters {
            // BPF_MAXINSNS of the kernel.
            assert!((4..4096).contains(&filter.len()), "{}", filter.len());
        }
    }
}
