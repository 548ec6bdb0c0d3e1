//! Fresh processes: how long from start to end, how much processor time, how much memory.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::table::Sample;

/// A command line.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub(crate) words: Vec<String>,
    pub(crate) variables: Vec<(&'static str, PathBuf)>,
}

impl Line {
    pub(crate) fn new(words: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { words: words.into_iter().map(Into::into).collect(), variables: Vec::new() }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Starts it and waits for its end. `prints`: what must come of it, where something must.
    #[expect(clippy::zombie_processes, reason = "it is waited for together with its usage, or the benchmark ends")]
    pub(crate) fn run(&self, prints: Option<&str>) -> Sample {
        let started = Instant::now();
        let mut child = self.command().spawn().unwrap_or_else(|error| panic!("{}: {error}", self.words[0]));
        // Small outputs: they fit into the pipes.
        let (mut out, mut told) = (String::new(), String::new());
        child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        child.stderr.take().unwrap().read_to_string(&mut told).unwrap();
        let cpu = reap(child.id());
        let wall = started.elapsed();
        if let Some(prints) = prints {
            assert_eq!(out, prints, "{:?}: {told}", self.words);
        }
        Sample { wall, cpu }
    }

    /// Starts it, waits until it says "ready", and reads its private and its highest resident memory, in bytes.
    pub(crate) fn memory(&self) -> (u64, u64) {
        let mut child = self.command().spawn().unwrap();
        let mut ready = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut ready).unwrap();
        assert_eq!(ready, "ready\n", "{:?}", self.words);
        let found = (private_memory(child.id()), field(child.id(), "status", &["VmHWM:"]));
        child.wait().unwrap();
        found
    }
}

/// Waits for a child and gives its processor time, its own children's included.
fn reap(process: u32) -> Duration {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    let process = libc::pid_t::try_from(process).unwrap();
    // SAFETY: the pointers are valid, and zeroes are a valid `rusage`.
    #[expect(unsafe_code, reason = "nothing safer tells a single child's processor time to the microsecond")]
    let usage = unsafe {
        assert_eq!(libc::wait4(process, std::ptr::null_mut(), 0, usage.as_mut_ptr()), process);
        usage.assume_init()
    };
    let time = |time: libc::timeval| {
        Duration::from_secs(time.tv_sec.try_into().unwrap()) + Duration::from_micros(time.tv_usec.try_into().unwrap())
    };
    time(usage.ru_utime) + time(usage.ru_stime)
}

/// Memory that a process shares with nobody.
pub(crate) fn private_memory(process: u32) -> u64 {
    field(process, "smaps_rollup", &["Private_Clean:", "Private_Dirty:"])
}

/// The sum of fields of a file in `/proc`, in bytes.
fn field(process: u32, file: &str, names: &[&str]) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{process}/{file}")).unwrap();
    let found = text.lines().filter(|line| names.iter().any(|name| line.starts_with(name)));
    found.map(|line| line.split_ascii_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024).sum()
}
