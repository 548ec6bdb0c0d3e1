//! Folders whose owner is somebody else for the guest (Linux 5.12): a host that is root shows its folders to guests that
//! run as `nobody`, and neither may a file on the host change its owner for that nor may the guest have root's rights.
//!
//! Only the two ids that are mapped have a meaning in such a folder; files of others can be read where everybody may.
//!
//! Invariant: no file of the host is touched; what is made is a mount that nobody sees until it is attached.
#![expect(
    unsafe_code,
    reason = "user namespaces and mount attributes have no safe interface; each block has its argument"
)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};

use libc::c_int;

use super::system::{block_signals, check, close_all_but, fork_with};

/// A user and a group.
pub(in crate::backends) type Identity = (u32, u32);

/// A mount of `folder` in which what belongs to `owner` belongs to `seen`, and the other way round. Only root can.
///
/// # Errors
/// [`InvalidInput`](io::ErrorKind::InvalidInput) when the file system can't do that.
pub(in crate::backends) fn shown_as(folder: impl AsFd, owner: Identity, seen: Identity) -> io::Result<OwnedFd> {
    let copy = libc::OPEN_TREE_CLONE | libc::OPEN_TREE_CLOEXEC | (libc::AT_EMPTY_PATH | libc::AT_RECURSIVE) as u32;
    // SAFETY: the descriptor is open, the path a C string; the result is checked before it is owned.
    let tree = unsafe {
        let tree = libc::syscall(libc::SYS_open_tree, folder.as_fd().as_raw_fd(), c"".as_ptr(), copy) as RawFd;
        if tree < 0 {
            return Err(io::Error::last_os_error());
        }
        OwnedFd::from_raw_fd(tree)
    };
    let namespace = user_namespace(owner, seen)?;
    let attributes = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_IDMAP,
        attr_clr: 0,
        propagation: 0,
        userns_fd: namespace.as_raw_fd() as u64,
    };
    // SAFETY: the structure has the kernel's layout, its size is given, and it lives through the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | libc::AT_RECURSIVE,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    check(result as c_int).map(|()| tree)
}

/// A user namespace that maps one id of the disk to the one that is seen.
fn user_namespace(owner: Identity, seen: Identity) -> io::Result<OwnedFd> {
    let (wait, keep) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    // SAFETY: the child makes async-signal-safe calls only, and ends when this process closes the pipe or dies.
    let child = unsafe {
        match fork_with(libc::CLONE_NEWUSER)? {
            0 => {
                block_signals();
                close_all_but([wait.as_raw_fd()]);
                let mut byte = 0u8;
                libc::read(wait.as_raw_fd(), (&raw mut byte).cast(), 1);
                libc::_exit(0)
            }
            child => child,
        }
    };
    let mapped = || -> io::Result<OwnedFd> {
        let write = |name: &str, line: String| -> io::Result<()> {
            let flags = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::CLOEXEC;
            let file = rustix::fs::open(format!("/proc/{child}/{name}"), flags, rustix::fs::Mode::empty())?;
            rustix::io::write(file, line.as_bytes()).map(drop).map_err(io::Error::from)
        };
        write("uid_map", format!("{} {} 1\n", owner.0, seen.0))?;
        write("gid_map", format!("{} {} 1\n", owner.1, seen.1))?;
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
        Ok(rustix::fs::open(format!("/proc/{child}/ns/user"), flags, rustix::fs::Mode::empty())?)
    };
    let namespace = mapped();
    drop(keep);
    // SAFETY: the child is ours and not reaped yet. It ends at once, since the pipe is closed.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    namespace
}
