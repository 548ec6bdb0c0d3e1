//! Counts what lies in the writable parts of the workspace, through the engine's own calls, so that folders have the same names (ids)
//! here as in the calls of guests.
//!
//! Must be called with the account's turn, or before the run. Invariant: it stops soon after the limits, whatever lies
//! there.

use wasmtime::component::Resource;
use wasmtime_wasi::filesystem::{Descriptor, WasiFilesystemCtxView, WasiFilesystemView};
use wasmtime_wasi::p1::WasiP1Ctx;
use wasmtime_wasi::p2::FsResult;
use wasmtime_wasi::p2::bindings::filesystem::preopens::Host as _;
use wasmtime_wasi::p2::bindings::filesystem::types::{
    DescriptorFlags, DescriptorType, HostDescriptor, HostDirectoryEntryStream, OpenFlags, PathFlags,
};

use super::account::Census;
use super::files::{Access, Files};
use super::now;

/// Counts, and gives the figures to the account.
pub(super) fn count(wasi: &mut WasiP1Ctx, files: &Files) -> wasmtime::Result<()> {
    let mut view = wasi.filesystem();
    let roots = view.get_directories()?;
    let mut census = Census::default();
    let mut counted = Ok(());
    for (root, guest) in roots {
        if counted.is_ok()
            && let Some(access) = files.counted(&guest)
        {
            let before = (census.bytes, census.entries);
            counted = part(&mut view, &root, files.shared.account.worth_counting(), &mut census);
            if access == Access::Copied {
                census.copied.0 += census.bytes - before.0;
                census.copied.1 += census.entries - before.1;
            }
        }
        HostDescriptor::drop(&mut view, root)?;
    }
    counted?;
    files.shared.account.counted(census);
    Ok(())
}

/// Counts one part. Folders are opened one at a time, by their path from its root: they are no links, and nobody moves
/// them meanwhile.
fn part(
    view: &mut WasiFilesystemCtxView<'_>,
    root: &Resource<Descriptor>,
    limits: (u64, u64),
    census: &mut Census,
) -> wasmtime::Result<()> {
    let borrow = |handle: &Resource<Descriptor>| Resource::<Descriptor>::new_borrow(handle.rep());
    let id = usual(now(view.metadata_hash(borrow(root)))?)?.map_or(0, |hash| hash.lower);
    census.folders.insert(id, id);
    let mut waiting = vec![(String::new(), id)];
    while let Some((path, id)) = waiting.pop() {
        let here = if path.is_empty() { ".".to_owned() } else { path.clone() };
        let opened = view.open_at(borrow(root), PathFlags::empty(), here, OpenFlags::DIRECTORY, DescriptorFlags::READ);
        // The host may remove something between the listing and the look.
        let Some(folder) = usual(now(opened)?)? else { continue };
        let stream = usual(now(view.read_directory(borrow(&folder)))?)?;
        while let Some(stream) = &stream {
            let stream = Resource::new_borrow(stream.rep());
            let entry = match now(view.read_directory_entry(stream))? {
                Ok(Some(entry)) => entry,
                Ok(None) => break,
                // A name that is no text: no guest made it, none can open it.
                Err(_) => {
                    census.entries += 1;
                    continue;
                }
            };
            census.entries += 1;
            match entry.type_ {
                DescriptorType::RegularFile => {
                    let file = view.stat_at(borrow(&folder), PathFlags::empty(), entry.name);
                    let size = usual(now(file)?)?.map_or(0, |file| file.size);
                    census.bytes = census.bytes.saturating_add(size);
                }
                DescriptorType::Directory => {
                    let hash = view.metadata_hash_at(borrow(&folder), PathFlags::empty(), entry.name.clone());
                    if let Some(hash) = usual(now(hash)?)? {
                        census.folders.insert(hash.lower, id);
                        let below = if path.is_empty() { entry.name } else { format!("{path}/{}", entry.name) };
                        waiting.push((below, hash.lower));
                    }
                }
                _ => {}
            }
            if census.bytes > limits.0 || census.entries > limits.1 {
                waiting.clear();
                break;
            }
        }
        if let Some(stream) = stream {
            HostDirectoryEntryStream::drop(view, stream)?;
        }
        HostDescriptor::drop(view, folder)?;
    }
    Ok(())
}

/// An answer that the call may give is nothing; anything else ends the count.
fn usual<T>(result: FsResult<T>) -> wasmtime::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) => error.downcast().map(|_| None),
    }
}
