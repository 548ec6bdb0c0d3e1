//! Starting compilers: a known environment, output where it belongs, errors that say what was started.
//!
//! Invariant: nothing that a surrounding `cargo run` or `cargo test` set for *its* build reaches the guest's build.
//! Such variables (flags, wrappers, target folders, the rustup toolchain) would change the guest's bytes or take the
//! wrong compiler.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// A command for a compiler or cargo, without the variables that steer another build.
pub(crate) fn compiler(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.stdin(Stdio::null());
    for (name, _) in std::env::vars_os() {
        if steers_a_build(&name) {
            command.env_remove(name);
        }
    }
    command
}

/// Whether a variable steers cargo or rustc, other than where crates come from.
fn steers_a_build(name: &OsStr) -> bool {
    const KEPT: [&str; 6] =
        ["CARGO_HOME", "CARGO_NET_", "CARGO_HTTP_", "CARGO_REGISTRIES_", "CARGO_REGISTRY_", "CARGO_SOURCE_"];
    // A name that is no UTF-8 is none of cargo's.
    let Some(name) = name.to_str() else { return false };
    let cargo = name.starts_with("CARGO") && !KEPT.iter().any(|kept| name.starts_with(kept));
    cargo
        || name.starts_with("RUSTC")
        || name.starts_with("RUSTDOC")
        || matches!(name, "RUSTFLAGS" | "RUSTUP_TOOLCHAIN")
}

/// Runs a command and gives what it wrote on stdout; its stderr goes to ours, because it is for the same reader.
pub(crate) fn run(command: &mut Command, what: &str) -> Result<Vec<u8>> {
    let output = command
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("can't start {} to {what}", command.get_program().display()))?;
    if !output.status.success() {
        bail!("{} failed to {what} ({})", command.get_program().display(), output.status);
    }
    Ok(output.stdout)
}

/// What a program says about itself in one call, as text; `None` when it isn't there or fails.
pub(crate) fn ask(program: &Path, arguments: &[&str]) -> Option<String> {
    let output = compiler(program).args(arguments).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_a_surrounding_build_are_dropped_and_registries_kept() {
        for name in
            ["CARGO_ENCODED_RUSTFLAGS", "CARGO_TARGET_DIR", "CARGO", "RUSTFLAGS", "RUSTC_WRAPPER", "RUSTUP_TOOLCHAIN"]
        {
            assert!(steers_a_build(OsStr::new(name)), "{name}");
        }
        for name in ["CARGO_HOME", "CARGO_HTTP_CAINFO", "CARGO_REGISTRIES_X_INDEX", "RUSTUP_HOME", "PATH", "HOME"] {
            assert!(!steers_a_build(OsStr::new(name)), "{name}");
        }
    }

    #[test]
    fn a_program_that_is_missing_or_fails_is_named() {
        let missing = Path::new("/nonexistent/compiler");
        assert_eq!(ask(missing, &[]), None);
        let error = run(&mut compiler(missing), "compile").unwrap_err();
        assert_eq!(error.to_string(), "can't start /nonexistent/compiler to compile");
    }
}
