//! The lock file: which bytes of which skills were reviewed.
//!
//! `skillcell skill lock` writes it, `verify` compares it with what is there, file by file. Invariant: a lock file is
//! the caller's own, but its text is checked all the same: an entry that can't be understood is an error, not skipped.

use super::trust::digest_text;
use super::{LoadedSkill, TrustPolicy};
use crate::error::{Result, SkillRuntimeError};

/// The version this code writes and reads.
const VERSION: u32 = 1;
/// Bytes of a lock file: some thousand skills of some hundred files.
pub const MAX_LOCK_BYTES: u64 = 64 << 20;
/// Differences listed one by one.
const MAX_DIFFERENCES: usize = 50;

/// A lock file.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SkillLock {
    /// The version of the form.
    pub version: u32,
    /// One entry a skill, sorted by name.
    pub skills: Vec<LockedSkill>,
}

/// One locked skill.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LockedSkill {
    /// The name of its folder.
    pub name: String,
    /// Where it came from, as the caller wrote it; with a commit in place of a branch where one is known.
    pub source: String,
    /// The digest of the whole tree: what is pinned.
    pub tree_sha256: String,
    /// The digest of `SKILL.md`, for CARL's `skill_sha256`.
    pub skill_sha256: String,
    /// Every file, sorted by path, so that a difference can be named.
    pub files: Vec<LockedFile>,
}

/// One file of a locked skill.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LockedFile {
    /// Path from the skill's root.
    pub path: String,
    /// SHA-256 of the content.
    pub sha256: String,
    /// Whether it is executable.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub executable: bool,
}

impl Default for SkillLock {
    fn default() -> Self {
        Self { version: VERSION, skills: Vec::new() }
    }
}

impl LockedSkill {
    /// The entry for a skill.
    #[must_use]
    pub fn of(skill: &LoadedSkill, source: &str) -> Self {
        let file = |entry: &crate::workspace::TreeEntry| LockedFile {
            path: entry.path.clone(),
            sha256: entry.sha256.clone(),
            executable: entry.executable,
        };
        Self {
            name: skill.verified.name().to_owned(),
            source: source.to_owned(),
            tree_sha256: skill.verified.digest().to_owned(),
            skill_sha256: skill.skill_sha256().to_owned(),
            files: skill.verified.tree().entries().iter().map(file).collect(),
        }
    }

    /// How a skill differs from its entry, one phrase a file; empty when it is the same.
    #[must_use]
    pub fn differences(&self, skill: &LoadedSkill) -> Vec<String> {
        let tree = skill.verified.tree();
        if self.tree_sha256 == tree.digest() {
            return Vec::new();
        }
        let mut found = Vec::new();
        for file in &self.files {
            match tree.entry(&file.path) {
                None => found.push(format!("{} is gone", file.path.escape_debug())),
                Some(entry) if entry.sha256 != file.sha256 => {
                    found.push(format!("{} changed", file.path.escape_debug()))
                }
                Some(entry) if entry.executable != file.executable => {
                    let now = if entry.executable { "became executable" } else { "is no longer executable" };
                    found.push(format!("{} {now}", file.path.escape_debug()));
                }
                Some(_) => {}
            }
        }
        let known: std::collections::HashSet<&str> = self.files.iter().map(|file| file.path.as_str()).collect();
        for entry in tree.entries().iter().filter(|entry| !known.contains(entry.path.as_str())) {
            found.push(format!("{} is new", entry.path.escape_debug()));
        }
        if found.is_empty() {
            found.push(
                "the digest of the tree differs although the listed files don't; the lock file was edited".to_owned(),
            );
        }
        let more = found.len().saturating_sub(MAX_DIFFERENCES);
        found.truncate(MAX_DIFFERENCES);
        found.extend((more > 0).then(|| format!("and {more} more")));
        found
    }

    /// The trust policy that pins this entry.
    #[must_use]
    pub fn policy(&self) -> TrustPolicy {
        TrustPolicy::Pinned(self.tree_sha256.clone())
    }
}

impl SkillLock {
    /// Reads the text of a lock file.
    ///
    /// # Errors
    /// [`InvalidConfig`](crate::ErrorKind::InvalidConfig): no JSON, another version, an unknown field, a digest that is
    /// none, two entries of one name.
    pub fn parse(text: &[u8]) -> Result<Self> {
        let lock: Self = serde_json::from_slice(text).map_err(|error| {
            SkillRuntimeError::invalid("the lock file can't be read; write it anew with `skillcell skill lock`")
                .caused_by(error)
        })?;
        if lock.version != VERSION {
            return Err(SkillRuntimeError::invalid(format!(
                "the lock file has version {}, this skillcell reads version {VERSION}",
                lock.version
            )));
        }
        let mut names = std::collections::HashSet::new();
        for skill in &lock.skills {
            let digests = [&skill.tree_sha256, &skill.skill_sha256]
                .into_iter()
                .chain(skill.files.iter().map(|file| &file.sha256));
            for digest in digests {
                if digest_text(digest)? != *digest {
                    return Err(SkillRuntimeError::invalid("a digest in the lock file is not in lower case"));
                }
            }
            if !names.insert(skill.name.as_str()) {
                return Err(SkillRuntimeError::invalid(format!(
                    "the lock file has two entries for '{}'",
                    skill.name.escape_debug()
                )));
            }
        }
        Ok(lock)
    }

    /// The text, the same for the same content, one line a value so that a review shows what changed.
    ///
    /// # Errors
    /// [`Internal`](crate::ErrorKind::Internal) only for a defect of ours.
    pub fn to_text(&self) -> Result<String> {
        let mut text = serde_json::to_string_pretty(self).map_err(|error| {
            SkillRuntimeError::new(crate::ErrorKind::Internal, "a lock file could not be written as JSON")
                .caused_by(error)
        })?;
        text.push('\n');
        Ok(text)
    }

    /// Puts an entry in, in the place of one of the same name.
    pub fn insert(&mut self, skill: LockedSkill) {
        self.skills.retain(|known| known.name != skill.name);
        self.skills.push(skill);
        self.skills.sort_by(|a, b| a.name.cmp(&b.name));
    }

    /// The entry of a name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&LockedSkill> {
        self.skills.iter().find(|skill| skill.name == name)
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;
    use std::sync::Arc;

    use super::*;
    use crate::audit::{AuditScope, NullSink, RunId};
    use crate::skill::{ManifestMode, SkillSource, VerifiedSkill};

    #[expect(clippy::unwrap_used, reason = "a helper of tests")]
    fn load(path: &Path) -> LoadedSkill {
        let audit = AuditScope::new(RunId::random().unwrap(), "test", Arc::new(NullSink));
        let verified = VerifiedSkill::verify(&SkillSource::Folder(path.to_owned()), &TrustPolicy::Any, &audit).unwrap();
        LoadedSkill::load(Arc::new(verified), ManifestMode::Strict).unwrap()
    }

    #[expect(clippy::disallowed_methods, clippy::unwrap_used, reason = "the test makes the host's files")]
    fn write(path: &Path, text: &str) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    #[test]
    fn every_kind_of_change_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pdf");
        write(&path.join("SKILL.md"), "---\nname: pdf\ndescription: d\n---\nb");
        write(&path.join("scripts/a.py"), "1");
        write(&path.join("scripts/b.py"), "1");
        let skill = load(&path);
        let mut lock = SkillLock::default();
        lock.insert(LockedSkill::of(&skill, "./pdf"));
        let lock = SkillLock::parse(lock.to_text().unwrap().as_bytes()).unwrap();
        let entry = lock.get("pdf").unwrap();
        assert_eq!(entry.differences(&skill), Vec::<String>::new());
        assert_eq!(entry.policy(), TrustPolicy::Pinned(skill.verified.digest().to_owned()));

        write(&path.join("scripts/a.py"), "2");
        #[expect(clippy::disallowed_methods, reason = "the test changes the host's files")]
        std::fs::remove_file(path.join("scripts/b.py")).unwrap();
        write(&path.join("scripts/c.py"), "1");
        std::fs::set_permissions(path.join("SKILL.md"), std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(
            entry.differences(&load(&path)),
            ["SKILL.md became executable", "scripts/a.py changed", "scripts/b.py is gone", "scripts/c.py is new"]
        );
    }

    #[test]
    fn a_lock_file_that_is_not_understood_is_refused() {
        let digest = "0".repeat(64);
        let skill = |name: &str, digest: &str| {
            format!(r#"{{"name":"{name}","source":"x","tree_sha256":"{digest}","skill_sha256":"{digest}","files":[]}}"#)
        };
        let lock = |skills: String| format!(r#"{{"version":1,"skills":[{skills}]}}"#);
        assert!(SkillLock::parse(lock(skill("a", &digest)).as_bytes()).is_ok());
        for text in [
            String::new(),
            r#"{"version":2,"skills":[]}"#.to_owned(),
            r#"{"version":1,"skills":[],"more":1}"#.to_owned(),
            lock(skill("a", "00")),
            lock(skill("a", &"A".repeat(64))),
            lock(format!("{},{}", skill("a", &digest), skill("a", &digest))),
        ] {
            assert_eq!(
                SkillLock::parse(text.as_bytes()).unwrap_err().kind(),
                crate::ErrorKind::InvalidConfig,
                "{text}"
            );
        }
    }
}
