//! `skillcell audit`: verify or show an audit file.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::Value;
use skillcell::audit::verify_chain;
use skillcell::{ErrorKind, Result, SkillRuntimeError};

use crate::{exit, terminal};

/// Verify or show an audit trail written with --audit
#[derive(Debug, Args)]
pub(crate) struct AuditArgs {
    #[command(subcommand)]
    verb: AuditVerb,
}

#[derive(Debug, Subcommand)]
enum AuditVerb {
    /// Check the hash chain: report every line that was dropped, changed or moved, and every trail that was cut
    #[command(
        after_help = "The exit code is 0 when the file is intact and 3 when it is not. That whole runs are missing from
the end of a file can't be seen from the file alone: keep the last hash elsewhere, and give it with --head."
    )]
    Verify {
        /// The file
        file: PathBuf,
        /// The last hash the file must have
        #[arg(long, value_name = "SHA256")]
        head: Option<String>,
        /// Print a JSON document
        #[arg(long)]
        json: bool,
    },
    /// Print the events for reading
    Show {
        /// The file
        file: PathBuf,
        /// Only denials
        #[arg(long)]
        denied: bool,
    },
}

pub(crate) fn main(args: &AuditArgs) -> ExitCode {
    let done = match &args.verb {
        AuditVerb::Verify { file, head, json } => verify(file, head.as_deref(), *json),
        AuditVerb::Show { file, denied } => show(file, *denied),
    };
    done.unwrap_or_else(|error| exit::fail(&error))
}

fn unreadable(path: &Path, error: std::io::Error) -> SkillRuntimeError {
    SkillRuntimeError::new(ErrorKind::NotFound, format!("could not read '{}'", path.display())).caused_by(error)
}

#[expect(clippy::disallowed_methods, reason = "a file that the person at the terminal named, opened as that person")]
fn open(path: &Path) -> Result<BufReader<File>> {
    File::open(path).map(BufReader::new).map_err(|error| unreadable(path, error))
}

fn verify(path: &Path, head: Option<&str>, as_json: bool) -> Result<ExitCode> {
    let mut report = verify_chain(open(path)?).map_err(|error| unreadable(path, error))?;
    if let Some(head) = head
        && !head.trim().eq_ignore_ascii_case(&report.head)
    {
        report.findings.push(skillcell::audit::ChainFinding {
            line: 0,
            problem: format!(
                "the file ends in hash {}, not in the one that was kept: events are missing from its end",
                report.head
            ),
        });
    }
    let code = if report.intact() { ExitCode::SUCCESS } else { ExitCode::from(exit::REFUSED) };
    let text = if as_json {
        let mut document = serde_json::to_value(&report).unwrap_or_default();
        document["intact"] = report.intact().into();
        format!("{document}\n")
    } else {
        let mut text = String::new();
        for finding in &report.findings {
            match finding.line {
                0 => text.push_str(&format!("{}: {}\n", path.display(), finding.problem)),
                line => text.push_str(&format!("{}:{line}: {}\n", path.display(), finding.problem)),
            }
        }
        let verdict = if report.intact() { "intact" } else { "NOT intact" };
        text.push_str(&format!(
            "{verdict}: {} events of {} runs, last hash {}\n",
            report.lines, report.runs, report.head
        ));
        text
    };
    let printed = terminal::print_bytes(text.as_bytes());
    Ok(if printed == ExitCode::SUCCESS { code } else { printed })
}

fn show(path: &Path, denied_only: bool) -> Result<ExitCode> {
    let mut text = String::new();
    for line in open(path)?.lines() {
        let line = line.map_err(|error| unreadable(path, error))?;
        let Ok(event) = serde_json::from_str::<Value>(&line) else {
            text.push_str("(not an event; run `skillcell audit verify`)\n");
            continue;
        };
        let word = |key: &str| event[key].as_str().unwrap_or("").to_owned();
        if denied_only && event["decision"] != "deny" {
            continue;
        }
        let run: String = word("run").chars().take(8).collect();
        let (object, reason) = (word("object"), word("reason"));
        let line = format!(
            "{:.3} {run} {:>3} {:5} {:8} {:10} {object}{}{reason}",
            event["time"].as_f64().unwrap_or(0.0),
            event["seq"],
            word("decision"),
            word("layer"),
            word("action"),
            if object.is_empty() || reason.is_empty() { "" } else { ": " },
        );
        // The file may have been written by anybody: nothing in it may paint the terminal.
        text.extend(line.chars().flat_map(|c| {
            if c.is_control() { c.escape_unicode().collect::<String>() } else { c.to_string() }
                .chars()
                .collect::<Vec<_>>()
        }));
        text.push('\n');
    }
    Ok(terminal::print_bytes(text.as_bytes()))
}
