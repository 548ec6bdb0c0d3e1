//! Runtimes by name. A registry is a value; the process-wide one that CARL's three functions act on stands in
//! `backends`, since it begins with the built-in list.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::SkillRuntime;
use crate::error::{ErrorKind, Result, SkillRuntimeError};

/// Makes a runtime. Called at each look-up, like CARL's class; return clones of one `Arc` to share state.
pub type RuntimeFactory = Arc<dyn Fn() -> Arc<dyn SkillRuntime> + Send + Sync>;

/// Runtimes by name.
///
/// ```
/// let registry = skillcell::builtin_registry();
/// assert!(registry.get("nosuch").is_err());
/// assert!(registry.names().windows(2).all(|pair| pair[0] < pair[1]));
/// ```
#[derive(Clone, Default)]
pub struct RuntimeRegistry {
    factories: BTreeMap<String, RuntimeFactory>,
}

impl RuntimeRegistry {
    /// An empty registry.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers a runtime; registering a name again replaces it, as in CARL.
    ///
    /// # Errors
    /// [`InvalidConfig`](ErrorKind::InvalidConfig) for a name that isn't 1 to 64 of `a-z0-9_-`.
    pub fn register(&mut self, name: &str, factory: RuntimeFactory) -> Result<()> {
        let fine = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'-';
        if name.is_empty() || name.len() > 64 || !name.bytes().all(fine) {
            return Err(SkillRuntimeError::invalid(format!(
                "a runtime's name is 1 to 64 of a-z, 0-9, '_' and '-', got '{}'",
                name.escape_debug()
            )));
        }
        self.factories.insert(name.to_owned(), factory);
        Ok(())
    }

    /// The runtime of that name.
    ///
    /// # Errors
    /// [`UnknownRuntime`](ErrorKind::UnknownRuntime) listing the names there are, in CARL's words.
    pub fn get(&self, name: &str) -> Result<Arc<dyn SkillRuntime>> {
        self.factories.get(name).map(|factory| factory()).ok_or_else(|| {
            SkillRuntimeError::new(
                ErrorKind::UnknownRuntime,
                format!(
                    "Unknown skill runtime '{}'. Available: {}. Install the backend prerequisites or call \
                     register_skill_runtime() with a custom backend.",
                    name.escape_debug(),
                    self.names().join(", ")
                ),
            )
        })
    }

    /// The names, sorted.
    #[must_use]
    pub fn names(&self) -> Vec<&str> {
        self.factories.keys().map(String::as_str).collect()
    }
}

impl std::fmt::Debug for RuntimeRegistry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.factories.keys()).finish()
    }
}
