//! The init: the only program of ours inside a container. Compiled by `build.rs` as one static executable that needs
//! nothing from the image, so an image without a shell works like any other.
//!
//! - `init hold` is the container's first process: it reaps orphans and ends when its standard input ends, which is
//!   when the host's connection is gone. A container can't outlive the process that made it.
//! - `init run` supervises one run (see `protocol`): starts the command, feeds its input, and kills everything that
//!   is left of it when it ends or when the host asks.
//! - `init file` reads, writes and lists for a host that can't see the files.
//! - `init kill` kills everything of a run whose supervisor did not do it.
//!
//! Which processes belong to a run is decided by their *group id*: the host starts every run with a number of its
//! own, and a process without privileges can neither change it nor have children without it. Sessions, process
//! groups and parents are all the guest's to change, and a daemonised grandchild has none of them in common with its
//! run. Pid namespaces would need a capability that the container doesn't have.
//!
//! It must not allocate with the guest's appetite, trust anything a guest wrote, or print anything but its report.
//!
//! `unsafe` is needed to call the system where the standard library doesn't; each call says why it is sound.

mod file;
#[expect(dead_code, reason = "the host's half of the protocol")]
mod protocol;
mod system;

use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use protocol::{ALL_GONE, MAX_FRAME, MAX_REQUEST, Outcome, Report, Request};
use system::Wake;

/// How long killing may take: it takes milliseconds, unless the kernel can't end a process (a dead disk).
const KILL_TIME: Duration = Duration::from_secs(5);
/// How long the report may take to be written: the host reads all the time, unless it is gone.
const REPORT_TIME: Duration = Duration::from_secs(5);
/// How much of the guest's input is held here before reading stops.
const MAX_PENDING: usize = 2 * MAX_FRAME;
/// A guest's processes are the kernel's choice before us when memory is short.
const GUEST_OOM_SCORE: &str = "500";

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("hold") => hold(),
        Some("run") => run(),
        Some("file") => file(),
        Some("kill") => {
            let gone = kill_group(system::group_id(), Instant::now() + KILL_TIME);
            if gone && std::io::stdout().write_all(ALL_GONE).is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        _ => ExitCode::from(64),
    }
}

/// The container's first process.
fn hold() -> ExitCode {
    // Otherwise a guest, which has the same user, could open our standard streams through /proc.
    system::close_memory_to_others();
    let Ok(wake) = Wake::on_child() else { return ExitCode::FAILURE };
    loop {
        let Ok(ready) = system::poll_input(&wake, true, None) else { return ExitCode::FAILURE };
        while system::reap().is_some() {}
        if ready.input_closed {
            return ExitCode::SUCCESS;
        }
        if ready.input {
            // Nothing is ever sent; whatever comes is dropped.
            match std::io::stdin().read(&mut [0; 64]) {
                Ok(0) | Err(_) => return ExitCode::SUCCESS,
                Ok(_) => {}
            }
        }
    }
}

/// Supervises one run.
fn run() -> ExitCode {
    let score = std::fs::OpenOptions::new().write(true).open("/proc/self/oom_score_adj").ok();
    system::close_memory_to_others();
    system::adopt_orphans();
    let Some(request) = read_request() else { return ExitCode::from(64) };
    let Ok(wake) = Wake::on_child() else { return ExitCode::FAILURE };
    let killed_before = out_of_memory_kills();
    if request.cpu_seconds > 0 {
        system::limit_cpu(request.cpu_seconds);
    }
    let set_score = |text: &str| score.as_ref().map(|mut file| file.write_all(text.as_bytes()));
    set_score(GUEST_OOM_SCORE);
    let mut feed = Feed::new(None);
    let outcome = match std::env::set_current_dir(&request.cwd) {
        Err(error) => Outcome::NoFolder(number(&error)),
        Ok(()) => {
            let started = start(&request);
            set_score("0");
            match started {
                Ok(mut child) => {
                    feed = Feed::new(child.stdin.take());
                    supervise(child.id(), &mut feed, &wake)
                }
                Err(error) => Outcome::NotStarted(number(&error)),
            }
        }
    };
    let survivors = !kill_group(system::group_id(), Instant::now() + KILL_TIME);
    let (cpu_micros, peak_kib) = system::children_usage();
    let out_of_memory = out_of_memory_kills() > killed_before;
    let report = Report { outcome, out_of_memory, cpu_micros, peak_kib, survivors };
    system::write_all_to_stderr(&report.encode(request.nonce), Instant::now() + REPORT_TIME);
    if request.stdin && outcome != Outcome::Killed {
        // The host stops sending when it has the report. Input that nobody takes would be in the way of the output.
        feed.guest = None;
        while !feed.ended && feed.take_input().is_ok() {}
    }
    ExitCode::SUCCESS
}

/// Answers one call about files. The report says whether it went well.
fn file() -> ExitCode {
    system::close_memory_to_others();
    let Some(request) = read_request() else { return ExitCode::from(64) };
    let outcome = match file::serve(&request.argv, request.nonce) {
        Ok(()) => Outcome::Exited(0),
        Err(error) => Outcome::NotStarted(number(&error)),
    };
    let report = Report { outcome, out_of_memory: false, cpu_micros: 0, peak_kib: 0, survivors: false };
    system::write_all_to_stderr(&report.encode(request.nonce), Instant::now() + REPORT_TIME);
    ExitCode::SUCCESS
}

/// The system's number of an error; those that the standard library makes up get the number they stand for.
fn number(error: &std::io::Error) -> i32 {
    const EIO: i32 = 5;
    const ENOTDIR: i32 = 20;
    const EISDIR: i32 = 21;
    const EINVAL: i32 = 22;
    error.raw_os_error().unwrap_or(match error.kind() {
        std::io::ErrorKind::NotADirectory => ENOTDIR,
        std::io::ErrorKind::IsADirectory => EISDIR,
        std::io::ErrorKind::InvalidInput => EINVAL,
        _ => EIO,
    })
}

fn read_request() -> Option<Request> {
    let mut length = [0; 4];
    system::read_exact(&mut length).ok()?;
    let length = usize::try_from(u32::from_be_bytes(length)).ok()?;
    if length > MAX_REQUEST {
        return None;
    }
    let mut body = vec![0; length];
    system::read_exact(&mut body).ok()?;
    let request = Request::decode(&body)?;
    // Before anything of the guest's exists: a host that doesn't see this knows that nothing was started.
    system::write_all_to_stderr(&request.nonce, Instant::now() + REPORT_TIME);
    Some(request)
}

fn start(request: &Request) -> std::io::Result<std::process::Child> {
    let (program, arguments) = request.argv.split_first().ok_or(std::io::ErrorKind::InvalidInput)?;
    Command::new(program)
        .args(arguments)
        .env_clear()
        .envs(request.env.iter().map(|(name, value)| (name, value)))
        .stdin(if request.stdin { Stdio::piped() } else { Stdio::null() })
        .process_group(0)
        .spawn()
}

/// Waits for the first process or the host's word, and feeds standard input meanwhile.
fn supervise(child: u32, feed: &mut Feed, wake: &Wake) -> Outcome {
    loop {
        // Look before sleeping: the child may have ended before the signal could wake us.
        while let Some((pid, outcome)) = system::reap() {
            if pid == child {
                return outcome;
            }
        }
        let Ok(ready) = system::poll_input(wake, feed.wants_input(), feed.output_to_watch()) else { return Outcome::Killed };
        if ready.input {
            if feed.take_input().is_err() {
                return Outcome::Killed;
            }
        } else if ready.input_closed {
            return Outcome::Killed;
        }
        if ready.output {
            feed.give_output();
        }
    }
}

/// The guest's standard input on its way.
struct Feed {
    /// The guest's end; `None` once it is closed.
    guest: Option<std::process::ChildStdin>,
    /// Bytes from the host that are no whole frame yet.
    raw: Vec<u8>,
    /// Bytes for the guest.
    pending: Vec<u8>,
    /// The host said that the input ends after `pending`.
    ended: bool,
}

impl Feed {
    fn new(guest: Option<std::process::ChildStdin>) -> Self {
        if let Some(guest) = &guest {
            system::set_nonblocking(guest);
        }
        Self { guest, raw: Vec::new(), pending: Vec::new(), ended: false }
    }

    /// Whether there is room for more. The closing of the stream is noticed in any case.
    fn wants_input(&self) -> bool {
        self.pending.len() < MAX_PENDING
    }

    fn output_to_watch(&self) -> Option<&std::process::ChildStdin> {
        self.guest.as_ref().filter(|_| !self.pending.is_empty())
    }

    /// Reads what the host sent. An error is the end of the stream, or bytes that are no frame.
    fn take_input(&mut self) -> Result<(), ()> {
        let mut buffer = vec![0; MAX_FRAME];
        let count = system::read_some(&mut buffer).map_err(drop)?;
        if count == 0 {
            return Err(());
        }
        self.raw.extend_from_slice(buffer.get(..count).ok_or(())?);
        while let Some((header, rest)) = self.raw.split_first_chunk::<4>() {
            let length = usize::try_from(u32::from_be_bytes(*header)).map_err(drop)?;
            if length > MAX_FRAME {
                return Err(());
            }
            let Some((frame, _)) = rest.split_at_checked(length) else { break };
            if length == 0 {
                self.ended = true;
            } else if self.guest.is_some() && !self.ended {
                self.pending.extend_from_slice(frame);
            }
            self.raw.drain(..4 + length);
        }
        self.give_output();
        Ok(())
    }

    /// Gives the guest what its pipe takes.
    fn give_output(&mut self) {
        if let Some(guest) = &mut self.guest {
            while !self.pending.is_empty() {
                match guest.write(&self.pending) {
                    Ok(count) => drop(self.pending.drain(..count)),
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return,
                    Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                    Err(_) => {
                        // The guest closed its end: what comes now is dropped.
                        self.pending.clear();
                        self.guest = None;
                        return;
                    }
                }
            }
        }
        if self.ended {
            self.guest = None;
        }
    }
}

/// Kills every process of the group but this one, again and again until none is seen: a process may have had children
/// while it was being killed. New processes get higher numbers, and the list is read upwards, so even a fork bomb is
/// met by the same pass.
fn kill_group(group: u32, deadline: Instant) -> bool {
    let me = std::process::id();
    loop {
        let mut found = false;
        let Ok(entries) = std::fs::read_dir("/proc") else { return false };
        for entry in entries.flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
            if pid != me && pid != 1 && alive_in_group(pid, group) {
                found = true;
                system::kill(pid);
            }
        }
        while system::reap().is_some() {}
        if !found {
            return true;
        }
        if Instant::now() > deadline {
            return false;
        }
        std::thread::yield_now();
    }
}

/// Whether a process is there, no zombie, and of the group. `status` can be read of any process.
fn alive_in_group(pid: u32, group: u32) -> bool {
    let Ok(status) = std::fs::read(format!("/proc/{pid}/status")) else { return false };
    // A process's name comes first and is the guest's choice; the kernel escapes line breaks in it.
    let field = |name: &[u8]| {
        status
            .split(|byte| *byte == b'\n')
            .find_map(|line| line.strip_prefix(name))
            .and_then(|value| std::str::from_utf8(value).ok())
            .and_then(|value| value.split_whitespace().next())
            .map(str::to_owned)
    };
    field(b"Gid:") == Some(group.to_string()) && !matches!(field(b"State:").as_deref(), Some("Z" | "X"))
}

/// How many processes the kernel has killed in this container for want of memory: cgroup version 2, then 1.
fn out_of_memory_kills() -> u64 {
    ["/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"]
        .iter()
        .find_map(|path| {
            let text = std::fs::read_to_string(path).ok()?;
            text.lines().find_map(|line| line.strip_prefix("oom_kill ")).and_then(|count| count.trim().parse().ok())
        })
        .unwrap_or(0)
}
