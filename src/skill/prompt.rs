//! Turns a manifest into the part of a prompt that speaks of the skill, with CARL's three cleanings.
//!
//! The text of a skill is foreign: it is quoted to the model, never acted on here. Whatever is taken out is counted
//! in [`PromptText`], so that a result can say what the model did not see.

use super::SkillManifest;

/// CARL's notice after cut instructions.
const TRUNCATED: &str = "\n\n[...instructions truncated...]";

/// How the instructions are cleaned. Names and meanings are CARL's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PromptOptions {
    /// Whether the description is shown. CARL's default: yes.
    pub include_skill_description: bool,
    /// The most characters of instructions. CARL's default: 3000. `None`: all.
    pub max_instructions_chars: Option<usize>,
    /// Whether fenced code is taken out. CARL's default: yes.
    pub strip_code_blocks: bool,
    /// Whether sections about passwords and encryption are taken out. CARL's default: yes; here no, since it cuts
    /// documented features of ordinary skills (a PDF tool's `--password`) without a word.
    pub filter_security_terms: bool,
}

impl Default for PromptOptions {
    fn default() -> Self {
        Self {
            include_skill_description: true,
            max_instructions_chars: Some(3_000),
            strip_code_blocks: true,
            filter_security_terms: false,
        }
    }
}

/// The prompt's part, and what was taken out of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptText {
    /// The text.
    pub text: String,
    /// What was taken out, one phrase each; empty when the model sees all.
    pub removed: Vec<String>,
}

/// Writes the part of a system prompt that speaks of the skill.
#[must_use]
pub fn skill_prompt(manifest: &SkillManifest, options: &PromptOptions) -> PromptText {
    let mut removed = Vec::new();
    let mut text = format!("## Skill: {}\n", manifest.name);
    if options.include_skill_description {
        let description = if options.filter_security_terms {
            let (kept, dropped) = filter_description(&manifest.description);
            removed.extend((dropped > 0).then(|| format!("{dropped} parts of the description with security terms")));
            kept
        } else {
            manifest.description.clone()
        };
        text.push_str(&format!("\n{description}\n"));
    }
    let tools = manifest.get_allowed_tool_names();
    if !tools.is_empty() {
        text.push_str(&format!("\n**Allowed tools**: {}\n", tools.join(", ")));
    }
    let mut body = manifest.instructions.clone();
    if options.strip_code_blocks {
        let (kept, blocks) = strip_code(&body);
        removed.extend((blocks > 0).then(|| format!("{blocks} code blocks")));
        body = kept;
    }
    if options.filter_security_terms {
        let (kept, sections) = filter_sections(&body);
        removed.extend((sections > 0).then(|| format!("{sections} sections with security terms in their headings")));
        body = kept;
    }
    if let Some(limit) = options.max_instructions_chars
        && let Some((cut, _)) = body.char_indices().nth(limit)
    {
        let missing = body.get(cut..).map_or(0, |rest| rest.chars().count());
        removed.push(format!("{missing} characters of instructions over the limit of {limit}"));
        body.truncate(cut);
        body.push_str(TRUNCATED);
    }
    if !body.is_empty() {
        text.push_str(&format!("\n{body}\n"));
    }
    PromptText { text, removed }
}

/// The fence that opens a block: at least three backticks or tildes after at most three blanks.
fn fence(line: &str) -> Option<(char, usize)> {
    let text = line.trim_start_matches(' ');
    if line.len() - text.len() > 3 {
        return None;
    }
    let mark = text.chars().next().filter(|c| matches!(c, '`' | '~'))?;
    let count = text.chars().take_while(|c| *c == mark).count();
    (count >= 3).then_some((mark, count))
}

/// Takes out fenced code and collapses the blank lines that are left. An open fence runs to the end, as in Markdown.
fn strip_code(body: &str) -> (String, usize) {
    let mut kept = String::with_capacity(body.len());
    let (mut open, mut blocks, mut blank) = (None, 0, false);
    for line in body.lines() {
        match (open, fence(line)) {
            (None, Some(mark)) => {
                blocks += 1;
                open = Some(mark);
            }
            (Some((mark, count)), Some((other, length))) if mark == other && length >= count => open = None,
            (Some(_), _) => {}
            (None, None) => {
                let empty = line.trim().is_empty();
                if !(empty && blank) {
                    kept.push_str(line);
                    kept.push('\n');
                }
                blank = empty;
            }
        }
    }
    (kept.trim().to_owned(), blocks)
}

/// Whether one of CARL's security words stands in the text as a word of its own.
fn has_security_term(text: &str) -> bool {
    const TERMS: [&str; 10] = [
        "password",
        "encrypt",
        "encryption",
        "encrypting",
        "encrypted",
        "decrypt",
        "decryption",
        "decrypting",
        "decrypted",
        "crypt",
    ];
    text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| {
        let word = word.to_lowercase();
        TERMS.contains(&word.as_str()) || word == "cryptography" || word == "cryptographic"
    })
}

/// The heading's level, 1 to 6.
fn heading(line: &str) -> Option<usize> {
    let level = line.chars().take_while(|c| *c == '#').count();
    let after = line.get(level..)?;
    ((1..=6).contains(&level) && (after.is_empty() || after.starts_with([' ', '\t']))).then_some(level)
}

/// Drops each section whose heading has a security term, up to the next heading of its level or a higher one. Lines
/// in fenced code are no headings.
fn filter_sections(body: &str) -> (String, usize) {
    let mut kept = String::with_capacity(body.len());
    let (mut dropping, mut sections, mut open) = (None, 0, None);
    for line in body.lines() {
        match (open, fence(line)) {
            (None, Some(mark)) => open = Some(mark),
            (Some((mark, count)), Some((other, length))) if mark == other && length >= count => open = None,
            (Some(_), _) => {}
            (None, None) => {
                if let Some(level) = heading(line)
                    && dropping.is_none_or(|dropped| level <= dropped)
                {
                    dropping = has_security_term(line).then_some(level);
                    sections += usize::from(dropping.is_some());
                }
            }
        }
        if dropping.is_none() {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    (kept.trim().to_owned(), sections)
}

/// Drops each part of the description, between commas, that has a security term.
fn filter_description(text: &str) -> (String, usize) {
    let parts: Vec<&str> = text.split(',').collect();
    let kept: Vec<&str> = parts.iter().copied().filter(|part| !has_security_term(part)).collect();
    (kept.join(",").trim().to_owned(), parts.len() - kept.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skill::ManifestMode;

    fn manifest(body: &str) -> SkillManifest {
        let text = format!(
            "---\nname: pdf\ndescription: make, encrypt files, merge\nallowed-tools: Read Bash(x y) Read\n---\n{body}"
        );
        SkillManifest::parse(text.as_bytes(), "pdf", ManifestMode::Strict).unwrap().0
    }

    #[test]
    fn the_whole_text_is_shown_when_nothing_is_cleaned() {
        let options = PromptOptions {
            include_skill_description: true,
            max_instructions_chars: None,
            strip_code_blocks: false,
            filter_security_terms: false,
        };
        let prompt = skill_prompt(&manifest("# Use\n```\ncode\n```\n"), &options);
        assert_eq!(
            prompt,
            PromptText {
                text: "## Skill: pdf\n\nmake, encrypt files, merge\n\n**Allowed tools**: Read, Bash\n\n# Use\n```\ncode\n```\n".into(),
                removed: vec![]
            }
        );
    }

    #[test]
    fn what_is_taken_out_is_said() {
        let body = "# One\n\n~~~~sh\n# not a heading: password\n~~~\n~~~~\n\n\ntext\n## Encryption\nhidden\n### Sub\nhidden\n## Two\nécrit\n";
        let options =
            PromptOptions { max_instructions_chars: Some(22), filter_security_terms: true, ..PromptOptions::default() };
        let prompt = skill_prompt(&manifest(body), &options);
        assert_eq!(
            prompt.text,
            "## Skill: pdf\n\nmake, merge\n\n**Allowed tools**: Read, Bash\n\n# One\n\ntext\n## Two\nécr\n\n[...instructions truncated...]\n"
        );
        assert_eq!(
            prompt.removed,
            [
                "1 parts of the description with security terms",
                "1 code blocks",
                "1 sections with security terms in their headings",
                "2 characters of instructions over the limit of 22"
            ]
        );
    }

    #[test]
    fn terms_are_whole_words_and_code_has_no_headings() {
        assert!(
            has_security_term("The PASSWORD, please") && has_security_term("encrypted") && has_security_term("x-crypt")
        );
        assert!(!has_security_term("passwords") && !has_security_term("encrypt_all") && !has_security_term("script"));
        let (kept, sections) = filter_sections("# A\n```\n# password\n```\nb");
        assert_eq!((kept.as_str(), sections), ("# A\n```\n# password\n```\nb", 0));
        assert_eq!(strip_code("a\n```\nb"), ("a".to_owned(), 1));
        assert_eq!(strip_code(""), (String::new(), 0));
    }
}
