//! The loop: asks the model, does what it asks for, tells it what came of it, until there is an answer or a budget ends.
//!
//! The loop sees only `dyn SkillRuntime`. Invariants: every budget is checked before the call it pays for and ends with
//! its own reason, never as an answer; calls of one turn are begun in their order, and results given in it; nothing but
//! the model call is ever done twice; however a run ends, the whole conversation is in its outcome.

use std::collections::HashSet;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::approve::Approver;
use super::asking::{Asked, RetryPolicy, ask};
use super::bound::Bounds;
use super::budget::{Budget, Meter, Spent};
use super::calls::{CallsEnded, Turnwork};
use super::context::{Compaction, estimate, pair, room, shrink};
use super::events::{AgentEvent, AgentSink};
use super::guard::LoopGuard;
use super::model::{ChatModel, Message, ModelStop, ToolChoice, ToolSpec, Turn, TurnRequest};
use super::outcome::{AgentOutcome, StopReason};
use super::recover::recover;
use super::schema::OutputSchema;
use super::screen::{BasicScreen, ResultScreen};
use super::toolbox::Toolbox;
use super::tools::Tool;
use super::transcript::Conversation;
use crate::error::Result;
use crate::runtime::{OutputSink, SkillRuntime, SkillRuntimeHandle};
use crate::skill::LoadedSkill;

/// Turns running that could not be understood.
const MAX_FORMAT_ERRORS: u32 = 3;
/// Rounds left when the model is told to come to an end.
const WRAP_UP_AT: u32 = 2;

/// What a run of the loop acts on.
pub struct AgentEnvironment<'a> {
    /// The runtime.
    pub runtime: &'a dyn SkillRuntime,
    /// The prepared sandbox.
    pub handle: &'a SkillRuntimeHandle,
    /// The skill.
    pub skill: &'a LoadedSkill,
    /// The model.
    pub model: &'a dyn ChatModel,
    /// Hears what happens.
    pub events: &'a dyn AgentSink,
    /// Ends the run.
    pub cancel: &'a CancellationToken,
    /// Hears the output of scripts while they run.
    pub output: Option<Arc<dyn OutputSink>>,
}

/// What a run is to do.
#[derive(Clone)]
pub struct AgentConfig {
    /// The system prompt.
    pub system: String,
    /// The task: the first message.
    pub task: String,
    /// Which tools are offered.
    pub tools: ToolOffer,
    /// What it may use.
    pub budget: Budget,
    /// How failed turns are asked for again.
    pub retry: RetryPolicy,
    /// The form of the answer.
    pub output_schema: Option<OutputSchema>,
    /// Whether an answer of another form is one.
    pub schema_mode: SchemaMode,
    /// What results may show.
    pub bounds: Bounds,
    /// Asked before each call that changes something. `None`: nobody is asked.
    pub approver: Option<Arc<dyn Approver>>,
    /// Looks at results before the model reads them. Default: [`BasicScreen`], which only annotates.
    pub screen: Arc<dyn ResultScreen>,
    /// Where an earlier run stood, to go on from there.
    pub resume: Option<Conversation>,
}

/// Which tools a run offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ToolOffer {
    /// All that the skill's manifest leaves.
    #[default]
    Skill,
    /// None: the model only answers.
    None,
}

/// What an answer of another form than the schema's is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SchemaMode {
    /// No answer: the model is told, and the run fails when it has no rounds left (CARL's `output_schema_strict`).
    #[default]
    Strict,
    /// An answer, with warnings.
    Warn,
}

impl AgentConfig {
    /// A run with every default.
    #[must_use]
    pub fn new(system: impl Into<String>, task: impl Into<String>) -> Self {
        Self {
            system: system.into(),
            task: task.into(),
            tools: ToolOffer::default(),
            budget: Budget::default(),
            retry: RetryPolicy::default(),
            output_schema: None,
            schema_mode: SchemaMode::default(),
            bounds: Bounds::default(),
            approver: None,
            screen: Arc::new(BasicScreen),
            resume: None,
        }
    }
}

/// Runs the loop to its end.
///
/// # Errors
/// [`InvalidConfig`](crate::ErrorKind::InvalidConfig) for a budget of nothing, and when an event can't be kept. Everything
/// else, a failed sandbox too, is an [`AgentOutcome`] with its [`StopReason`] and the conversation.
pub async fn run_loop(environment: &AgentEnvironment<'_>, config: &AgentConfig) -> Result<AgentOutcome> {
    config.budget.validate().map_err(|error| error.operation("agent"))?;
    let offered = match config.tools {
        ToolOffer::Skill => Tool::offered(&environment.skill.manifest),
        ToolOffer::None => Vec::new(),
    };
    let mut run = Run {
        environment,
        config,
        specs: offered.iter().map(|tool| tool.spec()).collect(),
        offered,
        meter: Meter::new(&config.budget),
        guard: LoopGuard::default(),
        denied: HashSet::new(),
        messages: Vec::new(),
        format_errors: 0,
        last_text: String::new(),
    };
    run.begin()?;
    let end = run.rounds().await?;
    run.finish(end)
}

/// How a run ends.
struct End {
    stop: StopReason,
    error: Option<String>,
    answer: Option<(Option<serde_json::Value>, Vec<String>)>,
}

impl End {
    fn failed(stop: StopReason, error: impl Into<String>) -> Self {
        Self { stop, error: Some(error.into()), answer: None }
    }

    fn spent(spent: Spent) -> Self {
        let (stop, what) = match spent {
            Spent::Rounds => (StopReason::MaxRounds, "the run has no rounds left"),
            Spent::Deadline => (StopReason::Deadline, "the time budget is used up"),
            Spent::Tokens => (StopReason::Tokens, "the token budget is used up"),
            Spent::Cost => (StopReason::Cost, "the cost budget is used up"),
            Spent::ToolCalls => (StopReason::ToolCalls, "the run has no tool calls left"),
        };
        Self::failed(stop, what)
    }
}

struct Run<'a> {
    environment: &'a AgentEnvironment<'a>,
    config: &'a AgentConfig,
    offered: Vec<Tool>,
    specs: Vec<ToolSpec>,
    meter: Meter,
    guard: LoopGuard,
    /// Calls that were refused, so that they are not asked about again.
    denied: HashSet<(String, String)>,
    messages: Vec<Message>,
    format_errors: u32,
    last_text: String,
}

impl Run<'_> {
    fn event(&self, event: &AgentEvent) -> Result<()> {
        self.environment.events.event(event)
    }

    fn begin(&mut self) -> Result<()> {
        let (model, handle, skill) = (self.environment.model, self.environment.handle, self.environment.skill);
        match &self.config.resume {
            None => {
                let task = self.config.bounds.redact(&self.config.task);
                self.messages.push(Message::User { text: task.clone() });
                self.event(&AgentEvent::RunStarted {
                    model: model.id().to_owned(),
                    runtime: handle.runtime().to_owned(),
                    skill: skill.manifest.name.clone(),
                    skill_digest: skill.verified.digest().to_owned(),
                    network_enforced: handle.report().network_enforced(),
                    tools: self.offered.iter().map(|tool| tool.name().to_owned()).collect(),
                    system: self.config.system.clone(),
                    task,
                })
            }
            Some(earlier) => {
                self.messages.clone_from(&earlier.messages);
                self.meter.rounds = earlier.rounds;
                self.meter.usage = earlier.usage;
                self.meter.tool_calls = earlier.tool_calls;
                self.event(&AgentEvent::RunResumed {
                    model: model.id().to_owned(),
                    runtime: handle.runtime().to_owned(),
                })?;
                self.note(
                    "[The run was interrupted and goes on in a new workspace: files that were written to /workspace/out and \
                     /workspace/tmp before are gone. A call marked as interrupted may have done part of its work.]",
                )
            }
        }
    }

    /// Tells the model something on the caller's behalf.
    fn note(&mut self, text: &str) -> Result<()> {
        self.messages.push(Message::User { text: text.to_owned() });
        self.event(&AgentEvent::Note { text: text.to_owned() })
    }

    async fn rounds(&mut self) -> Result<End> {
        loop {
            if self.environment.cancel.is_cancelled() {
                return Ok(End::failed(StopReason::Cancelled, "cancelled"));
            }
            if let Some(spent) = self.meter.before_turn() {
                return Ok(End::spent(spent));
            }
            let left = self.meter.rounds_left();
            if left == WRAP_UP_AT && self.config.budget.rounds > WRAP_UP_AT {
                self.note("[Two rounds are left: one more with tools, then your final answer.]")?;
            }
            // The last round is for an answer.
            let tool_choice = if left > 1 { ToolChoice::Auto } else { ToolChoice::None };
            let turn = match self.turn(tool_choice).await? {
                Ok(turn) => turn,
                Err(end) => return Ok(end),
            };
            if let Some(end) = self.take(turn, tool_choice).await? {
                return Ok(end);
            }
        }
    }

    /// Asks for one turn of a conversation that fits.
    async fn turn(&mut self, tool_choice: ToolChoice) -> Result<std::result::Result<Turn, End>> {
        let caps = self.environment.model.caps();
        let answer = self.meter.answer_limit(caps.max_output);
        let mut target = room(caps.max_context, answer);
        loop {
            pair(&mut self.messages);
            if let Some(target) = target
                && !self.fit(target)?
            {
                return Ok(Err(self.too_big(target)));
            }
            let (config, environment) = (self.config, self.environment);
            let request = TurnRequest {
                system: &config.system,
                messages: &self.messages,
                tools: &self.specs,
                tool_choice,
                max_output_tokens: answer,
            };
            let (model, events, cancel) = (environment.model, environment.events, environment.cancel);
            match ask(model, &request, config.retry, &mut self.meter, events, cancel).await? {
                Asked::Turn(turn) => return Ok(Ok(turn)),
                Asked::Ended(stop, error) => return Ok(Err(End::failed(stop, error))),
                Asked::Overflow(error) => {
                    // The estimate was wrong. Half of it is surely less than what was sent.
                    let now = estimate(&config.system, &self.specs, &self.messages);
                    let smaller = now / 2;
                    let before = self.messages.clone();
                    self.fit(smaller)?;
                    if self.messages == before {
                        return Ok(Err(End::failed(
                            StopReason::ContextOverflow,
                            format!("{error}; {}", self.biggest()),
                        )));
                    }
                    // What was taken out may be all there is: then the next overflow ends the run.
                    target = None;
                }
            }
        }
    }

    /// Makes the conversation fit. False when it doesn't, with nothing left to take out.
    fn fit(&mut self, target: u64) -> Result<bool> {
        let before = estimate(&self.config.system, &self.specs, &self.messages);
        if before <= target {
            return Ok(true);
        }
        let Compaction { stubbed, dropped } = shrink(&self.config.system, &self.specs, &mut self.messages, target);
        let after = estimate(&self.config.system, &self.specs, &self.messages);
        if stubbed + dropped > 0 {
            self.event(&AgentEvent::Compacted { stubbed, dropped, before, after })?;
        }
        Ok(after <= target)
    }

    fn too_big(&self, target: u64) -> End {
        let now = estimate(&self.config.system, &self.specs, &self.messages);
        End::failed(
            StopReason::ContextOverflow,
            format!("the conversation has about {now} tokens and at most {target} fit; {}", self.biggest()),
        )
    }

    /// What takes the room, so that the caller knows what to shorten.
    fn biggest(&self) -> String {
        let system = estimate(&self.config.system, &[], &[]);
        let task = estimate("", &[], self.messages.get(..1).unwrap_or_default());
        format!(
            "the skill's prompt has about {system}, the task about {task}; shorten them, or set max_instructions_chars"
        )
    }

    /// Takes a turn. `None`: the run goes on.
    async fn take(&mut self, mut turn: Turn, tool_choice: ToolChoice) -> Result<Option<End>> {
        self.meter.rounds += 1;
        let round = self.meter.rounds;
        let names: Vec<&str> = self.offered.iter().map(|tool| tool.name()).collect();
        if turn.assistant.calls.is_empty() && tool_choice == ToolChoice::Auto {
            let found = recover(&turn.assistant.text, &names);
            turn.assistant.recovered = !found.is_empty();
            turn.assistant.calls = found;
        }
        unique_ids(&mut turn, round);
        if !turn.assistant.text.trim().is_empty() {
            self.last_text.clone_from(&turn.assistant.text);
        }
        self.event(&AgentEvent::ModelTurn {
            round,
            turn: turn.assistant.clone(),
            stop: turn.stop.clone(),
            usage: turn.usage,
        })?;
        let (calls, text) = (turn.assistant.calls.clone(), turn.assistant.text.clone());
        self.messages.push(Message::Assistant(turn.assistant));
        if calls.is_empty() {
            return self.take_answer(&text, &turn.stop);
        }
        let environment = self.environment;
        let mut work = Turnwork {
            toolbox: Toolbox {
                runtime: environment.runtime,
                handle: environment.handle,
                skill: environment.skill,
                bounds: &self.config.bounds,
                output: environment.output.clone(),
            },
            offered: &self.offered,
            approver: self.config.approver.as_deref(),
            screen: &*self.config.screen,
            events: environment.events,
            cancel: environment.cancel,
            meter: &mut self.meter,
            guard: &mut self.guard,
            denied: &mut self.denied,
            round,
            cut: turn.stop == ModelStop::MaxTokens,
        };
        let ended = if tool_choice == ToolChoice::Auto {
            work.run(&calls).await?
        } else {
            work.refuse(&calls, "[Error: not started: no rounds are left for tools]")?
        };
        let CallsEnded { results, end, all_invalid } = ended;
        self.messages.push(Message::ToolResults { results });
        if let Some((stop, error)) = end {
            return Ok(Some(End::failed(stop, error)));
        }
        self.format_errors = if all_invalid { self.format_errors + 1 } else { 0 };
        Ok(self.too_many_format_errors("its calls could not be understood"))
    }

    /// A turn without calls: an answer, unless it is cut, empty, refused or of the wrong form.
    fn take_answer(&mut self, text: &str, stop: &ModelStop) -> Result<Option<End>> {
        let problem = match stop {
            ModelStop::Refusal => {
                return Ok(Some(End::failed(StopReason::Refused, "the model or its provider refused")));
            }
            ModelStop::MaxTokens => {
                Some("[Your answer was cut at the limit of its length. Give a shorter one.]".to_owned())
            }
            ModelStop::EndTurn | ModelStop::ToolUse | ModelStop::Other(_) if text.trim().is_empty() => {
                Some("[Your answer was empty. Call a tool, or give your final answer.]".to_owned())
            }
            ModelStop::EndTurn | ModelStop::ToolUse | ModelStop::Other(_) => None,
        };
        if let Some(problem) = problem {
            self.format_errors += 1;
            if let Some(end) = self.too_many_format_errors("its answers were cut or empty") {
                return Ok(Some(end));
            }
            self.note(&problem)?;
            return Ok(None);
        }
        let Some(schema) = &self.config.output_schema else {
            return Ok(Some(End { stop: StopReason::Final, error: None, answer: Some((None, Vec::new())) }));
        };
        let (value, faults) = schema.read(text);
        if faults.is_empty() || self.config.schema_mode == SchemaMode::Warn {
            return Ok(Some(End { stop: StopReason::Final, error: None, answer: Some((value, faults)) }));
        }
        let faults = faults.join("; ");
        self.format_errors += 1;
        if self.format_errors >= MAX_FORMAT_ERRORS || self.meter.rounds_left() == 0 {
            return Ok(Some(End::failed(StopReason::SchemaMismatch, faults)));
        }
        self.note(&format!(
            "[Your answer does not have the form that was asked for: {faults}. Answer with the JSON only.]"
        ))?;
        Ok(None)
    }

    fn too_many_format_errors(&self, what: &str) -> Option<End> {
        (self.format_errors >= MAX_FORMAT_ERRORS).then(|| {
            End::failed(StopReason::BadFormat, format!("{MAX_FORMAT_ERRORS} turns running of the model failed: {what}"))
        })
    }

    fn finish(self, end: End) -> Result<AgentOutcome> {
        let (parsed_output, schema_warnings) = end.answer.unwrap_or_default();
        let text = self.config.bounds.redact(&self.last_text);
        self.event(&AgentEvent::RunFinished {
            stop: end.stop,
            rounds: self.meter.rounds,
            tool_calls: self.meter.tool_calls,
            usage: self.meter.usage,
            text: text.clone(),
        })?;
        Ok(AgentOutcome {
            stop: end.stop,
            text,
            error: end.error.map(|error| self.config.bounds.redact(&error)),
            parsed_output,
            schema_warnings,
            iterations: self.meter.rounds,
            tool_calls_made: self.meter.tool_calls,
            usage: self.meter.usage,
            cost: self.meter.cost(),
            messages: self.messages,
        })
    }
}

/// Servers send empty ids, and the same id twice; a result must find its call, in the whole conversation.
fn unique_ids(turn: &mut Turn, round: u32) {
    let mut seen = HashSet::new();
    for (index, call) in turn.assistant.calls.iter_mut().enumerate() {
        let generic = call.id.is_empty() || call.id.starts_with("call_") || call.id.starts_with("text_");
        if generic && call.id.len() < 9 || !seen.insert(call.id.clone()) {
            call.id = format!("call_{round}_{index}");
            seen.insert(call.id.clone());
        }
    }
}
