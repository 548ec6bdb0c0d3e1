//! A step as a file: TOML with CARL's field names, read into a checked configuration.
//!
//! Invariant: a word that isn't known is an error, so that nothing a person demanded is silently left out. Keys of models
//! are never in the file: it names the environment variable that holds one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::agent_step::{ManifestNetwork, OutputCapture};
use super::config::{AgentSkillStepConfig, OutputDelivery, PackageConfig, ScriptRequirements};
use crate::agent::{
    AgentSkillExecutionMode, BasicScreen, Budget, ModeConfig, NoScreen, OutputSchema, Prices, SchemaMode,
};
use crate::error::{Result, SkillRuntimeError};
use crate::policy::{EnforcementMode, MountRequest, parse_duration, parse_size};
use crate::skill::{AgentSkillSource, ManifestMode, SkillSource, TrustPolicy};
use crate::workspace::{ApplyChanges, Input, Overwrite};

/// Bytes of a step's file.
pub const MAX_STEP_FILE_BYTES: u64 = 1 << 20;

/// A step's file, parsed and not yet checked. See `docs/carl-parity.md` for what each field means in CARL.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepFile {
    /// The skill: a path, a name, `github://…` or the address of an archive.
    pub skill: String,
    /// The task.
    #[serde(default)]
    pub task: String,
    /// `llm`, `script`, `hybrid`, `subagent` or `llm_agent`.
    #[serde(default)]
    pub execution_mode: AgentSkillExecutionMode,
    /// Values for the task and the script.
    #[serde(default)]
    pub input_mapping: BTreeMap<String, Value>,
    /// Files and folders for `/workspace/in`.
    #[serde(default, rename = "in")]
    pub inputs: Vec<PathBuf>,
    /// Folders to show beside the workspace: `HOST:GUEST[:ro|rw|rw-no-delete|cow]`.
    #[serde(default)]
    pub mounts: Vec<String>,
    /// Whether changes in copy-on-write mounts go to the host's folders when the step succeeds.
    #[serde(default)]
    pub apply_changes: bool,
    /// A folder for the results.
    pub out: Option<PathBuf>,
    /// Whether results replace what is there.
    #[serde(default)]
    pub overwrite: bool,
    /// The script.
    pub script_name: Option<String>,
    /// Arguments of the script.
    #[serde(default)]
    pub script_args: BTreeMap<String, Value>,
    /// Variables for scripts.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// The runtime.
    pub runtime: Option<String>,
    /// Python packages for scripts, such as `jinja2` or `httpx<1`.
    #[serde(default)]
    pub extra_pip: Vec<String>,
    /// `ignore` or `install`: what becomes of what a script says it needs (PEP 723).
    #[serde(default)]
    pub script_requirements: ScriptRequirements,
    /// The lock of the packages.
    pub package_lock: Option<PathBuf>,
    /// Its options, and CARL's `network`, `network_allowlist` and `extra_pip`.
    #[serde(default)]
    pub runtime_config: Map<String, Value>,
    /// `any` or `sha_pinned`.
    #[serde(default = "any")]
    pub trust_policy: String,
    /// The digest of the whole tree.
    pub tree_sha256: Option<String>,
    /// CARL's digest of `SKILL.md`; weaker.
    pub skill_sha256: Option<String>,
    /// `ignore` or `merge`.
    #[serde(default)]
    pub manifest_network: ManifestNetwork,
    /// Whether departures of the manifest from the format are errors.
    #[serde(default)]
    pub strict_manifest: bool,
    /// Wall-clock limit of one script: a number of seconds, or `2m`.
    pub timeout: Option<Value>,
    /// Memory limit.
    pub memory: Option<String>,
    /// Disk limit.
    pub disk: Option<String>,
    /// Whether a runtime that can't enforce everything is accepted.
    #[serde(default)]
    pub allow_advisory: bool,
    /// The least isolation.
    pub require: Option<String>,
    /// Who looks after the run.
    pub operator: Option<String>,
    /// Rounds of the loop.
    pub llm_max_iterations: Option<u32>,
    /// The other budgets.
    #[serde(default)]
    pub budget: BudgetFile,
    /// Put before the skill's prompt.
    pub system_prompt_prefix: Option<String>,
    /// See [`PromptOptions`](crate::skill::PromptOptions).
    pub include_skill_description: Option<bool>,
    /// As above; 0 for all.
    pub max_instructions_chars: Option<usize>,
    /// As above.
    pub strip_code_blocks: Option<bool>,
    /// As above.
    pub filter_security_terms: Option<bool>,
    /// `basic` or `off`.
    #[serde(default)]
    pub screen: ScreenFile,
    /// `stdout`, `files` or `both`.
    #[serde(default)]
    pub output_capture: OutputCapture,
    /// Patterns of results that are kept.
    pub output_files_glob: Option<Vec<String>>,
    /// The form of the answer.
    pub output_schema: Option<Value>,
    /// Whether an answer of another form is none.
    pub output_schema_strict: Option<bool>,
    /// The model.
    pub model: Option<ModelFile>,
}

fn any() -> String {
    "any".to_owned()
}

/// Budgets beside the rounds.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BudgetFile {
    /// Time of the whole run.
    pub wall_time: Option<String>,
    /// Tokens in and out.
    pub tokens: Option<u64>,
    /// Cost.
    pub cost: Option<f64>,
    /// Prices of a million tokens.
    pub prices: Option<Prices>,
    /// Calls in all.
    pub tool_calls: Option<u32>,
    /// Calls of one turn.
    pub calls_per_turn: Option<usize>,
}

/// How the model is reached.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelFile {
    /// `anthropic` or `openai`.
    pub protocol: String,
    /// Its name at the provider.
    pub name: String,
    /// The server.
    pub base_url: Option<String>,
    /// The environment variable that holds the key.
    pub key_env: Option<String>,
    /// Tokens that fit.
    pub max_context: Option<u64>,
    /// Tokens of one answer.
    pub max_output: Option<u32>,
    /// Whether answers are streamed.
    pub stream: Option<bool>,
    /// Further fields of every request, as the server has them (`temperature`, …).
    #[serde(default)]
    pub extra: Map<String, Value>,
}

/// Who looks at results before the model reads them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScreenFile {
    /// [`BasicScreen`]: what speaks to the model is marked.
    #[default]
    Basic,
    /// Nobody.
    Off,
}

/// A file's step, checked.
pub struct StepFromFile {
    /// The sandbox's part.
    pub config: AgentSkillStepConfig,
    /// The mode's part.
    pub mode: ModeConfig,
    /// Whether a manifest's hosts count.
    pub manifest_network: ManifestNetwork,
    /// How much of a manifest is forgiven.
    pub manifest_mode: ManifestMode,
    /// What the text holds.
    pub output_capture: OutputCapture,
}

impl StepFile {
    /// Parses the text of a file.
    ///
    /// # Errors
    /// [`InvalidConfig`](crate::ErrorKind::InvalidConfig) with line and column.
    pub fn parse(text: &str) -> Result<Self> {
        toml::from_str(text).map_err(|error| {
            let why = error.to_string();
            SkillRuntimeError::invalid(format!("the step's file is not valid: {}", why.trim_end()))
        })
    }

    /// The skill's reference; a relative path counts from `base`, the folder of the file.
    ///
    /// # Errors
    /// As [`AgentSkillSource`]'s.
    pub fn source(&self, base: &Path) -> Result<AgentSkillSource> {
        Ok(match self.skill.parse()? {
            AgentSkillSource::Path(path) => AgentSkillSource::Path(base.join(path)),
            other
            @ (AgentSkillSource::Name(_) | AgentSkillSource::Github { .. } | AgentSkillSource::Archive { .. }) => other,
        })
    }

    /// Checks everything and fills in the defaults. `skill` is what [`source`](Self::source) was resolved to.
    ///
    /// # Errors
    /// [`InvalidConfig`](crate::ErrorKind::InvalidConfig) naming the field, the value and what is accepted.
    pub fn checked(self, skill: SkillSource, base: &Path) -> Result<StepFromFile> {
        let mut config = AgentSkillStepConfig::new(skill);
        if let Some(runtime) = self.runtime {
            config.runtime = runtime;
        }
        config.runtime_config = self.runtime_config;
        config.packages = PackageConfig {
            extra_pip: self.extra_pip,
            script_requirements: self.script_requirements,
            lock: self.package_lock.map(|path| base.join(path)),
        };
        config.trust_policy =
            TrustPolicy::from_config(&self.trust_policy, self.tree_sha256.as_deref(), self.skill_sha256.as_deref())?;
        for path in &self.inputs {
            config.inputs.push(Input::from_host_path(&base.join(path))?);
        }
        for mount in &self.mounts {
            let mut mount: MountRequest = mount.parse()?;
            mount.host = base.join(mount.host);
            config.mounts.push(mount);
        }
        if self.apply_changes {
            config.apply_changes = ApplyChanges::OnSuccess;
        }
        for (name, value) in &self.env {
            config.env.set(name.as_str(), value.as_str())?;
        }
        match self.timeout {
            None => {}
            Some(Value::String(text)) => config.limits.wall_time = parse_duration(&text)?,
            Some(Value::Number(number)) => config.limits.wall_time = parse_duration(&number.to_string())?,
            Some(other) => {
                return Err(SkillRuntimeError::invalid(format!(
                    "timeout must be seconds or a text such as '2m', got {other}"
                )));
            }
        }
        if let Some(memory) = &self.memory {
            config.limits.memory = parse_size(memory)?;
            config.limits.requested.memory = true;
        }
        if let Some(disk) = &self.disk {
            config.limits.disk = parse_size(disk)?;
            config.limits.requested.disk = true;
        }
        if self.allow_advisory {
            config.enforcement = EnforcementMode::BestEffort;
        }
        if let Some(require) = &self.require {
            config.require = require.parse()?;
        }
        if let Some(operator) = &self.operator {
            config.operator = operator.parse()?;
        }
        if let Some(globs) = self.output_files_glob {
            config.output_files_glob = globs;
        }
        if let Some(out) = self.out {
            let overwrite = if self.overwrite { Overwrite::Replace } else { Overwrite::Refuse };
            config.output = OutputDelivery::Folder { path: base.join(out), overwrite };
        }
        let mut mode = ModeConfig::new(self.task);
        mode.execution_mode = self.execution_mode;
        mode.inputs = texts("input_mapping", self.input_mapping)?;
        mode.script_args = texts("script_args", self.script_args)?;
        mode.script_name = self.script_name;
        mode.system_prompt_prefix = self.system_prompt_prefix;
        let prompt = &mut mode.prompt;
        prompt.include_skill_description = self.include_skill_description.unwrap_or(prompt.include_skill_description);
        prompt.strip_code_blocks = self.strip_code_blocks.unwrap_or(prompt.strip_code_blocks);
        prompt.filter_security_terms = self.filter_security_terms.unwrap_or(prompt.filter_security_terms);
        if let Some(limit) = self.max_instructions_chars {
            prompt.max_instructions_chars = (limit > 0).then_some(limit);
        }
        mode.budget = self.budget.over(mode.budget, self.llm_max_iterations)?;
        mode.output_schema = self.output_schema.map(OutputSchema::new).transpose()?;
        mode.schema_mode =
            if self.output_schema_strict.unwrap_or(true) { SchemaMode::Strict } else { SchemaMode::Warn };
        mode.screen = match self.screen {
            ScreenFile::Basic => Arc::new(BasicScreen),
            ScreenFile::Off => Arc::new(NoScreen),
        };
        mode.validate()?;
        Ok(StepFromFile {
            config,
            mode,
            manifest_network: self.manifest_network,
            manifest_mode: if self.strict_manifest { ManifestMode::Strict } else { ManifestMode::Lenient },
            output_capture: self.output_capture,
        })
    }
}

impl BudgetFile {
    fn over(self, mut budget: Budget, rounds: Option<u32>) -> Result<Budget> {
        budget.rounds = rounds.unwrap_or(budget.rounds);
        if let Some(time) = &self.wall_time {
            budget.wall_time = parse_duration(time)?;
        }
        budget.tokens = self.tokens.or(budget.tokens);
        budget.cost = self.cost.or(budget.cost);
        budget.prices = self.prices.or(budget.prices);
        budget.tool_calls = self.tool_calls.unwrap_or(budget.tool_calls);
        budget.calls_per_turn = self.calls_per_turn.unwrap_or(budget.calls_per_turn);
        Ok(budget)
    }
}

/// CARL turns every value into text; here only those for which that means something.
fn texts(field: &str, values: BTreeMap<String, Value>) -> Result<BTreeMap<String, String>> {
    let text = |(name, value): (String, Value)| match value {
        Value::String(text) => Ok((name, text)),
        Value::Number(number) => Ok((name, number.to_string())),
        Value::Bool(value) => Ok((name, value.to_string())),
        Value::Null | Value::Array(_) | Value::Object(_) => Err(SkillRuntimeError::invalid(format!(
            "{field}.{} must be a text, number or truth value",
            name.escape_debug()
        ))),
    };
    values.into_iter().map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(text: &str) -> Result<StepFromFile> {
        StepFile::parse(text)?.checked(SkillSource::Folder("x".into()), Path::new("/base"))
    }

    #[test]
    fn a_full_file_is_read() {
        let text = r#"
            skill = "./skills/pdf"
            task = "Sum {n}"
            execution_mode = "llm_agent"
            in = ["data.csv"]
            out = "results"
            runtime = "wasm"
            trust_policy = "sha_pinned"
            tree_sha256 = "0000000000000000000000000000000000000000000000000000000000000000"
            timeout = 5
            llm_max_iterations = 3
            max_instructions_chars = 0
            output_schema_strict = false
            [input_mapping]
            n = 5
            [budget]
            wall_time = "2m"
            tokens = 1000
            [output_schema]
            type = "object"
            [model]
            protocol = "openai"
            name = "m"
            base_url = "http://127.0.0.1:1/v1"
        "#;
        let file = StepFile::parse(text).unwrap();
        assert_eq!(file.source(Path::new("/base")).unwrap(), AgentSkillSource::Path("/base/./skills/pdf".into()));
        let step = file.checked(SkillSource::Folder("x".into()), Path::new("/base")).unwrap();
        assert_eq!(step.config.limits.wall_time.as_secs(), 5);
        assert_eq!(step.config.trust_policy, TrustPolicy::Pinned("0".repeat(64)));
        assert_eq!(step.mode.inputs, BTreeMap::from([("n".to_owned(), "5".to_owned())]));
        assert_eq!(
            (step.mode.budget.rounds, step.mode.budget.tokens, step.mode.budget.wall_time.as_secs()),
            (3, Some(1000), 120)
        );
        assert_eq!((step.mode.prompt.max_instructions_chars, step.mode.schema_mode), (None, SchemaMode::Warn));
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for (text, what) in [
            ("", "missing field `skill`"),
            ("skill = 'x'\ntask = 't'\nextra_pip = 'a'", "expected a sequence"),
            ("skill = 'x'\ntask = 't'\nscript_requirements = 'yes'", "unknown variant `yes`"),
            ("skill = 'x'\ntask = 't'\nextra_gem = ['a']", "unknown field `extra_gem`"),
            ("skill = 'x'\ntask = 't'\nexecution_mode = 'agent'", "unknown variant `agent`"),
            ("skill = 'x'\ntask = 't'\ntrust_policy = 'garbage'", "unknown trust_policy 'garbage'"),
            ("skill = 'x'\ntask = 't'\ntrust_policy = 'sha_pinned'", "requires a digest"),
            ("skill = 'x'\ntask = 't'\nmanifest_network = 'yes'", "unknown variant `yes`"),
            ("skill = 'x'\ntask = 't'\noutput_capture = 'all'", "unknown variant `all`"),
            ("skill = 'x'\ntask = 't'\nscreen = 'strict'", "unknown variant `strict`"),
            ("skill = 'x'\ntask = 't'\nllm_max_iterations = 0", "a budget of zero"),
            ("skill = 'x'\ntask = 't'\ntimeout = 'soon'", "is not a duration"),
            ("skill = 'x'\ntask = 't'\n[input_mapping]\na = [1]", "input_mapping.a must be"),
            ("skill = 'x'\n", "task is empty"),
            ("skill = 'x'\ntask = 't'\n[model]\nprotocol = 'openai'\nname = 'm'\nkey = 'sk'", "unknown field `key`"),
            ("skill = ", "not valid"),
        ] {
            let error = checked(text).map_or_else(|error| error.to_string(), |_| "accepted".to_owned());
            assert!(error.contains(what), "{text}: {error}");
        }
    }
}
