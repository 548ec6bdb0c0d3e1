//! What lies beside `SKILL.md`: scripts, references, assets and the rest, as paths from the skill's root.

use crate::workspace::HostTree;

/// The manifest's file.
pub const SKILL_MD: &str = "SKILL.md";
/// How some skills spell it; accepted, as the reference library does.
pub(super) const SKILL_MD_LOWER: &str = "skill.md";

/// The files of a skill by the format's conventions (CARL's `scripts`, `references`, `assets`), each list sorted.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize)]
pub struct SkillResources {
    /// Below `scripts/`.
    pub scripts: Vec<String>,
    /// Below `references/`.
    pub references: Vec<String>,
    /// Below `assets/`.
    pub assets: Vec<String>,
    /// Everything else but the manifest.
    pub other: Vec<String>,
}

impl SkillResources {
    /// Sorts the files of a tree.
    #[must_use]
    pub fn of(tree: &HostTree) -> Self {
        Self::sort(tree.entries().iter().map(|entry| entry.path.as_str()))
    }

    fn sort<'a>(paths: impl Iterator<Item = &'a str>) -> Self {
        let mut all = Self::default();
        for path in paths {
            let list = match path.split_once('/').map_or("", |(folder, _)| folder) {
                "scripts" => &mut all.scripts,
                "references" => &mut all.references,
                "assets" => &mut all.assets,
                _ if path == SKILL_MD || path == SKILL_MD_LOWER => continue,
                _ => &mut all.other,
            };
            list.push(path.to_owned());
        }
        all
    }

    /// The only `.py` or `.sh` below `scripts/`, which CARL runs when no script is named.
    ///
    /// # Errors
    /// CARL's words: there is none, or there are several.
    pub fn default_script(&self, skill: &str) -> crate::Result<&str> {
        let runnable: Vec<&str> = self
            .scripts
            .iter()
            .map(String::as_str)
            .filter(|path| path.ends_with(".py") || path.ends_with(".sh"))
            .collect();
        match runnable.as_slice() {
            [only] => Ok(only),
            [] => Err(crate::SkillRuntimeError::invalid(format!(
                "Skill '{skill}' has no scripts, and script_name was not specified"
            ))),
            several => Err(crate::SkillRuntimeError::invalid(format!(
                "Skill '{skill}' has multiple scripts ({}). Specify script_name",
                several.join(", ")
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_sorted_by_their_first_folder() {
        let paths = [
            "SKILL.md",
            "assets/a.png",
            "notes.md",
            "references/deep/x.md",
            "scripts/b.py",
            "scripts/c.txt",
            "scriptsx/d.py",
        ];
        let all = SkillResources::sort(paths.into_iter());
        assert_eq!(all.scripts, ["scripts/b.py", "scripts/c.txt"]);
        assert_eq!(all.references, ["references/deep/x.md"]);
        assert_eq!(all.assets, ["assets/a.png"]);
        assert_eq!(all.other, ["notes.md", "scriptsx/d.py"]);
        assert_eq!(all.default_script("s").unwrap(), "scripts/b.py");
    }

    #[test]
    fn a_default_script_must_be_the_only_one() {
        let none = SkillResources::default();
        assert_eq!(
            none.default_script("s").unwrap_err().to_string(),
            "Skill 's' has no scripts, and script_name was not specified"
        );
        let two = SkillResources::sort(["scripts/a.py", "scripts/b.sh"].into_iter());
        assert_eq!(
            two.default_script("s").unwrap_err().to_string(),
            "Skill 's' has multiple scripts (scripts/a.py, scripts/b.sh). Specify script_name"
        );
    }
}
