//! The runtime `wasm`: WebAssembly modules and components in this process, with nothing but the workspace in reach.
//!
//! It starts no process, opens no socket, and gives a guest neither a host path nor the host's environment. The engine
//! is wasmtime; `guest.rs` is the seam where a guest's world is built, `program.rs` the one where modules and
//! interpreters (`packs.rs`) are found.

mod cache;
mod engine;
mod fs;
mod guest;
mod interrupt;
mod limits;
mod modules;
mod packs;
mod program;
mod run;
mod sleep;
mod stdio;
mod trap;

use std::path::Path;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;

use self::cache::CompileCache;
use self::fs::Account;
use crate::audit::Layer;
use crate::error::{Result, SkillRuntimeError};
use crate::policy::{Isolation, MountCapabilities, RuntimeCapabilities, Support};
use crate::runtime::{
    Availability, PrepareContext, Progress, RunCommand, RuntimeConfig, RuntimeRunResult, SkillRuntime,
    SkillRuntimeHandle, Termination,
};
use crate::skill::VerifiedSkill;
use crate::workspace::{GuestPath, MountSupport, Workspace};

/// The registered name.
const NAME: &str = "wasm";
/// Option: the folder for compiled code, in the place of this user's cache folder; empty for none.
const CACHE_DIR: &str = "cache_dir";

/// WebAssembly with WASI preview 1 and 2.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct WasmRuntime;

/// What `prepare` keeps for `run`.
struct Prepared {
    workspace: Arc<Workspace>,
    cache: Arc<CompileCache>,
    progress: Arc<dyn Progress>,
    guests: run::Guests,
    /// Of what all runs leave.
    account: Arc<Account>,
}

#[async_trait]
impl SkillRuntime for WasmRuntime {
    fn name(&self) -> &str {
        NAME
    }

    fn capabilities(&self) -> RuntimeCapabilities {
        RuntimeCapabilities {
            files: Support::Enforced,
            network_none: Support::Enforced,
            wall_time: Support::Enforced,
            fuel: Support::Enforced,
            memory: Support::Enforced,
            // A guest has no way to start one.
            processes: Support::Enforced,
            output: Support::Enforced,
            disk: Support::Enforced,
            // A mount is opened by the handle that was checked, for which only Linux has a path.
            mounts: if cfg!(target_os = "linux") {
                MountCapabilities {
                    read_only: Support::Enforced,
                    read_write: Support::Enforced,
                    without_delete: Support::Enforced,
                }
            } else {
                MountCapabilities::NONE
            },
            ..RuntimeCapabilities::none(Isolation::Wasm)
        }
    }

    fn known_modules(&self, program: &str) -> Option<Vec<&'static str>> {
        modules::of_program(program)
    }

    fn mount_support(&self) -> MountSupport {
        if cfg!(target_os = "linux") { MountSupport::Folders } else { MountSupport::None }
    }

    async fn availability(&self) -> Availability {
        Availability::Available { detail: "built in (wasmtime 48)".to_owned() }
    }

    fn check_config(&self, config: &RuntimeConfig) -> Result<()> {
        config.only(NAME, &[CACHE_DIR])?;
        let folder = config.string(CACHE_DIR)?;
        if folder.is_some_and(|folder| !folder.is_empty() && !Path::new(folder).is_absolute()) {
            return Err(SkillRuntimeError::invalid(
                "runtime_config['cache_dir'] must be an absolute path, or empty for no cache",
            ));
        }
        Ok(())
    }

    async fn prepare(
        &self,
        _skill: &VerifiedSkill,
        workspace: Arc<Workspace>,
        context: &PrepareContext<'_>,
    ) -> Result<SkillRuntimeHandle> {
        let report = self.admit(context)?;
        let prepared = Prepared {
            workspace: workspace.clone(),
            cache: compile_cache(context.config)?,
            progress: context.progress.clone(),
            guests: run::Guests::default(),
            account: Account::new(&context.policy.limits),
        };
        Ok(SkillRuntimeHandle::new(report, context.policy, workspace, context.audit.clone(), prepared))
    }

    async fn run(&self, handle: &SkillRuntimeHandle, command: &RunCommand) -> Result<RuntimeRunResult> {
        let prepared = handle.state::<Prepared>()?;
        let job = run::Job {
            workspace: prepared.workspace.clone(),
            limits: handle.policy().limits.clone(),
            out: handle.policy().out,
            cache: prepared.cache.clone(),
            progress: prepared.progress.clone(),
            guests: prepared.guests.clone(),
            account: prepared.account.clone(),
            audit: handle.audit().clone(),
        };
        let result = run::run(job, command).await.map_err(|error| error.operation("run"))?;
        if let Some(limit) = limit_name(&result.termination) {
            handle.audit().deny(Layer::Limit, limit, command.program(), &result.termination.to_string());
        }
        Ok(result)
    }

    async fn write_file(&self, handle: &SkillRuntimeHandle, path: &GuestPath, data: &[u8]) -> Result<()> {
        let prepared = handle.state::<Prepared>()?;
        let adds = (data.len() as u64, path.parts().len() as u64);
        prepared.account.host_writes(adds, || prepared.workspace.write_file(path, data, &handle.policy().limits))
    }

    async fn cleanup(&self, handle: &SkillRuntimeHandle) -> Result<()> {
        // A guest is told to end with the future of its run, and is at most one host call away from it; the workspace
        // is removed next, so it must not write any more. Engines and compiled code are shared by the process.
        handle.state::<Prepared>()?.guests.all_ended().await;
        Ok(())
    }
}

/// The cache that the options name. The default one is opened once per process.
fn compile_cache(config: &RuntimeConfig) -> Result<Arc<CompileCache>> {
    static DEFAULT: OnceLock<Arc<CompileCache>> = OnceLock::new();
    match config.string(CACHE_DIR)? {
        None => Ok(DEFAULT.get_or_init(|| Arc::new(CompileCache::default_place())).clone()),
        Some("") => Ok(Arc::new(CompileCache::off())),
        Some(folder) => Ok(Arc::new(CompileCache::at(Path::new(folder))?)),
    }
}

/// The limit that ended a run, if one did that has no event yet.
fn limit_name(termination: &Termination) -> Option<&'static str> {
    match termination {
        Termination::TimedOut => Some("time_limit"),
        Termination::OutOfFuel => Some("fuel_limit"),
        Termination::OutOfMemory => Some("memory_limit"),
        Termination::OutputLimit => Some("output_limit"),
        Termination::ProcessLimit => Some("process_limit"),
        Termination::Trapped(trap) if trap.code == trap::OPEN_FILE_LIMIT => Some(trap::OPEN_FILE_LIMIT),
        // The call that would have passed it was an event of its own.
        Termination::DiskLimit => None,
        Termination::Exited(_) | Termination::Signaled(_) | Termination::Trapped(_) | Termination::Cancelled => None,
    }
}
