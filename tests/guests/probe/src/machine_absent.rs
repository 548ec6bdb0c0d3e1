//! Where there are no processes: every step that needs one is absent.

use std::io;

use crate::Outcome;

/// The verbs of `machine.rs`.
const VERBS: [&str; 26] = [
    "fifo",
    "device",
    "socket-file",
    "mode",
    "owner",
    "linger",
    "hold",
    "relay",
    "free",
    "child",
    "children",
    "threads",
    "crowd",
    "signal",
    "trace",
    "peek",
    "take-descriptor",
    "unshare",
    "enter",
    "mount",
    "root",
    "become",
    "descriptors",
    "terminal",
    "unix",
    "raw",
];

/// Answers every verb that `machine.rs` knows; `None` for others.
pub fn attempt(verb: &str, _operands: &[String]) -> Option<Outcome> {
    VERBS.contains(&verb).then(|| Err(io::Error::from(io::ErrorKind::Unsupported)))
}
