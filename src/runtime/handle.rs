//! [`SkillRuntimeHandle`]: a prepared sandbox.

use std::any::Any;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::audit::AuditScope;
use crate::error::{ErrorKind, Result, SkillRuntimeError};
use crate::policy::{EnforcementReport, SandboxPolicy};
use crate::workspace::{Area, GuestPath, Workspace};

/// A prepared sandbox: threaded through every call, so that a runtime can keep state in it (a container, an
/// instance). Made by [`SkillRuntime::prepare`](super::SkillRuntime::prepare).
pub struct SkillRuntimeHandle {
    runtime: String,
    workspace: Arc<Workspace>,
    policy: SandboxPolicy,
    report: EnforcementReport,
    audit: AuditScope,
    /// CARL's free-form map, for people and reports. Never read back by a runtime.
    backend: Map<String, Value>,
    state: Box<dyn Any + Send + Sync>,
}

impl SkillRuntimeHandle {
    /// Builds a handle from the report of what is really enforced and the runtime's own state.
    pub fn new<S: Send + Sync + 'static>(
        report: EnforcementReport,
        policy: &SandboxPolicy,
        workspace: Arc<Workspace>,
        audit: AuditScope,
        state: S,
    ) -> Self {
        let mut backend = Map::new();
        backend.insert("isolation".into(), serde_json::to_value(report.isolation).unwrap_or_default());
        backend.insert("network_policy".into(), policy.network.policy.as_str().into());
        backend.insert("network_allowlist".into(), policy.network.allowlist.clone().into());
        backend.insert("network_enforced".into(), report.network_enforced().into());
        backend.insert("workspace_root_in_runtime".into(), GuestPath::root().to_string().into());
        backend.insert("workspace_in_in_runtime".into(), Area::In.guest_path().to_string().into());
        backend.insert("workspace_out_in_runtime".into(), Area::Out.guest_path().to_string().into());
        Self {
            runtime: report.runtime.clone(),
            workspace,
            policy: policy.clone(),
            report,
            audit,
            backend,
            state: Box::new(state),
        }
    }

    /// Adds an entry to the backend map (an image, a container's name). Not for secrets or host paths.
    #[must_use]
    pub fn with_backend(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.backend.insert(key.to_owned(), value.into());
        self
    }

    /// The runtime's name.
    #[must_use]
    pub fn runtime(&self) -> &str {
        &self.runtime
    }

    /// The workspace on the host.
    #[must_use]
    pub fn workspace(&self) -> &Workspace {
        &self.workspace
    }

    /// The policy it was prepared for.
    #[must_use]
    pub fn policy(&self) -> &SandboxPolicy {
        &self.policy
    }

    /// What is really enforced.
    #[must_use]
    pub fn report(&self) -> &EnforcementReport {
        &self.report
    }

    /// Where boundary events go.
    #[must_use]
    pub fn audit(&self) -> &AuditScope {
        &self.audit
    }

    /// CARL's `backend` map: `isolation`, `network_policy`, `network_enforced` and what the runtime added.
    #[must_use]
    pub fn backend(&self) -> &Map<String, Value> {
        &self.backend
    }

    /// `/workspace`.
    #[must_use]
    pub fn workspace_root(&self) -> GuestPath {
        GuestPath::root()
    }

    /// `/workspace/in`.
    #[must_use]
    pub fn workspace_in(&self) -> GuestPath {
        Area::In.guest_path()
    }

    /// `/workspace/out`.
    #[must_use]
    pub fn workspace_out(&self) -> GuestPath {
        Area::Out.guest_path()
    }

    /// The state `prepare` put in.
    ///
    /// # Errors
    /// [`Internal`](ErrorKind::Internal) when the handle belongs to another runtime.
    pub fn state<S: 'static>(&self) -> Result<&S> {
        self.state.downcast_ref().ok_or_else(|| {
            SkillRuntimeError::new(
                ErrorKind::Internal,
                format!("a handle of runtime '{}' was given to another runtime", self.runtime),
            )
        })
    }
}

impl std::fmt::Debug for SkillRuntimeHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SkillRuntimeHandle")
            .field("runtime", &self.runtime)
            .field("backend", &self.backend)
            .finish_non_exhaustive()
    }
}
