//! Making the namespaces of a sandbox: `bwrap` sets them up, we hold on to them by descriptor, `bwrap` ends.
//!
//! So nothing of a sandbox lives between two runs but descriptors in the host's process; when that ends, however it
//! ends, the kernel takes the namespaces away. There is no leftover to sweep.

use std::ffi::OsString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use super::root::{GUEST_USER, Root};
use crate::backends::child::{OnHost, Service, ServiceSpec, read_object};
use crate::error::{ErrorKind, Result, SkillRuntimeError};

/// How long `bwrap` may take. It needs some 20 ms; a machine under load may need a hundred times that.
const PATIENCE: Duration = Duration::from_secs(20);
/// `bwrap` reports a few hundred bytes about what it made.
const MAX_REPORT: usize = 64 * 1024;
/// Says a byte back once everything is set up, and ends when its input does.
const ECHO: &str = "/usr/bin/cat";

/// The namespaces that were made.
pub(super) struct Held {
    pub(super) user: OwnedFd,
    pub(super) others: Vec<(OwnedFd, i32)>,
}

/// What is to be made.
pub(super) struct Wanted {
    pub(super) bwrap: PathBuf,
    pub(super) root: Root,
    pub(super) host_network: bool,
    /// A user to make it as (root only).
    pub(super) user: Option<(u32, u32)>,
    /// Any folder: the current one of `bwrap`.
    pub(super) folder: OwnedFd,
}

/// Has `bwrap` make the namespaces, and takes hold of them.
///
/// # Errors
/// [`Unavailable`](ErrorKind::Unavailable) with the remedy when this machine forbids it.
pub(super) async fn make(wanted: Wanted) -> Result<Held> {
    let Wanted { bwrap, root, host_network, user, folder } = wanted;
    let (report, report_write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
        .map_err(|error| SkillRuntimeError::backend("could not make a pipe", error))?;
    let mut arguments = namespace_arguments(host_network);
    arguments.extend(["--info-fd".into(), report_write.as_raw_fd().to_string().into()]);
    arguments.extend(root.arguments);
    arguments.extend(["--".into(), ECHO.into()]);
    let mut keep = root.keep;
    keep.push(report_write);
    let mut service = Service::start(ServiceSpec {
        program: bwrap,
        arguments,
        place: OnHost { keep, folders: root.folders, user, ..OnHost::new(folder) },
    })?;
    if let Err(not_ready) = service.ready(PATIENCE).await {
        return Err(explain(&not_ready.complaint));
    }
    let report = read_object(report, MAX_REPORT, PATIENCE)
        .await
        .map_err(|error| SkillRuntimeError::backend("bwrap said nothing about the sandbox it made", error))?;
    let held = hold(child_of(&report)?, host_network)?;
    // The namespaces live on by the descriptors.
    drop(service);
    Ok(held)
}

fn namespace_arguments(host_network: bool) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = ["--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-uts"]
        .into_iter()
        .chain(["--unshare-cgroup-try", "--hostname", "skillcell", "--new-session", "--die-with-parent", "--clearenv"])
        .chain(["--cap-drop", "ALL"])
        .map(OsString::from)
        .collect();
    for option in ["--uid", "--gid"] {
        arguments.extend([option.into(), GUEST_USER.to_string().into()]);
    }
    if !host_network {
        arguments.push("--unshare-net".into());
    }
    arguments
}

/// The process id in the report of `bwrap`.
fn child_of(report: &[u8]) -> Result<u32> {
    let id = serde_json::from_slice::<serde_json::Value>(report)
        .ok()
        .and_then(|report| u32::try_from(report.get("child-pid")?.as_u64()?).ok());
    id.ok_or_else(|| SkillRuntimeError::new(ErrorKind::Backend, "bwrap reported no process for the sandbox it made"))
}

/// Opens the namespaces of a process, and checks that they are not the host's.
fn hold(process: u32, host_network: bool) -> Result<Held> {
    let open = |process: &str, name: &str| {
        let path = format!("/proc/{process}/ns/{name}");
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
        rustix::fs::open(path, flags, rustix::fs::Mode::empty()).map_err(|error| {
            SkillRuntimeError::backend(format!("could not open the sandbox's {name} namespace"), error)
        })
    };
    let distinct = |name: &str| -> Result<OwnedFd> {
        let (theirs, ours) = (open(&process.to_string(), name)?, open("self", name)?);
        let id = |namespace: &OwnedFd| {
            rustix::fs::fstat(namespace)
                .map(|stat| stat.st_ino)
                .map_err(|error| SkillRuntimeError::backend("could not look at a namespace", error))
        };
        if id(&theirs)? == id(&ours)? {
            return Err(SkillRuntimeError::new(
                ErrorKind::PolicyUnenforceable,
                format!("bwrap made no {name} namespace, so nothing was run; please report this with its version"),
            ));
        }
        Ok(theirs)
    };
    let user = distinct("user")?;
    let mut others = vec![
        (distinct("ipc")?, libc::CLONE_NEWIPC),
        (distinct("uts")?, libc::CLONE_NEWUTS),
        (distinct("cgroup")?, libc::CLONE_NEWCGROUP),
    ];
    if !host_network {
        others.push((distinct("net")?, libc::CLONE_NEWNET));
    }
    // Last, as it changes the root folder.
    others.push((distinct("mnt")?, libc::CLONE_NEWNS));
    Ok(Held { user, others })
}

/// Turns what `bwrap` says into the next step.
fn explain(complaint: &str) -> SkillRuntimeError {
    let known = [
        (
            "Unknown option",
            "this bwrap is too old: --bind-fd is needed (0.10, or a distribution's security update of an older one); \
             update the package bubblewrap",
        ),
        (
            "uid map",
            "user namespaces are restricted for bwrap, on Ubuntu by AppArmor; install the profile of package apparmor \
             for bwrap, or set kernel.apparmor_restrict_unprivileged_userns=0",
        ),
        (
            "namespace",
            "this machine forbids new namespaces to this user; set kernel.unprivileged_userns_clone=1 and a \
             user.max_user_namespaces above 0, or inside a container allow them in its seccomp profile",
        ),
        (
            "Can't mount proc",
            "/proc can't be mounted in a namespace here, as in some containers; run the container with an unmasked /proc \
             (docker: --security-opt systempaths=unconfined)",
        ),
    ];
    for (word, remedy) in known {
        if complaint.contains(word) {
            return SkillRuntimeError::new(
                ErrorKind::Unavailable,
                format!("runtime 'bubblewrap' can't be used: {remedy}"),
            )
            .caused_by(complaint.to_owned());
        }
    }
    let cause = if complaint.is_empty() { "it said nothing in time" } else { complaint };
    SkillRuntimeError::new(ErrorKind::Backend, "bwrap could not make the sandbox").caused_by(cause.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complaints_name_the_next_step() {
        for (complaint, kind, part) in [
            ("bwrap: Unknown option --bind-fd", ErrorKind::Unavailable, "update the package bubblewrap"),
            ("bwrap: setting up uid map: Permission denied", ErrorKind::Unavailable, "AppArmor"),
            (
                "bwrap: No permissions to create new namespace, likely because the kernel does not allow it",
                ErrorKind::Unavailable,
                "kernel.unprivileged_userns_clone=1",
            ),
            (
                "bwrap: Can't mount proc on /newroot/proc: Operation not permitted",
                ErrorKind::Unavailable,
                "unmasked /proc",
            ),
            ("bwrap: something else", ErrorKind::Backend, "could not make the sandbox"),
            ("", ErrorKind::Backend, "could not make the sandbox"),
        ] {
            let error = explain(complaint);
            assert_eq!(error.kind(), kind, "{complaint}");
            assert!(error.to_string().contains(part), "{error}");
        }
    }

    #[test]
    fn a_report_without_a_process_is_an_error() {
        assert_eq!(child_of(br#"{"child-pid": 42, "x": 1}"#).unwrap(), 42);
        for bad in ["", "{}", "[]", r#"{"child-pid": -1}"#, r#"{"child-pid": "42"}"#, r#"{"child-pid": 99999999999}"#] {
            assert!(child_of(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
