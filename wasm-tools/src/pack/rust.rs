//! The Rust part of a recipe: a crate beside `build.sh` that is compiled to a static library for the recipe to link.
//!
//! It is compiled with the toolchain that guests are built with, out of the crate's own lock file, with every path of
//! this machine mapped away. Another compiler version may give other bytes; the pack's README names the one that gave
//! the digests of its manifest.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::build::{cargo, rustflags, write_whole};
use crate::cache::Cache;
use crate::process::run;
use crate::sysroot::setup;
use crate::toolchain::{TARGET, Toolchain};

/// Where the crate is in a pack's folder.
const CRATE: &str = "types";
/// Where the recipe finds the library in its work folder.
const LIBRARY: &str = "rust/library.a";

/// Compiles the crate of the pack in `folder`, if it has one.
///
/// # Errors
/// When there is no toolchain, or the crate doesn't compile.
pub(super) fn compile(folder: &Path, work: &Path, progress: &mut dyn FnMut(&str)) -> Result<()> {
    let source = folder.join(CRATE);
    if !source.join("Cargo.toml").is_file() {
        return Ok(());
    }
    let source = source.canonicalize().with_context(|| format!("can't read {}", source.display()))?;
    let toolchain = Toolchain::find()?;
    progress(&format!("compiling {} with {}", source.display(), toolchain.describe()));
    let sysroot = setup(&toolchain, &Cache::of_user()?, progress)?;
    let target = std::path::absolute(work.join("rust/target")).context("can't tell where the work folder is")?;
    let mut command = cargo(&toolchain);
    command
        .current_dir(&source)
        .env("CARGO_ENCODED_RUSTFLAGS", rustflags(sysroot.as_deref(), &source, &target))
        .args(["build", "--release", "--locked", "--quiet", "--target", TARGET, "--target-dir"])
        .arg(&target);
    run(&mut command, &format!("compile {}", source.display()))?;
    let library = only_library(&target.join(TARGET).join("release"))?;
    let bytes = fs::read(&library).with_context(|| format!("can't read {}", library.display()))?;
    write_whole(&work.join(LIBRARY), &bytes)
}

fn only_library(folder: &Path) -> Result<PathBuf> {
    let entries = fs::read_dir(folder).with_context(|| format!("can't list {}", folder.display()))?;
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.context("can't list the results of cargo")?.path();
        if path.extension().is_some_and(|extension| extension == "a") {
            found.push(path);
        }
    }
    match found.as_slice() {
        [library] => Ok(library.clone()),
        _ => bail!("{} has {} static libraries, and the recipe links one", folder.display(), found.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pack_without_a_crate_needs_no_compiler() {
        let (folder, work) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        compile(folder.path(), work.path(), &mut |text| panic!("{text}")).unwrap();
        assert_eq!(fs::read_dir(work.path()).unwrap().count(), 0);
    }

    #[test]
    fn there_is_one_library_or_it_fails() {
        let folder = tempfile::tempdir().unwrap();
        assert!(only_library(folder.path()).is_err());
        fs::write(folder.path().join("liba.a"), "").unwrap();
        fs::write(folder.path().join("liba.d"), "").unwrap();
        assert_eq!(only_library(folder.path()).unwrap(), folder.path().join("liba.a"));
        fs::write(folder.path().join("libb.a"), "").unwrap();
        assert!(only_library(folder.path()).is_err());
    }
}
