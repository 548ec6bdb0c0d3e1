//! What happens between `fork` and `exec`: the two processes of a run, the supervisor and the guest.
//!
//! The host forks once; that child becomes the *supervisor* and forks the *guest*. The supervisor is a subreaper, so
//! whatever the guest starts, by double fork, `setsid` or `nohup`, becomes the supervisor's child when its own parent
//! ends, and can be found, killed and reaped there. So the host itself never becomes a subreaper and never reaps a
//! process it didn't start.
//!
//! The supervisor ends everything when the guest ends, or when the control pipe closes. The pipe, not
//! `PR_SET_PDEATHSIG`, ties the tree to the host: that signal comes when the *thread* that forked ends, which in an
//! async program is a worker that may end at any time.
//!
//! This module must not allocate, lock or panic: after `fork` in a program with threads, only async-signal-safe calls
//! are allowed until `exec`. Everything it needs is prepared in [`Plan`] beforehand.
#![expect(unsafe_code, reason = "fork, exec and what lies between have no safe interface; each block has its argument")]

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use libc::{c_int, c_void, pid_t};

/// How long the supervisor tries to kill what is left. A fork bomb in one process group dies at the first signal;
/// only one that changes its session at every fork lasts, and it must not hold the run for ever.
const SWEEP_MILLISECONDS: i64 = 3_000;
/// Children looked at in one pass: as many ids as the buffer holds. The next pass takes the rest.
const CHILDREN_BUFFER: usize = 16 * 1024;
/// Descriptors closed one by one where the kernel has no `close_range` (before 5.9).
const CLOSE_FALLBACK: RawFd = 4_096;
/// Signal numbers of Linux.
const LAST_SIGNAL: c_int = 64;

/// What the supervisor tells the host, as it lies in the status pipe. Smaller than `PIPE_BUF`, so written whole.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// [`STARTED`] or [`ENDED`].
    pub(super) kind: u32,
    /// The guest's process id, which is also its session and process group.
    pub(super) guest: i32,
    /// The guest's wait status; valid in an [`ENDED`] record.
    pub(super) status: i32,
    /// Processes that were still there when the sweep gave up: 0 or 1.
    pub(super) left: u32,
    /// Processor time of everything that was reaped, microseconds.
    pub(super) cpu_microseconds: u64,
    /// The largest resident set of one process, bytes.
    pub(super) peak_memory: u64,
}

/// The first record.
pub(super) const STARTED: u32 = 1;
/// The last record: nothing of the run is left, unless `left` says so.
pub(super) const ENDED: u32 = 2;
/// Bytes of a record.
pub(super) const RECORD_BYTES: usize = size_of::<Record>();

impl Record {
    /// Reads a record from its bytes.
    pub(super) fn from_bytes(bytes: &[u8; RECORD_BYTES]) -> Self {
        let word = |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        let long = |at: usize| if cfg!(target_endian = "little") { long(at) } else { long(at).rotate_left(32) };
        Self {
            kind: word(0),
            guest: word(4).cast_signed(),
            status: word(8).cast_signed(),
            left: word(12),
            cpu_microseconds: long(16),
            peak_memory: long(24),
        }
    }
}

/// Everything the two processes need, prepared by the host.
pub(super) struct Plan {
    /// Read end: closes when the host is done with the run, or dead.
    pub(super) control: OwnedFd,
    /// Write end, for records.
    pub(super) status: OwnedFd,
    /// The guest's current folder.
    pub(super) folder: OwnedFd,
    /// Resource limits of the guest: resource, soft, hard.
    pub(super) limits: Vec<(u32, u64, u64)>,
}

impl Plan {
    /// Called in the host's forked child. Returns in the guest's process only, which then execs; the supervisor never
    /// returns.
    pub(super) fn enter(&self) -> io::Result<()> {
        // SAFETY: the calls are async-signal-safe, the pointers are to live locals, and nothing is allocated.
        unsafe {
            let mut all = MaybeUninit::<libc::sigset_t>::uninit();
            libc::sigfillset(all.as_mut_ptr());
            // The host's handlers are still installed; none may run in either process.
            libc::sigprocmask(libc::SIG_SETMASK, all.as_ptr(), std::ptr::null_mut());
            // Its own session: neither the terminal's signals nor the guest's `kill 0` reach the supervisor.
            libc::setsid();
            if libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0 {
                return Err(io::Error::last_os_error());
            }
            let supervisor = libc::getpid();
            // The bare call, not libc's `fork`: that would run the host's `pthread_atfork` handlers a second time, in a
            // process whose other threads are gone.
            let guest = libc::syscall(libc::SYS_clone, libc::SIGCHLD as libc::c_ulong, 0, 0, 0, 0);
            match guest {
                -1 => Err(io::Error::last_os_error()),
                0 => self.become_guest(supervisor),
                pid => self.supervise(pid as pid_t),
            }
        }
    }

    /// Confines this process as far as an ordinary process can be; `exec` follows.
    unsafe fn become_guest(&self, supervisor: pid_t) -> io::Result<()> {
        // SAFETY: as in `enter`.
        unsafe {
            libc::setsid();
            // The supervisor has one thread, so here the signal does mean that the process ended.
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
            if libc::getppid() != supervisor {
                libc::_exit(1);
            }
            // A program that gains rights (sudo, ping) could not be killed at the end.
            check(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))?;
            check(libc::fchdir(self.folder.as_raw_fd()))?;
            for &(resource, soft, hard) in &self.limits {
                set_limit(resource, soft, hard)?;
            }
            // Marked, not closed: the standard library still needs its own pipe to report a failed `exec`.
            close_from(3, OnExec::Yes);
            for signal in 1..=LAST_SIGNAL {
                // A signal that the host ignores would stay ignored. SIGKILL and SIGSTOP refuse, which is fine.
                libc::signal(signal, libc::SIG_DFL);
            }
            let mut none = MaybeUninit::<libc::sigset_t>::uninit();
            libc::sigemptyset(none.as_mut_ptr());
            libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut());
            Ok(())
        }
    }

    /// The supervisor's life.
    unsafe fn supervise(&self, guest: pid_t) -> ! {
        // SAFETY: as in `enter`; every buffer is on this stack.
        unsafe {
            // The supervisor's memory is a copy of the host's, with its environment and secrets: no process of the same
            // user may read it through /proc or ptrace.
            libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
            libc::prctl(libc::PR_SET_NAME, c"skillcell-sup".as_ptr(), 0, 0, 0);
            let (control, status) = (self.control.as_raw_fd(), self.status.as_raw_fd());
            // Holding the guest's stdout would keep the host waiting; holding another run's control pipe would keep
            // that run alive; the standard library waits for its own pipe.
            close_all_but(control, status);
            let mut child_signal = MaybeUninit::<libc::sigset_t>::uninit();
            libc::sigemptyset(child_signal.as_mut_ptr());
            libc::sigaddset(child_signal.as_mut_ptr(), libc::SIGCHLD);
            // An ignored or `SA_NOCLDWAIT` SIGCHLD of the host would let children vanish unseen.
            libc::signal(libc::SIGCHLD, libc::SIG_DFL);
            let signals = libc::signalfd(-1, child_signal.as_ptr(), libc::SFD_NONBLOCK | libc::SFD_CLOEXEC);
            let mut record = Record { kind: STARTED, guest, status: 0, left: 0, cpu_microseconds: 0, peak_memory: 0 };
            write_record(status, &record);

            let mut ended = signals < 0;
            while !ended {
                let mut polled = [
                    libc::pollfd { fd: control, events: libc::POLLIN, revents: 0 },
                    libc::pollfd { fd: signals, events: libc::POLLIN, revents: 0 },
                ];
                libc::poll(polled.as_mut_ptr(), 2, -1);
                ended = polled[0].revents != 0;
                if polled[1].revents != 0 {
                    drain(signals);
                    ended |= reap(guest, &mut record.status) != Reaped::GuestStillThere;
                }
            }
            record.left = u32::from(!sweep(guest, signals, &mut record.status));
            let mut usage = MaybeUninit::<libc::rusage>::zeroed();
            if libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr()) == 0 {
                let usage = usage.assume_init();
                let microseconds = |time: libc::timeval| {
                    (time.tv_sec as u64).wrapping_mul(1_000_000).wrapping_add(time.tv_usec as u64)
                };
                record.cpu_microseconds = microseconds(usage.ru_utime).wrapping_add(microseconds(usage.ru_stime));
                record.peak_memory = (usage.ru_maxrss as u64).wrapping_mul(1024);
            }
            record.kind = ENDED;
            write_record(status, &record);
            libc::_exit(0)
        }
    }
}

/// What a round of reaping found.
#[derive(PartialEq, Eq)]
enum Reaped {
    /// The guest hasn't ended yet, as far as this round saw.
    GuestStillThere,
    /// The guest itself ended in this round.
    GuestEnded,
    /// There are no children at all.
    NoneLeft,
}

/// Reaps every child that has ended; keeps the guest's wait status.
unsafe fn reap(guest: pid_t, status: &mut i32) -> Reaped {
    let mut found = Reaped::GuestStillThere;
    loop {
        let mut word: c_int = 0;
        // SAFETY: `word` lives through the call.
        match unsafe { libc::waitpid(-1, &raw mut word, libc::WNOHANG) } {
            0 => return found,
            pid if pid == guest => {
                *status = word;
                found = Reaped::GuestEnded;
            }
            pid if pid > 0 => {}
            // ECHILD; EINTR can't be, as all signals are blocked.
            _ => return Reaped::NoneLeft,
        }
    }
}

/// Kills every descendant. True when none is left.
unsafe fn sweep(guest: pid_t, signals: RawFd, status: &mut i32) -> bool {
    // SAFETY: plain system calls; the buffer is on this stack.
    unsafe {
        let own_group = libc::getpgrp();
        let deadline = now_milliseconds().wrapping_add(SWEEP_MILLISECONDS);
        loop {
            // The whole group in one call: a fork in progress in it can't slip through.
            libc::kill(-guest, libc::SIGKILL);
            for_each_child(&mut |child| {
                let group = libc::getpgid(child);
                if group > 1 && group != own_group {
                    libc::kill(-group, libc::SIGKILL);
                }
                libc::kill(child, libc::SIGKILL);
            });
            if reap(guest, status) == Reaped::NoneLeft {
                return true;
            }
            if now_milliseconds() > deadline {
                return false;
            }
            // Ends as soon as another child has died, whose own children are ours now.
            let mut polled = libc::pollfd { fd: signals, events: libc::POLLIN, revents: 0 };
            libc::poll(&raw mut polled, 1, 5);
            drain(signals);
        }
    }
}

/// Calls `act` for each child of this process, from the kernel's own list.
unsafe fn for_each_child(act: &mut dyn FnMut(pid_t)) {
    // SAFETY: the path is a C string, the buffer is on this stack and its length is given.
    unsafe {
        let file = libc::open(c"/proc/thread-self/children".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        if file < 0 {
            return;
        }
        let mut buffer = [0u8; CHILDREN_BUFFER];
        let length = libc::read(file, buffer.as_mut_ptr().cast::<c_void>(), CHILDREN_BUFFER);
        libc::close(file);
        let mut id: pid_t = 0;
        for byte in buffer.iter().take(usize::try_from(length).unwrap_or(0)) {
            if byte.is_ascii_digit() {
                id = id.wrapping_mul(10).wrapping_add(pid_t::from(*byte - b'0'));
            } else {
                // An id cut off by the end of the buffer has no blank after it and is left for the next pass.
                if id > 1 {
                    act(id);
                }
                id = 0;
            }
        }
    }
}

/// Whether descriptors are closed now or at `exec`.
#[derive(Clone, Copy)]
enum OnExec {
    Yes,
    No,
}

/// Closes, or marks for closing, every descriptor from `first` up.
unsafe fn close_from(first: RawFd, when: OnExec) {
    // SAFETY: no descriptor at or above `first` is used by this process afterwards.
    unsafe { close_between(first, RawFd::MAX, when) }
}

unsafe fn close_all_but(one: RawFd, other: RawFd) {
    let (low, high) = if one < other { (one, other) } else { (other, one) };
    // SAFETY: the two are kept; nothing else is used by the supervisor.
    unsafe {
        close_between(0, low - 1, OnExec::No);
        close_between(low + 1, high - 1, OnExec::No);
        close_between(high + 1, RawFd::MAX, OnExec::No);
    }
}

unsafe fn close_between(first: RawFd, last: RawFd, when: OnExec) {
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
unsafe fn set_limit(resource: u32, soft: u64, hard: u64) -> io::Result<()> {
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

unsafe fn drain(signals: RawFd) {
    let mut buffer = MaybeUninit::<[libc::signalfd_siginfo; 4]>::uninit();
    // SAFETY: the descriptor doesn't block and the buffer's length is given.
    while unsafe { libc::read(signals, buffer.as_mut_ptr().cast::<c_void>(), size_of::<[libc::signalfd_siginfo; 4]>()) }
        > 0
    {}
}

unsafe fn write_record(status: RawFd, record: &Record) {
    // SAFETY: a record is plain data without padding (4 × 4 + 2 × 8 bytes). SIGPIPE is blocked: a host that is gone is
    // no reason to stop.
    unsafe { libc::write(status, std::ptr::from_ref(record).cast::<c_void>(), RECORD_BYTES) };
}

unsafe fn now_milliseconds() -> i64 {
    let mut time = MaybeUninit::<libc::timespec>::zeroed();
    // SAFETY: the structure lives through the call, which can't fail for this clock.
    let time = unsafe {
        libc::clock_gettime(libc::CLOCK_MONOTONIC, time.as_mut_ptr());
        time.assume_init()
    };
    (time.tv_sec as i64).wrapping_mul(1_000).wrapping_add(time.tv_nsec as i64 / 1_000_000)
}

fn check(result: c_int) -> io::Result<()> {
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

/// Attaches a plan to a command that is about to be spawned.
pub(super) fn attach(command: &mut tokio::process::Command, plan: Plan) {
    // SAFETY: `enter` keeps to async-signal-safe calls, as its module says.
    unsafe {
        command.pre_exec(move || plan.enter());
    }
}
