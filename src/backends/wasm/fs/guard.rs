//! What is decided about each file call, once for both previews.
//!
//! Each function takes the call itself as `act` and does four things round it: it looks at what the call is about,
//! books what the call may add, lets the call happen, and corrects the booking by what came of it. What the engine's own
//! implementation refuses (paths that lead out, writes in read-only parts) becomes an audit event here.
//!
//! Invariant: a call that changes files is never made without its booking, and never without the account's turn.

use super::account::{Kind, MAX_FOLDERS_DEEP, Stat};
use super::files::{Access, Files, MAX_PATH_BYTES, Place};
use crate::audit::Layer;

/// The calls of one preview: what `act` works on, and how it says no.
pub(super) trait Calls {
    type Error;

    fn files(&mut self) -> &mut Files;
    fn place(&mut self, fd: u32) -> Option<&Place>;
    fn keep(&mut self, fd: u32, place: Place);
    /// Looks at something open.
    fn stat(&mut self, fd: u32) -> Result<Stat, Self::Error>;
    /// Looks at what a path leads to.
    fn stat_at(&mut self, fd: u32, path: &str, links: Links) -> Result<Stat, Self::Error>;
    /// Counts the writable areas anew.
    fn count(&mut self) -> Result<(), Self::Error>;
    /// What kind of refusal an error of the engine is.
    fn said(error: &Self::Error) -> Said;
    /// An answer for the guest.
    fn answer(answer: Answer) -> Self::Error;
    /// The end of the run.
    fn end(error: wasmtime::Error) -> Self::Error;
}

/// What happens at the last part of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Links {
    Followed,
    Seen,
}

/// What an error of the engine says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Said {
    /// Not allowed by WASI: a path that leads out, or a read-only part.
    NotPermitted,
    /// Not allowed by the host's file system.
    NoAccess,
    /// A usual answer: not there, there already, not a folder.
    Usual,
    /// No answer: it ends the run.
    End,
}

/// Answers of this seam's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// Not allowed.
    NotPermitted,
    /// The path is longer, or its folders are deeper, than any may be.
    TooLong,
    /// The two paths lie in different parts.
    OtherDevice,
    /// What is needed to decide could not be found out.
    Unknown,
}

/// A folder that is open, and a path from there.
#[derive(Clone, Copy)]
pub(super) struct At<'a> {
    pub(super) fd: u32,
    pub(super) path: &'a str,
}

/// How something is opened.
#[derive(Debug, Clone, Copy)]
pub(super) struct Open {
    pub(super) links: Links,
    pub(super) create: bool,
    pub(super) cut: bool,
    pub(super) write: bool,
    pub(super) append: bool,
}

/// Where a write begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    At(u64),
    End,
}

/// A path that is longer than any the host takes is answered before it is copied or looked at.
pub(super) fn too_long(bytes: usize) -> bool {
    bytes > MAX_PATH_BYTES
}

fn access<C: Calls>(calls: &mut C, fd: u32) -> Option<Access> {
    let mount = calls.place(fd)?.mount;
    Some(calls.files().mount(mount)?.access)
}

/// Writes the event of a call that was refused.
fn note<C: Calls, T>(
    calls: &mut C,
    action: &'static str,
    (fd, object): (u32, &str),
    changes: bool,
    result: &Result<T, C::Error>,
) {
    let Err(error) = result else { return };
    let Some((mount, writable)) = calls.place(fd).map(|place| (place.mount, place.writable)) else { return };
    let files = calls.files();
    let Some(mount) = files.mount(mount) else { return };
    let read_only = mount.access == Access::ReadOnly;
    let reason = match C::said(error) {
        Said::NotPermitted if changes && read_only => format!("{} is read-only", mount.guest),
        Said::NotPermitted => format!("it leads out of {}", mount.guest),
        Said::NoAccess => "its permissions on the host forbid it".to_owned(),
        Said::Usual if matches!(action, WRITE | SET_SIZE) && !writable => "it was opened for reading only".to_owned(),
        Said::Usual | Said::End => return,
    };
    files.shared.deny(Layer::Files, action, object, &reason);
}

// The two calls that need a descriptor opened for writing.
const WRITE: &str = "write";
const SET_SIZE: &str = "set_size";

/// Refuses a call for a reason of this seam's own.
fn forbid<C: Calls>(calls: &mut C, action: &'static str, at: At<'_>, reason: &str) -> C::Error {
    if let Some(object) = calls.place(at.fd).map(|place| place.shown(at.path)) {
        calls.files().shared.deny(Layer::Files, action, &object, reason);
    }
    C::answer(Answer::NotPermitted)
}

/// The folder that the last part of a path lies in.
fn above(path: &str) -> &str {
    let path = path.trim_end_matches('/');
    match path.rsplit_once('/') {
        Some(("", _)) => "/",
        Some((above, _)) => above,
        None => ".",
    }
}

/// A call that changes nothing.
pub(super) fn look<C: Calls, T>(
    calls: &mut C,
    action: &'static str,
    at: At<'_>,
    act: impl FnOnce(&mut C) -> Result<T, C::Error>,
) -> Result<T, C::Error> {
    let result = act(calls);
    if result.is_err() && let Some(object) = calls.place(at.fd).map(|place| place.shown(at.path)) {
        note(calls, action, (at.fd, &object), false, &result);
    }
    result
}

/// A call that changes something which costs no room, such as times.
pub(super) fn touch<C: Calls>(
    calls: &mut C,
    action: &'static str,
    at: At<'_>,
    act: impl FnOnce(&mut C) -> Result<(), C::Error>,
) -> Result<(), C::Error> {
    let result = act(calls);
    if result.is_err() && let Some(object) = calls.place(at.fd).map(|place| place.shown(at.path)) {
        note(calls, action, (at.fd, &object), true, &result);
    }
    result
}

/// Wraps a change: the part must be an area with an account for `booked` to be used; elsewhere the engine refuses.
fn change<C: Calls, T>(
    calls: &mut C,
    action: &'static str,
    at: At<'_>,
    act: impl FnOnce(&mut C, bool, &str) -> Result<T, C::Error>,
) -> Result<T, C::Error> {
    let Some(object) = calls.place(at.fd).map(|place| place.shown(at.path)) else { return act(calls, false, at.path) };
    let booked = access(calls, at.fd) == Some(Access::Area);
    let shared = calls.files().shared.clone();
    let turn = booked.then(|| shared.account.turn());
    let result = act(calls, booked, &object);
    drop(turn);
    note(calls, action, (at.fd, &object), true, &result);
    result
}

/// Books new entries before a call and gives them back when the call didn't make them.
fn adding<C: Calls, T>(
    calls: &mut C,
    object: &str,
    (bytes, entries): (u64, u64),
    act: impl FnOnce(&mut C) -> Result<T, C::Error>,
) -> Result<T, C::Error> {
    let shared = calls.files().shared.clone();
    shared.account.add(bytes, entries).map_err(|excess| C::end(shared.exceed(object, excess)))?;
    let result = act(calls);
    if result.as_ref().is_err_and(|error| C::said(error) != Said::End) {
        shared.account.give_back(bytes, entries);
    }
    result
}

/// The folder that a new folder will lie in. One that isn't known was made by the host since the last count.
fn known_folder<C: Calls>(calls: &mut C, fd: u32, path: &str) -> Result<(u64, usize), C::Error> {
    let folder = calls.stat_at(fd, path, Links::Followed)?.id;
    let account = calls.files().shared.account.clone();
    if account.depth_in(folder).is_none() {
        calls.count()?;
    }
    let depth = account.depth_in(folder).ok_or_else(|| C::answer(Answer::Unknown))?;
    Ok((folder, depth))
}

/// Refuses folders that would lie too deep.
fn bounded<C: Calls>(calls: &mut C, object: &str, depth: usize) -> Result<(), C::Error> {
    if depth <= MAX_FOLDERS_DEEP {
        return Ok(());
    }
    let reason = format!("folders may lie {MAX_FOLDERS_DEEP} deep");
    calls.files().shared.deny(Layer::Limit, "depth_limit", object, &reason);
    Err(C::answer(Answer::TooLong))
}

/// Makes a folder.
pub(super) fn create_folder<C: Calls>(
    calls: &mut C,
    at: At<'_>,
    act: impl FnOnce(&mut C) -> Result<(), C::Error>,
) -> Result<(), C::Error> {
    change(calls, "create_folder", at, |calls, booked, object| {
        if !booked {
            return act(calls);
        }
        let (folder, depth) = known_folder(calls, at.fd, above(at.path))?;
        bounded(calls, object, depth)?;
        adding(calls, object, (0, 1), act)?;
        match calls.stat_at(at.fd, at.path, Links::Seen) {
            Ok(made) if made.kind == Kind::Folder => {
                calls.files().shared.account.folder_is_in(made.id, folder);
                Ok(())
            }
            Ok(_) | Err(_) => calls.count(),
        }
    })
}

/// Removes a folder.
pub(super) fn remove_folder<C: Calls>(
    calls: &mut C,
    at: At<'_>,
    act: impl FnOnce(&mut C) -> Result<(), C::Error>,
) -> Result<(), C::Error> {
    change(calls, "remove_folder", at, |calls, booked, _| {
        let before = if booked { calls.stat_at(at.fd, at.path, Links::Seen).ok() } else { None };
        act(calls)?;
        match before {
            Some(gone) if gone.kind == Kind::Folder => calls.files().shared.account.folder_is_gone(gone.id),
            Some(_) | None if booked => calls.count()?,
            Some(_) | None => {}
        }
        Ok(())
    })
}

/// Removes a name of a file or link.
pub(super) fn remove_file<C: Calls>(
    calls: &mut C,
    at: At<'_>,
    act: impl FnOnce(&mut C) -> Result<(), C::Error>,
) -> Result<(), C::Error> {
    change(calls, "remove_file", at, |calls, booked, _| {
        let before = if booked { calls.stat_at(at.fd, at.path, Links::Seen).ok() } else { None };
        act(calls)?;
        match before {
            Some(gone) if gone.kind != Kind::Folder => calls.files().shared.account.unlinked(&gone),
            Some(_) | None if booked => calls.count()?,
            Some(_) | None => {}
        }
        Ok(())
    })
}

/// Makes a symbolic link.
pub(super) fn symlink<C: Calls>(
    calls: &mut C,
    target: &str,
    at: At<'_>,
    act: impl FnOnce(&mut C) -> Result<(), C::Error>,
) -> Result<(), C::Error> {
    if too_long(target.len()) {
        return Err(C::answer(Answer::TooLong));
    }
    if target.starts_with('/') && access(calls, at.fd) == Some(Access::Area) {
        return Err(forbid(calls, "symlink", at, "a link may not be absolute"));
    }
    change(calls, "symlink", at, |calls, booked, object| {
        if booked { adding(calls, object, (0, 1), act) } else { act(calls) }
    })
}

/// Both ends of a call with two paths: whether both lie in areas, or the answer that they don't belong together.
fn pair<C: Calls, T>(
    calls: &mut C,
    action: &'static str,
    (from, to): (At<'_>, At<'_>),
    act: impl FnOnce(&mut C, bool, &str) -> Result<T, C::Error>,
) -> Result<T, C::Error> {
    let shown = |calls: &mut C, at: At<'_>| calls.place(at.fd).map(|place| place.shown(at.path));
    let (Some(source), Some(target)) = (shown(calls, from), shown(calls, to)) else { return act(calls, false, "") };
    let object = format!("{source} to {target}");
    let ends = (access(calls, from.fd), access(calls, to.fd));
    let booked = ends == (Some(Access::Area), Some(Access::Area));
    let shared = calls.files().shared.clone();
    let turn = booked.then(|| shared.account.turn());
    let result = act(calls, booked, &object);
    drop(turn);
    // The event names the end that forbids it.
    let fd = if ends.0 == Some(Access::ReadOnly) || ends.1 != Some(Access::ReadOnly) { from.fd } else { to.fd };
    note(calls, action, (fd, &object), true, &result);
    result
}

/// Gives a file another name.
pub(super) fn link<C: Calls>(
    calls: &mut C,
    from: At<'_>,
    to: At<'_>,
    act: impl FnOnce(&mut C) -> Result<(), C::Error>,
) -> Result<(), C::Error> {
    pair(calls, "link", (from, to), |calls, booked, object| {
        if !booked {
            return act(calls);
        }
        let file = calls.stat_at(from.fd, from.path, Links::Seen)?;
        let bytes = if file.kind == Kind::File { file.size } else { 0 };
        adding(calls, object, (bytes, 1), act)
    })
}

/// Moves something, over what has the name already.
pub(super) fn rename<C: Calls>(
    calls: &mut C,
    from: At<'_>,
    to: At<'_>,
    act: impl FnOnce(&mut C) -> Result<(), C::Error>,
) -> Result<(), C::Error> {
    pair(calls, "rename", (from, to), |calls, booked, object| {
        if !booked {
            return act(calls);
        }
        let moved = calls.stat_at(from.fd, from.path, Links::Seen)?;
        let replaced = calls.stat_at(to.fd, to.path, Links::Seen).ok();
        let account = calls.files().shared.account.clone();
        let mut folder = None;
        if moved.kind == Kind::Folder {
            let (above, depth) = known_folder(calls, to.fd, above(to.path))?;
            bounded(calls, object, depth - 1 + account.height(moved.id))?;
            folder = Some(above);
        }
        act(calls)?;
        match replaced {
            // Two names of one thing: nothing happens.
            Some(same) if same.id == moved.id => return Ok(()),
            Some(gone) if gone.kind == Kind::Folder => account.folder_is_gone(gone.id),
            Some(gone) => account.unlinked(&gone),
            None => {}
        }
        if let Some(above) = folder {
            account.folder_is_in(moved.id, above);
        }
        Ok(())
    })
}

/// Opens something; what was opened is kept under its descriptor.
pub(super) fn open<C: Calls>(
    calls: &mut C,
    at: At<'_>,
    how: Open,
    act: impl FnOnce(&mut C) -> Result<u32, C::Error>,
) -> Result<u32, C::Error> {
    let Some(place) = calls.place(at.fd) else { return act(calls) };
    let (mount, object) = (place.mount, place.shown(at.path));
    let path = place.joined(at.path).ok_or_else(|| C::answer(Answer::TooLong))?;
    let booked = access(calls, at.fd) == Some(Access::Area);
    let shared = calls.files().shared.clone();
    let changes = how.create || how.cut || how.write;
    // A file that is only looked at is counted as open all the same, and that too must not fall between the look and the
    // booking of somebody who removes it.
    let turn = booked.then(|| shared.account.turn());
    let before = if booked && (how.create || how.cut) { calls.stat_at(at.fd, at.path, how.links).ok() } else { None };
    let new = booked && how.create && before.is_none();
    let result = if new { adding(calls, &object, (0, 1), act) } else { act(calls) };
    if let Ok(fd) = result {
        let mut open = None;
        if booked {
            // Without its place, what is written to it would be nobody's.
            let opened = calls.stat(fd).map_err(|_| C::end(wasmtime::Error::msg("an open file can't be looked at")))?;
            if opened.kind == Kind::File {
                open = Some(shared.account.opened(opened.id));
                if how.cut && let Some(before) = before.filter(|before| before.id == opened.id) {
                    // Less is never refused.
                    let _ = shared.account.resize(&before, opened.size.min(before.size));
                }
            }
        }
        calls.keep(fd, Place { mount, path, writable: changes, append: how.append, open });
    }
    drop(turn);
    note(calls, "open", (at.fd, &object), changes, &result);
    result
}

/// Writes to an open file; `act` says how many bytes were taken.
pub(super) fn write<C: Calls, N: Copy + Into<u64>>(
    calls: &mut C,
    fd: u32,
    start: Start,
    length: u64,
    act: impl FnOnce(&mut C) -> Result<N, C::Error>,
) -> Result<N, C::Error> {
    let place = calls.place(fd).map(|place| (place.path.clone(), place.writable));
    let Some((object, writable)) = place else { return act(calls) };
    // The host refuses a write to what wasn't opened for it.
    let booked = writable && access(calls, fd) == Some(Access::Area);
    let shared = calls.files().shared.clone();
    let turn = booked.then(|| shared.account.turn());
    let result = if booked && length > 0 {
        let file = calls.stat(fd)?;
        let begin = match start {
            Start::At(begin) => begin,
            Start::End => file.size,
        };
        let planned = begin.saturating_add(length).max(file.size);
        resize(calls, &object, &file, planned)?;
        let result = act(calls);
        let size = match &result {
            Ok(count) => begin.saturating_add((*count).into()).max(file.size),
            Err(error) if C::said(error) == Said::End => planned,
            // A write that failed took nothing.
            Err(_) => file.size,
        };
        resize(calls, &object, &Stat { size: planned, ..file }, size.min(planned))?;
        result
    } else {
        act(calls)
    };
    drop(turn);
    note(calls, WRITE, (fd, &object), true, &result);
    result
}

fn resize<C: Calls>(calls: &mut C, object: &str, file: &Stat, size: u64) -> Result<(), C::Error> {
    let shared = calls.files().shared.clone();
    shared.account.resize(file, size).map_err(|excess| C::end(shared.exceed(object, excess)))
}

/// Which size a file is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Size {
    Exactly(u64),
    AtLeast(u64),
}

/// Gives an open file another size; `act` is told which.
pub(super) fn set_size<C: Calls>(
    calls: &mut C,
    fd: u32,
    size: Size,
    act: impl FnOnce(&mut C, u64) -> Result<(), C::Error>,
) -> Result<(), C::Error> {
    let (Size::Exactly(plain) | Size::AtLeast(plain)) = size;
    let place = calls.place(fd).map(|place| (place.path.clone(), place.writable));
    let Some((object, writable)) = place else { return act(calls, plain) };
    let booked = writable && access(calls, fd) == Some(Access::Area);
    let shared = calls.files().shared.clone();
    let turn = booked.then(|| shared.account.turn());
    let result = if booked {
        let file = calls.stat(fd)?;
        let size = match size {
            Size::Exactly(size) => size,
            Size::AtLeast(size) => size.max(file.size),
        };
        resize(calls, &object, &file, size.max(file.size))?;
        let result = act(calls, size);
        let failed = result.as_ref().is_err_and(|error| C::said(error) != Said::End);
        if failed && size > file.size {
            resize(calls, &object, &Stat { size, ..file }, file.size)?;
        } else if result.is_ok() && size < file.size {
            resize(calls, &object, &file, size)?;
        }
        result
    } else {
        act(calls, plain)
    };
    drop(turn);
    note(calls, SET_SIZE, (fd, &object), true, &result);
    result
}
