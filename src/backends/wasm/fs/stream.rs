//! Streams of preview 2 on files: writes are booked as any other, and a stream keeps its file open in the account.
//!
//! A component may close the descriptor and go on with the stream. The engine's own stream writes in the background;
//! here the guest's thread writes, so that booking and writing are one step under the account's turn.

use std::io::IoSlice;
use std::sync::Arc;

use bytes::Bytes;
use wasmtime_wasi::p2::{DynInputStream, InputStream, OutputStream, Pollable, StreamError, StreamResult};

use super::account::{Booking, Kind, Opened, Stat};
use super::files::Shared;

/// The most that is taken in one write, as the engine's own streams have it.
const WRITE_BYTES: usize = 64 << 10;

/// Writes to a file.
pub(super) struct FileWriter {
    pub(super) file: Arc<std::fs::File>,
    /// Where the next byte goes; nothing: to the end.
    pub(super) position: Option<u64>,
    /// For events.
    pub(super) path: String,
    pub(super) shared: Arc<Shared>,
    /// How its growth is booked, and its id.
    pub(super) booked: Option<(Booking, u64)>,
    pub(super) _open: Option<Opened>,
}

impl FileWriter {
    fn write_all(&mut self, bytes: &[u8]) -> Result<(), StreamError> {
        let shared = self.shared.clone();
        let failed = |error: std::io::Error| StreamError::LastOperationFailed(error.into());
        let _turn = self.booked.is_some().then(|| shared.account.turn());
        let metadata = self.file.metadata().map_err(failed)?;
        let begin = self.position.unwrap_or(metadata.len());
        let mut held = self.booked.map(|(booking, id)| {
            (booking, Stat { id, kind: Kind::File, size: metadata.len(), links: links(&metadata) })
        });
        let planned = begin.saturating_add(bytes.len() as u64).max(metadata.len());
        if let Some((booking, file)) = &mut held {
            let booked = shared.account.resize(*booking, file, planned);
            booked.map_err(|excess| StreamError::Trap(shared.exceed(&self.path, excess)))?;
            file.size = planned;
        }
        let mut rest = bytes;
        let mut result = Ok(());
        while !rest.is_empty() {
            let done = (bytes.len() - rest.len()) as u64;
            match write_some(&self.file, rest, self.position.map(|begin| begin.saturating_add(done))) {
                Ok(0) => result = Err(std::io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    rest = rest.get(count..).unwrap_or_default();
                    continue;
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => result = Err(error),
            }
            break;
        }
        let written = (bytes.len() - rest.len()) as u64;
        if let Some(position) = &mut self.position {
            *position = position.saturating_add(written);
        }
        if let Some((booking, file)) = &held {
            // Less than what was planned is given back, which is never refused.
            let _ = shared.account.resize(*booking, file, begin.saturating_add(written).max(metadata.len()));
        }
        result.map_err(failed)
    }
}

/// One write; at the end without a position. `RWF_APPEND` needs no change of the open file's own flags.
#[cfg(target_os = "linux")]
fn write_some(file: &std::fs::File, bytes: &[u8], position: Option<u64>) -> std::io::Result<usize> {
    use std::os::unix::fs::FileExt;
    match position {
        Some(position) => file.write_at(bytes, position),
        None => {
            let append = rustix::io::ReadWriteFlags::APPEND;
            match rustix::io::pwritev2(file, &[IoSlice::new(bytes)], 0, append) {
                // Some file systems have no such flag. Whoever else writes here waits for the account's turn.
                Err(rustix::io::Errno::NOSYS | rustix::io::Errno::NOTSUP) => {
                    file.write_at(bytes, file.metadata()?.len())
                }
                written => Ok(written?),
            }
        }
    }
}

#[cfg(all(unix, not(target_os = "linux")))]
fn write_some(file: &std::fs::File, bytes: &[u8], position: Option<u64>) -> std::io::Result<usize> {
    use std::os::unix::fs::FileExt;
    let end = file.metadata()?.len();
    file.write_at(bytes, position.unwrap_or(end))
}

#[cfg(windows)]
fn write_some(file: &std::fs::File, bytes: &[u8], position: Option<u64>) -> std::io::Result<usize> {
    use std::os::windows::fs::FileExt;
    let end = file.metadata()?.len();
    file.seek_write(bytes, position.unwrap_or(end))
}

#[cfg(unix)]
fn links(metadata: &std::fs::Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::nlink(metadata)
}

/// Elsewhere the number isn't to be had from an open file; a file with two names is then booked once.
#[cfg(not(unix))]
fn links(_metadata: &std::fs::Metadata) -> u64 {
    1
}

#[async_trait::async_trait]
impl OutputStream for FileWriter {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.write_all(&bytes)
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(WRITE_BYTES)
    }
}

#[async_trait::async_trait]
impl Pollable for FileWriter {
    async fn ready(&mut self) {}
}

/// Reads from a file; the engine's own stream, beside the note that the file is open.
pub(super) struct FileReader {
    pub(super) inner: DynInputStream,
    pub(super) _open: Option<Opened>,
}

#[async_trait::async_trait]
impl InputStream for FileReader {
    fn read(&mut self, size: usize) -> StreamResult<Bytes> {
        self.inner.read(size)
    }

    async fn blocking_read(&mut self, size: usize) -> StreamResult<Bytes> {
        self.inner.blocking_read(size).await
    }

    async fn cancel(&mut self) {
        self.inner.cancel().await;
    }
}

#[async_trait::async_trait]
impl Pollable for FileReader {
    async fn ready(&mut self) {
        self.inner.ready().await;
    }
}
