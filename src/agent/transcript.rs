//! The transcript of a run: one JSON object a line, written as it happens, read to replay or to go on.
//!
//! The first line names the form and its version. Invariants: a line is on the disk before the next thing happens; a
//! call that was begun and has no end in the transcript is *interrupted* and is never run again.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use super::bound::Bounds;
use super::events::{AgentEvent, AgentSink};
use super::model::{Message, ToolResult, Turn};
use crate::error::{Result, SkillRuntimeError};
use crate::workspace::{AppendFile, read_host_file};

/// The form's name.
const FORM: &str = "skillcell.agent";
/// The version this code writes and reads.
const VERSION: u32 = 1;
/// Bytes of a transcript that can be read.
const MAX_TRANSCRIPT_BYTES: u64 = 256 << 20;

#[derive(serde::Serialize, serde::Deserialize)]
struct Header {
    transcript: String,
    version: u32,
}

/// Writes a transcript.
#[derive(Debug)]
pub struct TranscriptFile {
    file: Mutex<AppendFile>,
    bounds: Bounds,
}

impl TranscriptFile {
    /// Begins a new file. Nothing that `bounds` names as a secret gets into it.
    ///
    /// # Errors
    /// [`InvalidConfig`](crate::ErrorKind::InvalidConfig) when the file exists; [`Backend`](crate::ErrorKind::Backend).
    pub fn create(path: &Path, bounds: Bounds) -> Result<Self> {
        let mut file = AppendFile::create(path)?;
        let header = Header { transcript: FORM.to_owned(), version: VERSION };
        file.append(&line(&header)?)?;
        Ok(Self { file: Mutex::new(file), bounds })
    }

    /// Goes on at the end of a file that [`Transcript::read`] accepted.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound), [`Backend`](crate::ErrorKind::Backend).
    pub fn resume(path: &Path, bounds: Bounds) -> Result<Self> {
        let text = read_host_file(path, MAX_TRANSCRIPT_BYTES)?;
        let mut file = AppendFile::open_existing(path)?;
        if !text.ends_with(b"\n") {
            // The last line was cut by whatever ended that run; what follows must not be glued to it.
            file.append(b"\n")?;
        }
        Ok(Self { file: Mutex::new(file), bounds })
    }
}

impl AgentSink for TranscriptFile {
    fn event(&self, event: &AgentEvent) -> Result<()> {
        if matches!(event, AgentEvent::ModelDelta { .. }) {
            return Ok(());
        }
        let text = String::from_utf8(line(event)?).map_err(internal)?;
        // In JSON a secret may stand escaped, so both forms are looked for.
        let text = self.bounds.redact(&text);
        self.file.lock().unwrap_or_else(PoisonError::into_inner).append(text.as_bytes())
    }
}

fn line(value: &impl serde::Serialize) -> Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec(value).map_err(internal)?;
    bytes.push(b'\n');
    Ok(bytes)
}

fn internal(error: impl std::error::Error + Send + Sync + 'static) -> SkillRuntimeError {
    SkillRuntimeError::new(crate::ErrorKind::Internal, "an event could not be written as JSON; please report it")
        .caused_by(error)
}

/// A transcript that was read.
#[derive(Debug, Clone, PartialEq)]
pub struct Transcript {
    events: Vec<AgentEvent>,
    cut: bool,
}

impl Transcript {
    /// Reads a file.
    ///
    /// # Errors
    /// As [`parse`](Self::parse), and those of reading.
    pub fn read(path: &Path) -> Result<Self> {
        Self::parse(&read_host_file(path, MAX_TRANSCRIPT_BYTES)?)
    }

    /// Reads the text of a transcript. A last line that was cut is left out.
    ///
    /// # Errors
    /// [`InvalidConfig`](crate::ErrorKind::InvalidConfig): another form or version, or a line that can't be read.
    pub fn parse(text: &[u8]) -> Result<Self> {
        let mut lines = text.split(|byte| *byte == b'\n').enumerate().filter(|(_, line)| !line.is_empty()).peekable();
        let header = lines.next().and_then(|(_, line)| serde_json::from_slice::<Header>(line).ok());
        match header {
            Some(header) if header.transcript == FORM && header.version == VERSION => {}
            Some(header) if header.transcript == FORM => {
                return Err(SkillRuntimeError::invalid(format!(
                    "the transcript has version {}, this skillcell reads version {VERSION}",
                    header.version
                )));
            }
            _ => {
                return Err(SkillRuntimeError::invalid(
                    "this is no transcript of an agent's run: its first line says so",
                ));
            }
        }
        let (mut events, mut cut) = (Vec::new(), false);
        while let Some((number, line)) = lines.next() {
            match serde_json::from_slice(line) {
                Ok(event) => events.push(event),
                // Written before the machine went down; later lines can only be of a run that went on.
                Err(_) if lines.peek().is_none_or(|(_, next)| next.starts_with(b"{\"event\":\"run_resumed\"")) => {
                    cut = true
                }
                Err(error) => {
                    return Err(SkillRuntimeError::invalid(format!(
                        "line {} of the transcript can't be read",
                        number + 1
                    ))
                    .caused_by(error));
                }
            }
        }
        if !matches!(events.first(), Some(AgentEvent::RunStarted { .. })) {
            return Err(SkillRuntimeError::invalid("the transcript doesn't begin with the start of a run"));
        }
        Ok(Self { events, cut })
    }

    /// The events.
    #[must_use]
    pub fn events(&self) -> &[AgentEvent] {
        &self.events
    }

    /// Whether a line was cut.
    #[must_use]
    pub fn was_cut(&self) -> bool {
        self.cut
    }

    /// The model's name.
    #[must_use]
    pub fn model(&self) -> &str {
        match self.events.first() {
            Some(AgentEvent::RunStarted { model, .. }) => model,
            _ => "",
        }
    }

    /// The digest of the skill's tree.
    #[must_use]
    pub fn skill_digest(&self) -> &str {
        match self.events.first() {
            Some(AgentEvent::RunStarted { skill_digest, .. }) => skill_digest,
            _ => "",
        }
    }

    /// Whether the run ended, and how.
    #[must_use]
    pub fn finished(&self) -> Option<super::StopReason> {
        match self.events.last() {
            Some(AgentEvent::RunFinished { stop, .. }) => Some(*stop),
            _ => None,
        }
    }

    /// The model's turns.
    #[must_use]
    pub fn turns(&self) -> Vec<Turn> {
        let turn = |event: &AgentEvent| {
            let AgentEvent::ModelTurn { turn, stop, usage, .. } = event else { return None };
            Some(Turn { assistant: turn.clone(), stop: stop.clone(), usage: *usage })
        };
        self.events.iter().filter_map(turn).collect()
    }

    /// The conversation, and what was used, for a run that goes on. Calls without an end are told to the model as
    /// interrupted.
    #[must_use]
    pub fn conversation(&self) -> Conversation {
        let mut all = Conversation::default();
        let mut begun: Vec<String> = Vec::new();
        for event in &self.events {
            match event {
                AgentEvent::RunStarted { task, system, .. } => {
                    all.system.clone_from(system);
                    all.messages.push(Message::User { text: task.clone() });
                }
                AgentEvent::Note { text } => all.messages.push(Message::User { text: text.clone() }),
                AgentEvent::ModelTurn { turn, usage, round, .. } => {
                    all.rounds = *round;
                    all.usage.add(*usage);
                    all.messages.push(Message::Assistant(turn.clone()));
                    begun.clear();
                }
                AgentEvent::ModelRetry { usage, .. } => all.usage.add(*usage),
                AgentEvent::ToolStarted { call_id, .. } => {
                    all.tool_calls += 1;
                    begun.push(call_id.clone());
                }
                AgentEvent::ToolFinished { call_id, tool, outcome, content, .. } => {
                    begun.retain(|begun| begun != call_id);
                    let result = ToolResult {
                        call_id: call_id.clone(),
                        name: tool.clone(),
                        content: content.clone(),
                        is_error: outcome.is_error(),
                    };
                    match all.messages.last_mut() {
                        Some(Message::ToolResults { results }) => results.push(result),
                        _ => all.messages.push(Message::ToolResults { results: vec![result] }),
                    }
                }
                AgentEvent::RunResumed { .. }
                | AgentEvent::ModelDelta { .. }
                | AgentEvent::Compacted { .. }
                | AgentEvent::RunFinished { .. } => {}
            }
        }
        all.interrupted = begun;
        super::context::pair(&mut all.messages);
        all
    }
}

/// Where a run stood.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Conversation {
    /// The system prompt.
    pub system: String,
    /// The messages, every call with a result.
    pub messages: Vec<Message>,
    /// Turns so far.
    pub rounds: u32,
    /// Calls so far.
    pub tool_calls: u32,
    /// Tokens so far.
    pub usage: super::model::TokenUsage,
    /// Ids of calls that were begun in the last turn and have no end.
    pub interrupted: Vec<String>,
}
