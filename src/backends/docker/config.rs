//! The options of this runtime: CARL's names and messages, parsed once into [`DockerConfig`].
//!
//! Nothing here can name a host path, a capability, a device or a mount: a configuration may be written by somebody
//! who may not choose those. Pure: no daemon is asked.

use serde_json::Value;

use crate::error::{Result, SkillRuntimeError};
use crate::policy::Limits;
use crate::runtime::RuntimeConfig;

/// The name in the registry and in messages.
pub(super) const NAME: &str = "docker";
/// CARL's default image.
const DEFAULT_IMAGE: &str = "python:3.12-slim";
/// CARL's default: one processor.
const DEFAULT_CPUS: f64 = 1.0;
/// The daemon refuses less, since nothing starts in it.
const MIN_MEMORY: u64 = 6 << 20;
/// References are at most a registry, a path, a tag and a digest; the daemon's own limit is of this order.
const MAX_REFERENCE: usize = 512;
const KNOWN: [&str; 8] =
    ["image", "pull", "mem_limit", "cpu_limit", "pids_limit", "workspace_output_mode", "oci_runtime", "files"];

/// Checked options.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct DockerConfig {
    /// The image reference.
    pub(super) image: String,
    /// Whether a missing image is fetched.
    pub(super) pull: Pull,
    /// Bytes, when given.
    pub(super) memory: Option<u64>,
    /// Processors.
    pub(super) cpus: f64,
    /// Processes, when given.
    pub(super) processes: Option<u32>,
    /// Whether the guest may write to `/workspace/out`.
    pub(super) out: OutAccess,
    /// An OCI runtime by the name the daemon knows it under (`runsc`); the daemon's default otherwise.
    pub(super) oci_runtime: Option<String>,
    /// How the workspace gets to the guest.
    pub(super) files: Transfer,
}

/// Whether a missing image is fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pull {
    /// Never: as CARL.
    Never,
    /// When it isn't there.
    Missing,
}

/// CARL's `workspace_output_mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OutAccess {
    ReadWrite,
    ReadOnly,
}

/// How the workspace gets to the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Transfer {
    /// Mounted when the daemon sees our folders, copied when it doesn't.
    Auto,
    /// Mounted, or an error.
    Mount,
    /// Copied through the daemon's archive calls.
    Copy,
}

impl DockerConfig {
    pub(super) fn parse(config: &RuntimeConfig) -> Result<Self> {
        if config.as_map().get("extra_args").is_some_and(truthy) {
            return Err(SkillRuntimeError::invalid(
                "DockerSkillRuntime does not accept chain-controlled extra_args; use a host-owned runtime profile instead",
            ));
        }
        config.only(NAME, &[&KNOWN[..], &["extra_args"]].concat())?;
        let image = config.string("image")?.unwrap_or(DEFAULT_IMAGE);
        let one_token = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | ':' | '/' | '@');
        if image.is_empty()
            || image.starts_with('-')
            || image.len() > MAX_REFERENCE
            || !image.chars().all(one_token)
            || image.contains("..")
        {
            return Err(SkillRuntimeError::invalid("invalid Docker image reference: expected one non-option token"));
        }
        let word = |key: &str, words: &[&str]| -> Result<usize> {
            let Some(given) = config.string(key)? else { return Ok(0) };
            words.iter().position(|word| *word == given).ok_or_else(|| {
                SkillRuntimeError::invalid(format!(
                    "runtime_config['{key}'] must be one of {}, got '{}'",
                    words.join(", "),
                    given.escape_debug()
                ))
            })
        };
        let pull = if word("pull", &["never", "missing"])? == 0 { Pull::Never } else { Pull::Missing };
        let out = match word("workspace_output_mode", &["read_write", "read_only"])? {
            0 => OutAccess::ReadWrite,
            _ => OutAccess::ReadOnly,
        };
        let files = match word("files", &["auto", "mount", "copy"])? {
            0 => Transfer::Auto,
            1 => Transfer::Mount,
            _ => Transfer::Copy,
        };
        let oci_runtime = config.string("oci_runtime")?.map(str::to_owned);
        let given = |key: &str| config.as_map().get(key).filter(|value| !value.is_null());
        Ok(Self {
            image: image.to_owned(),
            pull,
            memory: given("mem_limit").map(parse_memory).transpose()?,
            cpus: given("cpu_limit").map_or(Ok(DEFAULT_CPUS), parse_cpus)?,
            processes: given("pids_limit").map(parse_processes).transpose()?,
            out,
            oci_runtime,
            files,
        })
    }

    /// The bytes of memory for the container: the option, kept under what the policy asked for by name.
    ///
    /// # Errors
    /// [`InvalidConfig`](crate::ErrorKind::InvalidConfig) for less than the daemon accepts.
    pub(super) fn memory(&self, limits: &Limits) -> Result<u64> {
        let memory = match self.memory {
            Some(memory) if limits.requested.memory => memory.min(limits.memory),
            Some(memory) => memory,
            None => limits.memory,
        };
        if memory < MIN_MEMORY { Err(too_little_memory()) } else { Ok(memory) }
    }

    /// The number of processes for the guest, likewise.
    pub(super) fn processes(&self, limits: &Limits) -> u32 {
        match self.processes {
            Some(processes) if limits.requested.processes => processes.min(limits.processes),
            Some(processes) => processes,
            None => limits.processes,
        }
    }
}

/// CARL refuses anything that Python calls true.
fn truthy(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(value) => *value,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(map) => !map.is_empty(),
    }
}

fn too_little_memory() -> SkillRuntimeError {
    SkillRuntimeError::invalid("invalid Docker memory limit: Docker requires at least 6 MiB")
}

fn parse_memory(value: &Value) -> Result<u64> {
    let bad = || {
        SkillRuntimeError::invalid(format!(
            "invalid Docker memory limit {}: mem_limit must be a positive integer with an explicit b/k/m/g suffix",
            shown(value)
        ))
    };
    let text = value.as_str().ok_or_else(bad)?;
    let (number, suffix) = text.split_at_checked(text.len().saturating_sub(1)).ok_or_else(bad)?;
    let shift = match suffix {
        "b" | "B" => 0,
        "k" | "K" => 10,
        "m" | "M" => 20,
        "g" | "G" => 30,
        _ => return Err(bad()),
    };
    if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(bad());
    }
    let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift)).ok_or_else(bad)?;
    match bytes {
        0 => Err(bad()),
        1..MIN_MEMORY => Err(too_little_memory()),
        // The daemon's numbers are signed.
        _ if i64::try_from(bytes).is_err() => Err(bad()),
        _ => Ok(bytes),
    }
}

fn parse_cpus(value: &Value) -> Result<f64> {
    let bad = |why: &str| SkillRuntimeError::invalid(format!("invalid Docker CPU limit {}: {why}", shown(value)));
    let cpus = match value {
        Value::Bool(_) => return Err(bad("boolean is not a CPU limit")),
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    };
    // A hundredth is the least the kernel's scheduler keeps; more than 4096 processors are a mistake.
    match cpus {
        Some(cpus) if (0.01..=4096.0).contains(&cpus) => Ok(cpus),
        _ => Err(bad("CPU limit must be a finite number between 0.01 and 4096")),
    }
}

fn parse_processes(value: &Value) -> Result<u32> {
    let bad = |why: &str| SkillRuntimeError::invalid(format!("invalid Docker PID limit {}: {why}", shown(value)));
    if !value.is_i64() && !value.is_u64() {
        return Err(bad("PID limit must be an integer"));
    }
    match value.as_u64().and_then(|count| u32::try_from(count).ok()) {
        Some(count) if (1..=1 << 22).contains(&count) => Ok(count),
        _ => Err(bad("PID limit must be between 1 and 4194304")),
    }
}

/// A value as CARL's messages show it (Python's `repr`), cut: it may be long.
fn shown(value: &Value) -> String {
    const SHOWN: usize = 60;
    let text = match value {
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::String(text) => format!("'{}'", text.escape_debug()),
        Value::Null | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    };
    if text.chars().nth(SHOWN).is_none() { text } else { text.chars().take(SHOWN).chain(['…']).collect() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(config: Value) -> Result<DockerConfig> {
        DockerConfig::parse(&RuntimeConfig::new(config.as_object().cloned().unwrap_or_default()))
    }

    #[test]
    fn carls_defaults_and_options() {
        let defaults = DockerConfig {
            image: "python:3.12-slim".into(),
            pull: Pull::Never,
            memory: None,
            cpus: 1.0,
            processes: None,
            out: OutAccess::ReadWrite,
            oci_runtime: None,
            files: Transfer::Auto,
        };
        assert_eq!(parse(json!({})).unwrap(), defaults);
        assert_eq!(parse(json!({"extra_args": [], "mem_limit": null})).unwrap(), defaults);
        let given = json!({"image": "r.example.com:5000/a/b@sha256:00ff", "pull": "missing", "mem_limit": "2g", "cpu_limit": "1.5",
            "pids_limit": 64, "workspace_output_mode": "read_only", "oci_runtime": "runsc", "files": "copy"});
        let expected = DockerConfig {
            image: "r.example.com:5000/a/b@sha256:00ff".into(),
            pull: Pull::Missing,
            memory: Some(2 << 30),
            cpus: 1.5,
            processes: Some(64),
            out: OutAccess::ReadOnly,
            oci_runtime: Some("runsc".into()),
            files: Transfer::Copy,
        };
        assert_eq!(parse(given).unwrap(), expected);
    }

    #[test]
    fn carls_messages() {
        for (config, message) in [
            (
                json!({"extra_args": ["--privileged"]}),
                "DockerSkillRuntime does not accept chain-controlled extra_args; use a host-owned runtime profile instead",
            ),
            (json!({"image": "a b"}), "invalid Docker image reference: expected one non-option token"),
            (json!({"image": "--privileged"}), "invalid Docker image reference: expected one non-option token"),
            (
                json!({"image": "a/../../containers/json?x"}),
                "invalid Docker image reference: expected one non-option token",
            ),
            (
                json!({"mem_limit": "512"}),
                "invalid Docker memory limit '512': mem_limit must be a positive integer with an explicit b/k/m/g suffix",
            ),
            (
                json!({"mem_limit": "ü"}),
                "invalid Docker memory limit 'ü': mem_limit must be a positive integer with an explicit b/k/m/g suffix",
            ),
            (
                json!({"mem_limit": "99999999999g"}),
                "invalid Docker memory limit '99999999999g': mem_limit must be a positive integer with an explicit b/k/m/g suffix",
            ),
            (json!({"mem_limit": "5m"}), "invalid Docker memory limit: Docker requires at least 6 MiB"),
            (json!({"cpu_limit": true}), "invalid Docker CPU limit True: boolean is not a CPU limit"),
            (
                json!({"cpu_limit": "nan"}),
                "invalid Docker CPU limit 'nan': CPU limit must be a finite number between 0.01 and 4096",
            ),
            (json!({"pids_limit": "3"}), "invalid Docker PID limit '3': PID limit must be an integer"),
            (json!({"pids_limit": 0}), "invalid Docker PID limit 0: PID limit must be between 1 and 4194304"),
            (
                json!({"workspace_output_mode": "rw"}),
                "runtime_config['workspace_output_mode'] must be one of read_write, read_only, got 'rw'",
            ),
            (
                json!({"volumes": ["/:/host"]}),
                "runtime 'docker' has no option 'volumes' in runtime_config; it knows: image, pull, mem_limit, cpu_limit, pids_limit, workspace_output_mode, oci_runtime, files, extra_args",
            ),
        ] {
            assert_eq!(parse(config.clone()).map(drop).unwrap_err().to_string(), message, "{config}");
        }
    }

    #[test]
    fn the_smaller_of_option_and_requested_limit_counts() {
        let config = parse(json!({"mem_limit": "1g", "pids_limit": 50})).unwrap();
        let mut limits = Limits::default();
        assert_eq!((config.memory(&limits).unwrap(), config.processes(&limits)), (1 << 30, 50));
        limits.requested.memory = true;
        limits.requested.processes = true;
        limits.processes = 20;
        assert_eq!((config.memory(&limits).unwrap(), config.processes(&limits)), (512 << 20, 20));
        let nothing = parse(json!({})).unwrap();
        assert_eq!((nothing.memory(&limits).unwrap(), nothing.processes(&limits)), (512 << 20, 20));
        limits.memory = 1 << 20;
        assert_eq!(
            nothing.memory(&limits).unwrap_err().to_string(),
            "invalid Docker memory limit: Docker requires at least 6 MiB"
        );
    }
}
