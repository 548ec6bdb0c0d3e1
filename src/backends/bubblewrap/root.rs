//! The root folder a guest sees: a short list of the host's, read-only, and nothing of `/run`, `/tmp`, `/home`, `/root`,
//! `/var`, `/sys`, where sockets and other people's files are.
//!
//! Invariant: every folder of the host that may hold something private is absent, not hidden; the workspace comes from
//! descriptors that are held open, never from a path.

use std::ffi::OsString;
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use crate::backends::child::{Identity, MAX_FOLDERS, shown_as};
use crate::error::{ErrorKind, Result, SkillRuntimeError};
use crate::policy::MountMode;
use crate::workspace::{Area, GuardKind, GuestPath, HostMount, Workspace};

/// Folders that are links into `/usr` on merged systems and real ones on others.
const SYSTEM_LINKS: [&str; 7] = ["/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/libexec"];
/// Whole stores of programs, world-readable by design.
const STORES: [&str; 3] = ["/usr", "/nix/store", "/gnu/store"];
/// Folders that programs read of `/etc`. Private keys (`/etc/ssl/private`) and everything else stay out.
const CONFIGURATION: [&str; 7] = [
    "/etc/alternatives",
    "/etc/ca-certificates",
    "/etc/fonts",
    "/etc/ld.so.conf.d",
    "/etc/pki/ca-trust",
    "/etc/pki/tls/certs",
    "/etc/ssl/certs",
];
/// Files of `/etc`, copied: `bwrap` reads the whole list of mounts again for every one it makes.
const CONFIGURATION_FILES: [&str; 6] = [
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/ssl/openssl.cnf",
    "/etc/timezone",
];
/// A larger file of `/etc` is no configuration.
const MAX_COPIED_FILE: i64 = 4 << 20;
/// Devices without state of the host's. No terminals: a guest has no controlling one to push characters into.
const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];
/// Files that say how names are resolved; shown only to guests with its network.
const RESOLVER: [&str; 2] = ["/etc/resolv.conf", "/etc/hosts"];
/// Files made for the guest are small: they are handed over through a pipe, which takes this much without a reader.
const MAX_MADE_FILE: usize = 4_096;

/// The user inside.
pub(super) const GUEST_USER: u32 = 1_000;

/// Arguments for `bwrap`, and the descriptors they name.
#[derive(Default)]
pub(super) struct Root {
    pub(super) arguments: Vec<OsString>,
    /// Pipes.
    pub(super) keep: Vec<OwnedFd>,
    /// Folders.
    pub(super) folders: Vec<OwnedFd>,
}

impl Root {
    /// The root of a sandbox around `workspace`, with extra folders of the host shown read-only where they are.
    pub(super) fn build(
        workspace: &Workspace,
        extra: &[PathBuf],
        host_network: bool,
        user: Option<Identity>,
    ) -> Result<Self> {
        let mut root = Self::default();
        for store in STORES {
            root.read_only_if_there(Path::new(store));
        }
        for link in SYSTEM_LINKS {
            match rustix::fs::readlink(link, Vec::new()) {
                Ok(target) => root.say(["--symlink".into(), os(target.into_bytes()), link.into()]),
                Err(_) => root.read_only_if_there(Path::new(link)),
            }
        }
        for path in CONFIGURATION {
            root.read_only_if_there(Path::new(path));
        }
        for path in CONFIGURATION_FILES {
            root.copied_file(path);
        }
        root.made_file("/etc/passwd", &format!("guest:x:{GUEST_USER}:{GUEST_USER}::/workspace/tmp:/bin/sh\n"))?;
        root.made_file("/etc/group", &format!("guest:x:{GUEST_USER}:\n"))?;
        root.made_file("/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n")?;
        if host_network {
            for path in RESOLVER {
                root.copied_file(path);
            }
        } else {
            root.made_file("/etc/hosts", "127.0.0.1 localhost\n::1 localhost\n")?;
        }
        root.say(["--proc".into(), "/proc".into(), "--tmpfs".into(), "/dev".into()]);
        for device in DEVICES {
            root.say(["--dev-bind".into(), device.into(), device.into()]);
        }
        for (target, link) in
            [("/proc/self/fd", "/dev/fd"), ("fd/0", "/dev/stdin"), ("fd/1", "/dev/stdout"), ("fd/2", "/dev/stderr")]
        {
            root.say(["--symlink".into(), target.into(), link.into()]);
        }
        root.say(["--dir".into(), "/dev/shm".into(), "--remount-ro".into(), "/dev".into()]);
        for folder in extra {
            // By descriptor: the user that `bwrap` runs as may have no way to the folder.
            let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
            let held = rustix::fs::open(folder, flags, rustix::fs::Mode::empty())
                .map_err(|error| SkillRuntimeError::backend("could not open the folder of an interpreter", error))?;
            root.say(["--ro-bind-fd".into(), held.as_raw_fd().to_string().into(), folder.into()]);
            root.hold(held)?;
        }
        root.workspace(workspace)?;
        for mount in workspace.host_mounts() {
            root.host_mount(mount, extra, user)?;
        }
        // Last: until here, `bwrap` makes the places that things are mounted on.
        root.say(["--remount-ro".into(), "/".into()]);
        Ok(root)
    }

    fn say<const N: usize>(&mut self, words: [OsString; N]) {
        self.arguments.extend(words);
    }

    fn read_only_if_there(&mut self, path: &Path) {
        if rustix::fs::stat(path).is_ok() {
            self.say(["--ro-bind".into(), path.into(), path.into()]);
        }
    }

    /// A small read-only file with this content.
    fn made_file(&mut self, path: &str, content: &str) -> Result<()> {
        let failed = |error: std::io::Error| SkillRuntimeError::backend("could not hand a file to the sandbox", error);
        if content.len() > MAX_MADE_FILE {
            return Err(SkillRuntimeError::new(ErrorKind::Internal, "a file made for a sandbox is too long"));
        }
        let (read, write) =
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(|error| failed(error.into()))?;
        std::fs::File::from(write).write_all(content.as_bytes()).map_err(failed)?;
        self.file(read, path);
        Ok(())
    }

    /// A copy of a file of the host, if it is there.
    fn copied_file(&mut self, path: &str) {
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC | rustix::fs::OFlags::NONBLOCK;
        let Ok(file) = rustix::fs::open(path, flags, rustix::fs::Mode::empty()) else { return };
        let fits = rustix::fs::fstat(&file).is_ok_and(|stat| {
            rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file() && stat.st_size <= MAX_COPIED_FILE
        });
        if fits {
            self.file(file, path);
        }
    }

    /// The root is made read-only in the end, so a file in it needs no mount of its own.
    fn file(&mut self, content: OwnedFd, path: &str) {
        let number = content.as_raw_fd().to_string();
        self.say(["--perms".into(), "0444".into(), "--file".into(), number.into(), path.into()]);
        self.keep.push(content);
    }

    /// Binds a folder that is held open.
    fn bind(&mut self, how: &str, folder: &cap_std::fs::Dir, place: &str) -> Result<()> {
        let failed = |error| SkillRuntimeError::backend(format!("could not open {place}"), error);
        let held = OwnedFd::from(folder.try_clone().map_err(failed)?.into_std_file());
        self.say([how.into(), held.as_raw_fd().to_string().into(), place.into()]);
        self.hold(held)
    }

    fn hold(&mut self, folder: OwnedFd) -> Result<()> {
        self.folders.push(folder);
        if self.folders.len() > MAX_FOLDERS {
            return Err(SkillRuntimeError::new(
                ErrorKind::LimitExceeded,
                format!(
                    "a sandbox can show at most {MAX_FOLDERS} folders and guarded names; give some inputs as copies, or \
                     mount less"
                ),
            ));
        }
        Ok(())
    }

    /// Shows a host folder beside the workspace, with mounts over what is protected in it.
    fn host_mount(&mut self, mount: &HostMount, extra: &[PathBuf], user: Option<Identity>) -> Result<()> {
        let guest = Path::new(mount.guest().as_str());
        if extra.iter().any(|folder| folder.starts_with(guest) || guest.starts_with(folder)) {
            return Err(SkillRuntimeError::invalid(format!(
                "the mount '{}' would hide an interpreter that the sandbox shows there; choose another guest path, such as \
                 /data",
                mount.guest()
            )));
        }
        let failed =
            |error: std::io::Error| SkillRuntimeError::backend(format!("could not open '{}'", mount.guest()), error);
        let how = match mount.access() {
            MountMode::ReadOnly => "--ro-bind-fd",
            MountMode::ReadWrite | MountMode::ReadWriteWithoutDelete | MountMode::CopyOnWrite => "--bind-fd",
        };
        let held = OwnedFd::from(mount.dir().try_clone().map_err(failed)?.into_std_file());
        let stat = rustix::fs::fstat(&held).map_err(|error| failed(error.into()))?;
        let owner = (stat.st_uid, stat.st_gid);
        let held = presented(held, owner, user, mount)?;
        self.say([how.into(), held.as_raw_fd().to_string().into(), guest.into()]);
        self.hold(held)?;
        for guard in mount.guards()? {
            let how = match guard.kind {
                GuardKind::InPlace => "--bind-fd",
                GuardKind::ReadOnly => "--ro-bind-fd",
            };
            let held = presented(guard.handle, owner, user, mount)?;
            self.say([how.into(), held.as_raw_fd().to_string().into(), guest.join(&guard.path).into()]);
            self.hold(held)?;
        }
        Ok(())
    }

    fn workspace(&mut self, workspace: &Workspace) -> Result<()> {
        for area in Area::ALL {
            let how = if area.writable() { "--bind-fd" } else { "--ro-bind-fd" };
            self.bind(how, workspace.area(area), &area.guest_path().to_string())?;
        }
        // Programs that insist on /tmp get the scratch folder, where the disk limit sees what they write.
        self.bind("--bind-fd", workspace.area(Area::Tmp), "/tmp")?;
        for mount in workspace.mounts() {
            place_for(workspace, &mount.guest)?;
            self.bind("--ro-bind-fd", &mount.dir, &mount.guest.to_string())?;
        }
        Ok(())
    }
}

/// A folder or file of a host mount, as the guest's user is to see it.
///
/// A host that is root has guests run as `nobody`, who would see folders of other owners like any stranger: the guest is
/// given the place of the folder's owner, in that folder only.
fn presented(what: OwnedFd, owner: Identity, user: Option<Identity>, mount: &HostMount) -> Result<OwnedFd> {
    let Some(user) = user.filter(|user| *user != owner) else { return Ok(what) };
    shown_as(&what, owner, user).map_err(|error| {
        SkillRuntimeError::new(
            ErrorKind::Unavailable,
            format!(
                "the file system of '{}' can't be shown to the guest's user by a host that is root (an id-mapped mount is \
                 refused); run as an ordinary user, or use another runtime",
                mount.guest()
            ),
        )
        .caused_by(error)
    })
}

/// Makes the folder that a mount inside `/workspace/in` is put on: inside the sandbox the area is read-only.
fn place_for(workspace: &Workspace, guest: &GuestPath) -> Result<()> {
    let (area, inside) = guest.in_area()?;
    workspace
        .area(area)
        .create_dir_all(&inside)
        .map_err(|error| SkillRuntimeError::backend(format!("could not make the place for '{guest}'"), error))
}

fn os(bytes: Vec<u8>) -> OsString {
    std::os::unix::ffi::OsStringExt::from_vec(bytes)
}
