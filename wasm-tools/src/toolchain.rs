//! Which compiler makes guests: rustup's when it has the target, else Debian's, else an error with both remedies.
//!
//! rustup's is asked first because it needs no preparation and is the one a developer chose. Debian's exists so that a
//! machine which reaches only Debian's archive can build guests; its packages hold a compiler that knows the target
//! and the source of the standard library, but no compiled one: see `sysroot`.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::cache::hex_digest;
use crate::process::ask;

/// The target all guests are compiled for. Components are made from it afterwards.
pub const TARGET: &str = "wasm32-wasip1";

/// What Debian 12 needs, in `apt-get install` order.
pub const DEBIAN_PACKAGES: [&str; 5] = ["rustc-web", "cargo-web", "rust-web-src", "wasi-libc", "lld-22"];

/// A compiler that can make guests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Toolchain {
    /// The toolchain in use, with the target installed.
    Rustup(RustupToolchain),
    /// Debian's packages.
    Debian(DebianToolchain),
}

/// A toolchain that brings its own standard library for the target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RustupToolchain {
    /// The compiler itself, not rustup's proxy: the proxy would choose anew in every folder.
    pub(crate) rustc: PathBuf,
    pub(crate) cargo: PathBuf,
    /// `rustc -vV`.
    pub(crate) version: String,
}

/// Debian's compiler and what is needed to make a sysroot for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DebianToolchain {
    pub(crate) rustc: PathBuf,
    pub(crate) cargo: PathBuf,
    pub(crate) linker: PathBuf,
    /// The folder with `library/`, links resolved.
    pub(crate) source: PathBuf,
    /// The folder with `libc.a` and the start objects.
    pub(crate) libc: PathBuf,
    /// The compiler's own sysroot.
    pub(crate) host_sysroot: PathBuf,
    /// `rustc -vV`.
    pub(crate) version: String,
}

impl Toolchain {
    /// Finds a compiler: the `rustc` of `PATH` when it has the target, else Debian's under `/usr`.
    ///
    /// # Errors
    /// When neither can be used: says what is missing and gives both remedies.
    pub fn find() -> Result<Self> {
        match RustupToolchain::find(Path::new("rustc")) {
            Some(found) => Ok(Self::Rustup(found)),
            None => DebianToolchain::find(Path::new("/")).map(Self::Debian),
        }
    }

    /// What a build depends on besides its source: a word that differs for every compiler version.
    pub(crate) fn key(&self) -> String {
        match self {
            Self::Rustup(found) => hex_digest(&[b"rustup", found.version.as_bytes()]),
            Self::Debian(found) => hex_digest(&[b"debian", found.version.as_bytes()]),
        }
    }

    /// One line for people.
    #[must_use]
    pub fn describe(&self) -> String {
        let (name, version) = match self {
            Self::Rustup(found) => ("the toolchain in use", &found.version),
            Self::Debian(found) => ("Debian's rustc-web", &found.version),
        };
        format!("{name}, {}", version.lines().next().unwrap_or("version unknown"))
    }
}

impl RustupToolchain {
    fn find(rustc: &Path) -> Option<Self> {
        let sysroot = PathBuf::from(ask(rustc, &["--print", "sysroot"])?);
        if !has_standard_library(&sysroot) {
            return None;
        }
        let (rustc, cargo) = (sysroot.join("bin/rustc"), sysroot.join("bin/cargo"));
        let version = ask(&rustc, &["-vV"])?;
        cargo.is_file().then_some(Self { rustc, cargo, version })
    }
}

/// A target that was removed leaves its folder; only the library itself proves that it is there.
fn has_standard_library(sysroot: &Path) -> bool {
    let folder = sysroot.join("lib/rustlib").join(TARGET).join("lib");
    let Ok(entries) = std::fs::read_dir(folder) else { return false };
    entries.flatten().any(|entry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        name.starts_with("libstd-") && name.ends_with(".rlib")
    })
}

impl DebianToolchain {
    /// Looks below `root`, which is `/` but in tests.
    fn find(root: &Path) -> Result<Self> {
        let rustc = root.join("usr/bin/rustc");
        let cargo = root.join("usr/bin/cargo");
        let linker = root.join("usr/bin/wasm-ld-22");
        let libc = root.join("usr/lib/wasm32-wasi");
        let answer = ask(&rustc, &["--print", "sysroot"]).zip(ask(&rustc, &["-vV"]));
        // Debian links the source into the sysroot; flags that name it must use the real place.
        let source = answer
            .as_ref()
            .and_then(|(sysroot, _)| Path::new(sysroot).join("lib/rustlib/src/rust").canonicalize().ok())
            .filter(|source| source.join("library/std/Cargo.toml").is_file() && source.join("library/vendor").is_dir());
        let found = [
            answer.is_some(),
            cargo.is_file(),
            source.is_some(),
            libc.join("libc.a").is_file() && libc.join("crt1-command.o").is_file(),
            linker.is_file(),
        ];
        let missing: Vec<_> =
            DEBIAN_PACKAGES.into_iter().zip(found).filter(|(_, there)| !there).map(|(package, _)| package).collect();
        match (answer, source) {
            (Some((sysroot, version)), Some(source)) if missing.is_empty() => {
                Ok(Self { rustc, cargo, linker, source, libc, host_sysroot: PathBuf::from(sysroot), version })
            }
            _ => bail!(
                "no compiler for {TARGET}: the toolchain in use has no such target, and of Debian's packages these are \
                 missing: {}\n  remedy: rustup target add {TARGET}\n  or, on Debian 12: apt-get install -y \
                 --no-install-recommends {}",
                missing.join(" "),
                DEBIAN_PACKAGES.join(" "),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_with_nothing_is_told_both_remedies() {
        let root = tempfile::tempdir().unwrap();
        let error = DebianToolchain::find(root.path()).unwrap_err().to_string();
        assert!(error.contains("missing: rustc-web cargo-web rust-web-src wasi-libc lld-22\n"), "{error}");
        assert!(error.contains("remedy: rustup target add wasm32-wasip1\n"), "{error}");
        assert!(
            error.contains(
                "apt-get install -y --no-install-recommends rustc-web cargo-web rust-web-src wasi-libc lld-22"
            ),
            "{error}"
        );
    }

    #[test]
    fn only_what_is_missing_is_named() {
        let root = tempfile::tempdir().unwrap();
        for file in
            ["usr/bin/cargo", "usr/bin/wasm-ld-22", "usr/lib/wasm32-wasi/libc.a", "usr/lib/wasm32-wasi/crt1-command.o"]
        {
            let path = root.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        let error = DebianToolchain::find(root.path()).unwrap_err().to_string();
        assert!(error.contains("missing: rustc-web rust-web-src\n"), "{error}");
    }

    #[test]
    fn a_removed_target_is_not_taken_for_an_installed_one() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("lib/rustlib/wasm32-wasip1/lib");
        std::fs::create_dir_all(&folder).unwrap();
        assert!(!has_standard_library(root.path()));
        std::fs::write(folder.join("libstd-0123.rlib"), "").unwrap();
        assert!(has_standard_library(root.path()));
    }
}
