//! [`SkillManifest`]: what a skill says about itself, checked against the Agent Skills format.
//!
//! The six keys of the format are `name`, `description`, `license`, `compatibility`, `metadata` and `allowed-tools`.
//! Rules and where they come from: lengths, characters and the folder's name are the specification's; letters of any
//! script are accepted in names as its reference library does (another of its validators takes ASCII only).
//!
//! Invariant: a manifest is a wish of somebody else's. Nothing here grants anything.

use serde_json::{Map, Value};
use unicode_normalization::UnicodeNormalization;

use super::frontmatter::{self, Node, NodeValue};
use crate::error::{ErrorKind, Result, SkillRuntimeError};
use crate::policy::{AllowedTools, ToolEntry};

/// Limits of the format, in characters.
const MAX_NAME_CHARS: usize = 64;
const MAX_DESCRIPTION_CHARS: usize = 1_024;
const MAX_COMPATIBILITY_CHARS: usize = 500;
/// Findings kept: a manifest of a thousand faults needs no thousand lines.
const MAX_FINDINGS: usize = 50;

/// How much is forgiven.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ManifestMode {
    /// Every departure from the format is an error: for authors, and `skillcell skill validate`.
    Strict,
    /// What can be understood is used, with a finding for each departure: for running skills as they are. Only YAML
    /// that can't be read and a missing description are errors.
    #[default]
    Lenient,
}

/// A departure from the format.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct ManifestFinding {
    /// The rule, a short word such as `name-form`.
    pub rule: &'static str,
    /// What is wrong and what would be right.
    pub message: String,
    /// The line of `SKILL.md`, from 1, where that is known.
    pub line: Option<usize>,
    /// Whether it is only advice: accepted in strict mode too.
    pub advice: bool,
}

/// What a skill says about itself (CARL's name and fields).
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct SkillManifest {
    /// Its name.
    pub name: String,
    /// What it does and when to use it.
    pub description: String,
    /// A licence's name or file.
    pub license: Option<String>,
    /// What it needs from its environment, in prose.
    pub compatibility: Option<String>,
    /// What it asks to be allowed. A wish: see [`SkillManifest::get_allowed_tools`].
    #[serde(serialize_with = "tools_as_json")]
    pub allowed_tools: Option<AllowedTools>,
    /// Everything else: the entries of `metadata` and, in lenient mode, unknown keys.
    pub metadata: Map<String, Value>,
    /// The body, trimmed.
    #[serde(skip)]
    pub instructions: String,
}

fn tools_as_json<S: serde::Serializer>(tools: &Option<AllowedTools>, serializer: S) -> Result<S::Ok, S::Error> {
    match tools {
        None => serializer.serialize_none(),
        Some(AllowedTools::Text(text)) => serializer.serialize_str(text),
        Some(AllowedTools::List(list)) => serializer.collect_seq(list),
    }
}

impl SkillManifest {
    /// Reads a `SKILL.md`. `folder` is the name of the folder it lies in, which the skill's name must equal.
    ///
    /// # Errors
    /// [`InvalidConfig`](ErrorKind::InvalidConfig) naming what is wrong and where: in strict mode every finding that
    /// isn't advice; in both a file without front matter, YAML that can't be read, and no description.
    /// [`LimitExceeded`](ErrorKind::LimitExceeded) for more than [`MAX_SKILL_MD_BYTES`](super::MAX_SKILL_MD_BYTES).
    pub fn parse(bytes: &[u8], folder: &str, mode: ManifestMode) -> Result<(Self, Vec<ManifestFinding>)> {
        let split = frontmatter::split(bytes)?;
        let mut findings = Findings::default();
        if split.byte_order_mark {
            findings.add(
                "byte-order-mark",
                Some(1),
                "the file begins with a byte-order mark; save it as UTF-8 without one",
            );
        }
        let entries = match frontmatter::parse(split.front_matter) {
            Ok(entries) => entries,
            Err(error) => {
                // Only plain values that hold a colon are forgiven; a bomb is not.
                let retry = match (mode, error.kind()) {
                    (ManifestMode::Lenient, ErrorKind::InvalidConfig) => {
                        frontmatter::quote_plain_values(split.front_matter)
                    }
                    _ => None,
                };
                let Some(entries) = retry.and_then(|quoted| frontmatter::parse(&quoted).ok()) else {
                    return Err(error);
                };
                findings.add("yaml", None, format!("{error}; the value was read as if it were quoted"));
                entries
            }
        };
        let mut fields = Fields::default();
        for (key, node) in &entries {
            fields.take(key, node, &mut findings);
        }
        let manifest = fields.finish(folder, split.body, &mut findings)?;
        let findings = findings.list;
        let faults: Vec<&ManifestFinding> = findings.iter().filter(|finding| !finding.advice).collect();
        if mode == ManifestMode::Strict && !faults.is_empty() {
            let text: Vec<String> = faults.iter().map(|finding| finding.to_string()).collect();
            return Err(SkillRuntimeError::invalid(format!("SKILL.md is not valid: {}", text.join("; "))));
        }
        Ok((manifest, findings))
    }

    /// The entries of `allowed-tools`, [] when absent (CARL's name; CARL splits at every blank, here a pattern such as
    /// `Bash(git add *)` stays whole).
    #[must_use]
    pub fn get_allowed_tools(&self) -> Vec<ToolEntry> {
        self.allowed_tools.as_ref().map(AllowedTools::entries).unwrap_or_default()
    }

    /// The names without their patterns, in order, each once (CARL's name).
    #[must_use]
    pub fn get_allowed_tool_names(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for entry in self.get_allowed_tools() {
            if !names.contains(&entry.name) {
                names.push(entry.name);
            }
        }
        names
    }

    /// Whether the manifest narrows the tools (CARL's name). `WebFetch` speaks of the network, not of tools, so a list
    /// of nothing else doesn't narrow.
    #[must_use]
    pub fn restricts_tools(&self) -> bool {
        self.get_allowed_tools().iter().any(|entry| !entry.name.eq_ignore_ascii_case("WebFetch"))
    }
}

impl std::fmt::Display for ManifestFinding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

#[derive(Default)]
struct Findings {
    list: Vec<ManifestFinding>,
}

impl Findings {
    fn add(&mut self, rule: &'static str, line: Option<usize>, message: impl Into<String>) {
        self.push(ManifestFinding { rule, message: message.into(), line, advice: false });
    }

    fn advise(&mut self, rule: &'static str, line: Option<usize>, message: impl Into<String>) {
        self.push(ManifestFinding { rule, message: message.into(), line, advice: true });
    }

    fn push(&mut self, finding: ManifestFinding) {
        if self.list.len() < MAX_FINDINGS {
            self.list.push(finding);
        }
    }
}

/// The keys as they are met.
#[derive(Default)]
struct Fields {
    name: Option<(String, usize)>,
    description: Option<(String, usize)>,
    license: Option<(String, usize)>,
    compatibility: Option<(String, usize)>,
    allowed_tools: Option<(AllowedTools, usize)>,
    metadata: Map<String, Value>,
    seen: Vec<String>,
}

impl Fields {
    fn take(&mut self, key: &str, node: &Node, findings: &mut Findings) {
        let line = Some(node.line);
        let folded = key.to_ascii_lowercase().replace('_', "-");
        if self.seen.contains(&folded) {
            findings.add(
                "duplicate-key",
                line,
                format!("the key '{}' stands twice; the last one was taken", shown(key)),
            );
        }
        self.seen.push(folded.clone());
        let known =
            matches!(&*folded, "name" | "description" | "license" | "compatibility" | "metadata" | "allowed-tools");
        if known && folded != key {
            findings.add("key-spelling", line, format!("the key '{}' must be written '{folded}'", shown(key)));
        }
        let text = |findings: &mut Findings| text_of(&folded, node, findings).map(|text| (text, node.line));
        match &*folded {
            "name" => self.name = text(findings),
            "description" => self.description = text(findings),
            "license" => self.license = text(findings),
            "compatibility" => self.compatibility = text(findings),
            "allowed-tools" => self.allowed_tools = tools_of(node, findings).map(|tools| (tools, node.line)),
            "metadata" => self.take_metadata(node, findings),
            _ => {
                findings.add(
                    "unknown-key",
                    line,
                    format!("the key '{}' is not part of the format; put it under 'metadata'", shown(key)),
                );
                self.metadata.insert(key.to_owned(), node.to_json());
            }
        }
    }

    fn take_metadata(&mut self, node: &Node, findings: &mut Findings) {
        match &node.value {
            NodeValue::Map(entries) => {
                for (key, value) in entries {
                    if !matches!(value.value, NodeValue::Text(_)) {
                        let message = format!("metadata '{}' should be a text, not {}", shown(key), value.kind());
                        findings.add("metadata", Some(value.line), message);
                    }
                    self.metadata.insert(key.clone(), value.to_json());
                }
            }
            NodeValue::Null => {}
            NodeValue::Text(_) | NodeValue::List(_) => {
                findings.add(
                    "metadata",
                    Some(node.line),
                    format!("'metadata' must be a map of texts, not {}", node.kind()),
                );
                self.metadata.insert("metadata".to_owned(), node.to_json());
            }
        }
    }

    fn finish(self, folder: &str, body: &str, findings: &mut Findings) -> Result<SkillManifest> {
        let missing = |what: &str| {
            SkillRuntimeError::invalid(format!(
                "SKILL.md is missing required '{what}' field; add it between the '---' lines"
            ))
        };
        let name = match self.name {
            Some((name, line)) => {
                check_name(&name, folder, line, findings);
                name
            }
            None => {
                findings.add("name-missing", None, missing("name").to_string());
                folder.to_owned()
            }
        };
        let (description, line) = self.description.ok_or_else(|| missing("description"))?;
        check_length("description", &description, MAX_DESCRIPTION_CHARS, line, findings);
        let compatibility = self.compatibility.map(|(text, line)| {
            check_length("compatibility", &text, MAX_COMPATIBILITY_CHARS, line, findings);
            text
        });
        if body.is_empty() {
            findings.advise("body-empty", None, "the file has no instructions after the front matter");
        }
        Ok(SkillManifest {
            name,
            description,
            license: self.license.map(|(text, _)| text),
            compatibility,
            allowed_tools: self.allowed_tools.map(|(tools, _)| tools),
            metadata: self.metadata,
            instructions: body.to_owned(),
        })
    }
}

/// A text, trimmed, without control characters: it goes into prompts and onto terminals.
fn text_of(key: &str, node: &Node, findings: &mut Findings) -> Option<String> {
    let text = match &node.value {
        NodeValue::Text(text) => text,
        NodeValue::Null => return None,
        NodeValue::List(_) | NodeValue::Map(_) => {
            findings.add("type", Some(node.line), format!("'{key}' must be a text, not {}", node.kind()));
            return None;
        }
    };
    let bad = |c: char| c.is_control() && c != '\n' && c != '\t';
    if text.contains(bad) {
        findings.add(
            "control-character",
            Some(node.line),
            format!("'{key}' holds control characters, which were taken out"),
        );
    }
    let clean: String = text.chars().filter(|c| !bad(*c)).collect();
    let clean = clean.trim();
    (!clean.is_empty()).then(|| clean.to_owned())
}

/// `allowed-tools` in its four shapes: text separated by blanks, text separated by commas, `[a, b]`, a block list.
fn tools_of(node: &Node, findings: &mut Findings) -> Option<AllowedTools> {
    match &node.value {
        NodeValue::Null => None,
        NodeValue::Text(text) => {
            if AllowedTools::from(text.as_str()).has_commas() {
                findings.advise(
                    "allowed-tools",
                    Some(node.line),
                    "'allowed-tools' is separated by commas; the format separates by blanks",
                );
            }
            Some(AllowedTools::Text(text.trim().to_owned()))
        }
        NodeValue::List(items) => {
            findings.advise(
                "allowed-tools",
                Some(node.line),
                "'allowed-tools' is a list; the format has one text, separated by blanks",
            );
            let mut list = Vec::new();
            for item in items {
                match &item.value {
                    NodeValue::Text(text) => list.push(text.trim().to_owned()),
                    NodeValue::Null => {}
                    NodeValue::List(_) | NodeValue::Map(_) => findings.add(
                        "allowed-tools",
                        Some(item.line),
                        format!("an entry of 'allowed-tools' must be a text, not {}", item.kind()),
                    ),
                }
            }
            Some(AllowedTools::List(list))
        }
        NodeValue::Map(_) => {
            findings.add("allowed-tools", Some(node.line), "'allowed-tools' must be a text or a list, not a map");
            None
        }
    }
}

fn check_name(name: &str, folder: &str, line: usize, findings: &mut Findings) {
    let normal: String = name.nfkc().collect();
    let count = normal.chars().count();
    let line = Some(line);
    if count > MAX_NAME_CHARS {
        findings.add(
            "name-length",
            line,
            format!("the name has {count} characters; at most {MAX_NAME_CHARS} are allowed"),
        );
    }
    if normal.to_lowercase() != normal {
        findings.add("name-case", line, format!("the name '{}' must be lower case", shown(name)));
    }
    let bad_form = normal.starts_with('-') || normal.ends_with('-') || normal.contains("--");
    if bad_form || !normal.chars().all(|c| c.is_alphanumeric() || c == '-') {
        findings.add(
            "name-form",
            line,
            format!("the name '{}' must be letters, digits and single '-' between them", shown(name)),
        );
    }
    if folder.nfkc().collect::<String>() != normal {
        findings.add(
            "name-folder",
            line,
            format!("the name '{}' differs from the folder's, '{}'; make them equal", shown(name), shown(folder)),
        );
    }
}

fn check_length(key: &str, text: &str, limit: usize, line: usize, findings: &mut Findings) {
    let count = text.chars().count();
    if count > limit {
        findings.add("length", Some(line), format!("'{key}' has {count} characters; at most {limit} are allowed"));
    }
}

/// Foreign text for a message: escaped and short.
fn shown(text: &str) -> String {
    text.chars().take(80).flat_map(char::escape_debug).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lenient(text: &str) -> (SkillManifest, Vec<&'static str>) {
        let (manifest, findings) = SkillManifest::parse(text.as_bytes(), "pdf", ManifestMode::Lenient).unwrap();
        (manifest, findings.iter().map(|finding| finding.rule).collect())
    }

    fn strict(text: &str) -> Result<SkillManifest> {
        SkillManifest::parse(text.as_bytes(), "pdf", ManifestMode::Strict).map(|(manifest, _)| manifest)
    }

    #[test]
    fn a_full_manifest_has_all_its_fields() {
        let text = "---\nname: pdf\ndescription: >\n  Reads\n  files.\nlicense: Apache-2.0\ncompatibility: Requires git\nmetadata:\n  author: me\n  version: 1.0\nallowed-tools: Bash(git:*) Read\n---\n\n# PDF\nDo it.\n";
        let (manifest, findings) = SkillManifest::parse(text.as_bytes(), "pdf", ManifestMode::Strict).unwrap();
        assert_eq!(findings, []);
        assert_eq!(
            manifest,
            SkillManifest {
                name: "pdf".into(),
                description: "Reads files.".into(),
                license: Some("Apache-2.0".into()),
                compatibility: Some("Requires git".into()),
                allowed_tools: Some(AllowedTools::Text("Bash(git:*) Read".into())),
                metadata: serde_json::from_str(r#"{"author": "me", "version": "1.0"}"#).unwrap(),
                instructions: "# PDF\nDo it.".into(),
            }
        );
        assert_eq!(manifest.get_allowed_tool_names(), ["Bash", "Read"]);
    }

    #[test]
    fn the_traps_of_other_readers() {
        // A colon in a plain value: strict says where, lenient reads it.
        let colon = "---\nname: pdf\ndescription: Use when: x\n---\nb";
        assert!(strict(colon).unwrap_err().to_string().contains("not YAML at line 3, column"), "{:?}", strict(colon));
        let (manifest, rules) = lenient(colon);
        assert_eq!((manifest.description.as_str(), rules), ("Use when: x", vec!["yaml"]));
        // Dashes in a value.
        assert_eq!(
            strict("---\nname: pdf\ndescription: uses --- dashes\n---\nb").unwrap().description,
            "uses --- dashes"
        );
        // A byte-order mark.
        assert_eq!(lenient("\u{feff}---\nname: pdf\ndescription: d\n---\nb").1, ["byte-order-mark"]);
        // A description that is too long.
        let long = format!("---\nname: pdf\ndescription: {}\n---\nb", "x".repeat(1068));
        assert_eq!(
            strict(&long).unwrap_err().to_string(),
            "SKILL.md is not valid: line 3: 'description' has 1068 characters; at most 1024 are allowed"
        );
        assert_eq!(lenient(&long).1, ["length"]);
    }

    #[test]
    fn allowed_tools_in_its_four_shapes() {
        for (yaml, names, rules) in [
            ("allowed-tools: Read Bash(git add *)", vec!["Read", "Bash"], vec![]),
            ("allowed-tools: Read, Write, Bash", vec!["Read", "Write", "Bash"], vec!["allowed-tools"]),
            ("allowed-tools: [Read, Write]", vec!["Read", "Write"], vec!["allowed-tools"]),
            ("allowed-tools:\n- Read\n- Bash(jq *)", vec!["Read", "Bash"], vec!["allowed-tools"]),
            ("allowed_tools: Read", vec!["Read"], vec!["key-spelling"]),
            ("allowed-tools: {a: b}", vec![], vec!["allowed-tools"]),
            ("allowed-tools:", vec![], vec![]),
        ] {
            let (manifest, found) = lenient(&format!("---\nname: pdf\ndescription: d\n{yaml}\n---\nb"));
            assert_eq!(
                (manifest.get_allowed_tool_names(), found),
                (names.iter().map(|name| (*name).to_owned()).collect(), rules),
                "{yaml}"
            );
        }
        let web = lenient("---\nname: pdf\ndescription: d\nallowed-tools: WebFetch(domain:a.com)\n---\nb").0;
        assert!(!web.restricts_tools());
    }

    #[test]
    fn names_of_any_script_but_one_form() {
        let check = |name: &str, folder: &str| {
            let text = format!("---\nname: {name}\ndescription: d\n---\nb");
            let (_, findings) = SkillManifest::parse(text.as_bytes(), folder, ManifestMode::Lenient).unwrap();
            findings.iter().map(|finding| finding.rule).collect::<Vec<_>>()
        };
        for name in ["pdf", "a1-b2", "技能", "навык", "ﬁne"] {
            assert_eq!(check(name, name), Vec::<&str>::new(), "{name}");
        }
        // Composed and decomposed forms are one name.
        assert_eq!(check("cafe\u{301}", "caf\u{e9}"), Vec::<&str>::new());
        for (name, rule) in [
            ("PDF", "name-case"),
            ("-a", "name-form"),
            ("a--b", "name-form"),
            ("a_b", "name-form"),
            ("a/b", "name-form"),
        ] {
            assert_eq!(check(name, name), [rule], "{name}");
        }
        assert_eq!(check("a", "b"), ["name-folder"]);
        assert_eq!(check(&"a".repeat(65), &"a".repeat(65)), ["name-length"]);
    }

    #[test]
    fn missing_fields() {
        assert_eq!(lenient("---\ndescription: d\n---\nb").0.name, "pdf");
        assert!(
            strict("---\ndescription: d\n---\nb").unwrap_err().to_string().contains("missing required 'name' field")
        );
        for text in [
            "---\nname: pdf\n---\nb",
            "---\nname: pdf\ndescription: ' '\n---\nb",
            "---\nname: pdf\ndescription: [a]\n---\nb",
            "---\n---\n",
        ] {
            let error = SkillManifest::parse(text.as_bytes(), "pdf", ManifestMode::Lenient).unwrap_err().to_string();
            assert!(error.contains("missing required 'description' field"), "{text:?}: {error}");
        }
    }

    #[test]
    fn hostile_values_are_found_and_cleaned() {
        let (manifest, rules) = lenient(
            "---\nname: pdf\ndescription: \"a\\e[2Jb\\0\"\nmetadata: {a: [1], b: {c: d}}\nextra: x\nextra: y\n---\n",
        );
        assert_eq!(manifest.description, "a[2Jb");
        assert_eq!(manifest.metadata, serde_json::from_str(r#"{"a": ["1"], "b": {"c": "d"}, "extra": "y"}"#).unwrap());
        assert_eq!(
            rules,
            ["control-character", "metadata", "metadata", "unknown-key", "duplicate-key", "unknown-key", "body-empty"]
        );
    }
}
