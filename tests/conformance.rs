//! The conformance suite on every runtime, one test for each runtime and group.
#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail like tests")]

use skillcell::conformance::{self, Group, Options, Report, matrix};
use skillcell::runtime::RuntimeConfig;

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
