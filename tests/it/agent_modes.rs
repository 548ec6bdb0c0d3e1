//! Steps of a skill in CARL's five modes, through the whole flow, and over every runtime there is.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::json;
use skillcell::agent::{
    AgentSkillExecutionMode, ChatModel, MemoryAgentSink, Message, ModeConfig, ModeOutcome, ScriptedModel, StopReason,
};
use skillcell::audit::{AuditEvent, Decision, MemorySink};
use skillcell::policy::EnforcementMode;
use skillcell::runtime::RuntimeRegistry;
use skillcell::skill::{ManifestMode, SkillSource, TrustPolicy};
use skillcell::step::{
    AgentJob, AgentSkillStepConfig, ManifestNetwork, OutputCapture, StepContext, StepResult, execute_agent,
};
use skillcell::{ErrorKind, Result};
use tokio_util::sync::CancellationToken;

use crate::agent_support::{FakeRuntime, skill_files};

struct Scene {
    folder: tempfile::TempDir,
    runtime: Arc<FakeRuntime>,
    audit: Arc<MemorySink>,
    context: StepContext,
}

impl Scene {
    fn new(allowed_tools: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        skill_files(&folder.path().join("demo"), allowed_tools);
        let runtime = Arc::new(FakeRuntime::default());
        let mut registry = RuntimeRegistry::new();
        let shared = runtime.clone();
        registry.register("fake", Arc::new(move || shared.clone())).unwrap();
        let mut context = StepContext::new(registry);
        let audit = Arc::new(MemorySink::default());
        context.audit = audit.clone();
        Self { folder, runtime, audit, context }
    }

    fn config(&self) -> AgentSkillStepConfig {
        let mut config = AgentSkillStepConfig::new(SkillSource::Folder(self.folder.path().join("demo")));
        config.runtime = "fake".to_owned();
        config.enforcement = EnforcementMode::BestEffort;
        config
    }

    async fn run(&self, job: AgentJob) -> Result<StepResult<ModeOutcome>> {
        execute_agent(self.config(), job, &self.context).await
    }

    fn events(&self, action: &str) -> Vec<AuditEvent> {
        self.audit.events().into_iter().filter(|event| event.action == action).collect()
    }
}

fn job(execution_mode: AgentSkillExecutionMode, script: &str, model: Option<&Arc<ScriptedModel>>) -> AgentJob {
    let mut mode = ModeConfig::new("Do {what}.");
    mode.execution_mode = execution_mode;
    mode.inputs.insert("what".to_owned(), "it".to_owned());
    if execution_mode.needs_script() {
        mode.script_name = Some(format!("scripts/{script}"));
    }
    AgentJob {
        mode,
        manifest_network: ManifestNetwork::Ignore,
        manifest_mode: ManifestMode::Lenient,
        output_capture: OutputCapture::Both,
        model: model.map(|model| model.clone() as Arc<dyn ChatModel>),
        events: Arc::new(MemoryAgentSink::default()),
        cancel: CancellationToken::new(),
    }
}

#[tokio::test]
async fn script_gives_its_output_also_when_it_fails() {
    let scene = Scene::new("");
    let mut echo = job(AgentSkillExecutionMode::Script, "echo.py", None);
    echo.mode.script_args.insert("what".to_owned(), "that".to_owned());
    let outcome = scene.run(echo).await.unwrap().run;
    assert_eq!((outcome.success, outcome.result.as_str(), outcome.error_message), (true, "--what that", None));
    assert_eq!(outcome.result_data["execution_mode"], "script");
    let outcome = scene.run(job(AgentSkillExecutionMode::Script, "fail.py", None)).await.unwrap().run;
    assert_eq!((outcome.success, outcome.result.as_str()), (false, "half"));
    assert_eq!(outcome.error_message.as_deref(), Some("Script exited with code 3.\nstderr: oops"));
    assert_eq!((&outcome.result_data["returncode"], &outcome.result_data["timed_out"]), (&json!(3), &json!(false)));
    for script in ["/bin/sh", "../../bin/sh", "/workspace/in/x.py"] {
        let mut outside = job(AgentSkillExecutionMode::Script, "", None);
        outside.mode.script_name = Some(script.to_owned());
        assert_eq!(scene.run(outside).await.unwrap_err().kind(), ErrorKind::PathDenied, "{script}");
    }
}

#[tokio::test]
async fn llm_asks_once_with_the_skill_and_no_tools() {
    let scene = Scene::new("");
    let model = Arc::new(ScriptedModel::new().say("an answer"));
    let outcome = scene.run(job(AgentSkillExecutionMode::Llm, "", Some(&model))).await.unwrap().run;
    assert_eq!((outcome.success, outcome.result.as_str()), (true, "an answer"));
    let asked = model.asked().remove(0);
    assert_eq!(asked.tools, Vec::<&str>::new());
    assert!(asked.system.contains("## Skill: demo") && asked.system.contains("Use the scripts."), "{}", asked.system);
    assert_eq!(asked.messages, [Message::User { text: "Do it.\n\n**Inputs:**\n  what: it".into() }]);
    assert_eq!(scene.runtime.runs.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_fallback_is_in_the_result_and_the_audit_and_hides_no_broken_sandbox() {
    for mode in [AgentSkillExecutionMode::Hybrid, AgentSkillExecutionMode::Subagent] {
        let scene = Scene::new("");
        let model = Arc::new(ScriptedModel::new().say("from the model"));
        let outcome = scene.run(job(mode, "fail.py", Some(&model))).await.unwrap().run;
        assert_eq!((outcome.success, outcome.result.as_str()), (true, "from the model"));
        assert_eq!(outcome.result_data["llm_fallback"], true);
        assert_eq!(outcome.result_data["script_error"], "Script exited with code 3.\nstderr: oops");
        let events = scene.events("llm_fallback");
        assert_eq!(events.len(), 1, "{events:?}");
        assert!(events[0].reason.starts_with("Script exited with code 3."), "{events:?}");
        // What a failed script printed is no data.
        assert!(!format!("{:?}", model.asked()[0].messages).contains("half"));

        let model = Arc::new(ScriptedModel::new().say("never asked"));
        let error = scene.run(job(mode, "broken.py", Some(&model))).await.unwrap_err();
        assert_eq!((error.kind(), model.turns_left()), (ErrorKind::Backend, 1));
        assert_eq!(scene.run(job(mode, "none.py", Some(&model))).await.unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(scene.run(job(mode, "echo.py", None)).await.unwrap_err().kind(), ErrorKind::InvalidConfig);
    }
    let scene = Scene::new("");
    let unasked = Arc::new(ScriptedModel::new().say("never asked"));
    let outcome = scene.run(job(AgentSkillExecutionMode::Hybrid, "echo.py", Some(&unasked))).await.unwrap().run;
    assert_eq!((outcome.result.as_str(), unasked.turns_left()), ("--what it", 1));
    assert!(!outcome.result_data.contains_key("llm_fallback") && scene.events("llm_fallback").is_empty());
    let model = Arc::new(ScriptedModel::new().say("summed"));
    let outcome = scene.run(job(AgentSkillExecutionMode::Subagent, "echo.py", Some(&model))).await.unwrap().run;
    assert_eq!((outcome.result.as_str(), &outcome.result_data["script_chars"]), ("summed", &json!(9)));
    assert!(format!("{:?}", model.asked()[0].messages).contains("## Data from skill script\\n\\n--what it"));
}

#[tokio::test]
async fn the_loop_leaves_files_with_their_content() {
    let scene = Scene::new("");
    let model = || {
        Arc::new(ScriptedModel::new().call("write_file", json!({"filename": "a/b.md", "content": "# hi"})).say("done"))
    };
    let result = scene.run(job(AgentSkillExecutionMode::LlmAgent, "", Some(&model()))).await.unwrap();
    assert_eq!(result.run.result, "done\n\nOutput files: a/b.md");
    let files = &result.run.result_data["output_files"];
    assert_eq!(
        (&files[0]["name"], &files[0]["size"], &files[0]["content"]),
        (&json!("a/b.md"), &json!(4), &json!("# hi"))
    );
    let mut listed = job(AgentSkillExecutionMode::LlmAgent, "", Some(&model()));
    listed.output_capture = OutputCapture::Files;
    let result = scene.run(listed).await.unwrap();
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(&result.run.result).unwrap(),
        result.run.result_data["output_files"]
    );
    // A budget that ends is no success, and the work is not thrown away.
    let mut short = job(AgentSkillExecutionMode::LlmAgent, "", Some(&model()));
    short.mode.budget.rounds = 1;
    let result = scene.run(short).await.unwrap();
    assert_eq!((result.run.success, &result.run.result_data["stop_reason"]), (false, &json!("max_rounds")));
    assert_eq!(result.run.agent.unwrap().stop, StopReason::MaxRounds);
}

#[tokio::test]
async fn pins_are_checked_by_the_step_and_a_manifest_widens_nothing_unasked() {
    let scene = Scene::new("allowed-tools: WebFetch(domain:evil.example) Read Write Bash");
    let model = || Arc::new(ScriptedModel::new().say("ok"));
    let mut config = scene.config();
    config.trust_policy = TrustPolicy::Pinned("0".repeat(64));
    let error =
        execute_agent(config, job(AgentSkillExecutionMode::Llm, "", Some(&model())), &scene.context).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TrustViolation);
    for (merge, hosts) in [(ManifestNetwork::Ignore, 0), (ManifestNetwork::Merge, 1)] {
        let mut config = scene.config();
        config.runtime_config.insert("network".into(), "allowlist".into());
        config.runtime_config.insert("network_allowlist".into(), json!(["api.example.com"]));
        let mut asked = job(AgentSkillExecutionMode::Llm, "", Some(&model()));
        asked.manifest_network = merge;
        let result = execute_agent(config, asked, &scene.context).await.unwrap();
        assert!(result.run.success);
        let merged = scene.events("manifest_network");
        assert_eq!(merged.len(), hosts, "{merged:?}");
        assert!(merged.iter().all(|event| event.object == "evil.example" && event.decision == Decision::Allow));
    }
    // Without a list of the caller's, a manifest's hosts are all there is: an error unless merged.
    let mut config = scene.config();
    config.runtime_config.insert("network".into(), "allowlist".into());
    let error =
        execute_agent(config, job(AgentSkillExecutionMode::Llm, "", Some(&model())), &scene.context).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig);
}

#[tokio::test]
async fn a_text_that_names_a_file_of_the_host_stays_text() {
    let scene = Scene::new("");
    let secret = scene.folder.path().join("secret.txt");
    crate::agent_support::write(&secret, "hunter2");
    let model =
        Arc::new(ScriptedModel::new().call("list_resources", json!({"path": "/workspace/in"})).say("nothing there"));
    let mut named = job(AgentSkillExecutionMode::LlmAgent, "", Some(&model));
    named.mode.inputs.insert("what".to_owned(), secret.to_str().unwrap().to_owned());
    let result = scene.run(named).await.unwrap();
    assert!(result.run.success, "{:?}", result.run.error_message);
    // The caller's text is handed on as it is; nothing was copied because of it.
    let asked = model.asked();
    assert!(format!("{:?}", asked[0].messages).contains(secret.to_str().unwrap()));
    let told = format!("{:?}", asked[1].messages);
    assert!(told.contains("**/workspace/in:**\\n(empty)") && !told.contains("hunter2"), "{told}");
}

#[tokio::test]
async fn parallel_steps_share_nothing() {
    let scene = Scene::new("");
    let steps = (0..8).map(|index| {
        let scene = &scene;
        async move {
            let text = format!("content {index}");
            let model = Arc::new(
                ScriptedModel::new()
                    .call("write_file", json!({"filename": "same.txt", "content": text}))
                    .call("read_file", json!({"path": "/workspace/out/same.txt"}))
                    .say("done"),
            );
            let result = scene.run(job(AgentSkillExecutionMode::LlmAgent, "", Some(&model))).await.unwrap();
            assert_eq!(result.run.result_data["output_files"][0]["content"], text);
            assert!(format!("{:?}", model.asked()[2].messages).contains(&text));
        }
    });
    futures_util::future::join_all(steps).await;
}
