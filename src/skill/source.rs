//! Where a skill comes from.

use std::path::PathBuf;

/// Where a skill comes from, as the caller named it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SkillSource {
    /// A folder on this machine: all of it is the skill.
    Folder(PathBuf),
    /// One script on this machine, staged alone: the folder it lies in stays invisible to the guest.
    Script(PathBuf),
}
