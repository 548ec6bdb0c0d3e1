//! [`AgentSkillSource`]: where a skill comes from, as a caller writes it. Parsed here, fetched by `resolve`.
//!
//! The forms are CARL's. Invariant: a parsed reference holds no `..`, no name that could be an option of a program,
//! and no address that isn't `http` or `https`.

use std::path::PathBuf;
use std::str::FromStr;

use crate::error::{Result, SkillRuntimeError};
use crate::workspace::GuestPath;

/// Characters of one reference; longer ones are mistakes.
const MAX_REFERENCE_BYTES: usize = 4_096;

/// Where a skill comes from (CARL's name).
///
/// ```
/// use skillcell::skill::AgentSkillSource;
/// let source: AgentSkillSource = "github://acme/skills/pdf@v1".parse().unwrap();
/// assert_eq!(source.to_string(), "github://acme/skills/pdf@v1");
/// assert!("module://acme.skills".parse::<AgentSkillSource>().is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentSkillSource {
    /// A folder on this machine.
    Path(PathBuf),
    /// A name, looked for in the search paths.
    Name(String),
    /// A folder of a GitHub repository at a branch, tag or commit.
    Github {
        /// The owner.
        owner: String,
        /// The repository.
        repo: String,
        /// The folder in it; empty for the root.
        subpath: String,
        /// Branch, tag or commit; `main` unless given, as in CARL.
        reference: String,
    },
    /// An archive (`.tar.gz`, `.tgz`, `.zip`) on the web.
    Archive {
        /// The address, without the fragment.
        url: String,
        /// The digest its bytes must have.
        sha256: Option<String>,
        /// The folder in it, from the fragment's `path=`; empty: the only folder that has a `SKILL.md`.
        subpath: String,
    },
}

impl AgentSkillSource {
    /// Whether the same reference always means the same bytes: a commit, or an archive with its digest.
    #[must_use]
    pub fn is_immutable(&self) -> bool {
        match self {
            Self::Path(_) | Self::Name(_) => false,
            Self::Github { reference, .. } => is_commit(reference),
            Self::Archive { sha256, .. } => sha256.is_some(),
        }
    }
}

/// Forty hex digits.
pub(super) fn is_commit(reference: &str) -> bool {
    reference.len() == 40 && reference.bytes().all(|b| b.is_ascii_hexdigit())
}

impl FromStr for AgentSkillSource {
    type Err = SkillRuntimeError;

    /// Reads CARL's string forms, in its order: `github://owner/repo[/sub][@ref]`, `local://path`, a path (it begins
    /// with `/`, `./`, `../`, or ends with `/`), an address, else a name.
    fn from_str(text: &str) -> Result<Self> {
        let text = text.trim();
        if text.is_empty() || text.len() > MAX_REFERENCE_BYTES || text.chars().any(char::is_control) {
            return Err(SkillRuntimeError::invalid(
                "a skill is given as a path, a name, github://owner/repo/path@ref, or the https address of an archive",
            ));
        }
        if let Some(rest) = text.strip_prefix("github://") {
            return github(rest);
        }
        if text.starts_with("module://") {
            return Err(SkillRuntimeError::invalid(
                "module:// names a Python package, which skillcell can't import; give the folder of the skill inside the \
                 installed package as a path",
            ));
        }
        if let Some(path) = text.strip_prefix("local://") {
            return if path.is_empty() {
                Err(SkillRuntimeError::invalid("local:// needs a path after it"))
            } else {
                Ok(Self::Path(path.into()))
            };
        }
        let relative = text == "." || text == ".." || ["/", "./", "../"].iter().any(|start| text.starts_with(start));
        if relative || (text.ends_with('/') && !text.contains("://")) {
            return Ok(Self::Path(text.into()));
        }
        if let Some(rest) = text.strip_prefix("git@github.com:") {
            return github_address(rest);
        }
        if text.starts_with("https://") || text.starts_with("http://") {
            return web(text);
        }
        if text.starts_with("git@") || text.contains("://") {
            return Err(SkillRuntimeError::invalid(format!(
                "can't fetch '{}': git remotes other than GitHub are not supported; give the https address of an archive \
                 (.tar.gz or .zip) with #sha256=, or clone it and give the path",
                shown(text)
            )));
        }
        name(text)
    }
}

fn name(text: &str) -> Result<AgentSkillSource> {
    if text.starts_with('~') {
        return Err(SkillRuntimeError::invalid(format!(
            "'{}' begins with '~', which only a shell expands; write the whole path",
            shown(text)
        )));
    }
    if text.contains(['/', '\\']) {
        return Err(SkillRuntimeError::invalid(format!(
            "'{0}' is neither a name nor a path; for a path write './{0}'",
            shown(text)
        )));
    }
    crate::workspace::check_name(text)
        .map_err(|why| SkillRuntimeError::invalid(format!("the skill name '{}' {why}", shown(text))))?;
    Ok(AgentSkillSource::Name(text.to_owned()))
}

/// `owner/repo[/sub][@ref]`; the reference stands after the last `@`.
fn github(text: &str) -> Result<AgentSkillSource> {
    let (path, reference) = text.rsplit_once('@').unwrap_or((text, "main"));
    let mut parts = path.trim_end_matches('/').splitn(3, '/');
    let (owner, repo) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
    let bad = |why: &str| {
        SkillRuntimeError::invalid(format!("'github://{}' {why}; write github://owner/repo/path@ref", shown(text)))
    };
    if !is_slug(owner) || !is_slug(repo) {
        return Err(bad("has no owner and repository"));
    }
    if !is_reference(reference) {
        return Err(bad("has a reference that no branch, tag or commit can have"));
    }
    let subpath = inner_path(parts.next().unwrap_or("")).map_err(|why| bad(&why))?;
    Ok(AgentSkillSource::Github { owner: owner.into(), repo: repo.into(), subpath, reference: reference.into() })
}

/// `owner/repo(.git)` from an ordinary address of GitHub.
fn github_address(rest: &str) -> Result<AgentSkillSource> {
    let rest = rest.trim_end_matches('/');
    github(rest.strip_suffix(".git").unwrap_or(rest)).map(|source| match source {
        AgentSkillSource::Github { owner, repo, subpath, .. } => {
            // An address names no branch, so the default one is meant, which `HEAD` names.
            AgentSkillSource::Github { owner, repo, subpath, reference: "HEAD".into() }
        }
        other @ (AgentSkillSource::Path(_) | AgentSkillSource::Name(_) | AgentSkillSource::Archive { .. }) => other,
    })
}

fn web(text: &str) -> Result<AgentSkillSource> {
    let (url, fragment) = text.split_once('#').unwrap_or((text, ""));
    let rest = url.split_once("://").map_or("", |(_, rest)| rest);
    let authority = rest.split(['/', '?']).next().unwrap_or("");
    if authority.is_empty() || authority.contains('@') {
        return Err(SkillRuntimeError::invalid(
            "the address of a skill needs a host and may not hold a user or password; give credentials to the fetcher instead",
        ));
    }
    let path = url.split('?').next().unwrap_or(url).to_ascii_lowercase();
    if ![".tar.gz", ".tgz", ".zip"].iter().any(|end| path.ends_with(end)) {
        return match url.strip_prefix("https://github.com/") {
            Some(rest) if rest.trim_end_matches('/').split('/').count() == 2 => github_address(rest),
            _ => Err(SkillRuntimeError::invalid(format!(
                "'{}' is no address of an archive (.tar.gz, .tgz, .zip); for a folder on GitHub write github://owner/repo/path@ref",
                shown(url)
            ))),
        };
    }
    let (mut sha256, mut subpath) = (None, String::new());
    for part in fragment.split('&').filter(|part| !part.is_empty()) {
        match part.split_once('=') {
            Some(("sha256", digest)) => sha256 = Some(super::trust::digest_text(digest)?),
            Some(("path", path)) => {
                subpath = inner_path(path)
                    .map_err(|why| SkillRuntimeError::invalid(format!("'#path={}' {why}", shown(path))))?;
            }
            _ => {
                return Err(SkillRuntimeError::invalid(format!(
                    "'#{}' is not understood after an address; use #sha256=DIGEST or #path=FOLDER",
                    shown(part)
                )));
            }
        }
    }
    if url.starts_with("http://") && sha256.is_none() {
        return Err(SkillRuntimeError::invalid(
            "an http address can be changed on its way; use https, or add #sha256= with the digest of the archive",
        ));
    }
    Ok(AgentSkillSource::Archive { url: url.to_owned(), sha256, subpath })
}

fn is_slug(text: &str) -> bool {
    let fine = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    !text.is_empty() && text.len() <= 100 && !text.starts_with(['-', '.']) && text.bytes().all(fine)
}

/// The characters git itself allows that also need no escaping in an address. No leading `-`: not an option.
fn is_reference(text: &str) -> bool {
    let fine = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'/' | b'+');
    !text.is_empty()
        && text.len() <= 250
        && !text.starts_with(['-', '/'])
        && !text.contains("..")
        && text.bytes().all(fine)
}

/// A folder inside something that is fetched, normalised; empty for the root.
fn inner_path(text: &str) -> std::result::Result<String, String> {
    if text.trim_matches('/').is_empty() {
        return Ok(String::new());
    }
    let path = GuestPath::root().join(text.trim_matches('/')).map_err(|error| format!("has a bad path ({error})"))?;
    Ok(path.parts().join("/"))
}

pub(super) fn shown(text: &str) -> String {
    text.chars().take(200).flat_map(char::escape_debug).collect()
}

impl std::fmt::Display for AgentSkillSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Path(path) => write!(f, "{}", path.display()),
            Self::Name(name) => f.write_str(name),
            Self::Github { owner, repo, subpath, reference } => {
                write!(f, "github://{owner}/{repo}")?;
                if !subpath.is_empty() {
                    write!(f, "/{subpath}")?;
                }
                write!(f, "@{reference}")
            }
            Self::Archive { url, sha256, subpath } => {
                f.write_str(url)?;
                let digest = sha256.as_ref().map(|digest| format!("sha256={digest}"));
                let path = (!subpath.is_empty()).then(|| format!("path={subpath}"));
                let fragment: Vec<String> = digest.into_iter().chain(path).collect();
                if fragment.is_empty() { Ok(()) } else { write!(f, "#{}", fragment.join("&")) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<AgentSkillSource> {
        text.parse()
    }

    fn on_github(owner: &str, repo: &str, subpath: &str, reference: &str) -> AgentSkillSource {
        AgentSkillSource::Github {
            owner: owner.into(),
            repo: repo.into(),
            subpath: subpath.into(),
            reference: reference.into(),
        }
    }

    #[test]
    fn the_forms_of_carl() {
        let digest = "ab".repeat(32);
        for (text, expected) in [
            ("github://a/b", on_github("a", "b", "", "main")),
            ("github://a/b/skills/pdf@v1.0", on_github("a", "b", "skills/pdf", "v1.0")),
            ("github://a/b/x@y@z", on_github("a", "b", "x@y", "z")),
            ("git@github.com:a/b.git", on_github("a", "b", "", "HEAD")),
            ("https://github.com/a/b.git", on_github("a", "b", "", "HEAD")),
            ("https://github.com/a/b/", on_github("a", "b", "", "HEAD")),
            ("local://skills/pdf", AgentSkillSource::Path("skills/pdf".into())),
            ("/x/y", AgentSkillSource::Path("/x/y".into())),
            ("./x", AgentSkillSource::Path("./x".into())),
            ("../x", AgentSkillSource::Path("../x".into())),
            ("x/", AgentSkillSource::Path("x/".into())),
            (".", AgentSkillSource::Path(".".into())),
            ("pdf", AgentSkillSource::Name("pdf".into())),
            (
                &format!("https://x.example/a.TAR.GZ?x=1#sha256={}&path=skills/pdf/", digest.to_uppercase()),
                AgentSkillSource::Archive {
                    url: "https://x.example/a.TAR.GZ?x=1".into(),
                    sha256: Some(digest.clone()),
                    subpath: "skills/pdf".into(),
                },
            ),
        ] {
            let parsed = parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(parsed, expected, "{text}");
            if !matches!(parsed, AgentSkillSource::Path(_)) {
                assert_eq!(parse(&parsed.to_string()).unwrap(), parsed, "{text}");
            }
        }
    }

    #[test]
    fn what_can_mean_nothing_good_is_refused() {
        for (text, what) in [
            ("", "a skill is given as"),
            ("a\nb", "a skill is given as"),
            ("github://a", "no owner and repository"),
            ("github://a/..", "no owner and repository"),
            ("github://-a/b", "no owner and repository"),
            ("github://a/b@--upload-pack=x", "reference"),
            ("github://a/b@a..b", "reference"),
            ("github://a/b/../../c@main", "contains '..'"),
            ("module://x", "Python package"),
            ("local://", "needs a path"),
            ("~/x", "only a shell expands"),
            ("skills/pdf", "write './skills/pdf'"),
            ("..\\x", "neither a name nor a path"),
            ("git@gitlab.com:a/b", "other than GitHub"),
            ("ssh://x/y", "other than GitHub"),
            ("file:///etc", "other than GitHub"),
            ("http://x.example/a.zip", "can be changed on its way"),
            ("https://u:p@x.example/a.zip", "may not hold a user"),
            ("https:///a.zip", "needs a host"),
            ("https://x.example/a.zip#sha256=12", "64 hex digits"),
            ("https://x.example/a.zip#md5=12", "not understood"),
            ("https://x.example/a.zip#path=../x", "contains '..'"),
            ("https://x.example/a", "no address of an archive"),
        ] {
            let error = parse(text).map_or_else(|error| error.to_string(), |source| format!("{source:?}"));
            assert!(error.contains(what), "{text:?}: {error}");
            assert!(!error.contains("u:p"), "{error}");
        }
    }

    #[test]
    fn only_commits_and_digests_stand_still() {
        assert!(parse(&format!("github://a/b@{}", "0f".repeat(20))).unwrap().is_immutable());
        assert!(parse(&format!("https://x.example/a.zip#sha256={}", "0".repeat(64))).unwrap().is_immutable());
        for text in ["github://a/b@v1", "https://x.example/a.zip", "./x", "x"] {
            assert!(!parse(text).unwrap().is_immutable(), "{text}");
        }
    }
}
