//! [`Workspace`]: the four folders of the guest's world.
//!
//! It must not check that the folders exist: a program that writes nothing needs no output folder. The first use of
//! a folder that is missing gives an error that names it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The folders a guest works with.
///
/// ```
/// use skillcell_guest::Workspace;
/// let workspace = Workspace::from_lookup(|name| (name == "WORKSPACE_IN").then(|| "/data".into()));
/// assert_eq!(workspace.inputs_dir(), std::path::Path::new("/data"));
/// assert_eq!(workspace.outputs_dir(), std::path::Path::new("/workspace/out"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workspace {
    inputs: PathBuf,
    outputs: PathBuf,
    skill: PathBuf,
    tmp: PathBuf,
}

impl Workspace {
    /// The folders this process was given.
    #[must_use]
    pub fn from_env() -> Self {
        Self::from_lookup(|name| std::env::var_os(name))
    }

    /// The folders that `lookup` gives for `WORKSPACE_IN`, `WORKSPACE_OUT`, `SKILL_DIR` and `TMPDIR`. An absent or
    /// empty value means the default. For tests, and for programs that take the folders from their arguments.
    #[must_use]
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<OsString>) -> Self {
        let folder = |name: &str, default: &str| match lookup(name) {
            Some(value) if !value.is_empty() => PathBuf::from(value),
            Some(_) | None => PathBuf::from(default),
        };
        Self {
            inputs: folder("WORKSPACE_IN", "/workspace/in"),
            outputs: folder("WORKSPACE_OUT", "/workspace/out"),
            skill: folder("SKILL_DIR", "/workspace/skill"),
            tmp: folder("TMPDIR", "/workspace/tmp"),
        }
    }

    /// Where the inputs lie. Read-only.
    #[must_use]
    pub fn inputs_dir(&self) -> &Path {
        &self.inputs
    }

    /// Where results go.
    #[must_use]
    pub fn outputs_dir(&self) -> &Path {
        &self.outputs
    }

    /// Where the skill's own files lie: templates, tables, other scripts. Read-only.
    #[must_use]
    pub fn skill_dir(&self) -> &Path {
        &self.skill
    }

    /// Scratch space; whatever is left in it is thrown away after the run.
    #[must_use]
    pub fn tmp_dir(&self) -> &Path {
        &self.tmp
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folders(workspace: &Workspace) -> [String; 4] {
        [workspace.inputs_dir(), workspace.outputs_dir(), workspace.skill_dir(), workspace.tmp_dir()]
            .map(|path| path.to_string_lossy().into_owned())
    }

    #[test]
    fn every_folder_has_its_own_variable() {
        let workspace = Workspace::from_lookup(|name| Some(format!("/x/{name}").into()));
        assert_eq!(folders(&workspace), ["/x/WORKSPACE_IN", "/x/WORKSPACE_OUT", "/x/SKILL_DIR", "/x/TMPDIR"]);
    }

    #[test]
    fn absent_and_empty_mean_the_guest_paths() {
        let expected = ["/workspace/in", "/workspace/out", "/workspace/skill", "/workspace/tmp"];
        assert_eq!(folders(&Workspace::from_lookup(|_| None)), expected);
        assert_eq!(folders(&Workspace::from_lookup(|_| Some(OsString::new()))), expected);
    }
}
