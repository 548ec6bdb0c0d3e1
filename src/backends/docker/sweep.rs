//! Whose a container is, written on it as labels, and the removal of what a process left that is no more.
//!
//! A running container ends with the connection of its process (see `init/main.rs`), so what is left for the sweep is
//! the rare rest: one that was made and never started, or that outlived a daemon's crash. Only a container that says
//! that it is ours, of this machine, and of a process that is provably gone is touched; any doubt leaves it alone.

use std::collections::HashMap;

use bollard::Docker;
use bollard::query_parameters::{ListContainersOptions, RemoveContainerOptions};
use rustix::fs::{Mode, OFlags, readlink};
use sha2::{Digest, Sha256};

use super::connect::{Failure, call_error, failure};
use crate::audit::RunId;
use crate::error::{Result, SkillRuntimeError};

/// On every container of ours; the value is the run's id.
pub(super) const RUN_LABEL: &str = "io.skillcell.run";
const MACHINE_LABEL: &str = "io.skillcell.host.machine";
const BOOT_LABEL: &str = "io.skillcell.host.boot";
const NAMESPACE_LABEL: &str = "io.skillcell.host.pid-namespace";
const PID_LABEL: &str = "io.skillcell.host.pid";
const START_LABEL: &str = "io.skillcell.host.pid-start";

/// A process of some machine, so named that no other process ever has the same name. A pid alone is used again, and a
/// wall clock may jump; the start time is the kernel's tick count since its boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Owner {
    machine: String,
    boot: String,
    namespace: String,
    pid: u32,
    start: String,
}

impl Owner {
    /// This process.
    ///
    /// # Errors
    /// [`Backend`](crate::ErrorKind::Backend) when `/proc` can't be read.
    pub(super) fn this_process() -> Result<Self> {
        let failed =
            |error| SkillRuntimeError::backend("could not read /proc, by which leftovers are known later", error);
        let pid = std::process::id();
        let start = start_time(pid).ok_or_else(|| failed(std::io::ErrorKind::InvalidData.into()))?;
        let boot = read("/proc/sys/kernel/random/boot_id").map_err(failed)?;
        // Not every machine has an id; the kernel's boot is then all we know, and older leftovers stay.
        let machine = read("/etc/machine-id").unwrap_or_default();
        let namespace = readlink("/proc/self/ns/pid", Vec::new()).map_err(|error| failed(error.into()))?;
        Ok(Self {
            // The id itself is meant to stay on the machine.
            machine: short_digest(machine.trim()),
            boot: short_digest(boot.trim()),
            namespace: namespace.to_string_lossy().into_owned(),
            pid,
            start,
        })
    }

    /// The labels of a container of this process.
    pub(super) fn labels(&self, run: RunId) -> HashMap<String, String> {
        [
            (RUN_LABEL, run.to_string()),
            (MACHINE_LABEL, self.machine.clone()),
            (BOOT_LABEL, self.boot.clone()),
            (NAMESPACE_LABEL, self.namespace.clone()),
            (PID_LABEL, self.pid.to_string()),
            (START_LABEL, self.start.clone()),
        ]
        .into_iter()
        .map(|(label, value)| (label.to_owned(), value))
        .collect()
    }

    /// Who labelled a container; `None` when it isn't ours or the labels are damaged.
    fn of(labels: &HashMap<String, String>) -> Option<Self> {
        labels.get(RUN_LABEL)?;
        let get = |label: &str| labels.get(label).cloned();
        Some(Self {
            machine: get(MACHINE_LABEL)?,
            boot: get(BOOT_LABEL)?,
            namespace: get(NAMESPACE_LABEL)?,
            pid: get(PID_LABEL)?.parse().ok()?,
            start: get(START_LABEL)?,
        })
    }

    /// Whether `other` is provably gone, as far as this process can see. `start_of` gives the start time of a pid.
    fn knows_gone(&self, other: &Self, start_of: impl Fn(u32) -> Option<String>) -> bool {
        if other.machine != self.machine || self.machine == short_digest("") {
            // Another machine may use the same daemon; its processes can't be seen from here.
            return false;
        }
        if other.boot != self.boot {
            return true;
        }
        // Pids of another namespace (a container that was given the daemon's socket) mean nothing here.
        other.namespace == self.namespace && start_of(other.pid).as_ref() != Some(&other.start)
    }
}

/// Removes containers of processes that are gone. Returns how many.
///
/// # Errors
/// When the daemon can't list containers. One that can't be removed is logged and left for the next sweep.
pub(super) async fn sweep(docker: &Docker, me: &Owner) -> Result<usize> {
    let filters = HashMap::from([("label".to_owned(), vec![RUN_LABEL.to_owned()])]);
    let options = ListContainersOptions { all: true, filters: Some(filters), ..Default::default() };
    let all = docker.list_containers(Some(options)).await.map_err(|error| call_error("list containers", error))?;
    let mut removed = 0;
    for container in all {
        let (Some(id), Some(labels)) = (container.id, container.labels) else { continue };
        if !Owner::of(&labels).is_some_and(|owner| me.knows_gone(&owner, start_time)) {
            continue;
        }
        match remove(docker, &id).await {
            Ok(()) => removed += 1,
            Err(error) => {
                tracing::warn!(container = %id, error = %error.chain().join(": "), "a leftover container stays")
            }
        }
    }
    Ok(removed)
}

/// Removes a container with its anonymous volumes. One that is gone, or going, is fine.
///
/// # Errors
/// [`Backend`](crate::ErrorKind::Backend) or [`Unavailable`](crate::ErrorKind::Unavailable).
pub(super) async fn remove(docker: &Docker, container: &str) -> Result<()> {
    let options = RemoveContainerOptions { force: true, v: true, ..Default::default() };
    match docker.remove_container(container, Some(options)).await {
        Err(error) if !matches!(failure(&error), Failure::Absent | Failure::WrongState) => {
            Err(call_error("remove the container", error).with("container", container))
        }
        _ => Ok(()),
    }
}

/// The start time of a process: the 22nd field of its `stat`, counted after the name, which may hold anything.
fn start_time(pid: u32) -> Option<String> {
    let stat = read(&format!("/proc/{pid}/stat")).ok()?;
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_whitespace().nth(19).map(str::to_owned)
}

/// Reads one of the small files by which the kernel and the system tell about themselves.
fn read(path: &str) -> std::io::Result<String> {
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut bytes = [0; 4096];
    let count = rustix::io::read(&file, &mut bytes)?;
    Ok(String::from_utf8_lossy(bytes.get(..count).unwrap_or_default()).into_owned())
}

fn short_digest(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_provably_gone_is_swept() {
        let me = Owner { machine: "m".into(), boot: "b".into(), namespace: "n".into(), pid: 10, start: "100".into() };
        let start_of = |pid| (pid == 10).then(|| "100".to_owned());
        let other = |change: fn(&mut Owner)| {
            let mut owner = me.clone();
            change(&mut owner);
            me.knows_gone(&owner, start_of)
        };
        assert!(!other(|_| {}), "this process");
        assert!(other(|owner| owner.pid = 11), "a pid that is not there");
        assert!(other(|owner| owner.start = "99".into()), "a pid that was used again");
        assert!(other(|owner| owner.boot = "older".into()), "an earlier boot");
        assert!(!other(|owner| (owner.namespace, owner.pid) = ("another".into(), 11)), "another pid namespace");
        assert!(!other(|owner| (owner.machine, owner.boot) = ("another".into(), "x".into())), "another machine");
        let nameless = Owner { machine: short_digest(""), ..me.clone() };
        assert!(!nameless.knows_gone(&Owner { pid: 11, ..nameless.clone() }, start_of), "a machine without an id");
    }

    #[test]
    fn labels_name_this_process_and_foreign_ones_name_nobody() {
        let me = Owner::this_process().unwrap();
        let mut labels = me.labels(RunId::random().unwrap());
        assert_eq!(Owner::of(&labels), Some(me.clone()));
        assert!(!me.knows_gone(&me, start_time));
        labels.insert(PID_LABEL.into(), "-1".into());
        assert_eq!(Owner::of(&labels), None);
        labels.clear();
        assert_eq!(Owner::of(&labels), None);
    }
}
