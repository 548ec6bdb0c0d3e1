//! Putting things in: the skill's tree, and the inputs of a run.
//!
//! What was hashed is what is staged: each file is hashed again on its way and compared. Staged files are `0444` or
//! `0555` and staged folders `0555`; that is a second line for runtimes that run as the same user, not the boundary.
//! The areas' own folders stay writable for the host, which may stage more.
//!
//! Invariant: an error leaves things half-staged only in a workspace that no run has seen; the caller drops it.

use std::fmt::Display;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use cap_fs_ext::DirExt;
use cap_std::ambient_authority;
use cap_std::fs::Dir;

use super::guest_path::{Area, GuestPath, check_name};
use super::host_tree::{HostTree, MAX_TREE_BYTES, open_error, own_name, typed};
use super::root::Workspace;
use super::transfer::{
    CreateMode, Failure, create_new, hash_into, open_below, open_regular, out_of_descriptors, read_remedy,
    says_changed, shown,
};
use crate::error::{ErrorKind, Result, SkillRuntimeError};

/// Inputs of one run: more are better put in a folder.
pub const MAX_INPUTS: usize = 1_000;

/// A host folder shown read-only at a guest path inside `/workspace/in`.
#[derive(Debug)]
pub struct ReadOnlyMount {
    /// Where the guest sees it.
    pub guest: GuestPath,
    /// The folder, held open: a swap of the host path changes nothing.
    pub dir: Dir,
}

/// What a runtime can show of the host without copying.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MountSupport {
    /// Nothing: all inputs are copied.
    None,
    /// Folders. Single files are copied even then: programs that save a file put a new one in its place, so a mounted
    /// file would go on showing the old one.
    Folders,
}

/// One input of a run.
#[derive(Debug, Clone)]
pub struct Input {
    /// Its name in `/workspace/in`.
    pub name: String,
    /// What it is.
    pub source: InputSource,
}

/// Where an input comes from.
#[derive(Debug, Clone)]
pub enum InputSource {
    /// A file or folder on this machine, copied.
    Copy(PathBuf),
    /// A folder on this machine, shown read-only where the runtime can, copied where it can't; a file is copied. The
    /// meaning is the same but for links: a copy refuses links that leave the folder, a mount shows them, dangling.
    Mount(PathBuf),
    /// Bytes.
    Bytes(Bytes),
}

impl Input {
    /// A file or folder of this machine, copied, under its own name.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound) or [`PathDenied`](ErrorKind::PathDenied) when the path has no name that could be
    /// used. Whether it exists is found out when it is staged.
    pub fn from_host_path(path: &Path) -> Result<Self> {
        Ok(Self { name: own_name(path)?, source: InputSource::Copy(path.to_owned()) })
    }

    /// A folder of this machine, mounted where the runtime can, under its own name.
    ///
    /// # Errors
    /// As [`from_host_path`](Self::from_host_path).
    pub fn mounted(path: &Path) -> Result<Self> {
        Ok(Self { name: own_name(path)?, source: InputSource::Mount(path.to_owned()) })
    }

    /// Bytes under a name.
    pub fn bytes(name: impl Into<String>, data: impl Into<Bytes>) -> Self {
        Self { name: name.into(), source: InputSource::Bytes(data.into()) }
    }

    /// The source for a message to the caller.
    fn origin(&self) -> String {
        match &self.source {
            InputSource::Copy(path) | InputSource::Mount(path) => format!("'{}'", typed(path)),
            InputSource::Bytes(bytes) => format!("{} bytes given as '{}'", bytes.len(), shown(&self.name)),
        }
    }
}

/// A name taken in `/workspace/in`.
#[derive(Debug)]
pub(super) struct TakenName {
    folded: String,
    origin: String,
}

impl Workspace {
    /// Copies a tree into an area, comparing each file with the digest taken when the tree was read.
    ///
    /// # Errors
    /// [`TrustViolation`](ErrorKind::TrustViolation) naming the file that changed since;
    /// [`InvalidConfig`](ErrorKind::InvalidConfig) when something of that name is staged already;
    /// [`Backend`](ErrorKind::Backend) when it can't be written.
    pub fn stage_tree(&self, area: Area, tree: &HostTree) -> Result<()> {
        copy_tree(self.area(area), &area.guest_path(), tree, CreateMode::ReadOnly)
            .map_err(|error| error.operation("stage"))
    }

    /// Puts inputs into `/workspace/in`.
    ///
    /// # Errors
    /// [`InvalidConfig`](ErrorKind::InvalidConfig) for two inputs of one name (also when only the case differs: some hosts
    /// can't tell them apart) or a name that can't be used; [`NotFound`](ErrorKind::NotFound) with the path as typed;
    /// [`LimitExceeded`](ErrorKind::LimitExceeded) over [`MAX_INPUTS`]; else as [`HostTree::open_folder`] and
    /// [`stage_tree`](Self::stage_tree).
    pub fn stage_inputs(&mut self, inputs: &[Input], mounts: MountSupport) -> Result<()> {
        self.take_names(inputs).map_err(|error| error.operation("stage"))?;
        for input in inputs {
            self.stage_input(input, mounts).map_err(|error| error.operation("stage"))?;
        }
        Ok(())
    }

    /// All names are checked before anything is copied.
    fn take_names(&mut self, inputs: &[Input]) -> Result<()> {
        if self.taken.len() + inputs.len() > MAX_INPUTS {
            return Err(SkillRuntimeError::new(
                ErrorKind::LimitExceeded,
                format!("more than {MAX_INPUTS} inputs; put them in a folder and give that"),
            ));
        }
        for input in inputs {
            let (name, origin) = (&input.name, input.origin());
            check_name(name).map_err(|why| {
                SkillRuntimeError::invalid(format!("the input name '{}' {why}; choose another name", shown(name)))
            })?;
            let folded = name.to_lowercase();
            if let Some(other) = self.taken.iter().find(|taken| taken.folded == folded) {
                return Err(SkillRuntimeError::invalid(format!(
                    "two inputs would both be /workspace/in/{name}: {} and {origin}; rename one",
                    other.origin
                )));
            }
            self.taken.push(TakenName { folded, origin });
        }
        Ok(())
    }

    /// All inputs together may be no larger than one tree.
    fn count_bytes(&mut self, input: &Input, bytes: u64) -> Result<()> {
        self.input_bytes = self.input_bytes.saturating_add(bytes);
        if self.input_bytes <= MAX_TREE_BYTES {
            return Ok(());
        }
        Err(SkillRuntimeError::new(
            ErrorKind::LimitExceeded,
            format!(
                "the inputs up to {} have more than {MAX_TREE_BYTES} bytes; leave some out, or mount them",
                input.origin()
            ),
        ))
    }

    fn stage_input(&mut self, input: &Input, mounts: MountSupport) -> Result<()> {
        let guest = Area::In.guest_path().join(&input.name)?;
        let path = match &input.source {
            InputSource::Bytes(bytes) => {
                self.count_bytes(input, bytes.len() as u64)?;
                let folder = self.area(Area::In);
                return create_new(folder, &input.name, false, CreateMode::ReadOnly)
                    .and_then(|mut file| file.write_all(bytes))
                    .map_err(|error| write_error(&guest, error));
            }
            InputSource::Copy(path) | InputSource::Mount(path) => path,
        };
        let is_folder = std::fs::metadata(path).map_err(|error| open_error(path, "file or folder", error))?.is_dir();
        if !is_folder {
            let tree = HostTree::open_file(path)?;
            self.count_bytes(input, tree.total_bytes())?;
            return copy_tree_as(self.area(Area::In), &guest, &tree, &input.name);
        }
        let mount = match (&input.source, mounts) {
            (InputSource::Mount(_), MountSupport::Folders) => Some(
                Dir::open_ambient_dir(path, ambient_authority()).map_err(|error| open_error(path, "folder", error))?,
            ),
            (InputSource::Mount(_), MountSupport::None) | (InputSource::Copy(_) | InputSource::Bytes(_), _) => None,
        };
        let folder = self.area(Area::In);
        // For a mount this is the folder it covers, so that a listing shows it.
        folder.create_dir(&input.name).map_err(|error| write_error(&guest, error))?;
        match mount {
            Some(dir) => self.mounts.push(ReadOnlyMount { guest, dir }),
            None => {
                let target = folder.open_dir_nofollow(&input.name).map_err(|error| write_error(&guest, error))?;
                let tree = HostTree::open_folder(path)?;
                self.count_bytes(input, tree.total_bytes())?;
                copy_tree(&target, &guest, &tree, CreateMode::ReadOnly)?;
                seal(&target).map_err(|error| write_error(&guest, error))?;
            }
        }
        Ok(())
    }
}

/// A folder being filled: its path in the tree and its handle.
struct Filling {
    path: String,
    dir: Dir,
}

/// `mode` says whether the copy is sealed, or the guest's own.
pub(super) fn copy_tree(target: &Dir, guest: &impl Display, tree: &HostTree, mode: CreateMode) -> Result<()> {
    // Paths are sorted by bytes, so all files of a folder and below stand together: each folder is made once, and
    // sealed when the walk leaves it.
    let mut open: Vec<Filling> = Vec::new();
    let mut source: Option<Filling> = None;
    for entry in tree.entries() {
        let (parent, name) = entry.path.rsplit_once('/').unwrap_or(("", &entry.path));
        enter(target, guest, &mut open, parent, mode)?;
        let (origin_parent, origin_name) = entry.origin.rsplit_once('/').unwrap_or(("", &entry.origin));
        if source.as_ref().is_none_or(|source| source.path != origin_parent) {
            let dir = open_below(tree.root(), origin_parent.split('/'))
                .map_err(|error| unreadable(tree, &entry.path, error))?;
            source = Some(Filling { path: origin_parent.to_owned(), dir });
        }
        let from = source.as_ref().map_or(tree.root(), |source| &source.dir);
        let into = open.last().map_or(target, |folder| &folder.dir);
        copy_entry(tree, entry, (from, origin_name), (into, name, mode), guest)?;
    }
    leave(guest, &mut open, 0, mode)
}

/// Copies a tree of one file under another name.
fn copy_tree_as(target: &Dir, guest: &GuestPath, tree: &HostTree, name: &str) -> Result<()> {
    tree.entries().iter().try_for_each(|entry| {
        copy_entry(tree, entry, (tree.root(), &entry.origin), (target, name, CreateMode::ReadOnly), guest)
    })
}

/// Makes the folders down to `parent`, reusing those that are open.
fn enter(target: &Dir, guest: &impl Display, open: &mut Vec<Filling>, parent: &str, mode: CreateMode) -> Result<()> {
    let inside = |folder: &Filling| {
        parent.strip_prefix(&folder.path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let kept = open.iter().take_while(|folder| inside(folder)).count();
    leave(guest, open, kept, mode)?;
    let done = open.last().map_or(0, |folder| folder.path.len());
    let rest = parent.get(done..).unwrap_or_default();
    for part in rest.split('/').filter(|part| !part.is_empty()) {
        let (above, path) = match open.last() {
            Some(folder) => (&folder.dir, format!("{}/{part}", folder.path)),
            None => (target, part.to_owned()),
        };
        let dir = above
            .create_dir(part)
            .and_then(|()| above.open_dir_nofollow(part))
            .map_err(|error| write_error(guest, error).with("folder", &path))?;
        open.push(Filling { path, dir });
    }
    Ok(())
}

fn leave(guest: &impl Display, open: &mut Vec<Filling>, kept: usize, mode: CreateMode) -> Result<()> {
    while open.len() > kept {
        let Some(folder) = open.pop() else { break };
        match mode {
            CreateMode::ReadOnly => {
                seal(&folder.dir).map_err(|error| write_error(guest, error).with("folder", folder.path))?;
            }
            CreateMode::Ordinary => {}
        }
    }
    Ok(())
}

fn copy_entry(
    tree: &HostTree,
    entry: &super::TreeEntry,
    (from, origin): (&Dir, &str),
    (into, name, mode): (&Dir, &str, CreateMode),
    guest: &impl Display,
) -> Result<()> {
    let (mut source, metadata) = open_regular(from, origin).map_err(|error| unreadable(tree, &entry.path, error))?;
    if metadata.len() != entry.size {
        return Err(changed(tree, &entry.path, io::Error::other("its size differs")));
    }
    let mut copy = create_new(into, name, entry.executable, mode)
        .map_err(|error| write_error(guest, error).with("file", &entry.path))?;
    let copied = hash_into(&mut source, entry.size, entry.size, &mut copy)
        .map_err(|error| write_error(guest, error).with("file", &entry.path))?;
    if copied.sha256 == entry.sha256 {
        Ok(())
    } else {
        Err(changed(tree, &entry.path, io::Error::other("its content differs")))
    }
}

/// Takes the right to write from a folder of ours.
fn seal(folder: &Dir) -> io::Result<()> {
    #[cfg(unix)]
    {
        use cap_std::fs::{Permissions, PermissionsExt};
        folder.set_permissions(".", Permissions::from_mode(0o555))
    }
    #[cfg(not(unix))]
    {
        let _ = folder;
        Ok(())
    }
}

fn changed(tree: &HostTree, path: &str, error: io::Error) -> SkillRuntimeError {
    SkillRuntimeError::new(
        ErrorKind::TrustViolation,
        format!(
            "'{}' in '{}' changed after it was checked; run again when nothing writes to it",
            shown(path),
            tree.name()
        ),
    )
    .caused_by(error)
}

/// A file that was there when the tree was read and can't be opened now.
fn unreadable(tree: &HostTree, path: &str, error: io::Error) -> SkillRuntimeError {
    if says_changed(&error) {
        return changed(tree, path, error);
    }
    let message =
        format!("could not read '{}' in '{}' while it was copied; {}", shown(path), tree.name(), read_remedy(&error));
    SkillRuntimeError::new(ErrorKind::Backend, message).caused_by(error)
}

fn write_error(guest: &impl Display, error: io::Error) -> SkillRuntimeError {
    if out_of_descriptors(&error) {
        let message = format!("could not stage '{guest}'; {}", read_remedy(&error));
        return SkillRuntimeError::new(ErrorKind::Backend, message).caused_by(error);
    }
    match Failure::of(&error) {
        Failure::Exists => SkillRuntimeError::invalid(format!(
            "something is staged in '{guest}' already under that name, or under one that this host can't tell from it; rename one"
        )),
        Failure::Full => {
            SkillRuntimeError::new(ErrorKind::Backend, format!("no space left to stage '{guest}'; set TMPDIR to a folder with space"))
        }
        Failure::Missing
        | Failure::NotFolder
        | Failure::IsFolder
        | Failure::Link
        | Failure::Denied
        | Failure::Other => SkillRuntimeError::new(ErrorKind::Backend, format!("could not stage '{guest}'")),
    }
    .caused_by(error)
}
