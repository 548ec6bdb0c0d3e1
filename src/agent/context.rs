//! Keeps the conversation well formed and within the model's context, without asking a model.
//!
//! Invariants: before each request every call has exactly one result, placed next; the task and the skill's text are
//! never taken out; each step makes the conversation smaller, so the same one is never sent twice after an overflow.

use super::model::{Message, ToolResult, ToolSpec};

/// Bytes of a token, low, so that the estimate is high: 3 suits code and JSON; prose has 4.
const BYTES_PER_TOKEN: u64 = 3;
/// Part of the context that a conversation may fill, in percent; the estimate may be off.
const FILL_PERCENT: u64 = 90;
/// Rounds at the end whose results stay whole: the model works with them now.
const KEPT_ROUNDS: usize = 2;
/// Shorter results gain nothing as stubs.
const STUB_BYTES: usize = 400;

/// What was taken out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Compaction {
    pub(super) stubbed: usize,
    pub(super) dropped: usize,
}

/// Tokens of a request, estimated.
pub(super) fn estimate(system: &str, tools: &[ToolSpec], messages: &[Message]) -> u64 {
    let tools: usize = tools.iter().map(|tool| tool.description.len() + tool.parameters.to_string().len()).sum();
    let messages: usize = messages.iter().map(size).sum();
    ((system.len() + tools + messages) as u64).div_ceil(BYTES_PER_TOKEN)
}

fn size(message: &Message) -> usize {
    // Around each message and call stand some bytes of the wire.
    const FRAME: usize = 24;
    FRAME
        + match message {
            Message::User { text } => text.len(),
            Message::Assistant(turn) => {
                let calls = turn.calls.iter().map(|call| call.name.len() + call.arguments.len() + FRAME).sum::<usize>();
                turn.provider.as_ref().map_or(turn.text.len() + calls, |blocks| blocks.to_string().len())
            }
            Message::ToolResults { results } => results.iter().map(|result| result.content.len() + FRAME).sum(),
        }
}

/// The most tokens of a request, given what the model holds and what its answer may take.
pub(super) fn room(max_context: Option<u64>, answer: u32) -> Option<u64> {
    let context = max_context?;
    // An answer limit as large as the context would leave no room at all.
    let answer = u64::from(answer).min(context / 2);
    Some((context - answer) * FILL_PERCENT / 100)
}

/// Shrinks the conversation until it has at most `target` tokens: old results become stubs, oldest first; then old
/// rounds go. Gives what was taken out; nothing when nothing is left to take.
pub(super) fn shrink(system: &str, tools: &[ToolSpec], messages: &mut Vec<Message>, target: u64) -> Compaction {
    let mut done = Compaction::default();
    let rounds: Vec<usize> = messages
        .iter()
        .enumerate()
        .filter_map(|(index, message)| matches!(message, Message::ToolResults { .. }).then_some(index))
        .collect();
    let old = rounds.len().saturating_sub(KEPT_ROUNDS);
    for index in rounds.iter().take(old) {
        if estimate(system, tools, messages) <= target {
            return done;
        }
        done.stubbed += messages.get_mut(*index).map_or(0, stub_all);
    }
    // The first message is the task. A round is dropped whole, so that no call loses its result.
    while estimate(system, tools, messages) > target {
        let Some(start) = messages.iter().position(|message| matches!(message, Message::Assistant(_))) else { break };
        let later = messages.iter().skip(start + 1).position(|message| matches!(message, Message::Assistant(_)));
        let Some(length) = later.map(|later| later + 1) else { break };
        let left =
            messages.iter().skip(start + length).filter(|message| matches!(message, Message::Assistant(_))).count();
        if left < KEPT_ROUNDS {
            break;
        }
        messages.drain(start..start + length);
        done.dropped += 1;
    }
    // Then all but the newest results, whole rounds of them having stayed until now.
    let newest = messages.iter().rposition(|message| matches!(message, Message::ToolResults { .. }));
    for index in 0..newest.unwrap_or(0) {
        if estimate(system, tools, messages) <= target {
            break;
        }
        done.stubbed += messages.get_mut(index).map_or(0, stub_all);
    }
    if done.dropped > 0 {
        let note = "[Earlier rounds were left out to save room. Files that were written are still in /workspace/out and \
                    /workspace/tmp.]";
        let is_note = |message: &Message| matches!(message, Message::User { text } if text == note);
        if !messages.iter().any(is_note) {
            messages.insert(1.min(messages.len()), Message::User { text: note.to_owned() });
        }
    }
    done
}

/// Makes stubs of a round's long results; gives how many.
fn stub_all(message: &mut Message) -> usize {
    let Message::ToolResults { results } = message else { return 0 };
    let long = results.iter_mut().filter(|result| result.content.len() > STUB_BYTES);
    long.map(|result| result.content = stub(result)).count()
}

/// What stays of a result: its first line, and where the whole is.
fn stub(result: &ToolResult) -> String {
    let first = result.content.lines().next().unwrap_or("");
    let first = first.get(..super::bound::floor(first, 200)).unwrap_or("");
    format!(
        "{first}\n[The rest of this result, {} bytes, was taken out to save room. Call {} again if you need it.]",
        result.content.len() - first.len(),
        result.name
    )
}

/// Gives every call exactly one result, placed next, and drops results that belong to no call.
pub(super) fn pair(messages: &mut Vec<Message>) {
    let mut paired = Vec::with_capacity(messages.len());
    let mut rest = std::mem::take(messages).into_iter().peekable();
    while let Some(message) = rest.next() {
        match message {
            // Without calls before it, a result means nothing and providers refuse it.
            Message::ToolResults { .. } => {}
            Message::Assistant(turn) if !turn.calls.is_empty() => {
                let mut given = match rest.next_if(|next| matches!(next, Message::ToolResults { .. })) {
                    Some(Message::ToolResults { results }) => results,
                    _ => Vec::new(),
                };
                let results = turn
                    .calls
                    .iter()
                    .map(|call| match given.iter().position(|result| result.call_id == call.id) {
                        Some(index) => given.remove(index),
                        None => ToolResult {
                            call_id: call.id.clone(),
                            name: call.name.clone(),
                            content: "[interrupted: the run ended before this call's result was known]".to_owned(),
                            is_error: true,
                        },
                    })
                    .collect();
                paired.push(Message::Assistant(turn));
                paired.push(Message::ToolResults { results });
            }
            other @ (Message::User { .. } | Message::Assistant(_)) => paired.push(other),
        }
    }
    *messages = paired;
}

#[cfg(test)]
mod tests {
    use super::super::model::{AssistantTurn, RawToolCall};
    use super::*;

    fn user(text: &str) -> Message {
        Message::User { text: text.into() }
    }

    fn calls(ids: &[&str]) -> Message {
        let call = |id: &&str| RawToolCall { id: (*id).into(), name: "read_file".into(), arguments: "{}".into() };
        Message::Assistant(AssistantTurn { calls: ids.iter().map(call).collect(), ..AssistantTurn::default() })
    }

    fn results(pairs: &[(&str, &str)]) -> Message {
        let result = |(id, content): &(&str, &str)| ToolResult {
            call_id: (*id).into(),
            name: "read_file".into(),
            content: (*content).into(),
            is_error: false,
        };
        Message::ToolResults { results: pairs.iter().map(result).collect() }
    }

    #[test]
    fn every_call_gets_one_result() {
        let interrupted = "[interrupted: the run ended before this call's result was known]";
        let mut messages = vec![
            results(&[("x", "stray")]),
            user("task"),
            calls(&["a", "b"]),
            results(&[("b", "2"), ("z", "no such call"), ("b", "twice")]),
            calls(&["c"]),
        ];
        pair(&mut messages);
        let Message::ToolResults { results: first } = &messages[2] else { panic!("{messages:?}") };
        assert_eq!(
            first.iter().map(|r| (r.call_id.as_str(), r.content.as_str(), r.is_error)).collect::<Vec<_>>(),
            [("a", interrupted, true), ("b", "2", false)]
        );
        assert_eq!(messages.len(), 5);
        let once = messages.clone();
        pair(&mut messages);
        assert_eq!(messages, once);
    }

    #[test]
    fn room_is_made_oldest_first_and_the_task_stays() {
        let big = "line\n".repeat(2_000);
        let mut messages = vec![user("task")];
        for id in ["1", "2", "3", "4"] {
            messages.extend([calls(&[id]), results(&[(id, &big)])]);
        }
        let before = estimate("system", &[], &messages);
        let done = shrink("system", &[], &mut messages, before - 1_000);
        assert_eq!(done, Compaction { stubbed: 1, dropped: 0 });
        let Message::ToolResults { results: first } = &messages[2] else { panic!("{messages:?}") };
        assert!(first[0].content.starts_with("line\n[The rest of this result, 9996 bytes"), "{}", first[0].content);
        let done = shrink("system", &[], &mut messages, 10);
        assert_eq!(done, Compaction { stubbed: 2, dropped: 2 });
        assert_eq!(messages[0], user("task"));
        assert_eq!(messages.len(), 6, "{messages:?}");
        // Nothing is left to take.
        assert_eq!(shrink("system", &[], &mut messages, 10), Compaction::default());
        let mut paired = messages.clone();
        pair(&mut paired);
        assert_eq!(paired, messages);
    }

    #[test]
    fn room_leaves_place_for_the_answer() {
        assert_eq!(room(None, 100), None);
        assert_eq!(room(Some(1_000), 100), Some(810));
        assert_eq!(room(Some(1_000), 5_000), Some(450));
    }
}
