//! The one error type of the library: [`SkillRuntimeError`], sorted by what the caller can do next.
//!
//! An error means that *the sandbox* failed or refused; a script that failed is a
//! [`RuntimeRunResult`](crate::runtime::RuntimeRunResult), not an error. This module must not know who raises
//! errors, must not print, and must not carry secrets: context values are shown to users and written to logs.
//!
//! Invariant: `Display` prints only its own layer. The chain of sources is printed once, by the edge (the
//! command, or the embedder).

use std::error::Error;
use std::fmt;

/// The result type of every fallible function of this crate.
pub type Result<T, E = SkillRuntimeError> = std::result::Result<T, E>;

/// What kind of failure it is, named for the caller's next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// A word, value or combination that the caller gave can't be used: correct it and call again.
    InvalidConfig,
    /// No runtime of that name is registered: choose another, or register it.
    UnknownRuntime,
    /// What was to run is not what was pinned or verified: don't run it.
    TrustViolation,
    /// The runtime can't enforce what the policy asks: choose another runtime, or accept advisory enforcement.
    PolicyUnenforceable,
    /// A path leaves the guest's world, or names something that may not be touched.
    PathDenied,
    /// Something that was named isn't there.
    NotFound,
    /// The runtime can't be used on this machine now (a program, daemon or service is missing).
    Unavailable,
    /// A cap on what skillcell itself handles was reached (size, count, depth).
    LimitExceeded,
    /// The runtime's engine, program or service failed.
    Backend,
    /// The caller cancelled.
    Cancelled,
    /// A defect of skillcell: please report it.
    Internal,
}

impl ErrorKind {
    /// The kind as it stands in JSON and logs, `snake_case`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InvalidConfig => "invalid_config",
            Self::UnknownRuntime => "unknown_runtime",
            Self::TrustViolation => "trust_violation",
            Self::PolicyUnenforceable => "policy_unenforceable",
            Self::PathDenied => "path_denied",
            Self::NotFound => "not_found",
            Self::Unavailable => "unavailable",
            Self::LimitExceeded => "limit_exceeded",
            Self::Backend => "backend",
            Self::Cancelled => "cancelled",
            Self::Internal => "internal",
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The sandbox failed or refused: kind, message, the operation, context, and causes.
///
/// The name is CARL's. As there, it is never raised for a script that merely failed.
///
/// ```
/// use skillcell::{ErrorKind, SkillRuntimeError};
/// let error = SkillRuntimeError::new(ErrorKind::NotFound, "no script 'x.py' in the skill; see `ls`")
///     .operation("plan")
///     .with("script", "x.py");
/// assert_eq!(error.kind(), ErrorKind::NotFound);
/// assert_eq!(error.to_string(), "no script 'x.py' in the skill; see `ls` (script: x.py)");
/// ```
#[derive(Debug)]
pub struct SkillRuntimeError {
    // Boxed: results are returned from every call, so the error must be one word wide.
    inner: Box<Inner>,
}

#[derive(Debug)]
struct Inner {
    kind: ErrorKind,
    message: String,
    operation: &'static str,
    context: Vec<(&'static str, String)>,
    source: Option<Box<dyn Error + Send + Sync + 'static>>,
    cleanup: Option<SkillRuntimeError>,
}

impl SkillRuntimeError {
    /// An error of `kind`. The message is a fragment that names the object and the next step.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            inner: Box::new(Inner {
                kind,
                message: message.into(),
                operation: "",
                context: Vec::new(),
                source: None,
                cleanup: None,
            }),
        }
    }

    /// Shorthand for [`ErrorKind::InvalidConfig`].
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidConfig, message)
    }

    /// Shorthand for [`ErrorKind::Backend`] with a cause.
    pub fn backend(message: impl Into<String>, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::new(ErrorKind::Backend, message).caused_by(source)
    }

    /// Names the step of the flow that failed (`plan`, `stage`, `prepare`, `run`, `collect`, `cleanup`, …).
    /// The innermost name wins: it is the most precise.
    #[must_use]
    pub fn operation(mut self, operation: &'static str) -> Self {
        if self.inner.operation.is_empty() {
            self.inner.operation = operation;
        }
        self
    }

    /// Adds a key and a value a reader needs to find the place. Never a secret, never a host path that a
    /// model could see.
    #[must_use]
    pub fn with(mut self, key: &'static str, value: impl Into<String>) -> Self {
        self.inner.context.push((key, value.into()));
        self
    }

    /// Adds the cause.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.inner.source = Some(source.into());
        self
    }

    /// Keeps an error that happened while cleaning up after this one, so that neither hides the other.
    #[must_use]
    pub fn with_cleanup(mut self, cleanup: SkillRuntimeError) -> Self {
        self.inner.cleanup = Some(cleanup);
        self
    }

    /// The kind.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.inner.kind
    }

    /// The step of the flow that failed; empty when nobody named it.
    #[must_use]
    pub fn failed_operation(&self) -> &'static str {
        self.inner.operation
    }

    /// The context, in the order it was added.
    #[must_use]
    pub fn context(&self) -> &[(&'static str, String)] {
        &self.inner.context
    }

    /// The error of the cleanup that followed, if that failed too.
    #[must_use]
    pub fn cleanup_error(&self) -> Option<&SkillRuntimeError> {
        self.inner.cleanup.as_ref()
    }

    /// The whole chain as one line per layer, for the edge to print once: message, context, causes, cleanup.
    #[must_use]
    pub fn chain(&self) -> Vec<String> {
        let mut lines = vec![self.to_string()];
        let mut source = self.source();
        while let Some(cause) = source {
            lines.push(cause.to_string());
            source = cause.source();
        }
        if let Some(cleanup) = self.cleanup_error() {
            for line in cleanup.chain() {
                lines.push(format!("cleanup also failed: {line}"));
            }
        }
        lines
    }
}

impl fmt::Display for SkillRuntimeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.inner.message)?;
        for (index, (key, value)) in self.inner.context.iter().enumerate() {
            f.write_str(if index == 0 { " (" } else { ", " })?;
            write!(f, "{key}: {value}")?;
        }
        if self.inner.context.is_empty() { Ok(()) } else { f.write_str(")") }
    }
}

impl Error for SkillRuntimeError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.inner.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_prints_one_layer_and_the_chain_all() {
        let error = SkillRuntimeError::backend("could not start", std::io::Error::other("disk on fire"))
            .with("runtime", "wasm")
            .with("run", "7")
            .with_cleanup(SkillRuntimeError::new(ErrorKind::Backend, "could not remove the workspace"));
        assert_eq!(error.to_string(), "could not start (runtime: wasm, run: 7)");
        assert_eq!(
            error.chain(),
            [
                "could not start (runtime: wasm, run: 7)",
                "disk on fire",
                "cleanup also failed: could not remove the workspace",
            ]
        );
    }

    #[test]
    fn the_innermost_operation_is_kept() {
        let error = SkillRuntimeError::invalid("x").operation("stage").operation("execute");
        assert_eq!(error.failed_operation(), "stage");
    }
}
