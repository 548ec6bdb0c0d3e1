//! Builds what a feature needs beside the library: for `docker`, the init that runs inside containers.

use std::error::Error;
use std::path::{Path, PathBuf};

/// The sources of the init; `main.rs` is its root.
const INIT_SOURCES: &str = "src/backends/docker/init";

fn main() -> Result<(), Box<dyn Error>> {
    tell("rerun-if-changed=build.rs");
    if std::env::var_os("CARGO_FEATURE_DOCKER").is_some() {
        tell(&format!("rerun-if-changed={INIT_SOURCES}"));
        let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?).join("skillcell-init");
        build_init(&out)?;
    }
    Ok(())
}

/// Compiles the init as one static executable for the target's processor. The runtime exists on Linux alone.
fn build_init(out: &Path) -> Result<(), Box<dyn Error>> {
    let target = std::env::var("TARGET")?;
    if std::env::var("CARGO_CFG_TARGET_OS")? != "linux" {
        return Ok(());
    }
    let rustc = std::env::var_os("RUSTC").ok_or("RUSTC is not set")?;
    #[expect(clippy::disallowed_methods, reason = "a build script has no other way to compile a second program")]
    let mut command = std::process::Command::new(rustc);
    command
        .args(["--edition", "2024", "--crate-name", "skillcell_init", "--crate-type", "bin", "--target", &target])
        // Small and whole: it is sent to every container, and must need nothing from the image.
        .args(["-C", "target-feature=+crt-static", "-C", "relocation-model=static", "-C", "opt-level=s"])
        .args(["-C", "panic=abort", "-C", "strip=symbols", "-C", "codegen-units=1", "-D", "warnings"])
        .arg("-o")
        .arg(out)
        .arg(Path::new(INIT_SOURCES).join("main.rs"));
    if let Some(linker) = std::env::var_os("RUSTC_LINKER") {
        command.arg("-C").arg(format!("linker={}", linker.to_string_lossy()));
    }
    let status = command.status()?;
    if status.success() {
        Ok(())
    } else {
        Err("the init for containers did not compile; on a glibc target it needs the static C library (Debian: libc6-dev, Fedora: glibc-static)".into())
    }
}

/// Says something to cargo, which reads a build script's output.
fn tell(what: &str) {
    println!("cargo::{what}");
}
