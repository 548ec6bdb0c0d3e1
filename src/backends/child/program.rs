//! Finding the program behind a bare name, such as `python3`, on the host.
//!
//! Invariant: what is found is an absolute path that the guest can't have put there. Relative parts of `PATH`, folders
//! inside the workspace, and folders that everybody may write to are passed over.

use std::ffi::OsStr;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Why there is no program.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::backends) enum ProgramError {
    /// A bare name may not hold a slash.
    NotAName,
    /// No folder of the search path has it.
    NotFound,
}

/// Others may write: bit of the mode.
const WORLD_WRITABLE: u32 = 0o002;

/// The first executable of that name in the folders of `search` (a `PATH`), never inside `forbidden`.
pub(in crate::backends) fn find_program(name: &str, search: &OsStr, forbidden: &Path) -> Result<PathBuf, ProgramError> {
    TrustedFolders::of(search, forbidden).find(name)
}

/// The folders of a search path that a program may be taken from. Looking at them costs more than looking into them, so
/// whoever looks for several programs does it once.
pub(in crate::backends) struct TrustedFolders<'a> {
    folders: Vec<PathBuf>,
    forbidden: &'a Path,
}

impl<'a> TrustedFolders<'a> {
    /// Those of `search` (a `PATH`) that are not in `forbidden` and not writable by everybody.
    pub(in crate::backends) fn of(search: &OsStr, forbidden: &'a Path) -> Self {
        let trusted = |folder: &PathBuf| folder.is_absolute() && trusted_folder(folder, forbidden);
        Self { folders: std::env::split_paths(search).filter(trusted).collect(), forbidden }
    }

    /// The first executable of that name.
    pub(in crate::backends) fn find(&self, name: &str) -> Result<PathBuf, ProgramError> {
        if name.is_empty() || name.contains('/') || name == "." || name == ".." {
            return Err(ProgramError::NotAName);
        }
        let mut programs = self.folders.iter().map(|folder| folder.join(name));
        programs.find(|program| runnable(program, self.forbidden)).ok_or(ProgramError::NotFound)
    }
}

/// Not in the workspace, and not writable by everybody.
fn trusted_folder(folder: &Path, forbidden: &Path) -> bool {
    let Ok(real) = folder.canonicalize() else { return false };
    !real.starts_with(forbidden) && real.metadata().is_ok_and(|metadata| metadata.mode() & WORLD_WRITABLE == 0)
}

/// A regular file with an execute bit, also after following links, which must not lead into the workspace. The link
/// itself is what is run: a Python of a virtual environment finds its packages by the path it was started under.
fn runnable(program: &Path, forbidden: &Path) -> bool {
    let Ok(real) = program.canonicalize() else { return false };
    !real.starts_with(forbidden)
        && real.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn program(folder: &Path, name: &str, mode: u32) -> PathBuf {
        let path = folder.join(name);
        let mut options = std::fs::OpenOptions::new();
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, mode);
        options.write(true).create(true).truncate(true).open(&path).unwrap();
        path
    }

    #[test]
    fn the_first_trusted_folder_wins() {
        let top = tempfile::tempdir().unwrap();
        let top = top.path().canonicalize().unwrap();
        let made = ["workspace", "open", "plain", "good"].map(|name| {
            std::fs::create_dir(top.join(name)).unwrap();
            top.join(name)
        });
        let [workspace, open, plain, good] = &made;
        program(workspace, "tool", 0o755);
        program(open, "tool", 0o755);
        std::fs::set_permissions(open, std::fs::Permissions::from_mode(0o1777)).unwrap();
        program(plain, "tool", 0o644);
        let expected = program(good, "tool", 0o755);
        symlink(workspace.join("tool"), good.join("planted")).unwrap();
        let search =
            std::env::join_paths([Path::new("relative"), Path::new("."), workspace, open, plain, good]).unwrap();
        assert_eq!(find_program("tool", &search, workspace), Ok(expected));
        assert_eq!(find_program("planted", &search, workspace), Err(ProgramError::NotFound));
        for bad in ["", ".", "..", "a/b", "/bin/sh", "./tool"] {
            assert_eq!(find_program(bad, &search, workspace), Err(ProgramError::NotAName), "{bad}");
        }
    }
}
