//! Preview 1 through the guard: the engine's trait for a [`Guest`], each call either guarded or handed on.
//!
//! Must not decide. Invariant: a path is copied out of the guest's memory once, and what was looked at is what is used.

use wasmtime_wasi::p1::WasiP1Ctx;
use wasmtime_wasi::p1::types::{
    Advice, CiovecArray, Clockid, Dircookie, Errno, Error, Event, Exitcode, Fd, Fdflags, Fdstat, Filedelta, Filesize,
    Filestat, Filetype, Fstflags, IovecArray, Lookupflags, Oflags, Prestat, Riflags, Rights, Roflags, Sdflags, Siflags,
    Signal, Size, Subscription, Timestamp, Whence,
};
use wasmtime_wasi::p1::wasi_snapshot_preview1::WasiSnapshotPreview1;
use wiggle::{GuestMemory, GuestPtr};

use super::account::{Kind, Stat};
use super::census::count;
use super::files::{Files, Place};
use super::guard::{self, Answer, At, Calls, Links, Open, Said, Start};
use super::now;
use crate::backends::wasm::guest::Guest;

type Result<T> = std::result::Result<T, Error>;

/// The most buffers of one write, as hosts have it.
const MAX_BUFFERS: u32 = 1_024;

/// One call: what it works on, and the guest's memory.
struct Call<'a, 'memory> {
    wasi: &'a mut WasiP1Ctx,
    files: &'a mut Files,
    memory: &'a mut GuestMemory<'memory>,
}

/// Runs a call of the engine that never waits.
fn at_once<T>(call: impl Future<Output = Result<T>>) -> Result<T> {
    now(call).map_err(Error::trap)?
}

/// Lends paths to the engine, which reads them from a memory.
fn lend<T, const N: usize>(
    paths: [&str; N],
    call: impl FnOnce(&mut GuestMemory<'_>, [GuestPtr<str>; N]) -> Result<T>,
) -> Result<T> {
    let mut begin = 0_u32;
    let mut pointers = [GuestPtr::new((0, 0)); N];
    for (pointer, path) in pointers.iter_mut().zip(paths) {
        let length = u32::try_from(path.len())?;
        *pointer = GuestPtr::new((begin, length));
        begin = begin.checked_add(length).ok_or(Errno::Overflow)?;
    }
    let mut bytes = paths.concat().into_bytes();
    call(&mut GuestMemory::Unshared(&mut bytes), pointers)
}

fn stat(file: &Filestat) -> Stat {
    let kind = match file.filetype {
        Filetype::RegularFile => Kind::File,
        Filetype::Directory => Kind::Folder,
        Filetype::SymbolicLink => Kind::Link,
        Filetype::Unknown
        | Filetype::BlockDevice
        | Filetype::CharacterDevice
        | Filetype::SocketDgram
        | Filetype::SocketStream => Kind::Special,
    };
    Stat { id: file.ino, kind, size: file.size, links: file.nlink }
}

impl Calls for Call<'_, '_> {
    type Error = Error;

    fn files(&mut self) -> &mut Files {
        self.files
    }

    fn place(&mut self, fd: u32) -> Option<&Place> {
        self.files.places.get(&fd)
    }

    fn keep(&mut self, fd: u32, place: Place) {
        self.files.places.insert(fd, place);
    }

    fn stat(&mut self, fd: u32) -> Result<Stat> {
        at_once(self.wasi.fd_filestat_get(self.memory, fd.into())).map(|file| stat(&file))
    }

    fn stat_at(&mut self, fd: u32, path: &str, links: Links) -> Result<Stat> {
        let flags = match links {
            Links::Followed => Lookupflags::SYMLINK_FOLLOW,
            Links::Seen => Lookupflags::empty(),
        };
        let file = lend([path], |memory, [path]| at_once(self.wasi.path_filestat_get(memory, fd.into(), flags, path)))?;
        Ok(stat(&file))
    }

    fn count(&mut self) -> Result<()> {
        count(self.wasi, self.files).map_err(Error::trap)
    }

    fn said(error: &Error) -> Said {
        match error.downcast_ref() {
            Some(Errno::Perm | Errno::Notcapable | Errno::Rofs) => Said::NotPermitted,
            Some(Errno::Acces) => Said::NoAccess,
            Some(_) => Said::Usual,
            None => Said::End,
        }
    }

    fn answer(answer: Answer) -> Error {
        match answer {
            Answer::NotPermitted => Errno::Perm,
            Answer::TooLong => Errno::Nametoolong,
            Answer::OtherDevice => Errno::Xdev,
            Answer::Unknown => Errno::Io,
        }
        .into()
    }

    fn end(error: wasmtime::Error) -> Error {
        Error::trap(error)
    }
}

impl Guest {
    fn call<'a, 'memory>(&'a mut self, memory: &'a mut GuestMemory<'memory>) -> Call<'a, 'memory> {
        Call { wasi: &mut self.wasi, files: &mut self.files, memory }
    }
}

/// Copies a path out of the guest's memory.
fn path(memory: &GuestMemory<'_>, path: GuestPtr<str>) -> Result<String> {
    if guard::too_long(usize::try_from(path.len())?) {
        return Err(Errno::Nametoolong.into());
    }
    Ok(memory.as_cow_str(path)?.into_owned())
}

fn links(flags: Lookupflags) -> Links {
    if flags.contains(Lookupflags::SYMLINK_FOLLOW) { Links::Followed } else { Links::Seen }
}

/// How much the engine will write: it takes the first buffer that isn't empty.
fn length(memory: &GuestMemory<'_>, buffers: CiovecArray) -> Result<u64> {
    if buffers.len() > MAX_BUFFERS {
        return Err(Errno::Inval.into());
    }
    for buffer in buffers.iter() {
        let buffer = memory.read(buffer?)?;
        if buffer.buf_len > 0 {
            return Ok(buffer.buf_len.into());
        }
    }
    Ok(0)
}

/// Calls that the engine answers alone.
macro_rules! handed_on {
    ($($name:ident($($argument:ident: $type:ty),*) -> $answer:ty;)*) => {$(
        fn $name(&mut self, memory: &mut GuestMemory<'_>, $($argument: $type),*) -> $answer {
            self.wasi.$name(memory, $($argument),*)
        }
    )*};
}

/// The same for calls that may wait.
macro_rules! awaited {
    ($($name:ident($($argument:ident: $type:ty),*) -> $answer:ty;)*) => {$(
        async fn $name(&mut self, memory: &mut GuestMemory<'_>, $($argument: $type),*) -> $answer {
            self.wasi.$name(memory, $($argument),*).await
        }
    )*};
}

impl WasiSnapshotPreview1 for Guest {
    fn set_hostcall_fuel(&mut self, fuel: usize) {
        self.wasi.set_hostcall_fuel(fuel);
    }

    handed_on! {
        args_get(argv: GuestPtr<GuestPtr<u8>>, buffer: GuestPtr<u8>) -> Result<()>;
        args_sizes_get() -> Result<(Size, Size)>;
        environ_get(environ: GuestPtr<GuestPtr<u8>>, buffer: GuestPtr<u8>) -> Result<()>;
        environ_sizes_get() -> Result<(Size, Size)>;
        clock_res_get(clock: Clockid) -> Result<Timestamp>;
        clock_time_get(clock: Clockid, precision: Timestamp) -> Result<Timestamp>;
        fd_fdstat_set_rights(fd: Fd, base: Rights, inheriting: Rights) -> Result<()>;
        fd_prestat_get(fd: Fd) -> Result<Prestat>;
        fd_prestat_dir_name(fd: Fd, path: GuestPtr<u8>, length: Size) -> Result<()>;
        fd_tell(fd: Fd) -> Result<Filesize>;
        proc_exit(status: Exitcode) -> wasmtime::Error;
        proc_raise(signal: Signal) -> Result<()>;
        sched_yield() -> Result<()>;
        random_get(buffer: GuestPtr<u8>, length: Size) -> Result<()>;
        sock_accept(fd: Fd, flags: Fdflags) -> Result<Fd>;
        sock_recv(fd: Fd, data: IovecArray, flags: Riflags) -> Result<(Size, Roflags)>;
        sock_send(fd: Fd, data: CiovecArray, flags: Siflags) -> Result<Size>;
        sock_shutdown(fd: Fd, how: Sdflags) -> Result<()>;
    }

    awaited! {
        fd_advise(fd: Fd, offset: Filesize, length: Filesize, advice: Advice) -> Result<()>;
        fd_datasync(fd: Fd) -> Result<()>;
        fd_fdstat_get(fd: Fd) -> Result<Fdstat>;
        fd_filestat_get(fd: Fd) -> Result<Filestat>;
        fd_pread(fd: Fd, buffers: IovecArray, offset: Filesize) -> Result<Size>;
        fd_read(fd: Fd, buffers: IovecArray) -> Result<Size>;
        fd_readdir(fd: Fd, buffer: GuestPtr<u8>, length: Size, cookie: Dircookie) -> Result<Size>;
        fd_seek(fd: Fd, offset: Filedelta, whence: Whence) -> Result<Filesize>;
        fd_sync(fd: Fd) -> Result<()>;
        poll_oneoff(subscriptions: GuestPtr<Subscription>, events: GuestPtr<Event>, count: Size) -> Result<Size>;
    }

    fn fd_allocate(&mut self, memory: &mut GuestMemory<'_>, fd: Fd, offset: Filesize, length: Filesize) -> Result<()> {
        // The engine has no such call. What a program relies on is the size; that the host sets the room aside is more
        // than any host promises for all its file systems.
        let end = offset.checked_add(length).ok_or(Errno::Fbig)?;
        if length == 0 {
            return Err(Errno::Inval.into());
        }
        guard::set_size(&mut self.call(memory), fd.into(), guard::Size::AtLeast(end), |call, size| {
            at_once(call.wasi.fd_filestat_set_size(call.memory, fd, size))
        })
    }

    async fn fd_close(&mut self, memory: &mut GuestMemory<'_>, fd: Fd) -> Result<()> {
        self.wasi.fd_close(memory, fd).await?;
        self.files.places.remove(&fd.into());
        Ok(())
    }

    fn fd_fdstat_set_flags(&mut self, memory: &mut GuestMemory<'_>, fd: Fd, flags: Fdflags) -> Result<()> {
        self.wasi.fd_fdstat_set_flags(memory, fd, flags)?;
        if let Some(place) = self.files.places.get_mut(&fd.into()) {
            place.append = flags.contains(Fdflags::APPEND);
        }
        Ok(())
    }

    async fn fd_filestat_set_size(&mut self, memory: &mut GuestMemory<'_>, fd: Fd, size: Filesize) -> Result<()> {
        guard::set_size(&mut self.call(memory), fd.into(), guard::Size::Exactly(size), |call, size| {
            at_once(call.wasi.fd_filestat_set_size(call.memory, fd, size))
        })
    }

    async fn fd_filestat_set_times(
        &mut self,
        memory: &mut GuestMemory<'_>,
        fd: Fd,
        accessed: Timestamp,
        modified: Timestamp,
        flags: Fstflags,
    ) -> Result<()> {
        guard::set_times(&mut self.call(memory), At { fd: fd.into(), path: "" }, Links::Seen, |call| {
            at_once(call.wasi.fd_filestat_set_times(call.memory, fd, accessed, modified, flags))
        })
    }

    async fn fd_pwrite(
        &mut self,
        memory: &mut GuestMemory<'_>,
        fd: Fd,
        buffers: CiovecArray,
        offset: Filesize,
    ) -> Result<Size> {
        // A file that is open for appending takes it at its end, as on Linux.
        let append = self.files.places.get(&fd.into()).is_some_and(|place| place.append);
        let start = if append { Start::End } else { Start::At(offset) };
        let length = length(memory, buffers)?;
        guard::write(&mut self.call(memory), fd.into(), start, length, |call| {
            at_once(call.wasi.fd_pwrite(call.memory, fd, buffers, offset))
        })
    }

    async fn fd_renumber(&mut self, memory: &mut GuestMemory<'_>, from: Fd, to: Fd) -> Result<()> {
        self.wasi.fd_renumber(memory, from, to).await?;
        let (from, to): (u32, u32) = (from.into(), to.into());
        if from != to {
            match self.files.places.remove(&from) {
                Some(place) => self.files.places.insert(to, place),
                None => self.files.places.remove(&to),
            };
        }
        Ok(())
    }

    async fn fd_write(&mut self, memory: &mut GuestMemory<'_>, fd: Fd, buffers: CiovecArray) -> Result<Size> {
        let Some(append) = self.files.places.get(&fd.into()).map(|place| place.append) else {
            // A stream, which may wait.
            return self.wasi.fd_write(memory, fd, buffers).await;
        };
        let start = match self.wasi.fd_tell(memory, fd) {
            Ok(_) if append => Start::End,
            Ok(position) => Start::At(position),
            // A folder: the engine refuses it.
            Err(_) => Start::At(0),
        };
        let length = length(memory, buffers)?;
        guard::write(&mut self.call(memory), fd.into(), start, length, |call| {
            at_once(call.wasi.fd_write(call.memory, fd, buffers))
        })
    }

    async fn path_create_directory(&mut self, memory: &mut GuestMemory<'_>, fd: Fd, name: GuestPtr<str>) -> Result<()> {
        let name = path(memory, name)?;
        guard::create_folder(&mut self.call(memory), At { fd: fd.into(), path: &name }, |call| {
            lend([&name], |memory, [name]| at_once(call.wasi.path_create_directory(memory, fd, name)))
        })
    }

    async fn path_filestat_get(
        &mut self,
        memory: &mut GuestMemory<'_>,
        fd: Fd,
        flags: Lookupflags,
        name: GuestPtr<str>,
    ) -> Result<Filestat> {
        let name = path(memory, name)?;
        guard::look(&mut self.call(memory), "stat", At { fd: fd.into(), path: &name }, |call| {
            lend([&name], |memory, [name]| at_once(call.wasi.path_filestat_get(memory, fd, flags, name)))
        })
    }

    async fn path_filestat_set_times(
        &mut self,
        memory: &mut GuestMemory<'_>,
        fd: Fd,
        flags: Lookupflags,
        name: GuestPtr<str>,
        accessed: Timestamp,
        modified: Timestamp,
        times: Fstflags,
    ) -> Result<()> {
        let name = path(memory, name)?;
        guard::set_times(&mut self.call(memory), At { fd: fd.into(), path: &name }, links(flags), |call| {
            lend([&name], |memory, [name]| {
                at_once(call.wasi.path_filestat_set_times(memory, fd, flags, name, accessed, modified, times))
            })
        })
    }

    async fn path_link(
        &mut self,
        memory: &mut GuestMemory<'_>,
        from_fd: Fd,
        flags: Lookupflags,
        from: GuestPtr<str>,
        to_fd: Fd,
        to: GuestPtr<str>,
    ) -> Result<()> {
        let (from, to) = (path(memory, from)?, path(memory, to)?);
        let ends = (At { fd: from_fd.into(), path: &from }, At { fd: to_fd.into(), path: &to });
        guard::link(&mut self.call(memory), ends.0, ends.1, |call| {
            lend([&from, &to], |memory, [from, to]| {
                at_once(call.wasi.path_link(memory, from_fd, flags, from, to_fd, to))
            })
        })
    }

    async fn path_open(
        &mut self,
        memory: &mut GuestMemory<'_>,
        fd: Fd,
        lookup: Lookupflags,
        name: GuestPtr<str>,
        flags: Oflags,
        rights: Rights,
        inheriting: Rights,
        fdflags: Fdflags,
    ) -> Result<Fd> {
        let name = path(memory, name)?;
        let how = Open {
            links: links(lookup),
            create: flags.contains(Oflags::CREAT),
            cut: flags.contains(Oflags::TRUNC),
            write: rights.contains(Rights::FD_WRITE),
            append: fdflags.contains(Fdflags::APPEND),
        };
        let opened = guard::open(&mut self.call(memory), At { fd: fd.into(), path: &name }, how, |call| {
            lend([&name], |memory, [name]| {
                at_once(call.wasi.path_open(memory, fd, lookup, name, flags, rights, inheriting, fdflags))
            })
            .map(u32::from)
        })?;
        Ok(opened.into())
    }

    async fn path_readlink(
        &mut self,
        memory: &mut GuestMemory<'_>,
        fd: Fd,
        name: GuestPtr<str>,
        buffer: GuestPtr<u8>,
        length: Size,
    ) -> Result<Size> {
        let shown = path(memory, name)?;
        guard::look(&mut self.call(memory), "read_link", At { fd: fd.into(), path: &shown }, |call| {
            at_once(call.wasi.path_readlink(call.memory, fd, name, buffer, length))
        })
    }

    async fn path_remove_directory(&mut self, memory: &mut GuestMemory<'_>, fd: Fd, name: GuestPtr<str>) -> Result<()> {
        let name = path(memory, name)?;
        guard::remove(&mut self.call(memory), "remove_folder", At { fd: fd.into(), path: &name }, |call| {
            lend([&name], |memory, [name]| at_once(call.wasi.path_remove_directory(memory, fd, name)))
        })
    }

    async fn path_rename(
        &mut self,
        memory: &mut GuestMemory<'_>,
        from_fd: Fd,
        from: GuestPtr<str>,
        to_fd: Fd,
        to: GuestPtr<str>,
    ) -> Result<()> {
        let (from, to) = (path(memory, from)?, path(memory, to)?);
        let ends = (At { fd: from_fd.into(), path: &from }, At { fd: to_fd.into(), path: &to });
        guard::rename(&mut self.call(memory), ends.0, ends.1, |call| {
            lend([&from, &to], |memory, [from, to]| at_once(call.wasi.path_rename(memory, from_fd, from, to_fd, to)))
        })
    }

    async fn path_symlink(
        &mut self,
        memory: &mut GuestMemory<'_>,
        target: GuestPtr<str>,
        fd: Fd,
        name: GuestPtr<str>,
    ) -> Result<()> {
        let (target, name) = (path(memory, target)?, path(memory, name)?);
        guard::symlink(&mut self.call(memory), &target, At { fd: fd.into(), path: &name }, |call| {
            lend([&target, &name], |memory, [target, name]| at_once(call.wasi.path_symlink(memory, target, fd, name)))
        })
    }

    async fn path_unlink_file(&mut self, memory: &mut GuestMemory<'_>, fd: Fd, name: GuestPtr<str>) -> Result<()> {
        let name = path(memory, name)?;
        guard::remove(&mut self.call(memory), "remove_file", At { fd: fd.into(), path: &name }, |call| {
            lend([&name], |memory, [name]| at_once(call.wasi.path_unlink_file(memory, fd, name)))
        })
    }
}
