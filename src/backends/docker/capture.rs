//! What comes out of a run: both streams, bounded, and the init's report at the end of standard error.

use std::sync::Arc;

use bollard::container::LogOutput;

use super::init::protocol::{NONCE_LEN, REPORT_LEN, Report};
use crate::policy::Limits;
use crate::runtime::{CapturedOutput, OutputCapture, OutputSink, Stream};

/// Whether the supervisor has its request. It says so before anything of the guest's exists, so nobody else can.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Acceptance {
    Open,
    Given,
    /// Something else was said first: the daemon's own words.
    Refused,
}

/// Both streams of one run.
pub(super) struct Streams {
    stdout: OutputCapture,
    stderr: OutputCapture,
    /// The last bytes of standard error: they may be the report, so nobody has heard them yet.
    held: Vec<u8>,
    nonce: [u8; NONCE_LEN],
    /// The first bytes of standard error, until they are as many as the acceptance has.
    first: Vec<u8>,
    accepted: Acceptance,
    limit: u64,
    sink: Option<Arc<dyn OutputSink>>,
}

impl Streams {
    pub(super) fn new(limits: &Limits, nonce: [u8; NONCE_LEN], sink: Option<Arc<dyn OutputSink>>) -> Self {
        Self {
            stdout: OutputCapture::new(limits.output_kept),
            stderr: OutputCapture::new(limits.output_kept),
            held: Vec::new(),
            nonce,
            first: Vec::new(),
            accepted: Acceptance::Open,
            limit: limits.output,
            sink,
        }
    }

    /// Takes a piece as the daemon sends it.
    pub(super) fn push(&mut self, piece: &LogOutput) {
        match piece {
            LogOutput::StdOut { message } => {
                self.stdout.push(message);
                self.tell(Stream::Stdout, message);
            }
            LogOutput::StdErr { message } => {
                self.take(message);
                self.release(REPORT_LEN);
            }
            // Not the streams of a run: an echo of its input, or bytes that are no frame of the protocol.
            LogOutput::StdIn { .. } | LogOutput::Console { .. } => {}
        }
    }

    /// Takes standard error, less the acceptance at its beginning.
    fn take(&mut self, message: &[u8]) {
        if self.accepted != Acceptance::Open {
            self.held.extend_from_slice(message);
            return;
        }
        self.first.extend_from_slice(message);
        if let Some((said, rest)) = self.first.split_at_checked(NONCE_LEN) {
            if said == self.nonce {
                self.accepted = Acceptance::Given;
                self.held.extend_from_slice(rest);
            } else {
                self.accepted = Acceptance::Refused;
                self.held.append(&mut self.first);
            }
        }
    }

    /// Whether the supervisor had its request: without that, nothing was started.
    pub(super) fn accepted(&self) -> bool {
        self.accepted == Acceptance::Given
    }

    /// Lets go of all held bytes but the last `keep`.
    fn release(&mut self, keep: usize) {
        let count = self.held.len().saturating_sub(keep);
        let free: Vec<u8> = self.held.drain(..count).collect();
        self.stderr.push(&free);
        self.tell(Stream::Stderr, &free);
    }

    fn tell(&self, stream: Stream, bytes: &[u8]) {
        if let Some(sink) = self.sink.as_ref().filter(|_| !bytes.is_empty()) {
            sink.write(stream, bytes);
        }
    }

    /// Whether the run wrote more than it may.
    pub(super) fn over_limit(&self) -> bool {
        self.stdout.total().saturating_add(self.stderr.total()) > self.limit
    }

    /// Whether the report is there: the run has ended, and only the daemon's own end of it is to come.
    pub(super) fn reported(&self) -> bool {
        Report::decode(&self.held, self.nonce).is_some()
    }

    /// The end: both streams, and the report if there is one.
    pub(super) fn finish(mut self) -> (CapturedOutput, CapturedOutput, Option<Report>) {
        let report = Report::decode(&self.held, self.nonce);
        if self.accepted == Acceptance::Open {
            self.held.append(&mut self.first);
        }
        if report.is_none() {
            self.release(0);
        }
        (self.stdout.snapshot(), self.stderr.snapshot(), report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::docker::init::protocol::Outcome;

    fn streams() -> Streams {
        Streams::new(&Limits { output: 200, ..Limits::default() }, [1; NONCE_LEN], None)
    }

    fn stderr(bytes: &[u8]) -> LogOutput {
        LogOutput::StdErr { message: bytes.to_vec().into() }
    }

    #[test]
    fn the_report_is_taken_off_however_it_arrives_and_a_forged_one_is_output() {
        let report =
            Report { outcome: Outcome::Exited(1), out_of_memory: false, cpu_micros: 1, peak_kib: 2, survivors: false };
        let mut all = vec![1; NONCE_LEN];
        all.extend_from_slice(&report.encode([2; NONCE_LEN]));
        all.extend_from_slice(&report.encode([1; NONCE_LEN]));
        for size in 1..all.len() {
            let mut streams = streams();
            all.chunks(size).for_each(|piece| streams.push(&stderr(piece)));
            let (_, kept, found) = streams.finish();
            assert_eq!((kept.head(), found), (&report.encode([2; NONCE_LEN])[..], Some(report)), "{size}");
        }
        let mut streams = streams();
        streams.push(&stderr(b"last words"));
        assert!(!streams.accepted());
        assert_eq!(streams.finish(), (CapturedOutput::default(), CapturedOutput::whole(b"last words".to_vec()), None));
    }

    #[test]
    fn both_streams_count_towards_the_limit() {
        let mut streams = streams();
        streams.push(&stderr(&[1; NONCE_LEN]));
        assert!(streams.accepted());
        streams.push(&LogOutput::StdOut { message: vec![b'x'; 150].into() });
        streams.push(&stderr(&[b'y'; 50 + REPORT_LEN]));
        assert!(!streams.over_limit());
        streams.push(&stderr(b"z"));
        assert!(streams.over_limit());
    }
}
