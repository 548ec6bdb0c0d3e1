//! The three standard streams: two drained into bounded captures, one fed from the caller's bytes or file.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Child;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::system::block_broken_pipe_signal;
use crate::policy::Limits;
use crate::runtime::{CapturedOutput, OutputCapture, OutputSink, Stdin, Stream};

/// Bytes taken from a pipe at once: the size of a pipe's buffer on Linux.
const PIECE: usize = 64 * 1024;

/// The two output streams of a run, being drained. Dropping it stops draining and feeding.
pub(super) struct Outputs {
    stdout: Arc<Mutex<OutputCapture>>,
    stderr: Arc<Mutex<OutputCapture>>,
    shared: Arc<Shared>,
    drains: JoinSet<()>,
    /// Closes when this value is dropped, which ends the feeding thread.
    feeder: Mutex<Option<OwnedFd>>,
}

struct Shared {
    total: AtomicU64,
    limit: u64,
    over: Notify,
    sink: Option<Arc<dyn OutputSink>>,
}

impl Outputs {
    pub(super) fn start(child: &mut Child, sink: Option<Arc<dyn OutputSink>>, limits: &Limits) -> Self {
        let shared = Arc::new(Shared { total: AtomicU64::new(0), limit: limits.output, over: Notify::new(), sink });
        let capture = || Arc::new(Mutex::new(OutputCapture::new(limits.output_kept)));
        let (stdout, stderr) = (capture(), capture());
        let mut drains = JoinSet::new();
        if let Some(pipe) = child.stdout.take() {
            drains.spawn(drain(pipe, Stream::Stdout, stdout.clone(), shared.clone()));
        }
        if let Some(pipe) = child.stderr.take() {
            drains.spawn(drain(pipe, Stream::Stderr, stderr.clone(), shared.clone()));
        }
        Self { stdout, stderr, shared, drains, feeder: Mutex::new(None) }
    }

    /// Returns once more was written than may be.
    pub(super) async fn over_limit(&self) {
        self.shared.over.notified().await;
    }

    /// Waits for the ends of the pipes, at most `patience`; then what was kept, and how much was written in all.
    pub(super) async fn finish(mut self, patience: Duration) -> (CapturedOutput, CapturedOutput, u64) {
        let all = async { while self.drains.join_next().await.is_some() {} };
        if tokio::time::timeout(patience, all).await.is_err() {
            // Somebody outside the run holds a pipe open.
            self.drains.abort_all();
        }
        let kept = |capture: &Mutex<OutputCapture>| capture.lock().unwrap_or_else(PoisonError::into_inner).snapshot();
        (kept(&self.stdout), kept(&self.stderr), self.shared.total.load(Ordering::Relaxed))
    }
}

async fn drain(
    mut pipe: impl AsyncRead + Unpin,
    stream: Stream,
    capture: Arc<Mutex<OutputCapture>>,
    shared: Arc<Shared>,
) {
    let mut buffer = vec![0; PIECE];
    loop {
        let bytes = match pipe.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(read) => buffer.get(..read).unwrap_or_default(),
        };
        capture.lock().unwrap_or_else(PoisonError::into_inner).push(bytes);
        if let Some(sink) = &shared.sink {
            sink.write(stream, bytes);
        }
        let before = shared.total.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        if before + bytes.len() as u64 > shared.limit {
            // Nothing more is read: the guest blocks until it is killed.
            shared.over.notify_one();
            return;
        }
    }
}

/// Copies the source into the guest's standard input on a thread of its own, then closes it.
///
/// A thread, because the source may be a terminal or a file, neither of which can be waited for with certainty. It
/// ends at the source's end, when the guest is gone (the pipe breaks), or when `outputs` is dropped.
pub(super) fn feed_stdin(source: Stdin, guest: OwnedFd, outputs: &Outputs) -> std::io::Result<()> {
    let (stop, keep) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    *outputs.feeder.lock().unwrap_or_else(PoisonError::into_inner) = Some(keep);
    let mut guest = std::fs::File::from(guest);
    std::thread::Builder::new().name("skillcell-stdin".into()).spawn(move || {
        block_broken_pipe_signal();
        match source {
            Stdin::Closed => {}
            // An error means that the guest doesn't read any more, which is its right.
            Stdin::Bytes(bytes) => drop(guest.write_all(&bytes)),
            Stdin::File(file) => copy_until_stopped(&file, &mut guest, &stop),
        }
    })?;
    Ok(())
}

/// Copies until the source ends, the guest's end closes, or `stop` closes.
fn copy_until_stopped(mut source: &std::fs::File, guest: &mut std::fs::File, stop: &OwnedFd) {
    use rustix::event::{PollFd, PollFlags, poll};
    let mut buffer = vec![0; PIECE];
    loop {
        let mut ready = [PollFd::new(source, PollFlags::IN), PollFd::new(stop, PollFlags::IN)];
        match poll(&mut ready, None) {
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => return,
            Ok(_) if !ready[1].revents().is_empty() => return,
            Ok(_) => {}
        }
        let read = match source.read(&mut buffer) {
            Ok(0) => return,
            Ok(read) => read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(_) => return,
        };
        if guest.write_all(buffer.get(..read).unwrap_or_default()).is_err() {
            return;
        }
    }
}
