//! `skillcell agent`, `skillcell step` and `skillcell replay`: a model works with a skill.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use serde_json::{Value, json};
use skillcell::agent::{
    AgentEvent, AgentSink, AgentSkillExecutionMode, ApiKey, Bounds, ChatModel, FanOut, ModeConfig, ModeOutcome,
    ReplayModel, Streaming, Transcript, TranscriptFile, Wire, WireConfig, WireProtocol,
};
use skillcell::policy::{EnforcementMode, parse_duration};
use skillcell::skill::{ManifestMode, TrustPolicy};
use skillcell::step::{
    AgentJob, AgentSkillStepConfig, MAX_STEP_FILE_BYTES, ManifestNetwork, ModelFile, OutputCapture, OutputDelivery,
    StepContext, StepFile, StepFromFile, StepResult, execute_agent,
};
use skillcell::workspace::{Input, Overwrite, read_host_file};
use skillcell::{Result, SkillRuntimeError};
use tokio_util::sync::CancellationToken;

use super::skill::{reference, resolve};
use crate::approve::ApproveMode;
use crate::{exit, progress, terminal};

/// Let a model work on a task with a skill, its scripts in a sandbox
#[derive(Debug, Args)]
#[command(after_help = "Example:
  skillcell agent ./skills/report --task 'Sum up sales.csv' --in sales.csv --out results \\
      --runtime wasm --model anthropic:MODEL

The key is read from ANTHROPIC_API_KEY or OPENAI_API_KEY (or the variable of --key-env), never from an argument.
A local server needs none: --model openai:NAME --base-url http://127.0.0.1:8080/v1
Exit codes: 0 an answer, 1 no answer (the reason is on stderr), else as for `skillcell run`.")]
pub(crate) struct AgentArgs {
    /// The skill: a path, a name, github://owner/repo/path@ref, or the address of an archive
    skill: String,
    /// What is to be done
    #[arg(long, value_name = "TEXT")]
    task: String,
    /// A file or folder to copy into /workspace/in; may be given several times
    #[arg(long = "in", value_name = "FILE|DIR")]
    inputs: Vec<PathBuf>,
    /// A folder to copy the results to; made if missing
    #[arg(long, short, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Let results replace files that are in the --out folder
    #[arg(long, requires = "out")]
    overwrite: bool,
    /// The sandbox to use; `skillcell runtimes` lists them
    #[arg(long, short, default_value = "wasm", value_name = "NAME")]
    runtime: String,
    /// Run even where the runtime can't enforce everything that was asked
    #[arg(long)]
    allow_advisory: bool,
    /// Refuse to run unless the SHA-256 of the whole skill is this one
    #[arg(long, value_name = "SHA256")]
    pin: Option<String>,
    /// Wall-clock limit of one script
    #[arg(long, value_name = "TIME", default_value = "120s")]
    timeout: String,
    /// Rounds of the model
    #[arg(long, value_name = "N", default_value_t = 25)]
    max_rounds: u32,
    /// Time of the whole run
    #[arg(long, value_name = "TIME", default_value = "10m")]
    max_time: String,
    /// Tokens of the whole run
    #[arg(long, value_name = "N")]
    max_tokens: Option<u64>,
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    record: RecordArgs,
}

#[derive(Debug, Args)]
struct ModelArgs {
    /// The model: anthropic:NAME or openai:NAME
    #[arg(long, value_name = "PROTOCOL:NAME")]
    model: String,
    /// The server, when it isn't the provider's
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,
    /// The environment variable that holds the key
    #[arg(long, value_name = "NAME")]
    key_env: Option<String>,
    /// Tokens that the model holds
    #[arg(long, value_name = "N")]
    max_context: Option<u64>,
}

#[derive(Debug, Args)]
struct RecordArgs {
    /// Write what happens to a new file, JSON lines; may hold whatever the task and the files hold
    #[arg(long, value_name = "FILE")]
    transcript: Option<PathBuf>,
    /// Go on with the run of this transcript, which is written on; no tool is run twice
    #[arg(long, value_name = "FILE", conflicts_with = "transcript")]
    resume: Option<PathBuf>,
    /// Append the audit trail to a file, hash-chained JSON lines; see `skillcell audit`
    #[arg(long, value_name = "FILE")]
    audit: Option<PathBuf>,
    /// Who says yes before a call that runs or writes something
    #[arg(long, value_enum, default_value_t)]
    approve: ApproveMode,
    /// Print one JSON document instead of the answer
    #[arg(long)]
    json: bool,
}

/// Do the step of a file
#[derive(Debug, Args)]
pub(crate) struct StepArgs {
    /// The step: TOML, see docs/carl-parity.md for its fields
    file: PathBuf,
    #[command(flatten)]
    record: RecordArgs,
}

/// Show the run of a transcript again, without asking a model or running anything
#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// The transcript
    transcript: PathBuf,
    /// Run the step of this file again in a sandbox, with the transcript in the place of the model
    #[arg(long, value_name = "FILE")]
    step: Option<PathBuf>,
    /// Print one JSON document instead of the answer
    #[arg(long)]
    json: bool,
}

pub(crate) fn agent(args: AgentArgs) -> ExitCode {
    let as_json = args.record.json;
    finish(run_agent(args), as_json)
}

pub(crate) fn step(args: &StepArgs) -> ExitCode {
    finish(run_step(args), args.record.json)
}

pub(crate) fn replay(args: &ReplayArgs) -> ExitCode {
    match &args.step {
        Some(file) => finish(run_replay(args, file), args.json),
        None => show(&args.transcript).unwrap_or_else(|error| exit::fail(&error)),
    }
}

fn run_agent(args: AgentArgs) -> Result<StepResult<ModeOutcome>> {
    let (protocol, name) = args
        .model
        .model
        .split_once(':')
        .ok_or_else(|| SkillRuntimeError::invalid("--model is given as anthropic:NAME or openai:NAME"))?;
    let model = ModelFile {
        protocol: protocol.to_owned(),
        name: name.to_owned(),
        base_url: args.model.base_url,
        key_env: args.model.key_env,
        max_context: args.model.max_context,
        max_output: None,
        stream: None,
        extra: serde_json::Map::new(),
    };
    let (model, bounds) = wire(&model)?;
    let mut config = AgentSkillStepConfig::new(resolve(&reference(&args.skill)?)?.source);
    config.runtime = args.runtime;
    config.limits.wall_time = parse_duration(&args.timeout)?;
    if args.allow_advisory {
        config.enforcement = EnforcementMode::BestEffort;
    }
    if let Some(pin) = &args.pin {
        config.trust_policy = TrustPolicy::pinned(pin)?;
    }
    for path in &args.inputs {
        config.inputs.push(Input::from_host_path(path)?);
    }
    if let Some(path) = args.out {
        let overwrite = if args.overwrite { Overwrite::Replace } else { Overwrite::Refuse };
        config.output = OutputDelivery::Folder { path, overwrite };
    }
    let mut mode = ModeConfig::new(args.task);
    mode.execution_mode = AgentSkillExecutionMode::LlmAgent;
    mode.prompt.max_instructions_chars = None;
    mode.prompt.strip_code_blocks = false;
    mode.budget.rounds = args.max_rounds;
    mode.budget.wall_time = parse_duration(&args.max_time)?;
    mode.budget.tokens = args.max_tokens;
    let checked = StepFromFile {
        config,
        mode,
        manifest_network: ManifestNetwork::Ignore,
        manifest_mode: ManifestMode::Lenient,
        output_capture: OutputCapture::Stdout,
    };
    execute(checked, Some(model), bounds, &args.record)
}

fn read_step(file: &Path) -> Result<(StepFromFile, Option<ModelFile>)> {
    let bytes = read_host_file(file, MAX_STEP_FILE_BYTES)?;
    let text =
        String::from_utf8(bytes).map_err(|_| SkillRuntimeError::invalid(format!("{} is not UTF-8", file.display())))?;
    let parsed = StepFile::parse(&text)?;
    let base = file.parent().unwrap_or(Path::new("")).to_owned();
    let model = parsed.model.clone();
    let skill = resolve(&parsed.source(&base)?)?.source;
    Ok((parsed.checked(skill, &base)?, model))
}

fn run_step(args: &StepArgs) -> Result<StepResult<ModeOutcome>> {
    let (checked, model) = read_step(&args.file)?;
    let (model, bounds) = match &model {
        Some(model) => wire(model).map(|(model, bounds)| (Some(model), bounds))?,
        None => (None, Bounds::default()),
    };
    execute(checked, model, bounds, &args.record)
}

fn run_replay(args: &ReplayArgs, file: &Path) -> Result<StepResult<ModeOutcome>> {
    let (checked, _) = read_step(file)?;
    let model: Arc<dyn ChatModel> = Arc::new(ReplayModel::new(&Transcript::read(&args.transcript)?));
    let record =
        RecordArgs { transcript: None, resume: None, audit: None, approve: ApproveMode::Always, json: args.json };
    execute(checked, Some(model), Bounds::default(), &record)
}

/// The model behind HTTP, and what must not be shown of its key.
fn wire(model: &ModelFile) -> Result<(Arc<dyn ChatModel>, Bounds)> {
    let protocol = match model.protocol.as_str() {
        "anthropic" => WireProtocol::Anthropic,
        "openai" => WireProtocol::OpenAiChat,
        other => {
            return Err(SkillRuntimeError::invalid(format!(
                "unknown protocol '{}' of a model; valid options: anthropic, openai",
                other.escape_debug()
            )));
        }
    };
    let mut config = WireConfig::new(protocol, model.name.clone());
    let variable = model.key_env.as_deref().unwrap_or(protocol.key_variable());
    match std::env::var(variable) {
        Ok(key) => config.key = Some(ApiKey::new(key)?),
        // A server of one's own may need none; a provider's does.
        Err(_) if model.base_url.is_some() && model.key_env.is_none() => {}
        Err(_) => {
            return Err(SkillRuntimeError::invalid(format!(
                "the environment variable {} has no key for the model; set it",
                variable.escape_debug()
            )));
        }
    }
    if let Some(base) = &model.base_url {
        config.base_url.clone_from(base);
    }
    config.caps.max_context = model.max_context.or(config.caps.max_context);
    config.caps.max_output = model.max_output.unwrap_or(config.caps.max_output);
    config.extra.clone_from(&model.extra);
    if model.stream == Some(false) {
        config.streaming = Streaming::Off;
    }
    let secrets = config.key.iter().map(|key| key.expose().to_owned()).filter(|key| key.len() >= 8).collect();
    Ok((Arc::new(Wire::new(config)?), Bounds::new(secrets)?))
}

fn execute(
    checked: StepFromFile,
    model: Option<Arc<dyn ChatModel>>,
    bounds: Bounds,
    record: &RecordArgs,
) -> Result<StepResult<ModeOutcome>> {
    let mut mode = checked.mode;
    let mut sinks: Vec<Arc<dyn AgentSink>> = Vec::new();
    if let Some(path) = &record.transcript {
        sinks.push(Arc::new(TranscriptFile::create(path, bounds.clone())?));
    }
    if let Some(path) = &record.resume {
        let earlier = Transcript::read(path)?;
        if let Some(stop) = earlier.finished() {
            return Err(SkillRuntimeError::invalid(format!("the run of {} ended already ({stop})", path.display())));
        }
        mode.resume = Some(earlier.conversation());
        sinks.push(Arc::new(TranscriptFile::resume(path, bounds.clone())?));
    }
    if !record.json {
        sinks.push(Arc::new(Live));
    }
    mode.bounds = bounds;
    mode.approver = record.approve.approver();
    let cancel = CancellationToken::new();
    let job = AgentJob {
        mode,
        manifest_network: checked.manifest_network,
        manifest_mode: checked.manifest_mode,
        output_capture: checked.output_capture,
        model,
        events: Arc::new(FanOut(sinks)),
        cancel: cancel.clone(),
    };
    let mut context = StepContext::new(skillcell::builtin_registry());
    context.progress = Arc::new(progress::TerminalProgress::new());
    if let Some(path) = &record.audit {
        context.audit = Arc::new(super::run::open_audit(path)?);
    }
    let executor = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| SkillRuntimeError::backend("could not start the executor", error))?;
    executor.block_on(async {
        let work = execute_agent(checked.config, job, &context);
        tokio::pin!(work);
        tokio::select! {
            result = &mut work => result,
            () = super::run::interrupted() => {
                // The run ends by itself then, with an honest transcript and its results collected.
                cancel.cancel();
                tokio::select! {
                    result = work => result,
                    () = super::run::interrupted() => exit::at_once(),
                }
            }
        }
    })
}

/// Characters of a text in a line of progress; the transcript has all.
const SHOWN_CHARS: usize = 160;

/// Shows a run while it goes on, on stderr.
struct Live;

impl AgentSink for Live {
    fn event(&self, event: &AgentEvent) -> Result<()> {
        if let Some(text) = line(event) {
            terminal::note(&text);
        }
        Ok(())
    }
}

/// One line for people; text of models and scripts is escaped.
fn line(event: &AgentEvent) -> Option<String> {
    let short = |text: &str| terminal::escaped(text.chars().take(SHOWN_CHARS));
    match event {
        AgentEvent::ToolStarted { round, tool, arguments, .. } => {
            Some(format!("[{round}] {} {}", short(tool), short(arguments)))
        }
        AgentEvent::ToolFinished { round, tool, outcome, content, .. } => {
            let outcome = serde_json::to_value(outcome)
                .ok()
                .and_then(|value| value.as_str().map(str::to_owned))
                .unwrap_or_default();
            Some(format!("[{round}] {} {outcome}: {}", short(tool), short(content)))
        }
        AgentEvent::ModelRetry { attempt, message, wait, .. } => {
            Some(format!("the model failed ({}), try {} in {wait:.1} s", short(message), attempt + 1))
        }
        AgentEvent::Compacted { before, after, .. } => {
            Some(format!("the conversation was shortened from about {before} to {after} tokens"))
        }
        AgentEvent::RunFinished { stop, rounds, tool_calls, usage, .. } => {
            Some(format!("{stop}: {rounds} rounds, {tool_calls} calls, {} tokens", usage.total()))
        }
        AgentEvent::RunStarted { .. }
        | AgentEvent::RunResumed { .. }
        | AgentEvent::Note { .. }
        | AgentEvent::ModelDelta { .. }
        | AgentEvent::ModelTurn { .. } => None,
    }
}

/// Prints a transcript as it went.
fn show(path: &Path) -> Result<ExitCode> {
    let transcript = Transcript::read(path)?;
    let mut text =
        format!("model {}, skill {}\n", transcript.model().escape_debug(), transcript.skill_digest().escape_debug());
    for event in transcript.events() {
        if let AgentEvent::ModelTurn { round, turn, .. } = event
            && !turn.text.is_empty()
        {
            text.push_str(&format!("[{round}] model: {}\n", readable(&turn.text)));
        }
        text.extend(line(event).map(|line| format!("{line}\n")));
    }
    if transcript.was_cut() {
        text.push_str("(a line of the transcript is cut)\n");
    }
    if transcript.finished().is_none() {
        text.push_str("(the run has no end: go on with --resume)\n");
    }
    Ok(terminal::print_bytes(text.as_bytes()))
}

/// Text of a model for a terminal: lines stay, other control characters are written out.
fn readable(text: &str) -> String {
    text.split('\n')
        .map(|line| {
            line.chars()
                .flat_map(|c| if c.is_control() { c.escape_debug().collect::<Vec<_>>() } else { vec![c] })
                .collect()
        })
        .collect::<Vec<String>>()
        .join("\n")
}

fn finish(result: Result<StepResult<ModeOutcome>>, as_json: bool) -> ExitCode {
    let result = match result {
        Ok(result) => result,
        Err(error) => return exit::fail(&error),
    };
    let outcome = &result.run;
    let printed = if as_json {
        terminal::print_bytes(format!("{}\n", document(&result)).as_bytes())
    } else {
        let mut text = readable(&outcome.result);
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        if let Some(error) = &outcome.error_message {
            terminal::note(&readable(error));
        }
        for skipped in &result.skipped {
            terminal::note(&format!("not kept: /workspace/out/{} {}", skipped.path, skipped.message));
        }
        if let Some(conflict) = &result.conflict {
            terminal::note_conflict(conflict);
        }
        terminal::print_bytes(text.as_bytes())
    };
    let code = match (&outcome.run, outcome.success) {
        (_, true) if printed != ExitCode::SUCCESS => return printed,
        (_, true) => exit::with_conflict(0, result.conflict.as_ref()),
        (Some(run), false) if outcome.agent.is_none() => exit::of_termination(&run.termination),
        _ => 1,
    };
    ExitCode::from(code)
}

fn document(result: &StepResult<ModeOutcome>) -> Value {
    let outcome = &result.run;
    json!({
        "run": result.run_id,
        "runtime": result.runtime,
        "skill_sha256_tree": result.skill_digest,
        "success": outcome.success,
        "result": outcome.result,
        "error_message": outcome.error_message,
        "result_data": outcome.result_data,
        "skipped": result.skipped,
        "output_conflict": result.conflict,
        "enforcement": result.enforcement,
        "network_enforced": result.enforcement.network_enforced(),
        "audit": result.audit,
    })
}
