//! What a Python script imports before it does anything else: the imports that stand first, one after the other, after
//! comments and the docstring.
//!
//! Python carries these out in their order, whatever the rest of the script does, so a module among them that isn't
//! there is a certain failure. Looking stops at the first other statement, and at anything that isn't understood: what
//! is found is certain, what is not found means nothing. The text is foreign: it is walked once, without recursion.

/// One import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FirstImport {
    /// The module at the top: `xml` of `xml.etree`.
    pub(crate) module: String,
    /// Its line, from 1.
    pub(crate) line: usize,
}

/// The imports that a script certainly begins with.
pub(crate) fn first_imports(script: &str) -> Vec<FirstImport> {
    let mut found = Vec::new();
    let mut lines = script.strip_prefix('\u{feff}').unwrap_or(script).lines().enumerate();
    let mut docstring_may_come = true;
    while let Some((index, line)) = lines.next() {
        let code = before_comment(line).trim_end();
        if code.is_empty() {
            continue;
        }
        if docstring_may_come {
            docstring_may_come = false;
            if let Some(quotes) = ["\"\"\"", "'''"].into_iter().find(|quotes| line.starts_with(quotes)) {
                match skip_string(line, quotes, &mut lines) {
                    Skipped::Whole => continue,
                    Skipped::Unclear => break,
                }
            }
        }
        let Some(modules) = statement(code, &mut lines) else { break };
        found.extend(modules.into_iter().map(|module| FirstImport { module, line: index + 1 }));
    }
    found
}

enum Skipped {
    Whole,
    Unclear,
}

/// Reads to the end of a string that `line` begins with, and of its line.
fn skip_string<'a>(line: &'a str, quotes: &str, lines: &mut impl Iterator<Item = (usize, &'a str)>) -> Skipped {
    let mut text = line.get(quotes.len()..).unwrap_or_default();
    loop {
        // An escape could hide a quote; strings with one are left to Python.
        if text.contains('\\') {
            return Skipped::Unclear;
        }
        if let Some((_, after)) = text.split_once(quotes) {
            return if before_comment(after).trim().is_empty() { Skipped::Whole } else { Skipped::Unclear };
        }
        match lines.next() {
            Some((_, next)) => text = next,
            None => return Skipped::Unclear,
        }
    }
}

/// The modules at the top that an import statement names, in order; `None` for anything else.
fn statement<'a>(code: &'a str, lines: &mut impl Iterator<Item = (usize, &'a str)>) -> Option<Vec<String>> {
    // Strings, further statements and continued lines are left to Python.
    if code.contains(['\\', ';', '"', '\'']) {
        return None;
    }
    if let Some(rest) = code.strip_prefix("import ") {
        return rest.split(',').map(imported).collect();
    }
    let (module, names) = code.strip_prefix("from ")?.trim_start().split_once(" import")?;
    let module = top_of(module.trim())?;
    let names = names.trim_start();
    if names.is_empty() {
        return None;
    }
    if let Some(list) = names.strip_prefix('(') {
        let mut rest = list;
        while !rest.contains(')') {
            rest = before_comment(lines.next()?.1);
        }
        if !rest.trim_end().ends_with(')') {
            return None;
        }
    }
    Some(vec![module])
}

/// `a.b` or `a.b as c`.
fn imported(part: &str) -> Option<String> {
    let mut words = part.split_whitespace();
    let module = top_of(words.next()?)?;
    match (words.next(), words.next(), words.next()) {
        (None, ..) => Some(module),
        (Some("as"), Some(name), None) if is_identifier(name) => Some(module),
        _ => None,
    }
}

/// The first name of a dotted one.
fn top_of(module: &str) -> Option<String> {
    module.split('.').all(is_identifier).then(|| module.split('.').next().unwrap_or_default().to_owned())
}

fn is_identifier(name: &str) -> bool {
    name.bytes().next().is_some_and(|first| first == b'_' || first.is_ascii_alphabetic())
        && name.bytes().all(|byte| byte == b'_' || byte.is_ascii_alphanumeric())
}

/// A line that holds no string, without its comment.
fn before_comment(line: &str) -> &str {
    line.split('#').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(script: &str) -> Vec<(String, usize)> {
        first_imports(script).into_iter().map(|import| (import.module, import.line)).collect()
    }

    #[test]
    fn imports_that_stand_first_are_found() {
        let script = "#!/usr/bin/env python3\n# /// script\n# ///\n\"\"\"Does this.\n\nimport nothing\n\"\"\"  # so\n\
                      from __future__ import annotations\n\nimport os.path as p, sys  # both\nimport numpy\n\
                      from xml.etree import (\n    ElementTree,  # )\n    ElementInclude\n)\nfrom a.b import *\n\
                      print('x')\nimport late\n";
        assert_eq!(
            found(script),
            [("__future__", 8), ("os", 10), ("sys", 10), ("numpy", 11), ("xml", 12), ("a", 16)]
                .map(|(name, line)| (name.to_owned(), line))
        );
        assert_eq!(found("\u{feff}import a\r\nimport b\r\n").len(), 2);
    }

    #[test]
    fn what_is_not_certain_is_not_found() {
        for script in [
            "",
            "try:\n    import a\nexcept ImportError:\n    a = None\n",
            "if x:\n    import a\n",
            "x = 1\nimport a\n",
            "\"\"\"never closed\nimport a\n",
            "\"\"\"a \\\"\"\" b\nimport a\n\"\"\"\n",
            "\"\"\"a\"\"\"; import a\n",
            "\"\"\"a\"\"\" + \"\"\"\nimport a\n\"\"\"\n",
            "'x'\nimport a\n",
            "from . import a\n",
            "from .a import b\n",
            "import a; import b\n",
            "import \\\n  a\n",
            "import a as\n",
            "import a b\n",
            "import 1a\n",
            "import ä\n",
            "from a import (\n b\n",
            "from a import (b); c\n",
            "importa\n",
            "  import a\n",
            "import a.\n",
        ] {
            assert_eq!(found(script), [], "{script}");
        }
        let deep = "(".repeat(1 << 20);
        assert_eq!(found(&format!("import a\n{deep}\n")), [("a".to_owned(), 1)]);
    }
}
