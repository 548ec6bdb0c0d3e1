//! Interpreters of the host that lie outside the system's folders: pyenv, uv, virtual environments, nvm, /opt.
//!
//! A sandbox shows the system's folders anyway; for such an interpreter it also has to show the folder it was installed
//! in, read-only and under the same path. What is shown is that folder and no more: never a home, never a folder whose
//! other content can't be told.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::child::TrustedFolders;

/// The interpreters that scripts are run with.
const NAMES: [&str; 9] = ["python3", "python", "node", "nodejs", "ruby", "perl", "lua", "bash", "sh"];
/// Shown in every sandbox.
const SYSTEM: [&str; 8] = ["/usr", "/bin", "/sbin", "/lib", "/lib64", "/nix/store", "/gnu/store", "/lib32"];
/// A version file of pyenv is one line.
const MAX_VERSION_FILE: u64 = 256;

/// Interpreters outside the system's folders.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Toolchains {
    /// Name to absolute path.
    pub(super) programs: BTreeMap<String, PathBuf>,
    /// Folders to show, sorted.
    pub(super) folders: Vec<PathBuf>,
}

impl Toolchains {
    /// Looks at the host's search path. Never takes anything from inside `forbidden`.
    pub(super) fn find(search: &OsStr, forbidden: &Path, home: Option<&Path>) -> Self {
        let mut found = Self::default();
        let trusted = TrustedFolders::of(search, forbidden);
        for name in NAMES {
            let Ok(program) = trusted.find(name) else { continue };
            let program = behind_shim(&program, name).unwrap_or(program);
            if is_system(&program) {
                continue;
            }
            let Some((program, folders)) = installed(&program, home) else { continue };
            found.programs.insert(name.to_owned(), program);
            found.folders.extend(folders);
        }
        found.folders.sort();
        found.folders.dedup();
        found
    }
}

fn is_system(path: &Path) -> bool {
    SYSTEM.iter().any(|system| path.starts_with(system))
}

/// The program that a shim of pyenv would start: shims are shell scripts that look at the home folder.
fn behind_shim(program: &Path, name: &str) -> Option<PathBuf> {
    let folder = program.parent()?;
    if folder.file_name()? != "shims" {
        return None;
    }
    let root = folder.parent()?;
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
    let file = rustix::fs::open(root.join("version"), flags, rustix::fs::Mode::empty()).ok()?;
    let mut version = String::new();
    std::fs::File::from(file).take(MAX_VERSION_FILE).read_to_string(&mut version).ok()?;
    let version = version.lines().next()?.trim();
    if version.is_empty() || version.contains('/') || version.starts_with('.') {
        return None;
    }
    Some(root.join("versions").join(version).join("bin").join(name))
}

/// How a program is started, and the folders it needs. `None` when that can't be told safely.
fn installed(program: &Path, home: Option<&Path>) -> Option<(PathBuf, Vec<PathBuf>)> {
    let real = program.canonicalize().ok()?;
    let environment = program.parent()?.parent()?;
    let mut folders = Vec::new();
    let started = if rustix::fs::stat(environment.join("pyvenv.cfg")).is_ok() {
        // Found by the path it is started under, so the link is what is run.
        folders.push(safe(environment, home)?);
        program.to_owned()
    } else {
        real.clone()
    };
    if !is_system(&real) {
        folders.push(safe(prefix(&real)?, home)?);
    }
    Some((started, folders))
}

/// The folder a program was installed in: the one above its `bin`.
fn prefix(real: &Path) -> Option<&Path> {
    let folder = real.parent()?;
    (folder.file_name()? == "bin").then(|| folder.parent())?
}

/// A folder that may be shown: not the root, a home, or what a home's `.local` holds beside programs.
fn safe(folder: &Path, home: Option<&Path>) -> Option<PathBuf> {
    let real = folder.canonicalize().ok()?;
    let is_home = |path: &Path| {
        home.is_some_and(|home| path == home) || path == Path::new("/root") || path.parent() == Some(Path::new("/home"))
    };
    let in_the_way = real.parent().is_none()
        || is_home(&real)
        || real.file_name()? == ".local" && real.parent().is_some_and(is_home)
        || home.is_some_and(|home| home.starts_with(&real))
        || ["/etc", "/var", "/run", "/tmp", "/proc", "/sys", "/dev", "/boot", "/opt", "/home", "/workspace"]
            .iter()
            .any(|system| real == Path::new(system));
    (!in_the_way && real.components().count() > 2).then_some(real)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{OpenOptionsExt, symlink};

    use super::*;

    fn file(path: &Path, text: &str) {
        use std::io::Write;
        let mut folders = std::fs::DirBuilder::new();
        folders.recursive(true).create(path.parent().unwrap()).unwrap();
        let mut options = std::fs::OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o755).open(path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    #[test]
    fn an_interpreter_shows_the_folder_it_was_installed_in_and_no_more() {
        let top = tempfile::tempdir().unwrap();
        let home = top.path().canonicalize().unwrap().join("home");
        let pyenv = home.join(".pyenv");
        file(&pyenv.join("shims/python3"), "#!/bin/sh\n");
        file(&pyenv.join("version"), "3.12.1\n");
        file(&pyenv.join("versions/3.12.1/bin/python3"), "");
        let uv = home.join(".local/share/uv/python/cpython-3.13");
        file(&uv.join("bin/python3.13"), "");
        file(&home.join("venv/pyvenv.cfg"), "");
        std::fs::DirBuilder::new().recursive(true).create(home.join("venv/bin")).unwrap();
        symlink(uv.join("bin/python3.13"), home.join("venv/bin/python3")).unwrap();
        file(&home.join(".local/bin/python3"), "");
        file(&home.join("bin/python3"), "");
        let find = |search: PathBuf| {
            let found = Toolchains::find(search.as_os_str(), Path::new("/nowhere"), Some(&home));
            (found.programs.get("python3").cloned(), found.folders)
        };
        assert_eq!(
            find(pyenv.join("shims")),
            (Some(pyenv.join("versions/3.12.1/bin/python3")), vec![pyenv.join("versions/3.12.1")])
        );
        assert_eq!(find(home.join("venv/bin")), (Some(home.join("venv/bin/python3")), vec![uv, home.join("venv")]));
        // A home, or the part of it that also holds keyrings, is not shown.
        assert_eq!(find(home.join(".local/bin")), (None, vec![]));
        assert_eq!(find(home.join("bin")), (None, vec![]));
        assert_eq!(find("/usr/bin".into()), (None, vec![]));
    }
}
