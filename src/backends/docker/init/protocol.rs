//! What the host and the init in the container say to each other. Compiled into both, so that they can't differ.
//!
//! Host to init, on the exec's standard input: one [`Request`], then frames of the guest's standard input, each a
//! length and that many bytes; length 0 is the end of the guest's input. *The end of the stream itself means: kill
//! everything.* So a host that dies, disconnects or drops the future of a run ends the run without a further call.
//!
//! Init to host: one [`Report`], the very last bytes on standard error. It begins with the request's nonce, which the
//! guest can't read (it is on no command line, in no environment, and the init's memory is closed to the guest), so a
//! guest can't forge it; a stream that ends without one says that the init was killed.
//!
//! Nothing here may use a crate or a path of the library: the init is compiled alone.

/// Bytes of the secret that makes a report genuine: 128 bits can't be guessed.
pub(crate) const NONCE_LEN: usize = 16;
/// Bytes of a report.
pub(crate) const REPORT_LEN: usize = NONCE_LEN + 1 + 4 + 1 + 8 + 8 + 1;
/// The most bytes of a request: a megabyte of arguments, one of environment, and the lengths between them.
pub(crate) const MAX_REQUEST: usize = 4 << 20;
/// The most bytes of one frame of standard input: a pipe holds no more at once.
pub(crate) const MAX_FRAME: usize = 64 << 10;
/// What `init kill` prints when no process of the run is left.
pub(crate) const ALL_GONE: &[u8] = b"gone";

/// Entries of one folder that `init file` lists; a guest can make millions. As in the workspace.
pub(crate) const MAX_LISTED: usize = 10_000;

/// What an entry of a folder is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EntryKind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// A symbolic link.
    Link,
    /// A pipe, socket or device.
    Special,
}

/// One entry of a folder, as `init file list` writes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    /// What it is.
    pub(crate) kind: EntryKind,
    /// Bytes, for files.
    pub(crate) size: u64,
    /// Its name.
    pub(crate) name: String,
}

impl Entry {
    /// Appends the entry.
    pub(crate) fn put(&self, bytes: &mut Vec<u8>) {
        bytes.push(match self.kind {
            EntryKind::File => 0,
            EntryKind::Folder => 1,
            EntryKind::Link => 2,
            EntryKind::Special => 3,
        });
        bytes.extend_from_slice(&self.size.to_be_bytes());
        // Names are at most 255 bytes.
        let _ = put(bytes, &self.name);
    }

    /// Reads all entries of an answer.
    pub(crate) fn all(mut answer: &[u8]) -> Option<Vec<Self>> {
        let mut entries = Vec::new();
        while !answer.is_empty() {
            let kind = match take(&mut answer, 1)?.first()? {
                0 => EntryKind::File,
                1 => EntryKind::Folder,
                2 => EntryKind::Link,
                3 => EntryKind::Special,
                _ => return None,
            };
            let size = u64::from_be_bytes(take(&mut answer, 8)?.try_into().ok()?);
            entries.push(Self { kind, size, name: text(&mut answer)? });
        }
        Some(entries)
    }
}

/// What to run.
#[derive(Clone, PartialEq, Eq)]
#[cfg_attr(test, derive(Debug))]
pub(crate) struct Request {
    /// Goes into the report.
    pub(crate) nonce: [u8; NONCE_LEN],
    /// The current folder.
    pub(crate) cwd: String,
    /// The program and its arguments.
    pub(crate) argv: Vec<String>,
    /// The environment, complete.
    pub(crate) env: Vec<(String, String)>,
    /// Whether frames of standard input follow; otherwise it is closed.
    pub(crate) stdin: bool,
    /// Processor seconds each process may use; 0 for no limit.
    pub(crate) cpu_seconds: u64,
}

impl Request {
    /// The bytes to send: a length and the request. `None` when it is too large to be read back.
    pub(crate) fn encode(&self) -> Option<Vec<u8>> {
        let mut body = self.nonce.to_vec();
        body.push(u8::from(self.stdin));
        body.extend_from_slice(&self.cpu_seconds.to_be_bytes());
        put(&mut body, &self.cwd)?;
        body.extend_from_slice(&u32::try_from(self.argv.len()).ok()?.to_be_bytes());
        for argument in &self.argv {
            put(&mut body, argument)?;
        }
        body.extend_from_slice(&u32::try_from(self.env.len()).ok()?.to_be_bytes());
        for (name, value) in &self.env {
            put(&mut body, name)?;
            put(&mut body, value)?;
        }
        if body.len() > MAX_REQUEST {
            return None;
        }
        let mut bytes = u32::try_from(body.len()).ok()?.to_be_bytes().to_vec();
        bytes.append(&mut body);
        Some(bytes)
    }

    /// Reads the body of a request (without its length).
    pub(crate) fn decode(body: &[u8]) -> Option<Self> {
        let mut rest = body;
        let nonce = take(&mut rest, NONCE_LEN)?.try_into().ok()?;
        let stdin = take(&mut rest, 1)?.first() == Some(&1);
        let cpu_seconds = u64::from_be_bytes(take(&mut rest, 8)?.try_into().ok()?);
        let cwd = text(&mut rest)?;
        let argv = (0..length(&mut rest)?).map(|_| text(&mut rest)).collect::<Option<Vec<_>>>()?;
        let env =
            (0..length(&mut rest)?).map(|_| Some((text(&mut rest)?, text(&mut rest)?))).collect::<Option<Vec<_>>>()?;
        rest.is_empty().then_some(Self { nonce, cwd, argv, env, stdin, cpu_seconds })
    }
}

/// How the run's first process ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// With this status.
    Exited(i32),
    /// By this signal.
    Signaled(i32),
    /// It could not be started: the number of the system's error.
    NotStarted(i32),
    /// Its current folder could not be entered: the number of the system's error.
    NoFolder(i32),
    /// The host asked for the end.
    Killed,
}

/// What came of a run, as the init saw it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Report {
    /// How the first process ended.
    pub(crate) outcome: Outcome,
    /// Whether the kernel killed something in the container for want of memory while this ran.
    pub(crate) out_of_memory: bool,
    /// Processor time of every process of the run, in microseconds.
    pub(crate) cpu_micros: u64,
    /// The largest resident set of any process of the run, in KiB.
    pub(crate) peak_kib: u64,
    /// Whether processes of the run are left that could not be killed.
    pub(crate) survivors: bool,
}

impl Report {
    /// The bytes, beginning with the nonce.
    pub(crate) fn encode(&self, nonce: [u8; NONCE_LEN]) -> [u8; REPORT_LEN] {
        let (kind, value) = match self.outcome {
            Outcome::Exited(code) => (0, code),
            Outcome::Signaled(signal) => (1, signal),
            Outcome::NotStarted(errno) => (2, errno),
            Outcome::Killed => (3, 0),
            Outcome::NoFolder(errno) => (4, errno),
        };
        let mut bytes = Vec::with_capacity(REPORT_LEN);
        bytes.extend_from_slice(&nonce);
        bytes.push(kind);
        bytes.extend_from_slice(&value.to_be_bytes());
        bytes.push(u8::from(self.out_of_memory));
        bytes.extend_from_slice(&self.cpu_micros.to_be_bytes());
        bytes.extend_from_slice(&self.peak_kib.to_be_bytes());
        bytes.push(u8::from(self.survivors));
        let mut report = [0; REPORT_LEN];
        report.copy_from_slice(&bytes);
        report
    }

    /// Reads a report if the bytes are one with this nonce.
    pub(crate) fn decode(bytes: &[u8], nonce: [u8; NONCE_LEN]) -> Option<Self> {
        let mut rest = bytes;
        if take(&mut rest, NONCE_LEN)? != nonce {
            return None;
        }
        let kind = *take(&mut rest, 1)?.first()?;
        let value = i32::from_be_bytes(take(&mut rest, 4)?.try_into().ok()?);
        let outcome = match kind {
            0 => Outcome::Exited(value),
            1 => Outcome::Signaled(value),
            2 => Outcome::NotStarted(value),
            3 => Outcome::Killed,
            4 => Outcome::NoFolder(value),
            _ => return None,
        };
        let out_of_memory = take(&mut rest, 1)?.first() == Some(&1);
        let cpu_micros = u64::from_be_bytes(take(&mut rest, 8)?.try_into().ok()?);
        let peak_kib = u64::from_be_bytes(take(&mut rest, 8)?.try_into().ok()?);
        let survivors = take(&mut rest, 1)?.first() == Some(&1);
        rest.is_empty().then_some(Self { outcome, out_of_memory, cpu_micros, peak_kib, survivors })
    }
}

fn put(bytes: &mut Vec<u8>, text: &str) -> Option<()> {
    bytes.extend_from_slice(&u32::try_from(text.len()).ok()?.to_be_bytes());
    bytes.extend_from_slice(text.as_bytes());
    Some(())
}

fn take<'a>(rest: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(count)?;
    *rest = left;
    Some(taken)
}

fn length(rest: &mut &[u8]) -> Option<usize> {
    usize::try_from(u32::from_be_bytes(take(rest, 4)?.try_into().ok()?)).ok()
}

fn text(rest: &mut &[u8]) -> Option<String> {
    let count = length(rest)?;
    String::from_utf8(take(rest, count)?.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_survives_the_way_and_a_damaged_one_is_refused() {
        let request = Request {
            nonce: [7; NONCE_LEN],
            cwd: "/workspace/skill".into(),
            argv: vec!["python3".into(), String::new(), "a b\n'ü".into()],
            env: vec![("A".into(), "=x".into()), ("B".into(), String::new())],
            stdin: true,
            cpu_seconds: 3,
        };
        let bytes = request.encode().unwrap();
        assert_eq!(u32::from_be_bytes(bytes[..4].try_into().unwrap()) as usize, bytes.len() - 4);
        assert_eq!(Request::decode(&bytes[4..]), Some(request));
        for cut in 4..bytes.len() {
            assert_eq!(Request::decode(&bytes[4..cut]), None, "{cut}");
        }
        // A count of arguments that no message could hold must not be believed.
        let mut lying = bytes[4..].to_vec();
        let count = NONCE_LEN + 1 + 8 + 4 + "/workspace/skill".len();
        lying[count..count + 4].copy_from_slice(&u32::MAX.to_be_bytes());
        assert_eq!(Request::decode(&lying), None);
    }

    #[test]
    fn a_listing_survives_the_way() {
        let entries =
            [("a", EntryKind::File), ("ü b", EntryKind::Folder), ("", EntryKind::Link), ("d", EntryKind::Special)]
                .map(|(name, kind)| Entry { kind, size: 1 << 40, name: name.into() });
        let mut bytes = Vec::new();
        entries.iter().for_each(|entry| entry.put(&mut bytes));
        assert_eq!(Entry::all(&bytes), Some(entries.to_vec()));
        assert_eq!(Entry::all(&bytes[..bytes.len() - 1]), None);
    }

    #[test]
    fn a_report_needs_the_nonce() {
        for outcome in
            [Outcome::Exited(125), Outcome::Signaled(9), Outcome::NotStarted(2), Outcome::NoFolder(13), Outcome::Killed]
        {
            let report = Report { outcome, out_of_memory: true, cpu_micros: 5, peak_kib: 1 << 40, survivors: false };
            let bytes = report.encode([1; NONCE_LEN]);
            assert_eq!(Report::decode(&bytes, [1; NONCE_LEN]), Some(report));
            assert_eq!(Report::decode(&bytes, [2; NONCE_LEN]), None);
            assert_eq!(Report::decode(&bytes[..REPORT_LEN - 1], [1; NONCE_LEN]), None);
        }
    }
}
