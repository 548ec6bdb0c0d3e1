//! Reads the inline metadata of a Python script (PEP 723): a comment block of TOML that names what the script needs.
//!
//! The block is foreign text. It is read, shown and checked; nothing is installed because of it.

use crate::error::{Result, SkillRuntimeError};

/// Bytes of a script that are looked at; blocks stand at the top by custom, and may stand anywhere.
pub const MAX_SCANNED_BYTES: usize = 1 << 20;
/// Dependencies of one script.
const MAX_DEPENDENCIES: usize = 256;

/// What a script says it needs.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize)]
pub struct ScriptMetadata {
    /// A version specifier such as `>=3.11`.
    pub requires_python: Option<String>,
    /// Requirements such as `httpx<1`, as written.
    pub dependencies: Vec<String>,
}

#[derive(serde::Deserialize)]
struct Block {
    #[serde(rename = "requires-python")]
    requires_python: Option<String>,
    #[serde(default)]
    dependencies: Vec<String>,
}

/// The `script` block of a Python script, if it has one.
///
/// # Errors
/// [`InvalidConfig`](crate::ErrorKind::InvalidConfig): two blocks, a block without an end, TOML that can't be read,
/// or too many dependencies.
///
/// ```
/// let script = "# /// script\n# dependencies = [\"httpx\"]\n# ///\nimport httpx\n";
/// let metadata = skillcell::skill::script_metadata(script).unwrap().unwrap();
/// assert_eq!(metadata.dependencies, ["httpx"]);
/// ```
pub fn script_metadata(script: &str) -> Result<Option<ScriptMetadata>> {
    let mut found: Option<(usize, String)> = None;
    let mut lines = script.lines().enumerate().peekable();
    while let Some((number, line)) = lines.next() {
        if line.trim_end() != "# /// script" {
            continue;
        }
        if let Some((first, _)) = found {
            return Err(SkillRuntimeError::invalid(format!(
                "the script has two '# /// script' blocks, at lines {} and {}; keep one",
                first + 1,
                number + 1
            )));
        }
        // The block runs to the last `# ///` before the comment ends: the text may hold such a line itself.
        let mut content: Vec<&str> = Vec::new();
        let mut end = None;
        while let Some((_, line)) = lines.peek() {
            let Some(text) = comment_text(line.trim_end()) else { break };
            if text == "///" {
                end = Some(content.len());
            }
            content.push(text);
            lines.next();
        }
        let end = end.ok_or_else(|| {
            SkillRuntimeError::invalid(format!(
                "the '# /// script' block at line {} has no closing '# ///'",
                number + 1
            ))
        })?;
        content.truncate(end);
        found = Some((number, content.join("\n")));
    }
    let Some((number, text)) = found else { return Ok(None) };
    let block: Block = toml::from_str(&text).map_err(|error| {
        let why: String = error.message().chars().take(200).flat_map(char::escape_debug).collect();
        SkillRuntimeError::invalid(format!("the '# /// script' block at line {} is not valid: {why}", number + 1))
    })?;
    if block.dependencies.len() > MAX_DEPENDENCIES {
        return Err(SkillRuntimeError::invalid(format!("a script may name at most {MAX_DEPENDENCIES} dependencies")));
    }
    Ok(Some(ScriptMetadata { requires_python: block.requires_python, dependencies: block.dependencies }))
}

/// What follows `# ` (or a lone `#`); `None` when the line is no such comment.
fn comment_text(line: &str) -> Option<&str> {
    if line == "#" { Some("") } else { line.strip_prefix("# ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_read_wherever_it_stands() {
        let script = "#!/usr/bin/env python3\n\"\"\"Doc.\"\"\"\n# /// script\n# requires-python = \">=3.11\"\n# dependencies = [\n#   \"httpx<1\",\n#\n#   \"rich\",\n# ]\n# [tool.x]\n# y = 1\n# ///\nprint()\n";
        assert_eq!(
            script_metadata(script).unwrap(),
            Some(ScriptMetadata {
                requires_python: Some(">=3.11".into()),
                dependencies: vec!["httpx<1".into(), "rich".into()]
            })
        );
        assert_eq!(script_metadata("# /// script\n# ///\n").unwrap(), Some(ScriptMetadata::default()));
        assert_eq!(script_metadata("# /// scripts\n# x\n# ///\n").unwrap(), None);
        assert_eq!(script_metadata("print('# /// script')\n").unwrap(), None);
    }

    #[test]
    fn broken_blocks_are_named() {
        for (script, what) in [
            ("# /// script\n# dependencies = []\nimport x\n# ///\n", "has no closing"),
            ("# /// script\n# ///\n\n# /// script\n# ///\n", "two '# /// script' blocks, at lines 1 and 4"),
            ("# /// script\n# dependencies = 5\n# ///\n", "line 1 is not valid"),
            ("# /// script\n# ][\n# ///\n", "line 1 is not valid"),
        ] {
            let error = script_metadata(script).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
    }
}
