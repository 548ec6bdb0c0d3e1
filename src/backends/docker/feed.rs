//! What goes into a run: the request, then the guest's standard input in frames, then silence until the run ends.
//!
//! The silence matters: the end of this stream tells the init to kill the run.

use std::io::Read;
use std::sync::Arc;

use bytes::Bytes;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};

use super::exec::Input;
use super::init::protocol::MAX_FRAME;
use crate::runtime::Stdin;

/// Feeds until told to stop, then closes the stream. An error of the stream ends it silently: the output's end tells
/// more.
pub(super) async fn feed(mut input: Input, request: Vec<u8>, stdin: Stdin, mut stopped: oneshot::Receiver<()>) {
    let stop = &mut stopped;
    let told = tokio::select! {
        _ = &mut *stop => true,
        _ = send(&mut input, &request, stdin) => false,
    };
    if !told {
        let _ = stop.await;
    }
    let _ = input.shutdown().await;
}

async fn send<W: AsyncWrite + Unpin>(input: &mut W, request: &[u8], stdin: Stdin) -> std::io::Result<()> {
    input.write_all(request).await?;
    match stdin {
        Stdin::Closed => {}
        Stdin::Bytes(bytes) => {
            for piece in bytes.chunks(MAX_FRAME) {
                frame(input, piece).await?;
            }
            frame(input, &[]).await?;
        }
        Stdin::File(file) => {
            let mut pieces = read_in_thread(file);
            while let Some(piece) = pieces.recv().await {
                frame(input, &piece).await?;
            }
            frame(input, &[]).await?;
        }
    }
    input.flush().await
}

async fn frame<W: AsyncWrite + Unpin>(input: &mut W, piece: &[u8]) -> std::io::Result<()> {
    let length = u32::try_from(piece.len()).map_err(std::io::Error::other)?;
    input.write_all(&length.to_be_bytes()).await?;
    input.write_all(piece).await?;
    input.flush().await
}

/// Reads a file that may block for ever (a terminal, a pipe). A thread of its own: one of the async runtime's would
/// hold up the program's end. It ends with the file, or at its next piece after the run has ended.
fn read_in_thread<F: Send + Sync + 'static>(file: Arc<F>) -> mpsc::Receiver<Bytes>
where
    for<'a> &'a F: Read,
{
    let (pieces, received) = mpsc::channel(1);
    std::thread::spawn(move || {
        let mut buffer = vec![0; MAX_FRAME];
        loop {
            match (&*file).read(&mut buffer) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Ok(0) | Err(_) => return,
                Ok(count) => {
                    let piece = Bytes::copy_from_slice(buffer.get(..count).unwrap_or_default());
                    if pieces.blocking_send(piece).is_err() {
                        return;
                    }
                }
            }
        }
    });
    received
}
