//! The decision whether a tree may run: the digest of everything in it against the caller's pin.

use super::SkillSource;
use crate::audit::{AuditScope, Layer};
use crate::error::{ErrorKind, Result, SkillRuntimeError};
use crate::workspace::HostTree;

/// What the caller demands of a skill's bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum TrustPolicy {
    /// Whatever is there.
    #[default]
    Any,
    /// Exactly the tree with this digest (see [`HostTree::digest`]), 64 lower-case hex digits.
    Pinned(String),
}

impl TrustPolicy {
    /// A pin, checked for form.
    ///
    /// # Errors
    /// [`InvalidConfig`](ErrorKind::InvalidConfig) when it isn't 64 hex digits.
    pub fn pinned(digest: &str) -> Result<Self> {
        let digest = digest.trim().to_ascii_lowercase();
        if digest.len() != 64 || !digest.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(SkillRuntimeError::invalid(format!(
                "a pin is the 64 hex digits of a SHA-256, got '{}'",
                digest.escape_debug()
            )));
        }
        Ok(Self::Pinned(digest))
    }
}

/// A skill that was read whole and passed the trust policy. The bytes that run are these bytes: staging compares
/// every file with the digest taken here.
#[derive(Debug)]
pub struct VerifiedSkill {
    name: String,
    tree: HostTree,
}

impl VerifiedSkill {
    /// Reads the source and checks it.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound), [`PathDenied`](ErrorKind::PathDenied) (a special file, a link that leaves the
    /// tree), [`LimitExceeded`](ErrorKind::LimitExceeded), [`TrustViolation`](ErrorKind::TrustViolation).
    pub fn verify(source: &SkillSource, policy: &TrustPolicy, audit: &AuditScope) -> Result<Self> {
        let tree = match source {
            SkillSource::Folder(path) => HostTree::open_folder(path)?,
            SkillSource::Script(path) => HostTree::open_file(path)?,
        };
        let name = tree.name().to_owned();
        if let TrustPolicy::Pinned(pin) = policy
            && pin != tree.digest()
        {
            audit.deny(Layer::Trust, "verify", &name, "the digest of the tree is not the pinned one");
            return Err(SkillRuntimeError::new(
                ErrorKind::TrustViolation,
                format!("'{name}' is not what was pinned; review the change, then pin the new digest"),
            )
            .operation("trust")
            .with("pinned", pin)
            .with("found", tree.digest()));
        }
        audit.allow(Layer::Trust, "verify", &name, tree.digest())?;
        Ok(Self { name, tree })
    }

    /// The name of the folder or script.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The digest of the whole tree.
    #[must_use]
    pub fn digest(&self) -> &str {
        self.tree.digest()
    }

    /// The tree.
    #[must_use]
    pub fn tree(&self) -> &HostTree {
        &self.tree
    }
}
