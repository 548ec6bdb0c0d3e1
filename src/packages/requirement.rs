//! [`PipRequirement`]: what may be asked of a package index, and nothing else.
//!
//! CARL handed each entry to `pip` as a word of its command line, so that an entry could be an option or an address.
//! Invariant: a requirement names a package of the configured index; it is never an option, a path or an address, and
//! never more than one line.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use crate::error::{ErrorKind, Result, SkillRuntimeError};

/// Requirements of one step. Each costs a look-up; more belong in a package of their own.
pub const MAX_REQUIREMENTS: usize = 64;
/// Bytes of one requirement: a name, some bounds, a condition.
const MAX_REQUIREMENT_BYTES: usize = 512;

/// A requirement on a Python package (PEP 508, without addresses): `jinja2`, `httpx[http2]>=0.27,<1`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PipRequirement(String);

impl PipRequirement {
    /// As it was given, without surrounding blanks.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PipRequirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for PipRequirement {
    type Err = SkillRuntimeError;

    fn from_str(text: &str) -> Result<Self> {
        let text = one_line(text)?;
        let bad = |what: &str| {
            SkillRuntimeError::invalid(format!(
                "extra_pip: '{}' {what}; name a package of the index, such as 'jinja2' or 'httpx>=0.27,<1'",
                text.escape_debug()
            ))
        };
        if text.starts_with('-') {
            return Err(bad("is an option, and only packages are installed"));
        }
        let (package, marker) = text.split_once(';').unwrap_or((text, "python_version > '0'"));
        if marker.trim().is_empty() {
            return Err(bad("ends in ';' without a condition"));
        }
        if package.contains('@') || package.contains('/') || package.contains('\\') || package.starts_with('.') {
            return Err(bad("is an address or a path"));
        }
        let name_end =
            package.find(|c: char| !(c.is_ascii_alphanumeric() || "._-".contains(c))).unwrap_or(package.len());
        let (name, rest) = package.split_at(name_end);
        if !is_name(name) {
            return Err(bad("doesn't begin with the name of a package"));
        }
        let rest = match rest.trim_start().strip_prefix('[') {
            None => rest,
            Some(extras) => {
                let (extras, rest) = extras.split_once(']').ok_or_else(|| bad("has a '[' without ']'"))?;
                if !extras.split(',').all(|extra| is_name(extra.trim())) {
                    return Err(bad("has an extra that is no name"));
                }
                rest
            }
        };
        let rest = rest.trim();
        let bounds = rest.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')).unwrap_or(rest).trim();
        if !bounds.is_empty() && !bounds.split(',').all(is_bound) {
            return Err(bad("has a version bound that can't be read"));
        }
        Ok(Self(text.to_owned()))
    }
}

/// Parses a list, each entry once, in order of their text.
///
/// # Errors
/// Those of an entry; [`LimitExceeded`](ErrorKind::LimitExceeded) over [`MAX_REQUIREMENTS`].
pub fn requirements<'a, T: FromStr<Err = SkillRuntimeError> + Ord>(
    entries: impl IntoIterator<Item = &'a str>,
) -> Result<Vec<T>> {
    let parsed: BTreeSet<T> = entries.into_iter().map(str::parse).collect::<Result<_>>()?;
    if parsed.len() > MAX_REQUIREMENTS {
        return Err(SkillRuntimeError::new(
            ErrorKind::LimitExceeded,
            format!("a step may ask for at most {MAX_REQUIREMENTS} packages, got {}", parsed.len()),
        ));
    }
    Ok(parsed.into_iter().collect())
}

fn one_line(text: &str) -> Result<&str> {
    let text = text.trim();
    if text.is_empty() || text.len() > MAX_REQUIREMENT_BYTES || text.chars().any(|c| c.is_control() || !c.is_ascii()) {
        let shown: String = text.chars().take(80).flat_map(char::escape_debug).collect();
        return Err(SkillRuntimeError::invalid(format!(
            "extra_pip: '{shown}' is no requirement: one line of at most {MAX_REQUIREMENT_BYTES} ASCII characters is expected"
        )));
    }
    Ok(text)
}

/// A name of a Python package or extra: letters, digits, and `._-` between them.
fn is_name(name: &str) -> bool {
    let end = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
    end(name.bytes().next())
        && end(name.bytes().last())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

/// One bound, such as `>=1.2` or `== 1.*`. Whether the version means something is for the tool to say.
fn is_bound(bound: &str) -> bool {
    let bound = bound.trim();
    ["===", "==", "!=", "~=", ">=", "<=", ">", "<"].iter().find_map(|sign| bound.strip_prefix(sign)).is_some_and(
        |version| {
            let version = version.trim();
            !version.is_empty() && version.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".*+!-_".contains(&byte))
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_of_the_index_are_accepted() {
        for text in [
            "jinja2",
            "python-dateutil==2.9.0.post0",
            "httpx[http2, cli] >= 0.27, < 1",
            "pydantic<2",
            "a~=1.0; python_version < '3.13'",
            "zope.interface (>=5)",
            "x==1.*",
        ] {
            assert_eq!(text.parse::<PipRequirement>().unwrap().as_str(), text);
        }
        assert_eq!("  six ".parse::<PipRequirement>().unwrap().as_str(), "six");
    }

    #[test]
    fn options_addresses_and_paths_are_refused() {
        for text in [
            "",
            "-r x",
            "--index-url=x",
            "--index-url http://127.0.0.1/x",
            "x @ http://127.0.0.1/x.whl",
            "http://127.0.0.1/x.whl",
            "git+https://x/y",
            "./x",
            "../x",
            "/etc/x.whl",
            "x\n--pre",
            "x --hash=sha256:0",
            "x ==",
            "x 1.0",
            "x;",
            "x[",
            "x[a",
            "x[-a]",
            "-x",
            "x-",
            "é",
            "a,b",
        ] {
            let error = text.parse::<PipRequirement>().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{text}");
        }
    }

    #[test]
    fn lists_are_sorted_and_bounded() {
        let parsed: Vec<PipRequirement> = requirements(["b", "a", "b "]).unwrap();
        assert_eq!(parsed.iter().map(PipRequirement::as_str).collect::<Vec<_>>(), ["a", "b"]);
        let many: Vec<String> = (0..=MAX_REQUIREMENTS).map(|index| format!("p{index}")).collect();
        let error = requirements::<PipRequirement>(many.iter().map(String::as_str)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::LimitExceeded);
    }
}
