//! Limits of a run: how much time, memory, output, disk and so on it may use. Values only; runtimes enforce them.
//!
//! Invariant: every limit has a finite default, so a run nobody thought about still ends.

use std::time::Duration;

use crate::error::{Result, SkillRuntimeError};

/// What a run may use. Every field has a default that suits a skill script on a laptop; see [`Limits::default`].
///
/// A limit that was set by the caller is *requested* and must be enforced in strict mode; one left at its default
/// applies where the runtime can apply it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Wall-clock time of one `run`, including compilation and host calls. Default 120 s (CARL's step timeout).
    pub wall_time: Duration,
    /// Processor time of one `run`, all its processes together. `None`: only the wall clock counts.
    pub cpu_time: Option<Duration>,
    /// Fuel (wasm instructions, roughly) of one `run`. Deterministic. `None`: not counted. Wasm only.
    pub fuel: Option<u64>,
    /// Memory in bytes: linear memory on wasm, address space or cgroup elsewhere. Default 512 MiB.
    pub memory: u64,
    /// Processes and threads at once. Default 128 (CARL's). Wasm guests have none.
    pub processes: u32,
    /// Open files at once, counting directories and streams. Default 1024.
    pub open_files: u32,
    /// Bytes that one `run` may write on stdout and stderr together; more ends it. Default 64 MiB.
    pub output: u64,
    /// Bytes kept of each of stdout and stderr, half from the head and half from the tail. Default 1 MiB.
    pub output_kept: u64,
    /// Bytes that may lie in `/workspace/out` and `/workspace/tmp` together, sparse holes counted. Default 1 GiB.
    pub disk: u64,
    /// Files and folders that may lie there. Default 10,000.
    pub files: u64,
    /// Bytes of stack. Default 8 MiB (wasm): CPython stops its own recursion within 4 MiB, with an exception that a
    /// script can catch; with less, deep recursion would end the run.
    pub stack: u64,
    /// Elements of all wasm tables together. Default 100,000.
    pub table_elements: u64,
    /// Which of the fields above the caller set, rather than left at the default.
    pub requested: RequestedLimits,
}

/// Which limits the caller asked for by name. A default is not a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RequestedLimits {
    /// `cpu_time` or `fuel`.
    pub cpu: bool,
    /// `memory`.
    pub memory: bool,
    /// `processes`.
    pub processes: bool,
    /// `disk` or `files`.
    pub disk: bool,
}

/// The longest wall time that can be asked for: a day. Longer values are mistakes, and overflow clocks.
pub const MAX_WALL_TIME: Duration = Duration::from_secs(24 * 60 * 60);

impl Default for Limits {
    fn default() -> Self {
        Self {
            wall_time: Duration::from_secs(120),
            cpu_time: None,
            fuel: None,
            memory: 512 << 20,
            processes: 128,
            open_files: 1024,
            output: 64 << 20,
            output_kept: 1 << 20,
            disk: 1 << 30,
            files: 10_000,
            stack: 8 << 20,
            table_elements: 100_000,
            requested: RequestedLimits::default(),
        }
    }
}

impl Limits {
    /// Checks the values against each other and against what any runtime could hold.
    ///
    /// # Errors
    /// [`InvalidConfig`](crate::ErrorKind::InvalidConfig) naming the limit, the value and the range.
    pub fn validate(&self) -> Result<()> {
        if self.wall_time.is_zero() || self.wall_time > MAX_WALL_TIME {
            return Err(SkillRuntimeError::invalid(format!(
                "timeout must be more than zero and at most 24h, got {:?}",
                self.wall_time
            )));
        }
        if self.cpu_time.is_some_and(|time| time.is_zero() || time > MAX_WALL_TIME) {
            return Err(SkillRuntimeError::invalid("cpu time must be more than zero and at most 24h"));
        }
        let ranges: [(&str, u64, u64, u64); 8] = [
            // 64 KiB is one wasm page; below that nothing starts anywhere.
            ("memory limit", self.memory, 64 << 10, 1 << 40),
            ("fuel", self.fuel.unwrap_or(1), 1, u64::MAX),
            ("process limit", u64::from(self.processes), 1, 1 << 22),
            ("open file limit", u64::from(self.open_files), 8, 1 << 20),
            ("output limit", self.output, 1, 1 << 40),
            // Head and tail are held in memory by the host.
            ("kept output", self.output_kept, 0, 1 << 30),
            ("stack limit", self.stack, 64 << 10, 64 << 20),
            ("file limit", self.files, 1, 1 << 32),
        ];
        for (name, value, low, high) in ranges {
            if value < low || value > high {
                return Err(SkillRuntimeError::invalid(format!(
                    "{name} must be between {low} and {high}, got {value}"
                )));
            }
        }
        Ok(())
    }
}

/// Parses a duration as people type it: `30s`, `500ms`, `2m`, `1h`, `1.5s`, or a bare number of seconds.
///
/// # Errors
/// [`InvalidConfig`](crate::ErrorKind::InvalidConfig) quoting the text and giving the accepted forms.
///
/// ```
/// use std::time::Duration;
/// assert_eq!(skillcell::policy::parse_duration("1.5s").unwrap(), Duration::from_millis(1500));
/// assert!(skillcell::policy::parse_duration("soon").is_err());
/// ```
pub fn parse_duration(text: &str) -> Result<Duration> {
    let bad = || SkillRuntimeError::invalid(format!("'{text}' is not a duration; use forms like 500ms, 30s, 2m, 1h"));
    let (number, unit) = split_number(text).ok_or_else(bad)?;
    let seconds = match unit {
        "ms" => number / 1000.0,
        "" | "s" => number,
        "m" | "min" => number * 60.0,
        "h" => number * 3600.0,
        _ => return Err(bad()),
    };
    Duration::try_from_secs_f64(seconds).map_err(|_| bad())
}

/// Parses a size in bytes: `512`, `64K`, `256M`, `1G`, `256MiB`. Units are binary, as `docker run --memory` has them.
///
/// # Errors
/// [`InvalidConfig`](crate::ErrorKind::InvalidConfig) quoting the text and giving the accepted forms.
///
/// ```
/// assert_eq!(skillcell::policy::parse_size("256M").unwrap(), 256 << 20);
/// ```
pub fn parse_size(text: &str) -> Result<u64> {
    let bad = || SkillRuntimeError::invalid(format!("'{text}' is not a size; use forms like 65536, 64K, 256M, 1G"));
    let (number, unit) = split_number(text).ok_or_else(bad)?;
    let lower = unit.to_ascii_lowercase();
    let shift = match lower.as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err(bad()),
    };
    let bytes = number * (1u64 << shift) as f64;
    // 2^53 bytes is eight pebibytes; beyond it the multiplication is no longer exact.
    if !(0.0..=9_007_199_254_740_992.0).contains(&bytes) || bytes.fract() != 0.0 {
        return Err(bad());
    }
    Ok(bytes as u64)
}

/// Splits `1.5GiB` into 1.5 and `GiB`. Plain decimal only: `1e9`, `inf`, `-1` and `NaN` are refused.
fn split_number(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number: f64 = number.parse().ok()?;
    Some((number, unit.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_durations_in_the_forms_people_type() {
        for (text, bytes) in
            [("0", 0), ("65536", 65536), ("64K", 65536), ("64 KiB", 65536), ("1.5k", 1536), ("2G", 2 << 30)]
        {
            assert_eq!(parse_size(text).unwrap_or_else(|e| panic!("{text}: {e}")), bytes, "{text}");
        }
        for text in ["", "M", "-1", "1e9", "1Q", "0.3", "nan", "inf", "1M1", "9999999999999T"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
        for (text, ms) in [("500ms", 500), ("30", 30_000), ("30s", 30_000), ("2m", 120_000), ("1h", 3_600_000)] {
            assert_eq!(parse_duration(text).unwrap().as_millis(), ms, "{text}");
        }
        for text in ["", "s", "-5s", "1d", "1e400", "99999999999999999999999s"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn validation_names_the_limit() {
        let limits = Limits { wall_time: Duration::ZERO, ..Limits::default() };
        assert_eq!(
            limits.validate().unwrap_err().to_string(),
            "timeout must be more than zero and at most 24h, got 0ns"
        );
        let limits = Limits { memory: 1, ..Limits::default() };
        assert_eq!(
            limits.validate().unwrap_err().to_string(),
            "memory limit must be between 65536 and 1099511627776, got 1"
        );
        Limits::default().validate().unwrap();
    }
}
