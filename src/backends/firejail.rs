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
//! Started by root, a guest stays root without any capability: `firejail` has no way to take on another user. That is
//! weaker than what is declared, so strict mode is then refused at `prepare`, and a handle of best-effort mode says
//! advisory.

use std::ffi::OsString;
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::child::{self, ChildSpec, OnHost, Place, ProgramError, Rights, find_program};
use super::guest::{
    Elsewhere, SYSTEM_PATH, concluded, fixed_environment, not_there, own_program, refused, set_variable, watched,
};
use crate::audit::Layer;
use crate::error::{ErrorKind, Result, SkillRuntimeError};
use crate::policy::{
    Isolation, Limits, NetworkPolicy, OutMode, RuntimeCapabilities, SandboxPolicy, Support, assess_runtime_enforcement,
};
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
/// Folders of the root that a guest may look into; `/home` and `/root` are emptied by `private`.
const SHOWN: [&str; 14] =
    ["bin", "sbin", "lib", "lib32", "lib64", "libx32", "usr", "etc", "dev", "proc", "tmp", "home", "root", "run"];
/// `firejail` itself works below it; blacklisting it ends in an error.
const RUN_KEPT: &str = "firejail";
/// What is kept of `/etc`. `passwd` and `group` are made by `firejail`.
const CONFIGURATION: &str =
    "alternatives,ca-certificates,fonts,ld.so.cache,ld.so.conf,ld.so.conf.d,localtime,mime.types,ssl";
/// The self-test may take this long: `firejail` needs some 200 ms.
const SELF_TEST_TIME: Duration = Duration::from_secs(20);
/// A profile of more entries than this means a root folder full of mounts.
const MAX_ENTRIES: usize = 2_000;
/// `/etc/passwd` beyond this is no list of users.
const MAX_PASSWD: u64 = 1 << 20;

/// Run inside at `prepare`: prints `held` when everything that must fail fails and what must work works.
const SELF_TEST: &str = r#"
set -u
fail() { echo "$1"; exit 0; }
status=$(cat /proc/self/status) || fail "no status"
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
}

/// Who runs the host.
#[derive(Debug, PartialEq, Eq)]
struct User {
    name: String,
    home: PathBuf,
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
        self.check_config(context.config)?;
        let report = assess_runtime_enforcement(NAME, &self.capabilities_of_this_user(), context.policy);
        report.gate().inspect_err(|error| context.audit.deny(Layer::Policy, "prepare", NAME, &error.to_string()))?;
        let state = State::prepare(&workspace, context.policy).await.map_err(|error| error.operation("prepare"))?;
        context.audit.allow(Layer::Runtime, "prepare", NAME, "the self-test held")?;
        let handle = SkillRuntimeHandle::new(report, context.policy, workspace, context.audit.clone(), state);
        Ok(handle.with_backend("workspace", "shown as the home folder").with_backend("limits", "rlimits and a watch"))
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

    async fn cleanup(&self, _handle: &SkillRuntimeHandle) -> Result<()> {
        // Each run is a sandbox of its own, and has ended.
        Ok(())
    }
}

impl FirejailRuntime {
    /// What is declared holds for ordinary users. For root there is no user namespace: the guest stays root, without
    /// capabilities, and the number of its processes is only watched.
    fn capabilities_of_this_user(self) -> RuntimeCapabilities {
        if rustix::process::geteuid().is_root() {
            RuntimeCapabilities { files: Support::Advisory, processes: Support::Advisory, ..self.capabilities() }
        } else {
            self.capabilities()
        }
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
        let user = User::current()?;
        let profile = profile(&folder, policy)?;
        let world = Elsewhere { root: user.home.clone() };
        let state = Self { program, user, workspace: folder, world, profile };
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
        let place = OnHost {
            folder,
            keep,
            folders: Vec::new(),
            user: None,
            rights: Rights::MayGrow,
            own_processes: OWN_PROCESSES,
        };
        let place = Place::Host(place);
        Ok(ChildSpec { program: self.program.clone(), argv, env, place, stdin, sink: None, limits, disk: None })
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

fn short_limits() -> Limits {
    Limits { wall_time: SELF_TEST_TIME, ..Limits::default() }
}

/// The profile of every run of one workspace.
fn profile(workspace: &Path, policy: &SandboxPolicy) -> Result<String> {
    let text = workspace.to_str().filter(|text| !text.contains(['\n', '\r', '*', '?', '[', '$', '~', '"', '\\']));
    let workspace = text.ok_or_else(|| {
        SkillRuntimeError::invalid(
            "the path of the workspace can't stand in a profile of firejail; set TMPDIR to a plain one",
        )
    })?;
    let network = match policy.network.policy {
        NetworkPolicy::Host => "",
        NetworkPolicy::None | NetworkPolicy::Allowlist => "net none\n",
    };
    // For root firejail makes no user namespace, and the kernel doesn't limit the number of root's processes.
    let for_user = if rustix::process::geteuid().is_root() {
        String::new()
    } else {
        // The outer `firejail` is not in the namespace.
        format!("noroot\nrlimit-nproc {}\n", policy.limits.processes as usize + OWN_PROCESSES - 1)
    };
    let mut profile = format!(
        "quiet\nprivate {workspace}\nprivate-dev\nprivate-tmp\nprivate-etc {CONFIGURATION}\n\
         read-only ${{HOME}}\nread-write ${{HOME}}/out\nread-write ${{HOME}}/tmp\n\
         caps.drop all\nnonewprivs\n{for_user}seccomp\nseccomp.block-secondary\nrestrict-namespaces\n\
         protocol inet,inet6,netlink\n{network}ipc-namespace\ndbus-user none\ndbus-system none\n\
         no3d\nnodvd\nnosound\nnotv\nnou2f\nnovideo\nnoinput\nnoprinters\ndisable-mnt\nmachine-id\n\
         deterministic-exit-code\ndeterministic-shutdown\n"
    );
    for (folder, kept) in [("/", &SHOWN[..]), ("/run", &[RUN_KEPT][..])] {
        for name in names(folder)? {
            if !kept.contains(&name.as_str()) {
                let slash = if folder == "/" { "" } else { "/" };
                profile.push_str(&format!("blacklist {folder}{slash}{name}\n"));
            }
        }
    }
    Ok(profile)
}

/// The names in a folder of the host. One that could not stand in a profile is an error: it could not be hidden.
fn names(folder: &str) -> Result<Vec<String>> {
    let failed = |error| SkillRuntimeError::backend(format!("could not list {folder}"), error);
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
    let opened = rustix::fs::open(folder, flags, rustix::fs::Mode::empty()).map_err(failed)?;
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::new(opened).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().to_string_lossy();
        if name == "." || name == ".." {
            continue;
        }
        let plain = |c: char| c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '+' | '@' | ':' | ',');
        if !name.chars().all(plain) || names.len() >= MAX_ENTRIES {
            return Err(SkillRuntimeError::new(
                ErrorKind::Unavailable,
                format!("'{folder}' holds a name that firejail could not hide; use runtime 'bubblewrap'"),
            ));
        }
        names.push(name.into_owned());
    }
    names.sort();
    Ok(names)
}

/// A file without a name, which a program can read by its descriptor.
fn in_memory(text: &str) -> Result<OwnedFd> {
    let failed = |error: std::io::Error| SkillRuntimeError::backend("could not hand firejail its profile", error);
    let file =
        rustix::fs::memfd_create("profile", rustix::fs::MemfdFlags::CLOEXEC).map_err(|error| failed(error.into()))?;
    let mut file = std::fs::File::from(file);
    std::io::Write::write_all(&mut file, text.as_bytes())
        .and_then(|()| std::io::Seek::rewind(&mut file))
        .map_err(failed)?;
    Ok(file.into())
}

impl User {
    /// The user of this process, from `/etc/passwd`, where `firejail` looks too.
    fn current() -> Result<Self> {
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
        let mut text = String::new();
        rustix::fs::open("/etc/passwd", flags, rustix::fs::Mode::empty())
            .map_err(std::io::Error::from)
            .and_then(|file| std::fs::File::from(file).take(MAX_PASSWD).read_to_string(&mut text))
            .map_err(|error| SkillRuntimeError::backend("could not read /etc/passwd", error))?;
        let id = rustix::process::getuid().as_raw();
        Self::find(&text, id).ok_or_else(|| {
            SkillRuntimeError::new(
                ErrorKind::Unavailable,
                format!("runtime 'firejail' needs a user with a home in /etc/passwd, and user {id} has none; use another runtime"),
            )
        })
    }

    fn find(passwd: &str, id: u32) -> Option<Self> {
        passwd.lines().find_map(|line| {
            let fields: Vec<&str> = line.split(':').collect();
            let (name, number, home) = (fields.first()?, fields.get(2)?, Path::new(fields.get(5)?));
            let usable = number.parse() == Ok(id) && home.is_absolute() && home.components().count() > 1;
            usable.then(|| Self { name: (*name).to_owned(), home: home.to_owned() })
        })
    }
}

/// The version in the first line of `firejail --version`.
fn version(output: &str) -> Option<[u32; 3]> {
    let number = output.lines().next()?.strip_prefix("firejail version ")?;
    let mut parts = number.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().ok());
    Some([parts.next()??, parts.next()??, parts.next()??])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_and_users_are_read_as_they_are_written() {
        for (output, expected) in [
            ("firejail version 0.9.72\n\nCompile", Some([0, 9, 72])),
            ("firejail version 0.9.74rc1", Some([0, 9, 74])),
            ("firejail version 1.0", None),
            ("Error", None),
            ("", None),
        ] {
            assert_eq!(version(output), expected, "{output}");
        }
        let passwd =
            "root:x:0:0:root:/root:/bin/bash\nbroken\nnobody:x:65534:65534::/:/x\nu:x:1000:1000:U,,:/home/u:/bin/sh\n";
        assert_eq!(User::find(passwd, 1000), Some(User { name: "u".into(), home: "/home/u".into() }));
        assert_eq!(User::find(passwd, 65534), None);
        assert_eq!(User::find(passwd, 7), None);
    }

    #[test]
    fn the_profile_hides_what_is_not_shown_and_refuses_what_it_cannot_say() {
        let profile = profile(Path::new("/tmp/w"), &SandboxPolicy::default()).unwrap();
        for line in ["private /tmp/w", "net none", "caps.drop all", "blacklist /var", "read-only ${HOME}"] {
            assert!(profile.lines().any(|known| known == line), "{line}:\n{profile}");
        }
        assert!(!profile.contains("blacklist /usr\n") && !profile.contains("blacklist /run/firejail\n"));
        for bad in ["/tmp/a\nnet eth0", "/tmp/*", "/tmp/${HOME}"] {
            assert!(super::profile(Path::new(bad), &SandboxPolicy::default()).is_err(), "{bad}");
        }
    }
}
