//! Reaching the daemon, and what it says of itself. The only place that knows addresses.
//!
//! The address comes from the process's own environment (`DOCKER_HOST`) and never from a `runtime_config`: whoever
//! names the daemon gets the skill and its inputs.

use std::time::Duration;

use bollard::errors::Error as DaemonError;
use bollard::{API_DEFAULT_VERSION, Docker};

use super::config::{DockerConfig, NAME};
use crate::error::{ErrorKind, Result, SkillRuntimeError};

const DEFAULT_ADDRESS: &str = "unix:///var/run/docker.sock";
/// A daemon that lives answers its first question in milliseconds.
const FIRST_ANSWER: Duration = Duration::from_secs(10);
/// Seconds a single call may take until its answer begins; a slow disk may need long to unpack a layer.
const CALL_SECONDS: u64 = 120;

/// What a daemon can do, as far as it matters here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DaemonFacts {
    /// For people.
    pub(super) version: String,
    /// `amd64`, `arm64`.
    pub(super) architecture: String,
    /// Without root: its containers' root is the user the daemon runs as.
    pub(super) rootless: bool,
    /// Containers' users are mapped to others on the host.
    pub(super) remapped: bool,
    /// The default seccomp filter is on.
    pub(super) seccomp: bool,
    /// AppArmor or SELinux is on.
    pub(super) labelled: bool,
    pub(super) memory: bool,
    pub(super) swap: bool,
    pub(super) processes: bool,
    pub(super) cpus: bool,
    /// OCI runtimes by name.
    pub(super) oci_runtimes: Vec<String>,
}

/// The daemon's address for this process.
pub(super) fn address_of_process() -> String {
    std::env::var("DOCKER_HOST")
        .ok()
        .filter(|address| !address.is_empty())
        .unwrap_or_else(|| DEFAULT_ADDRESS.to_owned())
}

/// Connects and agrees on a version of the protocol.
///
/// # Errors
/// [`Unavailable`](ErrorKind::Unavailable) with the next step.
pub(super) async fn connect(address: &str) -> Result<Docker> {
    let unusable = |why: &str| {
        SkillRuntimeError::new(
            ErrorKind::Unavailable,
            format!("the docker daemon at '{}' can't be used: {why}", address.escape_debug()),
        )
    };
    let client = if address.starts_with("unix://") {
        Docker::connect_with_unix(address, CALL_SECONDS, API_DEFAULT_VERSION)
    } else if address.starts_with("tcp://") || address.starts_with("http://") {
        if std::env::var_os("DOCKER_TLS_VERIFY").is_some_and(|value| !value.is_empty()) {
            // Speaking without TLS to a daemon the user protects with it would send the skill in the clear.
            return Err(unusable(
                "DOCKER_TLS_VERIFY is set and this build has no TLS; forward its socket with ssh and use unix://",
            ));
        }
        Docker::connect_with_http(address, CALL_SECONDS, API_DEFAULT_VERSION)
    } else {
        return Err(unusable(
            "addresses begin with unix:// or tcp://; forward a remote socket with `ssh -L` and use unix://",
        ));
    };
    const REMEDY: &str =
        "start it (`systemctl start docker`), join the group that may use its socket, or set DOCKER_HOST";
    let client = client.map_err(|error| unusable(REMEDY).caused_by(error))?;
    let negotiated = tokio::time::timeout(FIRST_ANSWER, client.negotiate_version()).await;
    match negotiated {
        Ok(Ok(client)) => Ok(client),
        Ok(Err(error)) => Err(unusable(REMEDY).caused_by(error)),
        Err(_) => Err(unusable("it did not answer within 10 s; look at its log, or restart it")),
    }
}

/// Asks the daemon what it can do.
///
/// # Errors
/// [`Unavailable`](ErrorKind::Unavailable) when it doesn't answer.
pub(super) async fn facts(docker: &Docker) -> Result<DaemonFacts> {
    let info = docker.info().await.map_err(|error| {
        SkillRuntimeError::new(ErrorKind::Unavailable, "the docker daemon does not say what it can do; look at its log")
            .caused_by(error)
    })?;
    let options = info.security_options.unwrap_or_default();
    let has = |name: &str| options.iter().any(|option| option.split(',').next() == Some(name));
    // A version before 1.41 of the protocol may leave a field out; an absent field claims nothing.
    Ok(DaemonFacts {
        version: info.server_version.unwrap_or_else(|| "unknown".into()),
        architecture: match info.architecture.as_deref() {
            Some("x86_64" | "amd64") => "amd64".into(),
            Some("aarch64" | "arm64") => "arm64".into(),
            other => other.unwrap_or("unknown").to_owned(),
        },
        rootless: has("name=rootless"),
        remapped: has("name=userns"),
        seccomp: has("name=seccomp"),
        labelled: has("name=apparmor") || has("name=selinux"),
        memory: info.memory_limit.unwrap_or(false),
        swap: info.swap_limit.unwrap_or(false),
        processes: info.pids_limit.unwrap_or(false),
        cpus: info.cpu_cfs_quota.unwrap_or(false),
        oci_runtimes: {
            let mut names: Vec<String> = info.runtimes.unwrap_or_default().into_keys().collect();
            names.sort();
            names
        },
    })
}

impl DaemonFacts {
    /// Refuses what this daemon can't do, before a container exists.
    ///
    /// # Errors
    /// [`PolicyUnenforceable`](ErrorKind::PolicyUnenforceable) for a limit it can't keep,
    /// [`Unavailable`](ErrorKind::Unavailable) for an OCI runtime it lacks.
    pub(super) fn check(&self, config: &DockerConfig) -> Result<()> {
        for (can, what, controller) in [
            (self.memory, "memory", "memory"),
            (self.processes, "the number of processes", "pids"),
            (self.cpus, "processors", "cpu"),
        ] {
            if !can {
                return Err(SkillRuntimeError::new(
                    ErrorKind::PolicyUnenforceable,
                    format!(
                        "this docker daemon can't limit {what}: enable the kernel's '{controller}' cgroup controller for it (rootless: delegate it to the user)"
                    ),
                ));
            }
        }
        match &config.oci_runtime {
            Some(name) if !self.oci_runtimes.contains(name) => Err(SkillRuntimeError::new(
                ErrorKind::Unavailable,
                format!(
                    "this docker daemon has no OCI runtime '{}'; it has: {}. Install it and add it to the daemon's configuration",
                    name.escape_debug(),
                    self.oci_runtimes.join(", ")
                ),
            )),
            _ => Ok(()),
        }
    }
}

/// What a failed call means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    /// The thing named isn't there.
    Absent,
    /// It is there and in the wrong state: not running, or being removed.
    WrongState,
    /// The daemon refused for another reason.
    Refused,
    /// The daemon didn't answer.
    Unreachable,
}

/// Sorts an error of the daemon.
pub(super) fn failure(error: &DaemonError) -> Failure {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the library's list is open; whatever isn't the daemon's answer is no answer"
    )]
    match error {
        DaemonError::DockerResponseServerError { status_code: 404, .. } => Failure::Absent,
        DaemonError::DockerResponseServerError { status_code: 304 | 409, .. } => Failure::WrongState,
        DaemonError::DockerResponseServerError { .. } | DaemonError::DockerStreamError { .. } => Failure::Refused,
        _ => Failure::Unreachable,
    }
}

/// Turns an error of the daemon into ours.
pub(super) fn call_error(what: &str, error: DaemonError) -> SkillRuntimeError {
    let (kind, message) = match failure(&error) {
        Failure::Absent | Failure::WrongState | Failure::Refused => {
            (ErrorKind::Backend, format!("the docker daemon could not {what}"))
        }
        Failure::Unreachable => (
            ErrorKind::Unavailable,
            format!("the docker daemon did not answer when asked to {what}; check that it runs, then prepare again"),
        ),
    };
    SkillRuntimeError::new(kind, message).with("runtime", NAME).caused_by(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn no_daemon_is_an_error_that_names_the_next_step() {
        for (address, part) in [
            ("unix:///nonexistent/docker.sock", "start it (`systemctl start docker`)"),
            ("ssh://somewhere", "addresses begin with unix:// or tcp://"),
            ("", "addresses begin with unix:// or tcp://"),
            // Port 1 of loopback: nobody listens.
            ("tcp://127.0.0.1:1", "start it (`systemctl start docker`)"),
        ] {
            let error = connect(address).await.map(drop).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{address}");
            assert!(error.to_string().contains(part), "{address}: {error}");
        }
    }
}
