//! A home folder for a program that is started by root, as somebody else: made of mounts, in the program's own mount
//! namespace, so that nothing of it is on the host's disk and nothing has to be removed.
//!
//! Runs after `supervisor::make_reachable`, which put the folders below `/tmp`. As there, nothing here allocates, locks or
//! panics.
#![cfg_attr(not(feature = "firejail"), expect(dead_code, reason = "only that runtime makes homes"))]
#![expect(unsafe_code, reason = "mounts between fork and exec; each block has its argument")]

use std::ffi::CString;
use std::io;

use libc::c_int;

use super::system::check;

/// Where the home is put together. `/tmp` is the namespace's own by then.
pub(in crate::backends) const HOME_SOURCE: &str = "/tmp/home";
/// The home of that user, as `passwd` names it. `/home` is the namespace's own, so that nobody's name is seen in it.
pub(in crate::backends) const HOME: &str = "/home/guest";

/// What the home holds.
pub(in crate::backends) struct Home {
    /// The folders in it.
    pub(in crate::backends) rooms: Vec<Room>,
    /// The whole of `/etc/passwd`, which has to name the user and its home.
    pub(in crate::backends) passwd: Vec<u8>,
}

/// One folder of a home.
pub(in crate::backends) struct Room {
    /// Where it is put, below [`HOME_SOURCE`].
    place: CString,
    /// Where the folder was made reachable.
    source: CString,
    access: Access,
}

/// Whether a folder may be written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::backends) enum Access {
    Read,
    Write,
}

impl Room {
    /// The folder with this index among those that are made reachable, under a name of one part.
    pub(in crate::backends) fn new(name: &str, index: usize, access: Access) -> Option<Self> {
        let place = CString::new(format!("{HOME_SOURCE}/{name}")).ok()?;
        let source = CString::new(format!("/tmp/{index:03}")).ok()?;
        (!name.contains('/')).then_some(Self { place, source, access })
    }
}

impl Home {
    /// Puts the home together.
    pub(super) unsafe fn furnish(&self, user: u32, group: u32) -> io::Result<()> {
        let (none, tmpfs) = (std::ptr::null::<libc::c_char>(), c"tmpfs".as_ptr());
        let hardened = libc::MS_NOSUID | libc::MS_NODEV;
        // SAFETY: async-signal-safe calls on NUL-terminated strings and live locals.
        unsafe {
            libc::umask(0o022);
            // `firejail` gives the guest's own `/tmp` the mode that it finds.
            check(libc::chmod(c"/tmp".as_ptr(), 0o1777))?;
            make_folder(c"/tmp/home".as_ptr(), user, group)?;
            for room in &self.rooms {
                let place = room.place.as_ptr();
                check(libc::mkdir(place, 0o755))?;
                let bind = libc::MS_BIND | libc::MS_REC;
                check(libc::mount(room.source.as_ptr(), place, none, bind, std::ptr::null()))?;
                harden(place, room.access)?;
            }
            let options = c"mode=755".as_ptr().cast::<libc::c_void>();
            check(libc::mount(tmpfs, c"/home".as_ptr(), tmpfs, hardened, options))?;
            make_folder(c"/home/guest".as_ptr(), user, group)?;
            let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC;
            let file = libc::open(c"/tmp/passwd".as_ptr(), flags, 0o644);
            if file < 0 {
                return Err(io::Error::last_os_error());
            }
            let written = libc::write(file, self.passwd.as_ptr().cast(), self.passwd.len());
            libc::close(file);
            if usize::try_from(written) != Ok(self.passwd.len()) {
                return Err(io::ErrorKind::WriteZero.into());
            }
            let (made, passwd) = (c"/tmp/passwd".as_ptr(), c"/etc/passwd".as_ptr());
            check(libc::mount(made, passwd, none, libc::MS_BIND, std::ptr::null()))
        }
    }
}

unsafe fn make_folder(path: *const libc::c_char, user: u32, group: u32) -> io::Result<()> {
    // SAFETY: the caller gives a NUL-terminated string.
    unsafe {
        check(libc::mkdir(path, 0o755))?;
        check(libc::chown(path, user, group))
    }
}

/// Adds restrictions to a mount and those below it, and takes none away.
unsafe fn harden(path: *const libc::c_char, access: Access) -> io::Result<()> {
    let mut attributes = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV,
        attr_clr: 0,
        propagation: 0,
        userns_fd: 0,
    };
    if access == Access::Read {
        attributes.attr_set |= libc::MOUNT_ATTR_RDONLY;
    }
    // SAFETY: the structure has the kernel's layout, its size is given, and it lives through the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            path,
            libc::AT_RECURSIVE,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    check(result as c_int)
}
