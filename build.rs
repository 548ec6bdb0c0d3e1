//! Builds what a feature needs beside the library: for `docker`, the init that runs inside containers; for
//! `conformance`, the probe that runs inside every sandbox of the operating system.

use std::error::Error;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The sources of the init; `main.rs` is its root.
const INIT_SOURCES: &str = "src/backends/docker/init";
/// The sources of the probe, and of the crate it is written with.
const PROBE_SOURCES: &str = "tests/guests/probe/src";
const GUEST_SDK_SOURCES: &str = "guest-sdk/src";

fn main() -> Result<(), Box<dyn Error>> {
    tell("rerun-if-changed=build.rs");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    // Both are for Linux alone: runtimes of other systems don't exist.
    let linux = std::env::var("CARGO_CFG_TARGET_OS")? == "linux";
    if std::env::var_os("CARGO_FEATURE_DOCKER").is_some() {
        tell(&format!("rerun-if-changed={INIT_SOURCES}"));
        if linux {
            compile("init for containers", "skillcell_init", &program(), INIT_SOURCES, &out.join("skillcell-init"))?;
        }
    }
    if std::env::var_os("CARGO_FEATURE_CONFORMANCE").is_some() {
        tell(&format!("rerun-if-changed={PROBE_SOURCES}"));
        tell(&format!("rerun-if-changed={GUEST_SDK_SOURCES}"));
        build_probe(&out, linux)?;
    }
    Ok(())
}

/// Compiles the probe. A package without its sources gets none, which the suite says where it is needed: a package of
/// the library alone must build.
fn build_probe(out: &Path, linux: bool) -> Result<(), Box<dyn Error>> {
    let probe = out.join("skillcell-probe");
    if !linux || !Path::new(PROBE_SOURCES).exists() || !Path::new(GUEST_SDK_SOURCES).exists() {
        #[expect(clippy::disallowed_methods, reason = "a build script writes to its own folder")]
        std::fs::write(&probe, b"")?;
        return Ok(());
    }
    let guest = out.join("libskillcell_guest.rlib");
    let library = [OsString::from("--crate-type"), "lib".into()];
    compile("crate for guests", "skillcell_guest", &library, GUEST_SDK_SOURCES, &guest)?;
    let mut arguments = program();
    let mut external = OsString::from("skillcell_guest=");
    external.push(&guest);
    arguments.extend(["--extern".into(), external]);
    compile("probe", "skillcell_probe", &arguments, PROBE_SOURCES, &probe)
}

/// Small and whole: it is sent into sandboxes, and must need nothing that is there.
fn program() -> Vec<OsString> {
    let mut arguments = vec!["--crate-type".into(), "bin".into()];
    for option in ["target-feature=+crt-static", "relocation-model=static", "strip=symbols"] {
        arguments.extend(["-C".into(), option.into()]);
    }
    arguments
}

/// Compiles one crate for the target's processor: `main.rs` or `lib.rs` of a folder.
fn compile(what: &str, name: &str, arguments: &[OsString], sources: &str, out: &Path) -> Result<(), Box<dyn Error>> {
    let root = ["main.rs", "lib.rs"].map(|file| Path::new(sources).join(file)).into_iter().find(|path| path.exists());
    let root = root.ok_or_else(|| format!("no main.rs or lib.rs in {sources}"))?;
    let rustc = std::env::var_os("RUSTC").ok_or("RUSTC is not set")?;
    #[expect(clippy::disallowed_methods, reason = "a build script has no other way to compile a second program")]
    let mut command = std::process::Command::new(rustc);
    command
        .args(["--edition", "2024", "--crate-name", name, "--target", &std::env::var("TARGET")?])
        .args(["-C", "opt-level=s", "-C", "panic=abort", "-C", "codegen-units=1", "-D", "warnings"])
        .args(arguments)
        .arg("-o")
        .arg(out)
        .arg(root);
    if let Some(linker) = std::env::var_os("RUSTC_LINKER") {
        command.arg("-C").arg(format!("linker={}", linker.to_string_lossy()));
    }
    if command.status()?.success() {
        Ok(())
    } else {
        Err(format!(
            "the {what} did not compile; on a glibc target it needs the static C library (Debian: libc6-dev, Fedora: \
             glibc-static)"
        )
        .into())
    }
}

/// Says something to cargo, which reads a build script's output.
fn tell(what: &str) {
    println!("cargo::{what}");
}
