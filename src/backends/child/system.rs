//! System calls that the processes of a run share. Everything here may be called between `fork` and `exec`: nothing
//! allocates, locks or panics.
#![expect(unsafe_code, reason = "system calls; each block has its argument")]

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::RawFd;

use libc::{c_int, c_void, pid_t};

use super::record::{FAILED, RECORD_BYTES, Record, Stage};

/// Descriptors closed one by one where the kernel has no `close_range` (before 5.9).
const CLOSE_FALLBACK: RawFd = 4_096;
/// Signal numbers of Linux.
const LAST_SIGNAL: c_int = 64;
/// The last capability that can be; higher ones than the kernel knows give an error that ends the loop.
const LAST_CAPABILITY: c_int = 63;

/// Whether descriptors are closed now or at `exec`.
#[derive(Clone, Copy)]
pub(super) enum OnExec {
    Yes,
    No,
}

/// Closes, or marks for closing, every descriptor from `first` up.
pub(super) unsafe fn close_from(first: RawFd, when: OnExec) {
    // SAFETY: no descriptor at or above `first` is used by this process afterwards.
    unsafe { close_between(first, RawFd::MAX, when) }
}

/// Closes every descriptor but these.
pub(super) unsafe fn close_all_but<const N: usize>(mut kept: [RawFd; N]) {
    // Sorting a few numbers in place allocates nothing.
    kept.sort_unstable();
    let mut first = 0;
    for keep in kept {
        // SAFETY: what lies between the kept ones is not used by this process afterwards.
        unsafe { close_between(first, keep - 1, OnExec::No) };
        first = keep + 1;
    }
    // SAFETY: as above.
    unsafe { close_between(first, RawFd::MAX, OnExec::No) };
}

pub(super) unsafe fn close_between(first: RawFd, last: RawFd, when: OnExec) {
    if first > last {
        return;
    }
    let flags: libc::c_uint = match when {
        OnExec::Yes => libc::CLOSE_RANGE_CLOEXEC,
        OnExec::No => 0,
    };
    // SAFETY: the caller no longer needs these descriptors; unknown ones give EBADF, which is fine.
    unsafe {
        if libc::syscall(libc::SYS_close_range, first as libc::c_uint, last as libc::c_uint, flags) == 0 {
            return;
        }
        for descriptor in first..=last.min(CLOSE_FALLBACK) {
            match when {
                OnExec::Yes => libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC),
                OnExec::No => libc::close(descriptor),
            };
        }
    }
}

/// Sets one limit, never above the hard limit that the host itself has.
pub(super) unsafe fn set_limit(resource: u32, soft: u64, hard: u64) -> io::Result<()> {
    // SAFETY: the structure lives through both calls.
    unsafe {
        let mut now = MaybeUninit::<libc::rlimit>::zeroed();
        check(libc::getrlimit(resource as _, now.as_mut_ptr()))?;
        let most = now.assume_init().rlim_max;
        let hard = (hard as libc::rlim_t).min(most);
        let wanted = libc::rlimit { rlim_cur: (soft as libc::rlim_t).min(hard), rlim_max: hard };
        check(libc::setrlimit(resource as _, &raw const wanted))
    }
}

pub(super) unsafe fn drain(signals: RawFd) {
    let mut buffer = MaybeUninit::<[libc::signalfd_siginfo; 4]>::uninit();
    // SAFETY: the descriptor doesn't block and the buffer's length is given.
    while unsafe { libc::read(signals, buffer.as_mut_ptr().cast::<c_void>(), size_of::<[libc::signalfd_siginfo; 4]>()) }
        > 0
    {}
}

pub(super) unsafe fn write_record(status: RawFd, record: &Record) {
    // SAFETY: a record is plain data without padding (4 × 4 + 2 × 8 bytes). SIGPIPE is blocked: a host that is gone is
    // no reason to stop.
    unsafe { libc::write(status, std::ptr::from_ref(record).cast::<c_void>(), RECORD_BYTES) };
}

pub(super) unsafe fn now_milliseconds() -> i64 {
    let mut time = MaybeUninit::<libc::timespec>::zeroed();
    // SAFETY: the structure lives through the call, which can't fail for this clock.
    let time = unsafe {
        libc::clock_gettime(libc::CLOCK_MONOTONIC, time.as_mut_ptr());
        time.assume_init()
    };
    (time.tv_sec as i64).wrapping_mul(1_000).wrapping_add(time.tv_nsec as i64 / 1_000_000)
}

pub(super) fn check(result: c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Blocks SIGPIPE in the calling thread, so that a write to a guest that stopped reading is an error and not the end
/// of the host: only programs that Rust starts ignore the signal from birth, and an embedder may be in another language.
pub(super) fn block_broken_pipe_signal() {
    // SAFETY: the set is initialised by `sigemptyset` before it is read, and lives through the call.
    unsafe {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGPIPE);
        libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
    }
}

/// Writes the stage that failed, and hands the error on.
pub(super) fn failed_at(status: RawFd, stage: Stage, error: io::Error) -> io::Error {
    let record = Record {
        kind: FAILED,
        guest: stage as i32,
        status: error.raw_os_error().unwrap_or(0),
        left: 0,
        cpu_microseconds: 0,
        peak_memory: 0,
    };
    // SAFETY: the descriptor is the status pipe of this run.
    unsafe { write_record(status, &record) };
    error
}

/// Makes a child process, as `fork` does. The bare call, not libc's: that would run the host's `pthread_atfork`
/// handlers a second time, in a process whose other threads are gone.
///
/// The caller must keep to async-signal-safe calls in the child until `exec`.
pub(super) unsafe fn fork_with(flags: c_int) -> io::Result<pid_t> {
    // SAFETY: no stack is given, so the child goes on with a copy of this one.
    match unsafe { libc::syscall(libc::SYS_clone, (libc::SIGCHLD | flags) as libc::c_ulong, 0, 0, 0, 0) } {
        -1 => Err(io::Error::last_os_error()),
        id => Ok(id as pid_t),
    }
}

/// Blocks every signal: the host's handlers are still installed, and none may run in a process of a run. Called before a
/// process of a run has children.
pub(super) unsafe fn block_signals() {
    // SAFETY: the set is initialised before it is read.
    unsafe {
        // An ignored or `SA_NOCLDWAIT` SIGCHLD of the host would let children vanish unseen. Set while there are none:
        // setting it throws away one that is pending, and the end of a quick guest would never be heard of.
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        let mut all = MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigfillset(all.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, all.as_ptr(), std::ptr::null_mut());
    }
}

/// Gives a guest the signals of a fresh process: nothing ignored, nothing blocked.
pub(super) unsafe fn reset_signals() {
    // SAFETY: default dispositions need no handler; SIGKILL and SIGSTOP refuse, which is fine.
    unsafe {
        for signal in 1..=LAST_SIGNAL {
            libc::signal(signal, libc::SIG_DFL);
        }
        let mut none = MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigemptyset(none.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut());
    }
}

/// A descriptor that becomes readable when a child ends; negative on error.
pub(super) unsafe fn child_signals() -> RawFd {
    // SAFETY: the set is initialised before it is read.
    unsafe {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGCHLD);
        libc::signalfd(-1, set.as_ptr(), libc::SFD_NONBLOCK | libc::SFD_CLOEXEC)
    }
}

/// Processor time (microseconds) and largest resident set (bytes) of all children that were reaped.
pub(super) unsafe fn usage_of_children() -> (u64, u64) {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: zeroed is a valid value, so it may be read even if the call fails.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr());
        usage.assume_init()
    };
    let microseconds =
        |time: libc::timeval| (time.tv_sec as u64).wrapping_mul(1_000_000).wrapping_add(time.tv_usec as u64);
    let cpu = microseconds(usage.ru_utime).wrapping_add(microseconds(usage.ru_stime));
    (cpu, (usage.ru_maxrss as u64).wrapping_mul(1024))
}

/// Takes on another user and group for good, without supplementary groups.
pub(super) unsafe fn become_user(user: u32, group: u32) -> io::Result<()> {
    // SAFETY: plain system calls. The bare ones, as libc's would signal threads that aren't there.
    unsafe {
        check(libc::syscall(libc::SYS_setresgid, group, group, group) as c_int)?;
        check(libc::syscall(libc::SYS_setresuid, user, user, user) as c_int)
    }
}

/// Gives up every capability, also those that a program could bring back.
pub(super) unsafe fn drop_capabilities() -> io::Result<()> {
    #[repr(C)]
    struct Header {
        version: u32,
        pid: c_int,
    }
    const VERSION_3: u32 = 0x2008_0522;
    // SAFETY: the structures have the kernel's layout and live through the call.
    unsafe {
        for capability in 0..=LAST_CAPABILITY {
            if libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) != 0 {
                break;
            }
        }
        libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
        let header = Header { version: VERSION_3, pid: 0 };
        let none = [0u32; 6];
        check(libc::syscall(libc::SYS_capset, &raw const header, none.as_ptr()) as c_int)
    }
}

/// Whether no capability is in effect or could be brought into effect.
pub(super) unsafe fn has_no_capabilities() -> bool {
    let header: [u32; 2] = [0x2008_0522, 0];
    let mut sets = [u32::MAX; 6];
    // SAFETY: the arrays have the kernel's layout and live through the call.
    let result = unsafe { libc::syscall(libc::SYS_capget, header.as_ptr(), sets.as_mut_ptr()) };
    result == 0 && sets == [0; 6]
}

/// The Landlock interface of this kernel; 0 without one.
#[cfg(feature = "bubblewrap")]
pub(in crate::backends) fn landlock_abi() -> i32 {
    const VERSION: libc::c_uint = 1;
    // SAFETY: with this flag the call takes no structure and makes nothing.
    let abi = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<c_void>(), 0, VERSION) };
    i32::try_from(abi).unwrap_or(0).max(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A guest may have ended before its supervisor listens; setting a disposition in between would lose that.
    #[test]
    fn a_child_that_ended_before_anybody_listened_is_heard_of() {
        // SAFETY: the forked process makes async-signal-safe calls only, and ends by `_exit`.
        unsafe {
            let supervisor = fork_with(0).unwrap();
            if supervisor == 0 {
                block_signals();
                let Ok(guest) = fork_with(0) else { libc::_exit(2) };
                if guest == 0 {
                    libc::_exit(0);
                }
                let mut ended = MaybeUninit::<libc::siginfo_t>::zeroed();
                libc::waitid(libc::P_PID, guest.cast_unsigned(), ended.as_mut_ptr(), libc::WEXITED | libc::WNOWAIT);
                let mut polled = libc::pollfd { fd: child_signals(), events: libc::POLLIN, revents: 0 };
                libc::_exit(i32::from(libc::poll(&raw mut polled, 1, 0) != 1));
            }
            let mut status = 0;
            assert_eq!(libc::waitpid(supervisor, &raw mut status, 0), supervisor);
            assert_eq!(status, 0);
        }
    }
}
