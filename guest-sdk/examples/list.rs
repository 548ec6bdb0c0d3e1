//! Lists the inputs and writes the list as a report: the smallest useful guest.
//!
//! `skillcell-wasm-tools build guest-sdk/examples/list.rs --out list.wasm`, then
//! `skillcell run list.wasm --in some-folder --out results`.

use std::io;
use std::process::ExitCode;

use skillcell_guest::{Align, Markdown, Workspace};

fn main() -> ExitCode {
    match list(&Workspace::from_env()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            #[expect(clippy::print_stderr, reason = "a program tells its user on stderr")]
            {
                eprintln!("list: {error}");
            }
            ExitCode::from(2)
        }
    }
}

fn list(workspace: &Workspace) -> io::Result<()> {
    let inputs = workspace.inputs()?;
    let rows = inputs.iter().map(|input| [input.name().to_owned(), input.size().to_string()]);
    let mut report = Markdown::new();
    report.heading(1, "Inputs").table(&[("file", Align::Left), ("bytes", Align::Right)], rows);
    workspace.write_output("inputs.md", report.as_str())
}
