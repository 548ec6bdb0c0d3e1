//! Refuses a script that certainly can't work on its runtime, before anything is staged: one that begins by importing a
//! module that is nowhere.
//!
//! Refuses on certainty only. A module counts as absent when the runtime knows all modules of its interpreter, and
//! neither the script's folder nor the installed packages have one of that name, and nothing was imported before that
//! could have changed where Python looks.

use super::plan::StepPlan;
use crate::error::{ErrorKind, Result, SkillRuntimeError};
use crate::runtime::RunCommand;
use crate::skill::{MAX_SCANNED_BYTES, VerifiedSkill, first_imports};
use crate::workspace::{Area, GuestPath, HostTree};

/// Looks at the script that `command` runs. `instead` says where it may work.
///
/// # Errors
/// [`Unavailable`](ErrorKind::Unavailable) naming the script, the line, the module, and what to do; those of reading.
pub(super) fn refuse_absent_module(
    plan: &StepPlan,
    skill: &VerifiedSkill,
    command: &RunCommand,
    site: Option<&HostTree>,
    instead: &str,
) -> Result<()> {
    let [program, script, ..] = command.argv() else { return Ok(()) };
    let Some(known) = plan.runtime.known_modules(program) else { return Ok(()) };
    let Some(path) = in_skill(script) else { return Ok(()) };
    if plan.has_own_python_path() || !skill.tree().contains(&path) {
        return Ok(());
    }
    let text = skill.tree().read_head(&path, MAX_SCANNED_BYTES)?;
    let Ok(text) = std::str::from_utf8(&text) else { return Ok(()) };
    let folder = path.rsplit_once('/').map_or(String::new(), |(folder, _)| format!("{folder}/"));
    for import in first_imports(text) {
        if known.contains(&import.module.as_str()) {
            continue;
        }
        // Code of the skill or of a package may change where Python looks: nothing after it is certain.
        if has_module(skill.tree(), &folder, &import.module)
            || site.is_some_and(|site| has_module(site, "", &import.module))
        {
            return Ok(());
        }
        return Err(SkillRuntimeError::new(
            ErrorKind::Unavailable,
            format!(
                "'{}' imports '{}' in line {}, which the Python of runtime '{}' doesn't have; install the package that has it \
                 (--pip, extra_pip), or {instead}",
                path.escape_debug(),
                import.module,
                import.line,
                plan.runtime.name()
            ),
        )
        .operation("look"));
    }
    Ok(())
}

/// The path inside the skill.
fn in_skill(word: &str) -> Option<String> {
    let (area, inside) = word.parse::<GuestPath>().ok()?.in_area().ok()?;
    (area == Area::Skill).then_some(inside)
}

/// Whether a folder of a tree has something that could be a module of that name: a file or a folder.
fn has_module(tree: &HostTree, folder: &str, module: &str) -> bool {
    let rest = |path: &str| path.strip_prefix(folder)?.strip_prefix(module)?.chars().next();
    tree.entries().iter().any(|entry| matches!(rest(&entry.path), Some('.' | '/')))
}
