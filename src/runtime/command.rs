//! What a runtime is asked to run, and the options it is given.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Map, Value};

use super::OutputSink;
use crate::error::{Result, SkillRuntimeError};
use crate::policy::EnvVars;
use crate::workspace::{Area, GuestPath};

/// The most arguments and bytes of arguments: `execve` of Linux takes 128 KiB a string and 2 MiB in all by default.
const MAX_ARGUMENTS: usize = 4_096;
const MAX_ARGUMENT_BYTES: usize = 1 << 20;

/// One command: an argument vector (never a shell line), environment, standard input, current folder.
///
/// `argv[0]` is either a guest path of something that can run by itself (`/workspace/skill/report.wasm`), or the bare
/// name of an interpreter (`python3`, `node`, `sh`) that the runtime provides.
#[derive(Clone)]
pub struct RunCommand {
    argv: Vec<String>,
    /// Added to the fixed environment every guest gets.
    pub env: EnvVars,
    /// Standard input. Closed unless given.
    pub stdin: Stdin,
    /// The current folder; the skill's root unless given.
    pub cwd: GuestPath,
    /// Hears output while the command runs; the result has it in any case.
    pub sink: Option<Arc<dyn OutputSink>>,
}

impl RunCommand {
    /// Checks an argument vector.
    ///
    /// # Errors
    /// [`InvalidConfig`](crate::ErrorKind::InvalidConfig): an empty vector or first word, a NUL, too many or too long
    /// arguments.
    ///
    /// ```
    /// use skillcell::runtime::RunCommand;
    /// let command = RunCommand::new(["/workspace/skill/report.wasm", "--title", "Q3; rm -rf /"]).unwrap();
    /// assert_eq!(command.argv()[2], "Q3; rm -rf /");
    /// assert!(RunCommand::new(Vec::<String>::new()).is_err());
    /// ```
    pub fn new<I, S>(argv: I) -> Result<Self>
    where
        I: IntoIterator<Item = S>,
        S: Into<String>,
    {
        let argv: Vec<String> = argv.into_iter().map(Into::into).collect();
        if argv.first().is_none_or(String::is_empty) {
            return Err(SkillRuntimeError::invalid("a command needs a program as its first word"));
        }
        if let Some(index) = argv.iter().position(|argument| argument.contains('\0')) {
            return Err(SkillRuntimeError::invalid(format!(
                "argument {index} contains a NUL byte, which no program can receive"
            )));
        }
        let bytes: usize = argv.iter().map(|argument| argument.len() + 1).sum();
        if argv.len() > MAX_ARGUMENTS || bytes > MAX_ARGUMENT_BYTES {
            return Err(SkillRuntimeError::invalid(format!(
                "a command may have at most {MAX_ARGUMENTS} arguments and {MAX_ARGUMENT_BYTES} bytes, got {} and {bytes}; \
                 pass large data as a file in /workspace/in or on stdin",
                argv.len()
            )));
        }
        Ok(Self { argv, env: EnvVars::default(), stdin: Stdin::Closed, cwd: Area::Skill.guest_path(), sink: None })
    }

    /// The argument vector; the first word is there.
    #[must_use]
    pub fn argv(&self) -> &[String] {
        &self.argv
    }

    /// The first word.
    #[must_use]
    pub fn program(&self) -> &str {
        self.argv.first().map_or("", String::as_str)
    }
}

impl std::fmt::Debug for RunCommand {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunCommand")
            .field("argv", &self.argv)
            .field("env", &self.env)
            .field("cwd", &self.cwd)
            .finish_non_exhaustive()
    }
}

/// Standard input of a command.
#[derive(Debug, Clone, Default)]
pub enum Stdin {
    /// End of file at once.
    #[default]
    Closed,
    /// These bytes, then end of file.
    Bytes(Bytes),
    /// What can be read from this open file (a pipe, a terminal, a file), then end of file. The guest never gets the
    /// descriptor itself: a runtime copies from it.
    File(Arc<std::fs::File>),
}

/// Options of one runtime (CARL's `runtime_config`), as given.
///
/// `network` and `network_allowlist` belong to the policy and are taken out by the step before a runtime sees this.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RuntimeConfig(Map<String, Value>);

impl RuntimeConfig {
    /// Wraps a JSON map.
    #[must_use]
    pub fn new(map: Map<String, Value>) -> Self {
        Self(map)
    }

    /// The map.
    #[must_use]
    pub fn as_map(&self) -> &Map<String, Value> {
        &self.0
    }

    /// A string option.
    ///
    /// # Errors
    /// [`InvalidConfig`](crate::ErrorKind::InvalidConfig) when it is there and no string.
    pub fn string(&self, key: &str) -> Result<Option<&str>> {
        match self.0.get(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => {
                Err(SkillRuntimeError::invalid(format!("runtime_config['{key}'] must be a string, got {other}")))
            }
        }
    }

    /// A boolean option.
    ///
    /// # Errors
    /// [`InvalidConfig`](crate::ErrorKind::InvalidConfig) when it is there and no boolean.
    pub fn bool(&self, key: &str) -> Result<Option<bool>> {
        match self.0.get(key) {
            None => Ok(None),
            Some(Value::Bool(value)) => Ok(Some(*value)),
            Some(other) => {
                Err(SkillRuntimeError::invalid(format!("runtime_config['{key}'] must be true or false, got {other}")))
            }
        }
    }

    /// Refuses keys a runtime doesn't know.
    ///
    /// # Errors
    /// [`InvalidConfig`](crate::ErrorKind::InvalidConfig) naming the key and the known ones.
    pub fn only(&self, runtime: &str, known: &[&str]) -> Result<()> {
        match self.0.keys().find(|key| !known.contains(&key.as_str())) {
            None => Ok(()),
            Some(key) => {
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                Err(SkillRuntimeError::invalid(format!(
                    "runtime '{runtime}' has no option '{}' in runtime_config; it knows: {known}",
                    key.escape_debug()
                )))
            }
        }
    }
}
