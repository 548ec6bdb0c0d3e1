//! [`GuestPath`]: a path in the guest's world, parsed once, by component.
//!
//! Host paths never appear here. The type can't hold `..`, an empty or `.` component, a NUL, a backslash, or a name
//! that some host of ours can't store, so code that has one need not check again.

use std::fmt;
use std::str::FromStr;

use crate::error::{ErrorKind, Result, SkillRuntimeError};

/// The root of the guest's world.
pub const WORKSPACE_ROOT: &str = "/workspace";
/// `PATH_MAX` of Linux less the longest host prefix we would put before it.
const MAX_PATH_BYTES: usize = 2_048;
/// `NAME_MAX` of every host file system in use.
const MAX_NAME_BYTES: usize = 255;
/// Deeper trees are attacks on walkers, not results.
pub(super) const MAX_DEPTH: usize = 64;

/// One of the five parts of the guest's world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Area {
    /// `/workspace/skill`: the skill's folder, read-only.
    Skill,
    /// `/workspace/in`: staged inputs, read-only.
    In,
    /// `/workspace/out`: results, collected afterwards.
    Out,
    /// `/workspace/tmp`: scratch, thrown away.
    Tmp,
    /// `/workspace/site`: installed packages, read-only.
    Site,
}

impl Area {
    /// All five.
    pub const ALL: [Self; 5] = [Self::Skill, Self::In, Self::Out, Self::Tmp, Self::Site];

    /// The folder's name under `/workspace`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Skill => "skill",
            Self::In => "in",
            Self::Out => "out",
            Self::Tmp => "tmp",
            Self::Site => "site",
        }
    }

    /// The guest path, `/workspace/<name>`.
    #[must_use]
    pub fn guest_path(self) -> GuestPath {
        GuestPath { parts: vec![self.name().to_owned()] }
    }

    /// Whether the guest may change what lies there.
    #[must_use]
    pub fn writable(self) -> bool {
        match self {
            Self::Out | Self::Tmp => true,
            Self::Skill | Self::In | Self::Site => false,
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|area| area.name() == name)
    }
}

/// A path at or below `/workspace`, normalised: no `.`, no `..`, no empty parts.
///
/// ```
/// use skillcell::workspace::{Area, GuestPath};
/// let path: GuestPath = "/workspace/out/./report.txt".parse().unwrap();
/// assert_eq!(path.to_string(), "/workspace/out/report.txt");
/// assert_eq!(path.area(), Some(Area::Out));
/// assert!("/workspace/out/../../etc/passwd".parse::<GuestPath>().is_err());
/// assert!("/etc/passwd".parse::<GuestPath>().is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GuestPath {
    /// The components below `/workspace`.
    parts: Vec<String>,
}

impl GuestPath {
    /// `/workspace` itself.
    #[must_use]
    pub fn root() -> Self {
        Self { parts: Vec::new() }
    }

    /// Parses `text` as seen from the folder `base`: absolute paths must lie in `/workspace`, relative ones are
    /// joined. `..` is refused wherever it stands, even where it would stay inside: links make its meaning depend
    /// on the file system, and no script needs it in an argument of ours.
    ///
    /// # Errors
    /// [`PathDenied`](ErrorKind::PathDenied) quoting the text (control characters escaped) and saying why.
    pub fn resolve(base: &Self, text: &str) -> Result<Self> {
        let denied = |why: &str| SkillRuntimeError::new(ErrorKind::PathDenied, format!("path '{}' {why}", shown(text)));
        if text.is_empty() {
            return Err(denied("is empty; give a path such as /workspace/out/report.txt"));
        }
        if text.len() > MAX_PATH_BYTES {
            return Err(denied("is longer than 2048 bytes"));
        }
        let mut words = text.split('/').filter(|part| !matches!(*part, "" | "."));
        let mut parts = if text.starts_with('/') {
            if words.next() != Some("workspace") {
                return Err(denied("lies outside /workspace; use /workspace/in, /workspace/out or /workspace/skill"));
            }
            Vec::new()
        } else {
            base.parts.clone()
        };
        for part in words {
            match part {
                ".." => return Err(denied("contains '..'; name the file from /workspace down")),
                name => {
                    check_name(name).map_err(|why| denied(&why))?;
                    parts.push(name.to_owned());
                }
            }
        }
        if parts.len() > MAX_DEPTH {
            return Err(denied("is deeper than 64 folders"));
        }
        Ok(Self { parts })
    }

    /// Appends relative text.
    ///
    /// # Errors
    /// As [`resolve`](Self::resolve); absolute text is refused too.
    pub fn join(&self, text: &str) -> Result<Self> {
        if text.starts_with('/') {
            return Err(SkillRuntimeError::new(
                ErrorKind::PathDenied,
                format!("workspace paths must be relative: got '{}'", shown(text)),
            ));
        }
        Self::resolve(self, text)
    }

    /// Which part of the world it lies in; `None` for `/workspace` itself and for names that are no part of it.
    #[must_use]
    pub fn area(&self) -> Option<Area> {
        Area::from_name(self.parts.first()?)
    }

    /// The area and the path inside it (`.` for the area's own folder), or an error that says what exists.
    ///
    /// # Errors
    /// [`PathDenied`](ErrorKind::PathDenied) when the path is in none of the areas.
    pub fn in_area(&self) -> Result<(Area, String)> {
        let area = self.area().ok_or_else(|| {
            SkillRuntimeError::new(
                ErrorKind::PathDenied,
                format!("path '{self}' is in none of /workspace/skill, /workspace/in, /workspace/out, /workspace/tmp, /workspace/site"),
            )
        })?;
        let inside = if self.parts.len() == 1 { ".".to_owned() } else { self.parts[1..].join("/") };
        Ok((area, inside))
    }

    /// The last component; `None` for the root.
    #[must_use]
    pub fn file_name(&self) -> Option<&str> {
        self.parts.last().map(String::as_str)
    }

    /// The folder it lies in; `None` for the root.
    #[must_use]
    pub fn parent(&self) -> Option<Self> {
        let (_, parents) = self.parts.split_last()?;
        Some(Self { parts: parents.to_vec() })
    }

    /// The components below `/workspace`.
    #[must_use]
    pub fn parts(&self) -> &[String] {
        &self.parts
    }

    /// The extension of the file name, lower case, without the dot.
    #[must_use]
    pub fn extension(&self) -> Option<String> {
        let (stem, extension) = self.file_name()?.rsplit_once('.')?;
        (!stem.is_empty() && !extension.is_empty()).then(|| extension.to_ascii_lowercase())
    }
}

/// Checks one file name: it must mean the same on every host skillcell runs on.
///
/// # Errors
/// The reason, as a fragment that follows the path.
pub(crate) fn check_name(name: &str) -> std::result::Result<(), String> {
    if name.is_empty() || name == "." || name == ".." {
        return Err(format!("has a part '{name}', which is no name"));
    }
    if name.len() > MAX_NAME_BYTES {
        return Err("has a name longer than 255 bytes".to_owned());
    }
    if let Some(bad) = name.chars().find(|c| c.is_control() || matches!(c, '/' | '\\')) {
        return Err(format!("contains the character {bad:?}, which file names may not hold"));
    }
    Ok(())
}

/// Text from a guest or model for a message: escaped and short.
fn shown(text: &str) -> String {
    const SHOWN: usize = 120;
    let cut: String = text.chars().take(SHOWN).collect();
    let dots = if cut.len() < text.len() { "…" } else { "" };
    format!("{}{dots}", cut.escape_debug())
}

impl fmt::Display for GuestPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(WORKSPACE_ROOT)?;
        self.parts.iter().try_for_each(|part| write!(f, "/{part}"))
    }
}

impl FromStr for GuestPath {
    type Err = SkillRuntimeError;

    /// Parses an absolute guest path.
    fn from_str(text: &str) -> Result<Self> {
        if !text.starts_with('/') {
            return Err(SkillRuntimeError::new(
                ErrorKind::PathDenied,
                format!("path '{}' is relative; guest paths begin with /workspace/", shown(text)),
            ));
        }
        Self::resolve(&Self::root(), text)
    }
}

impl serde::Serialize for GuestPath {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<GuestPath> {
        GuestPath::resolve(&Area::Skill.guest_path(), text)
    }

    #[test]
    fn normal_forms() {
        for (given, expected) in [
            ("scripts/a.py", "/workspace/skill/scripts/a.py"),
            ("./a.py", "/workspace/skill/a.py"),
            ("/workspace/out//x/./y", "/workspace/out/x/y"),
            ("//workspace/in/", "/workspace/in"),
            ("/workspace", "/workspace"),
            ("a b/ü.txt", "/workspace/skill/a b/ü.txt"),
            ("..a", "/workspace/skill/..a"),
        ] {
            assert_eq!(parse(given).unwrap().to_string(), expected, "{given}");
        }
    }

    #[test]
    fn nothing_leaves_the_workspace() {
        for given in [
            "",
            "..",
            "../x",
            "a/../b",
            "/workspace/out/../../etc/passwd",
            "/etc/passwd",
            "/workspacex",
            "/workspace/in/..",
            "/",
            "a\0b",
            "a\\b",
            "a\nb",
            "\u{1b}[2J",
            &"x".repeat(256),
            &"a/".repeat(65),
            &"x/".repeat(2000),
        ] {
            let error = parse(given).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::PathDenied, "{given:?}");
            assert!(!error.to_string().contains('\u{1b}'), "{error}");
            assert!(error.to_string().len() < 400, "{error}");
        }
    }

    #[test]
    fn areas() {
        let path: GuestPath = "/workspace/in/data/x.CSV".parse().unwrap();
        assert_eq!(path.in_area().unwrap(), (Area::In, "data/x.CSV".to_owned()));
        assert_eq!(path.extension().as_deref(), Some("csv"));
        assert_eq!(Area::Out.guest_path().in_area().unwrap(), (Area::Out, ".".to_owned()));
        assert_eq!("/workspace/inner/x".parse::<GuestPath>().unwrap().area(), None);
        assert!(GuestPath::root().in_area().is_err());
        assert!("relative".parse::<GuestPath>().is_err());
    }

    proptest::proptest! {
        /// Against a model on lists of parts: whatever is accepted lies below the root and says the same again.
        #[test]
        fn what_is_accepted_lies_in_the_workspace(
            parts in proptest::collection::vec("\\.{0,3}|[a-z./\\\\ü\u{7}]{1,4}|workspace|out", 0..6),
            absolute in proptest::bool::ANY,
        ) {
            let text = format!("{}{}", if absolute { "/workspace/" } else { "" }, parts.join("/"));
            let names: Vec<&str> = text.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
            let rooted = text.starts_with('/');
            let bad = |name: &&str| *name == ".." || name.contains(['\\', '\u{7}']);
            let outside = rooted && names.first() != Some(&"workspace");
            let expected = (!text.is_empty() && !outside && !names.iter().any(bad)).then(|| {
                let below = if rooted { names.get(1..).unwrap_or_default() } else { &names };
                let base = if rooted { &[][..] } else { &["skill"][..] };
                [base, below].concat()
            });
            let found = parse(&text).ok();
            proptest::prop_assert_eq!(found.as_ref().map(|path| path.parts().to_vec()), expected.map(|parts| parts.iter().map(|part| (*part).to_owned()).collect()));
            if let Some(path) = found {
                proptest::prop_assert_eq!(path.to_string().parse::<GuestPath>().unwrap(), path);
            }
        }
    }
}
