//! The seam over the file calls of WASI: every call of a guest that opens, writes, makes, moves or removes something
//! passes here, on both previews, before the engine's own implementation does the work.
//!
//! `guard.rs` leads each call, once for both; `rules.rs` says what is refused; `preview1.rs` and `preview2.rs` only
//! translate; `account.rs` keeps what lies in the writable parts; `census.rs` counts it when a run begins.
//!
//! Invariants: what guests leave in the workspace never exceeds the policy's bytes and files, and no folder lies deeper than the host
//! collects and removes; a refused call is one audit event, written before the guest has its answer.

mod account;
mod census;
mod files;
mod guard;
mod preview1;
mod preview2;
mod rules;
mod stream;

use std::task::{Context, Poll, Waker};

pub(super) use self::account::Account;
pub(super) use self::files::{Access, Files, HostFolder, Mount, Removal};
pub(super) use self::preview2::GuardedFiles;

/// The result of a file call. Such calls never wait: the guest has a thread of its own, on which they block
/// (`allow_blocking_current_thread`). So a decision, the call and its bookkeeping can be one step under one lock.
fn now<T>(call: impl Future<Output = T>) -> wasmtime::Result<T> {
    let call = std::pin::pin!(call);
    match call.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => Ok(result),
        Poll::Pending => Err(wasmtime::Error::msg("a file call waits, which it must not; please report it")),
    }
}
