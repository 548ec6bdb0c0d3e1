//! The trait that every runtime implements, and what it is given at `prepare`.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

use super::{RunCommand, RuntimeConfig, RuntimeRunResult, SkillRuntimeHandle};
use crate::audit::AuditScope;
use crate::error::Result;
use crate::policy::{EnforcementReport, RuntimeCapabilities, SandboxPolicy, assess_runtime_enforcement};
use crate::skill::VerifiedSkill;
use crate::workspace::{GuestEntry, GuestPath, MountSupport, Workspace};

/// A sandbox behind one contract. Implementations live in `backends/`, or with the embedder.
///
/// Order of calls: [`check_config`](Self::check_config) and [`enforcement`](Self::enforcement) before anything exists;
/// [`prepare`](Self::prepare) once; then any number of `run`, `read_file`, `write_file`, `list_files`, also at the same
/// time; [`cleanup`](Self::cleanup) at least once. Every `async` method may be dropped at any await point: dropping
/// the future of `run` ends the guest and everything it started.
///
/// File calls act on the guest's world as the guest sees it. Default implementations act on the local workspace; a
/// runtime whose files are elsewhere (a remote machine) overrides them.
#[async_trait]
pub trait SkillRuntime: Send + Sync {
    /// The name it is registered under.
    fn name(&self) -> &str;

    /// What it can enforce, declared once. Claim only what the conformance suite has proved.
    fn capabilities(&self) -> RuntimeCapabilities;

    /// What it does about this policy. Pure; asked before anything is created. Implementations don't override it.
    fn enforcement(&self, policy: &SandboxPolicy) -> EnforcementReport {
        assess_runtime_enforcement(self.name(), &self.capabilities(), policy)
    }

    /// Asks again what the flow asked before it came here, for callers that didn't: `prepare` begins with it.
    ///
    /// # Errors
    /// As [`check_config`](Self::check_config) and [`EnforcementReport::gate`].
    fn admit(&self, context: &PrepareContext<'_>) -> Result<EnforcementReport> {
        self.check_config(context.config)?;
        let report = self.enforcement(context.policy);
        report.gate()?;
        Ok(report)
    }

    /// Whether it can show host folders read-only inside `/workspace/in`. Where it can't, they are copied: the guest
    /// sees the same, at another cost.
    fn mount_support(&self) -> MountSupport {
        MountSupport::None
    }

    /// The modules at the top that a script of the interpreter `program` can import, where that is known for sure without
    /// starting anything; packages aside. `None`, the default, when it isn't: an interpreter of the machine or of an
    /// image has what was installed with it.
    fn known_modules(&self, program: &str) -> Option<Vec<&'static str>> {
        let _ = program;
        None
    }

    /// Whether it can be used on this machine now, and if not what would help. Starts nothing, takes milliseconds.
    async fn availability(&self) -> Availability;

    /// Checks a `runtime_config`, so that a bad one fails before anything exists.
    ///
    /// # Errors
    /// [`InvalidConfig`](crate::ErrorKind::InvalidConfig) naming the key, the value and what is accepted. An unknown
    /// key is an error.
    fn check_config(&self, config: &RuntimeConfig) -> Result<()>;

    /// Makes the sandbox ready for commands. The workspace is staged already.
    ///
    /// # Errors
    /// [`Unavailable`](crate::ErrorKind::Unavailable), [`Backend`](crate::ErrorKind::Backend), or
    /// [`PolicyUnenforceable`](crate::ErrorKind::PolicyUnenforceable) when the machine turns out to enforce less than
    /// was declared. Nothing is left behind on error.
    async fn prepare(
        &self,
        skill: &VerifiedSkill,
        workspace: Arc<Workspace>,
        context: &PrepareContext<'_>,
    ) -> Result<SkillRuntimeHandle>;

    /// Runs one command to its end. Several may run at once on one handle.
    ///
    /// # Errors
    /// Only when the sandbox failed; a command that failed, was killed or hit a limit is a result.
    async fn run(&self, handle: &SkillRuntimeHandle, command: &RunCommand) -> Result<RuntimeRunResult>;

    /// Reads a whole file of the guest's world, at most `limit` bytes. Links are not followed.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound), [`PathDenied`](crate::ErrorKind::PathDenied) (a link, a folder, a special
    /// file), [`LimitExceeded`](crate::ErrorKind::LimitExceeded).
    async fn read_file(&self, handle: &SkillRuntimeHandle, path: &GuestPath, limit: u64) -> Result<Bytes> {
        handle.workspace().read_file(path, limit)
    }

    /// Writes a file into a writable part of the guest's world, making parent folders. Whole or not at all.
    ///
    /// # Errors
    /// [`PathDenied`](crate::ErrorKind::PathDenied) in a read-only part or through a link;
    /// [`LimitExceeded`](crate::ErrorKind::LimitExceeded) over the policy's disk limit.
    async fn write_file(&self, handle: &SkillRuntimeHandle, path: &GuestPath, data: &[u8]) -> Result<()> {
        handle.workspace().write_file(path, data, &handle.policy().limits)
    }

    /// Lists a folder of the guest's world, sorted by name. Not recursive; links are shown as links.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound), [`PathDenied`](crate::ErrorKind::PathDenied),
    /// [`LimitExceeded`](crate::ErrorKind::LimitExceeded) for a folder with too many entries.
    async fn list_files(&self, handle: &SkillRuntimeHandle, path: &GuestPath) -> Result<Vec<GuestEntry>> {
        handle.workspace().list(path)
    }

    /// Brings the files of a remote guest's `/workspace/out` into the local workspace, for collection. Runtimes that
    /// share the local workspace have nothing to do.
    ///
    /// # Errors
    /// [`Backend`](crate::ErrorKind::Backend) when the transfer fails, [`LimitExceeded`](crate::ErrorKind::LimitExceeded).
    async fn sync_outputs(&self, handle: &SkillRuntimeHandle) -> Result<()> {
        let _ = handle;
        Ok(())
    }

    /// Ends the sandbox and frees what `prepare` made. Idempotent; also after a failed or dropped `run`. The workspace
    /// itself belongs to the caller.
    ///
    /// # Errors
    /// [`Backend`](crate::ErrorKind::Backend) naming what is left, so that a person can remove it.
    async fn cleanup(&self, handle: &SkillRuntimeHandle) -> Result<()>;
}

/// Whether a runtime can be used on this machine.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Availability {
    /// It can; `detail` names versions or the like.
    Available {
        /// For people: versions, paths of programs.
        detail: String,
    },
    /// It can't.
    Missing {
        /// What is missing.
        reason: String,
        /// The next step.
        remedy: String,
    },
}

/// What `prepare` is given beside the skill and the workspace.
#[derive(Clone, Copy)]
pub struct PrepareContext<'a> {
    /// The policy, complete. The gate has passed.
    pub policy: &'a SandboxPolicy,
    /// Options of this runtime, checked by `check_config`.
    pub config: &'a RuntimeConfig,
    /// Where boundary events go.
    pub audit: &'a AuditScope,
    /// Told about work that takes long (a first compile, a pull).
    pub progress: &'a Arc<dyn Progress>,
}

/// Hears about work that takes long, so that a terminal can show it. Called from any thread.
pub trait Progress: Send + Sync {
    /// Something slow began, or went on. A short phrase in the present tense, such as `compiling report.wasm`.
    fn working(&self, what: &str);
    /// Nothing slow is going on any more.
    fn done(&self);
}

/// Says nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct SilentProgress;

impl Progress for SilentProgress {
    fn working(&self, _what: &str) {}
    fn done(&self) {}
}
