//! A step of a skill in one of CARL's modes: the same flow as for one script, with a model in it.

use std::sync::Arc;

use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::config::AgentSkillStepConfig;
use super::execute::{Leaves, StepContext, Work, blocking, execute_work};
use super::plan::StepPlan;
use super::result::{DeliveredOutput, StepResult};
use crate::agent::{AgentSink, ChatModel, ModeConfig, ModeEnvironment, ModeOutcome, StopReason, run_mode};
use crate::audit::{AuditScope, Layer, RunId};
use crate::error::{Result, SkillRuntimeError};
use crate::policy::parse_network_allowlist_from_allowed_tools;
use crate::runtime::{SkillRuntimeHandle, Termination};
use crate::skill::{LoadedSkill, ManifestMode, TrustPolicy, VerifiedSkill};
use crate::workspace::HostTree;

/// Whether hosts that a manifest asks for (`WebFetch(domain:…)`) count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ManifestNetwork {
    /// They don't: the caller's list is all there is.
    #[default]
    Ignore,
    /// They are added to an `allowlist` of the caller (CARL's behaviour). The audit trail names each.
    Merge,
}

/// Which parts of what a step left are in its text (CARL's `output_capture`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputCapture {
    /// The text only.
    Stdout,
    /// The list of files, as JSON; the text when there are none.
    Files,
    /// The text, and a line that names the files.
    #[default]
    Both,
}

/// What makes a step one of the agent's.
pub struct AgentJob {
    /// The mode and its fields.
    pub mode: ModeConfig,
    /// Whether a manifest's hosts count.
    pub manifest_network: ManifestNetwork,
    /// How much of a manifest is forgiven.
    pub manifest_mode: ManifestMode,
    /// What the text holds.
    pub output_capture: OutputCapture,
    /// The model, for modes that ask one.
    pub model: Option<Arc<dyn ChatModel>>,
    /// Hears what happens.
    pub events: Arc<dyn AgentSink>,
    /// Ends the run.
    pub cancel: CancellationToken,
}

/// Does a step of a skill in its mode. `config.script_name` and `config.args` must be empty: the job names the script.
///
/// # Errors
/// As [`execute`](super::execute), and when a mode that asks a model has none. A script or model that fails gives a
/// result.
pub async fn execute_agent(
    mut config: AgentSkillStepConfig,
    job: AgentJob,
    context: &StepContext,
) -> Result<StepResult<ModeOutcome>> {
    let checked = check(&config, &job);
    checked.map_err(|error| error.operation("plan"))?;
    if job.manifest_network == ManifestNetwork::Merge {
        merge_manifest_hosts(&mut config, job.manifest_mode, context).await?;
    }
    let output_capture = job.output_capture;
    let mut result = execute_work(config, context, &AgentWork(job)).await?;
    add_outputs(&mut result.run, &result.outputs, output_capture);
    Ok(result)
}

fn check(config: &AgentSkillStepConfig, job: &AgentJob) -> Result<()> {
    job.mode.validate()?;
    if job.mode.execution_mode.needs_model() && job.model.is_none() {
        return Err(SkillRuntimeError::invalid(format!(
            "execution_mode '{}' needs a model; give one, or use 'script'",
            job.mode.execution_mode.as_str()
        )));
    }
    if config.script_name.is_some() || !config.args.is_empty() {
        return Err(SkillRuntimeError::invalid("a step of the agent names its script and arguments in the job"));
    }
    Ok(())
}

/// Reads the skill first, so that the policy is complete before the gate. What runs later must be the same bytes: the
/// digest found here becomes the pin.
async fn merge_manifest_hosts(
    config: &mut AgentSkillStepConfig,
    mode: ManifestMode,
    context: &StepContext,
) -> Result<()> {
    if config.runtime_config.get("network").and_then(Value::as_str) != Some("allowlist") {
        return Ok(());
    }
    let audit = AuditScope::new(RunId::random()?, &config.runtime, context.audit.clone());
    let (source, policy) = (config.skill.clone(), config.trust_policy.clone());
    let own = audit.clone();
    let skill = blocking(move || {
        let verified = Arc::new(VerifiedSkill::verify(&source, &policy, &own)?);
        LoadedSkill::load(verified, mode)
    })
    .await?;
    let hosts = parse_network_allowlist_from_allowed_tools(skill.manifest.allowed_tools.as_ref());
    for host in &hosts {
        audit.allow(Layer::Policy, "manifest_network", host, "the manifest asks for it and the caller merges")?;
    }
    audit.close()?;
    let listed = config.runtime_config.entry("network_allowlist").or_insert_with(|| Value::Array(Vec::new()));
    if listed.is_null() {
        *listed = Value::Array(Vec::new());
    }
    // Anything else than a list is refused with its own words when the step is planned.
    if let Value::Array(list) = listed {
        list.extend(hosts.into_iter().map(Value::String));
    }
    config.trust_policy = TrustPolicy::Pinned(skill.verified.digest().to_owned());
    Ok(())
}

struct AgentWork(AgentJob);

#[async_trait]
impl Work for AgentWork {
    type Ready = LoadedSkill;
    type Done = ModeOutcome;

    fn ready(&self, _plan: &StepPlan, skill: &Arc<VerifiedSkill>) -> Result<LoadedSkill> {
        let loaded = LoadedSkill::load(skill.clone(), self.0.manifest_mode)?;
        for finding in &loaded.findings {
            tracing::warn!(skill = %loaded.manifest.name, rule = finding.rule, "{finding}");
        }
        Ok(loaded)
    }

    fn scripts(&self, skill: &VerifiedSkill, _ready: &LoadedSkill) -> Vec<String> {
        // The model chooses among all of them.
        super::packages::python_files(skill).map(str::to_owned).collect()
    }

    fn look(
        &self,
        _plan: &StepPlan,
        _skill: &VerifiedSkill,
        _ready: &LoadedSkill,
        _site: Option<&HostTree>,
        _instead: &str,
    ) -> Result<()> {
        // Which script the model runs isn't known; it is told by the script's own failure.
        Ok(())
    }

    async fn run(
        &self,
        plan: &StepPlan,
        handle: &SkillRuntimeHandle,
        ready: &LoadedSkill,
        context: &StepContext,
    ) -> Result<ModeOutcome> {
        let job = &self.0;
        let mut mode = job.mode.clone();
        mode.env = plan.environment().clone();
        mode.staged = plan.inputs.iter().map(|input| input.name.clone()).collect();
        let environment = ModeEnvironment {
            runtime: &*plan.runtime,
            handle,
            skill: ready,
            model: job.model.as_deref(),
            events: &*job.events,
            cancel: &job.cancel,
            output: context.sink.clone(),
        };
        let work = run_mode(&environment, &mode);
        tokio::pin!(work);
        tokio::select! {
            biased;
            done = &mut work => done,
            () = context.cancel.wait() => {
                // The run ends by itself then: its transcript and its results stay honest.
                job.cancel.cancel();
                work.await
            }
        }
    }

    fn succeeded(done: &ModeOutcome) -> bool {
        match (&done.agent, &done.run) {
            (Some(agent), _) => agent.stop == StopReason::Final,
            (None, Some(run)) => run.termination == Termination::Exited(0),
            (None, None) => true,
        }
    }

    fn leaves(_done: &ModeOutcome) -> Leaves {
        // A run that was ended keeps what it did: the outcome says how it ended.
        Leaves::Results
    }

    fn outcome(done: &ModeOutcome) -> String {
        match &done.agent {
            Some(agent) => agent.stop.to_string(),
            None => done.run.as_ref().map_or_else(String::new, |run| run.termination.to_string()),
        }
    }
}

/// Puts what was collected into the result, in CARL's form but with content or a path that lives.
fn add_outputs(outcome: &mut ModeOutcome, outputs: &[DeliveredOutput], capture: OutputCapture) {
    let entries: Vec<Value> = outputs.iter().map(entry).collect();
    let names: Vec<&str> = outputs.iter().map(|output| output.file.path.as_str()).collect();
    match capture {
        OutputCapture::Stdout => {}
        OutputCapture::Files if entries.is_empty() => {}
        OutputCapture::Files => outcome.result = Value::Array(entries.clone()).to_string(),
        OutputCapture::Both if names.is_empty() => {}
        OutputCapture::Both => outcome.result.push_str(&format!("\n\nOutput files: {}", names.join(", "))),
    }
    outcome.result_data.insert("output_files".into(), entries.into());
}

fn entry(output: &DeliveredOutput) -> Value {
    let file = &output.file;
    let mut map = Map::new();
    map.insert("name".into(), file.path.clone().into());
    map.insert("size".into(), file.size.into());
    map.insert("sha256".into(), file.sha256.clone().into());
    map.insert("content_type".into(), file.media_type.clone().into());
    if let Some(path) = &output.copied_to {
        map.insert("path".into(), path.display().to_string().into());
    }
    if let Some(content) = &output.content {
        match std::str::from_utf8(content) {
            Ok(text) => map.insert("content".into(), text.into()),
            Err(_) => map.insert("content_base64".into(), BASE64.encode(content).into()),
        };
    }
    json!(map)
}
