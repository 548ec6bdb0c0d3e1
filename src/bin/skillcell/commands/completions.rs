//! `skillcell completions`: a completion script for a shell, on stdout.

use std::process::ExitCode;

use clap::Args;

/// Print a completion script for your shell
#[derive(Debug, Args)]
#[command(after_help = "Example:
  skillcell completions bash > ~/.local/share/bash-completion/completions/skillcell")]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: clap_complete::Shell,
}

pub(crate) fn main(args: &CompletionsArgs, command: &mut clap::Command) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, command, "skillcell", &mut script);
    crate::terminal::print_bytes(&script)
}
