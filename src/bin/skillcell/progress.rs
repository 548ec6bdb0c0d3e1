//! Progress on a terminal, for work that takes more than a second. Nothing is shown for quick work, and nothing at
//! all where stderr isn't a terminal.

use std::io::{IsTerminal, Write};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use skillcell::runtime::Progress;

/// Work shorter than this isn't worth a line.
const QUIET: Duration = Duration::from_secs(1);
/// How often the line is drawn anew.
const REDRAW: Duration = Duration::from_millis(200);

/// One line on stderr that says what is going on and for how long.
pub(crate) struct TerminalProgress {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    work: Option<(String, Instant)>,
    painter_runs: bool,
}

impl TerminalProgress {
    pub(crate) fn new() -> Self {
        Self { shared: Arc::default() }
    }
}

impl Progress for TerminalProgress {
    fn working(&self, what: &str) {
        if !std::io::stderr().is_terminal() {
            return;
        }
        let mut state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        let started = state.work.as_ref().map_or_else(Instant::now, |(_, started)| *started);
        state.work = Some((what.to_owned(), started));
        if !state.painter_runs {
            state.painter_runs = true;
            let shared = self.shared.clone();
            std::thread::spawn(move || paint(&shared));
        }
        self.shared.changed.notify_all();
    }

    fn done(&self) {
        let mut state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.work = None;
        self.shared.changed.notify_all();
        // The line must be gone before the script's output comes.
        while state.painter_runs {
            state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Draws the line until the work is done, then wipes it.
fn paint(shared: &Shared) {
    let mut drawn = false;
    let mut state = shared.state.lock().unwrap_or_else(PoisonError::into_inner);
    while let Some((what, started)) = &state.work {
        let elapsed = started.elapsed();
        if elapsed >= QUIET {
            let line: String = what.chars().filter(|c| !c.is_control()).take(60).collect();
            let _ = write!(std::io::stderr(), "\r\u{1b}[K{line} ({}s)", elapsed.as_secs());
            drawn = true;
        }
        let wait = if drawn { REDRAW } else { QUIET.saturating_sub(elapsed) };
        state = shared.changed.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0;
    }
    if drawn {
        let _ = write!(std::io::stderr(), "\r\u{1b}[K");
    }
    state.painter_runs = false;
    shared.changed.notify_all();
}
