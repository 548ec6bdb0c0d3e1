//! [`Cancel`]: how a caller ends a step that runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// Ends the step it was given to; clones are the same switch. Once fired it stays fired.
#[derive(Debug, Clone, Default)]
pub struct Cancel(Arc<State>);

#[derive(Debug, Default)]
struct State {
    fired: AtomicBool,
    woken: Notify,
}

impl Cancel {
    /// Ends the step: the script is killed, everything made for it is removed, and the result says that it was cancelled.
    pub fn fire(&self) {
        self.0.fired.store(true, Ordering::SeqCst);
        self.0.woken.notify_waiters();
    }

    /// Ready once it is fired.
    pub(super) async fn wait(&self) {
        // Registered before the look, so that a call of `fire` in between isn't missed.
        let woken = self.0.woken.notified();
        tokio::pin!(woken);
        woken.as_mut().enable();
        if !self.0.fired.load(Ordering::SeqCst) {
            woken.await;
        }
    }
}
