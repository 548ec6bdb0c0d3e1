//! Protected names that exist in a writable mount, and the folders on the way to them, held open: for runtimes that can't
//! refuse names, but can put a mount over what is there.
//!
//! A read-only mount over `.git/hooks` alone is no protection: the folder above could be renamed, and another made in its
//! place. So every folder on the way is to be made a mount too, which can't be moved. Names that don't exist can't be
//! guarded in this way; the change list shows them.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use cap_fs_ext::DirExt;

use super::access::EntryKind;
use super::mounts::HostMount;
use super::transfer::{open_below, open_regular};
use crate::error::{ErrorKind, Result, SkillRuntimeError};
use crate::policy::Protection;

/// Guarded paths of one mount: each costs a sandbox a mount.
pub const MAX_GUARDS: usize = 128;

/// What is to be done with a guarded path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuardKind {
    /// It stays where it is; what lies in it may change.
    InPlace,
    /// It can be read only.
    ReadOnly,
}

/// One path to guard.
#[derive(Debug)]
pub struct Guard {
    /// Below the mount, `/` between parts.
    pub path: String,
    /// How.
    pub kind: GuardKind,
    /// The file or folder itself.
    pub handle: OwnedFd,
}

impl HostMount {
    /// What has to be guarded in the folder, parents first. Nothing for a mount whose content isn't the host's, or that
    /// can't be written to.
    ///
    /// # Errors
    /// [`PathDenied`](ErrorKind::PathDenied) for a protected name that is a link or a special file, which no mount can
    /// cover; [`LimitExceeded`](ErrorKind::LimitExceeded) over [`MAX_GUARDS`].
    pub fn guards(&self) -> Result<Vec<Guard>> {
        let mut wanted: BTreeMap<&str, GuardKind> = BTreeMap::new();
        if !self.mode().writes_to_host() {
            return Ok(Vec::new());
        }
        for (path, kind) in self.before.iter().flat_map(super::changes::Snapshot::kinds) {
            let parent_is_protected =
                path.rsplit_once('/').is_some_and(|(parent, _)| matches!(self.means(parent), Protection::Protected(_)));
            let guard = match (self.means(path), kind) {
                (Protection::Free, _) => continue,
                (Protection::Protected(_), _) if parent_is_protected => continue,
                (Protection::Above, EntryKind::Folder) => GuardKind::InPlace,
                (Protection::Protected(_), EntryKind::Folder)
                | (Protection::Protected(_) | Protection::Above, EntryKind::File) => GuardKind::ReadOnly,
                (Protection::Protected(_) | Protection::Above, EntryKind::Link | EntryKind::Special) => {
                    return Err(SkillRuntimeError::new(
                        ErrorKind::PathDenied,
                        format!(
                            "'{}/{}' is a link or a special file under a protected name, so it can't be kept as it is; \
                             mount '{}' read-only or copy-on-write",
                            self.guest(),
                            path.escape_debug(),
                            self.guest()
                        ),
                    ));
                }
            };
            wanted.insert(path, guard);
            for (end, _) in path.match_indices('/') {
                wanted.entry(path.get(..end).unwrap_or_default()).or_insert(GuardKind::InPlace);
            }
        }
        if wanted.len() > MAX_GUARDS {
            return Err(SkillRuntimeError::new(
                ErrorKind::LimitExceeded,
                format!(
                    "'{}' holds more than {MAX_GUARDS} protected names and folders on the way to them; mount a folder \
                     below it, or mount it read-only or copy-on-write",
                    self.guest()
                ),
            ));
        }
        wanted.into_iter().map(|(path, kind)| self.guard(path, kind)).collect()
    }

    fn means(&self, path: &str) -> Protection {
        self.protection(path.split('/'))
    }

    fn guard(&self, path: &str, kind: GuardKind) -> Result<Guard> {
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        let open = || -> std::io::Result<OwnedFd> {
            let folder = open_below(self.dir(), parent.split('/'))?;
            match folder.open_dir_nofollow(name) {
                Ok(folder) => Ok(folder.into_std_file().into()),
                Err(_) => Ok(open_regular(&folder, name)?.0.into_std().into()),
            }
        };
        let handle = open().map_err(|error| {
            SkillRuntimeError::backend(
                format!(
                    "could not guard '{}/{}'; run again when nothing changes it",
                    self.guest(),
                    path.escape_debug()
                ),
                error,
            )
        })?;
        Ok(Guard { path: path.to_owned(), kind, handle })
    }
}
