//! The event: a closed set of fields, so that a reader and a verifier need no guessing.

use std::fmt;
use std::time::SystemTime;

/// Names one run: 128 random bits, so that ids never repeat across hosts and can't be guessed by a guest.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RunId(u128);

impl RunId {
    /// A new random id.
    ///
    /// # Errors
    /// [`Backend`](crate::ErrorKind::Backend) when the system's random source fails.
    pub fn random() -> crate::error::Result<Self> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes)
            .map_err(|error| crate::error::SkillRuntimeError::backend("the system's random source failed", error))?;
        Ok(Self(u128::from_be_bytes(bytes)))
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RunId({self})")
    }
}

impl serde::Serialize for RunId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Which boundary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Layer {
    /// The step itself: plan, gate, result.
    Step,
    /// Trust in the skill's bytes.
    Trust,
    /// The policy and its enforcement.
    Policy,
    /// Files.
    Files,
    /// The network.
    Network,
    /// Processes and system calls.
    Process,
    /// A resource limit.
    Limit,
    /// The runtime's own life: prepare, run, cleanup.
    Runtime,
}

/// What was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// It was allowed, or simply happened.
    Allow,
    /// It was refused.
    Deny,
}

/// One event at a boundary.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct AuditEvent {
    /// Position in this run's trail, from 0, without gaps.
    pub seq: u64,
    /// Seconds since 1970.
    #[serde(serialize_with = "unix_seconds")]
    pub time: SystemTime,
    /// The run.
    pub run: RunId,
    /// The runtime's name; empty before one is chosen.
    pub runtime: String,
    /// Which boundary.
    pub layer: Layer,
    /// What was decided.
    pub decision: Decision,
    /// What happened, from a closed list of words such as `gate`, `open`, `collect`, `time_limit`.
    pub action: &'static str,
    /// What it happened to: a guest path, a host, a limit's name. Never a secret; control characters escaped.
    pub object: String,
    /// Why, as a short sentence; empty when there is nothing to say.
    pub reason: String,
}

fn unix_seconds<S: serde::Serializer>(time: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
    let seconds = time.duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |duration| duration.as_secs_f64());
    serializer.serialize_f64(seconds)
}
