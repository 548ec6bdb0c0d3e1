//! The probe of the conformance suite: does inside a sandbox what its arguments say, and tells what came of it.
//!
//! Arguments are steps, separated by the word `::`; a step is a verb with its operands (`read @in/a`). Words that begin
//! with `@in`, `@out`, `@tmp`, `@skill`, `@site` or `@root` are places of the workspace, wherever the runtime shows it;
//! other paths are taken as they are. Each step prints one line, and the next one is done in any case:
//!
//! ```text
//! ok TEXT          it was done; line breaks in TEXT are written as \n
//! err KIND CODE    it was refused: the kind, and the system's number where there is one
//! absent           a guest of this machine has no such operation
//! ```
//!
//! One source for every runtime: `machine.rs` has what only processes of an operating system can try, and says `absent`
//! on WebAssembly. The probe must not decide anything: what is right is for the suite to say, from outside.

mod files;
#[cfg_attr(not(target_os = "linux"), path = "machine_absent.rs")]
mod machine;
mod network;
mod streams;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use skillcell_guest::Workspace;

/// What came of a step that was done: a text for the suite, or the end of the program.
pub enum Done {
    /// It goes on.
    Text(String),
    /// The program ends with this code.
    Exit(u8),
}

/// The result of a step.
pub type Outcome = io::Result<Done>;

/// A step that was done and has something to tell.
pub fn text(text: impl Into<String>) -> Outcome {
    Ok(Done::Text(text.into()))
}

/// A step that was done.
pub fn done() -> Outcome {
    text("")
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    for step in words.split(|word| word == "::") {
        let Some((verb, operands)) = step.split_first() else { continue };
        match attempt(verb, operands) {
            Ok(Done::Text(text)) => say(&format!("ok {}", text.replace('\\', "\\\\").replace('\n', "\\n"))),
            Ok(Done::Exit(code)) => return ExitCode::from(code),
            Err(error) if error.kind() == io::ErrorKind::Unsupported => say("absent"),
            Err(error) => {
                say(&format!("err {:?} {}", error.kind(), error.raw_os_error().unwrap_or(0)));
            }
        }
    }
    ExitCode::SUCCESS
}

/// Prints a line at once: the next step may be the last thing this process does.
pub fn say(line: &str) {
    let mut stdout = io::stdout().lock();
    // Nobody is left to tell when stdout is gone.
    let _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
}

fn attempt(verb: &str, operands: &[String]) -> Outcome {
    if let Some(outcome) = files::attempt(verb, operands) {
        return outcome;
    }
    if let Some(outcome) = streams::attempt(verb, operands) {
        return outcome;
    }
    if let Some(outcome) = network::attempt(verb, operands) {
        return outcome;
    }
    machine::attempt(verb, operands)
        .unwrap_or_else(|| Err(io::Error::new(io::ErrorKind::InvalidInput, format!("unknown verb {verb}"))))
}

/// An operand; missing ones are empty, which no verb accepts.
pub fn word(operands: &[String], index: usize) -> &str {
    operands.get(index).map_or("", String::as_str)
}

/// An operand that is a number.
pub fn number(operands: &[String], index: usize) -> io::Result<u64> {
    word(operands, index).parse().map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))
}

/// An operand that is a path.
pub fn place(operands: &[String], index: usize) -> PathBuf {
    let word = word(operands, index);
    let Some(rest) = word.strip_prefix('@') else { return PathBuf::from(word) };
    let (area, inside) = rest.split_once('/').unwrap_or((rest, ""));
    let workspace = Workspace::from_env();
    let root = || workspace.outputs_dir().parent().unwrap_or(workspace.outputs_dir()).to_path_buf();
    let base = match area {
        "in" => workspace.inputs_dir().to_path_buf(),
        "out" => workspace.outputs_dir().to_path_buf(),
        "tmp" => workspace.tmp_dir().to_path_buf(),
        "skill" => workspace.skill_dir().to_path_buf(),
        "site" => root().join("site"),
        "root" => root(),
        _ => return PathBuf::from(word),
    };
    if inside.is_empty() { base } else { base.join(inside) }
}
