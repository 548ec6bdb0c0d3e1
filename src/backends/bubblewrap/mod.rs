//! Runtime `bubblewrap`: a process of the operating system in namespaces of its own, for scripts that need native
//! Python, compiled wheels or subprocesses.
//!
//! What confines a script, from the outside in: namespaces (made by `bwrap`: user, mount, network, IPC, UTS, cgroup; and
//! a process-id namespace for each run), a [root folder](root) that is a short read-only list of the host's, an
//! unprivileged user without capabilities and without ways to gain any, [Landlock](landlock), and a [system-call
//! filter](filter). Before the first instruction of a script a self-test tries what must be impossible.
//!
//! `prepare` has `bwrap` make the namespaces once; [`holder`] keeps them by descriptor, and every `run` enters them by a
//! few system calls. No helper program is needed inside, so an embedder has nothing to install or to call. Between two
//! runs only files persist, and when the host ends nothing is left.
//!
//! Started by root, everything of the guest runs as the host's `nobody`: user 65534 outside, 1000 inside.

mod filter;
mod holder;
mod landlock;
mod root;

use std::ffi::{CString, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;

use self::landlock::{Keeps, Strictness, Use};
use self::root::{GUEST_USER, Root};
use super::child::{self, ChildSpec, Confined, Place, ProgramError, Sandbox, find_program};
use super::guest::{
    SYSTEM_PATH, concluded, fixed_environment, group, limits_kept_by, own_program, refused, set_variable, watched,
};
use super::ownership::{self, NOBODY};
use super::toolchain::Toolchains;
use crate::audit::Layer;
use crate::error::{ErrorKind, Result, SkillRuntimeError};
use crate::policy::{Isolation, Limits, MountCapabilities, NetworkPolicy, RuntimeCapabilities, Support};
use crate::runtime::{
    Availability, PrepareContext, RunCommand, RuntimeConfig, RuntimeRunResult, SkillRuntime, SkillRuntimeHandle,
};
use crate::skill::VerifiedSkill;
use crate::workspace::{GuestPath, MountSupport, Workspace};

/// Registered name.
const NAME: &str = "bubblewrap";
/// Options in `runtime_config`.
const OPTIONS: [&str; 1] = ["landlock"];
/// Shared memory of a run, at most. It is memory, so a quarter of the memory limit if that is less.
const SHARED_MEMORY: u64 = 64 << 20;
/// Processes of ours in the control group of a run: its init.
const INIT: usize = 1;
/// Where `bwrap` is, when the host's `PATH` says nothing.
const FALLBACK_PATH: &str = SYSTEM_PATH;

/// The runtime `bubblewrap`.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct BubblewrapRuntime;

/// A prepared sandbox.
struct State {
    sandbox: Arc<Sandbox>,
    landlock: Use,
    toolchains: Toolchains,
    /// The workspace's folder without links: no program is taken from it by name.
    workspace: PathBuf,
    /// The guest's user on the host, when it isn't the host's own.
    user: Option<u32>,
}

#[async_trait]
impl SkillRuntime for BubblewrapRuntime {
    fn name(&self) -> &str {
        NAME
    }

    fn capabilities(&self) -> RuntimeCapabilities {
        RuntimeCapabilities {
            files: Support::Enforced,
            network_none: Support::Enforced,
            wall_time: Support::Enforced,
            processes: Support::Enforced,
            output: Support::Enforced,
            // The kernel limits each process; the sum is looked at from outside, and can be outrun for a moment.
            cpu_time: Support::Advisory,
            memory: Support::Advisory,
            disk: Support::Advisory,
            mounts: MountCapabilities {
                read_only: Support::Enforced,
                read_write: Support::Enforced,
                without_delete: Support::Enforced,
            },
            ..RuntimeCapabilities::none(Isolation::Process)
        }
    }

    fn mount_support(&self) -> MountSupport {
        MountSupport::Folders
    }

    async fn availability(&self) -> Availability {
        let missing =
            |reason: &str, remedy: &str| Availability::Missing { reason: reason.into(), remedy: remedy.into() };
        if let Some(reason) = child::missing_kernel_support() {
            return missing(reason, "mount /proc, or use another runtime");
        }
        if bwrap(Path::new("/workspace")).is_err() {
            return missing("no program bwrap on PATH", "install the package bubblewrap");
        }
        match landlock::kernel_abi() {
            0 => Availability::Available { detail: "bwrap; this kernel has no Landlock".into() },
            abi => Availability::Available { detail: format!("bwrap, Landlock ABI {abi}") },
        }
    }

    fn check_config(&self, config: &RuntimeConfig) -> Result<()> {
        config.only(NAME, &OPTIONS)?;
        strictness(config).map(|_| ())
    }

    async fn prepare(
        &self,
        _skill: &VerifiedSkill,
        workspace: Arc<Workspace>,
        context: &PrepareContext<'_>,
    ) -> Result<SkillRuntimeHandle> {
        let report = self.admit(context)?;
        let state = State::prepare(&workspace, context).await.map_err(|error| error.operation("prepare"))?;
        let landlock = state.landlock.describe();
        context.audit.allow(Layer::Runtime, "prepare", NAME, &format!("landlock {landlock}"))?;
        let handle = SkillRuntimeHandle::new(report, context.policy, workspace, context.audit.clone(), state);
        Ok(handle.with_backend("landlock", landlock).with_backend("limits", limits_kept_by()))
    }

    async fn run(&self, handle: &SkillRuntimeHandle, command: &RunCommand) -> Result<RuntimeRunResult> {
        let spec = handle.state::<State>()?.spec(handle, command).map_err(|error| refused(handle, command, error))?;
        handle.audit().allow(Layer::Process, "run", command.program(), "")?;
        let end = child::run(spec)
            .await
            .map_err(|error| refused(handle, command, error.with("program", command.program())))?;
        Ok(concluded(handle, command, end))
    }

    async fn write_file(&self, handle: &SkillRuntimeHandle, path: &GuestPath, data: &[u8]) -> Result<()> {
        handle.workspace().write_file(path, data, &handle.policy().limits)?;
        match handle.state::<State>()?.user {
            Some(user) => ownership::give_path(handle.workspace(), path, user),
            None => Ok(()),
        }
    }

    async fn cleanup(&self, _handle: &SkillRuntimeHandle) -> Result<()> {
        // The namespaces end with the handle's descriptors; runs have ended everything they started.
        Ok(())
    }
}

fn strictness(config: &RuntimeConfig) -> Result<Strictness> {
    config.string("landlock")?.map_or(Ok(Strictness::default()), Strictness::parse)
}

/// The program `bwrap` of this machine.
fn bwrap(workspace: &Path) -> Result<PathBuf, ProgramError> {
    let search = std::env::var_os("PATH").unwrap_or_else(|| FALLBACK_PATH.into());
    find_program("bwrap", &search, workspace)
}

impl State {
    async fn prepare(workspace: &Workspace, context: &PrepareContext<'_>) -> Result<Self> {
        let policy = context.policy;
        let host_network = match policy.network.policy {
            NetworkPolicy::Host => true,
            // Until an egress gateway is handed over, an allow list that was accepted as advisory means no network.
            NetworkPolicy::None | NetworkPolicy::Allowlist => false,
        };
        let landlock = Use::decide(strictness(context.config)?, landlock::kernel_abi(), Keeps::of(policy))?;
        let gone =
            |error: std::io::Error| SkillRuntimeError::backend("the workspace is gone", error.kind().to_string());
        let folder = workspace.ambient_root().canonicalize().map_err(gone)?;
        let bwrap = bwrap(&folder).map_err(|_| {
            SkillRuntimeError::new(
                ErrorKind::Unavailable,
                "runtime 'bubblewrap' needs the program bwrap, which is not in a trusted folder of PATH; install the \
                 package bubblewrap",
            )
        })?;
        let user = rustix::process::geteuid().is_root().then_some(NOBODY);
        if let Some(user) = user {
            ownership::give_areas(workspace, user)?;
        }
        let search = std::env::var_os("PATH").unwrap_or_default();
        let home = std::env::var_os("HOME").map(PathBuf::from);
        let toolchains = Toolchains::find(&search, &folder, home.as_deref());
        let wanted = holder::Wanted {
            bwrap,
            root: Root::build(workspace, &toolchains.folders, host_network, user.map(|user| (user, user)))?,
            host_network,
            user: user.map(|user| (user, user)),
            folder: rustix::fs::open(
                "/",
                rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC,
                rustix::fs::Mode::empty(),
            )
            .map_err(|error| SkillRuntimeError::backend("could not open the root folder", error))?,
        };
        let held = holder::make(wanted).await?;
        let sandbox = Sandbox {
            user_namespace: held.user,
            namespaces: held.others,
            identity: (GUEST_USER, GUEST_USER),
            shared_memory: shared_memory(&policy.limits)?,
            filters: filter::filters()?,
            rules: landlock.rules(policy),
            canary: c_string(folder.as_os_str().as_bytes())?,
        };
        Ok(Self { sandbox: Arc::new(sandbox), landlock, toolchains, workspace: folder, user })
    }

    fn spec(&self, handle: &SkillRuntimeHandle, command: &RunCommand) -> Result<ChildSpec> {
        let program = self.program(handle.workspace(), command.program())?;
        let mut argv = vec![OsString::from(command.program())];
        argv.extend(command.argv().iter().skip(1).map(OsString::from));
        let mut env = fixed_environment(|path| path.to_string().into(), program.parent(), &command.cwd);
        for (name, value) in command.env.iter() {
            set_variable(&mut env, name, value.into());
        }
        let confined = Confined {
            sandbox: self.sandbox.clone(),
            folder: c_string(command.cwd.to_string().as_bytes())?,
            ruleset: self.landlock.ruleset()?,
        };
        Ok(ChildSpec {
            program,
            argv,
            env,
            place: Place::Sandbox(confined),
            stdin: command.stdin.clone(),
            sink: command.sink.clone(),
            limits: handle.policy().limits.clone(),
            disk: Some(watched(handle)?),
            group: group(handle, INIT)?,
        })
    }

    /// What is started, as a path inside.
    fn program(&self, workspace: &Workspace, name: &str) -> Result<PathBuf> {
        if name.contains('/') {
            return own_program(workspace, name).map(|path| PathBuf::from(path.to_string()));
        }
        if let Some(program) = self.toolchains.programs.get(name) {
            return Ok(program.clone());
        }
        // The system's folders are the same inside.
        find_program(name, SYSTEM_PATH.as_ref(), &self.workspace).map_err(|error| match error {
            ProgramError::NotAName => SkillRuntimeError::invalid(format!(
                "'{}' is no program; give a name such as python3, or a path below /workspace",
                name.escape_debug()
            )),
            ProgramError::NotFound => SkillRuntimeError::new(
                ErrorKind::NotFound,
                format!(
                    "no program '{}' that the sandbox can show; install it for the whole system, or use a runtime that \
                     brings its own",
                    name.escape_debug()
                ),
            ),
        })
    }
}

fn shared_memory(limits: &Limits) -> Result<CString> {
    let size = SHARED_MEMORY.min(limits.memory / 4);
    c_string(format!("mode=1777,size={size},nr_inodes={}", limits.files).as_bytes())
}

fn c_string(bytes: &[u8]) -> Result<CString> {
    CString::new(bytes).map_err(|_| SkillRuntimeError::new(ErrorKind::PathDenied, "a path holds a NUL byte"))
}
