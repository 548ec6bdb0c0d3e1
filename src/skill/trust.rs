//! The decision whether a tree may run: the digest of everything in it against the caller's pin.

use super::SkillSource;
use super::resources::{SKILL_MD, SKILL_MD_LOWER};
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
    /// A `SKILL.md` with this SHA-256: CARL's `skill_sha256`. Weaker than [`Pinned`](Self::Pinned): every other file,
    /// scripts too, may be anything. The audit trail says so.
    PinnedManifest(String),
}

impl TrustPolicy {
    /// A pin, checked for form.
    ///
    /// # Errors
    /// [`InvalidConfig`](ErrorKind::InvalidConfig) when it isn't 64 hex digits.
    pub fn pinned(digest: &str) -> Result<Self> {
        digest_text(digest).map(Self::Pinned)
    }

    /// The policy that a configuration means: CARL's `trust_policy` and `skill_sha256`, and the digest of the whole
    /// tree. A digest that is given is always checked, also under `any`; the one of the tree is the stronger and wins
    /// over `skill_sha256`, whose file it covers.
    ///
    /// # Errors
    /// [`InvalidConfig`](ErrorKind::InvalidConfig): a word that is neither `any` nor `sha_pinned`, `sha_pinned` without a
    /// digest, a digest that isn't 64 hex digits.
    ///
    /// ```
    /// use skillcell::skill::TrustPolicy;
    /// assert_eq!(TrustPolicy::from_config("any", None, None).unwrap(), TrustPolicy::Any);
    /// assert!(TrustPolicy::from_config("sha_pinned", None, None).is_err());
    /// assert!(TrustPolicy::from_config("garbage", None, None).is_err());
    /// ```
    pub fn from_config(policy: &str, tree_sha256: Option<&str>, skill_sha256: Option<&str>) -> Result<Self> {
        let pinned = match policy {
            "any" => false,
            "sha_pinned" => true,
            other => {
                return Err(SkillRuntimeError::invalid(format!(
                    "unknown trust_policy '{}'; valid options: 'any', 'sha_pinned'",
                    other.chars().take(80).flat_map(char::escape_debug).collect::<String>()
                )));
            }
        };
        match (tree_sha256, skill_sha256) {
            (Some(tree), manifest) => {
                // The form of both is checked: a typo must not pass because the other was enough.
                manifest.map(digest_text).transpose()?;
                Self::pinned(tree)
            }
            (None, Some(manifest)) => digest_text(manifest).map(Self::PinnedManifest),
            (None, None) if pinned => Err(SkillRuntimeError::invalid(
                "trust_policy='sha_pinned' requires a digest: give tree_sha256 (or CARL's skill_sha256, which covers \
                 SKILL.md only); `skillcell skill lock` prints both",
            )),
            (None, None) => Ok(Self::Any),
        }
    }
}

/// A SHA-256 as text, checked and in lower case.
pub(super) fn digest_text(digest: &str) -> Result<String> {
    let digest = digest.trim().to_ascii_lowercase();
    if digest.len() != 64 || !digest.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(SkillRuntimeError::invalid(format!(
            "a pin is the 64 hex digits of a SHA-256, got '{}'",
            digest.chars().take(80).flat_map(char::escape_debug).collect::<String>()
        )));
    }
    Ok(digest)
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
        let skill_md = manifest_digest(&tree);
        let (pin, found, what) = match policy {
            TrustPolicy::Any => (None, tree.digest(), ""),
            TrustPolicy::Pinned(pin) => (Some(pin), tree.digest(), "the digest of the tree is not the pinned one"),
            TrustPolicy::PinnedManifest(pin) => {
                (Some(pin), skill_md.unwrap_or("no SKILL.md"), "the digest of SKILL.md is not the pinned one")
            }
        };
        if let Some(pin) = pin
            && pin != found
        {
            audit.deny(Layer::Trust, "verify", &name, what);
            return Err(SkillRuntimeError::new(
                ErrorKind::TrustViolation,
                format!("'{name}' is not what was pinned; review the change, then pin the new digest"),
            )
            .operation("trust")
            .with("pinned", pin)
            .with("found", found));
        }
        let reason = match policy {
            TrustPolicy::Any | TrustPolicy::Pinned(_) => tree.digest().to_owned(),
            TrustPolicy::PinnedManifest(_) => {
                format!("{}; only SKILL.md is pinned, the other files are not", tree.digest())
            }
        };
        audit.allow(Layer::Trust, "verify", &name, &reason)?;
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

/// The digest of the manifest's file, if the tree has one at its root.
pub(super) fn manifest_digest(tree: &HostTree) -> Option<&str> {
    [SKILL_MD, SKILL_MD_LOWER].iter().find_map(|name| tree.entry(name)).map(|entry| entry.sha256.as_str())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::audit::{Decision, MemorySink, RunId};

    #[test]
    fn words_and_pins() {
        let digest = "AB".repeat(32);
        let lower = digest.to_lowercase();
        let policy =
            |word: &str, tree: Option<&str>, manifest: Option<&str>| TrustPolicy::from_config(word, tree, manifest);
        assert_eq!(policy("sha_pinned", Some(&digest), None).unwrap(), TrustPolicy::Pinned(lower.clone()));
        assert_eq!(policy("sha_pinned", None, Some(&digest)).unwrap(), TrustPolicy::PinnedManifest(lower.clone()));
        assert_eq!(policy("any", Some(&digest), Some(&digest)).unwrap(), TrustPolicy::Pinned(lower));
        for (word, tree, manifest) in [
            ("sha_pinned", None, None),
            ("sha_pinned", Some("00"), None),
            ("any", None, Some("00")),
            ("any", Some(digest.as_str()), Some("x")),
            ("Any", None, None),
            ("", None, None),
        ] {
            assert_eq!(policy(word, tree, manifest).unwrap_err().kind(), ErrorKind::InvalidConfig, "{word} {tree:?}");
        }
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the test makes the host's files")]
    fn the_weak_pin_covers_the_manifest_only_and_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pdf");
        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join("SKILL.md"), "x").unwrap();
        std::fs::write(path.join("run.py"), "1").unwrap();
        let sink = Arc::new(MemorySink::default());
        let audit = AuditScope::new(RunId::random().unwrap(), "test", sink.clone());
        let source = SkillSource::Folder(path.clone());
        let before = VerifiedSkill::verify(&source, &TrustPolicy::Any, &audit).unwrap();
        let weak = TrustPolicy::PinnedManifest(manifest_digest(before.tree()).unwrap().to_owned());
        let strong = TrustPolicy::Pinned(before.digest().to_owned());
        std::fs::write(path.join("run.py"), "2").unwrap();
        VerifiedSkill::verify(&source, &weak, &audit).unwrap();
        let error = VerifiedSkill::verify(&source, &strong, &audit).unwrap_err();
        assert_eq!((error.kind(), error.failed_operation()), (ErrorKind::TrustViolation, "trust"));
        std::fs::write(path.join("SKILL.md"), "y").unwrap();
        assert_eq!(VerifiedSkill::verify(&source, &weak, &audit).unwrap_err().kind(), ErrorKind::TrustViolation);
        let events = sink.events();
        assert!(events[1].reason.contains("only SKILL.md is pinned"), "{:?}", events[1]);
        assert_eq!(events.iter().filter(|event| event.decision == Decision::Deny).count(), 2);
    }
}
