//! One handle's container: started once, held by a connection, replaced if a run can't be killed in it, removed at
//! the end.
//!
//! Invariant: a container lives exactly as long as the connection in its [`Live`]. Whoever drops that, on purpose,
//! in a dropped future or by dying, ends the container, and the daemon then removes it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use bollard::Docker;
use bollard::container::AttachContainerResults;
use bollard::models::ContainerCreateBody;
use bollard::query_parameters::{AttachContainerOptions, CreateContainerOptions};
use futures_util::StreamExt;
use tokio::sync::{Mutex, oneshot};

use super::connect::{Failure, call_error, failure};
use super::container::INIT_GROUP;
use super::exec::start_exec;
use super::init::protocol::ALL_GONE;
use super::spare::Spare;
use super::sweep::remove;
use crate::error::{ErrorKind, Result, SkillRuntimeError};

/// Group ids of runs: above the first process's own, and below 65,536, which is all that a rootless daemon maps.
/// A number is used again after forty thousand runs; everything that had it before is gone by then.
const GROUPS: u32 = 40_000;
/// How long `init kill` may take in all: it gives up by itself after five seconds.
const KILL_TIME: Duration = Duration::from_secs(10);
/// How long the daemon may take to be done with a removed container.
const REMOVAL_TIME: Duration = Duration::from_secs(30);
const REMOVAL_LOOK: Duration = Duration::from_millis(20);

/// What a handle holds.
pub(super) struct Session {
    pub(super) docker: Docker,
    pub(super) body: ContainerCreateBody,
    /// The path of the init in the container.
    pub(super) init: &'static str,
    /// The guest's user id.
    pub(super) user: u32,
    /// The user that files are given to after this process wrote them, when that isn't this process's own.
    pub(super) gives_files_to: Option<u32>,
    /// The environment of every run.
    pub(super) env: Vec<(String, String)>,
    /// Whether the files are in the container alone.
    pub(super) copied: bool,
    name: String,
    groups: AtomicU32,
    starts: AtomicU32,
    pub(super) closed: AtomicBool,
    spare: std::sync::Mutex<Option<Spare>>,
    /// `None` after the end, or when a replacement failed.
    live: Mutex<Option<Arc<Live>>>,
}

/// A container that runs.
pub(super) struct Live {
    pub(super) id: String,
    /// Runs that are under way in it.
    runs: AtomicUsize,
    /// Held, never read: see the module.
    _connection: std::sync::Mutex<AttachContainerResults>,
}

/// A container, counted as in use by a run for as long as this lives.
pub(super) struct InUse(Arc<Live>);

impl InUse {
    pub(super) fn new(live: Arc<Live>) -> Self {
        live.runs.fetch_add(1, Ordering::AcqRel);
        Self(live)
    }

    /// Whether no other run is under way in it.
    fn alone(&self) -> bool {
        self.0.runs.load(Ordering::Acquire) == 1
    }
}

impl std::ops::Deref for InUse {
    type Target = Arc<Live>;

    fn deref(&self) -> &Arc<Live> {
        &self.0
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.0.runs.fetch_sub(1, Ordering::AcqRel);
    }
}

/// What came of ending a run by force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Forced {
    /// Its processes are gone, the container stays.
    Killed,
    /// They resisted, so the container was ended and another one stands in its place.
    Replaced,
    /// The container had ended already, or been ended for another run.
    Lost,
}

/// What a session is made from.
pub(super) struct SessionPlan {
    pub(super) docker: Docker,
    pub(super) body: ContainerCreateBody,
    pub(super) init: &'static str,
    pub(super) user: u32,
    pub(super) gives_files_to: Option<u32>,
    pub(super) env: Vec<(String, String)>,
    pub(super) copied: bool,
    pub(super) name: String,
}

impl Session {
    /// A session without a container.
    pub(super) fn new(plan: SessionPlan) -> Self {
        let SessionPlan { docker, body, init, user, gives_files_to, env, copied, name } = plan;
        Self {
            docker,
            body,
            init,
            user,
            gives_files_to,
            env,
            copied,
            name,
            groups: AtomicU32::new(0),
            starts: AtomicU32::new(0),
            closed: AtomicBool::new(false),
            spare: std::sync::Mutex::default(),
            live: Mutex::new(None),
        }
    }

    /// Starts the container.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound) exactly when the daemon doesn't see the workspace's folder.
    pub(super) async fn start(&self, files: Option<bytes::Bytes>) -> Result<Arc<Live>> {
        let mut live = self.live.lock().await;
        let started = Arc::new(self.start_container(files).await?);
        *live = Some(started.clone());
        Ok(started)
    }

    /// Makes, fills, attaches to and starts a container. In a task of its own: if the caller is dropped half-way, the
    /// task goes on to a container without an owner, which ends at once.
    async fn start_container(&self, files: Option<bytes::Bytes>) -> Result<Live> {
        let name = format!("{}-{}", self.name, self.starts.fetch_add(1, Ordering::Relaxed));
        let (docker, body) = (self.docker.clone(), self.body.clone());
        let (answer, answered) = oneshot::channel();
        tokio::spawn(async move {
            let started = make_container(&docker, body, name, files).await;
            // An answer nobody waits for is dropped, and the container with it.
            let _ = answer.send(started);
        });
        answered.await.map_err(|_| {
            SkillRuntimeError::new(ErrorKind::Cancelled, "the container was not started: the program is ending")
        })?
    }

    /// The container runs are started in.
    ///
    /// # Errors
    /// [`Backend`](ErrorKind::Backend) after the end.
    pub(super) async fn current(&self) -> Result<Arc<Live>> {
        self.live.lock().await.clone().ok_or_else(|| {
            SkillRuntimeError::new(ErrorKind::Backend, "the container of this handle is gone; prepare again")
                .operation("run")
        })
    }

    /// The supervisor that waits for its run.
    pub(super) fn spare(&self) -> std::sync::MutexGuard<'_, Option<Spare>> {
        self.spare.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// How many group ids were given.
    pub(super) fn groups_given(&self) -> u32 {
        self.groups.load(Ordering::Relaxed)
    }

    /// A group id that no living run has.
    pub(super) fn next_group(&self) -> u32 {
        INIT_GROUP + 1 + self.groups.fetch_add(1, Ordering::Relaxed) % GROUPS
    }

    /// Ends every process of a run whose own supervisor didn't. When they can't be ended one by one, the container is
    /// ended and replaced: other runs in it end too, which is better than a process that outlives its run.
    ///
    /// # Errors
    /// [`Unavailable`](ErrorKind::Unavailable) when the daemon is gone, [`Backend`](ErrorKind::Backend) when the container
    /// is.
    pub(super) async fn force(&self, live: &Arc<Live>, group: u32) -> Result<Forced> {
        let killed = tokio::time::timeout(KILL_TIME, self.kill_group(live, group)).await;
        let lost = match killed {
            Ok(Ok(true)) => return Ok(Forced::Killed),
            Ok(Err(error)) if error.kind() == ErrorKind::Unavailable => return Err(error),
            Ok(Err(error)) => error.kind() == ErrorKind::NotFound && !self.is_there(live).await,
            Ok(Ok(false)) | Err(_) => false,
        };
        let replaced = self.replace(live).await?;
        Ok(if replaced && !lost { Forced::Replaced } else { Forced::Lost })
    }

    /// Whether a container has not ended: one that is paused, by whomever, takes no command and holds its processes.
    async fn is_there(&self, live: &Live) -> bool {
        let inspected = self.docker.inspect_container(&live.id, None).await;
        inspected
            .ok()
            .and_then(|container| container.state)
            .is_some_and(|state| state.running == Some(true) || state.paused == Some(true))
    }

    /// Ends a container and puts another in its place, unless that has happened already; whether it did.
    ///
    /// # Errors
    /// As [`force`](Self::force).
    pub(super) async fn replace(&self, live: &Arc<Live>) -> Result<bool> {
        let mut current = self.live.lock().await;
        if !current.as_ref().is_some_and(|current| Arc::ptr_eq(current, live)) {
            // Replaced or removed meanwhile: gone with all that was in it.
            return Ok(false);
        }
        *current = None;
        remove(&self.docker, &live.id).await?;
        if self.closed.load(Ordering::Acquire) {
            return Ok(false);
        }
        if self.copied {
            return Err(SkillRuntimeError::new(
                ErrorKind::Backend,
                "the container ended, or a run in it could not be killed; the copy of the workspace is gone with it; prepare again",
            ));
        }
        *current = Some(Arc::new(self.start_container(None).await?));
        Ok(true)
    }

    /// Puts another container in the place of one whose memory is used up, unless other runs are under way in it: what
    /// lies in its `/tmp` and `/dev/shm` would end every later run too. A copy of the workspace can't be moved, so that
    /// container stays.
    ///
    /// # Errors
    /// As [`force`](Self::force).
    pub(super) async fn refresh(&self, used: &InUse) -> Result<()> {
        if used.alone() && !self.copied {
            self.replace(used).await?;
        }
        Ok(())
    }

    /// Runs `init kill` as the group.
    async fn kill_group(&self, live: &Live, group: u32) -> Result<bool> {
        let mut exec = start_exec(self, &live.id, "kill", group).await?;
        let mut said = Vec::new();
        while let Some(piece) = exec.output.next().await {
            let piece = piece.map_err(|error| call_error("end a run", error))?;
            said.extend_from_slice(piece.as_ref());
            if said.len() > ALL_GONE.len() {
                break;
            }
        }
        Ok(said == ALL_GONE)
    }

    /// Removes the container and waits until the daemon has forgotten it. Idempotent.
    ///
    /// # Errors
    /// [`Backend`](ErrorKind::Backend) or [`Unavailable`](ErrorKind::Unavailable) naming the container.
    pub(super) async fn close(&self) -> Result<()> {
        self.closed.store(true, Ordering::Release);
        drop(self.spare().take());
        let mut live = self.live.lock().await;
        let Some(held) = live.as_ref() else { return Ok(()) };
        let id = held.id.clone();
        remove(&self.docker, &id).await?;
        let gone = async {
            // A removal that was under way already (the container ended by itself) is answered before it is done.
            while let Ok(_still) = self.docker.inspect_container(&id, None).await {
                tokio::time::sleep(REMOVAL_LOOK).await;
            }
        };
        if tokio::time::timeout(REMOVAL_TIME, gone).await.is_err() {
            return Err(SkillRuntimeError::new(
                ErrorKind::Backend,
                "the docker daemon does not get done with removing a container; remove it with `docker rm --force`",
            )
            .with("container", id));
        }
        *live = None;
        Ok(())
    }
}

async fn make_container(
    docker: &Docker,
    body: ContainerCreateBody,
    name: String,
    files: Option<bytes::Bytes>,
) -> Result<Live> {
    let options = CreateContainerOptions { name: Some(name), ..Default::default() };
    let created = docker.create_container(Some(options), body).await.map_err(creation_error)?;
    let id = created.id;
    for warning in created.warnings {
        tracing::warn!(container = %id, warning, "the docker daemon warns");
    }
    let started = async {
        if let Some(files) = files {
            super::files::upload(docker, &id, "/workspace", files).await?;
        }
        let attach = AttachContainerOptions { stream: true, stdin: true, ..Default::default() };
        let connection = docker
            .attach_container(&id, Some(attach))
            .await
            .map_err(|error| call_error("attach to the container", error))?;
        docker.start_container(&id, None).await.map_err(|error| call_error("start the container", error))?;
        Ok(connection)
    };
    match started.await {
        Ok(connection) => Ok(Live { id, runs: AtomicUsize::new(0), _connection: std::sync::Mutex::new(connection) }),
        Err(error) => Err(match remove(docker, &id).await {
            Ok(()) => error,
            Err(cleanup) => error.with_cleanup(cleanup),
        }),
    }
}

/// The daemon's words (docker's, podman's) for a folder that exists here and not where it runs. The folder's name holds
/// 128 random bits, so a daemon that has it has this one.
fn creation_error(error: bollard::errors::Error) -> SkillRuntimeError {
    if let bollard::errors::Error::DockerResponseServerError { message, .. } = &error
        && failure(&error) == Failure::Refused
        && (message.contains("bind source path does not exist") || message.contains("no such file or directory"))
    {
        // Without the cause, which has the folder's path in it.
        return SkillRuntimeError::new(
            ErrorKind::NotFound,
            "the docker daemon does not see this machine's folders; set runtime_config['files'] to 'copy' or 'auto'",
        );
    }
    call_error("make a container", error)
}
