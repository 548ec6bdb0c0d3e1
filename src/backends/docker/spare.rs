//! A supervisor that waits for its run: starting an exec takes the daemon tens of milliseconds, handing a request to one
//! that is there already takes none.
//!
//! From the second run of a handle on, each run that ends has the next supervisor started in the background. It is `init
//! run` like any other, with a group id of its own, and does nothing before it has its request; nothing of a run is known
//! to it earlier. Invariant: a supervisor serves one run. One that has ended, said something, or belongs to another
//! container is dropped, which ends it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::{FutureExt, StreamExt};

use super::exec::{Exec, start_exec};
use super::session::{Live, Session};

/// Runs of a handle before another one is expected: most handles have one.
const RUNS_BEFORE: u32 = 2;

/// A supervisor that waits.
pub(super) struct Spare {
    live: Arc<Live>,
    pub(super) exec: Exec,
    pub(super) group: u32,
}

impl Session {
    /// The waiting supervisor of this container, if it still waits.
    pub(super) fn take_spare(&self, live: &Arc<Live>) -> Option<Spare> {
        let mut spare = self.spare().take()?;
        // Anything at all means that it doesn't wait any more.
        let waits = Arc::ptr_eq(&spare.live, live) && spare.exec.output.next().now_or_never().is_none();
        waits.then_some(spare)
    }

    /// Starts the next supervisor in the background, where another run may be expected.
    pub(super) fn expect_another(self: &Arc<Self>) {
        if self.groups_given() < RUNS_BEFORE || self.closed.load(Ordering::Acquire) || self.spare().is_some() {
            return;
        }
        let session = self.clone();
        tokio::spawn(async move {
            let Ok(live) = session.current().await else { return };
            let group = session.next_group();
            match start_exec(&session, &live.id, "run", group).await {
                Ok(exec) => {
                    let mut spare = session.spare();
                    // Looked at under the lock, since the closing takes what is here after it said so. Dropping the
                    // exec ends it.
                    if !session.closed.load(Ordering::Acquire) {
                        *spare = Some(Spare { live, exec, group });
                    }
                }
                // The next run starts its own, and says what is wrong.
                Err(error) => tracing::debug!(error = %error, "no supervisor could be started ahead of its run"),
            }
        });
    }
}
