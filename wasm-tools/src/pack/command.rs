//! The verb `pack` of the command.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, Subcommand};

use super::manifest::{PackManifest, list, load};
use super::verify::verify;

/// Make, check and describe interpreter packs
#[derive(Debug, Args)]
pub struct PackCommand {
    /// The folder with the packs
    #[arg(long, value_name = "FOLDER", default_value = "wasm-tools/packs", global = true)]
    packs: PathBuf,
    #[command(subcommand)]
    verb: PackVerb,
}

#[derive(Debug, Subcommand)]
enum PackVerb {
    /// List the packs
    List,
    /// Say what a pack is, what it can and can't do, and what is built in
    Info {
        /// The pack
        name: String,
        /// Print its manifest
        #[arg(long)]
        json: bool,
    },
    /// Check a pack's archive, module and licences against its manifest
    Verify {
        /// The pack
        name: String,
        /// Also run its interpreter and check what it does
        #[cfg(feature = "pack-build")]
        #[arg(long)]
        run: bool,
    },
    /// Make a pack from its pinned inputs
    ///
    /// Inputs are fetched by package name with pip, cargo and apt-get, and their digests checked.
    #[cfg(feature = "pack-build")]
    Build {
        /// The pack
        name: String,
        /// Where the recipe works; finished stages in it are used again
        #[arg(long, value_name = "FOLDER")]
        work: PathBuf,
        /// Where the inputs are, or are put [default: inputs in the work folder]
        #[arg(long, value_name = "FOLDER")]
        inputs: Option<PathBuf>,
        /// Write archive and manifest here instead, and say whether they are those of the pack
        #[arg(long, value_name = "FOLDER")]
        output: Option<PathBuf>,
    },
    /// Run a pack's interpreter without a sandbox: no policy, no limits
    #[cfg(feature = "pack-build")]
    Run(super::run::RunArguments),
}

/// Carries out `pack ...`. What was asked for goes to `stdout`; `progress` gets what is for people who wait. Gives the
/// exit code.
///
/// # Errors
/// When it can't be done, with the reason.
pub fn run_pack_command(command: &PackCommand, stdout: &mut dyn Write, progress: &mut dyn FnMut(&str)) -> Result<u8> {
    let folder = |name: &str| command.packs.join(name);
    let text = match &command.verb {
        PackVerb::List => listing(&command.packs)?,
        PackVerb::Info { name, json: true } => serde_json::to_string_pretty(&load(&folder(name))?)?,
        PackVerb::Info { name, json: false } => description(&load(&folder(name))?),
        #[cfg(not(feature = "pack-build"))]
        PackVerb::Verify { name } => checked(&folder(name), progress)?,
        #[cfg(feature = "pack-build")]
        PackVerb::Verify { name, run: false } => checked(&folder(name), progress)?,
        #[cfg(feature = "pack-build")]
        PackVerb::Verify { name, run: true } => {
            let text = checked(&folder(name), progress)?;
            let count = super::proof::prove(&folder(name), progress)?;
            format!("{text}\n{count} checks of the running interpreter passed")
        }
        #[cfg(feature = "pack-build")]
        PackVerb::Build { name, work, inputs, output } => {
            let before = load(&folder(name))?;
            let request = super::build::BuildRequest {
                folder: folder(name),
                inputs: inputs.clone().unwrap_or_else(|| work.join("inputs")),
                work: work.clone(),
                output: output.clone(),
            };
            let after = super::build::build(&request, progress)?;
            comparison(&before, &after)
        }
        #[cfg(feature = "pack-build")]
        PackVerb::Run(arguments) => return super::run::run_interpreter(&command.packs, arguments),
    };
    writeln!(stdout, "{text}").context("can't write to stdout")?;
    Ok(0)
}

fn listing(packs: &Path) -> Result<String> {
    let lines: Vec<String> = list(packs)?
        .iter()
        .map(|(_, pack)| {
            let mebibytes = pack.archive.bytes.div_ceil(1 << 20);
            format!("{}\t{} {}\t{mebibytes} MiB\t{}", pack.name, pack.language, pack.version, pack.programs.join(" "))
        })
        .collect();
    Ok(lines.join("\n"))
}

fn checked(folder: &Path, progress: &mut dyn FnMut(&str)) -> Result<String> {
    progress(&format!("unpacking and checking {}", folder.display()));
    let verified = verify(folder)?;
    let pack = &verified.manifest;
    let imports: usize = pack.imports.values().map(Vec::len).sum();
    let modules: Vec<&str> = pack.imports.keys().map(String::as_str).collect();
    Ok(format!(
        "{} {} is in order: {} files, {} bytes, {imports} imports of {}, {} licences",
        pack.name,
        pack.version,
        pack.files.len(),
        pack.unpacked_bytes(),
        modules.join(" and "),
        pack.licences.len()
    ))
}

fn description(pack: &PackManifest) -> String {
    let mut lines = vec![format!("{} {} (pack {})", pack.language, pack.version, pack.name)];
    lines.push(format!("called as: {}", pack.programs.join(", ")));
    lines.push(format!("archive: {}, {} bytes", pack.archive.name, pack.archive.bytes));
    for file in &pack.files {
        lines.push(format!("file: {}, {} bytes, sha256 {}", file.name, file.bytes, file.sha256));
    }
    for (module, names) in &pack.imports {
        lines.push(format!("imports: {} functions of {module}", names.len()));
    }
    lines.extend(pack.can.iter().map(|text| format!("can: {text}")));
    lines.extend(pack.cannot.iter().map(|text| format!("cannot: {text}")));
    lines.extend(
        pack.licences.iter().map(|part| format!("built in: {} {} ({})", part.part, part.version, part.licence)),
    );
    lines.join("\n")
}

#[cfg(feature = "pack-build")]
fn comparison(before: &PackManifest, after: &PackManifest) -> String {
    let mut lines = Vec::new();
    for file in after.files.iter().chain([&after.archive]) {
        let old = before.files.iter().chain([&before.archive]).find(|old| old.name == file.name);
        let verdict = match old {
            Some(old) if old.sha256 == file.sha256 => "as before",
            Some(_) => "differs from before",
            None => "new",
        };
        lines.push(format!("{}: {} bytes, sha256 {}: {verdict}", file.name, file.bytes, file.sha256));
    }
    lines.join("\n")
}
