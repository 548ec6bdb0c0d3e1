//! What is refused, by whom, and the event for it.
//!
//! The engine refuses paths that lead out and writes in read-only parts. Here is what it doesn't know: names that are
//! protected in folders of the host, folders from which nothing may be removed, special files, and links on the way to
//! something that is changed in a folder of the host — behind a link, a name isn't what it says.
//!
//! Invariant: one refused call is one event.

use super::account::{Kind, MAX_FOLDERS_DEEP};
use super::files::{Access, HostFolder, Removal};
use super::guard::{Answer, At, Calls, Links, Said};
use crate::audit::Layer;
use crate::policy::Protection;

// The two calls that need a descriptor opened for writing.
pub(super) const WRITE: &str = "write";
pub(super) const SET_SIZE: &str = "set_size";

/// What a call would do to a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// Make a folder.
    Folder,
    /// Make a file or a link.
    Appear,
    /// Move something here, over what has the name.
    Arrive,
    /// Change a file's content or times; with what happens to a link at its end.
    Content(Links),
    /// Remove or move away.
    Go,
    /// Give it a second name.
    Link,
}

pub(super) fn access<C: Calls>(calls: &mut C, fd: u32) -> Option<Access> {
    let mount = calls.place(fd)?.mount;
    Some(calls.files().mount(mount)?.access)
}

/// Writes the event of a call that the engine refused.
pub(super) fn note<C: Calls, T>(
    calls: &mut C,
    action: &'static str,
    (fd, object): (u32, &str),
    changes: bool,
    result: &Result<T, C::Error>,
) {
    let noted = std::mem::take(&mut calls.files().refused);
    let Err(error) = result else { return };
    let Some((mount, writable)) = calls.place(fd).map(|place| (place.mount, place.writable)) else { return };
    let files = calls.files();
    let Some(mount) = files.mount(mount).filter(|_| !noted) else { return };
    let reason = match C::said(error) {
        Said::NotPermitted if changes && mount.access.read_only() => format!("{} is read-only", mount.guest),
        Said::NotPermitted => format!("it leads out of {}", mount.guest),
        Said::NoAccess => "its permissions on the host forbid it".to_owned(),
        Said::Usual if matches!(action, WRITE | SET_SIZE) && !writable => "it was opened for reading only".to_owned(),
        Said::Usual | Said::End => return,
    };
    files.shared.deny(Layer::Files, action, object, &reason);
}

/// Refuses the call in hand.
pub(super) fn forbid<C: Calls>(calls: &mut C, action: &'static str, object: &str, reason: &str) -> C::Error {
    let files = calls.files();
    files.shared.deny(Layer::Files, action, object, reason);
    files.refused = true;
    C::answer(Answer::NotPermitted)
}

/// Refuses folders that would lie too deep.
pub(super) fn bounded<C: Calls>(calls: &mut C, object: &str, depth: usize) -> Result<(), C::Error> {
    if depth <= MAX_FOLDERS_DEEP {
        return Ok(());
    }
    let reason = format!("folders may lie {MAX_FOLDERS_DEEP} deep");
    calls.files().shared.deny(Layer::Limit, "depth_limit", object, &reason);
    Err(C::answer(Answer::TooLong))
}

/// Refuses a change that the mode of its part, or in a folder of the host a protected name, forbids.
pub(super) fn permitted<C: Calls>(
    calls: &mut C,
    (action, object): (&'static str, &str),
    at: At<'_>,
    change: Change,
) -> Result<(), C::Error> {
    let Some(access) = access(calls, at.fd) else { return Ok(()) };
    let goes = match change {
        Change::Go => true,
        Change::Arrive => access.removal() == Removal::Refused && calls.stat_at(at.fd, at.path, Links::Seen).is_ok(),
        Change::Folder | Change::Appear | Change::Content(_) | Change::Link => false,
    };
    if goes && access.removal() == Removal::Refused {
        return Err(forbid(calls, action, object, "nothing may be removed, moved or replaced there"));
    }
    let Access::Host(folder) = access else { return Ok(()) };
    let last = match change {
        Change::Content(links) => links,
        Change::Folder | Change::Appear | Change::Arrive | Change::Go | Change::Link => Links::Seen,
    };
    if !straight(calls, at, last) {
        return Err(forbid(calls, action, object, "a link leads there; name the place itself"));
    }
    let reason = match (protection(calls, folder, at), change) {
        (Protection::Protected(why), _) => why,
        (Protection::Above, Change::Appear | Change::Arrive | Change::Go | Change::Content(_) | Change::Link) => {
            "it holds, or stands for, protected names"
        }
        (Protection::Above, Change::Folder) | (Protection::Free, _) => return Ok(()),
    };
    Err(forbid(calls, action, object, &format!("protected: {reason}")))
}

/// What a path means; links on its way were looked for.
fn protection<C: Calls>(calls: &mut C, folder: HostFolder, at: At<'_>) -> Protection {
    let path = calls.place(at.fd).and_then(|place| Some((place.mount, place.joined(at.path)?)));
    let unknown = Protection::Protected("its name can't be told");
    let Some((mount, path)) = path else { return unknown };
    let files = calls.files();
    let Some(inside) = files.mount(mount).and_then(|mount| path.strip_prefix(mount.guest.as_str())) else {
        return unknown;
    };
    files.protection(folder, inside.split('/').filter(|part| !part.is_empty()))
}

/// Whether no link is followed on the way to a path.
pub(super) fn straight<C: Calls>(calls: &mut C, at: At<'_>, last: Links) -> bool {
    if !calls.place(at.fd).is_some_and(|place| place.straight) {
        return false;
    }
    let path = at.path.trim_end_matches('/');
    let way = path.match_indices('/').map(|(end, _)| end).chain((last == Links::Followed).then_some(path.len()));
    for end in way {
        let Some(part) = path.get(..end).filter(|part| !part.is_empty()) else { continue };
        match calls.stat_at(at.fd, part, Links::Seen) {
            Ok(found) if found.kind == Kind::Link => return false,
            Ok(_) => {}
            // Nothing is there: neither is a link. The call says so, or makes it.
            Err(_) => break,
        }
    }
    // `link/` is what the link leads to, whatever is asked for.
    path.len() == at.path.len()
        || calls.stat_at(at.fd, path, Links::Seen).map_or(true, |found| found.kind != Kind::Link)
}
