//! Asks the person at the terminal before a call that changes something.
//!
//! Invariants: only a `y` or `yes` typed after the question is a yes; without a terminal nobody can say it, so the answer
//! is no; what is asked about is shown escaped, so that it can't paint over the question.

use std::io::{BufRead, IsTerminal};
use std::sync::Arc;

use async_trait::async_trait;
use clap::ValueEnum;
use skillcell::agent::{Approval, Approver, ProposedCall};
use tokio::sync::{Mutex, mpsc};

use crate::terminal;

/// Characters of a call that are shown; a person doesn't read more, and the rest is counted.
const SHOWN_CHARS: usize = 4_000;
/// Lines that may wait to be read. What is typed before a question is no answer to it.
const WAITING_LINES: usize = 16;

/// Who says yes to calls that change something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum ApproveMode {
    /// Every call is done: the sandbox is the limit
    #[default]
    Always,
    /// The person at the terminal is asked before each call; without a terminal the answer is no
    Ask,
    /// No call is done: the model can only read
    Never,
}

impl ApproveMode {
    pub(crate) fn approver(self) -> Option<Arc<dyn Approver>> {
        match self {
            Self::Always => None,
            Self::Ask => Some(Arc::new(AtTerminal::default())),
            Self::Never => Some(Arc::new(Nobody)),
        }
    }
}

struct Nobody;

#[async_trait]
impl Approver for Nobody {
    async fn approve(&self, _call: &ProposedCall) -> Approval {
        Approval::Rejected("calls that change something are switched off (--approve never)".to_owned())
    }
}

/// The lines that come from the terminal, read by a thread of its own: a read can't be given up, and the end of the
/// process doesn't wait for a thread.
#[derive(Default)]
struct AtTerminal(Mutex<Option<mpsc::Receiver<String>>>);

fn lines() -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel(WAITING_LINES);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if sender.blocking_send(line).is_err() {
                break;
            }
        }
    });
    receiver
}

#[async_trait]
impl Approver for AtTerminal {
    async fn approve(&self, call: &ProposedCall) -> Approval {
        if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
            return Approval::Rejected("nobody can be asked: this is no terminal (--approve ask)".to_owned());
        }
        let mut lines_of = self.0.lock().await;
        let waiting = lines_of.get_or_insert_with(lines);
        while waiting.try_recv().is_ok() {}
        terminal::note(&format!("the model asks for {} {}", call.tool, shown(&call.arguments)));
        terminal::note("do it? Type y and Enter for yes, anything else for no");
        match waiting.recv().await {
            Some(answer) if matches!(answer.trim(), "y" | "Y" | "yes" | "Yes") => Approval::Approved,
            Some(_) => Approval::Rejected("the person at the terminal said no".to_owned()),
            None => Approval::Rejected("the terminal was closed".to_owned()),
        }
    }
}

fn shown(arguments: &str) -> String {
    let all = arguments.chars().count();
    let mut text = terminal::escaped(arguments.chars().take(SHOWN_CHARS));
    if all > SHOWN_CHARS {
        text.push_str(&format!(" … and {} more characters", all - SHOWN_CHARS));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_shown_whole_or_said_to_be_longer_and_paints_nothing() {
        assert_eq!(shown(r#"{"a":"b\n"}"#), r#"{"a":"b\n"}"#);
        assert_eq!(shown("\u{1b}[2K\r\u{202e}x\u{200b}"), "\\u{1b}[2K\\r\\u{202e}x\\u{200b}");
        let long = shown(&"x".repeat(SHOWN_CHARS + 7));
        assert!(long.ends_with("x … and 7 more characters"), "{long}");
    }
}
