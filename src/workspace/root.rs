//! [`Workspace`]: the private folder, made and removed.
//!
//! Invariant: the folder is `0700`, its name can't be guessed, and everything under it is removed by
//! [`Workspace::remove`] or, failing that, on drop.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use cap_fs_ext::DirExt;
use cap_std::ambient_authority;
#[cfg(unix)]
use cap_std::fs::DirBuilderExt;
use cap_std::fs::{Dir, DirBuilder};

use super::guest_path::Area;
use super::ledger::undo;
use super::leftovers::{PREFIX, mark};
use super::mounts::HostMount;
use super::remove::{PATIENCE, remove_tree};
use super::stage::{ReadOnlyMount, TakenName};
use crate::audit::RunId;
use crate::error::{ErrorKind, Result, SkillRuntimeError};

/// The folder behind `/workspace`, owned by one run.
#[derive(Debug)]
pub struct Workspace {
    root: Dir,
    /// The folder it lies in, and its name there: for removing it.
    parent: Dir,
    name: String,
    /// Only for [`ambient_root`](Self::ambient_root).
    path: PathBuf,
    areas: [Dir; Area::ALL.len()],
    pub(super) mounts: Vec<ReadOnlyMount>,
    pub(super) host_mounts: Vec<HostMount>,
    /// Names of inputs staged so far.
    pub(super) taken: Vec<TakenName>,
    /// Bytes of inputs copied so far.
    pub(super) input_bytes: u64,
    removal: Mutex<Removal>,
    /// Says that the folder is in use, to whoever looks for leftovers.
    _mark: std::fs::File,
}

/// Attempts to make a workspace that others keep taking for a leftover. Each of them looks once, at its start.
const MAKE_RETRIES: usize = 32;

/// How far removing a workspace is.
#[derive(Debug, PartialEq, Eq)]
enum Removal {
    Pending,
    Done,
    /// It took too long.
    GivenUp,
}

impl Workspace {
    /// Makes a new, empty workspace in the system's temporary folder.
    ///
    /// # Errors
    /// [`Backend`](crate::ErrorKind::Backend) when the folder can't be made (no space, no permission).
    pub fn create(run: RunId) -> Result<Self> {
        Self::create_in(&std::env::temp_dir(), run)
    }

    /// Makes a new, empty workspace in `parent`, which must exist.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn create_in(parent: &Path, run: RunId) -> Result<Self> {
        let failed = |error: std::io::Error| {
            SkillRuntimeError::backend(
                format!("could not make a workspace in {}; set TMPDIR to a folder with space", parent.display()),
                error,
            )
            .operation("workspace")
        };
        let parent_dir = Dir::open_ambient_dir(parent, ambient_authority()).map_err(failed)?;
        let name = format!("{PREFIX}{run}");
        let mut builder = DirBuilder::new();
        #[cfg(unix)]
        builder.mode(0o700);
        let open_areas = || -> std::io::Result<(Dir, [Dir; Area::ALL.len()], std::fs::File)> {
            let root = parent_dir.open_dir_nofollow(&name)?;
            let mark = mark(&parent_dir, &name, &root)?;
            let open = |area: Area| {
                root.create_dir(area.name())?;
                root.open_dir_nofollow(area.name())
            };
            let areas = [open(Area::Skill)?, open(Area::In)?, open(Area::Out)?, open(Area::Tmp)?, open(Area::Site)?];
            Ok((root, areas, mark))
        };
        let make = || {
            parent_dir.create_dir_with(&name, &builder)?;
            open_areas()
        };
        let mut made = make();
        for _ in 0..MAKE_RETRIES {
            // Another process took it for a leftover in the moment before it was marked.
            if !made.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound) {
                break;
            }
            made = make();
        }
        match made {
            Ok((root, areas, mark)) => Ok(Self {
                root,
                path: parent.join(&name),
                parent: parent_dir,
                name,
                areas,
                mounts: Vec::new(),
                host_mounts: Vec::new(),
                taken: Vec::new(),
                input_bytes: 0,
                removal: Mutex::new(Removal::Pending),
                _mark: mark,
            }),
            Err(error) => {
                // Nothing of use is in it yet. What was there before us isn't ours.
                if error.kind() != std::io::ErrorKind::AlreadyExists {
                    let _ = parent_dir.remove_dir_all(&name);
                }
                Err(failed(error))
            }
        }
    }

    /// The handle of one area's folder.
    #[must_use]
    pub fn area(&self, area: Area) -> &Dir {
        &self.areas[area as usize]
    }

    /// Its folder's name.
    #[cfg(any(test, all(feature = "groups", target_os = "linux")))]
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The folder it lies in.
    pub(super) fn parent(&self) -> &Dir {
        &self.parent
    }

    /// The handle of the folder that holds the areas.
    #[must_use]
    pub fn root(&self) -> &Dir {
        &self.root
    }

    /// Host folders that a runtime shows read-only inside `/workspace/in`, beside what was copied.
    #[must_use]
    pub fn mounts(&self) -> &[ReadOnlyMount] {
        &self.mounts
    }

    /// The folder's path on the host, for an engine that insists on one (a preopen, a bind mount, a process's current
    /// folder). Never show it to a guest or a model, and never open anything below it by name on the host's behalf.
    #[must_use]
    pub fn ambient_root(&self) -> &Path {
        &self.path
    }

    /// Removes the folder and everything in it. Idempotent. Takes 20 s at most: a guest can leave millions of entries.
    ///
    /// # Errors
    /// [`LimitExceeded`](ErrorKind::LimitExceeded) when that time is over: what is left is removed at the next start.
    /// [`Backend`](crate::ErrorKind::Backend) naming the folder, so that a person can remove it.
    pub fn remove(&self) -> Result<()> {
        let mut removal = self.removal.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if *removal == Removal::Done {
            return Ok(());
        }
        // The ledger goes with the folder, so what it names must go first.
        let removed =
            undo(&self.root, &self.name).and_then(|()| remove_tree(&self.parent, &self.name, &self.root, PATIENCE));
        match removed {
            Ok(()) => {
                *removal = Removal::Done;
                Ok(())
            }
            Err(error) if error.kind() == std::io::ErrorKind::TimedOut => {
                *removal = Removal::GivenUp;
                Err(SkillRuntimeError::new(
                    ErrorKind::LimitExceeded,
                    format!(
                        "the workspace {} holds more than could be removed in {} s; the next start there goes on with \
                         it, or remove it yourself",
                        self.path.display(),
                        PATIENCE.as_secs()
                    ),
                )
                .operation("cleanup"))
            }
            Err(error) => Err(SkillRuntimeError::backend(
                format!("could not remove the workspace {}", self.path.display()),
                error,
            )
            .operation("cleanup")),
        }
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        // Whoever waited for the whole time once doesn't want to wait for it again.
        if *self.removal.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner) == Removal::GivenUp {
            return;
        }
        if let Err(error) = self.remove() {
            tracing::warn!(error = %error.chain().join(": "), "a workspace was left behind");
        }
    }
}
