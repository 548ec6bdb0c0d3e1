//! Preview 2 through the guard: the engine's traits for a [`Guest`], each call either guarded or handed on.
//!
//! Must not decide.

use wasmtime::component::{HasData, Resource};
use wasmtime_wasi::filesystem::{Descriptor, WasiFilesystemView};
use wasmtime_wasi::p1::WasiP1Ctx;
use wasmtime_wasi::p2::bindings::filesystem::preopens;
use wasmtime_wasi::p2::bindings::filesystem::types::{
    Advice, DescriptorFlags, DescriptorStat, DescriptorType, DirectoryEntry, DirectoryEntryStream, ErrorCode, Filesize,
    Host, HostDescriptor, HostDirectoryEntryStream, MetadataHashValue, NewTimestamp, OpenFlags, PathFlags,
};
use wasmtime_wasi::p2::{DynInputStream, DynOutputStream, FsError, FsResult};

use super::account::{Kind, Stat};
use super::census::count;
use super::files::{Files, Place};
use super::guard::{self, Answer, At, Calls, Links, Open, Said, Start};
use super::now;
use super::stream::{FileReader, FileWriter};
use crate::backends::wasm::guest::Guest;

type Handle = Resource<Descriptor>;

/// Gives the linker a [`Guest`] for the calls of this module.
pub(in crate::backends::wasm) struct GuardedFiles;

impl HasData for GuardedFiles {
    type Data<'a> = &'a mut Guest;
}

/// One call: what it works on.
struct Call<'a> {
    wasi: &'a mut WasiP1Ctx,
    files: &'a mut Files,
}

/// Runs a call of the engine that never waits.
fn at_once<T>(call: impl Future<Output = FsResult<T>>) -> FsResult<T> {
    now(call).map_err(FsError::trap)?
}

fn borrow(handle: u32) -> Handle {
    Resource::new_borrow(handle)
}

impl Calls for Call<'_> {
    type Error = FsError;

    fn files(&mut self) -> &mut Files {
        self.files
    }

    fn place(&mut self, fd: u32) -> Option<&Place> {
        self.files.handles.get(&fd)
    }

    fn keep(&mut self, fd: u32, place: Place) {
        self.files.handles.insert(fd, place);
    }

    fn stat(&mut self, fd: u32) -> FsResult<Stat> {
        let mut view = self.wasi.filesystem();
        let stat = at_once(view.stat(borrow(fd)))?;
        let hash = at_once(view.metadata_hash(borrow(fd)))?;
        Ok(seen(&stat, hash))
    }

    fn stat_at(&mut self, fd: u32, path: &str, links: Links) -> FsResult<Stat> {
        let flags = match links {
            Links::Followed => PathFlags::SYMLINK_FOLLOW,
            Links::Seen => PathFlags::empty(),
        };
        let mut view = self.wasi.filesystem();
        let stat = at_once(view.stat_at(borrow(fd), flags, path.to_owned()))?;
        let hash = at_once(view.metadata_hash_at(borrow(fd), flags, path.to_owned()))?;
        Ok(seen(&stat, hash))
    }

    fn count(&mut self) -> FsResult<()> {
        count(self.wasi, self.files).map_err(FsError::trap)
    }

    fn said(error: &FsError) -> Said {
        match error.downcast_ref() {
            Some(ErrorCode::NotPermitted | ErrorCode::ReadOnly) => Said::NotPermitted,
            Some(ErrorCode::Access) => Said::NoAccess,
            Some(_) => Said::Usual,
            None => Said::End,
        }
    }

    fn answer(answer: Answer) -> FsError {
        match answer {
            Answer::NotPermitted => ErrorCode::NotPermitted,
            Answer::TooLong => ErrorCode::NameTooLong,
            Answer::OtherDevice => ErrorCode::CrossDevice,
            Answer::Unknown => ErrorCode::Io,
        }
        .into()
    }

    fn end(error: wasmtime::Error) -> FsError {
        FsError::trap(error)
    }
}

fn seen(stat: &DescriptorStat, hash: MetadataHashValue) -> Stat {
    let kind = match stat.type_ {
        DescriptorType::RegularFile => Kind::File,
        DescriptorType::Directory => Kind::Folder,
        DescriptorType::SymbolicLink => Kind::Link,
        DescriptorType::Unknown
        | DescriptorType::BlockDevice
        | DescriptorType::CharacterDevice
        | DescriptorType::Fifo
        | DescriptorType::Socket => Kind::Special,
    };
    Stat { id: hash.lower, kind, size: stat.size, links: stat.link_count }
}

fn links(flags: PathFlags) -> Links {
    if flags.contains(PathFlags::SYMLINK_FOLLOW) { Links::Followed } else { Links::Seen }
}

impl Guest {
    fn on(&mut self) -> Call<'_> {
        Call { wasi: &mut self.wasi, files: &mut self.files }
    }

    /// A stream that writes to a file: the engine checks that it may, its stream is then replaced by ours.
    fn writer(&mut self, fd: &Handle, position: Option<u64>) -> FsResult<Resource<DynOutputStream>> {
        let made = guard::write(&mut self.on(), fd.rep(), Start::End, 0, |call| {
            let mut view = call.wasi.filesystem();
            let handle = borrow(fd.rep());
            let stream = match position {
                Some(position) => view.write_via_stream(handle, position)?,
                None => view.append_via_stream(handle)?,
            };
            Ok(stream.rep())
        })?;
        let stream = Resource::<DynOutputStream>::new_own(made);
        let Some(place) = self.files.handles.get(&fd.rep()) else { return Ok(stream) };
        let (path, open) = (place.path.clone(), place.open.clone());
        let booking = self.files.mount(place.mount).and_then(|mount| mount.access.booking());
        let booked = match booking {
            Some(booking) => Some((booking, self.on().stat(fd.rep())?.id)),
            None => None,
        };
        let view = self.wasi.filesystem();
        let file = match view.table.get(fd)? {
            Descriptor::File(file) => file.file.clone(),
            Descriptor::Dir(_) => return Err(ErrorCode::BadDescriptor.into()),
        };
        let writer = FileWriter { file, position, path, shared: self.files.shared.clone(), booked, _open: open };
        *view.table.get_mut(&stream)? = Box::new(writer);
        Ok(stream)
    }
}

impl preopens::Host for Guest {
    fn get_directories(&mut self) -> wasmtime::Result<Vec<(Handle, String)>> {
        let folders = preopens::Host::get_directories(&mut self.wasi.filesystem())?;
        self.files.opened_roots(folders.iter().map(|(handle, guest)| (handle.rep(), guest.clone())));
        Ok(folders)
    }
}

impl Host for Guest {
    fn convert_error_code(&mut self, error: FsError) -> wasmtime::Result<ErrorCode> {
        self.wasi.filesystem().convert_error_code(error)
    }

    fn filesystem_error_code(&mut self, error: Resource<wasmtime::Error>) -> wasmtime::Result<Option<ErrorCode>> {
        self.wasi.filesystem().filesystem_error_code(error)
    }
}

/// Calls that the engine answers alone.
macro_rules! handed_on {
    ($($name:ident($($argument:ident: $type:ty),*) -> $answer:ty;)*) => {$(
        async fn $name(&mut self, $($argument: $type),*) -> $answer {
            self.wasi.filesystem().$name($($argument),*).await
        }
    )*};
}

impl HostDescriptor for Guest {
    handed_on! {
        advise(fd: Handle, offset: Filesize, length: Filesize, advice: Advice) -> FsResult<()>;
        sync_data(fd: Handle) -> FsResult<()>;
        get_flags(fd: Handle) -> FsResult<DescriptorFlags>;
        get_type(fd: Handle) -> FsResult<DescriptorType>;
        read(fd: Handle, length: Filesize, offset: Filesize) -> FsResult<(Vec<u8>, bool)>;
        read_directory(fd: Handle) -> FsResult<Resource<DirectoryEntryStream>>;
        sync(fd: Handle) -> FsResult<()>;
        stat(fd: Handle) -> FsResult<DescriptorStat>;
        is_same_object(one: Handle, other: Handle) -> wasmtime::Result<bool>;
        metadata_hash(fd: Handle) -> FsResult<MetadataHashValue>;
    }

    async fn set_size(&mut self, fd: Handle, size: Filesize) -> FsResult<()> {
        guard::set_size(&mut self.on(), fd.rep(), guard::Size::Exactly(size), |call, size| {
            at_once(call.wasi.filesystem().set_size(fd, size))
        })
    }

    async fn set_times(&mut self, fd: Handle, accessed: NewTimestamp, modified: NewTimestamp) -> FsResult<()> {
        guard::set_times(&mut self.on(), At { fd: fd.rep(), path: "" }, Links::Seen, |call| {
            at_once(call.wasi.filesystem().set_times(borrow(fd.rep()), accessed, modified))
        })
    }

    async fn write(&mut self, fd: Handle, bytes: Vec<u8>, offset: Filesize) -> FsResult<Filesize> {
        let length = bytes.len() as u64;
        guard::write(&mut self.on(), fd.rep(), Start::At(offset), length, |call| {
            at_once(call.wasi.filesystem().write(borrow(fd.rep()), bytes, offset))
        })
    }

    async fn create_directory_at(&mut self, fd: Handle, path: String) -> FsResult<()> {
        guard::create_folder(&mut self.on(), At { fd: fd.rep(), path: &path }, |call| {
            at_once(call.wasi.filesystem().create_directory_at(borrow(fd.rep()), path.clone()))
        })
    }

    async fn stat_at(&mut self, fd: Handle, flags: PathFlags, path: String) -> FsResult<DescriptorStat> {
        guard::look(&mut self.on(), "stat", At { fd: fd.rep(), path: &path }, |call| {
            at_once(call.wasi.filesystem().stat_at(borrow(fd.rep()), flags, path.clone()))
        })
    }

    async fn set_times_at(
        &mut self,
        fd: Handle,
        flags: PathFlags,
        path: String,
        accessed: NewTimestamp,
        modified: NewTimestamp,
    ) -> FsResult<()> {
        guard::set_times(&mut self.on(), At { fd: fd.rep(), path: &path }, links(flags), |call| {
            at_once(call.wasi.filesystem().set_times_at(borrow(fd.rep()), flags, path.clone(), accessed, modified))
        })
    }

    async fn link_at(&mut self, fd: Handle, flags: PathFlags, from: String, to_fd: Handle, to: String) -> FsResult<()> {
        let ends = (At { fd: fd.rep(), path: &from }, At { fd: to_fd.rep(), path: &to });
        guard::link(&mut self.on(), ends.0, ends.1, |call| {
            let (fd, to_fd) = (borrow(fd.rep()), borrow(to_fd.rep()));
            at_once(call.wasi.filesystem().link_at(fd, flags, from.clone(), to_fd, to.clone()))
        })
    }

    async fn open_at(
        &mut self,
        fd: Handle,
        lookup: PathFlags,
        path: String,
        flags: OpenFlags,
        rights: DescriptorFlags,
    ) -> FsResult<Handle> {
        let how = Open {
            links: links(lookup),
            create: flags.contains(OpenFlags::CREATE),
            cut: flags.contains(OpenFlags::TRUNCATE),
            write: rights.contains(DescriptorFlags::WRITE),
            append: false,
        };
        let opened = guard::open(&mut self.on(), At { fd: fd.rep(), path: &path }, how, |call| {
            let fd = borrow(fd.rep());
            at_once(call.wasi.filesystem().open_at(fd, lookup, path.clone(), flags, rights)).map(|fd| fd.rep())
        })?;
        Ok(Resource::new_own(opened))
    }

    fn drop(&mut self, fd: Handle) -> wasmtime::Result<()> {
        let handle = fd.rep();
        HostDescriptor::drop(&mut self.wasi.filesystem(), fd)?;
        self.files.handles.remove(&handle);
        Ok(())
    }

    async fn readlink_at(&mut self, fd: Handle, path: String) -> FsResult<String> {
        guard::look(&mut self.on(), "read_link", At { fd: fd.rep(), path: &path }, |call| {
            at_once(call.wasi.filesystem().readlink_at(borrow(fd.rep()), path.clone()))
        })
    }

    async fn remove_directory_at(&mut self, fd: Handle, path: String) -> FsResult<()> {
        guard::remove(&mut self.on(), "remove_folder", At { fd: fd.rep(), path: &path }, |call| {
            at_once(call.wasi.filesystem().remove_directory_at(borrow(fd.rep()), path.clone()))
        })
    }

    async fn rename_at(&mut self, fd: Handle, from: String, to_fd: Handle, to: String) -> FsResult<()> {
        let ends = (At { fd: fd.rep(), path: &from }, At { fd: to_fd.rep(), path: &to });
        guard::rename(&mut self.on(), ends.0, ends.1, |call| {
            let (fd, to_fd) = (borrow(fd.rep()), borrow(to_fd.rep()));
            at_once(call.wasi.filesystem().rename_at(fd, from.clone(), to_fd, to.clone()))
        })
    }

    async fn symlink_at(&mut self, fd: Handle, target: String, path: String) -> FsResult<()> {
        guard::symlink(&mut self.on(), &target, At { fd: fd.rep(), path: &path }, |call| {
            at_once(call.wasi.filesystem().symlink_at(borrow(fd.rep()), target.clone(), path.clone()))
        })
    }

    async fn unlink_file_at(&mut self, fd: Handle, path: String) -> FsResult<()> {
        guard::remove(&mut self.on(), "remove_file", At { fd: fd.rep(), path: &path }, |call| {
            at_once(call.wasi.filesystem().unlink_file_at(borrow(fd.rep()), path.clone()))
        })
    }

    fn read_via_stream(&mut self, fd: Handle, offset: Filesize) -> FsResult<Resource<DynInputStream>> {
        let open = self.files.handles.get(&fd.rep()).and_then(|place| place.open.clone());
        let mut view = self.wasi.filesystem();
        let stream = view.read_via_stream(fd, offset)?;
        let inner = view.table.delete(stream)?;
        let reader: DynInputStream = Box::new(FileReader { inner, _open: open });
        Ok(view.table.push(reader)?)
    }

    fn write_via_stream(&mut self, fd: Handle, offset: Filesize) -> FsResult<Resource<DynOutputStream>> {
        self.writer(&fd, Some(offset))
    }

    fn append_via_stream(&mut self, fd: Handle) -> FsResult<Resource<DynOutputStream>> {
        self.writer(&fd, None)
    }

    async fn metadata_hash_at(&mut self, fd: Handle, flags: PathFlags, path: String) -> FsResult<MetadataHashValue> {
        guard::look(&mut self.on(), "stat", At { fd: fd.rep(), path: &path }, |call| {
            at_once(call.wasi.filesystem().metadata_hash_at(borrow(fd.rep()), flags, path.clone()))
        })
    }
}

impl HostDirectoryEntryStream for Guest {
    async fn read_directory_entry(
        &mut self,
        stream: Resource<DirectoryEntryStream>,
    ) -> FsResult<Option<DirectoryEntry>> {
        self.wasi.filesystem().read_directory_entry(stream).await
    }

    fn drop(&mut self, stream: Resource<DirectoryEntryStream>) -> wasmtime::Result<()> {
        HostDirectoryEntryStream::drop(&mut self.wasi.filesystem(), stream)
    }
}
