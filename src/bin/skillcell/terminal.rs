//! Writing to the two streams without falling over a closed pipe, and the log.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use skillcell::step::OutputConflict;

/// Warnings of the library (denials, leftovers) go to stderr; `SKILLCELL_LOG` changes the level, as `RUST_LOG` would.
pub(crate) fn start_logging() {
    let filter = tracing_subscriber::EnvFilter::try_from_env("SKILLCELL_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("skillcell=error"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(colours())
        .without_time()
        .init();
}

/// Whether stderr is a terminal that wants colours.
pub(crate) fn colours() -> bool {
    io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none()
}

/// Writes bytes to stdout. A reader that went away is no failure of ours.
pub(crate) fn print_bytes(bytes: &[u8]) -> ExitCode {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            note(&format!("could not write to stdout: {error}"));
            ExitCode::from(crate::exit::UNAVAILABLE)
        }
    }
}

/// Says something on stderr, one line, with the command's name before it.
pub(crate) fn note(text: &str) {
    let (bold, plain) = if colours() { ("\u{1b}[1m", "\u{1b}[0m") } else { ("", "") };
    // Nobody is left to tell when stderr is gone.
    let _ = writeln!(io::stderr().lock(), "{bold}skillcell:{plain} {text}");
}

/// Says where results are that could not be put where they were wanted.
pub(crate) fn note_conflict(conflict: &OutputConflict) {
    for file in &conflict.files {
        note(&format!("not replaced: {}", file.reason));
    }
    let unlisted = conflict.total.saturating_sub(conflict.files.len() as u64);
    if unlisted > 0 {
        note(&format!("not replaced: {unlisted} more"));
    }
    note(&format!("all results are in '{}' instead", conflict.folder.display()));
}

/// Foreign text for a line on the terminal. Quotes and backslashes stay, so that JSON can be read; what could move the
/// cursor, break the line or hide text is written out.
pub(crate) fn escaped(text: impl Iterator<Item = char>) -> String {
    let mut line = String::new();
    for c in text {
        match c {
            '"' | '\'' | '\\' => line.push(c),
            c => line.extend(c.escape_debug()),
        }
    }
    line
}
