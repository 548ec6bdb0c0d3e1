//! The command `skillcell`: reads arguments, calls the library, prints, and turns what came of it into an exit code.
//!
//! Only the public API of the library is used here. On stdout stands nothing but what the script wrote (or the one
//! JSON document that was asked for); everything the command itself says goes to stderr.

mod approve;
mod commands;
mod exit;
mod progress;
mod terminal;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Run scripts you don't trust, in a sandbox you choose.
#[derive(Debug, Parser)]
#[command(name = "skillcell", version, about = "Run scripts you don't trust, in a sandbox you choose", long_about = None, max_term_width = 100, arg_required_else_help = true)]
#[command(after_long_help = "Exit codes:
  0    the script succeeded
  N    the script's own exit code when it failed (128+N when signal N ended it)
  2    wrong usage or configuration, or something named isn't there
  3    policy or trust refused the run; nothing was started
  4    the runtime isn't available here, or failed
  124  the time limit ended the script
  134  the script trapped (wasm)
  130  interrupted: Ctrl-C, or a request to end
  137  another limit ended the script (memory, fuel or cpu, output, disk)
  70   a defect of skillcell; please report it
A script may exit with these numbers too: --json tells them apart.")]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Run(Box<commands::run::RunArgs>),
    Agent(Box<commands::agent::AgentArgs>),
    Step(commands::agent::StepArgs),
    Replay(commands::agent::ReplayArgs),
    Skill(commands::skill::SkillArgs),
    Runtimes(commands::runtimes::RuntimesArgs),
    Prove(commands::prove::ProveArgs),
    Audit(commands::audit::AuditArgs),
    Completions(commands::completions::CompletionsArgs),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    terminal::start_logging();
    match cli.verb {
        Verb::Run(args) => commands::run::main(*args),
        Verb::Agent(args) => commands::agent::agent(*args),
        Verb::Step(args) => commands::agent::step(&args),
        Verb::Replay(args) => commands::agent::replay(&args),
        Verb::Skill(args) => commands::skill::main(args),
        Verb::Runtimes(args) => commands::runtimes::main(&args),
        Verb::Prove(args) => commands::prove::main(&args),
        Verb::Audit(args) => commands::audit::main(&args),
        Verb::Completions(args) => commands::completions::main(&args, &mut <Cli as clap::CommandFactory>::command()),
    }
}
