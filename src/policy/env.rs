//! The environment a guest gets: a small fixed set plus what the step gives. Never the host's.

use std::collections::BTreeMap;

use crate::error::{Result, SkillRuntimeError};

/// The most variables, and the most bytes of names and values together: `execve` refuses more on Linux
/// (128 KiB a string; 2 MiB in all with the default stack), and no step needs it.
const MAX_VARIABLES: usize = 1_024;
const MAX_BYTES: usize = 1 << 20;

/// Environment variables, checked: names without `=` or NUL, values without NUL, bounded in number and size.
///
/// ```
/// use skillcell::policy::EnvVars;
/// let mut env = EnvVars::default();
/// env.set("LANG", "C.UTF-8").unwrap();
/// assert!(env.set("A=B", "x").is_err());
/// ```
#[derive(Clone, PartialEq, Eq, Default)]
pub struct EnvVars(BTreeMap<String, String>);

impl EnvVars {
    /// Sets one variable, replacing an earlier value.
    ///
    /// # Errors
    /// [`InvalidConfig`](crate::ErrorKind::InvalidConfig) naming the variable (never its value).
    pub fn set(&mut self, name: impl Into<String>, value: impl Into<String>) -> Result<()> {
        let (name, value) = (name.into(), value.into());
        if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
            return Err(SkillRuntimeError::invalid(format!(
                "invalid sandbox environment variable: '{}'",
                name.escape_debug()
            )));
        }
        self.0.insert(name, value);
        let bytes: usize = self.0.iter().map(|(name, value)| name.len() + value.len() + 2).sum();
        if self.0.len() > MAX_VARIABLES || bytes > MAX_BYTES {
            return Err(SkillRuntimeError::invalid(format!(
                "the sandbox environment may hold at most {MAX_VARIABLES} variables and {MAX_BYTES} bytes; pass large data as a file"
            )));
        }
        Ok(())
    }

    /// Parses `K=V` as the command line has it.
    ///
    /// # Errors
    /// [`InvalidConfig`](crate::ErrorKind::InvalidConfig) when there is no `=`, or for a bad name or value.
    pub fn set_pair(&mut self, pair: &str) -> Result<()> {
        // The text may hold a secret, so the message can't quote it.
        let (name, value) = pair
            .split_once('=')
            .ok_or_else(|| SkillRuntimeError::invalid("an environment variable is given as NAME=VALUE"))?;
        self.set(name, value)
    }

    /// Adds `other` over these.
    ///
    /// # Errors
    /// As [`set`](Self::set): the two together may be too many.
    pub fn extend(&mut self, other: &Self) -> Result<()> {
        other.iter().try_for_each(|(name, value)| self.set(name, value))
    }

    /// A value.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// All of them, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

/// Values may be secrets: only names are shown.
impl std::fmt::Debug for EnvVars {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_names_are_refused_and_values_never_shown() {
        let mut env = EnvVars::default();
        for (name, value) in [("", "v"), ("A=B", "v"), ("A\0", "v"), ("A", "v\0")] {
            let error = env.set(name, value).unwrap_err().to_string();
            assert_eq!(error, format!("invalid sandbox environment variable: '{}'", name.escape_debug()));
        }
        env.set_pair("TOKEN=hunter2=x").unwrap();
        assert_eq!(env.get("TOKEN"), Some("hunter2=x"));
        assert_eq!(format!("{env:?}"), r#"{"TOKEN"}"#);
        assert!(!env.set_pair("hunter2").unwrap_err().to_string().contains("hunter2"));
        assert!(env.set("BIG", "x".repeat(MAX_BYTES)).is_err());
    }
}
