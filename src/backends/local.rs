//! Runtime `local`: a program of this machine, as an ordinary process of the same user.
//!
//! It confines nothing: a script sees and may change whatever the user may, and reaches the network. It says so in
//! [`capabilities`](SkillRuntime::capabilities), and in strict mode the gate refuses it. What it does keep is order: an
//! argument vector without a shell, a fixed environment, no inherited input or descriptors, bounded output, limits, and
//! an end of everything that was started.
//!
//! There is no `/workspace` on the host, so the script gets host paths in its place. A whole argument that is a guest
//! path is translated, and so is what follows `=` in an argument that begins with `-` (`--out=/workspace/out`), and a
//! whole value of an environment variable. Nothing is replaced inside longer text: a shell line finds its folders in
//! `$SKILL_DIR`, `$WORKSPACE_IN`, `$WORKSPACE_OUT`. Output is passed on as it is, and may hold host paths; errors and
//! events of ours never do.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use cap_std::fs::Dir;

use super::child::{self, ChildSpec, OnHost, Place, ProgramError, find_program};
use super::guest::{
    Elsewhere, concluded, fixed_environment, group, limits_kept_by, not_there, own_program, refused, set_variable,
    watched,
};
use crate::audit::Layer;
use crate::error::{ErrorKind, Result, SkillRuntimeError};
use crate::policy::{Isolation, RuntimeCapabilities, Support};
use crate::runtime::{
    Availability, PrepareContext, RunCommand, RuntimeConfig, RuntimeRunResult, SkillRuntime, SkillRuntimeHandle,
};
use crate::skill::VerifiedSkill;
use crate::workspace::{GuestPath, Workspace};

/// Registered name.
const NAME: &str = "local";
/// The runtime `local`.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LocalRuntime;

/// What `prepare` found out.
struct LocalState {
    /// The host's `PATH` at the time.
    search: OsString,
    /// The workspace's folder without links, where no program is taken from.
    world: Elsewhere,
}

#[async_trait]
impl SkillRuntime for LocalRuntime {
    fn name(&self) -> &str {
        NAME
    }

    fn capabilities(&self) -> RuntimeCapabilities {
        RuntimeCapabilities {
            // The clock can't be stopped by a guest, but its supervisor, of the same user, can be killed; then
            // processes that left the group may outlive the run.
            wall_time: Support::Advisory,
            processes: Support::Advisory,
            cpu_time: Support::Advisory,
            memory: Support::Advisory,
            disk: Support::Advisory,
            // Counted by the host, out of the guest's reach.
            output: Support::Enforced,
            ..RuntimeCapabilities::none(Isolation::None)
        }
    }

    async fn availability(&self) -> Availability {
        match child::missing_kernel_support() {
            None => Availability::Available { detail: "programs of this machine, not confined".into() },
            Some(missing) => {
                Availability::Missing { reason: missing.into(), remedy: "mount /proc, or use another runtime".into() }
            }
        }
    }

    fn check_config(&self, config: &RuntimeConfig) -> Result<()> {
        config.only(NAME, &[])
    }

    async fn prepare(
        &self,
        _skill: &VerifiedSkill,
        workspace: Arc<Workspace>,
        context: &PrepareContext<'_>,
    ) -> Result<SkillRuntimeHandle> {
        let report = self.admit(context)?;
        if let Some(missing) = child::missing_kernel_support() {
            return Err(SkillRuntimeError::new(
                ErrorKind::Unavailable,
                format!("runtime 'local' can't end what a script starts here: {missing}; mount /proc, or use another runtime"),
            )
            .operation("prepare"));
        }
        if let Some(mount) = workspace.mounts().first() {
            return Err(SkillRuntimeError::invalid(format!(
                "runtime 'local' can't show a folder read-only ('{}'); give it as a copied input",
                mount.guest
            ))
            .operation("prepare"));
        }
        let root = workspace.ambient_root().canonicalize().map_err(|error| {
            SkillRuntimeError::backend("the workspace is gone", error.kind().to_string()).operation("prepare")
        })?;
        // CARL warns in the same place.
        tracing::warn!(
            "runtime 'local' runs scripts directly on the host without confinement; use it for trusted skills only"
        );
        context.audit.allow(Layer::Runtime, "prepare", NAME, "not confined: files and network are the user's own")?;
        let state = LocalState { search: std::env::var_os("PATH").unwrap_or_default(), world: Elsewhere { root } };
        let handle = SkillRuntimeHandle::new(report, context.policy, workspace, context.audit.clone(), state);
        Ok(handle.with_backend("limits", limits_kept_by()))
    }

    async fn run(&self, handle: &SkillRuntimeHandle, command: &RunCommand) -> Result<RuntimeRunResult> {
        let state: &LocalState = handle.state()?;
        let translated =
            Translated::new(state, handle.workspace(), command).map_err(|error| refused(handle, command, error))?;
        let limits = handle.policy().limits.clone();
        let disk = watched(handle)?;
        let group = group(handle, 0)?;
        handle.audit().allow(Layer::Process, "run", command.program(), "")?;
        let spec = ChildSpec {
            program: translated.program,
            argv: translated.argv,
            env: translated.env,
            place: Place::Host(OnHost::new(translated.folder)),
            stdin: command.stdin.clone(),
            sink: command.sink.clone(),
            limits,
            disk: Some(disk),
            group,
        };
        let end = child::run(spec)
            .await
            .map_err(|error| refused(handle, command, error.with("program", command.program())))?;
        Ok(concluded(handle, command, end))
    }

    async fn cleanup(&self, _handle: &SkillRuntimeHandle) -> Result<()> {
        // Each run has ended everything it started, and a dropped run's supervisor does so by itself.
        Ok(())
    }
}

/// A command in the host's terms.
struct Translated {
    program: PathBuf,
    argv: Vec<OsString>,
    env: Vec<(String, OsString)>,
    folder: OwnedFd,
}

impl Translated {
    fn new(state: &LocalState, workspace: &Workspace, command: &RunCommand) -> Result<Self> {
        let program = program(state, workspace, command.program())?;
        let mut argv = vec![command.program().into()];
        if command.program().starts_with('/') {
            // A script with `#!` is handed its own path by the kernel in any case.
            argv = vec![program.clone().into_os_string()];
        }
        let rest = command.argv().get(1..).unwrap_or_default();
        argv.extend(rest.iter().map(|argument| state.world.argument(argument)));
        let folder = open_folder(workspace, &command.cwd)?;
        let elsewhere = program.parent().filter(|folder| !folder.starts_with(&state.world.root));
        let mut env = fixed_environment(|path| state.world.path(path).into_os_string(), elsewhere, &command.cwd);
        for (name, value) in command.env.iter() {
            set_variable(&mut env, name, state.world.text(value));
        }
        Ok(Self { program, argv, env, folder })
    }
}

/// What is to be started: a file of the workspace, or an interpreter of the host by name.
fn program(state: &LocalState, workspace: &Workspace, name: &str) -> Result<PathBuf> {
    if name.contains('/') {
        return own_program(workspace, name).map(|path| state.world.path(&path));
    }
    find_program(name, &state.search, &state.world.root).map_err(|error| match error {
        ProgramError::NotAName => SkillRuntimeError::invalid(format!(
            "'{}' is no program; give a name such as python3, or a path below /workspace",
            name.escape_debug()
        )),
        ProgramError::NotFound => SkillRuntimeError::new(
            ErrorKind::NotFound,
            format!(
                "no program '{}' in a trusted folder of PATH; install it, or use a runtime that brings its own",
                name.escape_debug()
            ),
        ),
    })
}

/// Opens the current folder beneath its area; a link out of it leads nowhere.
fn open_folder(workspace: &Workspace, path: &GuestPath) -> Result<OwnedFd> {
    let opened = if path.parts().is_empty() {
        workspace.root().try_clone()
    } else {
        let (area, inside) = path.in_area()?;
        workspace.area(area).open_dir(inside)
    };
    opened.map(Dir::into_std_file).map(OwnedFd::from).map_err(|error| not_there(path, &error))
}
