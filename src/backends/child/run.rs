//! The host's side of a run: spawn, wait for the first of {end, time, output, memory, processor, processes, disk,
//! dropped future}, make the supervisor kill what is left, gather the streams.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;
use tokio::process::{Child, Command};
use tokio::time::Instant;

use super::group::{Group, GroupUsage};
use super::record::{ENDED, FAILED, RECORD_BYTES, Record, STARTED, Stage};
use super::streams::{Outputs, feed_stdin};
use super::supervisor::{self, Place, Plan};
use super::watch::{DiskWatch, Excess, Watch};
use crate::error::{ErrorKind, Result, SkillRuntimeError};
use crate::policy::Limits;
use crate::runtime::{CapturedOutput, OutputSink, Stdin, Termination, Usage};

/// How often memory, processor time, processes and disk of a run are looked at.
const WATCH_INTERVAL: Duration = Duration::from_millis(50);
/// How long a supervisor that was told to end everything may take: its own sweep (3 s) and some for a busy machine.
const KILL_PATIENCE: Duration = Duration::from_secs(5);
/// How long the streams are read after everything is dead: what is left is what lies in two pipes.
const DRAIN_PATIENCE: Duration = Duration::from_millis(500);

/// A script that was staged a moment ago may be "busy": another thread forked while the staging held it open for
/// writing, and that copy of the descriptor lives until its `exec`. A few milliseconds later it is gone.
const BUSY_RETRIES: u32 = 20;
/// Pause between two attempts.
const BUSY_PAUSE: Duration = Duration::from_millis(5);
/// Processes of ours that count towards the limit inside a sandbox: a run's supervisor and init, and for a moment after
/// it was prepared the two of the program that made it.
const SANDBOX_PROCESSES: u64 = 4;

/// One program to run.
pub(in crate::backends) struct ChildSpec {
    /// Absolute path on the host.
    pub(in crate::backends) program: PathBuf,
    /// What the program sees as its own name, and its arguments.
    pub(in crate::backends) argv: Vec<OsString>,
    /// The whole environment.
    pub(in crate::backends) env: Vec<(String, OsString)>,
    /// Where it runs.
    pub(in crate::backends) place: Place,
    /// Standard input.
    pub(in crate::backends) stdin: Stdin,
    /// Hears output as it comes.
    pub(in crate::backends) sink: Option<Arc<dyn OutputSink>>,
    /// The limits that are applied.
    pub(in crate::backends) limits: Limits,
    /// The folders whose growth is watched, if any.
    pub(in crate::backends) disk: Option<DiskWatch>,
    /// The control group that the run is put into, with its limits set.
    pub(in crate::backends) group: Option<Group>,
}

/// How a run ended.
pub(in crate::backends) struct ChildEnd {
    pub(in crate::backends) termination: Termination,
    /// The limit that ended it, by the word for the audit trail.
    pub(in crate::backends) limit: Option<&'static str>,
    pub(in crate::backends) stdout: CapturedOutput,
    pub(in crate::backends) stderr: CapturedOutput,
    pub(in crate::backends) duration: Duration,
    pub(in crate::backends) usage: Usage,
    /// Processes were still there when the supervisor gave up.
    pub(in crate::backends) left_behind: bool,
    /// The kernel refused to make more processes for it, and said so.
    pub(in crate::backends) refused_processes: bool,
}

/// Why the host ended a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    Time,
    Output,
    Excess(Excess),
}

/// Runs a program to its end. Dropping the future kills it and everything it started.
///
/// # Errors
/// [`NotFound`](ErrorKind::NotFound) or [`Backend`](ErrorKind::Backend) when it can't be started;
/// [`Backend`](ErrorKind::Backend) when the supervisor was killed from inside the run.
pub(in crate::backends) async fn run(mut spec: ChildSpec) -> Result<ChildEnd> {
    let started = Instant::now();
    let deadline = started + spec.limits.wall_time;
    let limits = spec.limits.clone();
    let mut watch = Watch::new(&limits, spec.disk.take());
    watch = match &spec.place {
        // The kernel refuses to make more.
        Place::Sandbox(_) => watch.without_processes(),
        Place::Host(place) => watch.not_counting(place.own_processes),
    };
    let group = spec.group.take();
    if group.is_some() {
        // The kernel keeps both, and keeps them for all processes together.
        watch = watch.without_processes().without_memory();
    }
    let (mut running, outputs) = Running::start(spec, group.as_ref())?;
    let mut ticks = tokio::time::interval_at(started + WATCH_INTERVAL, WATCH_INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);

    let mut cause = None;
    let end = loop {
        let patience = running.killed.map_or(deadline, |killed| killed + KILL_PATIENCE);
        let already_killed = running.killed.is_some();
        let ended_by = tokio::select! {
            biased;
            record = running.next_record() => match record? {
                Some(record) if record.kind == ENDED => break record,
                Some(record) => {
                    running.guest = Some(record.guest);
                    continue;
                }
                None => return Err(running.lost_supervisor().await),
            },
            () = tokio::time::sleep_until(patience) => {
                if already_killed {
                    return Err(running.lost_supervisor().await);
                }
                Some(Cause::Time)
            }
            () = outputs.over_limit(), if cause.is_none() => Some(Cause::Output),
            _ = ticks.tick(), if cause.is_none() => {
                // A look that takes long must not hold up the clock.
                let look = tokio::time::timeout_at(deadline, watch.look(running.supervisor_id()));
                look.await.ok().flatten().map(Cause::Excess)
            }
        };
        if let Some(ended_by) = ended_by {
            cause = Some(ended_by);
            running.kill();
            if let Some(group) = &group {
                group.kill();
            }
        }
    };
    let duration = started.elapsed();
    // Together: each waits for other processes, and on a busy machine every wait costs.
    let ((), (stdout, stderr, total), filled) =
        tokio::join!(running.reap(), outputs.finish(DRAIN_PATIENCE), watch.disk_excess());
    if cause.is_none() && total > limits.output {
        cause = Some(Cause::Output);
    }
    if cause.is_none() {
        // What was written in the last moment counts too.
        cause = filled.map(Cause::Excess);
    }
    let counted = group.as_ref().map(Group::usage).unwrap_or_default();
    if let Some(group) = group {
        // Removing it may take the kernel a moment.
        let _ = tokio::task::spawn_blocking(move || drop(group)).await;
    }
    let usage = Usage {
        cpu_time: Some(counted.cpu_time.unwrap_or(Duration::from_micros(end.cpu_microseconds))),
        peak_memory: Some(counted.peak_memory.unwrap_or(end.peak_memory)),
        ..Usage::default()
    };
    let (termination, limit) = conclude(cause, end.status, &limits, usage.cpu_time.unwrap_or_default(), counted);
    let refused_processes = counted.refused_processes > 0;
    Ok(ChildEnd { termination, limit, stdout, stderr, duration, usage, left_behind: end.left != 0, refused_processes })
}

/// Names the end: the host's cause if there is one, else what the wait status says.
fn conclude(
    cause: Option<Cause>,
    status: i32,
    limits: &Limits,
    used: Duration,
    counted: GroupUsage,
) -> (Termination, Option<&'static str>) {
    match cause {
        Some(Cause::Time) => return (Termination::TimedOut, Some("time_limit")),
        Some(Cause::Output) => return (Termination::OutputLimit, Some("output_limit")),
        Some(Cause::Excess(Excess::Memory)) => return (Termination::OutOfMemory, Some("memory_limit")),
        Some(Cause::Excess(Excess::Cpu)) => return (Termination::OutOfFuel, Some("cpu_limit")),
        Some(Cause::Excess(Excess::Disk)) => return (Termination::DiskLimit, Some("disk_limit")),
        Some(Cause::Excess(Excess::Processes)) => return (Termination::ProcessLimit, Some("process_limit")),
        None => {}
    }
    // A shell or a sandbox around the guest reports the signal as its exit code.
    let killed = (libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGKILL)
        || (libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 128 + libc::SIGKILL);
    if killed && counted.killed_for_memory > 0 {
        return (Termination::OutOfMemory, Some("memory_limit"));
    }
    if libc::WIFSIGNALED(status) {
        let signal = libc::WTERMSIG(status);
        match limits.cpu_time {
            // The kernel's own processor limit: SIGXCPU at the soft limit, SIGKILL at the hard one a second later, when
            // its rougher count is passed.
            Some(_) if signal == libc::SIGXCPU => (Termination::OutOfFuel, Some("cpu_limit")),
            Some(limit) if signal == libc::SIGKILL && used >= limit => (Termination::OutOfFuel, Some("cpu_limit")),
            // RLIMIT_FSIZE is the disk limit.
            _ if signal == libc::SIGXFSZ => (Termination::DiskLimit, Some("disk_limit")),
            _ => (Termination::Signaled(signal), None),
        }
    } else {
        (Termination::Exited(libc::WEXITSTATUS(status)), None)
    }
}

/// What confines a process that is spawned.
pub(super) struct Confinement {
    pub(super) place: Place,
    /// Resource, soft and hard limit.
    pub(super) limits: Vec<(u32, u64, u64)>,
    /// The way into a control group.
    pub(super) group: Option<OwnedFd>,
}

/// A run in progress. Dropping it closes the control pipe, at which the supervisor kills everything.
pub(super) struct Running {
    pub(super) child: Child,
    control: Option<OwnedFd>,
    status: Receiver,
    partial: Vec<u8>,
    guest: Option<i32>,
    killed: Option<Instant>,
}

impl Running {
    fn start(spec: ChildSpec, group: Option<&Group>) -> Result<(Self, Outputs)> {
        let (stdin_read, feeder) = match spec.stdin {
            Stdin::Closed => (Stdio::null(), None),
            source @ (Stdin::Bytes(_) | Stdin::File(_)) => {
                let (read, write) = new_pipe()?;
                (Stdio::from(read), Some((source, write)))
            }
        };
        let mut limits = kernel_limits(&spec.limits);
        if let Place::Sandbox(_) = spec.place {
            // Counted in the sandbox's own user namespace, where only runs of the sandbox are.
            let processes = u64::from(spec.limits.processes) + SANDBOX_PROCESSES;
            limits.push((libc::RLIMIT_NPROC, processes, processes));
        }
        let group = group
            .map(Group::entrance)
            .transpose()
            .map_err(|error| SkillRuntimeError::backend("the control group of a run could not be opened", error))?;
        let confinement = Confinement { place: spec.place, limits, group };
        let mut running = Self::spawn(&spec.program, &spec.argv, &spec.env, stdin_read, confinement)?;
        let outputs = Outputs::start(&mut running.child, spec.sink, &spec.limits);
        if let Some((source, write)) = feeder {
            feed_stdin(source, write, &outputs).map_err(no_pipes)?;
        }
        Ok((running, outputs))
    }

    /// Spawns a supervisor and what it supervises, with stdout and stderr piped.
    pub(super) fn spawn(
        program: &Path,
        argv: &[OsString],
        env: &[(String, OsString)],
        stdin: Stdio,
        confinement: Confinement,
    ) -> Result<Self> {
        let Confinement { place, limits, group } = confinement;
        let (control_read, control_write) = new_pipe()?;
        let (status_read, status_write) = new_pipe()?;
        #[expect(clippy::disallowed_methods, reason = "this is the one place that starts processes")]
        let mut command = Command::new(program);
        if let Some(name) = argv.first() {
            command.arg0(name);
        }
        command.args(argv.get(1..).unwrap_or_default());
        command.env_clear().envs(env.iter().map(|(name, value)| (name, value)));
        command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
        supervisor::attach(&mut command, Plan { control: control_read, status: status_write, limits, group, place });
        // So that what a failed attempt reported can be read while the writing end is still here.
        rustix::io::ioctl_fionbio(&status_read, true).map_err(|error| no_pipes(error.into()))?;
        let mut spawned = command.spawn();
        for _ in 0..BUSY_RETRIES {
            if !spawned.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::ExecutableFileBusy) {
                break;
            }
            std::thread::sleep(BUSY_PAUSE);
            // The records of the attempt that failed aren't the next one's.
            let _ = failed_stage(&status_read);
            spawned = command.spawn();
        }
        // The command owns the supervisor's ends of the pipes, and the guest's stdin.
        drop(command);
        let child = spawned.map_err(|error| not_started(&error, failed_stage(&status_read)))?;
        let status = Receiver::from_owned_fd(status_read).map_err(no_pipes)?;
        Ok(Self { child, control: Some(control_write), status, partial: Vec::new(), guest: None, killed: None })
    }

    fn supervisor_id(&self) -> Option<u32> {
        self.child.id()
    }

    /// The next record; `None` when the supervisor is gone. Safe to drop between two reads.
    async fn next_record(&mut self) -> Result<Option<Record>> {
        loop {
            if let Some((record, _)) = self.partial.split_first_chunk::<RECORD_BYTES>() {
                let record = Record::from_bytes(record);
                self.partial.drain(..RECORD_BYTES);
                if record.kind == STARTED || record.kind == ENDED {
                    return Ok(Some(record));
                }
            }
            let mut buffer = [0; RECORD_BYTES];
            let read =
                self.status.read(&mut buffer).await.map_err(|error| {
                    SkillRuntimeError::backend("could not hear from the supervisor of the run", error)
                })?;
            if read == 0 {
                return Ok(None);
            }
            self.partial.extend_from_slice(buffer.get(..read).unwrap_or_default());
        }
    }

    /// Has the supervisor kill everything. It reports when that is done.
    fn kill(&mut self) {
        if self.control.take().is_some() {
            self.killed = Some(Instant::now());
            // A guest of the same user may have stopped it.
            self.signal_supervisor(rustix::process::Signal::CONT);
        }
    }

    fn signal_supervisor(&self, signal: rustix::process::Signal) {
        // Not yet reaped, so the id is still its own.
        let id = self.child.id().and_then(|id| rustix::process::Pid::from_raw(id.cast_signed()));
        if let Some(id) = id {
            let _ = rustix::process::kill_process(id, signal);
        }
    }

    /// The supervisor has ended; takes it out of the process table.
    async fn reap(&mut self) {
        let _ = tokio::time::timeout(DRAIN_PATIENCE, self.child.wait()).await;
    }

    /// The guest killed or stopped its supervisor (both belong to one user). What can still be found is killed.
    async fn lost_supervisor(&mut self) -> SkillRuntimeError {
        self.signal_supervisor(rustix::process::Signal::KILL);
        if let Some(group) = self.guest.and_then(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        self.reap().await;
        SkillRuntimeError::new(
            ErrorKind::Backend,
            "the supervisor of the run was stopped from inside the run, so processes of it may be left; use a runtime \
             that enforces processes",
        )
    }
}

/// A pipe that no other program inherits: read end, write end.
fn new_pipe() -> Result<(OwnedFd, OwnedFd)> {
    rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(|error| no_pipes(error.into()))
}

fn no_pipes(error: std::io::Error) -> SkillRuntimeError {
    SkillRuntimeError::backend("could not make the pipes of a run; are there too many open files?", error)
}

/// The stage that a run which did not start reported, if it got so far. Everything that could write is gone by then.
fn failed_stage(status: &OwnedFd) -> Option<(Stage, i32)> {
    loop {
        let mut bytes = [0; RECORD_BYTES];
        match rustix::io::read(status, &mut bytes) {
            Ok(RECORD_BYTES) => {
                let record = Record::from_bytes(&bytes);
                if record.kind == FAILED {
                    return Some((Stage::from_number(record.guest)?, record.status));
                }
            }
            Ok(_) | Err(_) => return None,
        }
    }
}

/// Why a program did not start, without its path on the host.
fn not_started(error: &std::io::Error, stage: Option<(Stage, i32)>) -> SkillRuntimeError {
    let (kind, message) = match stage {
        Some((Stage::Fork, _)) => (ErrorKind::Backend, "the processes of a run could not be made"),
        Some((Stage::Namespaces, _)) => (ErrorKind::Backend, "the namespaces of the sandbox could not be entered"),
        Some((Stage::Mounts, _)) => (ErrorKind::Backend, "/proc and /dev/shm of a run could not be mounted"),
        Some((Stage::Folder, _)) => (ErrorKind::NotFound, "the current folder does not exist"),
        Some((Stage::Limits, _)) => (ErrorKind::Backend, "a limit could not be set"),
        Some((Stage::Identity, _)) => (ErrorKind::Backend, "the unprivileged user could not be taken on"),
        Some((Stage::Landlock, _)) => (ErrorKind::Backend, "Landlock refused the rules of the sandbox"),
        Some((Stage::Capabilities, _)) => (ErrorKind::Backend, "capabilities could not be given up"),
        Some((Stage::Seccomp, _)) => (ErrorKind::Backend, "the system-call filter could not be installed"),
        Some((Stage::SelfTest, number)) => {
            return SkillRuntimeError::new(
                ErrorKind::PolicyUnenforceable,
                format!(
                    "the sandbox did not hold in its self-test (attempt {number}), so nothing was run; please report \
                     this with the kernel's version"
                ),
            );
        }
        None if error.kind() == std::io::ErrorKind::NotFound => (
            ErrorKind::NotFound,
            "the program could not be started: it, or the interpreter that its first line names, does not exist",
        ),
        None if error.kind() == std::io::ErrorKind::PermissionDenied => (
            ErrorKind::Backend,
            "the program could not be started: it may not be executed (is its folder mounted noexec?)",
        ),
        None => (ErrorKind::Backend, "the program could not be started"),
    };
    SkillRuntimeError::new(kind, message).caused_by(error.kind().to_string())
}

/// The limits the kernel keeps for each process.
///
/// Memory is `RLIMIT_DATA`, not `RLIMIT_AS`: programs such as `node` reserve far more address space than they use.
/// Processes have none here: `RLIMIT_NPROC` counts all processes of the user, so a small number would stop every guest
/// of a busy user, and it doesn't bind root at all; the watch counts the run's own.
fn kernel_limits(limits: &Limits) -> Vec<(u32, u64, u64)> {
    let both = |resource: libc::__rlimit_resource_t, value: u64| (resource, value, value);
    let mut kernel = vec![
        both(libc::RLIMIT_CORE, 0),
        both(libc::RLIMIT_DATA, limits.memory),
        both(libc::RLIMIT_FSIZE, limits.disk),
        both(libc::RLIMIT_NOFILE, u64::from(limits.open_files)),
    ];
    if let Some(time) = limits.cpu_time {
        let seconds = time.as_secs() + u64::from(time.subsec_nanos() > 0);
        kernel.push((libc::RLIMIT_CPU, seconds, seconds + 1));
    }
    kernel
}
