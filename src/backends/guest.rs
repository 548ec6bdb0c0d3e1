//! What the runtimes of the operating system share about a guest: its fixed environment, programs of its own, what is
//! watched, and how the end of a run is told.
//!
//! Invariant: nothing of the host's environment is in a guest's.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use cap_std::fs::PermissionsExt;

use super::child::{ChildEnd, DiskWatch, Group, delegation};
use crate::audit::Layer;
use crate::error::{ErrorKind, Result, SkillRuntimeError};
use crate::runtime::{RunCommand, RuntimeRunResult, SkillRuntimeHandle};
use crate::workspace::{Area, GuestPath, Outside, Workspace};

/// The search path of a guest: the system's folders. The folder of an interpreter that lies elsewhere is put before it.
pub(super) const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The environment every guest gets, sorted by name. `place` says where the guest finds a guest path.
pub(super) fn fixed_environment(
    place: impl Fn(&GuestPath) -> OsString,
    interpreter_folder: Option<&Path>,
    cwd: &GuestPath,
) -> Vec<(String, OsString)> {
    let area = |area: Area| place(&area.guest_path());
    let mut path = OsString::new();
    if let Some(folder) = interpreter_folder
        && !std::env::split_paths(SYSTEM_PATH).any(|known| known == folder)
    {
        path.push(folder);
        path.push(":");
    }
    path.push(SYSTEM_PATH);
    vec![
        ("HOME".into(), area(Area::Tmp)),
        ("LANG".into(), "C.UTF-8".into()),
        ("PATH".into(), path),
        ("PWD".into(), place(cwd)),
        // A skill's folder is read-only; where it isn't, a cache of compiled files would change it.
        ("PYTHONDONTWRITEBYTECODE".into(), "1".into()),
        ("SKILL_DIR".into(), area(Area::Skill)),
        ("TMPDIR".into(), area(Area::Tmp)),
        ("WORKSPACE_IN".into(), area(Area::In)),
        ("WORKSPACE_OUT".into(), area(Area::Out)),
    ]
}

/// Puts a variable over what is there.
pub(super) fn set_variable(env: &mut Vec<(String, OsString)>, name: &str, value: OsString) {
    env.retain(|(known, _)| known != name);
    env.push((name.to_owned(), value));
}

/// A world whose `/workspace` lies elsewhere, for runtimes that can't put it there. What is a guest path as a whole is
/// translated; nothing is replaced inside longer text.
pub(super) struct Elsewhere {
    /// The folder in the place of `/workspace`, as the guest sees it.
    pub(super) root: PathBuf,
}

impl Elsewhere {
    /// Where the guest finds a guest path.
    pub(super) fn path(&self, path: &GuestPath) -> PathBuf {
        let mut place = self.root.clone();
        place.extend(path.parts());
        place
    }

    /// Translates a text that is a guest path as a whole.
    pub(super) fn text(&self, text: &str) -> OsString {
        match text.parse::<GuestPath>() {
            Ok(path) if path.parts().is_empty() || path.area().is_some() => self.path(&path).into_os_string(),
            Ok(_) | Err(_) => text.into(),
        }
    }

    /// As [`text`](Self::text), and what follows `=` in `--option=/workspace/…`.
    pub(super) fn argument(&self, argument: &str) -> OsString {
        match argument.split_once('=') {
            Some((option, value)) if option.starts_with('-') => {
                let mut whole = OsString::from(option);
                whole.push("=");
                whole.push(self.text(value));
                whole
            }
            Some(_) | None => self.text(argument),
        }
    }
}

/// A program that lies in the workspace itself, checked: a regular file, executable, no module of another machine.
///
/// # Errors
/// [`NotFound`](ErrorKind::NotFound), [`PathDenied`](ErrorKind::PathDenied), [`InvalidConfig`](ErrorKind::InvalidConfig).
pub(super) fn own_program(workspace: &Workspace, name: &str) -> Result<GuestPath> {
    let path: GuestPath = name.parse()?;
    if matches!(path.extension().as_deref(), Some("wasm" | "wat")) {
        return Err(SkillRuntimeError::invalid(format!(
            "'{path}' is a WebAssembly module, which this machine can't run as a program; use --runtime wasm"
        )));
    }
    let (area, inside) = path.in_area()?;
    let metadata = workspace.area(area).symlink_metadata(&inside).map_err(|error| not_there(&path, &error))?;
    if !metadata.is_file() {
        return Err(SkillRuntimeError::new(
            ErrorKind::PathDenied,
            format!("'{path}' is not a regular file, so it can't be run"),
        ));
    }
    if metadata.permissions().mode() & 0o111 == 0 {
        return Err(SkillRuntimeError::invalid(format!(
            "'{path}' has no execute permission; set it in the skill, or name the interpreter first (python3 {path})"
        )));
    }
    Ok(path)
}

/// The error for a guest path that can't be opened.
pub(super) fn not_there(path: &GuestPath, error: &std::io::Error) -> SkillRuntimeError {
    let (kind, what) = if error.kind() == std::io::ErrorKind::NotFound {
        (ErrorKind::NotFound, "does not exist")
    } else {
        (
            ErrorKind::PathDenied,
            "can't be opened: a link out of the workspace, a file where a folder must be, or no permission",
        )
    };
    SkillRuntimeError::new(kind, format!("'{path}' {what}"))
}

/// The folders a guest of ours is meant to write to, with the policy's limits for them.
pub(super) fn watched(handle: &SkillRuntimeHandle) -> Result<DiskWatch> {
    let clone = |area: Area| {
        let folder = handle.workspace().area(area).try_clone();
        folder.map_err(|error| SkillRuntimeError::backend(format!("could not open {}", area.guest_path()), error))
    };
    let limits = &handle.policy().limits;
    Ok(DiskWatch { folders: vec![clone(Area::Out)?, clone(Area::Tmp)?], bytes: limits.disk, files: limits.files })
}

/// A control group for the next run, where this machine lets us make one; it is in the ledger before it is there.
pub(super) fn group(handle: &SkillRuntimeHandle, own_processes: usize) -> Result<Option<Group>> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let Ok(delegation) = delegation() else { return Ok(None) };
    let name = handle.workspace().group_name(NEXT.fetch_add(1, Ordering::Relaxed));
    handle.workspace().record(&Outside::Group(delegation.place(&name)))?;
    let made = delegation.make(&name, &handle.policy().limits, own_processes);
    made.map(Some).map_err(|error| {
        SkillRuntimeError::backend(
            "the control group of a run could not be made in the cgroup that this process may use",
            error,
        )
    })
}

/// How the limits of a run are kept on this machine, for the handle.
pub(super) fn limits_kept_by() -> String {
    match delegation() {
        Ok(_) => "cgroup v2: memory and processes of the whole run; rlimits and a watch for the rest".to_owned(),
        Err(why) => format!("rlimits for each process and a watch on the whole run; no cgroup v2: {why}"),
    }
}

/// Tells the audit trail that a run was refused, where it was, and hands the error on.
pub(super) fn refused(
    handle: &SkillRuntimeHandle,
    command: &RunCommand,
    error: SkillRuntimeError,
) -> SkillRuntimeError {
    let layer = match error.kind() {
        ErrorKind::PathDenied => Some(Layer::Files),
        ErrorKind::PolicyUnenforceable => Some(Layer::Policy),
        ErrorKind::LimitExceeded => Some(Layer::Limit),
        ErrorKind::InvalidConfig
        | ErrorKind::UnknownRuntime
        | ErrorKind::TrustViolation
        | ErrorKind::NotFound
        | ErrorKind::Unavailable
        | ErrorKind::Backend
        | ErrorKind::Cancelled
        | ErrorKind::Internal => None,
    };
    if let Some(layer) = layer {
        handle.audit().deny(layer, "run", command.program(), &error.to_string());
    }
    error.operation("run")
}

/// Tells the audit trail how a run ended, and makes the result.
pub(super) fn concluded(handle: &SkillRuntimeHandle, command: &RunCommand, end: ChildEnd) -> RuntimeRunResult {
    if let Some(limit) = end.limit {
        handle.audit().deny(Layer::Limit, limit, command.program(), &end.termination.to_string());
    }
    if end.refused_processes && end.limit != Some("process_limit") {
        handle.audit().deny(Layer::Limit, "process_limit", command.program(), "the kernel refused more processes");
    }
    if end.left_behind {
        handle.audit().deny(
            Layer::Process,
            "sweep",
            command.program(),
            "processes kept forking faster than they could be killed; some may be left",
        );
    }
    RuntimeRunResult {
        termination: end.termination,
        stdout: end.stdout,
        stderr: end.stderr,
        duration: end.duration,
        usage: end.usage,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_guest_paths_are_translated() {
        let world = Elsewhere { root: "/srv/w".into() };
        for (given, expected) in [
            ("/workspace/in/a b.csv", "/srv/w/in/a b.csv"),
            ("/workspace", "/srv/w"),
            ("--out=/workspace/out/x", "--out=/srv/w/out/x"),
            ("-o=/workspace/out/", "-o=/srv/w/out"),
            // Not a path as a whole, not ours, or not a path at all.
            ("out=/workspace/out", "out=/workspace/out"),
            ("cat /workspace/in/a", "cat /workspace/in/a"),
            ("/workspace/in/../../etc/passwd", "/workspace/in/../../etc/passwd"),
            ("/workspace/other", "/workspace/other"),
            ("/workspacex", "/workspacex"),
            ("/etc/passwd", "/etc/passwd"),
            ("--a=b=/workspace/in", "--a=b=/workspace/in"),
            ("workspace/in", "workspace/in"),
            ("", ""),
            ("--", "--"),
        ] {
            assert_eq!(world.argument(given), OsString::from(expected), "{given}");
        }
    }
}
