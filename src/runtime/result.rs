//! What came of a command: how it ended, what it wrote, what it used.

use std::fmt;
use std::time::Duration;

use super::CapturedOutput;

/// How a command ended. Any of these is a *result*; an error means that the sandbox failed.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(tag = "kind", content = "detail", rename_all = "snake_case")]
pub enum Termination {
    /// It ended by itself with this status.
    Exited(i32),
    /// A signal ended it (operating-system runtimes).
    Signaled(i32),
    /// The wall-clock limit ended it.
    TimedOut,
    /// The fuel or processor-time limit ended it.
    OutOfFuel,
    /// The memory limit ended it.
    OutOfMemory,
    /// It wrote more than the output limit.
    OutputLimit,
    /// It wrote more to the workspace than the disk or file limit.
    DiskLimit,
    /// It started more processes than it may (where the kernel refuses more by itself, a start fails inside instead).
    ProcessLimit,
    /// The guest program broke a rule of its machine (wasm).
    Trapped(Trap),
    /// The caller cancelled.
    Cancelled,
}

/// A WebAssembly trap: what happened, and in which function.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Trap {
    /// A short name, such as `unreachable`, `stack_overflow`, `integer_divide_by_zero`.
    pub code: String,
    /// A sentence for people, with the innermost functions where their names are known.
    pub message: String,
}

impl Termination {
    /// Exit code 0.
    #[must_use]
    pub fn success(&self) -> bool {
        *self == Self::Exited(0)
    }

    /// The exit code in CARL's terms: the script's own, minus the number for a signal, 124 for the time limit, and
    /// 137 (as a killed process has it in a shell) for the other limits; 134 for a trap; 130 for a cancelled run.
    #[must_use]
    pub fn exit_code(&self) -> i32 {
        match self {
            Self::Exited(code) => *code,
            Self::Signaled(signal) => -signal,
            Self::TimedOut => 124,
            Self::OutOfFuel | Self::OutOfMemory | Self::OutputLimit | Self::DiskLimit | Self::ProcessLimit => 137,
            Self::Trapped(_) => 134,
            Self::Cancelled => 130,
        }
    }
}

impl fmt::Display for Termination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(code) => write!(f, "exited with code {code}"),
            Self::Signaled(signal) => write!(f, "ended by signal {signal}"),
            Self::TimedOut => f.write_str("stopped at the time limit"),
            Self::OutOfFuel => f.write_str("stopped at the processor limit (fuel or cpu time)"),
            Self::OutOfMemory => f.write_str("stopped at the memory limit"),
            Self::OutputLimit => f.write_str("stopped at the output limit"),
            Self::DiskLimit => f.write_str("stopped at the disk limit (bytes or files in the workspace)"),
            Self::ProcessLimit => f.write_str("stopped at the process limit"),
            Self::Trapped(trap) => write!(f, "trapped: {}", trap.message),
            Self::Cancelled => f.write_str("cancelled"),
        }
    }
}

/// What a command used, as far as the runtime can tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct Usage {
    /// Processor time, user and system together.
    pub cpu_time: Option<Duration>,
    /// The most memory it held, in bytes: linear memory on wasm, resident set elsewhere.
    pub peak_memory: Option<u64>,
    /// Fuel used.
    pub fuel: Option<u64>,
    /// Bytes written to the workspace.
    pub disk_written: Option<u64>,
}

/// What came of a command. The name and the meaning of its accessors are CARL's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuntimeRunResult {
    /// How it ended.
    pub termination: Termination,
    /// Standard output, bounded.
    pub stdout: CapturedOutput,
    /// Standard error, bounded.
    pub stderr: CapturedOutput,
    /// Wall-clock time from start to end.
    pub duration: Duration,
    /// What it used.
    pub usage: Usage,
}

impl RuntimeRunResult {
    /// The result of a run that the caller cancelled: what it wrote went with it.
    #[must_use]
    pub fn cancelled() -> Self {
        Self {
            termination: Termination::Cancelled,
            stdout: CapturedOutput::default(),
            stderr: CapturedOutput::default(),
            duration: Duration::ZERO,
            usage: Usage::default(),
        }
    }

    /// See [`Termination::exit_code`].
    #[must_use]
    pub fn exit_code(&self) -> i32 {
        self.termination.exit_code()
    }

    /// Exit code 0.
    #[must_use]
    pub fn success(&self) -> bool {
        self.termination.success()
    }

    /// Whether the time limit ended it. Can't be forged by a script, unlike CARL's marker on stderr.
    #[must_use]
    pub fn timed_out(&self) -> bool {
        self.termination == Termination::TimedOut
    }

    /// Whether either stream was cut.
    #[must_use]
    pub fn truncated(&self) -> bool {
        self.stdout.truncated() || self.stderr.truncated()
    }
}
