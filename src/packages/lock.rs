//! [`PackageLock`]: which files were installed, by digest, for each Python they were chosen for.
//!
//! Written for people to keep beside a skill and to review. Invariant: it names files and digests, never where they
//! came from: the index is the machine's own affair, and a file with the digest is the file wherever it was fetched.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::wheel::{Wheel, normal_name};
use crate::error::{ErrorKind, Result, SkillRuntimeError};
use crate::workspace::{host_file_exists, read_host_file, write_host_file};

/// Bytes of a lock: some hundred bytes a package.
const MAX_LOCK_BYTES: u64 = 4 << 20;
/// The form of the file.
const FORMAT: u32 = 1;
/// Ending of the lock beside a skill or script.
const ENDING: &str = ".packages.lock";

/// Locked packages, by target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PackageLock {
    skillcell_packages: u32,
    targets: BTreeMap<String, LockedTarget>,
}

/// What is locked for one target.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LockedTarget {
    /// What was asked for, sorted.
    pub requirements: Vec<String>,
    /// What was chosen, sorted by name.
    pub files: Vec<LockedPackage>,
}

/// One file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LockedPackage {
    /// The package.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The file's name.
    pub file: String,
    /// SHA-256 of the file.
    pub sha256: String,
}

impl LockedPackage {
    /// What a wheel is locked as.
    #[must_use]
    pub fn of(wheel: &Wheel) -> Self {
        Self {
            name: wheel.normal_name(),
            version: wheel.version.clone(),
            file: wheel.file.clone(),
            sha256: wheel.sha256.clone(),
        }
    }
}

impl Default for PackageLock {
    fn default() -> Self {
        Self { skillcell_packages: FORMAT, targets: BTreeMap::new() }
    }
}

impl PackageLock {
    /// The usual place of the lock of a skill's folder or a lone script: beside it, since inside it would change the
    /// skill's digest.
    #[must_use]
    pub fn beside(skill: &Path) -> std::path::PathBuf {
        let mut name = skill.file_name().unwrap_or_default().to_owned();
        name.push(ENDING);
        skill.with_file_name(name)
    }

    /// Reads a lock; one that isn't there is empty.
    ///
    /// # Errors
    /// [`InvalidConfig`](ErrorKind::InvalidConfig) for a file that is no lock; those of reading.
    pub fn read(path: &Path) -> Result<Self> {
        if !host_file_exists(path) {
            return Ok(Self::default());
        }
        let bytes = read_host_file(path, MAX_LOCK_BYTES)?;
        let bad = |why: String| {
            SkillRuntimeError::invalid(format!(
                "{} is no lock of packages: {why}; restore or remove it",
                path.display()
            ))
        };
        let lock: Self = serde_json::from_slice(&bytes).map_err(|error| bad(error.to_string()))?;
        if lock.skillcell_packages != FORMAT {
            return Err(bad(format!("its form is {}, and {FORMAT} is known", lock.skillcell_packages)));
        }
        for package in lock.targets.values().flat_map(|target| &target.files) {
            let hex = package.sha256.len() == 64
                && package.sha256.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
            let name = normal_name(&package.name);
            let whole = format!("{name}=={}", package.version).parse::<super::PipRequirement>();
            if !hex || whole.is_err() || package.name.contains(['[', ';', ' ']) {
                return Err(bad(format!("the entry '{}' is damaged", package.name.escape_debug())));
            }
        }
        Ok(lock)
    }

    /// Writes it.
    ///
    /// # Errors
    /// [`Backend`](ErrorKind::Backend) naming the path.
    pub fn write(&self, path: &Path) -> Result<()> {
        let mut text = serde_json::to_vec_pretty(self)
            .map_err(|error| SkillRuntimeError::backend("the lock of packages could not be written", error))?;
        text.push(b'\n');
        write_host_file(path, &text)
    }

    /// What is locked for a target.
    ///
    /// # Errors
    /// [`TrustViolation`](ErrorKind::TrustViolation) when it was locked for other requirements than these.
    pub fn target(&self, name: &str, requirements: &[String]) -> Result<Option<&LockedTarget>> {
        match self.targets.get(name) {
            Some(locked) if locked.requirements != requirements => Err(SkillRuntimeError::new(
                ErrorKind::TrustViolation,
                format!(
                    "the lock of packages is for other requirements ({}); remove its entry '{name}', or the file, to choose \
                     anew",
                    locked.requirements.join(", ").escape_debug()
                ),
            )
            .operation("packages")),
            other => Ok(other),
        }
    }

    /// Adds what was chosen for a target.
    pub fn set(&mut self, name: String, target: LockedTarget) {
        self.targets.insert(name, target);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn locked() -> LockedTarget {
        LockedTarget {
            requirements: vec!["six".to_owned()],
            files: vec![LockedPackage {
                name: "six".to_owned(),
                version: "1.17.0".to_owned(),
                file: "six-1.17.0-py2.py3-none-any.whl".to_owned(),
                sha256: "0".repeat(64),
            }],
        }
    }

    #[test]
    fn a_lock_comes_back_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.lock");
        assert_eq!(PackageLock::read(&path).unwrap(), PackageLock::default());
        let mut lock = PackageLock::default();
        lock.set("cpython-3.13-pure".to_owned(), locked());
        lock.write(&path).unwrap();
        let lock = PackageLock::read(&path).unwrap();
        assert_eq!(lock.target("cpython-3.13-pure", &["six".to_owned()]).unwrap(), Some(&locked()));
        assert_eq!(lock.target("other", &[]).unwrap(), None);
        let error = lock.target("cpython-3.13-pure", &["six>1".to_owned()]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TrustViolation);
        assert!(error.to_string().contains("for other requirements (six)"), "{error}");
    }

    #[test]
    fn a_damaged_lock_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.lock");
        let mut lock = PackageLock::default();
        lock.set("t".to_owned(), locked());
        let good = serde_json::to_string(&lock).unwrap();
        for bad in [
            "{".to_owned(),
            good.replace(":1,", ":2,"),
            good.replace("targets", "aims"),
            good.replace(&"0".repeat(64), "0"),
            good.replace("1.17.0\"", "1 --index-url=x\""),
            good.replace("\"six\",\"version\"", "\"-r six\",\"version\""),
            good.replace("\"six\",\"version\"", "\"six[a]\",\"version\""),
        ] {
            assert_ne!(bad, good);
            write_host_file(&path, bad.as_bytes()).unwrap();
            assert_eq!(PackageLock::read(&path).unwrap_err().kind(), ErrorKind::InvalidConfig, "{bad}");
        }
    }

    #[test]
    fn the_usual_place_is_beside_the_skill() {
        assert_eq!(PackageLock::beside(Path::new("a/skill/")), Path::new("a/skill.packages.lock"));
        assert_eq!(PackageLock::beside(Path::new("x.py")), Path::new("x.py.packages.lock"));
    }
}
