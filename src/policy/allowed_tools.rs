//! Reads hosts out of a manifest's `allowed-tools`: `WebFetch(domain:api.example.com)`.
//!
//! What a manifest asks for is never what a run gets: the caller decides whether these hosts count
//! (see [`resolve_network_policy`](super::resolve_network_policy)).

/// The `allowed-tools` declaration of a manifest: one string, or a list of strings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AllowedTools {
    /// As one text, separated by white space.
    Text(String),
    /// As a list.
    List(Vec<String>),
}

impl From<&str> for AllowedTools {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<Vec<String>> for AllowedTools {
    fn from(list: Vec<String>) -> Self {
        Self::List(list)
    }
}

/// One entry of a declaration: `Bash(git add *)` is `Bash` with the pattern `git add *`.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct ToolEntry {
    /// The tool's name; unknown names are kept.
    pub name: String,
    /// What stands in the brackets, if there are any.
    pub pattern: Option<String>,
}

impl AllowedTools {
    /// The entries, in order. Blanks and commas separate, but not inside brackets: patterns hold blanks. Text whose
    /// brackets don't match is kept whole as a name, which then names no tool and so allows nothing.
    ///
    /// ```
    /// use skillcell::policy::AllowedTools;
    /// let names: Vec<String> =
    ///     AllowedTools::from("Bash(git add *), Read").entries().into_iter().map(|entry| entry.name).collect();
    /// assert_eq!(names, ["Bash", "Read"]);
    /// ```
    #[must_use]
    pub fn entries(&self) -> Vec<ToolEntry> {
        match self {
            Self::Text(text) => split_entries(text),
            Self::List(list) => list.iter().flat_map(|item| split_entries(item)).collect(),
        }
    }

    /// Whether commas separate entries of a text.
    pub(crate) fn has_commas(&self) -> bool {
        let mut depth = 0u32;
        match self {
            Self::List(_) => false,
            Self::Text(text) => text.chars().any(|c| {
                depth = match c {
                    '(' => depth.saturating_add(1),
                    ')' => depth.saturating_sub(1),
                    _ => depth,
                };
                c == ',' && depth == 0
            }),
        }
    }
}

fn split_entries(text: &str) -> Vec<ToolEntry> {
    let mut entries = Vec::new();
    let (mut start, mut depth) = (0, 0u32);
    for (index, c) in text.char_indices().chain([(text.len(), ' ')]) {
        match c {
            '(' => depth = depth.saturating_add(1),
            ')' => depth = depth.saturating_sub(1),
            _ if depth == 0 && (c.is_whitespace() || c == ',') => {
                entries.extend(text.get(start..index).and_then(entry));
                start = index + c.len_utf8();
            }
            _ => {}
        }
    }
    // An open bracket swallowed the rest.
    entries.extend(text.get(start..).and_then(entry));
    entries
}

fn entry(text: &str) -> Option<ToolEntry> {
    let text = text.trim();
    if text.is_empty() {
        return None;
    }
    let bracketed = text.split_once('(').and_then(|(name, rest)| Some((name, rest.strip_suffix(')')?)));
    Some(match bracketed {
        Some((name, pattern)) if !name.is_empty() => {
            ToolEntry { name: name.to_owned(), pattern: Some(pattern.trim().to_owned()) }
        }
        _ => ToolEntry { name: text.to_owned(), pattern: None },
    })
}

/// The hosts of every `WebFetch(domain:…)` in a declaration, sorted, without duplicates, case as written.
///
/// Bare `WebFetch` gives nothing: an unconstrained network is the caller's choice, never the manifest's.
/// Blanks are allowed around the brackets and the colon; the word is matched without regard to case. Unlike CARL,
/// the word must stand alone (`MyWebFetch(domain:x)` doesn't count).
///
/// ```
/// use skillcell::policy::{AllowedTools, parse_network_allowlist_from_allowed_tools};
/// let tools = AllowedTools::from("Bash(git:*) WebFetch(domain:api.x.com)");
/// assert_eq!(parse_network_allowlist_from_allowed_tools(Some(&tools)), ["api.x.com"]);
/// ```
#[must_use]
pub fn parse_network_allowlist_from_allowed_tools(allowed_tools: Option<&AllowedTools>) -> Vec<String> {
    let text = match allowed_tools {
        None => return Vec::new(),
        Some(AllowedTools::Text(text)) => text.clone(),
        Some(AllowedTools::List(list)) => list.join(" "),
    };
    const WORD: &str = "webfetch";
    let lower = text.to_ascii_lowercase();
    let mut hosts: Vec<String> = lower
        .match_indices(WORD)
        .filter(|(start, _)| !lower[..*start].ends_with(|c: char| c.is_alphanumeric() || c == '_'))
        .filter_map(|(start, _)| domain_argument(&text[start + WORD.len()..]))
        .collect();
    hosts.sort();
    hosts.dedup();
    hosts
}

/// Reads ` ( domain : HOST )` at the start of `rest`.
fn domain_argument(rest: &str) -> Option<String> {
    let rest = rest.trim_start().strip_prefix('(')?.trim_start();
    let (word, rest) = rest.split_at_checked("domain".len())?;
    if !word.eq_ignore_ascii_case("domain") {
        return None;
    }
    let rest = rest.trim_start().strip_prefix(':')?.trim_start();
    let end = rest.find(|c: char| c.is_whitespace() || c == ')')?;
    let (host, rest) = rest.split_at(end);
    (!host.is_empty() && rest.trim_start().starts_with(')')).then(|| host.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Vec<String> {
        parse_network_allowlist_from_allowed_tools(Some(&text.into()))
    }

    #[test]
    fn finds_domains_in_every_spelling_carl_knows() {
        assert_eq!(
            parse("WebFetch(domain:b.com) webfetch(DOMAIN: a.com ) WebFetch ( domain : c.com)"),
            ["a.com", "b.com", "c.com"]
        );
        assert_eq!(parse("WebFetch(domain:API.x.com)WebFetch(domain:API.x.com)"), ["API.x.com"]);
        let list = AllowedTools::from(vec!["Read".to_owned(), "WebFetch(domain:".to_owned(), "x.com)".to_owned()]);
        assert_eq!(parse_network_allowlist_from_allowed_tools(Some(&list)), ["x.com"]);
    }

    #[test]
    fn entries_keep_patterns_whole() {
        let entries = |text: &str| {
            AllowedTools::from(text).entries().into_iter().map(|entry| (entry.name, entry.pattern)).collect::<Vec<_>>()
        };
        let with = |name: &str, pattern: &str| (name.to_owned(), Some(pattern.to_owned()));
        let bare = |name: &str| (name.to_owned(), None);
        assert_eq!(
            entries("Bash(git add *) Bash(git commit *),Read , mcp__x__y"),
            [with("Bash", "git add *"), with("Bash", "git commit *"), bare("Read"), bare("mcp__x__y")]
        );
        assert_eq!(entries("Bash(echo (a, b)) Read"), [with("Bash", "echo (a, b)"), bare("Read")]);
        assert_eq!(entries("Bash(git add Read"), [bare("Bash(git add Read")]);
        assert_eq!(entries("(x) ) ()"), [bare("(x)"), bare(")"), bare("()")]);
        assert_eq!(entries(" ,, "), []);
        let list = AllowedTools::from(vec!["Bash(git add *)".to_owned(), "Read, Write".to_owned()]);
        assert_eq!(list.entries().len(), 3);
    }

    #[test]
    fn gives_nothing_for_what_is_no_domain() {
        assert_eq!(parse_network_allowlist_from_allowed_tools(None), Vec::<String>::new());
        for text in [
            "",
            "WebFetch",
            "WebFetch()",
            "WebFetch(domain:)",
            "WebFetch(domain:a b)",
            "WebFetch(domain:a",
            "WebFetch(dömain:x)",
            "MyWebFetch(domain:x)",
            "WebFetch(url:x)",
        ] {
            assert_eq!(parse(text), Vec::<String>::new(), "{text}");
        }
    }
}
