//! Taking a remote guest's outputs into the local `out` folder, from an archive that its daemon made.
//!
//! The names, links and sizes in the archive are the guest's. Invariant: nothing is created outside `out`, nothing is
//! opened through a link, and what doesn't fit the limits ends the transfer.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::path::{Component, Path};

use cap_fs_ext::DirExt;
use cap_std::fs::Dir;
use tar::{Archive, Entry, EntryType};

use super::guest_path::Area;
use super::remove::empty;
use super::root::Workspace;
use super::transfer::{CreateMode, create_new, open_regular};
use crate::error::{ErrorKind, Result, SkillRuntimeError};
use crate::policy::Limits;

impl Workspace {
    /// Replaces what lies in `out` by the content of an archive whose top folder is `out`.
    ///
    /// # Errors
    /// [`LimitExceeded`](ErrorKind::LimitExceeded) over the disk or file limit, [`Backend`](ErrorKind::Backend) for an
    /// archive that is damaged or has names that lead elsewhere, or when it can't be written.
    pub(crate) fn replace_outputs(&self, archive: &mut Archive<impl Read>, limits: &Limits) -> Result<()> {
        let out = self.area(Area::Out);
        let failed = |error| SkillRuntimeError::backend("could not take the outputs into the workspace", error);
        empty(out).map_err(failed)?;
        let mut left = Left { bytes: limits.disk, files: limits.files };
        for entry in archive.entries().map_err(failed)? {
            let mut entry = entry.map_err(failed)?;
            let path = entry.path().map_err(failed)?.into_owned();
            let Some(parts) = parts_below_out(&path) else {
                return Err(SkillRuntimeError::new(
                    ErrorKind::Backend,
                    "the archive of the outputs has a name that leads out of it",
                ));
            };
            let Some((name, parents)) = parts.split_last() else { continue };
            left.take(entry.size())?;
            let folder = parents.iter().try_fold(out.try_clone().map_err(failed)?, |folder, part| {
                folder.open_dir_nofollow(Path::new(part)).map_err(failed)
            })?;
            take_entry(out, &folder, name, &mut entry, &mut left).map_err(|error| match error {
                Taken::Limit(error) => error,
                Taken::Io(error) => failed(error),
            })?;
        }
        Ok(())
    }
}

/// What may still come.
struct Left {
    bytes: u64,
    files: u64,
}

impl Left {
    fn take(&mut self, bytes: u64) -> Result<()> {
        let over = |what: &str| {
            SkillRuntimeError::new(
                ErrorKind::LimitExceeded,
                format!("/workspace/out holds more than the {what} limit allows to fetch"),
            )
        };
        self.files = self.files.checked_sub(1).ok_or_else(|| over("file"))?;
        self.bytes = self.bytes.checked_sub(bytes).ok_or_else(|| over("disk"))?;
        Ok(())
    }
}

enum Taken {
    Limit(SkillRuntimeError),
    Io(io::Error),
}

impl From<io::Error> for Taken {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<io::ErrorKind> for Taken {
    fn from(kind: io::ErrorKind) -> Self {
        Self::Io(kind.into())
    }
}

fn take_entry(
    out: &Dir,
    folder: &Dir,
    name: &OsStr,
    entry: &mut Entry<'_, impl Read>,
    left: &mut Left,
) -> std::result::Result<(), Taken> {
    let kind = entry.header().entry_type();
    if kind == EntryType::Directory {
        return Ok(folder.create_dir(name)?);
    }
    let executable = entry.header().mode()? & 0o111 != 0;
    #[expect(clippy::wildcard_enum_match_arm, reason = "the format's list is open; the rest holds nothing to take")]
    match kind {
        EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
            let mut file = create_new(folder, name, executable, CreateMode::Ordinary)?;
            io::copy(entry, &mut file)?;
        }
        EntryType::Symlink => {
            // As it is: the collection names it as a link that it doesn't follow.
            let target = entry.link_name()?.ok_or(io::ErrorKind::InvalidData)?;
            folder.symlink_contents(target, name)?;
        }
        EntryType::Link => {
            // Another name of a file that came before: a copy of it, counted as such.
            let target = entry.link_name()?.ok_or(io::ErrorKind::InvalidData)?;
            let parts = parts_below_out(&target).ok_or(io::ErrorKind::InvalidData)?;
            let (first_name, parents) = parts.split_last().ok_or(io::ErrorKind::InvalidData)?;
            let first_folder =
                parents.iter().try_fold(out.try_clone()?, |folder, part| folder.open_dir_nofollow(Path::new(part)))?;
            let (mut first, metadata) = open_regular(&first_folder, Path::new(first_name))?;
            left.take(metadata.len()).map_err(Taken::Limit)?;
            let mut file = create_new(folder, name, executable, CreateMode::Ordinary)?;
            io::copy(&mut first, &mut file)?;
        }
        // Pipes, sockets and devices hold nothing that could be fetched.
        other => tracing::warn!(kind = ?other, "an output that is no file, folder or link was left in the container"),
    }
    Ok(())
}

/// The components below the archive's top folder `out`; `None` for anything that leads elsewhere.
fn parts_below_out(path: &Path) -> Option<Vec<std::ffi::OsString>> {
    let mut parts = Vec::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::Normal(part) => parts.push(part.to_owned()),
            Component::Prefix(_) | Component::RootDir | Component::ParentDir => return None,
        }
    }
    if parts.first().is_none_or(|first| first != "out") {
        return None;
    }
    parts.remove(0);
    Some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::RunId;

    /// An entry: its type, name, content or link target.
    fn archive(entries: &[(EntryType, &str, &str)]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (kind, name, content) in entries {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(*kind);
            header.set_mode(0o755);
            // Not through the library's setters, which refuse names that an attacker wouldn't.
            header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
            let data = if *kind == EntryType::Regular { content.as_bytes() } else { b"" };
            if matches!(kind, EntryType::Symlink | EntryType::Link) {
                header.as_gnu_mut().unwrap().linkname[..content.len()].copy_from_slice(content.as_bytes());
            }
            header.set_size(data.len() as u64);
            header.set_cksum();
            builder.append(&header, data).unwrap();
        }
        builder.into_inner().unwrap()
    }

    fn receive(entries: &[(EntryType, &str, &str)]) -> (Workspace, Result<()>) {
        let workspace = Workspace::create(RunId::random().unwrap()).unwrap();
        workspace.area(Area::Out).create_dir("old").unwrap();
        let bytes = archive(entries);
        let limits = Limits { disk: 10, files: 5, ..Limits::default() };
        let result = workspace.replace_outputs(&mut Archive::new(&bytes[..]), &limits);
        (workspace, result)
    }

    #[test]
    fn what_was_there_is_replaced() {
        use EntryType::{Directory, Link, Regular, Symlink};
        let (workspace, result) = receive(&[
            (Directory, "out/", ""),
            (Directory, "out/a/", ""),
            (Regular, "out/a/x", "123"),
            (Link, "out/y", "out/a/x"),
            (Symlink, "out/z", "/etc/passwd"),
        ]);
        result.unwrap();
        let out = workspace.area(Area::Out);
        let mut names: Vec<String> =
            out.entries().unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        assert_eq!(names, ["a", "y", "z"]);
        assert_eq!((out.read("a/x").unwrap(), out.read("y").unwrap()), (b"123".to_vec(), b"123".to_vec()));
        assert!(out.symlink_metadata("z").unwrap().is_symlink());
    }

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        use EntryType::{Directory, Link, Regular, Symlink};
        for hostile in [
            vec![(Regular, "out/../../x", "1")],
            vec![(Regular, "/out/x", "1")],
            vec![(Regular, "skill/x", "1")],
            vec![(Symlink, "out/a", "/tmp"), (Regular, "out/a/x", "1")],
            vec![(Symlink, "out/a", "../skill"), (Directory, "out/a/x", "")],
            vec![(Symlink, "out/a", "/etc/passwd"), (Link, "out/b", "out/a")],
            vec![(Link, "out/b", "/etc/passwd")],
            vec![(Regular, "out/a", "1"), (Regular, "out/a", "2")],
        ] {
            let (_, result) = receive(&hostile);
            assert_eq!(result.unwrap_err().kind(), ErrorKind::Backend, "{hostile:?}");
        }
    }

    #[test]
    fn more_than_the_limits_is_not_taken() {
        use EntryType::{Link, Regular};
        for large in [
            vec![(Regular, "out/a", "12345678901")],
            vec![(Regular, "out/a", "123456"), (Link, "out/b", "out/a")],
            ["out/1", "out/2", "out/3", "out/4", "out/5", "out/6"].map(|name| (Regular, name, "")).to_vec(),
        ] {
            let (_, result) = receive(&large);
            assert_eq!(result.unwrap_err().kind(), ErrorKind::LimitExceeded, "{large:?}");
        }
    }
}
