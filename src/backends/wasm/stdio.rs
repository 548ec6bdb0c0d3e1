//! Bounded output streams: what a guest writes goes to the capture and the listener, and ends it over the limit.
//!
//! Must not hold more than the capture keeps.

use std::io::Read;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf};
use wasmtime_wasi::cli::{IsTerminal, StdinStream, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamError};

use crate::runtime::{CapturedOutput, OutputCapture, OutputSink, Stream};

/// The most that is taken in one write.
const WRITE_BYTES: usize = 64 << 10;
/// What may wait between the host's input and the guest.
const INPUT_BYTES: usize = 64 << 10;

struct Captured {
    stdout: OutputCapture,
    stderr: OutputCapture,
    limit: u64,
    exceeded: bool,
}

/// Both streams of one run.
#[derive(Clone)]
pub(super) struct Output {
    captured: Arc<Mutex<Captured>>,
    sink: Option<Arc<dyn OutputSink>>,
}

impl Output {
    pub(super) fn new(limit: u64, kept: u64, sink: Option<Arc<dyn OutputSink>>) -> Self {
        let captured =
            Captured { stdout: OutputCapture::new(kept), stderr: OutputCapture::new(kept), limit, exceeded: false };
        Self { captured: Arc::new(Mutex::new(captured)), sink }
    }

    pub(super) fn stream(&self, stream: Stream) -> GuestStream {
        GuestStream { output: self.clone(), stream }
    }

    pub(super) fn exceeded(&self) -> bool {
        self.lock().exceeded
    }

    pub(super) fn snapshot(&self) -> (CapturedOutput, CapturedOutput) {
        let captured = self.lock();
        (captured.stdout.snapshot(), captured.stderr.snapshot())
    }

    fn lock(&self) -> MutexGuard<'_, Captured> {
        self.captured.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what fits; false once the limit is passed.
    fn push(&self, stream: Stream, bytes: &[u8]) -> bool {
        let mut captured = self.lock();
        let written = captured.stdout.total() + captured.stderr.total();
        let room = usize::try_from(captured.limit.saturating_sub(written)).unwrap_or(usize::MAX);
        let fits = bytes.get(..room.min(bytes.len())).unwrap_or(bytes);
        match stream {
            Stream::Stdout => captured.stdout.push(fits),
            Stream::Stderr => captured.stderr.push(fits),
        }
        let whole = fits.len() == bytes.len();
        captured.exceeded |= !whole;
        drop(captured);
        if let Some(sink) = &self.sink {
            sink.write(stream, fits);
        }
        whole
    }
}

/// One of the two streams, as the guest sees it.
#[derive(Clone)]
pub(super) struct GuestStream {
    output: Output,
    stream: Stream,
}

impl IsTerminal for GuestStream {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for GuestStream {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(self.clone())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

#[async_trait::async_trait]
impl OutputStream for GuestStream {
    fn write(&mut self, bytes: Bytes) -> Result<(), StreamError> {
        if self.output.push(self.stream, &bytes) {
            Ok(())
        } else {
            Err(StreamError::Trap(wasmtime::Error::msg("output limit reached")))
        }
    }

    fn flush(&mut self) -> Result<(), StreamError> {
        Ok(())
    }

    fn check_write(&mut self) -> Result<usize, StreamError> {
        Ok(WRITE_BYTES)
    }
}

#[async_trait::async_trait]
impl Pollable for GuestStream {
    async fn ready(&mut self) {}
}

impl AsyncWrite for GuestStream {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        let fine = self.output.push(self.stream, bytes);
        Poll::Ready(if fine { Ok(bytes.len()) } else { Err(std::io::ErrorKind::StorageFull.into()) })
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Standard input copied from an open file by a thread of its own, since reading a terminal or a pipe can't be broken
/// off. The thread ends when the file does, or at the next bytes after the guest has ended.
pub(super) struct FileInput(Arc<Mutex<DuplexStream>>);

impl FileInput {
    pub(super) fn new(file: Arc<std::fs::File>) -> Self {
        let (guest, mut host) = tokio::io::duplex(INPUT_BYTES);
        let executor = tokio::runtime::Handle::current();
        let copy = move || {
            let mut buffer = vec![0; INPUT_BYTES];
            loop {
                match file.as_ref().read(&mut buffer) {
                    Ok(0) => break,
                    Ok(count) => {
                        let Some(bytes) = buffer.get(..count) else { break };
                        if executor.block_on(host.write_all(bytes)).is_err() {
                            break;
                        }
                    }
                    Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                    Err(error) => {
                        tracing::warn!(%error, "standard input could not be read; the guest sees its end");
                        break;
                    }
                }
            }
        };
        if let Err(error) = std::thread::Builder::new().name("skillcell-stdin".into()).spawn(copy) {
            tracing::warn!(%error, "standard input could not be opened; the guest sees its end");
        }
        Self(Arc::new(Mutex::new(guest)))
    }
}

impl IsTerminal for FileInput {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdinStream for FileInput {
    fn async_stream(&self) -> Box<dyn AsyncRead + Send + Sync> {
        Box::new(Self(self.0.clone()))
    }
}

impl AsyncRead for FileInput {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let mut guest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Pin::new(&mut *guest).poll_read(context, buffer)
    }
}
