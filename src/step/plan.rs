//! Every string of a step's configuration, parsed once; what comes out needs no second look.

use std::sync::Arc;

use super::config::{AgentSkillStepConfig, OutputDelivery, PackageConfig, ScriptRequirements};
use crate::error::{Result, SkillRuntimeError};
use crate::packages::{PipRequirement, requirements};
use crate::policy::{
    BlastRadius, CodeTrust, Credentials, MountRequest, NetworkPolicy, Operator, RequiredTier, SandboxPolicy,
    WriteScope, grants_of, resolve_network_policy,
};
use crate::runtime::{RunCommand, RuntimeConfig, RuntimeRegistry, SkillRuntime, Stdin, command_for_script};
use crate::skill::{SkillSource, TrustPolicy, VerifiedSkill};
use crate::workspace::{ApplyChanges, Area, CollectRules, Input};

/// Keys of `runtime_config` that belong to the policy, not to a runtime.
const POLICY_KEYS: [&str; 2] = ["network", "network_allowlist"];
/// The key of `runtime_config` that asks for packages.
const EXTRA_PIP: &str = "extra_pip";
/// Where Python looks for them.
const PYTHON_PATH: &str = "PYTHONPATH";

/// Packages that were asked for, parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PackagePlan {
    pub(super) pip: Vec<PipRequirement>,
    pub(super) script_requirements: ScriptRequirements,
    pub(super) lock: Option<std::path::PathBuf>,
}

/// A step whose configuration was checked: the runtime exists and accepts its options, the policy is complete, the
/// patterns compile. Nothing was read or created yet.
pub struct StepPlan {
    pub(super) runtime: Arc<dyn SkillRuntime>,
    pub(super) runtime_config: RuntimeConfig,
    pub(super) policy: SandboxPolicy,
    pub(super) skill: SkillSource,
    pub(super) trust: TrustPolicy,
    pub(super) inputs: Vec<Input>,
    pub(super) mounts: Vec<MountRequest>,
    pub(super) apply_changes: ApplyChanges,
    pub(super) collect: CollectRules,
    pub(super) output: OutputDelivery,
    pub(super) require: RequiredTier,
    pub(super) packages: PackagePlan,
    credentials: Credentials,
    operator: Operator,
    script_name: Option<String>,
    args: Vec<String>,
    env: crate::policy::EnvVars,
    stdin: Stdin,
}

impl StepPlan {
    /// Checks a configuration against the runtimes there are.
    ///
    /// # Errors
    /// [`UnknownRuntime`](crate::ErrorKind::UnknownRuntime), or [`InvalidConfig`](crate::ErrorKind::InvalidConfig)
    /// naming the field, the value and what is accepted.
    pub fn new(config: AgentSkillStepConfig, registry: &RuntimeRegistry) -> Result<Self> {
        Self::checked(config, registry).map_err(|error| error.operation("plan"))
    }

    fn checked(config: AgentSkillStepConfig, registry: &RuntimeRegistry) -> Result<Self> {
        let runtime = registry.get(&config.runtime)?;
        let network = resolve_network_policy(&config.runtime_config, None, NetworkPolicy::None)?;
        let mut options = config.runtime_config;
        options.retain(|key, _| !POLICY_KEYS.contains(&key.as_str()));
        let packages = PackagePlan::new(config.packages, options.remove(EXTRA_PIP))?;
        // Any variable the caller gives may be a secret; ours below is none.
        let credentials = if config.env.iter().next().is_some() { Credentials::Given } else { Credentials::Withheld };
        let mut env = config.env;
        if packages.any() {
            if env.get(PYTHON_PATH).is_some() {
                return Err(SkillRuntimeError::invalid(
                    "PYTHONPATH can't be given together with packages, which are found by it; leave one out",
                ));
            }
            env.set(PYTHON_PATH, Area::Site.guest_path().to_string())?;
        }
        let runtime_config = RuntimeConfig::new(options);
        runtime.check_config(&runtime_config)?;
        config.limits.validate()?;
        let collect = CollectRules::new(&config.output_files_glob)?;
        // Checked here although the program isn't known yet: a NUL in an argument needs no file to be read.
        RunCommand::new(std::iter::once("program".to_owned()).chain(config.args.iter().cloned()))?;
        if config.script_name.as_deref().is_some_and(str::is_empty) {
            return Err(SkillRuntimeError::invalid(
                "script_name is empty; name a script inside the skill, or leave it out",
            ));
        }
        Ok(Self {
            runtime,
            runtime_config,
            policy: SandboxPolicy {
                network,
                limits: config.limits,
                out: config.out_mode,
                mounts: grants_of(&config.mounts)?,
                mode: config.enforcement,
            },
            mounts: config.mounts,
            apply_changes: config.apply_changes,
            skill: config.skill,
            trust: config.trust_policy,
            inputs: config.inputs,
            collect,
            output: config.output,
            require: config.require,
            packages,
            credentials,
            operator: config.operator,
            script_name: config.script_name,
            args: config.args,
            env,
            stdin: config.stdin,
        })
    }

    /// What the run may touch.
    #[must_use]
    pub fn blast_radius(&self) -> BlastRadius {
        BlastRadius {
            network: self.policy.network.policy,
            credentials: self.credentials,
            code: match self.trust {
                // A pin of the manifest says nothing about the scripts.
                TrustPolicy::Any | TrustPolicy::PinnedManifest(_) => CodeTrust::Any,
                TrustPolicy::Pinned(_) => CodeTrust::Pinned,
            },
            operator: self.operator,
            writes: if self.policy.mounts.iter().any(|mount| mount.mode.writes_to_host()) {
                WriteScope::HostFolders
            } else {
                WriteScope::Workspace
            },
        }
    }

    /// Whether the caller says where Python looks for modules.
    pub(super) fn has_own_python_path(&self) -> bool {
        !self.packages.any() && self.env.get(PYTHON_PATH).is_some()
    }

    /// The environment of scripts.
    pub(super) fn environment(&self) -> &crate::policy::EnvVars {
        &self.env
    }

    /// The policy.
    #[must_use]
    pub fn policy(&self) -> &SandboxPolicy {
        &self.policy
    }

    /// The command that runs the plan's script of a verified skill.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound) when the script isn't in the skill;
    /// [`InvalidConfig`](crate::ErrorKind::InvalidConfig) when it must be named, or when nothing says what runs it.
    pub fn command(&self, skill: &VerifiedSkill) -> Result<RunCommand> {
        let mut command = command_for_script(skill, self.script_name.as_deref(), &self.args)?;
        command.env = self.env.clone();
        command.stdin = self.stdin.clone();
        Ok(command)
    }
}

impl PackagePlan {
    /// `listed` is what stands in `runtime_config`.
    fn new(config: PackageConfig, listed: Option<serde_json::Value>) -> Result<Self> {
        let listed: Vec<String> = match listed {
            None | Some(serde_json::Value::Null) => Vec::new(),
            Some(list) => serde_json::from_value(list).map_err(|error| {
                SkillRuntimeError::invalid(
                    "runtime_config['extra_pip'] must be a list of requirements such as ['jinja2']",
                )
                .caused_by(error)
            })?,
        };
        Ok(Self {
            pip: requirements(config.extra_pip.iter().chain(&listed).map(String::as_str))?,
            script_requirements: config.script_requirements,
            lock: config.lock,
        })
    }

    /// Whether anything may have to be installed.
    fn any(&self) -> bool {
        !self.pip.is_empty() || self.script_requirements == ScriptRequirements::Install
    }
}

impl std::fmt::Debug for StepPlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StepPlan")
            .field("runtime", &self.runtime.name())
            .field("policy", &self.policy)
            .field("skill", &self.skill)
            .finish_non_exhaustive()
    }
}
