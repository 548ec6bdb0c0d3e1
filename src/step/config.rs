//! What a caller asks for, as given. Nothing here is checked yet; [`StepPlan`](super::StepPlan) does that once.

use std::path::PathBuf;

use serde_json::{Map, Value};

use crate::policy::{EnforcementMode, EnvVars, Limits, MountRequest, Operator, OutMode, RequiredTier};
use crate::runtime::Stdin;
use crate::skill::{SkillSource, TrustPolicy};
use crate::workspace::{ApplyChanges, Input, Overwrite};

/// One run of one script of a skill. Field names are CARL's where CARL has the field.
///
/// ```
/// use skillcell::skill::SkillSource;
/// use skillcell::step::AgentSkillStepConfig;
/// let mut config = AgentSkillStepConfig::new(SkillSource::Script("report.wasm".into()));
/// config.runtime = "wasm".to_owned();
/// config.args = vec!["--title".to_owned(), "Q3".to_owned()];
/// ```
#[derive(Debug, Clone)]
pub struct AgentSkillStepConfig {
    /// What to run.
    pub skill: SkillSource,
    /// Which script of the skill, as a path inside it. Not needed when the source is one script, or when the skill has
    /// just one.
    pub script_name: Option<String>,
    /// Arguments for the script, passed word by word; no shell sees them.
    pub args: Vec<String>,
    /// The runtime's registered name.
    pub runtime: String,
    /// Options of the runtime, plus CARL's `network` and `network_allowlist`.
    pub runtime_config: Map<String, Value>,
    /// Files and folders for `/workspace/in`.
    pub inputs: Vec<Input>,
    /// Folders of this machine that the guest sees beside its workspace.
    pub mounts: Vec<MountRequest>,
    /// Whether changes in copy-on-write mounts go to the host's folders.
    pub apply_changes: ApplyChanges,
    /// Environment variables beside the fixed ones.
    pub env: EnvVars,
    /// Standard input.
    pub stdin: Stdin,
    /// Limits.
    pub limits: Limits,
    /// What is demanded of the skill's bytes.
    pub trust_policy: TrustPolicy,
    /// Whether a control that the runtime can't enforce refuses the run.
    pub enforcement: EnforcementMode,
    /// The least isolation the run must have; see [`least_tier`](crate::policy::least_tier).
    pub require: RequiredTier,
    /// Who looks after the run; counts with [`RequiredTier::Auto`].
    pub operator: Operator,
    /// What the guest may do in `/workspace/out`.
    pub out_mode: OutMode,
    /// Which results are kept: shell patterns on the path inside `/workspace/out`; `*` crosses `/`.
    pub output_files_glob: Vec<String>,
    /// Where results go.
    pub output: OutputDelivery,
    /// Packages for the script, beside those in `runtime_config`.
    pub packages: PackageConfig,
}

/// Packages that are installed for a script, at `/workspace/site`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PackageConfig {
    /// Requirements on Python packages (CARL's name); `runtime_config['extra_pip']` adds to them.
    pub extra_pip: Vec<String>,
    /// Whether what a script says it needs (PEP 723) is installed too.
    pub script_requirements: ScriptRequirements,
    /// The lock: files whose digests are in it are the only ones installed, and what is installed is added to it. Without
    /// one, the lock beside the skill ([`PackageLock::beside`](crate::packages::PackageLock::beside)) is used if it exists.
    pub lock: Option<PathBuf>,
}

/// Whether the requirements in a script's own comment block count. The block is foreign text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScriptRequirements {
    /// They don't.
    #[default]
    Ignore,
    /// They are installed like the caller's own.
    Install,
}

/// Where results go.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum OutputDelivery {
    /// They stay with the result, in memory where they are small; see [`StepResult`](super::StepResult).
    #[default]
    InResult,
    /// They are copied to a folder, made if missing.
    Folder {
        /// The folder on this machine.
        path: PathBuf,
        /// Whether files that are there may be replaced.
        overwrite: Overwrite,
    },
}

impl AgentSkillStepConfig {
    /// A step with every default: runtime `wasm`, no network, no inputs, strict enforcement, all results kept.
    #[must_use]
    pub fn new(skill: SkillSource) -> Self {
        Self {
            skill,
            script_name: None,
            args: Vec::new(),
            runtime: "wasm".to_owned(),
            runtime_config: Map::new(),
            inputs: Vec::new(),
            mounts: Vec::new(),
            apply_changes: ApplyChanges::default(),
            env: EnvVars::default(),
            stdin: Stdin::Closed,
            limits: Limits::default(),
            trust_policy: TrustPolicy::default(),
            enforcement: EnforcementMode::default(),
            require: RequiredTier::default(),
            operator: Operator::default(),
            out_mode: OutMode::default(),
            output_files_glob: vec!["*".to_owned()],
            output: OutputDelivery::default(),
            packages: PackageConfig::default(),
        }
    }
}
