//! `prepare`, top to bottom: daemon, sweep, checks, image, files, container.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use super::config::{DockerConfig, NAME, OutAccess, Transfer};
use super::connect::{DaemonFacts, connect, facts};
use super::container::{ContainerPlan, FilePlan, INIT_COPIED, INIT_FILE, INIT_MODE, INIT_MOUNTED, describe};
use super::environment::{Site, of_image};
use super::session::{Session, SessionPlan};
use super::sweep::{Owner, sweep};
use super::{files, image, init};
use crate::audit::Layer;
use crate::error::{ErrorKind, Result, SkillRuntimeError};
use crate::policy::{EnforcementReport, NetworkPolicy, OutMode};
use crate::runtime::{PrepareContext, SkillRuntimeHandle};
use crate::workspace::{Area, GuestPath, Workspace};

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
    if config.files != Transfer::Copy && !facts.remapped {
        let (user, mounted) = mounted(&workspace, &facts)?;
        let attempt = make(user, mounted)?;
        match attempt.start(None).await {
            Ok(live) => session = Some((attempt, live)),
            Err(error) if error.kind() == ErrorKind::NotFound && config.files == Transfer::Auto => {}
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
            workspace.give_to(GUEST_USER)?;
            GUEST_USER
        }
        user => user,
    };
    let read_only = workspace.mounts().iter().map(|mount| (mount.guest.clone(), by_descriptor(&mount.dir))).collect();
    Ok((user, FilePlan::Mounted { root: workspace.ambient_root(), read_only }))
}

/// A folder that is held open, by a name that means exactly it, whatever has become of its path.
fn by_descriptor(dir: &cap_std::fs::Dir) -> String {
    use std::os::fd::AsRawFd;
    format!("/proc/{}/fd/{}", std::process::id(), dir.as_raw_fd())
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
