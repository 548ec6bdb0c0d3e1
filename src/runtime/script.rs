//! Which command runs a script: by its extension, by its first line, or by its magic number. The same for every
//! runtime; where the interpreter comes from is the runtime's business.

use super::RunCommand;
use crate::error::{ErrorKind, Result, SkillRuntimeError};
use crate::skill::VerifiedSkill;
use crate::workspace::{Area, GuestPath};

/// Extensions and the program that runs them. `None`: the file runs by itself.
const BY_EXTENSION: [(&str, Option<&str>); 14] = [
    ("py", Some("python3")),
    ("js", Some("node")),
    ("mjs", Some("node")),
    ("cjs", Some("node")),
    ("ts", Some("node")),
    ("mts", Some("node")),
    ("cts", Some("node")),
    ("sh", Some("sh")),
    ("bash", Some("bash")),
    ("rb", Some("ruby")),
    ("pl", Some("perl")),
    ("lua", Some("lua")),
    ("wasm", None),
    ("wat", None),
];
/// Interpreters that a first line may name. Others are refused: a first line is written by whoever wrote the skill, and
/// must not choose any program of the host.
const BY_SHEBANG: [&str; 10] = ["python3", "python", "node", "nodejs", "sh", "bash", "dash", "ruby", "perl", "lua"];
/// The first four bytes of every WebAssembly module and component.
const WASM_MAGIC: &[u8] = b"\0asm";
/// Linux reads this much of a first line.
const SHEBANG_BYTES: usize = 256;

/// The command that runs `script_name` of a skill, or its only script.
///
/// # Errors
/// [`NotFound`](ErrorKind::NotFound): no such file in the skill. [`PathDenied`](ErrorKind::PathDenied): the name leaves
/// the skill. [`InvalidConfig`](ErrorKind::InvalidConfig): several scripts and none named, or nothing says what runs it.
pub fn command_for_script(skill: &VerifiedSkill, script_name: Option<&str>, args: &[String]) -> Result<RunCommand> {
    let path = match script_name {
        Some(name) => named_script(skill, name)?,
        None => only_script(skill)?,
    };
    let guest = Area::Skill.guest_path().join(&path)?;
    let mut argv = match interpreter(skill, &path, &guest)? {
        Some(interpreter) => vec![interpreter.to_owned(), guest.to_string()],
        None => vec![guest.to_string()],
    };
    argv.extend_from_slice(args);
    RunCommand::new(argv)
}

/// Checks that a named script is a file of the skill. Absolute guest paths below `/workspace/skill` are fine too.
fn named_script(skill: &VerifiedSkill, name: &str) -> Result<String> {
    let (area, inside) = GuestPath::resolve(&Area::Skill.guest_path(), name)?.in_area()?;
    if area != Area::Skill {
        return Err(SkillRuntimeError::new(
            ErrorKind::PathDenied,
            format!("script '{}' lies outside the skill; only files of the skill are run", name.escape_debug()),
        ));
    }
    if skill.tree().contains(&inside) {
        return Ok(inside);
    }
    Err(SkillRuntimeError::new(
        ErrorKind::NotFound,
        format!(
            "skill '{}' has no file '{}'; its scripts are: {}",
            skill.name(),
            inside.escape_debug(),
            listed(&scripts(skill))
        ),
    ))
}

/// The only script there is. CARL's rule and words.
fn only_script(skill: &VerifiedSkill) -> Result<String> {
    if let [entry] = skill.tree().entries() {
        return Ok(entry.path.clone());
    }
    let mut scripts = scripts(skill);
    match scripts.len() {
        1 => Ok(scripts.remove(0)),
        0 => Err(SkillRuntimeError::invalid(format!(
            "Skill '{}' has no scripts, and script_name was not specified",
            skill.name()
        ))),
        _ => Err(SkillRuntimeError::invalid(format!(
            "Skill '{}' has multiple scripts ({}). Specify script_name.",
            skill.name(),
            listed(&scripts)
        ))),
    }
}

/// Files that can be run by their extension, in `scripts/` if the skill has that folder, else anywhere.
fn scripts(skill: &VerifiedSkill) -> Vec<String> {
    let runnable = |path: &&str| {
        path.rsplit_once('.').is_some_and(|(_, extension)| BY_EXTENSION.iter().any(|(known, _)| *known == extension))
    };
    let all: Vec<&str> = skill.tree().entries().iter().map(|entry| entry.path.as_str()).filter(runnable).collect();
    let in_folder: Vec<&str> = all.iter().copied().filter(|path| path.starts_with("scripts/")).collect();
    let chosen = if in_folder.is_empty() { all } else { in_folder };
    chosen.into_iter().map(str::to_owned).collect()
}

/// A list for a message, cut where it gets long.
fn listed(names: &[String]) -> String {
    const SHOWN: usize = 12;
    let mut text = names.iter().take(SHOWN).map(|name| name.escape_debug().to_string()).collect::<Vec<_>>().join(", ");
    if names.len() > SHOWN {
        text.push_str(&format!(", and {} more", names.len() - SHOWN));
    }
    if text.is_empty() { "(none)".to_owned() } else { text }
}

/// The interpreter of a file, or `None` when it runs by itself.
fn interpreter(skill: &VerifiedSkill, path: &str, guest: &GuestPath) -> Result<Option<&'static str>> {
    if let Some(extension) = guest.extension()
        && let Some((_, interpreter)) = BY_EXTENSION.iter().find(|(known, _)| *known == extension)
    {
        return Ok(*interpreter);
    }
    let head = skill.tree().read_head(path, SHEBANG_BYTES)?;
    if head.starts_with(WASM_MAGIC) {
        return Ok(None);
    }
    shebang(&head).map(Some).ok_or_else(|| {
        SkillRuntimeError::invalid(format!(
            "nothing says what runs '{}': give it an extension ({}) or a first line such as #!/usr/bin/env python3",
            path.escape_debug(),
            BY_EXTENSION.map(|(extension, _)| format!(".{extension}")).join(" ")
        ))
    })
}

/// The interpreter that a first line names, if it is a known one. Options on the line are not honoured.
fn shebang(head: &[u8]) -> Option<&'static str> {
    let line = head.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let line = std::str::from_utf8(line).ok()?;
    let mut words = line.split_ascii_whitespace();
    let mut program = words.next()?.rsplit('/').next()?;
    if program == "env" {
        program = words.find(|word| !word.starts_with('-'))?.rsplit('/').next()?;
    }
    let known = *BY_SHEBANG.iter().find(|known| **known == program)?;
    Some(match known {
        "python" => "python3",
        "nodejs" => "node",
        "dash" => "sh",
        other => other,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_lines() {
        for (line, expected) in [
            ("#!/usr/bin/env python3\nprint()", Some("python3")),
            ("#!/usr/bin/python\n", Some("python3")),
            ("#! /bin/bash -e", Some("bash")),
            ("#!/usr/bin/env -S node --flag\n", Some("node")),
            ("#!/sbin/reboot\n", None),
            ("#!/usr/bin/env\n", None),
            ("#!\n", None),
            ("print()", None),
            ("", None),
        ] {
            assert_eq!(shebang(line.as_bytes()), expected, "{line:?}");
        }
        assert_eq!(shebang(b"#!\xff\xfe"), None);
    }
}
