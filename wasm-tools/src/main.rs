//! The command `skillcell-wasm-tools`: one verb per job of the library.
//!
//! What was asked for goes to stdout (a path, a description), everything else to stderr. Exit codes: 0 done, 1 failed,
//! 2 wrong arguments. The names `precompile` and `snapshot` are kept for the verbs that compile ahead and
//! pre-initialise.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand};
use skillcell_wasm_tools::pack::{PackCommand, run_pack_command};
use skillcell_wasm_tools::{
    BuildRequest, Cache, Encoding, Inspection, Kind, Profile, Toolchain, build, inspect, read_file, setup, wrap,
};

/// Builds and inspects the WebAssembly guests of skillcell
#[derive(Debug, Parser)]
#[command(version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Make a .wasm of a Rust file or crate
    ///
    /// A single file can use the standard library and `skillcell_guest`; a crate is built with its own manifest.
    #[command(after_help = "Examples:\n  skillcell-wasm-tools build report.rs\n  \
        skillcell-wasm-tools build my-guest --out guest.wasm --locked")]
    Build(BuildArguments),
    /// Make what the compiler needs to build guests (`build` does it when needed)
    Setup(CacheArguments),
    /// Say what a .wasm is and whether skillcell can run it
    ///
    /// The exit code is 0 when it can be run and 1 when not.
    Inspect {
        /// The .wasm
        file: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Make a component of a preview 1 module
    Component {
        /// The module; a file called .wat in text form
        file: PathBuf,
        /// Where the component goes
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
    },
    Pack(PackCommand),
}

#[derive(Debug, Args)]
struct CacheArguments {
    /// Where sysroots and intermediate files are kept [default: skillcell/guest in the user's cache folder]
    #[arg(long, value_name = "FOLDER", env = "SKILLCELL_GUEST_CACHE", hide_env_values = true)]
    cache: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct BuildArguments {
    /// A .rs file, or the folder of a crate
    source: PathBuf,
    /// Where the guest goes [default: NAME.wasm in the current folder]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Make a component instead of a module
    #[arg(long)]
    component: bool,
    /// Optimise (the default)
    #[arg(long, conflicts_with = "debug")]
    release: bool,
    /// Don't optimise; keep debug information
    #[arg(long)]
    debug: bool,
    /// Which program of a crate with several
    #[arg(long, value_name = "NAME")]
    bin: Option<String>,
    /// Fail when the crate's lock file would have to change
    #[arg(long)]
    locked: bool,
    /// Use no network
    #[arg(long)]
    offline: bool,
    #[command(flatten)]
    cache: CacheArguments,
}

fn main() -> ExitCode {
    match run(Arguments::parse().verb) {
        Ok(code) => code,
        Err(error) => {
            // A closed stderr leaves nobody to tell.
            let _ = writeln!(std::io::stderr(), "skillcell-wasm-tools: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(verb: Verb) -> Result<ExitCode> {
    match verb {
        Verb::Build(arguments) => build_guest(arguments)?,
        Verb::Setup(arguments) => {
            let toolchain = Toolchain::find()?;
            let sysroot = setup(&toolchain, &arguments.open()?, &mut progress)?;
            progress(&toolchain.describe());
            match sysroot {
                Some(folder) => print(&folder.display().to_string())?,
                None => progress("nothing to make: the toolchain brings its own library for guests"),
            }
        }
        Verb::Inspect { file, json } => {
            let inspection = named(&file, inspect)?;
            print(&if json { serde_json::to_string_pretty(&inspection)? } else { described(&inspection) })?;
            return Ok(if inspection.problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        Verb::Pack(command) => {
            let code = run_pack_command(&command, &mut std::io::stdout().lock(), &mut progress)?;
            return Ok(ExitCode::from(code));
        }
        Verb::Component { file, out } => {
            let is_text = file.extension().is_some_and(|extension| extension == "wat");
            let component = named(&file, |bytes| match is_text {
                true => wrap(&wat::parse_bytes(bytes).context("not valid WebAssembly text")?),
                false => wrap(bytes),
            })?;
            std::fs::write(&out, component).with_context(|| format!("can't write {}", out.display()))?;
            print(&out.display().to_string())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn build_guest(arguments: BuildArguments) -> Result<()> {
    let toolchain = Toolchain::find()?;
    let mut cargo_arguments = Vec::new();
    for (asked, word) in [(arguments.locked, "--locked"), (arguments.offline, "--offline")] {
        if asked {
            cargo_arguments.push(word.to_owned());
        }
    }
    let request = BuildRequest {
        source: arguments.source,
        out: arguments.out,
        encoding: if arguments.component { Encoding::Component } else { Encoding::Module },
        profile: if arguments.debug { Profile::Debug } else { Profile::Release },
        bin: arguments.bin,
        cargo_arguments,
    };
    let built = build(&request, &toolchain, &arguments.cache.open()?, &mut progress)?;
    progress(&format!("{} bytes, sha256 {}, with {}", built.inspection.bytes, built.sha256, toolchain.describe()));
    for problem in &built.inspection.problems {
        progress(&format!("warning: skillcell can't run it: it {problem}"));
    }
    print(&built.path.display().to_string())
}

impl CacheArguments {
    fn open(&self) -> Result<Cache> {
        match &self.cache {
            Some(folder) => Cache::at(folder),
            None => Cache::of_user(),
        }
    }
}

/// Reads a file and does something with its bytes; errors name the file.
fn named<T>(file: &std::path::Path, action: impl Fn(&[u8]) -> Result<T>) -> Result<T> {
    action(&read_file(file)?).with_context(|| file.display().to_string())
}

fn described(guest: &Inspection) -> String {
    let kind = match guest.kind {
        Kind::Module => "core module",
        Kind::Component => "component",
    };
    let mut lines = vec![format!("{kind}, {} bytes", guest.bytes)];
    for memory in &guest.memories {
        let most = memory.maximum_bytes.map_or_else(|| "no maximum".to_owned(), |bytes| format!("at most {bytes}"));
        let wide = if memory.memory64 { ", 64-bit" } else { "" };
        let shared = if memory.shared { ", shared" } else { "" };
        lines.push(format!("memory: {} bytes at the start, {most}{wide}{shared}", memory.initial_bytes));
    }
    for import in &guest.imports {
        let name = if import.name.is_empty() { String::new() } else { format!(" {}", import.name) };
        lines.push(format!("import {}: {}{name}", import.kind, import.from));
    }
    for export in &guest.exports {
        lines.push(format!("export {}: {}", export.kind, export.name));
    }
    if guest.problems.is_empty() {
        lines.push("skillcell can run it".to_owned());
    }
    for problem in &guest.problems {
        lines.push(format!("skillcell can't run it: it {problem}"));
    }
    lines.join("\n")
}

fn print(text: &str) -> Result<()> {
    writeln!(std::io::stdout(), "{text}").context("can't write to stdout")
}

fn progress(text: &str) {
    // Progress is for people; a closed stderr is no reason to stop.
    let _ = writeln!(std::io::stderr(), "skillcell-wasm-tools: {text}");
}
