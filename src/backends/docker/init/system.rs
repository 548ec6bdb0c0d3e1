//! The calls of the system that the standard library doesn't offer, behind safe functions.

use std::ffi::c_int;
use std::fs::File;
use std::io::{Error, ErrorKind, PipeReader, PipeWriter, Read, Result, Write};
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, FromRawFd};
use std::process::ChildStdin;
use std::sync::OnceLock;
use std::time::Instant;

use crate::protocol::Outcome;

const PR_SET_DUMPABLE: c_int = 4;
const PR_SET_CHILD_SUBREAPER: c_int = 36;
const SIGKILL: c_int = 9;
const SIGCHLD: c_int = 17;
const WNOHANG: c_int = 1;
const F_GETFL: c_int = 3;
const F_SETFL: c_int = 4;
const O_NONBLOCK: c_int = 0o4000;
const RLIMIT_CPU: c_int = 0;
const RUSAGE_CHILDREN: c_int = -1;
const POLLIN: i16 = 1;
const POLLOUT: i16 = 4;
const POLLERR: i16 = 8;
const POLLHUP: i16 = 16;

#[repr(C)]
struct PollFd {
    fd: c_int,
    events: i16,
    revents: i16,
}

#[repr(C)]
struct Limit {
    soft: u64,
    hard: u64,
}

/// `struct rusage`: user and system time, then the largest resident set, then thirteen numbers of no interest.
#[repr(C)]
#[derive(Default)]
struct Usage {
    times: [i64; 4],
    peak_kib: i64,
    rest: [i64; 13],
}

unsafe extern "C" {
    safe fn prctl(option: c_int, a: usize, b: usize, c: usize, d: usize) -> c_int;
    #[link_name = "kill"]
    safe fn kill_pid(pid: i32, signal: c_int) -> c_int;
    safe fn getgid() -> u32;
    fn waitpid(pid: i32, status: *mut c_int, options: c_int) -> i32;
    fn poll(descriptors: *mut PollFd, count: usize, timeout: c_int) -> c_int;
    fn fcntl(fd: c_int, command: c_int, argument: c_int) -> c_int;
    fn signal(signal: c_int, handler: extern "C" fn(c_int)) -> usize;
    fn setrlimit(resource: c_int, limit: *const Limit) -> c_int;
    fn getrusage(who: c_int, usage: *mut Usage) -> c_int;
}

/// Closes memory, descriptors and tracing of this process to others of the same user. A program started by it is open
/// again.
pub fn close_memory_to_others() {
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
}

/// Makes orphans below this process its children, so that they can be waited for.
pub fn adopt_orphans() {
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
}

/// The real group id: the mark of the run.
pub fn group_id() -> u32 {
    getgid()
}

/// Kills one process. It may be gone already.
pub fn kill(pid: u32) {
    if let Ok(pid) = i32::try_from(pid) {
        // 0 and negative numbers would mean groups of processes.
        if pid > 1 {
            kill_pid(pid, SIGKILL);
        }
    }
}

/// Waits for one ended child without blocking.
pub fn reap() -> Option<(u32, Outcome)> {
    let mut status = 0;
    // SAFETY: `status` is a valid place for the one number that is written.
    let pid = unsafe { waitpid(-1, &raw mut status, WNOHANG) };
    let pid = u32::try_from(pid).ok().filter(|pid| *pid != 0)?;
    let signal = status & 0x7f;
    Some((pid, if signal == 0 { Outcome::Exited((status >> 8) & 0xff) } else { Outcome::Signaled(signal) }))
}

/// Limits the processor seconds of this process and those it starts. A second more before the signal that can't be
/// caught.
pub fn limit_cpu(seconds: u64) {
    let limit = Limit { soft: seconds, hard: seconds.saturating_add(1) };
    // SAFETY: `limit` is a valid `struct rlimit`.
    unsafe { setrlimit(RLIMIT_CPU, &raw const limit) };
}

/// Processor time in microseconds and the largest resident set in KiB of all children waited for.
pub fn children_usage() -> (u64, u64) {
    let mut usage = Usage::default();
    // SAFETY: `usage` has the size and layout of `struct rusage` on 64-bit Linux.
    unsafe { getrusage(RUSAGE_CHILDREN, &raw mut usage) };
    let [user, user_micros, system, system_micros] = usage.times.map(|value| u64::try_from(value).unwrap_or(0));
    ((user + system) * 1_000_000 + user_micros + system_micros, u64::try_from(usage.peak_kib).unwrap_or(0))
}

/// Reads and writes of this descriptor return at once.
pub fn set_nonblocking(descriptor: &impl AsFd) {
    let fd = descriptor.as_fd().as_raw_fd();
    // SAFETY: the descriptor is open and no memory is involved.
    unsafe {
        let flags = fcntl(fd, F_GETFL, 0);
        fcntl(fd, F_SETFL, flags | O_NONBLOCK);
    }
}

/// A pipe that becomes readable when a child ends, so that one `poll` hears of everything.
pub struct Wake {
    reader: PipeReader,
}

static WAKE: OnceLock<PipeWriter> = OnceLock::new();

extern "C" fn on_signal(_signal: c_int) {
    // Only what may be done in a signal handler: a read of memory and one `write`.
    if let Some(mut writer) = WAKE.get() {
        let _ = writer.write(&[1]);
    }
}

impl Wake {
    /// Begins to listen.
    pub fn on_child() -> Result<Self> {
        let (reader, writer) = std::io::pipe()?;
        set_nonblocking(&reader);
        set_nonblocking(&writer);
        WAKE.set(writer).map_err(|_| Error::from(ErrorKind::AlreadyExists))?;
        // SAFETY: the handler does only what a handler may.
        unsafe { signal(SIGCHLD, on_signal) };
        Ok(Self { reader })
    }
}

/// What `poll` found.
pub struct Ready {
    /// There is something to read on standard input.
    pub input: bool,
    /// Standard input was closed by the other side.
    pub input_closed: bool,
    /// The watched output takes bytes, or will never again.
    pub output: bool,
}

/// Sleeps until a child ended, standard input has something (if wanted) or was closed, or the output takes bytes.
pub fn poll_input(wake: &Wake, want_input: bool, output: Option<&ChildStdin>) -> Result<Ready> {
    let mut all = [
        PollFd { fd: 0, events: if want_input { POLLIN } else { 0 }, revents: 0 },
        PollFd { fd: wake.reader.as_raw_fd(), events: POLLIN, revents: 0 },
        // A negative descriptor is passed over.
        PollFd { fd: output.map_or(-1, AsRawFd::as_raw_fd), events: POLLOUT, revents: 0 },
    ];
    // SAFETY: the pointer and the count describe `all`.
    if unsafe { poll(all.as_mut_ptr(), all.len(), -1) } < 0 {
        let error = Error::last_os_error();
        if error.kind() != ErrorKind::Interrupted {
            return Err(error);
        }
        for descriptor in &mut all {
            descriptor.revents = 0;
        }
    }
    let mut drain = [0; 64];
    while matches!((&wake.reader).read(&mut drain), Ok(count) if count > 0) {}
    let [input, _, output] = all;
    Ok(Ready {
        input: input.revents & POLLIN != 0,
        input_closed: input.revents & (POLLHUP | POLLERR) != 0,
        output: output.revents != 0,
    })
}

/// Reads from standard input without a buffer in between: `poll` must know what is left.
pub fn read_some(buffer: &mut [u8]) -> Result<usize> {
    loop {
        match standard(0).read(buffer) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// The same, until the buffer is full.
pub fn read_exact(buffer: &mut [u8]) -> Result<()> {
    standard(0).read_exact(buffer)
}

/// Writes all to standard error, which a guest may have made non-blocking, until the deadline.
pub fn write_all_to_stderr(mut bytes: &[u8], deadline: Instant) {
    while !bytes.is_empty() && Instant::now() < deadline {
        match standard(2).write(bytes) {
            Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let mut one = PollFd { fd: 2, events: POLLOUT, revents: 0 };
                // SAFETY: the pointer and the count describe `one`. A tenth of a second, then the deadline is looked at.
                unsafe { poll(&raw mut one, 1, 100) };
            }
            Err(_) => return,
        }
    }
}

/// A standard stream as a file that is not closed at the end.
fn standard(fd: c_int) -> ManuallyDrop<File> {
    // SAFETY: 0 to 2 are open for the whole life of the process, and `ManuallyDrop` leaves them open.
    let file = unsafe { File::from_raw_fd(fd) };
    ManuallyDrop::new(file)
}
