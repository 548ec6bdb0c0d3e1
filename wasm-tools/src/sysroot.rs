//! The private sysroot: the standard library compiled for guests with Debian's compiler, once per compiler version.
//!
//! Works offline: the library's source and all its dependencies are in `rust-web-src`. The key covers everything that
//! goes in (compiler, linker, C library, our own part), so an upgraded package gives a new sysroot and never a mix.
//! The compiler is told to accept unstable flags for this one step only; guests are compiled as stable Rust.
//!
//! Invariant: a folder `sysroot-KEY` is complete. It is filled under another name and renamed.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::cache::{Cache, hex_digest};
use crate::process::{ask, compiler, run};
use crate::toolchain::{DebianToolchain, TARGET, Toolchain};

/// Changes when the way the sysroot is made does.
const RECIPE: &[u8] = b"1";
const LIBC_GAPS: &str = include_str!("../support/libc_gaps.rs");
/// What the linker needs beside the libraries.
const LIBC_FILES: [&str; 3] = ["libc.a", "crt1-command.o", "crt1-reactor.o"];
const GAPS_OBJECT: &str = "libc_gaps.o";

/// Makes what `toolchain` needs before it can build guests, if it isn't there, and gives the sysroot's folder; `None`
/// when the toolchain needs none. `progress` is told what is done when it takes time.
///
/// # Errors
/// When the standard library can't be compiled or the cache can't be written.
pub fn setup(toolchain: &Toolchain, cache: &Cache, progress: &mut dyn FnMut(&str)) -> Result<Option<PathBuf>> {
    match toolchain {
        Toolchain::Rustup(_) => Ok(None),
        Toolchain::Debian(debian) => sysroot(debian, cache, progress).map(Some),
    }
}

/// The flags that make Debian's compiler use a sysroot.
pub(crate) fn flags(sysroot: &Path) -> Vec<OsString> {
    let mut root = OsString::from("--sysroot=");
    root.push(sysroot);
    let mut object = OsString::from("-Clink-arg=");
    object.push(self_contained(sysroot).join(GAPS_OBJECT));
    vec![root, object]
}

fn self_contained(sysroot: &Path) -> PathBuf {
    sysroot.join("lib/rustlib").join(TARGET).join("lib/self-contained")
}

fn sysroot(debian: &DebianToolchain, cache: &Cache, progress: &mut dyn FnMut(&str)) -> Result<PathBuf> {
    let place = cache.sysroot(&key(debian)?);
    if place.is_dir() {
        return Ok(place);
    }
    progress("compiling the standard library for guests, once for this compiler (about a minute)");
    let scratch = cache.scratch()?;
    let filled = scratch.path().join("sysroot");
    fill(debian, scratch.path(), &filled).context("can't make the guests' sysroot")?;
    match fs::rename(&filled, &place) {
        Ok(()) => {}
        // Another process was quicker with the same key, so with the same content.
        Err(_) if place.is_dir() => {}
        Err(error) => return Err(error).with_context(|| format!("can't keep the sysroot as {}", place.display())),
    }
    progress(&format!("made {}", place.display()));
    Ok(place)
}

fn key(debian: &DebianToolchain) -> Result<String> {
    let linker = ask(&debian.linker, &["--version"])
        .with_context(|| format!("{} does not run; install lld-22 anew", debian.linker.display()))?;
    let mut parts = vec![RECIPE.to_vec(), LIBC_GAPS.as_bytes().to_vec(), debian.version.clone().into(), linker.into()];
    for name in LIBC_FILES {
        let path = debian.libc.join(name);
        parts.push(fs::read(&path).with_context(|| format!("can't read {}", path.display()))?);
    }
    Ok(hex_digest(&parts.iter().map(Vec::as_slice).collect::<Vec<_>>()))
}

/// Compiles the standard library in `work` and lays the sysroot out in `place`.
fn fill(debian: &DebianToolchain, work: &Path, place: &Path) -> Result<()> {
    let libraries = compile_standard_library(debian, work)?;
    let folder = place.join("lib/rustlib").join(TARGET).join("lib");
    let beside = self_contained(place);
    fs::create_dir_all(&beside)?;
    let mut count = 0;
    for entry in fs::read_dir(&libraries).with_context(|| format!("can't list {}", libraries.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "rlib")
            && let Some(name) = path.file_name()
            && !name.to_string_lossy().starts_with("libsysroot_seed-")
        {
            copy(&path, &folder.join(name))?;
            count += 1;
        }
    }
    if count == 0 {
        bail!("the compiler left no libraries in {}", libraries.display());
    }
    for name in LIBC_FILES {
        copy(&debian.libc.join(name), &beside.join(name))?;
    }
    link_host_libraries(debian, place)?;
    let source = work.join("libc_gaps.rs");
    fs::write(&source, LIBC_GAPS)?;
    let mut command = compiler(&debian.rustc);
    command
        .args(["--edition=2024", "--crate-type=lib", "--emit=obj", "-Cpanic=abort", "-Copt-level=s"])
        .args(["--target", TARGET, "--sysroot"])
        .arg(place)
        .arg("-o")
        .arg(beside.join(GAPS_OBJECT))
        .arg(&source);
    run(&mut command, "compile what the C library lacks").map(drop)
}

/// Compiles `std` as the dependency of an empty crate and gives the folder with the libraries.
fn compile_standard_library(debian: &DebianToolchain, work: &Path) -> Result<PathBuf> {
    let seed = work.join("seed");
    fs::create_dir_all(seed.join("src"))?;
    fs::write(
        seed.join("Cargo.toml"),
        "[package]\nname = \"sysroot_seed\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\
         [profile.release]\npanic = \"abort\"\n[workspace]\n",
    )?;
    fs::write(seed.join("src/lib.rs"), "#![no_std]\n")?;
    let target = work.join("target");
    let vendor = debian.source.join("library/vendor");
    // Bitcode lets guests use link-time optimisation. Paths are mapped so that the result doesn't depend on the cache.
    let flags = [
        "-Cembed-bitcode=yes".to_owned(),
        format!("--remap-path-prefix={}=/rustc/library", debian.source.join("library").display()),
        format!("--remap-path-prefix={}=/build", work.display()),
    ];
    let mut command = compiler(&debian.cargo);
    command
        .current_dir(&seed)
        .env("RUSTC", &debian.rustc)
        .env("RUSTC_BOOTSTRAP", "1")
        // Empty: a user's configuration could point crates-io elsewhere than to the vendored source.
        .env("CARGO_HOME", work.join("cargo-home"))
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"))
        .args(["build", "--release", "--offline", "--quiet", "-Zbuild-std=std,panic_abort", "--target", TARGET])
        .arg("--target-dir")
        .arg(&target)
        .args(["--config", "source.crates-io.replace-with='debian'"])
        .args(["--config", &format!("source.debian.directory={:?}", vendor.display().to_string())]);
    run(&mut command, "compile the standard library")?;
    Ok(target.join(TARGET).join("release/deps"))
}

/// Procedural macros are looked up for the host in the same sysroot.
fn link_host_libraries(debian: &DebianToolchain, place: &Path) -> Result<()> {
    let host = debian
        .version
        .lines()
        .find_map(|line| line.strip_prefix("host: "))
        .context("rustc -vV doesn't name its host")?;
    let from = debian.host_sysroot.join("lib/rustlib").join(host);
    let to = place.join("lib/rustlib").join(host);
    link(&from, &to).with_context(|| format!("can't link {} to {}", to.display(), from.display()))
}

#[cfg(unix)]
fn link(from: &Path, to: &Path) -> std::io::Result<()> {
    std::os::unix::fs::symlink(from, to)
}

#[cfg(not(unix))]
fn link(_from: &Path, _to: &Path) -> std::io::Result<()> {
    Err(std::io::Error::new(std::io::ErrorKind::Unsupported, "Debian's compiler runs on Debian only"))
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to).with_context(|| format!("can't copy {} to {}", from.display(), to.display())).map(drop)
}
