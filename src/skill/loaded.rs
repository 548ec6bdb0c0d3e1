//! [`LoadedSkill`]: a verified tree together with what its manifest says.

use std::sync::Arc;

use super::frontmatter::MAX_SKILL_MD_BYTES;
use super::resources::{SKILL_MD, SKILL_MD_LOWER};
use super::{ManifestFinding, ManifestMode, SkillManifest, SkillResources, VerifiedSkill};
use crate::error::{ErrorKind, Result, SkillRuntimeError};

/// A verified skill with its manifest read. The manifest's bytes are the verified ones.
#[derive(Debug, Clone)]
pub struct LoadedSkill {
    /// The tree.
    pub verified: Arc<VerifiedSkill>,
    /// What it says about itself.
    pub manifest: SkillManifest,
    /// Departures from the format that were forgiven.
    pub findings: Vec<ManifestFinding>,
    /// Its files by the format's conventions.
    pub resources: SkillResources,
}

impl LoadedSkill {
    /// Reads the manifest of a verified skill.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound) when the root has no `SKILL.md`; else as [`SkillManifest::parse`].
    pub fn load(verified: Arc<VerifiedSkill>, mode: ManifestMode) -> Result<Self> {
        let tree = verified.tree();
        let upper = tree.contains(SKILL_MD);
        if !upper && !tree.contains(SKILL_MD_LOWER) {
            return Err(SkillRuntimeError::new(
                ErrorKind::NotFound,
                format!("No SKILL.md found in '{}'; name the folder that holds it", verified.name().escape_debug()),
            ));
        }
        let bytes = tree.read(if upper { SKILL_MD } else { SKILL_MD_LOWER }, MAX_SKILL_MD_BYTES)?;
        let (manifest, mut findings) = SkillManifest::parse(&bytes, verified.name(), mode)?;
        if !upper {
            findings.push(ManifestFinding {
                rule: "file-name",
                message: "the file must be named SKILL.md, in capitals".to_owned(),
                line: None,
                advice: false,
            });
            if mode == ManifestMode::Strict {
                return Err(SkillRuntimeError::invalid("the manifest's file must be named SKILL.md, in capitals"));
            }
        }
        let resources = SkillResources::of(tree);
        Ok(Self { manifest, findings, resources, verified })
    }

    /// The SHA-256 of `SKILL.md`: CARL's `skill_sha256`.
    #[must_use]
    pub fn skill_sha256(&self) -> &str {
        super::trust::manifest_digest(self.verified.tree()).unwrap_or_default()
    }
}
