//! A guest in the namespaces of a prepared sandbox: three processes instead of two.
//!
//! ```text
//! host ── supervisor ──(new pid namespace)── init, pid 1 ── guest, pid 2, which execs
//! ```
//!
//! The supervisor is the host's forked child. It enters the sandbox's user, mount, network, IPC, UTS and cgroup
//! namespaces and makes *init* in a process-id and mount namespace of this run alone. Init gives the run its own `/proc`
//! and `/dev/shm`, makes the guest, reaps orphans, and ends when the guest does, at which the kernel kills everything
//! else in the namespace: no fork, session or signal gets away. To end a run early, the supervisor kills init.
//!
//! So a run costs a few system calls, not the set-up of a sandbox, and nothing of it but files is seen by the next.
//! The guest can't see the supervisor, can't signal init (pid 1 takes no signal from its own namespace), and can read
//! neither's memory, which is a copy of the host's: they are not dumpable.
//!
//! Invariant: what [`Confined::self_test`] tries has failed before a guest's first instruction. As in `supervisor`,
//! nothing here allocates, locks or panics.
#![expect(unsafe_code, reason = "fork, namespaces and exec have no safe interface; each block has its argument")]

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use libc::{c_int, c_void, pid_t};

use super::record::{ENDED, RECORD_BYTES, Record, STARTED, Stage};
use super::supervisor::Plan;
use super::system::{
    OnExec, become_user, block_signals, check, child_signals, close_all_but, close_from, drain, drop_capabilities,
    failed_at, fork_with, has_no_capabilities, reset_signals, set_limit, usage_of_children, write_record,
};

/// Where all runs of one prepared sandbox live. Made by a runtime, used by every run.
pub(in crate::backends) struct Sandbox {
    /// The user namespace, entered first: it gives the rights to enter the others.
    pub(in crate::backends) user_namespace: OwnedFd,
    /// The others, each with its `CLONE_NEW…` flag.
    pub(in crate::backends) namespaces: Vec<(OwnedFd, c_int)>,
    /// User and group inside.
    pub(in crate::backends) identity: (u32, u32),
    /// Options of the `tmpfs` on `/dev/shm`.
    pub(in crate::backends) shared_memory: CString,
    /// System-call filters, installed in this order.
    pub(in crate::backends) filters: Vec<Vec<libc::sock_filter>>,
    /// Landlock rules: a path inside, and the rights beneath it.
    pub(in crate::backends) rules: Vec<(CString, u64)>,
    /// A folder of the host that must not exist inside.
    pub(in crate::backends) canary: CString,
}

/// One guest in a sandbox.
pub(in crate::backends) struct Confined {
    pub(in crate::backends) sandbox: Arc<Sandbox>,
    /// The current folder, as the guest names it. Never a descriptor of the host's: through one, the guest would stand
    /// outside its root.
    pub(in crate::backends) folder: CString,
    /// A fresh Landlock ruleset without rules, or none when Landlock is off.
    pub(in crate::backends) ruleset: Option<OwnedFd>,
}

/// What init tells the supervisor.
#[repr(C)]
struct GuestEnd {
    status: i32,
    known: i32,
}

impl Confined {
    /// The supervisor's part, up to init. See [`Plan::enter`].
    pub(super) unsafe fn enter(&self, plan: &Plan) -> io::Result<()> {
        let status = plan.status.as_raw_fd();
        let failed = |stage| move |error| failed_at(status, stage, error);
        // SAFETY: async-signal-safe calls on live locals.
        unsafe {
            // Only root may, and must: its groups would open files to the guest. Others keep theirs, which a user namespace
            // doesn't let anybody give up.
            let left = check(libc::setgroups(0, std::ptr::null()));
            if libc::geteuid() == 0 {
                left.map_err(failed(Stage::Identity))?;
            }
            let (user, group) = self.sandbox.identity;
            check(libc::setns(self.sandbox.user_namespace.as_raw_fd(), libc::CLONE_NEWUSER))
                .map_err(failed(Stage::Namespaces))?;
            become_user(user, group).map_err(failed(Stage::Identity))?;
            for (namespace, kind) in &self.sandbox.namespaces {
                check(libc::setns(namespace.as_raw_fd(), *kind)).map_err(failed(Stage::Namespaces))?;
            }
            let mut pipe: [RawFd; 2] = [-1; 2];
            check(libc::pipe2(pipe.as_mut_ptr(), libc::O_CLOEXEC)).map_err(failed(Stage::Fork))?;
            let [read, write] = pipe;
            match fork_with(libc::CLONE_NEWPID | libc::CLONE_NEWNS).map_err(failed(Stage::Fork))? {
                0 => self.become_init(plan, read, write),
                init => supervise_init(plan, init, read),
            }
        }
    }

    /// Pid 1 of the run, up to the guest.
    unsafe fn become_init(&self, plan: &Plan, read: RawFd, write: RawFd) -> io::Result<()> {
        let status = plan.status.as_raw_fd();
        let failed = |stage| move |error| failed_at(status, stage, error);
        // SAFETY: async-signal-safe calls on live locals.
        unsafe {
            block_signals();
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
            libc::close(read);
            // A supervisor that ended before the line above holds no reading end any more.
            let mut polled = libc::pollfd { fd: write, events: 0, revents: 0 };
            if libc::poll(&raw mut polled, 1, 0) != 0 {
                libc::_exit(1);
            }
            plan.enter_group().map_err(failed(Stage::Limits))?;
            self.mount().map_err(failed(Stage::Mounts))?;
            match fork_with(0).map_err(failed(Stage::Fork))? {
                0 => self.become_guest(plan),
                guest => init(guest, write),
            }
        }
    }

    /// The mounts that belong to this run alone.
    unsafe fn mount(&self) -> io::Result<()> {
        let hardened = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
        // SAFETY: every string is NUL-terminated and outlives the call.
        unsafe {
            check(libc::mount(
                std::ptr::null(),
                c"/".as_ptr(),
                std::ptr::null(),
                libc::MS_REC | libc::MS_PRIVATE,
                std::ptr::null(),
            ))?;
            // Processes that a guest may not look into don't exist for it: the command line of init is the host's.
            let hidden = c"hidepid=2".as_ptr().cast::<c_void>();
            check(libc::mount(c"proc".as_ptr(), c"/proc".as_ptr(), c"proc".as_ptr(), hardened, hidden))?;
            check(libc::mount(
                c"tmpfs".as_ptr(),
                c"/dev/shm".as_ptr(),
                c"tmpfs".as_ptr(),
                hardened,
                self.sandbox.shared_memory.as_ptr().cast::<c_void>(),
            ))
        }
    }

    /// Confines this process for good; `exec` follows.
    unsafe fn become_guest(&self, plan: &Plan) -> io::Result<()> {
        let status = plan.status.as_raw_fd();
        let failed = |stage| move |error| failed_at(status, stage, error);
        // SAFETY: async-signal-safe calls on live locals.
        unsafe {
            libc::setsid();
            libc::umask(0o022);
            check(libc::chdir(self.folder.as_ptr())).map_err(failed(Stage::Folder))?;
            // This process still has the host's descriptors, so the limit on those waits until it opens nothing more.
            let limits = |open_files: bool| {
                plan.limits.iter().filter(move |limit| (limit.0 == libc::RLIMIT_NOFILE) == open_files)
            };
            for &(resource, soft, hard) in limits(false) {
                set_limit(resource, soft, hard).map_err(failed(Stage::Limits))?;
            }
            check(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)).map_err(failed(Stage::Capabilities))?;
            if let Some(ruleset) = &self.ruleset {
                self.restrict(ruleset.as_raw_fd()).map_err(failed(Stage::Landlock))?;
            }
            drop_capabilities().map_err(failed(Stage::Capabilities))?;
            close_from(3, OnExec::Yes);
            reset_signals();
            for filter in &self.sandbox.filters {
                install_filter(filter).map_err(failed(Stage::Seccomp))?;
            }
            if let Err(number) = self.self_test() {
                return Err(failed_at(status, Stage::SelfTest, io::Error::from_raw_os_error(number)));
            }
            for &(resource, soft, hard) in limits(true) {
                set_limit(resource, soft, hard).map_err(failed(Stage::Limits))?;
            }
            Ok(())
        }
    }

    /// Adds the sandbox's rules to the ruleset and enters it.
    unsafe fn restrict(&self, ruleset: RawFd) -> io::Result<()> {
        /// `struct landlock_path_beneath_attr`, which is packed.
        #[repr(C, packed)]
        struct PathBeneath {
            allowed: u64,
            parent: i32,
        }
        const RULE_PATH_BENEATH: c_int = 1;
        // SAFETY: the structure has the kernel's layout; paths are NUL-terminated.
        unsafe {
            for (path, allowed) in &self.sandbox.rules {
                let parent = libc::open(path.as_ptr(), libc::O_PATH | libc::O_CLOEXEC);
                if parent < 0 {
                    return Err(io::Error::last_os_error());
                }
                let rule = PathBeneath { allowed: *allowed, parent };
                let added = libc::syscall(libc::SYS_landlock_add_rule, ruleset, RULE_PATH_BENEATH, &raw const rule, 0);
                let result = check(added as c_int);
                libc::close(parent);
                result?;
            }
            check(libc::syscall(libc::SYS_landlock_restrict_self, ruleset, 0) as c_int)
        }
    }

    /// Tries what must be impossible; the number of the attempt that succeeded, if one did.
    unsafe fn self_test(&self) -> Result<(), c_int> {
        let write = libc::O_WRONLY | libc::O_CREAT | libc::O_CLOEXEC;
        // SAFETY: every string is NUL-terminated; descriptors that should not exist are closed by `exec`.
        unsafe {
            let opens = |path: *const libc::c_char, flags: c_int| libc::open(path, flags, 0o600) >= 0;
            let attempts = [
                opens(self.sandbox.canary.as_ptr(), libc::O_PATH | libc::O_CLOEXEC),
                opens(c"/workspace/skill/.skillcell-self-test".as_ptr(), write),
                opens(c"/workspace/.skillcell-self-test".as_ptr(), write),
                opens(c"/.skillcell-self-test".as_ptr(), write),
                opens(c"/usr/.skillcell-self-test".as_ptr(), write),
                // The memory and command line of pid 1 are copies of the host's.
                opens(c"/proc/1/environ".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC),
                opens(c"/proc/1/cmdline".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC),
                opens(c"/proc/1/root/".as_ptr(), libc::O_PATH | libc::O_CLOEXEC),
                libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) >= 0,
                libc::unshare(libc::CLONE_NEWUSER) == 0,
                libc::setuid(0) == 0,
                libc::getuid() != self.sandbox.identity.0 || libc::getppid() != 1,
                !has_no_capabilities(),
                libc::prctl(libc::PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1,
                // The twin: what must work does, so the failures above mean something.
                !opens(c"/workspace/out".as_ptr(), libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC),
                !opens(c"/proc/self/status".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC),
            ];
            let mut number = 0;
            for went_wrong in attempts {
                number += 1;
                if went_wrong {
                    return Err(number);
                }
            }
            Ok(())
        }
    }
}

/// Installs one filter for this process.
unsafe fn install_filter(filter: &[libc::sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    // SAFETY: the program and its instructions outlive the call; the kernel copies and checks them.
    let result = unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program) };
    check(result as c_int)
}

/// Init's life: reaps everybody, ends with the guest.
unsafe fn init(guest: pid_t, write: RawFd) -> ! {
    // SAFETY: async-signal-safe calls on live locals.
    unsafe {
        libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
        libc::prctl(libc::PR_SET_NAME, c"skillcell-init".as_ptr(), 0, 0, 0);
        close_all_but([write]);
        // Nothing is left to do that needs rights.
        let _ = drop_capabilities();
        loop {
            let mut status: c_int = 0;
            let ended = libc::waitpid(-1, &raw mut status, 0);
            if ended == guest || ended < 0 {
                let end = GuestEnd { status, known: i32::from(ended == guest) };
                libc::write(write, std::ptr::from_ref(&end).cast::<c_void>(), size_of::<GuestEnd>());
                libc::_exit(0);
            }
        }
    }
}

/// The supervisor's life once init is there.
unsafe fn supervise_init(plan: &Plan, init: pid_t, read: RawFd) -> ! {
    // SAFETY: async-signal-safe calls on live locals.
    unsafe {
        libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
        libc::prctl(libc::PR_SET_NAME, c"skillcell-sup".as_ptr(), 0, 0, 0);
        let (control, status) = (plan.control.as_raw_fd(), plan.status.as_raw_fd());
        close_all_but([control, status, read]);
        let signals = child_signals();
        let mut record = Record { kind: STARTED, guest: init, status: 0, left: 0, cpu_microseconds: 0, peak_memory: 0 };
        write_record(status, &record);
        loop {
            let mut polled = [
                libc::pollfd { fd: control, events: libc::POLLIN, revents: 0 },
                libc::pollfd { fd: signals, events: libc::POLLIN, revents: 0 },
            ];
            libc::poll(polled.as_mut_ptr(), 2, -1);
            drain(signals);
            if polled[0].revents != 0 || signals < 0 {
                libc::kill(init, libc::SIGKILL);
                // Returns once the kernel has ended and reaped everything in the namespace.
                libc::waitpid(init, std::ptr::null_mut(), 0);
                break;
            }
            if libc::waitpid(init, std::ptr::null_mut(), libc::WNOHANG) == init {
                break;
            }
        }
        let mut end = GuestEnd { status: libc::SIGKILL, known: 0 };
        let size = size_of::<GuestEnd>();
        let got = libc::read(read, std::ptr::from_mut(&mut end).cast::<c_void>(), size);
        // Without a word from init it was killed, and so was the guest.
        record.status = if got == size as isize && end.known == 1 { end.status } else { libc::SIGKILL };
        (record.cpu_microseconds, record.peak_memory) = usage_of_children();
        record.kind = ENDED;
        write_record(status, &record);
        libc::_exit(0)
    }
}

// A write of at most `PIPE_BUF` bytes is whole or not at all.
const _: () = assert!(RECORD_BYTES <= 512 && size_of::<GuestEnd>() <= 512);
