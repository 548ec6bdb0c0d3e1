//! What lies in the writable areas of one handle: bytes, entries, the tree of folders, and which files are open.
//!
//! Must not touch files. Each name of a file counts with its size, holes included, as the collector would copy it; a
//! file without a name counts until nobody has it open. Invariant: the figures are never less than what lies there —
//! growth is booked before the call that makes it, and given back only after a call that freed it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::policy::Limits;
use crate::workspace::MAX_OUTPUT_DEPTH;

/// Folders below an area that may lie in each other: deeper ones could be neither collected nor named, and each level
/// costs the clean-up an open folder.
pub(super) const MAX_FOLDERS_DEEP: usize = MAX_OUTPUT_DEPTH;

/// What a look at a file, folder or link gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stat {
    /// Names the object as long as it exists.
    pub(super) id: u64,
    pub(super) kind: Kind,
    pub(super) size: u64,
    /// Names that it has.
    pub(super) links: u64,
}

/// What something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Folder,
    Link,
    /// A pipe, socket or device.
    Special,
}

/// Which limit a call would pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Excess {
    /// Bytes in the writable areas.
    Bytes(u64),
    /// Files, folders and links there.
    Entries(u64),
}

impl std::fmt::Display for Excess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bytes(limit) => write!(f, "the limit of {limit} bytes in the writable folders is reached"),
            Self::Entries(limit) => write!(f, "the limit of {limit} files in the writable folders is reached"),
        }
    }
}

/// How what a guest adds is booked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Booking {
    /// It lies in the workspace, and is given back when it goes.
    Held,
    /// It lies in a folder of the host, where others remove things too: what was added stays booked.
    Spent,
}

/// What a count of the workspace found.
#[derive(Debug, Default)]
pub(super) struct Census {
    pub(super) bytes: u64,
    pub(super) entries: u64,
    /// The part of it that lies in private copies.
    pub(super) copied: (u64, u64),
    /// Each folder and the one it lies in; an area lies in itself.
    pub(super) folders: HashMap<u64, u64>,
}

#[derive(Debug, Default)]
struct State {
    held: Census,
    /// Bytes and entries added to folders of the host.
    spent: (u64, u64),
    /// Bytes and entries that the private copies held before the first run; they are no guest's.
    given: Option<(u64, u64)>,
    /// How often a file is open.
    open: HashMap<u64, u64>,
    /// Files without a name that are open, with their sizes.
    orphans: HashMap<u64, u64>,
}

impl State {
    fn charge(&mut self, kind: Booking, (bytes, entries): (u64, u64), limits: (u64, u64)) -> Result<(), Excess> {
        let given = self.given.unwrap_or_default();
        let all = |held: u64, spent: u64, more: u64| held.saturating_add(spent).saturating_add(more);
        // A call that adds nothing of a kind isn't refused for what is there already.
        if bytes > 0 && all(self.held.bytes, self.spent.0, bytes) > limits.0.saturating_add(given.0) {
            return Err(Excess::Bytes(limits.0));
        }
        if entries > 0 && all(self.held.entries, self.spent.1, entries) > limits.1.saturating_add(given.1) {
            return Err(Excess::Entries(limits.1));
        }
        let (all_bytes, all_entries) = self.booked(kind);
        *all_bytes = all_bytes.saturating_add(bytes);
        *all_entries = all_entries.saturating_add(entries);
        Ok(())
    }

    fn give_back(&mut self, kind: Booking, bytes: u64, entries: u64) {
        let (all_bytes, all_entries) = self.booked(kind);
        *all_bytes = all_bytes.saturating_sub(bytes);
        *all_entries = all_entries.saturating_sub(entries);
    }

    fn booked(&mut self, kind: Booking) -> (&mut u64, &mut u64) {
        match kind {
            Booking::Held => (&mut self.held.bytes, &mut self.held.entries),
            Booking::Spent => (&mut self.spent.0, &mut self.spent.1),
        }
    }

    /// Folders above one, up to its area. Nothing for a folder that isn't known.
    fn depth(&self, folder: u64) -> Option<usize> {
        let mut at = folder;
        for depth in 0..=self.held.folders.len() {
            let above = *self.held.folders.get(&at)?;
            if above == at {
                return Some(depth);
            }
            at = above;
        }
        None
    }
}

/// The account of one handle, shared by its runs.
pub(in crate::backends::wasm) struct Account {
    /// Held from the look before a change until its booking after: two runs at once must not both use the same room.
    turn: Mutex<()>,
    state: Mutex<State>,
    /// Bytes and entries.
    limits: (u64, u64),
}

impl Account {
    pub(in crate::backends::wasm) fn new(limits: &Limits) -> Arc<Self> {
        Arc::new(Self { turn: Mutex::default(), state: Mutex::default(), limits: (limits.disk, limits.files) })
    }

    /// Keeps other runs from changing files until it is dropped.
    pub(super) fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The most that is worth counting: bytes and entries. The first count, before any guest ran, is of what the host
    /// staged, which is bounded.
    pub(super) fn worth_counting(&self) -> (u64, u64) {
        let given = self.state().given;
        given.map_or((u64::MAX, u64::MAX), |given| {
            (self.limits.0.saturating_add(given.0), self.limits.1.saturating_add(given.1))
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a fresh count in the place of what is kept. Open files without a name are in no count, so they are added.
    pub(super) fn counted(&self, census: Census) {
        let mut state = self.state();
        state.given.get_or_insert(census.copied);
        state.held = census;
        let orphans = state.orphans.values().fold(0_u64, |sum, size| sum.saturating_add(*size));
        state.held.bytes = state.held.bytes.saturating_add(orphans);
    }

    /// Books something new.
    pub(super) fn add(&self, kind: Booking, bytes: u64, entries: u64) -> Result<(), Excess> {
        self.state().charge(kind, (bytes, entries), self.limits)
    }

    /// Gives back what was booked for a call that failed.
    pub(super) fn give_back(&self, kind: Booking, bytes: u64, entries: u64) {
        self.state().give_back(kind, bytes, entries);
    }

    /// Books that a file goes from one size to another. Less than before is given back, so book that afterwards.
    pub(super) fn resize(&self, kind: Booking, file: &Stat, size: u64) -> Result<(), Excess> {
        let mut state = self.state();
        let names = match kind {
            Booking::Held => file.links.max(1),
            // Its other names are the host's.
            Booking::Spent => 1,
        };
        if size > file.size {
            state.charge(kind, ((size - file.size).saturating_mul(names), 0), self.limits)?;
        } else {
            state.give_back(kind, (file.size - size).saturating_mul(names), 0);
        }
        if kind == Booking::Held
            && let Some(held) = state.orphans.get_mut(&file.id)
        {
            *held = size;
        }
        Ok(())
    }

    /// Books that a name of something that is no folder is gone.
    pub(super) fn unlinked(&self, gone: &Stat) {
        let mut state = self.state();
        let bytes = match gone.kind {
            Kind::File if gone.links < 2 && state.open.contains_key(&gone.id) => {
                state.orphans.insert(gone.id, gone.size);
                0
            }
            Kind::File => gone.size,
            Kind::Folder | Kind::Link | Kind::Special => 0,
        };
        state.give_back(Booking::Held, bytes, 1);
    }

    /// How deep something in this folder lies: 1 in an area itself.
    pub(super) fn depth_in(&self, folder: u64) -> Option<usize> {
        self.state().depth(folder).map(|depth| depth + 1)
    }

    /// Folders that lie in each other in this one, itself counted.
    pub(super) fn height(&self, folder: u64) -> usize {
        let state = self.state();
        let mut height = 1;
        for &other in state.held.folders.keys() {
            let (mut at, mut steps) = (other, 0);
            while at != folder && steps <= MAX_FOLDERS_DEEP {
                let Some(&above) = state.held.folders.get(&at) else { break };
                if above == at {
                    break;
                }
                at = above;
                steps += 1;
            }
            if at == folder {
                height = height.max(steps + 1);
            }
        }
        height
    }

    /// Books that a folder lies in another, from now on or anew.
    pub(super) fn folder_is_in(&self, folder: u64, above: u64) {
        self.state().held.folders.insert(folder, above);
    }

    /// Books that a folder is gone.
    pub(super) fn folder_is_gone(&self, folder: u64) {
        let mut state = self.state();
        state.held.folders.remove(&folder);
        state.give_back(Booking::Held, 0, 1);
    }

    /// Books that a file was opened, until the returned value is dropped.
    pub(super) fn opened(self: &Arc<Self>, file: u64) -> Opened {
        *self.state().open.entry(file).or_default() += 1;
        Opened { account: self.clone(), file }
    }

    #[cfg(test)]
    fn figures(&self) -> (u64, u64) {
        let state = self.state();
        (state.held.bytes, state.held.entries)
    }
}

/// A file that is open.
pub(super) struct Opened {
    account: Arc<Account>,
    file: u64,
}

impl Clone for Opened {
    fn clone(&self) -> Self {
        self.account.opened(self.file)
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        let mut state = self.account.state();
        let Some(count) = state.open.get_mut(&self.file) else { return };
        *count -= 1;
        if *count == 0 {
            state.open.remove(&self.file);
            if let Some(size) = state.orphans.remove(&self.file) {
                state.give_back(Booking::Held, size, 0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Booking::{Held, Spent};
    use super::*;

    fn account(disk: u64, files: u64) -> Arc<Account> {
        let account = Account::new(&Limits { disk, files, ..Limits::default() });
        account.counted(Census { folders: HashMap::from([(1, 1), (2, 2)]), ..Census::default() });
        account
    }

    fn file(id: u64, size: u64, links: u64) -> Stat {
        Stat { id, kind: Kind::File, size, links }
    }

    #[test]
    fn growth_is_held_to_the_limit_and_given_back() {
        let account = account(100, 2);
        account.add(Held, 0, 1).unwrap();
        account.resize(Held, &file(9, 0, 1), 100).unwrap();
        assert_eq!(account.resize(Held, &file(9, 100, 1), 101), Err(Excess::Bytes(100)));
        assert_eq!(account.resize(Held, &file(9, 100, 1), u64::MAX), Err(Excess::Bytes(100)));
        account.resize(Held, &file(9, 100, 1), 40).unwrap();
        account.add(Held, 60, 1).unwrap();
        assert_eq!(account.add(Held, 0, 1), Err(Excess::Entries(2)));
        account.unlinked(&file(9, 40, 1));
        assert_eq!(account.figures(), (60, 1));
    }

    #[test]
    fn each_name_of_a_file_counts() {
        let account = account(100, 10);
        account.add(Held, 40, 2).unwrap();
        // Two names of 20 bytes each; 30 more make 100.
        account.resize(Held, &file(9, 20, 2), 50).unwrap();
        assert_eq!(account.resize(Held, &file(9, 50, 2), 51), Err(Excess::Bytes(100)));
        account.unlinked(&file(9, 50, 2));
        assert_eq!(account.figures(), (50, 1));
        account.unlinked(&file(9, 50, 1));
        assert_eq!(account.figures(), (0, 0));
    }

    #[test]
    fn a_removed_file_counts_until_nobody_has_it_open() {
        let account = account(100, 10);
        account.add(Held, 80, 1).unwrap();
        let (first, second) = (account.opened(9), account.opened(9));
        account.unlinked(&file(9, 80, 1));
        assert_eq!(account.figures(), (80, 0));
        // It may still grow and shrink, and a fresh count, which can't see it, doesn't forget it.
        account.resize(Held, &file(9, 80, 0), 100).unwrap();
        assert_eq!(account.resize(Held, &file(9, 100, 0), 101), Err(Excess::Bytes(100)));
        account.resize(Held, &file(9, 100, 0), 60).unwrap();
        account.counted(Census { bytes: 5, ..Census::default() });
        assert_eq!(account.figures(), (65, 0));
        drop(first);
        assert_eq!(account.figures(), (65, 0));
        drop(second);
        assert_eq!(account.figures(), (5, 0));
    }

    #[test]
    fn depth_and_height_follow_the_folders_as_they_move() {
        let account = account(100, 100);
        for (folder, above) in [(10, 1), (11, 10), (12, 11), (20, 2)] {
            account.folder_is_in(folder, above);
        }
        assert_eq!((account.depth_in(1), account.depth_in(12), account.depth_in(99)), (Some(1), Some(4), None));
        assert_eq!((account.height(10), account.height(12), account.height(2)), (3, 1, 2));
        account.folder_is_in(10, 20);
        assert_eq!((account.depth_in(12), account.height(2)), (Some(5), 5));
        account.folder_is_gone(12);
        assert_eq!((account.depth_in(12), account.height(10)), (None, 2));
    }

    #[test]
    fn what_is_added_to_host_folders_stays_booked_and_private_copies_are_given() {
        let account = Account::new(&Limits { disk: 100, files: 5, ..Limits::default() });
        account.counted(Census { bytes: 1_000, entries: 50, copied: (1_000, 50), ..Census::default() });
        account.resize(Spent, &file(9, 500, 3), 560).unwrap();
        assert_eq!(account.resize(Held, &file(8, 0, 1), 41), Err(Excess::Bytes(100)));
        account.resize(Held, &file(8, 0, 1), 40).unwrap();
        account.add(Spent, 0, 5).unwrap();
        assert_eq!(account.add(Held, 0, 1), Err(Excess::Entries(5)));
        // A new count finds what guests left, and knows nothing of the host's folders.
        account.counted(Census { bytes: 900, entries: 49, copied: (900, 49), ..Census::default() });
        account.resize(Held, &file(8, 0, 1), 140).unwrap();
        assert_eq!(account.resize(Held, &file(8, 140, 1), 141), Err(Excess::Bytes(100)));
        account.add(Held, 0, 1).unwrap();
        assert_eq!(account.add(Spent, 0, 1), Err(Excess::Entries(5)));
        // What failed is given back.
        account.give_back(Spent, 0, 1);
        account.add(Spent, 0, 1).unwrap();
    }
}
