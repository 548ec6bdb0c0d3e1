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
