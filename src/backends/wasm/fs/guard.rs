//! What is decided about each file call, once for both previews.
//!
//! Each function takes the call itself as `act` and does four things round it: it looks at what the call is about,
//! books what the call may add, lets the call happen, and corrects the booking by what came of it. What is refused
//! becomes an audit event (`rules.rs`).
//!
//! Invariant: a call that changes files is never made without its booking, and never without the account's turn.

use super::account::{Booking, Kind, Stat};
use super::files::{Access, Files, MAX_PATH_BYTES, Place};
use super::rules::{Change, SET_SIZE, WRITE, access, bounded, forbid, note, permitted, straight};

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
    /// Counts the writable parts of the workspace anew.
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

/// Which size a file is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Size {
    Exactly(u64),
    AtLeast(u64),
}

/// A path that is longer than any the host takes is answered before it is copied or looked at.
pub(super) fn too_long(bytes: usize) -> bool {
    bytes > MAX_PATH_BYTES
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
    if result.is_err()
        && let Some(object) = calls.place(at.fd).map(|place| place.shown(at.path))
    {
        note(calls, action, (at.fd, &object), false, &result);
    }
    result
}

/// A change with one path: `act` is told how it is booked, and the path for messages.
fn change<C: Calls, T>(
    calls: &mut C,
    action: &'static str,
    (at, change): (At<'_>, Change),
    act: impl FnOnce(&mut C, Option<Booking>, &str) -> Result<T, C::Error>,
) -> Result<T, C::Error> {
    let Some(object) = calls.place(at.fd).map(|place| place.shown(at.path)) else { return act(calls, None, at.path) };
    let booking = access(calls, at.fd).and_then(Access::booking);
    let shared = calls.files().shared.clone();
    let turn = booking.map(|_| shared.account.turn());
    let result = permitted(calls, (action, &object), at, change).and_then(|()| act(calls, booking, &object));
    drop(turn);
    note(calls, action, (at.fd, &object), true, &result);
    result
}

/// Changes the times of something. They cost no room.
pub(super) fn set_times<C: Calls>(
    calls: &mut C,
    at: At<'_>,
    links: Links,
    act: impl FnOnce(&mut C) -> Result<(), C::Error>,
) -> Result<(), C::Error> {
    change(calls, "set_times", (at, Change::Content(links)), |calls, _, _| act(calls))
}

/// Books something new before a call and gives it back when the call didn't make it.
fn adding<C: Calls, T>(
    calls: &mut C,
    (object, booking): (&str, Option<Booking>),
    (bytes, entries): (u64, u64),
    act: impl FnOnce(&mut C) -> Result<T, C::Error>,
) -> Result<T, C::Error> {
    let Some(booking) = booking else { return act(calls) };
    let shared = calls.files().shared.clone();
    shared.account.add(booking, bytes, entries).map_err(|excess| C::end(shared.exceed(object, excess)))?;
    let result = act(calls);
    if result.as_ref().is_err_and(|error| C::said(error) != Said::End) {
        shared.account.give_back(booking, bytes, entries);
    }
    result
}

/// A folder of the workspace, and how deep something in it lies. One that isn't known was made by the host since the
/// last count.
fn known_folder<C: Calls>(calls: &mut C, fd: u32, path: &str) -> Result<(u64, usize), C::Error> {
    let folder = calls.stat_at(fd, path, Links::Followed)?.id;
    let account = calls.files().shared.account.clone();
    if account.depth_in(folder).is_none() {
        calls.count()?;
    }
    let depth = account.depth_in(folder).ok_or_else(|| C::answer(Answer::Unknown))?;
    Ok((folder, depth))
}

/// Makes a folder.
pub(super) fn create_folder<C: Calls>(
    calls: &mut C,
    at: At<'_>,
    act: impl FnOnce(&mut C) -> Result<(), C::Error>,
) -> Result<(), C::Error> {
    change(calls, "create_folder", (at, Change::Folder), |calls, booking, object| {
        if booking != Some(Booking::Held) {
            return adding(calls, (object, booking), (0, 1), act);
        }
        let (folder, depth) = known_folder(calls, at.fd, above(at.path))?;
        bounded(calls, object, depth)?;
        adding(calls, (object, booking), (0, 1), act)?;
        match calls.stat_at(at.fd, at.path, Links::Seen) {
            Ok(made) if made.kind == Kind::Folder => {
                calls.files().shared.account.folder_is_in(made.id, folder);
                Ok(())
            }
            Ok(_) | Err(_) => calls.count(),
        }
    })
}

/// Removes a folder, or a name of a file or link.
pub(super) fn remove<C: Calls>(
    calls: &mut C,
    action: &'static str,
    at: At<'_>,
    act: impl FnOnce(&mut C) -> Result<(), C::Error>,
) -> Result<(), C::Error> {
    change(calls, action, (at, Change::Go), |calls, booking, _| {
        if booking != Some(Booking::Held) {
            return act(calls);
        }
        let before = calls.stat_at(at.fd, at.path, Links::Seen).ok();
        act(calls)?;
        let account = &calls.files().shared.account;
        match before {
            Some(gone) if gone.kind == Kind::Folder => account.folder_is_gone(gone.id),
            Some(gone) => account.unlinked(&gone),
            None => calls.count()?,
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
    change(calls, "symlink", (at, Change::Appear), |calls, booking, object| {
        if booking.is_some() && target.starts_with('/') {
            return Err(forbid(calls, "symlink", object, "a link may not be absolute"));
        }
        adding(calls, (object, booking), (0, 1), act)
    })
}

/// A change with two paths.
fn pair<C: Calls>(
    calls: &mut C,
    action: &'static str,
    (from, to): ((At<'_>, Change), (At<'_>, Change)),
    act: impl FnOnce(&mut C, Option<Booking>, &str) -> Result<(), C::Error>,
) -> Result<(), C::Error> {
    let shown = |calls: &mut C, at: At<'_>| calls.place(at.fd).map(|place| (place.mount, place.shown(at.path)));
    let (Some(source), Some(target)) = (shown(calls, from.0), shown(calls, to.0)) else {
        return act(calls, None, "");
    };
    let object = format!("{} to {}", source.1, target.1);
    let (Some(first), Some(second)) = (access(calls, from.0.fd), access(calls, to.0.fd)) else {
        return act(calls, None, &object);
    };
    let both = first.booking().and(second.booking());
    let booking = if first.booking() == second.booking() { both } else { None };
    let shared = calls.files().shared.clone();
    let turn = both.map(|_| shared.account.turn());
    let result = if both.is_some() && source.0 != target.0 && !first.moves_to(second) {
        Err(C::answer(Answer::OtherDevice))
    } else {
        permitted(calls, (action, &object), from.0, from.1)
            .and_then(|()| permitted(calls, (action, &object), to.0, to.1))
            .and_then(|()| act(calls, booking, &object))
    };
    drop(turn);
    // The event names the end that forbids it.
    let fd = if first.read_only() || !second.read_only() { from.0.fd } else { to.0.fd };
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
    pair(calls, "link", ((from, Change::Link), (to, Change::Appear)), |calls, booking, object| {
        let mut bytes = 0;
        if booking == Some(Booking::Held) {
            let file = calls.stat_at(from.fd, from.path, Links::Seen)?;
            bytes = if file.kind == Kind::File { file.size } else { 0 };
        }
        adding(calls, (object, booking), (bytes, 1), act)
    })
}

/// Moves something, over what has the name already.
pub(super) fn rename<C: Calls>(
    calls: &mut C,
    from: At<'_>,
    to: At<'_>,
    act: impl FnOnce(&mut C) -> Result<(), C::Error>,
) -> Result<(), C::Error> {
    pair(calls, "rename", ((from, Change::Go), (to, Change::Arrive)), |calls, booking, object| {
        if booking != Some(Booking::Held) {
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
    let access = access(calls, at.fd);
    let booking = access.and_then(Access::booking);
    let changes = how.create || how.cut || how.write;
    let shared = calls.files().shared.clone();
    // A file that is only looked at is counted as open all the same, and that too must not fall between the look and the
    // booking of somebody who removes it.
    let turn = booking.map(|_| shared.account.turn());
    let result = openable(calls, at, (how, changes), (access, &object)).and_then(|()| {
        let looks = booking.is_some() && (how.create || how.cut);
        let before = if looks { calls.stat_at(at.fd, at.path, how.links).ok() } else { None };
        let new = if how.create && before.is_none() { booking } else { None };
        // Only where names matter.
        let straight = !matches!(access, Some(Access::Host(_))) || straight(calls, at, how.links);
        let fd = adding(calls, (&object, new), (0, 1), act)?;
        let mut open = None;
        if booking == Some(Booking::Held) {
            // Without its place, what is written to it would be nobody's.
            let opened = calls.stat(fd).map_err(|_| C::end(wasmtime::Error::msg("an open file can't be looked at")))?;
            if opened.kind == Kind::File {
                open = Some(shared.account.opened(opened.id));
                if how.cut
                    && let Some(before) = before.filter(|before| before.id == opened.id)
                {
                    // Less is never refused.
                    let _ = shared.account.resize(Booking::Held, &before, opened.size.min(before.size));
                }
            }
        }
        calls.keep(fd, Place { mount, path, straight, writable: changes, append: how.append, open });
        Ok(fd)
    });
    drop(turn);
    note(calls, "open", (at.fd, &object), changes, &result);
    result
}

/// Refuses what can't be opened in a folder of the host: opening a pipe waits for somebody at its other end, for ever.
fn openable<C: Calls>(
    calls: &mut C,
    at: At<'_>,
    (how, changes): (Open, bool),
    (access, object): (Option<Access>, &str),
) -> Result<(), C::Error> {
    match access {
        None | Some(Access::Staged | Access::Area(_) | Access::Copied) => return Ok(()),
        Some(Access::Shown | Access::Host(_)) => {}
    }
    let found = calls.stat_at(at.fd, at.path, how.links).ok();
    if found.is_some_and(|found| found.kind == Kind::Special) {
        return Err(forbid(calls, "open", object, "it is a pipe, a socket or a device"));
    }
    if !changes {
        return Ok(());
    }
    permitted(calls, ("open", object), at, Change::Content(how.links))
}

/// What is open for writing: its path for messages, and how it is booked.
fn written<C: Calls>(calls: &mut C, fd: u32) -> Option<(String, Option<Booking>)> {
    let (object, writable) = calls.place(fd).map(|place| (place.path.clone(), place.writable))?;
    // The host refuses a write to what wasn't opened for it.
    let booking = access(calls, fd).and_then(Access::booking).filter(|_| writable);
    Some((object, booking))
}

fn resize<C: Calls>(calls: &mut C, (object, booking): (&str, Booking), file: &Stat, size: u64) -> Result<(), C::Error> {
    let shared = calls.files().shared.clone();
    shared.account.resize(booking, file, size).map_err(|excess| C::end(shared.exceed(object, excess)))
}

/// Writes to an open file; `act` says how many bytes were taken.
pub(super) fn write<C: Calls, N: Copy + Into<u64>>(
    calls: &mut C,
    fd: u32,
    start: Start,
    length: u64,
    act: impl FnOnce(&mut C) -> Result<N, C::Error>,
) -> Result<N, C::Error> {
    let Some((object, booking)) = written(calls, fd) else { return act(calls) };
    let shared = calls.files().shared.clone();
    let turn = booking.map(|_| shared.account.turn());
    let body = |calls: &mut C| {
        let Some(booking) = booking.filter(|_| length > 0) else { return act(calls) };
        let file = calls.stat(fd)?;
        let begin = match start {
            Start::At(begin) => begin,
            Start::End => file.size,
        };
        let planned = begin.saturating_add(length).max(file.size);
        resize(calls, (&object, booking), &file, planned)?;
        let result = act(calls);
        let size = match &result {
            Ok(count) => begin.saturating_add((*count).into()).max(file.size),
            Err(error) if C::said(error) == Said::End => planned,
            // A write that failed took nothing.
            Err(_) => file.size,
        };
        resize(calls, (&object, booking), &Stat { size: planned, ..file }, size.min(planned))?;
        result
    };
    let result = body(calls);
    drop(turn);
    note(calls, WRITE, (fd, &object), true, &result);
    result
}

/// Gives an open file another size; `act` is told which.
pub(super) fn set_size<C: Calls>(
    calls: &mut C,
    fd: u32,
    size: Size,
    act: impl FnOnce(&mut C, u64) -> Result<(), C::Error>,
) -> Result<(), C::Error> {
    let (Size::Exactly(plain) | Size::AtLeast(plain)) = size;
    let Some((object, booking)) = written(calls, fd) else { return act(calls, plain) };
    let shared = calls.files().shared.clone();
    let turn = booking.map(|_| shared.account.turn());
    let body = |calls: &mut C| {
        let Some(booking) = booking else { return act(calls, plain) };
        let file = calls.stat(fd)?;
        let size = match size {
            Size::Exactly(size) => size,
            Size::AtLeast(size) => size.max(file.size),
        };
        resize(calls, (&object, booking), &file, size.max(file.size))?;
        let result = act(calls, size);
        let failed = result.as_ref().is_err_and(|error| C::said(error) != Said::End);
        if failed && size > file.size {
            resize(calls, (&object, booking), &Stat { size, ..file }, file.size)?;
        } else if result.is_ok() && size < file.size && booking == Booking::Held {
            resize(calls, (&object, booking), &file, size)?;
        }
        result
    };
    let result = body(calls);
    drop(turn);
    note(calls, SET_SIZE, (fd, &object), true, &result);
    result
}
