//! Does what a call asks, through the runtime's own file calls and `run`.
//!
//! Invariants: every path is a guest path, resolved by component; only files of the skill are run; a refusal emits one
//! audit event; a failure of the sandbox itself is an error, everything else is text for the model.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::bound::{Bounds, spill};
use super::events::ToolOutcome;
use super::tools::{PAGE_BYTES, ToolCall};
use crate::audit::Layer;
use crate::error::{ErrorKind, Result, SkillRuntimeError};
use crate::runtime::{
    OutputSink, RuntimeRunResult, SkillRuntime, SkillRuntimeHandle, Stdin, Stream, Termination, command_for_script,
};
use crate::skill::LoadedSkill;
use crate::workspace::{Area, EntryKind, GuestPath};

/// Bytes of a file that can be paged through.
const MAX_FILE_BYTES: u64 = 64 << 20;
/// Bytes of each stream that are held to be spilled. What a script writes over this is counted, not kept.
const MAX_SPILLED_BYTES: usize = 16 << 20;
/// Entries of a listing that are shown.
const MAX_LISTED: usize = 500;

/// What came of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Executed {
    pub(super) outcome: ToolOutcome,
    pub(super) content: String,
    pub(super) omitted: u64,
}

impl Executed {
    pub(super) fn new(outcome: ToolOutcome, content: impl Into<String>) -> Self {
        Self { outcome, content: content.into(), omitted: 0 }
    }
}

/// Everything a call may touch.
pub(super) struct Toolbox<'a> {
    pub(super) runtime: &'a dyn SkillRuntime,
    pub(super) handle: &'a SkillRuntimeHandle,
    pub(super) skill: &'a LoadedSkill,
    pub(super) bounds: &'a Bounds,
    /// Hears the output of scripts as it comes.
    pub(super) output: Option<Arc<dyn OutputSink>>,
}

impl Toolbox<'_> {
    /// Does one call. `spill_name` is unique in the run.
    ///
    /// # Errors
    /// Only when the sandbox itself failed.
    pub(super) async fn execute(&self, call: &ToolCall, spill_name: &str) -> Result<Executed> {
        match call {
            ToolCall::RunScript { script_path, args, stdin, timeout } => {
                self.run_script(script_path, args, stdin.as_deref(), *timeout, spill_name).await
            }
            ToolCall::ReadFile { path, offset, limit } => match GuestPath::resolve(&Area::Skill.guest_path(), path) {
                Ok(guest) => self.page("read_file", &guest, *offset, *limit).await,
                Err(error) => self.refused("read_file", path, error),
            },
            ToolCall::WriteFile { filename, content } => self.write_file(filename, content).await,
            ToolCall::ListResources { path: None } => Ok(Executed::new(ToolOutcome::Done, self.resources())),
            ToolCall::ListResources { path: Some(path) } => self.list(path).await,
            ToolCall::ReadResource { path, offset } => self.read_resource(path, *offset).await,
        }
    }

    /// Records a refusal, once, and words it for the model.
    pub(super) fn deny(&self, action: &'static str, object: &str, reason: &str) -> Executed {
        self.handle.audit().deny(Layer::Files, action, object, reason);
        Executed::new(
            ToolOutcome::Denied,
            format!("[Denied: {reason}. Don't try this again; it will be refused again.]"),
        )
    }

    /// An error of a path or a file call: a refusal, a mistake, or a failure of the sandbox.
    fn refused(&self, action: &'static str, object: &str, error: SkillRuntimeError) -> Result<Executed> {
        match error.kind() {
            ErrorKind::PathDenied | ErrorKind::TrustViolation | ErrorKind::PolicyUnenforceable => {
                Ok(self.deny(action, object, &error.to_string()))
            }
            ErrorKind::NotFound | ErrorKind::InvalidConfig | ErrorKind::LimitExceeded => {
                Ok(Executed::new(ToolOutcome::Invalid, format!("[Error: {error}]")))
            }
            ErrorKind::UnknownRuntime
            | ErrorKind::Unavailable
            | ErrorKind::Backend
            | ErrorKind::Cancelled
            | ErrorKind::Internal => Err(error.operation(action)),
        }
    }

    async fn run_script(
        &self,
        script_path: &str,
        args: &[String],
        stdin: Option<&str>,
        timeout: Option<Duration>,
        spill_name: &str,
    ) -> Result<Executed> {
        let mut command = match command_for_script(&self.skill.verified, Some(script_path), args) {
            Ok(command) => command,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Ok(Executed::new(ToolOutcome::Invalid, format!("[Error: script not found: {error}]")));
            }
            Err(error) => return self.refused("run_script", script_path, error),
        };
        if let Some(text) = stdin {
            command.stdin = Stdin::Bytes(text.to_owned().into());
        }
        let spool = Arc::new(Spool { stdout: Mutex::default(), stderr: Mutex::default(), next: self.output.clone() });
        command.sink = Some(spool.clone());
        let limit = self.handle.policy().limits.wall_time;
        let own = timeout.filter(|asked| *asked < limit);
        self.handle.audit().allow(Layer::Runtime, "run_script", script_path, "")?;
        let run = self.runtime.run(self.handle, &command);
        let ended = match own {
            None => Ok(run.await),
            // Dropping the future ends the script and all it started.
            Some(own) => tokio::time::timeout(own, run).await,
        };
        let run = match ended {
            Ok(Ok(run)) => Some(run),
            Ok(Err(error)) => return self.refused("run_script", script_path, error),
            Err(_) => None,
        };
        self.report(run.as_ref(), &spool, own.unwrap_or(limit), spill_name).await
    }

    /// What the model is told of a run: CARL's words, and what is missing said first.
    async fn report(
        &self,
        run: Option<&RuntimeRunResult>,
        spool: &Spool,
        limit: Duration,
        spill_name: &str,
    ) -> Result<Executed> {
        let (out, err) = (spool.take(Stream::Stdout, run), spool.take(Stream::Stderr, run));
        let mut notes = Vec::new();
        let mut omitted = 0;
        let mut shown = Vec::new();
        for (name, stream) in [("stdout", &out), ("stderr", &err)] {
            let part = self.bounds.show(&stream.bytes);
            let missing = part.omitted + (stream.total - stream.bytes.len() as u64);
            if missing > 0 {
                let path =
                    spill(self.runtime, self.handle, &format!("{spill_name}.{name}"), &self.bounds.mask(&stream.bytes))
                        .await;
                notes.push(match path {
                    Ok(path) if stream.bytes.len() as u64 == stream.total => {
                        format!("[{name}: {missing} of {} bytes are not shown; read the whole in {path}]", stream.total)
                    }
                    Ok(path) => format!(
                        "[{name}: {missing} of {} bytes are not shown; the first {} are in {path}, the rest was not kept]",
                        stream.total,
                        stream.bytes.len()
                    ),
                    Err(error) => format!("[{name}: {missing} of {} bytes are not shown, and could not be kept: {error}]", stream.total),
                });
                omitted += missing;
            }
            if part.lossy {
                notes.push(format!("[{name}: some bytes are not UTF-8 and were replaced]"));
            }
            shown.push(part.text);
        }
        let termination = run.map_or(Termination::TimedOut, |run| run.termination.clone());
        let outcome = match termination {
            Termination::TimedOut => ToolOutcome::TimedOut,
            Termination::Cancelled => ToolOutcome::Interrupted,
            Termination::Exited(_)
            | Termination::Signaled(_)
            | Termination::OutOfFuel
            | Termination::OutOfMemory
            | Termination::OutputLimit
            | Termination::DiskLimit
            | Termination::ProcessLimit
            | Termination::Trapped(_) => ToolOutcome::Done,
        };
        match termination {
            Termination::Exited(0) => {}
            Termination::Exited(code) => notes.push(format!("[exit code {code}]")),
            Termination::TimedOut => {
                notes.push(format!(
                    "[Error: script timed out after {}s; what it wrote until then follows]",
                    limit.as_secs_f64()
                ));
            }
            Termination::Signaled(_)
            | Termination::OutOfFuel
            | Termination::OutOfMemory
            | Termination::OutputLimit
            | Termination::DiskLimit
            | Termination::ProcessLimit
            | Termination::Trapped(_)
            | Termination::Cancelled => notes.push(format!("[Error: script {termination}]")),
        }
        let [stdout, stderr] = shown.as_slice() else {
            return Ok(Executed::new(ToolOutcome::Invalid, "[Error: the output could not be read]"));
        };
        let mut text = notes.join("\n");
        if !text.is_empty() {
            text.push('\n');
        }
        match (stdout.is_empty(), stderr.is_empty()) {
            (true, true) => text.push_str("(empty output)"),
            (_, true) => text.push_str(stdout),
            (_, false) => text.push_str(&format!("{stdout}\n[stderr]: {stderr}")),
        }
        Ok(Executed { outcome, content: text, omitted })
    }

    async fn write_file(&self, filename: &str, content: &str) -> Result<Executed> {
        let guest = match GuestPath::resolve(&Area::Out.guest_path(), filename) {
            Ok(guest) => guest,
            Err(error) => return self.refused("write_file", filename, error),
        };
        match self.runtime.write_file(self.handle, &guest, content.as_bytes()).await {
            Ok(()) => {
                self.handle.audit().allow(Layer::Files, "write_file", &guest.to_string(), "")?;
                Ok(Executed::new(ToolOutcome::Done, format!("Written {} bytes to {guest}", content.len())))
            }
            Err(error) => self.refused("write_file", &guest.to_string(), error),
        }
    }

    async fn read_resource(&self, path: &str, offset: u64) -> Result<Executed> {
        // CARL strips leading slashes here: `/references/x` is meant from the skill's root.
        let inside = path.trim_start_matches('/');
        let relative = inside.strip_prefix("workspace/skill/").unwrap_or(inside);
        match Area::Skill.guest_path().join(relative) {
            Ok(guest) => self.page("read_resource", &guest, offset, PAGE_BYTES).await,
            Err(error) => self.refused("read_resource", path, error),
        }
    }

    /// One page of a file, beginning and ending at whole characters.
    async fn page(&self, action: &'static str, path: &GuestPath, offset: u64, limit: u64) -> Result<Executed> {
        let bytes = match self.runtime.read_file(self.handle, path, MAX_FILE_BYTES).await {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Ok(Executed::new(ToolOutcome::Invalid, format!("[Error: file not found: {path}]")));
            }
            Err(error) => return self.refused(action, &path.to_string(), error),
        };
        let total = bytes.len() as u64;
        if offset > total {
            return Ok(Executed::new(
                ToolOutcome::Invalid,
                format!("[Error: {path} has {total} bytes; offset {offset} is after its end]"),
            ));
        }
        let masked = self.bounds.mask(&bytes);
        let begins = |index: usize| masked.get(index).is_none_or(|byte| byte & 0xc0 != 0x80);
        let start = usize::try_from(offset).unwrap_or(masked.len());
        let mut end = start.saturating_add(usize::try_from(limit).unwrap_or(usize::MAX)).min(masked.len());
        // Bytes that are no UTF-8 have no beginning to find: four steps are enough for any character.
        for _ in 0..3 {
            if end > start + 1 && !begins(end) {
                end -= 1;
            }
        }
        let shown = self.bounds.show(masked.get(start..end).unwrap_or_default());
        let mut notes = String::new();
        if start > 0 || end < masked.len() {
            let next = if end < masked.len() { format!("; continue with offset {end}") } else { String::new() };
            notes = format!("[bytes {start} to {end} of {total}{next}]\n");
        }
        if shown.lossy {
            notes.push_str("[some bytes are not UTF-8 and were replaced]\n");
        }
        let text = if shown.text.is_empty() { "(empty)" } else { &shown.text };
        Ok(Executed { outcome: ToolOutcome::Done, content: format!("{notes}{text}"), omitted: shown.omitted })
    }

    async fn list(&self, path: &str) -> Result<Executed> {
        let guest = match GuestPath::resolve(&Area::Skill.guest_path(), path) {
            Ok(guest) => guest,
            Err(error) => return self.refused("list_resources", path, error),
        };
        match self.runtime.list_files(self.handle, &guest).await {
            Ok(entries) => {
                let mut lines: Vec<String> = entries
                    .iter()
                    .take(MAX_LISTED)
                    .map(|entry| {
                        let name = entry.name.escape_debug();
                        match entry.kind {
                            EntryKind::File => format!("{name} ({} bytes)", entry.size),
                            EntryKind::Folder => format!("{name}/"),
                            EntryKind::Link => format!("{name} (a link, not followed)"),
                            EntryKind::Special => format!("{name} (a special file)"),
                        }
                    })
                    .collect();
                if entries.len() > MAX_LISTED {
                    lines.push(format!("[{} more are not shown]", entries.len() - MAX_LISTED));
                }
                let text = if lines.is_empty() { "(empty)".to_owned() } else { lines.join("\n") };
                Ok(Executed::new(ToolOutcome::Done, format!("**{guest}:**\n{text}")))
            }
            Err(error) => self.refused("list_resources", &guest.to_string(), error),
        }
    }

    /// The skill's files, in CARL's form.
    fn resources(&self) -> String {
        let all = &self.skill.resources;
        let mut lines = Vec::new();
        for (title, paths) in [
            ("Scripts", &all.scripts),
            ("References", &all.references),
            ("Assets", &all.assets),
            ("Other files", &all.other),
        ] {
            if !paths.is_empty() {
                let shown: Vec<String> =
                    paths.iter().take(MAX_LISTED).map(|path| path.escape_debug().to_string()).collect();
                let more = paths.len().saturating_sub(MAX_LISTED);
                let more = if more > 0 { format!(" [{more} more are not shown]") } else { String::new() };
                lines.push(format!("{title}: {}{more}", shown.join(", ")));
            }
        }
        if lines.is_empty() {
            "(no bundled resources)".to_owned()
        } else {
            format!("**Skill resources:**\n{}", lines.join("\n"))
        }
    }
}

/// Holds what a script writes, so that it can be spilled whole, and shown when the script was stopped.
struct Spool {
    stdout: Mutex<Held>,
    stderr: Mutex<Held>,
    next: Option<Arc<dyn OutputSink>>,
}

#[derive(Debug, Clone, Default)]
struct Held {
    bytes: Vec<u8>,
    total: u64,
}

impl Spool {
    fn of(&self, stream: Stream) -> &Mutex<Held> {
        match stream {
            Stream::Stdout => &self.stdout,
            Stream::Stderr => &self.stderr,
        }
    }

    /// What was held; for a runtime that doesn't report output as it comes, what its result kept.
    fn take(&self, stream: Stream, run: Option<&RuntimeRunResult>) -> Held {
        let held = std::mem::take(&mut *self.of(stream).lock().unwrap_or_else(PoisonError::into_inner));
        let captured = run.map(|run| match stream {
            Stream::Stdout => &run.stdout,
            Stream::Stderr => &run.stderr,
        });
        match captured {
            Some(captured) if captured.total() > held.total => Held {
                bytes: captured.bytes().into_owned(),
                total: captured.total().max(captured.bytes().len() as u64),
            },
            Some(_) | None => held,
        }
    }
}

impl OutputSink for Spool {
    fn write(&self, stream: Stream, bytes: &[u8]) {
        let mut held = self.of(stream).lock().unwrap_or_else(PoisonError::into_inner);
        held.total += bytes.len() as u64;
        let room = MAX_SPILLED_BYTES.saturating_sub(held.bytes.len()).min(bytes.len());
        held.bytes.extend_from_slice(bytes.get(..room).unwrap_or_default());
        drop(held);
        if let Some(next) = &self.next {
            next.write(stream, bytes);
        }
    }
}
