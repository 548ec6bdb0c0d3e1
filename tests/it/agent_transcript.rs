//! Transcripts: written as it happens, read again, replayed, and gone on with.

use std::sync::Arc;

use serde_json::json;
use skillcell::agent::{
    AgentConfig, AgentEvent, AgentSink, Bounds, Message, ReplayModel, ScriptedModel, StopReason, ToolOutcome,
    Transcript, TranscriptFile, run_loop,
};
use skillcell::workspace::read_host_file;

use crate::agent_support::{Bench, write};

fn model() -> ScriptedModel {
    ScriptedModel::new()
        .calls(&[
            ("run_script", json!({"script_path": "scripts/echo.py", "args": ["hunter2-hunter2"]})),
            ("run_script", json!({"script_path": "scripts/count.py"})),
        ])
        .say("done")
}

#[tokio::test]
async fn a_run_is_written_whole_and_replays_to_the_same_end() {
    let bench = Bench::new().await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.jsonl");
    let bounds = Bounds::new(vec!["hunter2-hunter2".into()]).unwrap();
    let file = TranscriptFile::create(&path, bounds.clone()).unwrap();
    let config = AgentConfig { bounds, ..AgentConfig::new("system", "task hunter2-hunter2") };
    let model = model();
    let mut environment = bench.environment(&model);
    environment.events = &file;
    let outcome = run_loop(&environment, &config).await.unwrap();
    assert_eq!(outcome.stop, StopReason::Final);
    // One file is one run.
    assert!(TranscriptFile::create(&path, Bounds::default()).is_err());

    let text = String::from_utf8(read_host_file(&path, 1 << 20).unwrap()).unwrap();
    assert!(!text.contains("hunter2"), "{text}");
    assert_eq!(text.lines().next(), Some(r#"{"transcript":"skillcell.agent","version":1}"#));
    let transcript = Transcript::read(&path).unwrap();
    assert_eq!((transcript.finished(), transcript.was_cut()), (Some(StopReason::Final), false));
    assert_eq!(transcript.skill_digest(), bench.skill.verified.digest());
    assert_eq!(transcript.conversation().messages.len(), outcome.messages.len());

    let again = Bench::new().await;
    let replayed = again.run(&ReplayModel::new(&transcript), &config).await;
    assert_eq!((replayed.stop, replayed.text, replayed.usage), (outcome.stop, outcome.text, outcome.usage));
    assert_eq!(again.runs(), 2);
    // The transcript of a shorter run can't carry a longer one.
    let short = Transcript::parse(text.lines().take(2).collect::<Vec<_>>().join("\n").as_bytes()).unwrap();
    assert_eq!(again.run(&ReplayModel::new(&short), &config).await.stop, StopReason::ModelError);
}

#[tokio::test]
async fn a_run_that_broke_off_goes_on_without_running_a_tool_again() {
    let bench = Bench::new().await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.jsonl");
    let file = TranscriptFile::create(&path, Bounds::default()).unwrap();
    let plain = AgentConfig::new("system", "task");
    let whole = model();
    let mut environment = bench.environment(&whole);
    environment.events = &file;
    run_loop(&environment, &plain).await.unwrap();
    assert_eq!(bench.runs(), 2);
    let text = String::from_utf8(read_host_file(&path, 1 << 20).unwrap()).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    // Lines: form, start, turn, started, finished, started, finished, turn, end. Power fails within the last `finished`.
    assert!(lines[6].contains("tool_finished"), "{}", lines[6]);
    let broken = format!("{}\n{}", lines[..6].join("\n"), lines[6].get(..40).unwrap());
    let path = folder.path().join("broken.jsonl");
    write(&path, &broken);
    let earlier = Transcript::read(&path).unwrap();
    assert_eq!((earlier.was_cut(), earlier.finished()), (true, None));
    let conversation = earlier.conversation();
    assert_eq!(conversation.interrupted, ["call_1_1"]);
    let Message::ToolResults { results } = conversation.messages.last().unwrap() else { unreachable!("results") };
    assert_eq!(results[0].content, "hunter2-hunter2");
    assert!(results[1].is_error && results[1].content.starts_with("[interrupted: "), "{results:?}");

    let file = TranscriptFile::resume(&path, Bounds::default()).unwrap();
    let rest = ScriptedModel::new().say("went on");
    let resumed = AgentConfig { resume: Some(conversation), ..plain };
    let mut environment = bench.environment(&rest);
    environment.events = &file;
    let outcome = run_loop(&environment, &resumed).await.unwrap();
    assert_eq!(
        (outcome.stop, outcome.text.as_str(), outcome.iterations, outcome.tool_calls_made),
        (StopReason::Final, "went on", 2, 2)
    );
    assert_eq!(bench.runs(), 2, "no tool ran again");
    let whole = Transcript::read(&path).unwrap();
    assert!(whole.was_cut() && whole.finished() == Some(StopReason::Final), "{:?}", whole.finished());
    assert!(whole.events().iter().any(|event| matches!(event, AgentEvent::RunResumed { .. })));
}

#[test]
fn what_is_no_transcript_is_refused() {
    let head = r#"{"transcript":"skillcell.agent","version":1}"#;
    let start = serde_json::to_string(&AgentEvent::RunStarted {
        model: "m".into(),
        runtime: "r".into(),
        skill: "s".into(),
        skill_digest: "d".into(),
        network_enforced: false,
        tools: vec![],
        system: String::new(),
        task: "t".into(),
    })
    .unwrap();
    assert!(Transcript::parse(format!("{head}\n{start}\n").as_bytes()).is_ok());
    for text in [
        String::new(),
        "{}\n".to_owned(),
        start.clone(),
        format!("{head}\n"),
        format!("{}\n{start}\n", head.replace(":1", ":2")),
        format!("{head}\n{start}\nnonsense\n{start}\n"),
        format!("{head}\nnonsense\n"),
    ] {
        assert!(Transcript::parse(text.as_bytes()).is_err(), "{text}");
    }
}

/// A sink that fails is the end of the run: what can't be written down isn't done.
#[tokio::test]
async fn nothing_is_done_that_can_not_be_written_down() {
    struct Full(Arc<std::sync::atomic::AtomicU32>);
    impl AgentSink for Full {
        fn event(&self, event: &AgentEvent) -> skillcell::Result<()> {
            if matches!(event, AgentEvent::ToolStarted { .. }) {
                return Err(skillcell::SkillRuntimeError::new(skillcell::ErrorKind::Backend, "disk full"));
            }
            if matches!(event, AgentEvent::ToolFinished { outcome: ToolOutcome::Done, .. }) {
                self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            }
            Ok(())
        }
    }
    let bench = Bench::new().await;
    let done = Arc::default();
    let full = Full(Arc::clone(&done));
    let model = model();
    let mut environment = bench.environment(&model);
    environment.events = &full;
    let error = run_loop(&environment, &AgentConfig::new("system", "task")).await.unwrap_err();
    assert_eq!(
        (error.to_string().as_str(), bench.runs(), done.load(std::sync::atomic::Ordering::SeqCst)),
        ("disk full", 0, 0)
    );
}
