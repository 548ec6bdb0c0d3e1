//! One run: an exec of the init in the container, its input, its output, its limits, its end.
//!
//! Nothing of a command stands in the daemon's own records: program, arguments, environment and folder go through the
//! exec's input (`init/protocol.rs`), since a daemon writes an exec's arguments to its event log.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bollard::container::LogOutput;
use bollard::errors::Error as DaemonError;
use bollard::exec::{CreateExecOptions, StartExecOptions, StartExecResults};
use futures_util::{Stream, StreamExt};
use tokio::io::AsyncWrite;
use tokio::sync::oneshot;

use super::capture::Streams;
use super::connect::{Failure, call_error, failure};
use super::feed::feed;
use super::init::protocol::{NONCE_LEN, Outcome, Report, Request};
use super::memory::ran_out_of_memory;
use super::session::{Forced, InUse, Live, Session};
use super::spare::Spare;
use crate::error::{ErrorKind, Result, SkillRuntimeError};
use crate::policy::Limits;
use crate::runtime::{RunCommand, RuntimeRunResult, Stdin, Termination, Usage};

/// How long a run may take to end after it was told to: its supervisor gives up by itself after five seconds.
const END_TIME: Duration = Duration::from_secs(7);
/// The size of the pieces output is read in.
const OUTPUT_PIECE: usize = 64 << 10;
/// Signals of the kernel's own limits, on every architecture of Linux that containers run on.
const SIGKILL: i32 = 9;
const SIGXCPU: i32 = 24;
const SIGXFSZ: i32 = 25;
/// What a shell answers for a child that was killed.
const SHELL_KILLED: i32 = 128 + SIGKILL;
const ENOENT: i32 = 2;
/// In the audit trail.
const MEMORY_LIMIT: &str = "memory_limit";

pub(super) type Output = Pin<Box<dyn Stream<Item = Result<LogOutput, DaemonError>> + Send>>;
pub(super) type Input = Pin<Box<dyn AsyncWrite + Send>>;

/// A run that ended.
pub(super) struct Ended {
    pub(super) result: RuntimeRunResult,
    /// The limit that ended it, for the audit trail.
    pub(super) limit: Option<&'static str>,
    /// The container had to be replaced to end it.
    pub(super) replaced: bool,
}

/// An exec that was started.
pub(super) struct Exec {
    pub(super) id: String,
    pub(super) output: Output,
    pub(super) input: Input,
}

/// Starts the init in the container as one group.
///
/// # Errors
/// [`NotFound`](ErrorKind::NotFound) when the container doesn't run any more; [`Backend`](ErrorKind::Backend);
/// [`Unavailable`](ErrorKind::Unavailable).
pub(super) async fn start_exec(session: &Session, container: &str, verb: &str, group: u32) -> Result<Exec> {
    let failed = |error: DaemonError| match failure(&error) {
        Failure::Absent | Failure::WrongState => SkillRuntimeError::new(
            ErrorKind::NotFound,
            "the container of this handle does not run any more; prepare again",
        )
        .caused_by(error),
        Failure::Refused | Failure::Unreachable => call_error("start a command in the container", error),
    };
    let options = CreateExecOptions {
        attach_stdin: Some(true),
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        cmd: Some(vec![session.init.to_owned(), verb.to_owned()]),
        user: Some(format!("{}:{group}", session.user)),
        working_dir: Some("/".to_owned()),
        ..Default::default()
    };
    let id = session.docker.create_exec(container, options).await.map_err(failed)?.id;
    let options = StartExecOptions { output_capacity: Some(OUTPUT_PIECE), ..Default::default() };
    match session.docker.start_exec(&id, Some(options)).await.map_err(failed)? {
        StartExecResults::Attached { output, input } => Ok(Exec { id, output, input }),
        StartExecResults::Detached => {
            Err(SkillRuntimeError::new(ErrorKind::Backend, "the docker daemon started a command without its output"))
        }
    }
}

/// A run that has its supervisor.
struct Started {
    guard: RunGuard,
    exec: Exec,
    /// The supervisor was there before the run.
    waited: bool,
}

/// Starts a run, by the supervisor that waits where there is one; in another container when the first one has ended since
/// the last run.
async fn start_run(session: &Arc<Session>, stdin: &Stdin) -> Result<Started> {
    let guard =
        |live: Arc<Live>, group: u32| RunGuard { session: session.clone(), live: Some(InUse::new(live)), group };
    let live = session.current().await?;
    // What was read from a file can't be read again, should the supervisor turn out to be gone.
    let rereadable = match stdin {
        Stdin::Closed | Stdin::Bytes(_) => true,
        Stdin::File(_) => false,
    };
    if rereadable && let Some(Spare { exec, group, .. }) = session.take_spare(&live) {
        return Ok(Started { guard: guard(live, group), exec, waited: true });
    }
    let mut first = guard(live.clone(), session.next_group());
    match start_exec(session, &live.id, "run", first.group).await {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            first.disarm();
            session.replace(&live).await?;
            let live = session.current().await?;
            let second = guard(live.clone(), session.next_group());
            let exec = start_exec(session, &live.id, "run", second.group).await?;
            Ok(Started { guard: second, exec, waited: false })
        }
        Err(error) => {
            // Not started; and if it was, the end of its connection has ended it.
            first.disarm();
            Err(error)
        }
        Ok(exec) => Ok(Started { guard: first, exec, waited: false }),
    }
}

/// Runs a command to its end.
///
/// # Errors
/// See [`SkillRuntime::run`](crate::runtime::SkillRuntime::run).
pub(super) async fn run(session: &Arc<Session>, limits: &Limits, command: &RunCommand) -> Result<Ended> {
    let (started, since) = (Instant::now(), SystemTime::now());
    let deadline = tokio::time::Instant::now() + limits.wall_time;
    let mut nonce = [0; NONCE_LEN];
    getrandom::fill(&mut nonce)
        .map_err(|error| SkillRuntimeError::backend("the system's random source failed", error))?;
    let request = request(session, limits, command, nonce).encode().ok_or_else(|| {
        SkillRuntimeError::invalid("the command and its environment are too large; pass large data as a file")
    })?;
    let mut streams = Streams::new(limits, nonce, command.sink.clone());
    // Nothing was started by a waiting supervisor that was killed before it had its request; the second one is fresh.
    let (mut guard, exec_id, cause, broken) = loop {
        // A dropped start ends what it may have started: its guard is dropped with it.
        let Ok(start) = tokio::time::timeout_at(deadline, start_run(session, &command.stdin)).await else {
            let (stdout, stderr, _) = streams.finish();
            let (termination, duration) = (Termination::TimedOut, started.elapsed());
            let result = RuntimeRunResult { termination, stdout, stderr, duration, usage: Usage::default() };
            return Ok(Ended { result, limit: Some("time_limit"), replaced: false });
        };
        let Started { mut guard, exec, waited } = start?;
        let feed = feed_of(exec.input, request.clone(), command);
        let (cause, broken) = follow(exec.output, feed, &mut streams, deadline).await;
        if waited && !streams.accepted() && cause.is_none() {
            guard.disarm();
            streams = Streams::new(limits, nonce, command.sink.clone());
            continue;
        }
        // What a run wrote at its very end may have come with its report.
        let cause = cause.or(streams.over_limit().then_some(Cause::Output));
        break (guard, exec.id, cause, broken);
    };
    let (stdout, stderr, report) = streams.finish();
    let unexplained = report.is_none() && cause.is_none();
    let out_of_memory = match (&report, &guard.live) {
        (None, Some(live)) if unexplained => ran_out_of_memory(&session.docker, &live.id, since).await,
        _ => report.as_ref().is_some_and(|report| report.out_of_memory),
    };
    let forced = match &report {
        Some(report) if !report.survivors => Forced::Killed,
        Some(_) => guard.force(broken).await?,
        None => {
            if unexplained && broken.is_none() && !out_of_memory {
                check_started(session, &exec_id).await.inspect_err(|_| guard.disarm())?;
            }
            guard.force(broken).await?
        }
    };
    if out_of_memory
        && forced == Forced::Killed
        && let Some(live) = &guard.live
    {
        session.refresh(live).await?;
    }
    guard.disarm();
    if forced == Forced::Lost && unexplained && !out_of_memory {
        return Err(SkillRuntimeError::new(
            ErrorKind::Backend,
            "the container ended under the run, or was replaced because another run of this handle could not be killed; \
             run again",
        ));
    }
    session.expect_another();
    let (termination, limit) = if unexplained && out_of_memory {
        (Termination::OutOfMemory, Some(MEMORY_LIMIT))
    } else {
        judge(command, cause, report)?
    };
    let usage = report.map_or_else(Usage::default, |report| Usage {
        cpu_time: Some(Duration::from_micros(report.cpu_micros)),
        peak_memory: Some(report.peak_kib.saturating_mul(1024)),
        ..Usage::default()
    });
    let result = RuntimeRunResult { termination, stdout, stderr, duration: started.elapsed(), usage };
    Ok(Ended { result, limit, replaced: forced == Forced::Replaced })
}

/// The feeding of a run, and the word that ends it.
fn feed_of(
    input: Input,
    request: Vec<u8>,
    command: &RunCommand,
) -> (impl Future<Output = ()> + use<>, oneshot::Sender<()>) {
    let (stop, stopped) = oneshot::channel();
    (feed(input, request, command.stdin.clone(), stopped), stop)
}

/// Listens until the run has ended, or until it has been told to end and given time for it.
async fn follow(
    mut output: Output,
    (feeding, stop): (impl Future<Output = ()>, oneshot::Sender<()>),
    streams: &mut Streams,
    deadline: tokio::time::Instant,
) -> (Option<Cause>, Option<DaemonError>) {
    tokio::pin!(feeding);
    let timer = tokio::time::sleep_until(deadline);
    tokio::pin!(timer);
    let mut feeding_done = false;
    let mut stop = Some(stop);
    let mut cause = None;
    loop {
        tokio::select! {
            piece = output.next() => match piece {
                Some(Ok(piece)) => streams.push(&piece),
                Some(Err(error)) => return (cause, Some(error)),
                None => return (cause, None),
            },
            () = &mut feeding, if !feeding_done => feeding_done = true,
            () = &mut timer => match stop {
                Some(_) => cause = Some(Cause::Time),
                // It was told to end and didn't: force is next. Or it has ended, and the daemon doesn't say so.
                None => return (cause, None),
            },
        }
        let reported = streams.reported();
        if cause.is_none() && !reported && streams.over_limit() {
            cause = Some(Cause::Output);
        }
        // Input that is still on its way when a run ends must not be left to the daemon: one that closes a connection
        // with unread input on it takes the last output along.
        if (cause.is_some() || reported)
            && let Some(stop) = stop.take()
        {
            let _ = stop.send(());
            timer.as_mut().reset(tokio::time::Instant::now() + END_TIME);
        }
    }
}

/// Whether a run that left no report was started at all: then its supervisor was killed, which only the guest can have
/// done.
async fn check_started(session: &Session, exec: &str) -> Result<()> {
    let code = match session.docker.inspect_exec(exec).await {
        Ok(inspected) => inspected.exit_code,
        // The container is gone, or the daemon: what follows will tell.
        Err(_) => return Ok(()),
    };
    match code {
        // Killed, or not seen to have ended yet.
        None => Ok(()),
        Some(code) if code == i64::from(SHELL_KILLED) => Ok(()),
        Some(code) => Err(SkillRuntimeError::new(
            ErrorKind::Backend,
            "the run was not started in the container; look at the docker daemon's log, and whether the container has \
             processes to spare",
        )
        .with("exit code", code.to_string())),
    }
}

/// Why the host ended a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    Time,
    Output,
}

/// A failure to end a run is the daemon's end, or the container's; the error that came first says more.
fn ended_by_force(forced: Result<Forced>, broken: Option<DaemonError>) -> Result<Forced> {
    forced.map_err(|error| {
        let lost = SkillRuntimeError::new(
            error.kind(),
            "the connection to the container was lost during the run; check that the docker daemon runs, then prepare again",
        );
        match broken {
            Some(broken) => lost.caused_by(broken).with_cleanup(error),
            None => lost.caused_by(error),
        }
    })
}

fn request(session: &Session, limits: &Limits, command: &RunCommand, nonce: [u8; NONCE_LEN]) -> Request {
    let mut env: std::collections::BTreeMap<String, String> = session.env.iter().cloned().collect();
    env.insert("PWD".into(), command.cwd.to_string());
    env.extend(command.env.iter().map(|(name, value)| (name.to_owned(), value.to_owned())));
    Request {
        nonce,
        cwd: command.cwd.to_string(),
        argv: command.argv().to_vec(),
        env: env.into_iter().collect(),
        stdin: !matches!(command.stdin, Stdin::Closed),
        // The kernel counts whole seconds.
        cpu_seconds: limits.cpu_time.map_or(0, |time| time.as_secs() + u64::from(time.subsec_nanos() > 0)),
    }
}

/// Turns what is known into how the run ended.
fn judge(
    command: &RunCommand,
    cause: Option<Cause>,
    report: Option<Report>,
) -> Result<(Termination, Option<&'static str>)> {
    match (cause, report) {
        // The end may have come by itself at the very moment; the limit was passed all the same.
        (Some(Cause::Time), _) => Ok((Termination::TimedOut, Some("time_limit"))),
        (Some(Cause::Output), _) => Ok((Termination::OutputLimit, Some("output_limit"))),
        // The supervisor has no report because something killed it, and, with memory to spare, only the guest could; force
        // ended the rest.
        (None, None) => Ok((Termination::Signaled(SIGKILL), None)),
        (None, Some(report)) => by_itself(command, report),
    }
}

fn by_itself(command: &RunCommand, report: Report) -> Result<(Termination, Option<&'static str>)> {
    match report.outcome {
        Outcome::Signaled(SIGXCPU) => Ok((Termination::OutOfFuel, Some("cpu_limit"))),
        Outcome::Signaled(SIGXFSZ) => Ok((Termination::DiskLimit, Some("disk_limit"))),
        // The kernel says that it killed for want of memory while this ran, and the run ended as killed. A run that
        // went on after one of its processes was killed ended by itself.
        Outcome::Signaled(SIGKILL) | Outcome::Exited(SHELL_KILLED) if report.out_of_memory => {
            Ok((Termination::OutOfMemory, Some(MEMORY_LIMIT)))
        }
        Outcome::Exited(code) => Ok((Termination::Exited(code), None)),
        Outcome::Signaled(signal) => Ok((Termination::Signaled(signal), None)),
        Outcome::Killed => Err(SkillRuntimeError::new(
            ErrorKind::Backend,
            "the docker daemon closed the input of the run, which ended it; look at its log, then prepare again",
        )),
        Outcome::NoFolder(number) => Err(SkillRuntimeError::new(
            if number == ENOENT { ErrorKind::NotFound } else { ErrorKind::PathDenied },
            format!("'{}' can't be the current folder: {}", command.cwd, system_error(number)),
        )),
        Outcome::NotStarted(number) => {
            let program = command.program().escape_debug();
            let next = if number == ENOENT {
                "it, or the interpreter that its first line names, is not in the image; choose another image or program"
            } else {
                "give it execute permission, or name its interpreter first"
            };
            Err(SkillRuntimeError::new(
                if number == ENOENT { ErrorKind::NotFound } else { ErrorKind::PathDenied },
                format!("'{program}' can't be started: {}; {next}", system_error(number)),
            ))
        }
    }
}

fn system_error(number: i32) -> String {
    // Without Rust's "(os error 2)".
    let text = std::io::Error::from_raw_os_error(number).to_string();
    text.split(" (os error").next().unwrap_or_default().to_lowercase()
}

/// Ends a run whose future is dropped. Dropping the connection has told its supervisor already; this makes sure.
struct RunGuard {
    session: Arc<Session>,
    live: Option<InUse>,
    group: u32,
}

impl RunGuard {
    /// Ends what is left of the run.
    async fn force(&self, broken: Option<DaemonError>) -> Result<Forced> {
        match &self.live {
            Some(live) => ended_by_force(self.session.force(live, self.group).await, broken),
            None => Ok(Forced::Killed),
        }
    }

    fn disarm(&mut self) {
        self.live = None;
    }
}

impl Drop for RunGuard {
    fn drop(&mut self) {
        let Some(live) = self.live.take() else { return };
        // Without a runtime the program is ending, and the container with it.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (session, group) = (self.session.clone(), self.group);
        runtime.spawn(async move {
            if let Err(error) = session.force(&live, group).await {
                tracing::warn!(error = %error.chain().join(": "), "a cancelled run could not be ended; its container's end will end it");
            }
        });
    }
}
