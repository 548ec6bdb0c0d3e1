//! One run: an exec of the init in the container, its input, its output, its limits, its end.
//!
//! Nothing of a command stands in the daemon's own records: program, arguments, environment and folder go through the
//! exec's input (`init/protocol.rs`), since a daemon writes an exec's arguments to its event log.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bollard::container::LogOutput;
use bollard::errors::Error as DaemonError;
use bollard::exec::{CreateExecOptions, StartExecOptions, StartExecResults};
use futures_util::{Stream, StreamExt};
use tokio::io::AsyncWrite;
use tokio::sync::oneshot;

use super::capture::Streams;
use super::connect::call_error;
use super::feed::feed;
use super::init::protocol::{NONCE_LEN, Outcome, Report, Request};
use super::session::{Forced, Live, Session};
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

/// Starts the init in the container as one group.
///
/// # Errors
/// [`Backend`](ErrorKind::Backend), [`Unavailable`](ErrorKind::Unavailable).
pub(super) async fn start_exec(session: &Session, container: &str, verb: &str, group: u32) -> Result<(Output, Input)> {
    let options = CreateExecOptions {
        attach_stdin: Some(true),
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        cmd: Some(vec![session.init.to_owned(), verb.to_owned()]),
        user: Some(format!("{}:{group}", session.user)),
        working_dir: Some("/".to_owned()),
        ..Default::default()
    };
    let made = session
        .docker
        .create_exec(container, options)
        .await
        .map_err(|error| call_error("add a command to the container", error))?;
    let options = StartExecOptions { output_capacity: Some(OUTPUT_PIECE), ..Default::default() };
    match session
        .docker
        .start_exec(&made.id, Some(options))
        .await
        .map_err(|error| call_error("start a command", error))?
    {
        StartExecResults::Attached { output, input } => Ok((output, input)),
        StartExecResults::Detached => {
            Err(SkillRuntimeError::new(ErrorKind::Backend, "the docker daemon started a command without its output"))
        }
    }
}

/// Runs a command to its end.
///
/// # Errors
/// See [`SkillRuntime::run`](crate::runtime::SkillRuntime::run).
pub(super) async fn run(session: &Arc<Session>, limits: &Limits, command: &RunCommand) -> Result<Ended> {
    let started = Instant::now();
    let deadline = tokio::time::Instant::now() + limits.wall_time;
    let mut nonce = [0; NONCE_LEN];
    getrandom::fill(&mut nonce)
        .map_err(|error| SkillRuntimeError::backend("the system's random source failed", error))?;
    let request = request(session, limits, command, nonce).encode().ok_or_else(|| {
        SkillRuntimeError::invalid("the command and its environment are too large; pass large data as a file")
    })?;
    let live = session.current().await?;
    let mut guard = RunGuard { session: session.clone(), live: Some(live.clone()), group: session.next_group() };
    let (mut output, input) = start_exec(session, &live.id, "run", guard.group).await?;

    let (stop, stopped) = oneshot::channel();
    let mut stop = Some(stop);
    let feeding = feed(input, request, command.stdin.clone(), stopped);
    tokio::pin!(feeding);
    let mut feeding_done = false;
    let mut streams = Streams::new(limits, nonce, command.sink.clone());
    let mut cause = None;
    let mut broken = None;
    let timer = tokio::time::sleep_until(deadline);
    tokio::pin!(timer);
    loop {
        tokio::select! {
            piece = output.next() => match piece {
                Some(Ok(piece)) => streams.push(&piece),
                Some(Err(error)) => {
                    broken = Some(error);
                    break;
                }
                None => break,
            },
            () = &mut feeding, if !feeding_done => feeding_done = true,
            () = &mut timer => match cause {
                None => cause = Some(Cause::Time),
                // It was told to end and didn't: force is next.
                Some(_) => break,
            },
        }
        if cause.is_none() && streams.over_limit() {
            cause = Some(Cause::Output);
        }
        if let (Some(_), Some(stop)) = (cause, stop.take_if(|_| cause.is_some())) {
            let _ = stop.send(());
            timer.as_mut().reset(tokio::time::Instant::now() + END_TIME);
        }
    }
    let (stdout, stderr, report) = streams.finish();
    let mut replaced = false;
    match &report {
        Some(report) if !report.survivors => guard.disarm(),
        _ => {
            let forced = session.force(&live, guard.group).await;
            guard.disarm();
            replaced = ended_by_force(forced, broken)? == Forced::Replaced;
        }
    }
    if report.is_none() && replaced && cause.is_none() {
        return Err(SkillRuntimeError::new(
            ErrorKind::Backend,
            "the container ended under the run, or had to be replaced because another run of this handle could not be killed; run again",
        ));
    }
    let (termination, limit) = judge(command, cause, report)?;
    let usage = report.map_or_else(Usage::default, |report| Usage {
        cpu_time: Some(Duration::from_micros(report.cpu_micros)),
        peak_memory: Some(report.peak_kib.saturating_mul(1024)),
        ..Usage::default()
    });
    let result = RuntimeRunResult { termination, stdout, stderr, duration: started.elapsed(), usage };
    Ok(Ended { result, limit, replaced })
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
        // The supervisor has no report because something killed it, and only the guest could; force ended the rest.
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
            Ok((Termination::OutOfMemory, Some("memory_limit")))
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
    live: Option<Arc<Live>>,
    group: u32,
}

impl RunGuard {
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
