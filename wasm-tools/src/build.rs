//! Building one guest: a Rust file or a crate in, a `.wasm` out.
//!
//! A single file becomes the program of a generated crate that depends on `skillcell-guest` and nothing else; a crate
//! is built as it is, with its own manifest, lock file and profiles.
//!
//! Invariant: the same source and toolchain give the same bytes, wherever source, cache and target folder lie. So
//! every host path that a compiler would write into the module is mapped to a fixed name.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, anyhow, bail};
use sha2::{Digest, Sha256};

use crate::cache::Cache;
use crate::component::wrap;
use crate::inspect::{Inspection, inspect, read_file};
use crate::process::{compiler, run};
use crate::sdk;
use crate::sysroot::{flags, setup};
use crate::toolchain::{TARGET, Toolchain};

/// What a file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// A core module that imports WASI preview 1.
    Module,
    /// A component with `wasi:cli/run`, made of the module with the preview 1 adapter.
    Component,
}

/// How a guest is compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// Small and quick; function names are kept, so that a trap can name its place.
    Release,
    /// Compiles sooner, with debug information and overflow checks.
    Debug,
}

/// What to build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildRequest {
    /// A `.rs` file, or a folder with a `Cargo.toml`.
    pub source: PathBuf,
    /// Where the guest goes; by default `NAME.wasm` in the current folder.
    pub out: Option<PathBuf>,
    /// Module or component.
    pub encoding: Encoding,
    /// How to compile.
    pub profile: Profile,
    /// Which program of a crate with several.
    pub bin: Option<String>,
    /// Arguments for cargo, such as `--locked` or `--offline`.
    pub cargo_arguments: Vec<String>,
}

/// A guest that was built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Built {
    /// Where it lies.
    pub path: PathBuf,
    /// The SHA-256 of its bytes, hex.
    pub sha256: String,
    /// What it is, and whether skillcell can run it.
    pub inspection: Inspection,
}

/// Builds a guest. `progress` is told what is done when it takes time; compiler messages go to stderr.
///
/// # Errors
/// When the source is neither a Rust file nor a crate, does not compile, has no program or several, or when a file
/// can't be written.
pub fn build(
    request: &BuildRequest,
    toolchain: &Toolchain,
    cache: &Cache,
    progress: &mut dyn FnMut(&str),
) -> Result<Built> {
    let source = request.source.canonicalize().with_context(|| {
        format!("no source at {}; give a .rs file or the folder of a crate", request.source.display())
    })?;
    let folder = cache.build_folder(&source, &toolchain.key())?;
    let crate_folder = if source.is_dir() {
        if !source.join("Cargo.toml").is_file() {
            bail!("{} has no Cargo.toml; give a .rs file or the folder of a crate", request.source.display());
        }
        source.clone()
    } else if source.extension() == Some(OsStr::new("rs")) {
        generate_crate(&source, &folder.join("crate"))?;
        folder.join("crate")
    } else {
        bail!("{} is no Rust source; give a .rs file or the folder of a crate", request.source.display());
    };
    let sysroot = setup(toolchain, cache, progress)?;
    let mut command = cargo(toolchain);
    let target = folder.join("target");
    let source_folder = if source.is_dir() { source.as_path() } else { source.parent().unwrap_or(&source) };
    command
        .current_dir(&crate_folder)
        .env("CARGO_ENCODED_RUSTFLAGS", rustflags(sysroot.as_deref(), source_folder, &folder))
        .args(["build", "--target", TARGET, "--message-format=json-render-diagnostics", "--target-dir"])
        .arg(&target);
    match request.profile {
        Profile::Release => command.arg("--release"),
        Profile::Debug => &mut command,
    };
    if let Some(bin) = &request.bin {
        command.args(["--bin", bin]);
    }
    command.args(&request.cargo_arguments);
    let messages = run(&mut command, &format!("build {}", request.source.display()))?;
    let program = only_program(&messages, &request.source)?;
    let module = read_file(&program)?;
    let bytes = match request.encoding {
        Encoding::Module => module,
        Encoding::Component => wrap(&module)?,
    };
    let path = match &request.out {
        Some(path) => path.clone(),
        None => PathBuf::from(program.file_name().context("cargo named a program without a name")?),
    };
    write_whole(&path, &bytes)?;
    let sha256 = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(Built { path, sha256, inspection: inspect(&bytes)? })
}

pub(crate) fn cargo(toolchain: &Toolchain) -> Command {
    match toolchain {
        Toolchain::Rustup(found) => {
            let mut command = compiler(&found.cargo);
            command.env("RUSTC", &found.rustc);
            command
        }
        Toolchain::Debian(found) => {
            let mut command = compiler(&found.cargo);
            // Debian's cargo takes the `rustc` of PATH, which is rustup's where rustup is installed.
            command.env("RUSTC", &found.rustc).env("CARGO_TARGET_WASM32_WASIP1_LINKER", &found.linker);
            command
        }
    }
}

/// The compiler's flags, in the form of `CARGO_ENCODED_RUSTFLAGS`. With `--target` cargo gives them to guest code only,
/// not to build scripts and procedural macros.
pub(crate) fn rustflags(sysroot: Option<&Path>, source: &Path, build: &Path) -> OsString {
    let mut list = sysroot.map(flags).unwrap_or_default();
    let cargo_home = std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo")));
    // Later ones win, so the most particular come last.
    let mapped = [
        cargo_home.map(|home| (home, "/cargo")),
        sysroot.map(|sysroot| (sysroot.to_path_buf(), "/sysroot")),
        Some((source.to_path_buf(), "/guest")),
        Some((build.to_path_buf(), "/build")),
    ];
    for (from, to) in mapped.into_iter().flatten() {
        let mut flag = OsString::from("--remap-path-prefix=");
        flag.push(from);
        flag.push("=");
        flag.push(to);
        list.push(flag);
    }
    list.join(OsStr::new("\u{1f}"))
}

/// Writes the crate around a single file. The file itself stays where it is, so that `include_str!` and the compiler's
/// messages mean it.
fn generate_crate(source: &Path, folder: &Path) -> Result<()> {
    sdk::write(&folder.join("skillcell-guest"))?;
    let stem = source.file_stem().map(OsStr::to_string_lossy).unwrap_or_default();
    let name = crate_name(&stem)
        .ok_or_else(|| anyhow!("the name '{}' is no crate name; begin it with a letter", stem.escape_debug()))?;
    let path = source
        .to_str()
        .with_context(|| format!("the path {} is no UTF-8, which a manifest must be", source.display()))?;
    let manifest = format!(
        "[package]\nname = \"{name}\"\nversion = \"0.0.0\"\nedition = \"2024\"\nautobins = false\n\n\
         [[bin]]\nname = \"{name}\"\npath = {}\n\n\
         [dependencies]\nskillcell-guest = {{ path = \"skillcell-guest\" }}\n\n\
         [profile.release]\nopt-level = \"s\"\nlto = true\ncodegen-units = 1\npanic = \"abort\"\nstrip = \"debuginfo\"\n\n\
         [workspace]\n",
        serde_json::to_string(path)?,
    );
    sdk::write_if_changed(&folder.join("Cargo.toml"), &manifest)
}

/// A crate name close to a file's: other characters than letters, digits, `-` and `_` become `_`.
fn crate_name(stem: &str) -> Option<String> {
    let name: String = stem
        .chars()
        .map(|character| if character.is_ascii_alphanumeric() || character == '-' { character } else { '_' })
        .collect();
    name.starts_with(|first: char| first.is_ascii_alphabetic()).then_some(name)
}

/// The `.wasm` that cargo reports; there must be exactly one.
fn only_program(messages: &[u8], source: &Path) -> Result<PathBuf> {
    let mut programs = Vec::new();
    for line in messages.split(|&byte| byte == b'\n').filter(|line| line.starts_with(b"{")) {
        let message: serde_json::Value =
            serde_json::from_slice(line).context("cargo wrote a message that is no JSON")?;
        let executable = message.get("executable").and_then(serde_json::Value::as_str);
        if let Some(executable) = executable.filter(|path| path.ends_with(".wasm")) {
            programs.push(PathBuf::from(executable));
        }
    }
    match programs.as_slice() {
        [program] => Ok(program.clone()),
        [] => bail!("{} has no program; a guest is a crate with a src/main.rs", source.display()),
        several => {
            let names: Vec<_> =
                several.iter().filter_map(|path| path.file_stem()).map(OsStr::to_string_lossy).collect();
            bail!("{} has several programs: choose one with --bin ({})", source.display(), names.join(", "))
        }
    }
}

/// Writes a file whole or not at all: a runtime may be reading the earlier one.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) | None => Path::new("."),
    };
    fs::create_dir_all(folder).with_context(|| format!("can't make the folder {}", folder.display()))?;
    let mut file = tempfile::Builder::new();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // Guests are ordinary files; the default of a temporary file would make them unreadable for other users.
        file.permissions(fs::Permissions::from_mode(0o644));
    }
    let mut file = file
        .prefix(".unfinished-")
        .tempfile_in(folder)
        .with_context(|| format!("can't write to {}", folder.display()))?;
    file.write_all(bytes).with_context(|| format!("can't write {}", path.display()))?;
    file.persist(path).with_context(|| format!("can't write {}", path.display())).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crate_names_follow_file_names() {
        for (stem, expected) in
            [("report", Some("report")), ("my report.v2", Some("my_report_v2")), ("ü", None), ("1st", None), ("", None)]
        {
            assert_eq!(crate_name(stem).as_deref(), expected, "{stem:?}");
        }
    }

    #[test]
    fn one_program_is_asked_for() {
        let line = |path: &str| format!("{{\"reason\":\"compiler-artifact\",\"executable\":\"{path}\"}}\n");
        let library = "{\"reason\":\"compiler-artifact\",\"executable\":null}\n";
        let one = format!("noise\n{library}{}", line("/t/a.wasm"));
        assert_eq!(only_program(one.as_bytes(), Path::new("x")).unwrap(), Path::new("/t/a.wasm"));
        let none = only_program(library.as_bytes(), Path::new("x")).unwrap_err();
        assert_eq!(none.to_string(), "x has no program; a guest is a crate with a src/main.rs");
        let two = format!("{}{}", line("/t/a.wasm"), line("/t/b.wasm"));
        let two = only_program(two.as_bytes(), Path::new("x")).unwrap_err();
        assert_eq!(two.to_string(), "x has several programs: choose one with --bin (a, b)");
        assert!(only_program(b"{\"reason\":", Path::new("x")).is_err());
    }

    #[test]
    fn a_result_replaces_the_earlier_one_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/a.wasm");
        write_whole(&path, b"first").unwrap();
        write_whole(&path, b"second").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"second");
        assert_eq!(fs::read_dir(folder.path().join("new")).unwrap().count(), 1);
    }
}
