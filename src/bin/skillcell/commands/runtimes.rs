//! `skillcell runtimes`: what is available on this machine and what each runtime enforces.

use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};
use skillcell::runtime::Availability;
use skillcell::{SkillRuntimeError, enforcement_table};

use crate::{exit, terminal};

/// List the runtimes: which are available here, and what each enforces
#[derive(Debug, Args)]
pub(crate) struct RuntimesArgs {
    /// Print a JSON document
    #[arg(long, conflicts_with = "markdown")]
    json: bool,
    /// Print only the table of what each enforces, as Markdown (it stands in the README)
    #[arg(long)]
    markdown: bool,
}

pub(crate) fn main(args: &RuntimesArgs) -> ExitCode {
    let registry = skillcell::builtin_registry();
    let table = match enforcement_table(&registry) {
        Ok(table) => table,
        Err(error) => return exit::fail(&error),
    };
    if args.markdown {
        return terminal::print_bytes(table.markdown().as_bytes());
    }
    let availability = match availability(&registry) {
        Ok(availability) => availability,
        Err(error) => return exit::fail(&error),
    };
    if args.json {
        let runtimes: Vec<Value> = availability
            .iter()
            .map(|(name, state)| json!({"name": name, "availability": state, "enforces": table.column(name)}))
            .collect();
        return terminal::print_bytes(format!("{}\n", json!({"runtimes": runtimes})).as_bytes());
    }
    let mut text = String::new();
    let width = availability.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, state) in &availability {
        match state {
            Availability::Available { detail } => text.push_str(&format!("{name:width$}  available    {detail}\n")),
            Availability::Missing { reason, remedy } => {
                text.push_str(&format!("{name:width$}  unavailable  {reason}; {remedy}\n"));
            }
        }
    }
    text.push('\n');
    text.push_str(&table.plain());
    terminal::print_bytes(text.as_bytes())
}

fn availability(registry: &skillcell::RuntimeRegistry) -> Result<Vec<(String, Availability)>, SkillRuntimeError> {
    let executor = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| SkillRuntimeError::backend("could not start the executor", error))?;
    executor.block_on(async {
        let mut all = Vec::new();
        for name in registry.names() {
            all.push((name.to_owned(), registry.get(name)?.availability().await));
        }
        Ok(all)
    })
}
