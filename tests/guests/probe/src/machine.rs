//! Steps that only a process of Linux can try: other processes, system calls that lead out, special files.
//!
//! The C library is called directly: `build.rs` compiles this file without any crate but the guest's own.

use std::ffi::{CString, c_char, c_int, c_long, c_ulong};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::{Outcome, done, number, place, say, text, word};

const SIGHUP: c_int = 1;
const SIGINT: c_int = 2;
const SIGTERM: c_int = 15;
const SIG_IGN: usize = 1;
const CLONE_NEWNS: c_int = 0x0002_0000;
const CLONE_NEWUSER: c_int = 0x1000_0000;
const S_IFCHR: u32 = 0o020_000;
const PTRACE_SEIZE: c_long = 0x4206;
const PTRACE_DETACH: c_long = 17;
const AF_INET: c_int = 2;
const AF_NETLINK: c_int = 16;
const AF_PACKET: c_int = 17;
const AF_ALG: c_int = 38;
const AF_VSOCK: c_int = 40;
const SOCK_STREAM: c_int = 1;
const SOCK_RAW: c_int = 3;
const SOCK_SEQPACKET: c_int = 5;
const IPPROTO_ICMP: c_int = 1;
/// The numbers are the same on every machine for calls newer than 424.
const SYS_PIDFD_OPEN: c_long = 434;
const SYS_PIDFD_GETFD: c_long = 438;

#[repr(C)]
struct IoVec {
    base: *mut u8,
    length: usize,
}

unsafe extern "C" {
    safe fn setsid() -> c_int;
    safe fn kill(pid: c_int, signal: c_int) -> c_int;
    safe fn unshare(flags: c_int) -> c_int;
    safe fn setns(descriptor: c_int, kind: c_int) -> c_int;
    safe fn setuid(user: u32) -> c_int;
    safe fn socket(family: c_int, kind: c_int, protocol: c_int) -> c_int;
    safe fn close(descriptor: c_int) -> c_int;
    safe fn ptrace(request: c_long, pid: c_int, address: usize, data: usize) -> c_long;
    fn syscall(number: c_long, ...) -> c_long;
    fn signal(signal: c_int, handler: usize) -> usize;
    fn mknod(path: *const c_char, mode: u32, device: u64) -> c_int;
    fn mkfifo(path: *const c_char, mode: u32) -> c_int;
    fn chroot(path: *const c_char) -> c_int;
    fn chown(path: *const c_char, user: u32, group: u32) -> c_int;
    fn mount(
        source: *const c_char,
        target: *const c_char,
        kind: *const c_char,
        flags: c_ulong,
        data: *const u8,
    ) -> c_int;
    fn process_vm_readv(
        pid: c_int,
        local: *const IoVec,
        local_count: c_ulong,
        remote: *const IoVec,
        remote_count: c_ulong,
        flags: c_ulong,
    ) -> isize;
}

/// Does a step on the machine; `None` for other verbs.
pub fn attempt(verb: &str, operands: &[String]) -> Option<Outcome> {
    Some(match verb {
        "fifo" => with_path(&place(operands, 0), |path| unsafe { mkfifo(path, 0o600) }),
        // Character device 1:5 is /dev/zero.
        "device" => with_path(&place(operands, 0), |path| unsafe { mknod(path, S_IFCHR | 0o600, (1 << 8) | 5) }),
        "socket-file" => std::os::unix::net::UnixListener::bind(place(operands, 0)).and_then(|_| done()),
        "mode" => mode(operands),
        "owner" => with_path(&place(operands, 0), |path| unsafe { chown(path, 0, 0) }),
        "linger" => linger(operands),
        "hold" => hold(operands),
        "relay" => relay(operands),
        "free" => free(operands),
        "child" => child(operands),
        "children" => children(operands),
        "threads" => threads(operands),
        "crowd" => crowd(operands),
        "signal" => pid(operands).and_then(|pid| checked(kill(pid, 0))),
        "trace" => trace(operands),
        "peek" => peek(operands),
        "take-descriptor" => take_descriptor(operands),
        "unshare" => checked(unshare(if word(operands, 0) == "user" { CLONE_NEWUSER } else { CLONE_NEWNS })),
        "enter" => File::open(place(operands, 0)).and_then(|file| checked(setns(file.as_raw_fd(), 0))),
        "mount" => mount_memory(&place(operands, 0)),
        "root" => with_path(&place(operands, 0), |path| unsafe { chroot(path) }),
        "become" => number(operands, 0).and_then(|user| checked(setuid(user as u32))),
        "descriptors" => descriptors(),
        "terminal" => OpenOptions::new().read(true).write(true).open("/dev/tty").and_then(|_| done()),
        "unix" => unix(operands),
        "raw" => raw(operands),
        _ => return None,
    })
}

/// A call's answer: negative means that the reason is in `errno`.
fn checked(answer: c_int) -> Outcome {
    if answer < 0 { Err(io::Error::last_os_error()) } else { done() }
}

fn with_path(path: &Path, call: impl FnOnce(*const c_char) -> c_int) -> Outcome {
    let path = CString::new(path.as_os_str().as_bytes())?;
    checked(call(path.as_ptr()))
}

fn pid(operands: &[String]) -> io::Result<c_int> {
    c_int::try_from(number(operands, 0)?).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))
}

fn mode(operands: &[String]) -> Outcome {
    let mode = u32::from_str_radix(word(operands, 1), 8).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    fs::set_permissions(place(operands, 0), fs::Permissions::from_mode(mode))?;
    done()
}

/// This program once more. Its output is a pipe to this process unless said otherwise.
fn again(words: &[&str]) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    Ok(command)
}

/// Waits for the first line of a child.
fn first_line(child: &mut Child) -> io::Result<String> {
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout).read_line(&mut line)?;
    }
    if line.is_empty() { Err(io::Error::from(io::ErrorKind::BrokenPipe)) } else { Ok(line.trim_end().to_owned()) }
}

/// Leaves a process behind that holds the lock on a file for as long as it lives: `linger HOW FILE`.
fn linger(operands: &[String]) -> Outcome {
    let (how, file) = (word(operands, 0), place(operands, 1));
    let file = file.to_string_lossy();
    let verb = if how == "double" { "relay" } else { "hold" };
    let mut command = again(&[verb, &file, how])?;
    if how == "output" {
        command.stderr(Stdio::inherit());
    }
    let mut child = command.spawn()?;
    let line = first_line(&mut child)?;
    if line != "ok held" {
        return Err(io::Error::other(line));
    }
    if how == "double" {
        child.wait()?;
    }
    // Not waited for: that is the point.
    done()
}

/// Takes the lock on a file and keeps it until this process is ended from outside.
fn hold(operands: &[String]) -> Outcome {
    let how = word(operands, 1);
    if matches!(how, "session" | "double") {
        setsid();
    }
    if how == "stubborn" {
        for number in [SIGHUP, SIGINT, SIGTERM] {
            // SAFETY: ignoring a signal runs no code.
            unsafe { signal(number, SIG_IGN) };
        }
    }
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(place(operands, 0))?;
    file.lock()?;
    say("ok held");
    loop {
        std::thread::sleep(Duration::from_secs(3_600));
    }
}

/// Starts a holder and ends, so that the holder has lost its parent.
fn relay(operands: &[String]) -> Outcome {
    let file = place(operands, 0);
    let mut child = again(&["hold", &file.to_string_lossy(), "double"])?.spawn()?;
    let line = first_line(&mut child)?;
    say(&line);
    Ok(crate::Done::Exit(0))
}

/// Whether nobody holds the lock on a file.
fn free(operands: &[String]) -> Outcome {
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(place(operands, 0))?;
    match file.try_lock() {
        Ok(()) => done(),
        Err(fs::TryLockError::WouldBlock) => Err(io::Error::from(io::ErrorKind::WouldBlock)),
        Err(fs::TryLockError::Error(error)) => Err(error),
    }
}

/// Runs steps in a child of its own: `child VERB OPERAND...`.
fn child(operands: &[String]) -> Outcome {
    let words: Vec<&str> = operands.iter().map(String::as_str).collect();
    let mut child = again(&words)?.spawn()?;
    let line = first_line(&mut child)?;
    child.wait()?;
    match line.strip_prefix("ok ").or_else(|| (line == "ok").then_some("")) {
        Some(rest) => text(rest),
        None if line == "absent" => Err(io::Error::from(io::ErrorKind::Unsupported)),
        None => Err(io::Error::other(line)),
    }
}

/// Has so many children at once, as far as it gets.
fn children(operands: &[String]) -> Outcome {
    let mut held: Vec<Child> = Vec::new();
    let mut refused = None;
    for _ in 0..number(operands, 0)? {
        match again(&["stdin"]).and_then(|mut command| command.stdin(Stdio::piped()).spawn()) {
            Ok(child) => held.push(child),
            Err(error) => {
                refused = Some(error);
                break;
            }
        }
    }
    let count = held.len();
    for child in &mut held {
        // Each ends with its stdin.
        drop(child.stdin.take());
        let _ = child.kill();
        let _ = child.wait();
    }
    match refused {
        None => text(count.to_string()),
        Some(error) => Err(error),
    }
}

/// Has so many threads at once, as far as it gets.
fn threads(operands: &[String]) -> Outcome {
    let (open, gate) = std::sync::mpsc::sync_channel::<()>(0);
    let gate = std::sync::Arc::new(std::sync::Mutex::new(gate));
    let mut held = Vec::new();
    let mut refused = None;
    for _ in 0..number(operands, 0)? {
        let gate = gate.clone();
        let waits = move || drop(gate.lock().map(|gate| gate.recv()));
        match std::thread::Builder::new().stack_size(64 << 10).spawn(waits) {
            Ok(thread) => held.push(thread),
            Err(error) => {
                refused = Some(error);
                break;
            }
        }
    }
    drop(open);
    let count = held.len();
    for thread in held {
        let _ = thread.join();
    }
    match refused {
        None => text(count.to_string()),
        Some(error) => Err(error),
    }
}

/// So many children take so many MiB each, all at the same time.
fn crowd(operands: &[String]) -> Outcome {
    let mut held: Vec<Child> = Vec::new();
    let mut failed = None;
    for _ in 0..number(operands, 0)? {
        let started = again(&["allocate", word(operands, 1), "::", "stdin"])
            .and_then(|mut command| command.stdin(Stdio::piped()).spawn());
        match started.and_then(|mut child| first_line(&mut child).map(|line| (child, line))) {
            Ok((child, line)) if line.starts_with("ok") => held.push(child),
            Ok((mut child, line)) => {
                let _ = child.kill();
                failed = Some(io::Error::other(line));
                break;
            }
            Err(error) => {
                failed = Some(error);
                break;
            }
        }
    }
    let count = held.len();
    for child in &mut held {
        // One that was ended to make room for another no longer has what it took.
        if !matches!(child.try_wait(), Ok(None)) {
            failed = failed.or_else(|| Some(io::Error::from(io::ErrorKind::OutOfMemory)));
        }
        let _ = child.kill();
        let _ = child.wait();
    }
    match failed {
        None => text(count.to_string()),
        Some(error) => Err(error),
    }
}

fn trace(operands: &[String]) -> Outcome {
    let pid = pid(operands)?;
    if ptrace(PTRACE_SEIZE, pid, 0, 0) < 0 {
        return Err(io::Error::last_os_error());
    }
    ptrace(PTRACE_DETACH, pid, 0, 0);
    done()
}

/// Reads a word of another process's memory. Address 0 is never mapped, so permission is told apart by `EFAULT`.
fn peek(operands: &[String]) -> Outcome {
    let pid = pid(operands)?;
    let mut bytes = [0u8; 8];
    let local = IoVec { base: bytes.as_mut_ptr(), length: bytes.len() };
    let remote = IoVec { base: std::ptr::null_mut(), length: 8 };
    // SAFETY: `local` is a valid buffer; `remote` belongs to the other process.
    let read = unsafe { process_vm_readv(pid, &raw const local, 1, &raw const remote, 1, 0) };
    let error = io::Error::last_os_error();
    const EFAULT: i32 = 14;
    if read >= 0 || error.raw_os_error() == Some(EFAULT) { done() } else { Err(error) }
}

fn take_descriptor(operands: &[String]) -> Outcome {
    let pid = pid(operands)?;
    // SAFETY: both calls take numbers only.
    let process = unsafe { syscall(SYS_PIDFD_OPEN, pid, 0) };
    if process < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: as above.
    let taken = unsafe { syscall(SYS_PIDFD_GETFD, process, 0, 0) };
    let error = io::Error::last_os_error();
    close(process as c_int);
    if taken < 0 {
        return Err(error);
    }
    close(taken as c_int);
    done()
}

fn mount_memory(place: &Path) -> Outcome {
    let target = CString::new(place.as_os_str().as_bytes())?;
    // SAFETY: all pointers are valid strings or null, which the call allows for its data.
    checked(unsafe { mount(c"none".as_ptr(), target.as_ptr(), c"tmpfs".as_ptr(), 0, std::ptr::null()) })
}

/// What is open beyond the three streams, with the beginning of what can be read there.
fn descriptors() -> Outcome {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc/self/fd")? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let Ok(number) = name.parse::<u32>() else { continue };
        let own = format!("/proc/self/fd/{number}");
        if number <= 2 {
            continue;
        }
        // The listing itself is a descriptor of this process, and is gone by the time it is looked at.
        let Ok(target) = fs::read_link(&own) else { continue };
        let target = target.to_string_lossy().into_owned();
        if target.ends_with("/fd") {
            continue;
        }
        let mut bytes = [0; 256];
        let read = if fs::metadata(&own).is_ok_and(|metadata| metadata.is_file()) {
            File::open(&own).and_then(|mut file| file.read(&mut bytes)).unwrap_or(0)
        } else {
            0
        };
        found.push(format!("{number} {target} {}", String::from_utf8_lossy(&bytes[..read])));
    }
    text(found.join("\n"))
}

/// Connects to a socket with a name: a path, or after `abstract` a name without one.
fn unix(operands: &[String]) -> Outcome {
    let mut stream = if word(operands, 0) == "abstract" {
        use std::os::linux::net::SocketAddrExt;
        let address = std::os::unix::net::SocketAddr::from_abstract_name(word(operands, 1))?;
        UnixStream::connect_addr(&address)?
    } else {
        UnixStream::connect(place(operands, 0))?
    };
    stream.write_all(b"probe")?;
    done()
}

fn raw(operands: &[String]) -> Outcome {
    let (family, kind, protocol) = match word(operands, 0) {
        // In network order: all protocols.
        "packet" => (AF_PACKET, SOCK_RAW, 0x0300),
        "icmp" => (AF_INET, SOCK_RAW, IPPROTO_ICMP),
        "vsock" => (AF_VSOCK, SOCK_STREAM, 0),
        "crypto" => (AF_ALG, SOCK_SEQPACKET, 0),
        "netlink-audit" => (AF_NETLINK, SOCK_RAW, 9),
        _ => return Err(io::Error::from(io::ErrorKind::InvalidInput)),
    };
    let descriptor = socket(family, kind, protocol);
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    close(descriptor);
    done()
}
