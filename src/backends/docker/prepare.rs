//! `prepare`, top to bottom: daemon, sweep, checks, image, files, container.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use super::config::{DockerConfig, NAME, OutAccess, Transfer};
use super::connect::{DaemonFacts, connect, facts};
use super::container::{
    ContainerPlan, FilePlan, INIT_COPIED, INIT_FILE, INIT_MODE, INIT_MOUNTED, MountedFolder, describe,
};
use super::environment::{Site, of_image};
use super::session::{Session, SessionPlan};
use super::sweep::{Owner, sweep};
use super::{files, image, init};
use crate::audit::Layer;
use crate::error::{ErrorKind, Result, SkillRuntimeError};
use crate::policy::{EnforcementReport, MountMode, NetworkPolicy, OutMode};
use crate::runtime::{PrepareContext, SkillRuntimeHandle};
use crate::workspace::{self, Area, GuestPath, Workspace};

/// The guest's user when this process is root, or when its files are a copy: a number that nothing else has. systemd
/// hands out 61184 to 65519, 65534 is nobody, and a rootless daemon maps nothing above 65535.
const GUEST_USER: u32 = 65_533;

/// Makes a handle with a running container.
///
/// # Errors
/// See [`SkillRuntime::prepare`](crate::runtime::SkillRuntime::prepare).
pub(super) async fn prepare(
    address: &str,
    report: EnforcementReport,
    workspace: Arc<Workspace>,
    context: &PrepareContext<'_>,
) -> Result<SkillRuntimeHandle> {
    let config = DockerConfig::parse(context.config)?;
    if context.policy.out == OutMode::ReadWriteWithoutDelete && config.out == OutAccess::ReadWrite {
        return Err(SkillRuntimeError::new(
            ErrorKind::PolicyUnenforceable,
            "runtime 'docker' can't let a guest write to /workspace/out without letting it delete; choose another runtime, or read-write",
        ));
    }
    let docker = connect(address).await?;
    let facts = facts(&docker).await?;
    facts.check(&config)?;
    check_init(&facts)?;
    let owner = Owner::this_process()?;
    if first_time(address) {
        match sweep(&docker, &owner).await {
            Ok(0) => {}
            Ok(count) => tracing::info!(count, "removed containers that a process which is gone had left"),
            // Leftovers of others are no reason not to work.
            Err(error) => tracing::warn!(error = %error.chain().join(": "), "could not look for leftover containers"),
        }
        // After the containers, which may have held them.
        let beside = workspace.clone();
        let swept = tokio::task::spawn_blocking(move || beside.sweep_leftovers()).await.unwrap_or_default();
        if swept > 0 {
            tracing::info!(count = swept, "removed workspaces that a process which is gone had left");
        }
    }
    let found = image::find(&docker, &config, &facts, context.progress.as_ref()).await?;
    if context.policy.network.policy == NetworkPolicy::Host {
        // CARL's words.
        tracing::warn!("DockerSkillRuntime selected network='host' - unrestricted container egress is enabled.");
    }
    let run = context.audit.run();
    let site = if is_empty(&workspace, Area::Site)? { Site::Empty } else { Site::Filled };
    let make = |user: u32, files: FilePlan<'_>| {
        let copied = matches!(files, FilePlan::Copied);
        let plan = ContainerPlan {
            image: &found,
            config: &config,
            policy: context.policy,
            labels: owner.labels(run),
            user,
            files,
        };
        describe(&plan).map(|body| {
            Session::new(SessionPlan {
                docker: docker.clone(),
                body,
                init: if copied { INIT_COPIED } else { INIT_MOUNTED },
                user,
                gives_files_to: (!copied && user != this_user()).then_some(user),
                env: of_image(&found, site),
                copied,
                name: format!("skillcell-{run}"),
            })
        })
    };

    let mut session = None;
    // A daemon that maps users shows a mounted folder to a user who may not enter it.
    let must_mount = !workspace.host_mounts().is_empty();
    if config.files != Transfer::Copy && !facts.remapped {
        let (user, mounted) = mounted(&workspace, &facts)?;
        let attempt = make(user, mounted)?;
        match attempt.start(None).await {
            Ok(live) => session = Some((attempt, live)),
            Err(error) if error.kind() == ErrorKind::NotFound && config.files == Transfer::Auto && !must_mount => {}
            Err(error) => return Err(error),
        }
    }
    let (session, live) = match session {
        Some(session) => session,
        None if config.files == Transfer::Mount => {
            return Err(SkillRuntimeError::invalid(
                "this docker daemon maps users, so folders can't be mounted for the guest; set runtime_config['files'] to 'copy' or 'auto'",
            ));
        }
        None if must_mount => {
            return Err(SkillRuntimeError::new(
                ErrorKind::PolicyUnenforceable,
                "this docker daemon is given copies of files, so a folder of this machine can't be mounted; give it as an \
                 input, or use a daemon that sees this machine's folders",
            ));
        }
        None => {
            let session = make(GUEST_USER, FilePlan::Copied)?;
            let packed = files::pack(&workspace, GUEST_USER, config.out)?;
            let live = session.start(Some(packed)).await?;
            (session, live)
        }
    };

    context.audit.allow(Layer::Runtime, "prepare", NAME, &found.id)?;
    let details = [
        ("container", live.id.clone()),
        ("image", config.image.clone()),
        ("image_id", found.id.clone()),
        ("container_user", format!("{}", session.user)),
        ("daemon", facts.version.clone()),
        ("files", if session.copied { "copy" } else { "mount" }.to_owned()),
        ("oci_runtime", config.oci_runtime.clone().unwrap_or_else(|| "default".into())),
        // Kept by the daemon beside everything else; said here since a daemon may run without them.
        ("seccomp", on_or_off(facts.seccomp)),
        ("mandatory_access_control", on_or_off(facts.labelled)),
        ("swap_limited", on_or_off(facts.swap)),
    ];
    let handle = SkillRuntimeHandle::new(report, context.policy, workspace, context.audit.clone(), Arc::new(session));
    Ok(details.into_iter().fold(handle, |handle, (key, value)| handle.with_backend(key, value)))
}

/// The folders to mount, given to the guest's user, and that user.
fn mounted<'a>(workspace: &'a Workspace, facts: &DaemonFacts) -> Result<(u32, FilePlan<'a>)> {
    workspace.place_executable(INIT_FILE, init::PROGRAM, INIT_MODE)?;
    let user = match this_user() {
        // The root of a rootless daemon's container is the user the daemon runs as, who must be this one to see the
        // folder at all; it has no rights outside.
        _ if facts.rootless => 0,
        0 => {
            let user = user_of_mounts(workspace)?.unwrap_or(GUEST_USER);
            workspace.give_to(user)?;
            user
        }
        user => user,
    };
    let inputs = workspace.mounts().iter().map(|mount| (mount.guest.to_string(), &mount.dir, true));
    let mounts = workspace.host_mounts().iter().map(|mount| {
        let read_only = mount.access() == MountMode::ReadOnly;
        (mount.guest().to_string(), mount.dir(), read_only)
    });
    let folders = inputs
        .chain(mounts)
        .map(|(guest, dir, read_only)| Ok(MountedFolder { source: real_path(dir, &guest)?, guest, read_only }))
        .collect::<Result<_>>()?;
    Ok((user, FilePlan::Mounted { root: workspace.ambient_root(), folders }))
}

/// The user a guest must be to write to the folders of the host that it may write to; only this process being root, it can
/// be anybody. Never root: a folder's rights are all that stands between it and the files of the system.
fn user_of_mounts(workspace: &Workspace) -> Result<Option<u32>> {
    let mut user = None;
    for mount in workspace.host_mounts().iter().filter(|mount| mount.mode().writes_to_host()) {
        let owner = mount.owner()?;
        let why = match (owner, user) {
            (0, _) => "belongs to root, whom a guest never is",
            (owner, Some(other)) if owner != other => "belongs to another user than an earlier one",
            _ => {
                user = Some(owner);
                continue;
            }
        };
        return Err(SkillRuntimeError::new(
            ErrorKind::PolicyUnenforceable,
            format!(
                "the folder for '{}' {why}, so the guest could not write to it; give it to a user of its own, or mount it \
                 with mode cow",
                mount.guest()
            ),
        ));
    }
    Ok(user)
}

/// Where a folder that is held open lies now, which is all that a daemon takes. (The name of our descriptor in `/proc` leads
/// the daemon into our mount namespace, from which its own can't bind.) Nothing of the guest's runs yet, so nobody but the
/// host's own user could put another folder there. What is mounted inside it stays what it is on the host, also under a
/// read-only bind, so that is refused.
fn real_path(dir: &cap_std::fs::Dir, guest: &str) -> Result<String> {
    use std::os::fd::AsRawFd;
    let refused = |why: &str| {
        SkillRuntimeError::new(
            ErrorKind::PolicyUnenforceable,
            format!("the folder for '{guest}' {why}; choose another folder, or give it as an input that is copied"),
        )
    };
    let link = format!("/proc/self/fd/{}", dir.as_raw_fd());
    let path = rustix::fs::readlink(link, Vec::new())
        .map_err(|error| SkillRuntimeError::backend("could not find a mounted folder", error))?;
    let Ok(path) = path.into_string() else { return Err(refused("has a path that is no UTF-8")) };
    if path.ends_with(" (deleted)") {
        return Err(refused("is gone"));
    }
    let mounts = workspace::mount_points()?;
    let inside = |point: &String| point.strip_prefix(path.as_str()).is_some_and(|rest| rest.starts_with('/'));
    match mounts.iter().find(|point| inside(point)) {
        Some(_) => {
            Err(refused("has other file systems mounted inside it, which a read-only mount would not make read-only"))
        }
        None => Ok(path),
    }
}

fn this_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Whether this process meets the daemon for the first time.
fn first_time(address: &str) -> bool {
    static MET: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    MET.lock().unwrap_or_else(PoisonError::into_inner).insert(address.to_owned())
}

fn check_init(facts: &DaemonFacts) -> Result<()> {
    if init::ARCHITECTURE != facts.architecture {
        return Err(SkillRuntimeError::new(
            ErrorKind::Unavailable,
            format!(
                "the docker daemon's machine is {}, and this build of skillcell carries an init for {} only; use a build for that architecture",
                facts.architecture,
                init::ARCHITECTURE
            ),
        ));
    }
    Ok(())
}

fn is_empty(workspace: &Workspace, area: Area) -> Result<bool> {
    let path: GuestPath = area.guest_path();
    workspace.list(&path).map(|entries| entries.is_empty())
}

fn on_or_off(on: bool) -> String {
    if on { "on" } else { "off" }.to_owned()
}
