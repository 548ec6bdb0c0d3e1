//! Ending a guest from outside: [`Interrupt`], and the one clock thread that fires them at their deadlines.
//!
//! A guest that computes hears an interrupt by its epoch; one that waits in a host call hears it by a notification.
//! The thread sleeps until the earliest deadline instead of ticking, so an idle process does no work and a limit is
//! overshot by a wake-up, not by a tick.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use tokio::sync::Notify;
use wasmtime::Engine;

use crate::error::{Result, SkillRuntimeError};

/// Why a guest was ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reason {
    /// Its time was up.
    Deadline,
    /// Nobody waits for it any more.
    Cancelled,
}

const NOT_FIRED: u8 = 0;

/// Ends one guest; the first reason counts.
pub(super) struct Interrupt {
    engine: Engine,
    reason: AtomicU8,
    woken: Notify,
}

impl Interrupt {
    pub(super) fn new(engine: Engine) -> Arc<Self> {
        Arc::new(Self { engine, reason: AtomicU8::new(NOT_FIRED), woken: Notify::new() })
    }

    /// Ends the guest. Later reasons change nothing.
    pub(super) fn fire(&self, reason: Reason) {
        let code = match reason {
            Reason::Deadline => 1,
            Reason::Cancelled => 2,
        };
        if self.reason.compare_exchange(NOT_FIRED, code, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            // Every guest of the engine looks at its own interrupt and goes on if it isn't meant.
            self.engine.increment_epoch();
            self.woken.notify_one();
        }
    }

    pub(super) fn fired(&self) -> Option<Reason> {
        match self.reason.load(Ordering::SeqCst) {
            1 => Some(Reason::Deadline),
            2 => Some(Reason::Cancelled),
            _ => None,
        }
    }

    /// Waits until it is fired.
    pub(super) async fn wait(&self) {
        while self.fired().is_none() {
            self.woken.notified().await;
        }
    }
}

/// Deadlines to come, earliest first. The number tells two at the same instant apart.
#[derive(Default)]
struct Deadlines {
    waiting: BTreeMap<(Instant, u64), Arc<Interrupt>>,
    next: u64,
    started: bool,
}

struct Clock {
    deadlines: Mutex<Deadlines>,
    changed: Condvar,
}

fn clock() -> &'static Clock {
    static CLOCK: OnceLock<Clock> = OnceLock::new();
    CLOCK.get_or_init(|| Clock { deadlines: Mutex::default(), changed: Condvar::new() })
}

/// Takes a deadline back when it is dropped.
pub(super) struct Deadline {
    key: (Instant, u64),
}

impl Deadline {
    /// Fires `interrupt` at `at`, unless the returned value is dropped before.
    ///
    /// # Errors
    /// [`Backend`](crate::ErrorKind::Backend) when the clock thread can't be started: without it no limit would hold.
    pub(super) fn set(at: Instant, interrupt: Arc<Interrupt>) -> Result<Self> {
        let clock = clock();
        let mut deadlines = clock.deadlines.lock().unwrap_or_else(PoisonError::into_inner);
        if !deadlines.started {
            std::thread::Builder::new().name("skillcell-clock".into()).spawn(|| keep(clock)).map_err(|error| {
                SkillRuntimeError::backend("the clock thread of the WebAssembly engine could not start", error)
            })?;
            deadlines.started = true;
        }
        let key = (at, deadlines.next);
        deadlines.next += 1;
        let is_first = deadlines.waiting.first_key_value().is_none_or(|(first, _)| key < *first);
        deadlines.waiting.insert(key, interrupt);
        drop(deadlines);
        if is_first {
            clock.changed.notify_one();
        }
        Ok(Self { key })
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        clock().deadlines.lock().unwrap_or_else(PoisonError::into_inner).waiting.remove(&self.key);
    }
}

/// The clock thread: fires what is due, sleeps until the next.
fn keep(clock: &'static Clock) {
    let mut deadlines = clock.deadlines.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let now = Instant::now();
        match deadlines.waiting.first_key_value().map(|((at, _), _)| *at) {
            None => deadlines = clock.changed.wait(deadlines).unwrap_or_else(PoisonError::into_inner),
            Some(at) if at > now => {
                deadlines = clock.changed.wait_timeout(deadlines, at - now).unwrap_or_else(PoisonError::into_inner).0;
            }
            Some(_) => {
                if let Some((_, interrupt)) = deadlines.waiting.pop_first() {
                    interrupt.fire(Reason::Deadline);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_earliest_fires_first_and_a_dropped_one_never() {
        let engine = Engine::default();
        let [late, soon, dropped] = [(); 3].map(|()| Interrupt::new(engine.clone()));
        let now = Instant::now();
        let _late = Deadline::set(now + Duration::from_secs(3600), late.clone()).unwrap();
        drop(Deadline::set(now + Duration::from_millis(1), dropped.clone()).unwrap());
        let _soon = Deadline::set(now + Duration::from_millis(2), soon.clone()).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(soon.wait());
        assert_eq!((late.fired(), soon.fired(), dropped.fired()), (None, Some(Reason::Deadline), None));
        soon.fire(Reason::Cancelled);
        assert_eq!(soon.fired(), Some(Reason::Deadline), "the first reason counts");
    }
}
