//! Runtime `docker`: a hardened container of a docker daemon (or one that speaks its protocol), through its socket.
//!
//! One container per handle, started at `prepare` with a tiny init of ours, and one exec per run: a further command
//! costs an exec, not a container, several can run at once, and each can be killed whole (`init/main.rs` says how).
//! The container lives by a connection of this process, so nothing outlives a killed host.
//!
//! The daemon is trusted; the guest, its output and its files are not. Nothing here takes a mount, a capability, a
//! device or a daemon's address from a configuration, and the daemon's socket is never shown to a guest.

mod capture;
mod config;
mod connect;
mod container;
mod environment;
mod exec;
mod feed;
mod files;
mod image;
mod init;
mod memory;
mod prepare;
mod session;
mod spare;
mod sweep;

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

use self::config::{DockerConfig, NAME};
use self::session::Session;
use crate::audit::Layer;
use crate::error::{Result, SkillRuntimeError};
use crate::policy::{Isolation, MountCapabilities, RuntimeCapabilities, Support};
use crate::runtime::{
    Availability, PrepareContext, RunCommand, RuntimeConfig, RuntimeRunResult, SkillRuntime, SkillRuntimeHandle,
};
use crate::skill::VerifiedSkill;
use crate::workspace::{GuestEntry, GuestPath, MountSupport, Workspace};

/// The runtime `docker`.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct DockerRuntime;

#[async_trait]
impl SkillRuntime for DockerRuntime {
    fn name(&self) -> &str {
        NAME
    }

    fn capabilities(&self) -> RuntimeCapabilities {
        RuntimeCapabilities {
            files: Support::Enforced,
            network_none: Support::Enforced,
            wall_time: Support::Enforced,
            memory: Support::Enforced,
            processes: Support::Enforced,
            output: Support::Enforced,
            // Each process is limited, not all of them together: a guest may share its work out.
            cpu_time: Support::Advisory,
            // One file is limited, not all of them together.
            disk: Support::Advisory,
            // By binds of the kernel, which know no way of writing without removing.
            mounts: MountCapabilities {
                read_only: Support::Enforced,
                read_write: Support::Enforced,
                without_delete: Support::Unsupported,
            },
            ..RuntimeCapabilities::none(Isolation::Container)
        }
    }

    fn mount_support(&self) -> MountSupport {
        MountSupport::Folders
    }

    async fn availability(&self) -> Availability {
        let asked = async {
            let docker = connect::connect(&connect::address_of_process()).await?;
            connect::facts(&docker).await
        };
        match asked.await {
            Ok(facts) => {
                Availability::Available { detail: format!("docker daemon {} ({})", facts.version, facts.architecture) }
            }
            Err(error) => Availability::Missing {
                reason: error.to_string(),
                remedy: "install docker, start its daemon and let this user use its socket, or set DOCKER_HOST".into(),
            },
        }
    }

    fn check_config(&self, config: &RuntimeConfig) -> Result<()> {
        DockerConfig::parse(config).map(drop)
    }

    async fn prepare(
        &self,
        _skill: &VerifiedSkill,
        workspace: Arc<Workspace>,
        context: &PrepareContext<'_>,
    ) -> Result<SkillRuntimeHandle> {
        let report = self.admit(context)?;
        prepare::prepare(&connect::address_of_process(), report, workspace, context)
            .await
            .map_err(|error| error.operation("prepare"))
    }

    async fn run(&self, handle: &SkillRuntimeHandle, command: &RunCommand) -> Result<RuntimeRunResult> {
        let session: &Arc<Session> = handle.state()?;
        let program = command.program();
        handle.audit().allow(Layer::Process, "run", program, "")?;
        let ended =
            exec::run(session, &handle.policy().limits, command).await.map_err(|error| error.operation("run"))?;
        if let Some(limit) = ended.limit {
            handle.audit().deny(Layer::Limit, limit, program, &ended.result.termination.to_string());
        }
        if ended.replaced {
            handle.audit().deny(
                Layer::Process,
                "replace",
                program,
                "processes of the run could not be killed; the container was replaced",
            );
        }
        Ok(ended.result)
    }

    async fn read_file(&self, handle: &SkillRuntimeHandle, path: &GuestPath, limit: u64) -> Result<Bytes> {
        let session: &Arc<Session> = handle.state()?;
        if session.copied { files::read(session, path, limit).await } else { handle.workspace().read_file(path, limit) }
    }

    async fn write_file(&self, handle: &SkillRuntimeHandle, path: &GuestPath, data: &[u8]) -> Result<()> {
        let session: &Arc<Session> = handle.state()?;
        if session.copied {
            return files::write(session, path, data, &handle.policy().limits).await;
        }
        handle.workspace().write_file(path, data, &handle.policy().limits)?;
        match session.gives_files_to {
            Some(user) => handle.workspace().give_path_to(path, user),
            None => Ok(()),
        }
    }

    async fn list_files(&self, handle: &SkillRuntimeHandle, path: &GuestPath) -> Result<Vec<GuestEntry>> {
        let session: &Arc<Session> = handle.state()?;
        if session.copied { files::list(session, path).await } else { handle.workspace().list(path) }
    }

    async fn sync_outputs(&self, handle: &SkillRuntimeHandle) -> Result<()> {
        let session: &Arc<Session> = handle.state()?;
        if session.copied {
            files::fetch_outputs(session, handle.workspace(), &handle.policy().limits).await
        } else {
            Ok(())
        }
    }

    async fn cleanup(&self, handle: &SkillRuntimeHandle) -> Result<()> {
        let session: &Arc<Session> = handle.state()?;
        session.close().await.map_err(|error: SkillRuntimeError| error.operation("cleanup"))
    }
}
