//! `skillcell prove`: runs the conformance suite on this machine and prints what held.

use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};
use skillcell::conformance::{self, Options, Report, matrix};
use skillcell::runtime::{Availability, RuntimeConfig};
use skillcell::{ErrorKind, Result, RuntimeRegistry, SkillRuntimeError};

use super::run::options;
use crate::{exit, terminal};

/// Prove on this machine that runtimes keep what they claim
#[derive(Debug, Args)]
#[command(after_help = "A probe runs in each sandbox and attempts what a hostile script would; each case is told as
  held        the attempt failed without a trace, and what is allowed works
  disclaimed  the runtime doesn't claim it, and strict mode refuses a policy that asks for it
  failed      a claim isn't kept, or something that is allowed doesn't work

The exit code is 0 when no case failed, 1 when one did, and 4 when a runtime that is here could not be tried.
Everything stays on this machine: sockets are on the loopback interface, files in the temporary folder.

Examples:
  skillcell prove
  skillcell prove --runtime bubblewrap --json
  skillcell prove --runtime docker --config image=debian:12")]
pub(crate) struct ProveArgs {
    /// Only this runtime; without it, all that are available here
    #[arg(long, short, value_name = "NAME")]
    runtime: Option<String>,
    /// An option of the runtime, as JSON or text; may be given several times
    #[arg(long = "config", value_name = "KEY=VALUE", requires = "runtime")]
    config: Vec<String>,
    /// Print a JSON document: one object per case and runtime, with `case`, `runtime`, `outcome` and `reason`
    #[arg(long)]
    json: bool,
}

/// The exit code when a claim isn't kept.
const BROKEN: u8 = 1;

/// What came of the runtimes.
#[derive(Default)]
struct Proof {
    reports: Vec<Report>,
    /// Not available here, and why.
    missing: Vec<(String, String)>,
    /// Available, but nothing could be tried.
    untried: Vec<(String, SkillRuntimeError)>,
}

pub(crate) fn main(args: &ProveArgs) -> ExitCode {
    let proved = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| SkillRuntimeError::backend("could not start the executor", error))
        .and_then(|executor| executor.block_on(prove(args, &skillcell::builtin_registry())));
    match proved {
        Ok(proof) => show(&proof, args.json),
        Err(error) => exit::fail(&error),
    }
}

async fn prove(args: &ProveArgs, registry: &RuntimeRegistry) -> Result<Proof> {
    let suite = Options { config: RuntimeConfig::new(options(&args.config)?), ..Options::default() };
    let mut proof = Proof::default();
    let names = match &args.runtime {
        Some(name) => vec![name.as_str()],
        None => registry.names(),
    };
    for name in names {
        let runtime = registry.get(name)?;
        if let Availability::Missing { reason, remedy } = runtime.availability().await {
            if args.runtime.is_some() {
                return Err(SkillRuntimeError::new(
                    ErrorKind::Unavailable,
                    format!("runtime '{name}' is not available here: {reason}; {remedy}"),
                ));
            }
            proof.missing.push((name.to_owned(), format!("{reason}; {remedy}")));
            continue;
        }
        match conformance::run(runtime.as_ref(), &suite).await {
            Ok(report) => proof.reports.push(report),
            Err(error) if args.runtime.is_some() => return Err(error),
            Err(error) => proof.untried.push((name.to_owned(), error)),
        }
    }
    Ok(proof)
}

fn show(proof: &Proof, as_json: bool) -> ExitCode {
    for (name, why) in &proof.missing {
        terminal::note(&format!("{name} is not available here: {why}"));
    }
    for (name, error) in &proof.untried {
        terminal::note(&format!("error: {name} could not be tried: {}", error.chain().join("\n  caused by: ")));
    }
    let text = if as_json { format!("{}\n", document(proof)) } else { matrix(&proof.reports) };
    let printed = terminal::print_bytes(text.as_bytes());
    if printed != ExitCode::SUCCESS {
        return printed;
    }
    if proof.reports.iter().any(|report| !report.passed()) {
        return ExitCode::from(BROKEN);
    }
    if !proof.untried.is_empty() || proof.reports.is_empty() {
        return ExitCode::from(exit::UNAVAILABLE);
    }
    ExitCode::SUCCESS
}

fn document(proof: &Proof) -> Value {
    let cases: Vec<&conformance::CaseReport> = proof.reports.iter().flat_map(|report| &report.cases).collect();
    let passed = proof.untried.is_empty() && !proof.reports.is_empty() && proof.reports.iter().all(Report::passed);
    let untried: Vec<Value> =
        proof.untried.iter().map(|(name, error)| json!({"runtime": name, "error": error.chain()})).collect();
    let missing: Vec<Value> = proof.missing.iter().map(|(name, why)| json!({"runtime": name, "reason": why})).collect();
    json!({"passed": passed, "cases": cases, "untried": untried, "unavailable": missing})
}
