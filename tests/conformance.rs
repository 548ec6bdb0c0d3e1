//! The conformance suite on every runtime, one test for each runtime and group.
#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail like tests")]

use std::sync::Arc;

use skillcell::conformance::{self, Group, Options, Outcome, Report, matrix};
use skillcell::policy::{EnforcementMode, Support};
use skillcell::runtime::{Availability, PrepareContext, RunCommand, RuntimeConfig, RuntimeRunResult, Termination};
use skillcell::skill::VerifiedSkill;
use skillcell::workspace::Workspace;
use skillcell::{Result, RuntimeCapabilities, SandboxPolicy, SkillRuntime, SkillRuntimeHandle};

/// Runs a group and shows the whole matrix where something failed.
async fn prove(runtime: &str, group: Group, config: serde_json::Value) -> Report {
    let runtime = skillcell::builtin_registry().get(runtime).unwrap();
    let config = RuntimeConfig::new(config.as_object().unwrap().clone());
    let options = Options { config, groups: vec![group], ..Options::default() };
    let report = conformance::run(runtime.as_ref(), &options).await;
    let report = report.unwrap_or_else(|error| panic!("{}", error.chain().join("\n")));
    assert!(report.passed(), "\n{}", matrix(std::slice::from_ref(&report)));
    report
}

macro_rules! groups {
    ($runtime:ident, $config:expr) => {
        mod $runtime {
            use super::*;

            groups!(@test $runtime, $config, files, Files);
            groups!(@test $runtime, $config, processes, Processes);
            groups!(@test $runtime, $config, limits, Limits);
            groups!(@test $runtime, $config, leaks, Leaks);
            groups!(@test $runtime, $config, output, Output);
            groups!(@test $runtime, $config, environment, Environment);
            groups!(@test $runtime, $config, lifecycle, Lifecycle);
            groups!(@test $runtime, $config, network, Network);
            groups!(@test $runtime, $config, log, Log);
        }
    };
    (@test $runtime:ident, $config:expr, $name:ident, $group:ident) => {
        #[tokio::test(flavor = "multi_thread")]
        async fn $name() {
            prove(stringify!($runtime), Group::$group, $config).await;
        }
    };
}

groups!(wasm, serde_json::json!({}));
groups!(local, serde_json::json!({}));
groups!(bubblewrap, serde_json::json!({}));
groups!(firejail, serde_json::json!({}));
groups!(docker, serde_json::json!({ "image": image() }));

/// The image that `tests/docker/make-image` made.
fn image() -> String {
    std::env::var("SKILLCELL_TEST_IMAGE")
        .unwrap_or_else(|_| panic!("no SKILLCELL_TEST_IMAGE: run these tests by tests/docker/with-daemon"))
}

/// A runtime of another author that gives its work to one of ours and declares what it likes.
struct Declares {
    inner: Arc<dyn SkillRuntime>,
    capabilities: RuntimeCapabilities,
    /// Whether it runs anything at all.
    deaf: bool,
}

#[async_trait::async_trait]
impl SkillRuntime for Declares {
    fn name(&self) -> &str {
        "toy"
    }

    fn capabilities(&self) -> RuntimeCapabilities {
        self.capabilities
    }

    async fn availability(&self) -> Availability {
        self.inner.availability().await
    }

    fn check_config(&self, config: &RuntimeConfig) -> Result<()> {
        self.inner.check_config(config)
    }

    async fn prepare(
        &self,
        skill: &VerifiedSkill,
        workspace: Arc<Workspace>,
        context: &PrepareContext<'_>,
    ) -> Result<SkillRuntimeHandle> {
        let report = self.enforcement(context.policy);
        report.gate()?;
        let policy = SandboxPolicy { mode: EnforcementMode::BestEffort, ..context.policy.clone() };
        let inner =
            self.inner.prepare(skill, workspace.clone(), &PrepareContext { policy: &policy, ..*context }).await?;
        Ok(SkillRuntimeHandle::new(report, context.policy, workspace, context.audit.clone(), inner))
    }

    async fn run(&self, handle: &SkillRuntimeHandle, command: &RunCommand) -> Result<RuntimeRunResult> {
        if self.deaf {
            return Ok(RuntimeRunResult { termination: Termination::Exited(1), ..RuntimeRunResult::cancelled() });
        }
        self.inner.run(handle.state::<SkillRuntimeHandle>()?, command).await
    }

    async fn cleanup(&self, handle: &SkillRuntimeHandle) -> Result<()> {
        self.inner.cleanup(handle.state::<SkillRuntimeHandle>()?).await
    }
}

async fn prove_toy(toy: &Declares, groups: &[Group]) -> Report {
    let options = Options { groups: groups.to_vec(), ..Options::default() };
    conformance::run(toy, &options).await.unwrap_or_else(|error| panic!("{}", error.chain().join("\n")))
}

fn outcome(report: &Report, case: &str) -> Outcome {
    report.case(case).unwrap_or_else(|| panic!("no case {case}")).outcome
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_that_confines_nothing_and_claims_to_is_caught() {
    let inner = skillcell::builtin_registry().get("local").unwrap();
    let capabilities =
        RuntimeCapabilities { files: Support::Enforced, network_none: Support::Enforced, ..inner.capabilities() };
    let toy = Declares { inner, capabilities, deaf: false };
    let report = prove_toy(&toy, &[Group::Files, Group::Network]).await;
    for case in [
        "files::outside_file_cannot_be_read",
        "files::outside_file_cannot_be_written",
        "files::outside_folder_cannot_be_listed",
        "files::symlink_out_is_denied",
        "network::the_hosts_loopback_is_not_reached",
        "network::no_datagram_reaches_the_host",
        "network::no_socket_with_a_path_is_reached",
    ] {
        assert_eq!(outcome(&report, case), Outcome::Failed, "{case}");
    }
    // What it doesn't claim is not held against it.
    assert!(prove_toy(&toy, &[Group::Output]).await.passed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_that_denies_everything_is_caught() {
    let inner = skillcell::builtin_registry().get("wasm").unwrap();
    let toy = Declares { capabilities: inner.capabilities(), inner, deaf: true };
    let report = prove_toy(&toy, &[Group::Files, Group::Output, Group::Network]).await;
    let held: Vec<&str> = report
        .cases
        .iter()
        .filter(|case| {
            case.outcome == Outcome::Held
                && !case.case.starts_with("files::handle_")
                && !case.case.starts_with("files::collection_")
        })
        .map(|case| case.case.as_str())
        .collect();
    assert_eq!(held, Vec::<&str>::new(), "these can be passed by doing nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_that_claims_less_than_it_keeps_is_caught() {
    let inner = skillcell::builtin_registry().get("wasm").unwrap();
    let less =
        RuntimeCapabilities { files: Support::Unsupported, output: Support::Unsupported, ..inner.capabilities() };
    let toy = Declares { capabilities: less, inner, deaf: false };
    let report = prove_toy(&toy, &[Group::Lifecycle]).await;
    assert_eq!(outcome(&report, "lifecycle::files_are_claimed_no_less_than_kept"), Outcome::Failed);
    assert_eq!(outcome(&report, "lifecycle::output_is_claimed_no_less_than_kept"), Outcome::Failed);
    assert_eq!(outcome(&report, "lifecycle::time_is_claimed_no_less_than_kept"), Outcome::Held);
}

/// The probe that is built in, and the one that the source gives, answer alike.
#[tokio::test(flavor = "multi_thread")]
async fn the_built_in_probe_is_what_its_source_gives() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/target/guests/probe.wasm");
    let path =
        std::env::var("CARGO_TARGET_DIR").map_or(path.to_owned(), |target| format!("{target}/guests/probe.wasm"));
    #[expect(clippy::disallowed_methods, reason = "a test reads what was built for it")]
    let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}; run bash tests/build-guests"));
    let wasm = skillcell::builtin_registry().get("wasm").unwrap();
    let groups = vec![Group::Files, Group::Environment, Group::Network];
    let built_in = Options { groups: groups.clone(), ..Options::default() };
    let rebuilt = Options { groups, wasm_probe: Some(bytes), ..Options::default() };
    let built_in = conformance::run(wasm.as_ref(), &built_in).await.unwrap();
    let rebuilt = conformance::run(wasm.as_ref(), &rebuilt).await.unwrap();
    assert_eq!(built_in, rebuilt, "make the built-in one anew with sh tests/make-probe");
}

#[test]
fn there_are_enough_cases_of_every_group() {
    let names = conformance::case_names();
    assert!(names.len() >= 120, "{}", names.len());
    for group in Group::ALL {
        assert!(names.iter().any(|name| name.starts_with(&format!("{}::", group.as_str()))), "{group:?}");
    }
}
