//! Control groups (cgroup v2): limits that the kernel keeps for all processes of a run together, where this process may
//! make groups that have them. Elsewhere there are `rlimits` and a look every few dozen milliseconds.
//!
//! Nothing is moved or switched on that isn't ours: a group is only made below one that hands its controllers out
//! already and was given to us, such as a systemd user's `app.slice`; the host's own process stays where it is. A library
//! has no right to move its embedder about, nor to work in groups that the system's manager keeps for itself.
//!
//! Invariant: a group is made after it was recorded, is empty again when its run has ended, and is removed.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};

use crate::policy::Limits;

/// The controllers without which a group is no use.
const NEEDED: [&str; 2] = ["memory", "pids"];
/// Files of `/proc` and of control groups are short.
const MAX_FILE: u64 = 1 << 20;
/// The kernel takes a moment to take dead processes out of a group.
const REMOVE_ATTEMPTS: u32 = 100;
/// Pause between two attempts.
const REMOVE_PAUSE: Duration = Duration::from_millis(2);

/// A group below which this process may make others.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::backends) struct Delegation {
    folder: PathBuf,
}

/// The group of one run. Dropping it ends what is left in it and removes it.
pub(in crate::backends) struct Group {
    path: PathBuf,
    folder: OwnedFd,
}

/// What the kernel says of a group.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct GroupUsage {
    /// Processor time of all processes that were ever in it.
    pub(super) cpu_time: Option<Duration>,
    /// The most memory they held together.
    pub(super) peak_memory: Option<u64>,
    /// Processes that were killed because the group's memory was used up.
    pub(super) killed_for_memory: u64,
    /// Processes that were not made because there were too many.
    pub(super) refused_processes: u64,
}

/// What there is on this machine, for this process; the reason when there is nothing. Looked at once.
pub(in crate::backends) fn delegation() -> Result<&'static Delegation, &'static str> {
    static FOUND: OnceLock<Result<Delegation, &'static str>> = OnceLock::new();
    FOUND.get_or_init(|| Delegation::find(Path::new("/"), &was_given_to_us)).as_ref().map_err(|why| *why)
}

impl Delegation {
    /// Looks at the kernel's files below `root`: the seam at which tests put a machine of their own. `given` says whether a
    /// group is ours to work in.
    fn find(root: &Path, given: &dyn Fn(&Path) -> bool) -> Result<Self, &'static str> {
        let read = |path: &str| read_small(&root.join(path)).ok_or("/proc can't be read");
        let mount = mount_point(&read("proc/self/mountinfo")?).ok_or("no cgroup v2 is mounted")?;
        let own = own_group(&read("proc/self/cgroup")?).ok_or("this process is in no cgroup v2 that it can see")?;
        let top = root.join(mount.strip_prefix("/").unwrap_or(&mount));
        let mut place = top.join(own.strip_prefix("/").unwrap_or(&own));
        let mut closest = "no cgroup above this process hands out memory and pids";
        loop {
            let handed_out = read_small(&place.join("cgroup.subtree_control")).unwrap_or_default();
            if NEEDED.iter().all(|needed| handed_out.split_ascii_whitespace().any(|known| known == *needed)) {
                if given(&place) && may_change(&place) && may_change(&place.join("cgroup.procs")) {
                    return Ok(Self { folder: place });
                }
                closest = "the cgroup that hands out memory and pids was not delegated to this user";
            }
            if place == top || !place.pop() || !place.starts_with(&top) {
                return Err(closest);
            }
        }
    }

    /// Where a group of this name will be: to be recorded before it is made.
    pub(in crate::backends) fn place(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Makes a group with limits.
    pub(in crate::backends) fn make(&self, name: &str, limits: &Limits, own_processes: usize) -> io::Result<Group> {
        self.make_with(name, limits, own_processes, &|_| Ok(()))
    }

    /// As [`make`](Self::make). The kernel fills a new group with its files; `fill` plays its part in tests.
    fn make_with(
        &self,
        name: &str,
        limits: &Limits,
        own_processes: usize,
        fill: &dyn Fn(&Path) -> io::Result<()>,
    ) -> io::Result<Group> {
        let path = self.place(name);
        rustix::fs::mkdir(&path, Mode::from_raw_mode(0o755))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let filled = fill(&path);
        let group = match rustix::fs::open(&path, flags, Mode::empty()) {
            Ok(folder) => Group { path, folder },
            Err(error) => {
                let _ = rustix::fs::rmdir(&path);
                return Err(error.into());
            }
        };
        filled?;
        let processes = u64::from(limits.processes).saturating_add(own_processes as u64);
        group.write("memory.max", &limits.memory.to_string())?;
        group.write("pids.max", &processes.to_string())?;
        // Memory that is swapped out would not count; a kernel without swap has no such file.
        match group.write("memory.swap.max", "0") {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        // All or none: a run that lost one of its processes would go on with half of itself.
        match group.write("memory.oom.group", "1") {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        Ok(group)
    }
}

impl Group {
    /// A descriptor through which a process puts itself into the group by writing `0`. Whether it may is decided by who
    /// opened it, so the process need not have the right itself.
    pub(super) fn entrance(&self) -> io::Result<OwnedFd> {
        Ok(rustix::fs::openat(&self.folder, "cgroup.procs", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?)
    }

    /// Ends everything in the group, where the kernel can (Linux 5.14).
    pub(super) fn kill(&self) {
        // Where it can't, the supervisor and the end of the process-id namespace do it.
        let _ = self.write("cgroup.kill", "1");
    }

    /// What was used so far.
    pub(super) fn usage(&self) -> GroupUsage {
        let number = |file: &str, key: &str| {
            let text = self.read(file)?;
            let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '))?;
            line.trim().parse::<u64>().ok()
        };
        GroupUsage {
            cpu_time: number("cpu.stat", "usage_usec").map(Duration::from_micros),
            peak_memory: self.read("memory.peak").and_then(|text| text.trim().parse().ok()),
            killed_for_memory: number("memory.events", "oom_kill").unwrap_or_default(),
            refused_processes: number("pids.events", "max").unwrap_or_default(),
        }
    }

    fn write(&self, file: &str, text: &str) -> io::Result<()> {
        let opened =
            rustix::fs::openat(&self.folder, file, OFlags::WRONLY | OFlags::TRUNC | OFlags::CLOEXEC, Mode::empty())?;
        rustix::io::write(opened, text.as_bytes())?;
        Ok(())
    }

    fn read(&self, file: &str) -> Option<String> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        read_all(rustix::fs::openat(&self.folder, file, flags, Mode::empty()).ok()?)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
        for _ in 0..REMOVE_ATTEMPTS {
            match rustix::fs::rmdir(&self.path) {
                Ok(()) | Err(rustix::io::Errno::NOENT) => return,
                Err(_) => std::thread::sleep(REMOVE_PAUSE),
            }
        }
        // It is in the ledger: removing the workspace tries again, and so does the next start.
        tracing::warn!("a control group of a run could not be removed yet");
    }
}

/// Where the first cgroup v2 is mounted, from `/proc/self/mountinfo`.
fn mount_point(mounts: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let (fields, kind) = line.split_once(" - ")?;
        let place = fields.split(' ').nth(4)?;
        kind.starts_with("cgroup2 ").then(|| PathBuf::from(unescaped(place)))
    })
}

/// `\040` and the like, which stand for blanks and other characters that would end a field.
fn unescaped(field: &str) -> String {
    let mut text = String::new();
    let mut rest = field;
    while let Some((before, after)) = rest.split_once('\\') {
        text.push_str(before);
        let number = after.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match number {
            Some(byte) => {
                text.push(char::from(byte));
                rest = after.get(3..).unwrap_or_default();
            }
            None => {
                text.push('\\');
                rest = after;
            }
        }
    }
    text.push_str(rest);
    text
}

/// The group of this process, from `/proc/self/cgroup`. One that begins with `..` lies outside what is mounted.
fn own_group(groups: &str) -> Option<PathBuf> {
    let path = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let path = PathBuf::from(path);
    let normal =
        path.components().all(|part| matches!(part, std::path::Component::RootDir | std::path::Component::Normal(_)));
    normal.then_some(path)
}

/// Whether a group was handed over. Its owner says so, and where that is root, systemd's mark: root may write to every
/// group, also to those that the system's manager counts on being alone in.
fn was_given_to_us(place: &Path) -> bool {
    let user = rustix::process::geteuid();
    let owned = rustix::fs::stat(place).is_ok_and(|stat| stat.st_uid == user.as_raw());
    let marked = || {
        ["trusted.delegate", "user.delegate"].iter().any(|name| {
            let mut value = [0u8; 8];
            rustix::fs::getxattr(place, *name, &mut value[..])
                .is_ok_and(|length| value.get(..length) == Some(&b"1"[..]))
        })
    };
    owned && (!user.is_root() || marked())
}

fn may_change(path: &Path) -> bool {
    use rustix::fs::{Access, AtFlags, CWD, accessat};
    accessat(CWD, path, Access::WRITE_OK, AtFlags::EACCESS).is_ok()
}

fn read_small(path: &Path) -> Option<String> {
    read_all(rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?)
}

fn read_all(file: OwnedFd) -> Option<String> {
    use std::io::Read;
    let mut text = String::new();
    std::fs::File::from(file).take(MAX_FILE).read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the test plays the kernel, whose control groups are files")]
mod tests {
    use std::fs;

    use super::*;

    /// A machine whose cgroup v2 hands out these controllers in a slice above this process.
    fn machine(own: &str, handed_out: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let mounts = "20 1 8:1 / / rw - ext4 /dev/x rw\n30 20 0:9 / /sys/fs/cg\\040roup rw - cgroup2 cgroup2 rw\n";
        fs::create_dir_all(root.path().join("proc/self")).unwrap();
        fs::write(root.path().join("proc/self/mountinfo"), mounts).unwrap();
        fs::write(root.path().join("proc/self/cgroup"), format!("9:x:/y\n0::{own}\n")).unwrap();
        for (place, controllers) in handed_out {
            let place = root.path().join("sys/fs/cg roup").join(place);
            fs::create_dir_all(&place).unwrap();
            fs::write(place.join("cgroup.subtree_control"), controllers).unwrap();
            fs::write(place.join("cgroup.procs"), "").unwrap();
        }
        root
    }

    #[test]
    fn the_nearest_group_that_hands_out_what_is_needed_is_found() {
        let tree = [("", "cpu memory pids\n"), ("user/app", "memory pids\n"), ("user/app/shell", "")];
        let root = machine("/user/app/shell", &tree);
        let found = Delegation::find(root.path(), &|_| true).unwrap();
        assert_eq!(found.folder, root.path().join("sys/fs/cg roup/user/app"));
        let root = machine("/user/app/shell", &[("", "cpu memory pids\n"), ("user/app/shell", "memory\n")]);
        assert_eq!(Delegation::find(root.path(), &|_| true).unwrap().folder, root.path().join("sys/fs/cg roup/"));
        let refused = Delegation::find(root.path(), &|_| false);
        assert_eq!(refused, Err("the cgroup that hands out memory and pids was not delegated to this user"));
        for (own, tree) in [
            ("/", vec![("", "hugetlb\n")]),
            ("/", vec![("", "")]),
            ("/a", vec![("", "memory\n"), ("a", "pids\n")]),
            ("/../b", vec![("", "memory pids\n")]),
        ] {
            assert!(Delegation::find(machine(own, &tree).path(), &|_| true).is_err(), "{own} {tree:?}");
        }
        let nothing = tempfile::tempdir().unwrap();
        assert_eq!(Delegation::find(nothing.path(), &|_| true), Err("/proc can't be read"));
    }

    #[test]
    fn a_group_has_the_limits_says_what_was_used_and_goes() {
        let root = machine("/a", &[("", "memory pids\n"), ("a", "")]);
        let delegation = Delegation::find(root.path(), &|_| true).unwrap();
        let files = [
            ("memory.max", "max"),
            ("memory.swap.max", "max"),
            ("memory.oom.group", "0"),
            ("pids.max", "max"),
            ("cgroup.kill", ""),
            ("cgroup.procs", ""),
            ("cpu.stat", "usage_usec 1500000\nuser_usec 1\n"),
            ("memory.peak", "4096\n"),
            ("memory.events", "low 0\noom 3\noom_kill 2\noom_group_kill 1\n"),
            ("pids.events", "max 7\n"),
        ];
        let fill = |path: &Path| files.iter().try_for_each(|(name, text)| fs::write(path.join(name), text));
        let limits = Limits { memory: 1 << 20, processes: 5, ..Limits::default() };
        let group = delegation.make_with("skillcell-x-1", &limits, 2, &fill).unwrap();
        let place = delegation.place("skillcell-x-1");
        let read = |name: &str| fs::read_to_string(place.join(name)).unwrap();
        assert_eq!(read("memory.max"), "1048576");
        assert_eq!((read("pids.max").as_str(), read("memory.swap.max").as_str()), ("7", "0"));
        assert_eq!(read("memory.oom.group"), "1");
        let expected = GroupUsage {
            cpu_time: Some(Duration::from_millis(1500)),
            peak_memory: Some(4096),
            killed_for_memory: 2,
            refused_processes: 7,
        };
        assert_eq!(group.usage(), expected);
        group.kill();
        assert_eq!(read("cgroup.kill"), "1");
        // A kernel's group is removed with its files.
        files.iter().for_each(|(name, _)| fs::remove_file(place.join(name)).unwrap());
        drop(group);
        assert!(!place.exists());
        // Without the files the kernel makes, nothing is run in it, and nothing is left.
        assert!(delegation.make("skillcell-x-2", &limits, 0).is_err());
        assert!(!delegation.place("skillcell-x-2").exists());
    }
}
