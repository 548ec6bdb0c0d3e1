//! Does the calls of one turn: begun in order, reads side by side, everything else one at a time.
//!
//! Invariants: each call gets exactly one result and one end event; a call that was begun and stopped is *interrupted*,
//! one that wasn't is *not started*; nothing is begun after the run has to end.

use std::collections::HashSet;

use futures_util::future::join_all;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::approve::{Approval, Approver, ProposedCall};
use super::budget::{Meter, Spent};
use super::events::{AgentEvent, AgentSink, ToolOutcome};
use super::guard::{LoopGuard, Verdict};
use super::model::{RawToolCall, ToolResult};
use super::outcome::StopReason;
use super::screen::{ResultScreen, Screened};
use super::toolbox::{Executed, Toolbox};
use super::tools::{Tool, ToolCall, canonical, decode};
use crate::audit::Layer;
use crate::error::Result;

/// The calls of one turn.
pub(super) struct Turnwork<'a> {
    pub(super) toolbox: Toolbox<'a>,
    pub(super) offered: &'a [Tool],
    pub(super) approver: Option<&'a dyn Approver>,
    pub(super) screen: &'a dyn ResultScreen,
    pub(super) events: &'a dyn AgentSink,
    pub(super) cancel: &'a CancellationToken,
    pub(super) meter: &'a mut Meter,
    pub(super) guard: &'a mut LoopGuard,
    pub(super) denied: &'a mut HashSet<(String, String)>,
    pub(super) round: u32,
    /// The turn was cut at its limit, so its last call may be too.
    pub(super) cut: bool,
}

/// What came of them.
#[derive(Debug)]
pub(super) struct CallsEnded {
    pub(super) results: Vec<ToolResult>,
    /// Why the run must end, if it must.
    pub(super) end: Option<(StopReason, String)>,
    /// Not one call could be understood.
    pub(super) all_invalid: bool,
}

/// A call that was looked at.
enum Looked {
    Ready(Tool, ToolCall),
    Answered(Executed),
}

struct Ran {
    executed: Executed,
    seconds: f64,
}

impl Turnwork<'_> {
    /// Ends every call without beginning it.
    pub(super) fn refuse(&mut self, calls: &[RawToolCall], why: &str) -> Result<CallsEnded> {
        let mut results = Vec::new();
        for (index, call) in calls.iter().enumerate() {
            let executed = Executed::new(ToolOutcome::NotStarted, why);
            results.push(self.finished(index, call, executed, 0.0)?);
        }
        Ok(CallsEnded { results, end: None, all_invalid: false })
    }

    pub(super) async fn run(&mut self, calls: &[RawToolCall]) -> Result<CallsEnded> {
        let mut results: Vec<ToolResult> = Vec::new();
        let mut end: Option<(StopReason, String)> = None;
        let mut understood = 0usize;
        let mut index = 0;
        // A call that was looked at for a batch it doesn't belong to: looking twice would deny twice.
        let mut looked: Option<Looked> = None;
        while let Some(call) = calls.get(index) {
            if end.is_some() || index >= self.meter.calls_per_turn() {
                let why = match &end {
                    Some((stop, _)) => format!("[Error: not started: the run ends ({stop})]"),
                    None => format!(
                        "[Error: not started: at most {} calls in one turn; ask again]",
                        self.meter.calls_per_turn()
                    ),
                };
                results.push(self.finished(index, call, Executed::new(ToolOutcome::NotStarted, why), 0.0)?);
                index += 1;
                continue;
            }
            let found = match looked.take() {
                Some(found) => found,
                None => self.look(index, call, calls.len()).await?,
            };
            let (tool, ready) = match found {
                Looked::Ready(tool, ready) => (tool, ready),
                Looked::Answered(executed) => {
                    understood += usize::from(executed.outcome != ToolOutcome::Invalid);
                    results.push(self.finished(index, call, executed, 0.0)?);
                    index += 1;
                    continue;
                }
            };
            understood += 1;
            let mut batch = vec![(index, ready)];
            // Reads that follow each other run side by side.
            while tool.only_reads() && index + batch.len() < self.meter.calls_per_turn() {
                let next = index + batch.len();
                let Some(call) = calls.get(next) else { break };
                if !Tool::from_name(&call.name).is_some_and(Tool::only_reads) {
                    break;
                }
                match self.look(next, call, calls.len()).await? {
                    Looked::Ready(_, ready) => batch.push((next, ready)),
                    answered @ Looked::Answered(_) => {
                        looked = Some(answered);
                        break;
                    }
                }
                understood += 1;
            }
            let count = batch.len();
            end = self.batch(calls, batch, &mut results).await?;
            index += count;
        }
        Ok(CallsEnded { results, end, all_invalid: understood == 0 })
    }

    /// Understands a call, and asks whether it may be done. Emits nothing but denials.
    async fn look(&mut self, index: usize, call: &RawToolCall, count: usize) -> Result<Looked> {
        let names: Vec<&str> = self.offered.iter().map(|tool| tool.name()).collect();
        let tool = match Tool::from_name(&call.name) {
            Some(tool) if self.offered.contains(&tool) => tool,
            Some(tool) => {
                let reason =
                    format!("the skill's allowed-tools leave out {}; there are: {}", tool.name(), names.join(", "));
                return Ok(Looked::Answered(self.toolbox.deny("tool", tool.name(), &reason)));
            }
            None => {
                let shown: String = call.name.chars().take(80).flat_map(char::escape_debug).collect();
                let text = format!("[Unknown tool: {shown}. There are: {}]", names.join(", "));
                return Ok(Looked::Answered(Executed::new(ToolOutcome::Invalid, text)));
            }
        };
        let ready = match decode(tool, &call.arguments) {
            Ok(ready) => ready,
            Err(mut text) => {
                if self.cut && index + 1 == count {
                    text.push_str(
                        "\n[The turn was cut at the limit of its length, and this call with it. Write less at once.]",
                    );
                }
                return Ok(Looked::Answered(Executed::new(ToolOutcome::Invalid, text)));
            }
        };
        if tool.only_reads() {
            return Ok(Looked::Ready(tool, ready));
        }
        let Some(approver) = self.approver else { return Ok(Looked::Ready(tool, ready)) };
        let key = (call.name.clone(), canonical(&call.arguments));
        if self.denied.contains(&key) {
            return Ok(Looked::Answered(self.toolbox.deny("approve", tool.name(), "this call was rejected before")));
        }
        let proposed = ProposedCall { tool: tool.name(), arguments: key.1.clone() };
        let answer = tokio::select! {
            biased;
            () = self.cancel.cancelled() => Approval::Rejected("the run was cancelled before anybody answered".to_owned()),
            () = tokio::time::sleep_until(self.meter.deadline()) => {
                Approval::Rejected("nobody answered before the time budget ended".to_owned())
            }
            answer = approver.approve(&proposed) => answer,
        };
        match answer {
            Approval::Approved => {
                self.toolbox.handle.audit().allow(Layer::Step, "approve", tool.name(), "the approver said yes")?;
                Ok(Looked::Ready(tool, ready))
            }
            Approval::Rejected(reason) => {
                self.denied.insert(key);
                Ok(Looked::Answered(self.toolbox.deny("approve", tool.name(), &format!("it was rejected: {reason}"))))
            }
        }
    }

    /// Does calls side by side; gives why the run must end, if it must.
    async fn batch(
        &mut self,
        calls: &[RawToolCall],
        batch: Vec<(usize, ToolCall)>,
        results: &mut Vec<ToolResult>,
    ) -> Result<Option<(StopReason, String)>> {
        let mut begun = Vec::new();
        let mut end = None;
        for (index, ready) in batch {
            let Some(call) = calls.get(index) else { continue };
            if self.cancel.is_cancelled() {
                end = Some((StopReason::Cancelled, "cancelled between two calls".to_owned()));
            } else if let Some(spent) = self.meter.before_call() {
                end = Some(match spent {
                    Spent::ToolCalls => (StopReason::ToolCalls, "the run has no tool calls left".to_owned()),
                    Spent::Deadline | Spent::Rounds | Spent::Tokens | Spent::Cost => {
                        (StopReason::Deadline, "the time budget is used up".to_owned())
                    }
                });
            } else {
                self.meter.tool_calls += 1;
                self.events.event(&AgentEvent::ToolStarted {
                    round: self.round,
                    index,
                    call_id: call.id.clone(),
                    tool: call.name.clone(),
                    arguments: self.toolbox.bounds.redact(&canonical(&call.arguments)),
                })?;
            }
            begun.push((index, ready, end.is_some()));
        }
        let (toolbox, round) = (&self.toolbox, self.round);
        let (cancel, deadline) = (self.cancel, self.meter.deadline());
        let work = begun.iter().map(|(index, ready, skipped)| async move {
            if *skipped {
                let text = "[Error: not started: the run ends]";
                return (Ok(Ran { executed: Executed::new(ToolOutcome::NotStarted, text), seconds: 0.0 }), None);
            }
            let started = Instant::now();
            let name = format!("{round}-{index}");
            // Dropping the future ends the script and everything it started.
            let (executed, end) = tokio::select! {
                biased;
                () = cancel.cancelled() => (Ok(interrupted()), Some((StopReason::Cancelled, "cancelled during a call".to_owned()))),
                () = tokio::time::sleep_until(deadline) => {
                    (Ok(interrupted()), Some((StopReason::Deadline, "the time budget ended during a call".to_owned())))
                }
                executed = toolbox.execute(ready, &name) => (executed, None),
            };
            (executed.map(|executed| Ran { executed, seconds: started.elapsed().as_secs_f64() }), end)
        });
        let ran = join_all(work).await;
        for ((index, _, _), (ran, ended)) in begun.iter().zip(ran) {
            let Some(call) = calls.get(*index) else { continue };
            end = end.or(ended);
            let Ran { mut executed, seconds } = match ran {
                Ok(ran) => ran,
                Err(error) => {
                    end = Some((StopReason::SandboxFailed, error.chain().join(": ")));
                    Ran {
                        executed: Executed::new(
                            ToolOutcome::Interrupted,
                            "[Error: the sandbox failed during this call]",
                        ),
                        seconds: 0.0,
                    }
                }
            };
            if !matches!(executed.outcome, ToolOutcome::NotStarted | ToolOutcome::Interrupted) {
                executed = self.screened(&call.name, executed)?;
                match self.guard.take(&call.name, &canonical(&call.arguments), &executed.content) {
                    Verdict::Fine => {}
                    Verdict::Warn(count) => {
                        executed.outcome = ToolOutcome::Invalid;
                        executed.content = format!(
                            "[Error: this is call {count} of the same kind with the same result. Do something else, or give your final answer.]"
                        );
                    }
                    Verdict::Stop(count) => {
                        executed.outcome = ToolOutcome::Invalid;
                        executed.content =
                            format!("[Error: call {count} of the same kind with the same result; the run ends]");
                        end = end.or(Some((
                            StopReason::LoopDetected,
                            format!("the model called {} {count} times with the same arguments and result", call.name),
                        )));
                    }
                }
            }
            results.push(self.finished(*index, call, executed, seconds)?);
        }
        Ok(end)
    }

    /// Lets the screen look at what a script or a file said. Words of our own are not looked at.
    fn screened(&self, name: &str, executed: Executed) -> Result<Executed> {
        let Some(tool) = Tool::from_name(name) else { return Ok(executed) };
        let foreign = match tool {
            Tool::RunScript | Tool::ReadFile | Tool::ReadResource | Tool::ListResources => true,
            Tool::WriteFile => false,
        };
        if !foreign || matches!(executed.outcome, ToolOutcome::Denied | ToolOutcome::Invalid) {
            return Ok(executed);
        }
        let audit = self.toolbox.handle.audit();
        match self.screen.screen(tool, &executed.content) {
            Screened::Pass => Ok(executed),
            Screened::Annotate(note) => {
                audit.allow(Layer::Step, "screen", tool.name(), &note)?;
                Ok(Executed { content: format!("[Note: {note}]\n{}", executed.content), ..executed })
            }
            Screened::Redact { text, reason } => {
                audit.allow(Layer::Step, "screen", tool.name(), &reason)?;
                Ok(Executed { content: text, ..executed })
            }
            Screened::Withhold(reason) => {
                Ok(self.toolbox.deny("screen", tool.name(), &format!("the result is held back: {reason}")))
            }
        }
    }

    fn finished(&self, index: usize, call: &RawToolCall, executed: Executed, duration: f64) -> Result<ToolResult> {
        let name: String = call.name.chars().take(80).collect();
        self.events.event(&AgentEvent::ToolFinished {
            round: self.round,
            index,
            call_id: call.id.clone(),
            tool: name.clone(),
            outcome: executed.outcome,
            content: executed.content.clone(),
            omitted_bytes: executed.omitted,
            duration,
        })?;
        Ok(ToolResult {
            call_id: call.id.clone(),
            name,
            content: executed.content,
            is_error: executed.outcome.is_error(),
        })
    }
}

fn interrupted() -> Executed {
    Executed::new(ToolOutcome::Interrupted, "[interrupted: the call was running when the run ended, and was stopped]")
}
