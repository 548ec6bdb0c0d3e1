//! A program of ours that lives as long as a prepared sandbox: started, asked whether it is ready, ended by dropping it.
//!
//! It has a supervisor like any run, so it ends with the host too.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{ChildStdin, ChildStdout};

use super::run::{Confinement, Running};
use super::supervisor::{OnHost, Place};
use crate::error::Result;

/// What a program that fails says on stderr, at most: it goes into an error.
const MAX_COMPLAINT: u64 = 4_096;

/// A program that is to live for long.
pub(in crate::backends) struct ServiceSpec {
    /// Absolute path on the host.
    pub(in crate::backends) program: PathBuf,
    /// Its arguments.
    pub(in crate::backends) arguments: Vec<std::ffi::OsString>,
    /// Where it lives.
    pub(in crate::backends) place: OnHost,
}

/// A living program. Dropping it ends it and everything it started.
pub(in crate::backends) struct Service {
    _running: Running,
    input: ChildStdin,
    output: ChildStdout,
    complaint: tokio::process::ChildStderr,
}

/// Why a program isn't ready.
pub(in crate::backends) struct NotReady {
    /// What it wrote on stderr.
    pub(in crate::backends) complaint: String,
}

impl Service {
    /// Starts the program with an empty environment.
    pub(in crate::backends) fn start(spec: ServiceSpec) -> Result<Self> {
        let ServiceSpec { program, arguments, place } = spec;
        let mut argv = vec![program.clone().into_os_string()];
        argv.extend(arguments);
        let piped = std::process::Stdio::piped();
        let mut running = Running::spawn(
            &program,
            &argv,
            &[],
            piped,
            Confinement { place: Place::Host(place), limits: Vec::new(), group: None },
        )?;
        let missing =
            || crate::error::SkillRuntimeError::new(crate::ErrorKind::Internal, "a pipe of a service is gone");
        let input = running.child.stdin.take().ok_or_else(missing)?;
        let output = running.child.stdout.take().ok_or_else(missing)?;
        let complaint = running.child.stderr.take().ok_or_else(missing)?;
        Ok(Self { _running: running, input, output, complaint })
    }

    /// Sends a byte and waits for it to come back, as `cat` does.
    pub(in crate::backends) async fn ready(&mut self, patience: Duration) -> std::result::Result<(), NotReady> {
        let echo = async {
            self.input.write_all(b"\n").await?;
            let mut byte = [0];
            self.output.read_exact(&mut byte).await
        };
        if tokio::time::timeout(patience, echo).await.is_ok_and(|result| result.is_ok()) {
            return Ok(());
        }
        let mut complaint = Vec::new();
        let mut stderr = (&mut self.complaint).take(MAX_COMPLAINT);
        let _ = tokio::time::timeout(Duration::from_millis(200), stderr.read_to_end(&mut complaint)).await;
        Err(NotReady { complaint: String::from_utf8_lossy(&complaint).trim().to_owned() })
    }
}

/// Reads a JSON object that a program writes to a pipe of ours, at most `limit` bytes. Not to the end of the pipe: other
/// processes may hold it.
pub(in crate::backends) async fn read_object(
    pipe: OwnedFd,
    limit: usize,
    patience: Duration,
) -> std::io::Result<Vec<u8>> {
    let mut pipe = tokio::net::unix::pipe::Receiver::from_owned_fd(pipe)?;
    let mut bytes = Vec::new();
    let read = async {
        while !bytes.trim_ascii_end().ends_with(b"}") && bytes.len() < limit {
            if pipe.read_buf(&mut bytes).await? == 0 {
                break;
            }
        }
        Ok(())
    };
    match tokio::time::timeout(patience, read).await {
        Ok(result) => result.map(|()| bytes),
        Err(_) => Err(std::io::ErrorKind::TimedOut.into()),
    }
}
