//! What a run uses, looked at from outside while it runs: memory, processor time and processes of the whole tree, and
//! what lies in the folders it may write to.
//!
//! A look every few dozen milliseconds can be outrun, so these limits are advisory; they stop mistakes, not attacks.
//! The tree is read from `/proc`, from the supervisor down.

use std::time::Duration;

use cap_std::fs::Dir;

use crate::policy::Limits;

/// Processes and threads read in one look, at most this many over the limit: enough to know that it is passed.
const TREE_SLACK: usize = 64;
/// How deep folders are walked: deeper ones count as one entry each.
const MAX_DEPTH: usize = 128;
/// Looks at the disk are this many times rarer than looks at processes: a walk costs more.
const DISK_EVERY: u32 = 4;

/// A limit of the whole run that is passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Excess {
    Memory,
    Cpu,
    Processes,
    Disk,
}

/// The folders that are watched, and how much may lie in them together.
pub(in crate::backends) struct DiskWatch {
    pub(in crate::backends) folders: Vec<Dir>,
    pub(in crate::backends) bytes: u64,
    pub(in crate::backends) files: u64,
}

/// Looks at one run.
pub(super) struct Watch {
    memory: u64,
    cpu_time: Option<Duration>,
    processes: usize,
    disk: Option<std::sync::Arc<DiskWatch>>,
    looks: u32,
}

impl Watch {
    pub(super) fn new(limits: &Limits, disk: Option<DiskWatch>) -> Self {
        Self {
            memory: limits.memory,
            cpu_time: limits.cpu_time,
            processes: usize::try_from(limits.processes).unwrap_or(usize::MAX),
            disk: disk.map(std::sync::Arc::new),
            looks: 0,
        }
    }

    /// Lets this many processes be there beside the guest's.
    pub(super) fn not_counting(mut self, processes: usize) -> Self {
        self.processes = self.processes.saturating_add(processes);
        self
    }

    /// Leaves the number of processes to the kernel.
    pub(super) fn without_processes(mut self) -> Self {
        self.processes = usize::MAX - TREE_SLACK;
        self
    }

    /// Leaves memory to the kernel.
    pub(super) fn without_memory(mut self) -> Self {
        self.memory = u64::MAX;
        self
    }

    /// One look. `None` when all is well, or when the supervisor is gone.
    pub(super) async fn look(&mut self, supervisor: Option<u32>) -> Option<Excess> {
        let supervisor = supervisor?;
        let (memory, cpu_time, processes) = (self.memory, self.cpu_time, self.processes);
        // Reading /proc may block for a moment; it must not hold up a worker of the runtime.
        let tree = tokio::task::spawn_blocking(move || {
            let mut tree = Tree::read(supervisor, processes.saturating_add(TREE_SLACK));
            tree.count_shared_memory_once(memory);
            tree
        });
        let tree = tree.await.ok()?;
        if tree.processes > processes {
            return Some(Excess::Processes);
        }
        if tree.memory > memory {
            return Some(Excess::Memory);
        }
        if cpu_time.is_some_and(|limit| tree.cpu_time > limit) {
            return Some(Excess::Cpu);
        }
        self.looks = self.looks.wrapping_add(1);
        if self.looks.is_multiple_of(DISK_EVERY) { self.disk_excess().await } else { None }
    }

    /// A look at the disk alone.
    pub(super) async fn disk_excess(&self) -> Option<Excess> {
        let disk = self.disk.clone()?;
        let over = tokio::task::spawn_blocking(move || disk.over()).await.ok()?;
        over.then_some(Excess::Disk)
    }
}

impl DiskWatch {
    /// Whether more lies there than may. Stops counting as soon as it knows.
    fn over(&self) -> bool {
        let mut count = Count { bytes: 0, files: 0, limit: self };
        self.folders.iter().any(|folder| count.walk(folder, 0))
    }
}

struct Count<'a> {
    bytes: u64,
    files: u64,
    limit: &'a DiskWatch,
}

impl Count<'_> {
    /// True once a limit is passed. What vanishes or can't be read while the guest works is passed over.
    fn walk(&mut self, folder: &Dir, depth: usize) -> bool {
        let Ok(entries) = folder.entries() else { return false };
        for entry in entries.flatten() {
            let Ok(metadata) = entry.metadata() else { continue };
            self.files += 1;
            // The length, not the blocks: a sparse file is as long as it says when it is copied.
            if metadata.is_file() {
                self.bytes = self.bytes.saturating_add(metadata.len());
            }
            if self.files > self.limit.files || self.bytes > self.limit.bytes {
                return true;
            }
            // `open_dir` of an entry doesn't follow links.
            if metadata.is_dir()
                && depth < MAX_DEPTH
                && let Ok(inner) = cap_fs_ext::DirExt::open_dir_nofollow(folder, entry.file_name())
                && self.walk(&inner, depth + 1)
            {
                return true;
            }
        }
        false
    }
}

/// The processes below a supervisor, added up.
#[derive(Debug, Default)]
struct Tree {
    processes: usize,
    memory: u64,
    cpu_time: Duration,
    /// Whose memory was added up.
    ids: Vec<u32>,
}

impl Tree {
    fn read(supervisor: u32, most: usize) -> Self {
        let mut tree = Self::default();
        let ticks = rustix::param::clock_ticks_per_second().max(1);
        let page = rustix::param::page_size() as u64;
        // The supervisor's own use isn't the run's, but what it has reaped is.
        let reaped = Stat::read(supervisor).map_or(0, |stat| stat.reaped_ticks);
        let mut all_ticks = reaped;
        let mut open = children(supervisor, most);
        while let Some(id) = open.pop() {
            if tree.processes >= most {
                break;
            }
            let Some(stat) = Stat::read(id) else { continue };
            // Threads count like processes, as they do for the kernel.
            tree.processes = tree.processes.saturating_add(stat.threads.max(1));
            tree.memory = tree.memory.saturating_add(stat.resident_pages.saturating_mul(page));
            if stat.resident_pages > 0 {
                tree.ids.push(id);
            }
            all_ticks = all_ticks.saturating_add(stat.own_ticks).saturating_add(stat.reaped_ticks);
            open.extend(children(id, most));
        }
        tree.cpu_time = Duration::from_millis(all_ticks.saturating_mul(1_000) / ticks);
        tree
    }
}

impl Tree {
    /// Pages that several processes share count once. Only looked at when the plain sum is over the limit, as the kernel
    /// walks every mapping for it: many small processes, such as a fork bomb of an interpreter, are not a memory hog.
    fn count_shared_memory_once(&mut self, limit: u64) {
        if self.memory <= limit {
            return;
        }
        let shares = self.ids.iter().map(|id| match read_small(&format!("/proc/{id}/smaps_rollup")) {
            Some(text) => Some(proportional(&text).unwrap_or_default()),
            None if Stat::read(*id).is_none_or(|stat| stat.resident_pages == 0) => Some(0),
            None => None,
        });
        // Of a process that can't be looked into only the plain sum is known, and that is what counts then.
        if let Some(sum) = shares.sum::<Option<u64>>() {
            self.memory = sum;
        }
    }
}

/// The proportional set size in `/proc/<id>/smaps_rollup`, in bytes. A process that has ended has none.
fn proportional(rollup: &str) -> Option<u64> {
    let kilobytes = rollup.lines().find_map(|line| line.strip_prefix("Pss:"))?.trim().strip_suffix("kB")?;
    kilobytes.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The fields of `/proc/<id>/stat` that are needed.
struct Stat {
    threads: usize,
    own_ticks: u64,
    reaped_ticks: u64,
    resident_pages: u64,
}

impl Stat {
    fn read(id: u32) -> Option<Self> {
        Self::parse(&read_small(&format!("/proc/{id}/stat"))?)
    }

    /// The name, in parentheses, may hold anything, also blanks and parentheses: fields are counted from the last one.
    fn parse(text: &str) -> Option<Self> {
        let (_, fields) = text.rsplit_once(')')?;
        let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
        // Field 3 (state) is the first here; see proc(5) for the numbers.
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        Some(Self {
            threads: usize::try_from(number(20)?).unwrap_or(usize::MAX),
            own_ticks: number(14)?.saturating_add(number(15)?),
            reaped_ticks: number(16)?.saturating_add(number(17)?),
            resident_pages: number(24)?,
        })
    }
}

/// The children of every thread of a process; at most `most` threads are looked at, more are over the limit anyway.
fn children(id: u32, most: usize) -> Vec<u32> {
    let mut all = Vec::new();
    let Ok(threads) = rustix::fs::open(
        format!("/proc/{id}/task"),
        rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    ) else {
        return all;
    };
    let Ok(entries) = rustix::fs::Dir::new(threads) else { return all };
    for entry in entries.flatten().take(most) {
        let Some(thread) = entry.file_name().to_str().ok().filter(|name| !name.starts_with('.')) else { continue };
        let list = read_small(&format!("/proc/{id}/task/{thread}/children")).unwrap_or_default();
        all.extend(list.split_ascii_whitespace().filter_map(|child| child.parse::<u32>().ok()));
    }
    all
}

/// Reads a small file of `/proc`, at most a megabyte.
fn read_small(path: &str) -> Option<String> {
    use std::io::Read;
    const MOST: u64 = 1 << 20;
    let file =
        rustix::fs::open(path, rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC, rustix::fs::Mode::empty())
            .ok()?;
    let mut bytes = Vec::new();
    std::fs::File::from(file).take(MOST).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_memory_is_read_in_bytes() {
        let text =
            "5581-7ffd ---p 00000000 00:00 0 [rollup]\nRss: 4096 kB\nPss:                1234 kB\nPss_Dirty: 9 kB\n";
        assert_eq!(proportional(text), Some(1234 * 1024));
        for bad in ["", "Pss_Dirty: 9 kB\n", "Pss: x kB\n", "Pss: 12\n", "Pss: 99999999999999999999 kB\n"] {
            assert_eq!(proportional(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let line = "7 (a) R 1 (b) ) S 1 7 7 0 -1 4194560 1 2 3 4 100 20 3 4 20 0 1 0 99 1000 55 0";
        let stat = Stat::parse(line).unwrap();
        assert_eq!((stat.own_ticks, stat.reaped_ticks, stat.threads, stat.resident_pages), (120, 7, 1, 55));
        for bad in ["", "7", "7 (x", "7 (x) S 1", "7 (x) S 1 7 7 0 -1 1 1 2 3 4 a b c d 20 0 1 0 99 1000 55"] {
            assert!(Stat::parse(bad).is_none(), "{bad}");
        }
    }
}
