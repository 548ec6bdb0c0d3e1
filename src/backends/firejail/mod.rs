//! Runtime `firejail`: a process confined by the program of that name, for machines where it is what there is.
//!
//! What is asked of `firejail` is in [`profile`]: its own profile for one run, handed over by descriptor, so that
//! neither a file nor a command line of the host holds it. Rather than trust that a version of `firejail` does what it is
//! asked, `prepare` runs a [self-test](SELF_TEST) inside and refuses when that doesn't hold.
//!
//! Differences from `/workspace`: `firejail` can show a folder under another name only as the home of the user, so the
//! workspace is the home. Guest paths are translated as runtime `local` does it, and `$SKILL_DIR`, `$WORKSPACE_IN` and
//! `$WORKSPACE_OUT` say where things are. A guest sees the names of the host's top folders, but not into them, and the
//! path of the workspace in `/proc/self/mountinfo`. Interpreters in a home are not there. A program that a signal ended
//! is reported with the exit code `firejail` gives, 128 and the number.
//!
//! Started by root, `firejail` itself runs as the host's `nobody`, in a mount namespace where that user has a
//! [home](super::child::Home) made of the workspace's folders: started as root it would leave the guest root, without
//! capabilities but with root's rights to files, which is enough to make new ones in the host's `/` and `/run`.

mod profile;

use std::ffi::OsString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use self::profile::{User, in_memory, profile, version};
use super::child::{
    self, Access, ChildSpec, HOME_SOURCE, Home, OnHost, Place, ProgramError, Rights, Room, find_program,
};
use super::guest::{
    Elsewhere, SYSTEM_PATH, concluded, fixed_environment, group, limits_kept_by, not_there, own_program, refused,
    set_variable, watched,
};
use super::ownership::{self, NOBODY};
use crate::audit::Layer;
use crate::error::{ErrorKind, Result, SkillRuntimeError};
use crate::policy::{Isolation, Limits, OutMode, RuntimeCapabilities, SandboxPolicy, Support};
use crate::runtime::{
    Availability, PrepareContext, RunCommand, RuntimeConfig, RuntimeRunResult, SkillRuntime, SkillRuntimeHandle, Stdin,
    Termination,
};
use crate::skill::VerifiedSkill;
use crate::workspace::{Area, GuestPath, Workspace};

/// Registered name.
const NAME: &str = "firejail";
/// Oldest version with every line of the profile: `restrict-namespaces` came with 0.9.72.
const OLDEST: [u32; 3] = [0, 9, 72];
/// `firejail` refuses longer arguments (`MAX_ARG_LEN`).
const MAX_ARGUMENT: usize = 4_096;
/// And as many of them or more (`MAX_ARGS`), its own name among them.
const MAX_ARGUMENTS: usize = 127;
/// Processes around a guest: the outer `firejail`, the inner one, and the shell it starts the program with.
const OWN_PROCESSES: usize = 3;
/// The self-test may take this long: `firejail` needs some 200 ms.
const SELF_TEST_TIME: Duration = Duration::from_secs(20);
/// Run inside at `prepare`: prints `held` when everything that must fail fails and what must work works.
const SELF_TEST: &str = r#"
set -u
fail() { echo "$1"; exit 0; }
status=$(cat /proc/self/status) || fail "no status"
[ "$(id -u)" = 0 ] && fail "root"
case $status in *"CapEff:	0000000000000000"*) ;; *) fail "capabilities" ;; esac
case $status in *"CapBnd:	0000000000000000"*) ;; *) fail "capabilities to come" ;; esac
case $status in *"NoNewPrivs:	1"*) ;; *) fail "new privileges" ;; esac
case $status in *"Seccomp:	2"*) ;; *) fail "no system-call filter" ;; esac
ls "$CANARY" >/dev/null 2>&1 && fail "the host's workspace is visible"
ls /var/lib >/dev/null 2>&1 && fail "/var is visible"
(: > "$SKILL_DIR/.self-test") 2>/dev/null && fail "the skill is writable"
(: > "$WORKSPACE_IN/.self-test") 2>/dev/null && fail "the inputs are writable"
(: > "$WORKSPACE_OUT/../.self-test") 2>/dev/null && fail "the workspace is writable"
(: > /usr/.self-test) 2>/dev/null && fail "/usr is writable"
(: > /.self-test) 2>/dev/null && fail "/ is writable"
(: > /run/.self-test) 2>/dev/null && fail "/run is writable"
(: > /proc/sys/kernel/core_pattern) 2>/dev/null && fail "the kernel is writable"
cat /etc/shadow >/dev/null 2>&1 && fail "/etc is visible"
(: > "$TMPDIR/.self-test") 2>/dev/null || fail "the scratch folder is not writable"
rm "$TMPDIR/.self-test"
echo held
"#;

/// The runtime `firejail`.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct FirejailRuntime;

/// What `prepare` found out.
struct State {
    program: PathBuf,
    user: User,
    /// The workspace on the host, without links.
    workspace: PathBuf,
    /// The home inside, which is the workspace.
    world: Elsewhere,
    profile: String,
    /// The folders of the home, when the host is root and the guest is not.
    areas: Option<Vec<OwnedFd>>,
}

#[async_trait]
impl SkillRuntime for FirejailRuntime {
    fn name(&self) -> &str {
        NAME
    }

    fn capabilities(&self) -> RuntimeCapabilities {
        RuntimeCapabilities {
            files: Support::Enforced,
            // By the kernel, in the user namespace that firejail makes.
            processes: Support::Enforced,
            network_none: Support::Enforced,
            wall_time: Support::Enforced,
            output: Support::Enforced,
            cpu_time: Support::Advisory,
            memory: Support::Advisory,
            disk: Support::Advisory,
            ..RuntimeCapabilities::none(Isolation::Process)
        }
    }

    async fn availability(&self) -> Availability {
        match firejail(Path::new("/workspace")) {
            Ok(_) => Availability::Available { detail: "firejail; its version is checked at the first use".into() },
            Err(_) => Availability::Missing {
                reason: "no program firejail on PATH".into(),
                remedy: "install the package firejail, 0.9.72 or later".into(),
            },
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
        let state = State::prepare(&workspace, context.policy).await.map_err(|error| error.operation("prepare"))?;
        context.audit.allow(Layer::Runtime, "prepare", NAME, "the self-test held")?;
        let handle = SkillRuntimeHandle::new(report, context.policy, workspace, context.audit.clone(), state);
        Ok(handle.with_backend("workspace", "shown as the home folder").with_backend("limits", limits_kept_by()))
    }

    async fn run(&self, handle: &SkillRuntimeHandle, command: &RunCommand) -> Result<RuntimeRunResult> {
        let state: &State = handle.state()?;
        let spec = state.command(handle, command).map_err(|error| refused(handle, command, error))?;
        handle.audit().allow(Layer::Process, "run", command.program(), "")?;
        let end = child::run(spec)
            .await
            .map_err(|error| refused(handle, command, error.with("program", command.program())))?;
        if end.termination == Termination::Exited(1) && failed_itself(&end.stderr.text()) {
            return Err(SkillRuntimeError::new(
                ErrorKind::Backend,
                "firejail could not make the sandbox of a run; the machine's mounts may have changed at that moment, so try \
                 again",
            )
            .operation("run"));
        }
        Ok(concluded(handle, command, end))
    }

    async fn write_file(&self, handle: &SkillRuntimeHandle, path: &GuestPath, data: &[u8]) -> Result<()> {
        handle.workspace().write_file(path, data, &handle.policy().limits)?;
        match handle.state::<State>()?.areas {
            Some(_) => ownership::give_path(handle.workspace(), path, NOBODY),
            None => Ok(()),
        }
    }

    async fn cleanup(&self, _handle: &SkillRuntimeHandle) -> Result<()> {
        // Each run is a sandbox of its own, and has ended.
        Ok(())
    }
}

/// Whether the last line on stderr is what `firejail` says when its inner half gave up before the guest started. It ends
/// with the code of many a failing script, so this is the only way to tell. A script that says the same is reported as
/// a failed sandbox, which it could only do to itself.
fn failed_itself(stderr: &str) -> bool {
    let last = stderr.lines().next_back().unwrap_or_default();
    (last.starts_with("Error: proc ") && last.ends_with(" cannot sync with peer: unexpected EOF"))
        || (last.starts_with("Peer ") && last.ends_with(" unexpectedly exited with status 1"))
}

fn firejail(workspace: &Path) -> Result<PathBuf, ProgramError> {
    let search = std::env::var_os("PATH").unwrap_or_else(|| SYSTEM_PATH.into());
    find_program(NAME, &search, workspace)
}

impl State {
    async fn prepare(workspace: &Workspace, policy: &SandboxPolicy) -> Result<Self> {
        if policy.out == OutMode::ReadWriteWithoutDelete {
            return Err(SkillRuntimeError::new(
                ErrorKind::PolicyUnenforceable,
                "runtime 'firejail' can't keep a guest from removing files; use runtime 'bubblewrap' for \
                 read-write-without-delete",
            ));
        }
        let gone =
            |error: std::io::Error| SkillRuntimeError::backend("the workspace is gone", error.kind().to_string());
        let folder = workspace.ambient_root().canonicalize().map_err(gone)?;
        let unavailable = |message: String| SkillRuntimeError::new(ErrorKind::Unavailable, message);
        let program = firejail(&folder).map_err(|_| {
            unavailable("runtime 'firejail' needs the program firejail in a trusted folder of PATH; install it".into())
        })?;
        let root = rustix::process::geteuid().is_root();
        let user = if root { User::of_root() } else { User::current()? };
        let areas = if root { Some(areas(workspace)?) } else { None };
        let profile = profile(if root { Path::new(HOME_SOURCE) } else { &folder }, policy)?;
        let world = Elsewhere { root: user.home.clone() };
        let state = Self { program, user, workspace: folder, world, profile, areas };
        state.check_version().await?;
        state.self_test().await?;
        Ok(state)
    }

    /// Refuses a `firejail` that doesn't know every line of the profile.
    async fn check_version(&self) -> Result<()> {
        let spec = self.spec(vec!["--version".into()], Vec::new(), Stdin::Closed, short_limits())?;
        let output = child::run(spec).await?.stdout.text();
        let found = version(&output);
        if found.is_some_and(|found| found >= OLDEST) {
            return Ok(());
        }
        let found = output.lines().next().unwrap_or_default().to_owned();
        Err(SkillRuntimeError::new(
            ErrorKind::Unavailable,
            format!("runtime 'firejail' needs firejail 0.9.72 or later, found '{}'; update it", found.escape_debug()),
        ))
    }

    /// Looks from inside whether the profile holds on this machine.
    async fn self_test(&self) -> Result<()> {
        let cwd = Area::Tmp.guest_path();
        let mut env = fixed_environment(|path| self.world.path(path).into_os_string(), None, &cwd);
        set_variable(&mut env, "CANARY", self.workspace.clone().into_os_string());
        let (arguments, keep) = self.sandboxed(&env, &cwd, &[])?;
        let mut arguments = arguments;
        arguments.extend(["/bin/sh".into(), "-s".into()]);
        // By its input: an argument may not be that long.
        let spec = self.spec(arguments, keep, Stdin::Bytes(SELF_TEST.as_bytes().into()), short_limits())?;
        let end = child::run(spec).await?;
        let said = end.stdout.text();
        if end.termination == Termination::Exited(0) && said == "held\n" {
            return Ok(());
        }
        if said.is_empty() {
            return Err(SkillRuntimeError::new(
                ErrorKind::Unavailable,
                "firejail could not make the sandbox; try `firejail --noprofile true` as the same user, and see its FAQ",
            )
            .caused_by(end.stderr.text().trim().to_owned()));
        }
        Err(SkillRuntimeError::new(
            ErrorKind::PolicyUnenforceable,
            format!(
                "the sandbox of firejail did not hold in its self-test ({}), so nothing was run; use runtime 'bubblewrap'",
                said.trim().escape_debug()
            ),
        ))
    }

    /// The command of one run.
    fn command(&self, handle: &SkillRuntimeHandle, command: &RunCommand) -> Result<ChildSpec> {
        let workspace = handle.workspace();
        let program = self.guest_program(workspace, command.program())?;
        if !command.cwd.parts().is_empty() {
            let (area, inside) = command.cwd.in_area()?;
            workspace.area(area).open_dir(inside).map_err(|error| not_there(&command.cwd, &error))?;
        }
        let mut env = fixed_environment(|path| self.world.path(path).into_os_string(), None, &command.cwd);
        for (name, value) in command.env.iter() {
            set_variable(&mut env, name, self.world.text(value));
        }
        let (mut arguments, keep) = self.sandboxed(&env, &command.cwd, command.argv())?;
        arguments.push(program.into_os_string());
        arguments.extend(command.argv().iter().skip(1).map(|argument| self.world.argument(argument)));
        if let Some(long) = arguments.iter().position(|argument| argument.len() > MAX_ARGUMENT) {
            return Err(SkillRuntimeError::new(
                ErrorKind::LimitExceeded,
                format!(
                    "firejail takes arguments and variables of at most {MAX_ARGUMENT} bytes, and word {long} is longer; \
                     pass it as a file in /workspace/in or on stdin"
                ),
            ));
        }
        if arguments.len() >= MAX_ARGUMENTS {
            return Err(SkillRuntimeError::new(
                ErrorKind::LimitExceeded,
                format!(
                    "firejail takes fewer than {MAX_ARGUMENTS} arguments and variables, its own among them, and this run \
                     needs {}; pass them as a file in /workspace/in or on stdin",
                    arguments.len()
                ),
            ));
        }
        let mut spec = self.spec(arguments, keep, command.stdin.clone(), handle.policy().limits.clone())?;
        spec.sink = command.sink.clone();
        spec.disk = Some(watched(handle)?);
        spec.group = group(handle, OWN_PROCESSES)?;
        Ok(spec)
    }

    /// The words before the guest's program: `firejail` with its profile, and `env` with the whole environment.
    fn sandboxed(
        &self,
        env: &[(String, OsString)],
        cwd: &GuestPath,
        argv: &[String],
    ) -> Result<(Vec<OsString>, Vec<OwnedFd>)> {
        if argv.first().is_some_and(|program| program.contains('=')) {
            return Err(SkillRuntimeError::invalid("runtime 'firejail' can't run a program with '=' in its name"));
        }
        let profile = in_memory(&self.profile)?;
        let mut folder = OsString::from("--private-cwd=");
        folder.push(self.world.path(cwd));
        let mut arguments: Vec<OsString> = vec![
            "--quiet".into(),
            format!("--profile=/proc/self/fd/{}", profile.as_raw_fd()).into(),
            folder,
            "--".into(),
            "/usr/bin/env".into(),
            "-i".into(),
        ];
        for (name, value) in env {
            let mut pair = OsString::from(name);
            pair.push("=");
            pair.push(value);
            arguments.push(pair);
        }
        Ok((arguments, vec![profile]))
    }

    /// A run of the program `firejail` itself.
    fn spec(&self, arguments: Vec<OsString>, keep: Vec<OwnedFd>, stdin: Stdin, limits: Limits) -> Result<ChildSpec> {
        let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC;
        let folder = rustix::fs::open("/", flags, rustix::fs::Mode::empty())
            .map_err(|error| SkillRuntimeError::backend("could not open the root folder", error))?;
        let mut argv = vec![self.program.clone().into_os_string()];
        argv.extend(arguments);
        let env = vec![
            ("HOME".into(), self.user.home.clone().into_os_string()),
            ("LANG".into(), "C.UTF-8".into()),
            ("LOGNAME".into(), self.user.name.clone().into()),
            ("PATH".into(), SYSTEM_PATH.into()),
            ("USER".into(), self.user.name.clone().into()),
        ];
        let (user, folders, home) = match &self.areas {
            None => (None, Vec::new(), None),
            Some(areas) => {
                let held = areas.iter().map(OwnedFd::try_clone).collect::<std::io::Result<_>>().map_err(|error| {
                    SkillRuntimeError::backend("could not hold on to the workspace of a run", error)
                })?;
                (Some((NOBODY, NOBODY)), held, Some(Home { rooms: rooms(), passwd: self.user.passwd() }))
            }
        };
        let place = Place::Host(OnHost {
            keep,
            folders,
            user,
            home,
            rights: Rights::MayGrow,
            own_processes: OWN_PROCESSES,
            ..OnHost::new(folder)
        });
        Ok(ChildSpec {
            program: self.program.clone(),
            argv,
            env,
            place,
            stdin,
            sink: None,
            limits,
            disk: None,
            group: None,
        })
    }

    /// What is started, as a path inside.
    fn guest_program(&self, workspace: &Workspace, name: &str) -> Result<PathBuf> {
        if name.contains('/') {
            return own_program(workspace, name).map(|path| self.world.path(&path));
        }
        find_program(name, SYSTEM_PATH.as_ref(), &self.workspace).map_err(|_| {
            SkillRuntimeError::new(
                ErrorKind::NotFound,
                format!(
                    "no program '{}' in the system's folders, which are all that firejail shows; install it for the whole \
                     system, or use runtime 'bubblewrap'",
                    name.escape_debug()
                ),
            )
        })
    }
}

/// The folders of the workspace, given to the user that a guest of root runs as.
fn areas(workspace: &Workspace) -> Result<Vec<OwnedFd>> {
    ownership::give_areas(workspace, NOBODY)?;
    let held = |area: Area| {
        let folder = workspace.area(area).try_clone();
        folder
            .map(|folder| folder.into_std_file().into())
            .map_err(|error| SkillRuntimeError::backend(format!("could not open {}", area.guest_path()), error))
    };
    Area::ALL.into_iter().map(held).collect()
}

/// The home that is made of them.
fn rooms() -> Vec<Room> {
    let access = |area: Area| if area.writable() { Access::Write } else { Access::Read };
    let room = |(index, area): (usize, Area)| Room::new(area.name(), index, access(area));
    Area::ALL.into_iter().enumerate().filter_map(room).collect()
}

fn short_limits() -> Limits {
    Limits { wall_time: SELF_TEST_TIME, ..Limits::default() }
}
