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
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use libc::{c_int, c_void, pid_t};

use super::confined::Confined;
use super::home::Home;
use super::record::{ENDED, Record, STARTED, Stage};
use super::system::{
    OnExec, become_user, block_signals, check, child_signals, close_all_but, close_from, drain, failed_at, fork_with,
    now_milliseconds, reset_signals, set_limit, usage_of_children, write_record,
};

/// How long the supervisor tries to kill what is left. A fork bomb in one process group dies at the first signal;
/// only one that changes its session at every fork lasts, and it must not hold the run for ever.
const SWEEP_MILLISECONDS: i64 = 3_000;
/// Folders and files that a program can be handed: five areas, `/tmp`, interpreters, and the mounts with what is guarded
/// in them. Three digits name them.
pub(in crate::backends) const MAX_FOLDERS: usize = 256;
/// Children looked at in one pass: as many ids as the buffer holds. The next pass takes the rest.
const CHILDREN_BUFFER: usize = 16 * 1024;
/// Everything the processes of a run need, prepared by the host.
pub(super) struct Plan {
    /// Read end: closes when the host is done with the run, or dead.
    pub(super) control: OwnedFd,
    /// Write end, for records.
    pub(super) status: OwnedFd,
    /// Resource limits of the guest: resource, soft, hard.
    pub(super) limits: Vec<(u32, u64, u64)>,
    /// The way into the run's control group: `0` written there puts the writer in.
    pub(super) group: Option<OwnedFd>,
    /// Where the guest lives.
    pub(super) place: Place,
}

/// Where a guest lives.
pub(in crate::backends) enum Place {
    /// Among the host's own processes.
    Host(OnHost),
    /// In the namespaces of a prepared sandbox.
    #[cfg_attr(not(feature = "bubblewrap"), expect(dead_code, reason = "only that runtime makes sandboxes"))]
    Sandbox(Confined),
}

/// A guest among the host's own processes.
pub(in crate::backends) struct OnHost {
    /// The current folder, held open.
    pub(in crate::backends) folder: OwnedFd,
    /// Descriptors the program gets under their own numbers. It must be one of ours, not a script.
    pub(in crate::backends) keep: Vec<OwnedFd>,
    /// The same for folders, at most [`MAX_FOLDERS`]. With another user, each is put where that user can reach it by
    /// name, in a mount namespace of the program's own.
    pub(in crate::backends) folders: Vec<OwnedFd>,
    /// Another user and group to take on (root only).
    pub(in crate::backends) user: Option<(u32, u32)>,
    /// A home for that user, made of the folders, which it then doesn't get as descriptors.
    pub(in crate::backends) home: Option<Home>,
    /// Whether the program may be one that gains rights.
    pub(in crate::backends) rights: Rights,
    /// Processes of a program around the guest that don't count towards its limit.
    pub(in crate::backends) own_processes: usize,
}

/// Whether a program may gain rights by being started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::backends) enum Rights {
    /// It has those of its user. A program that gained some (sudo, ping) could not be killed at the end.
    Fixed,
    /// It is a sandbox of the system that has to be root to do its work, and takes the rights from what it runs.
    #[cfg_attr(not(feature = "firejail"), expect(dead_code, reason = "only that runtime needs it"))]
    MayGrow,
}

impl OnHost {
    /// A program of the host's own user in this folder, with nothing else.
    pub(in crate::backends) fn new(folder: OwnedFd) -> Self {
        Self {
            folder,
            keep: Vec::new(),
            folders: Vec::new(),
            user: None,
            home: None,
            rights: Rights::Fixed,
            own_processes: 0,
        }
    }

    /// The folders that the program gets as descriptors.
    fn shown_folders(&self) -> &[OwnedFd] {
        if self.home.is_some() { &[] } else { &self.folders }
    }
}

impl Plan {
    /// Called in the host's forked child. Returns in the guest's process only, which then execs; or with an error in
    /// whichever process met it, which the standard library reports to the host. A supervisor never returns.
    pub(super) fn enter(&self) -> io::Result<()> {
        // SAFETY: the calls are async-signal-safe, the pointers are to live locals, and nothing is allocated.
        unsafe {
            block_signals();
            // Its own session: neither the terminal's signals nor the guest's `kill 0` reach the supervisor.
            libc::setsid();
            match &self.place {
                Place::Host(place) => {
                    let failed = |error| failed_at(self.status.as_raw_fd(), Stage::Fork, error);
                    check(libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)).map_err(failed)?;
                    let supervisor = libc::getpid();
                    match fork_with(0).map_err(failed)? {
                        0 => self.become_guest(place, supervisor),
                        guest => self.supervise(guest),
                    }
                }
                Place::Sandbox(confined) => confined.enter(self),
            }
        }
    }

    /// Puts this process into the run's control group. The supervisor stays out of it: it has to outlive what is in it.
    pub(super) unsafe fn enter_group(&self) -> io::Result<()> {
        let Some(group) = &self.group else { return Ok(()) };
        // SAFETY: the descriptor is open and the buffer's length is given.
        let written = unsafe { libc::write(group.as_raw_fd(), c"0".as_ptr().cast(), 1) };
        if written == 1 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Confines this process as far as an ordinary process can be; `exec` follows.
    unsafe fn become_guest(&self, place: &OnHost, supervisor: pid_t) -> io::Result<()> {
        let failed = |stage| move |error| failed_at(self.status.as_raw_fd(), stage, error);
        // SAFETY: as in `enter`.
        unsafe {
            libc::setsid();
            self.enter_group().map_err(failed(Stage::Limits))?;
            if let Some((user, group)) = place.user {
                make_reachable(&place.folders).map_err(failed(Stage::Mounts))?;
                if let Some(home) = &place.home {
                    home.furnish(user, group).map_err(failed(Stage::Mounts))?;
                }
                check(libc::setgroups(0, std::ptr::null())).map_err(failed(Stage::Identity))?;
                become_user(user, group).map_err(failed(Stage::Identity))?;
            }
            // After the change of user, which clears it. The supervisor has one thread, so here the signal does mean
            // that the process ended.
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
            if libc::getppid() != supervisor {
                libc::_exit(1);
            }
            if place.rights == Rights::Fixed {
                check(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)).map_err(failed(Stage::Identity))?;
            }
            check(libc::fchdir(place.folder.as_raw_fd())).map_err(failed(Stage::Folder))?;
            for &(resource, soft, hard) in &self.limits {
                set_limit(resource, soft, hard).map_err(failed(Stage::Limits))?;
            }
            // Marked, not closed: the standard library still needs its own pipe to report a failed `exec`.
            close_from(3, OnExec::Yes);
            // A folder of the host's mounts leads anywhere by `..`, so a program that shows its own descriptors to what
            // it starts must not have one.
            for descriptor in place.keep.iter().chain(place.shown_folders()) {
                libc::fcntl(descriptor.as_raw_fd(), libc::F_SETFD, 0);
            }
            reset_signals();
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
            close_all_but([control, status]);
            let signals = child_signals();
            let mut record = Record { kind: STARTED, guest, status: 0, left: 0, cpu_microseconds: 0, peak_memory: 0 };
            write_record(status, &record);

            let mut reaped = Reaped::GuestStillThere;
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
                    reaped = reap(guest, &mut record.status);
                    ended |= reaped != Reaped::GuestStillThere;
                }
            }
            if reaped == Reaped::GuestStillThere {
                // The whole group in one call: a fork in progress in it can't slip through. Only now, as the id of a
                // guest that was reaped may belong to a stranger.
                libc::kill(-guest, libc::SIGKILL);
            }
            record.left = u32::from(!sweep(guest, signals, &mut record.status));
            (record.cpu_microseconds, record.peak_memory) = usage_of_children();
            record.kind = ENDED;
            write_record(status, &record);
            libc::_exit(0)
        }
    }
}

/// Mounts each folder below `/tmp` of a new mount namespace, and puts a descriptor of that in the place of the old one.
///
/// `bwrap` turns a descriptor back into a name and looks that up as the user it runs as; the workspace of a host that is
/// root lies in a folder that is closed to that user, and shall stay so.
unsafe fn make_reachable(folders: &[OwnedFd]) -> io::Result<()> {
    // SAFETY: async-signal-safe calls on live locals and NUL-terminated strings.
    unsafe {
        // Before the namespace is left: a mount can only be copied where it is.
        let mut trees: [RawFd; MAX_FOLDERS] = [-1; MAX_FOLDERS];
        let copy = libc::OPEN_TREE_CLONE | libc::OPEN_TREE_CLOEXEC | (libc::AT_EMPTY_PATH | libc::AT_RECURSIVE) as u32;
        for (folder, tree) in folders.iter().zip(&mut trees) {
            *tree = libc::syscall(libc::SYS_open_tree, folder.as_raw_fd(), c"".as_ptr(), copy) as RawFd;
            if *tree < 0 && *libc::__errno_location() == libc::EINVAL {
                // A mount that nobody sees yet, made by `idmap`: it can be put in place as it is, but not copied.
                *tree = folder.as_raw_fd();
            }
            if *tree < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        check(libc::unshare(libc::CLONE_NEWNS))?;
        let (none, root) = (std::ptr::null(), c"/".as_ptr());
        check(libc::mount(none, root, none, libc::MS_REC | libc::MS_PRIVATE, std::ptr::null()))?;
        let (tmpfs, flags) = (c"tmpfs".as_ptr(), libc::MS_NOSUID | libc::MS_NODEV);
        check(libc::mount(tmpfs, c"/tmp".as_ptr(), tmpfs, flags, c"mode=755".as_ptr().cast::<c_void>()))?;
        for (index, (folder, tree)) in folders.iter().zip(trees).enumerate() {
            let mut path = *b"/tmp/000\0";
            path[5] += (index / 100) as u8;
            path[6] += (index / 10 % 10) as u8;
            path[7] += (index % 10) as u8;
            let path = path.as_ptr().cast::<libc::c_char>();
            make_place(path, folder.as_raw_fd())?;
            let from_descriptor = libc::MOVE_MOUNT_F_EMPTY_PATH;
            let moved = libc::syscall(libc::SYS_move_mount, tree, c"".as_ptr(), libc::AT_FDCWD, path, from_descriptor);
            check(moved as c_int)?;
            let reachable = libc::open(path, libc::O_PATH | libc::O_CLOEXEC);
            if reachable < 0 || libc::dup2(reachable, folder.as_raw_fd()) < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    }
}

/// Makes what a folder or a file can be mounted on.
unsafe fn make_place(path: *const libc::c_char, what: RawFd) -> io::Result<()> {
    // SAFETY: async-signal-safe calls; the structure lives through the call, and is read only when it was filled.
    unsafe {
        let mut stat = std::mem::MaybeUninit::<libc::stat>::zeroed();
        check(libc::fstat(what, stat.as_mut_ptr()))?;
        if stat.assume_init().st_mode & libc::S_IFMT == libc::S_IFDIR {
            return check(libc::mkdir(path, 0o755));
        }
        let file = libc::open(path, libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC, 0o644);
        if file < 0 {
            return Err(io::Error::last_os_error());
        }
        check(libc::close(file))
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
            for_each_child(&mut |child| {
                // The group in one call. It can't be a stranger's: its member, our child, isn't reaped.
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

/// Attaches a plan to a command that is about to be spawned.
pub(super) fn attach(command: &mut tokio::process::Command, plan: Plan) {
    // SAFETY: `enter` keeps to async-signal-safe calls, as its module says.
    unsafe {
        command.pre_exec(move || plan.enter());
    }
}
