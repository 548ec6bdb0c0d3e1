//! What a container is made of: the whole hardening in one pure function, so that a test can hold it up against a
//! golden answer. Starts nothing.
//!
//! Invariant: every field that could widen the sandbox is set here, on purpose, or left at the daemon's hardened
//! default with a word about it. Nothing comes from the image but its files, its environment and its interpreter.

use std::collections::HashMap;
use std::path::Path;

use bollard::models::{
    ContainerCreateBody, HealthConfig, HostConfig, HostConfigLogConfig, Mount, MountType, ResourcesUlimits,
    RestartPolicy, RestartPolicyNameEnum,
};

use super::config::{DockerConfig, OutAccess};
use super::image::ImageFacts;
use crate::error::Result;
use crate::policy::{NetworkPolicy, SandboxPolicy};
use crate::workspace::Area;

/// The init's place in a container whose workspace is mounted, and the file's name in the workspace's folder.
pub(super) const INIT_MOUNTED: &str = "/.skillcell-init";
pub(super) const INIT_FILE: &str = ".skillcell-init";
/// Its place in a container whose workspace is a copy: the volume is the only folder that can be written to before
/// the container starts.
pub(super) const INIT_COPIED: &str = "/workspace/.skillcell-init";
/// Its mode: it may be run and not read. The kernel closes the memory, the descriptors and the tracing of a program that
/// its user can't read, from its first instruction on; whoever could trace a supervisor could forge its report.
pub(super) const INIT_MODE: u32 = 0o111;
/// The group of the container's first process. Runs have numbers of their own above it.
pub(super) const INIT_GROUP: u32 = 19_999;
/// The size of `/tmp`, as in CARL. Its number of files is limited by the memory limit, which counts inodes; podman does
/// not take a number.
const TMP_BYTES: u64 = 64 << 20;
/// The size of `/dev/shm`, the daemon's default; counted as memory of the container.
const SHM_BYTES: i64 = 64 << 20;
/// Processes of a container that are not the guest's: the first one, a run's supervisor, the next run's, and the threads of the OCI
/// runtime that is still starting a run when the limit is looked at (runc has up to eight). Without room for them no
/// command could start beside a guest that has all its processes.
pub(super) const OWN_PROCESSES: u32 = 11;

/// Processes of the guest's user, counted by the kernel over all containers.
const HOST_PROCESSES: u64 = 16_384;

/// What the description is derived from.
pub(super) struct ContainerPlan<'a> {
    pub(super) image: &'a ImageFacts,
    pub(super) config: &'a DockerConfig,
    pub(super) policy: &'a SandboxPolicy,
    pub(super) labels: HashMap<String, String>,
    /// The user id of the guest.
    pub(super) user: u32,
    pub(super) files: FilePlan<'a>,
}

/// How the workspace gets in.
pub(super) enum FilePlan<'a> {
    /// Folders of this machine, mounted.
    Mounted {
        /// The workspace's folder.
        root: &'a Path,
        /// More folders.
        folders: Vec<MountedFolder>,
    },
    /// A volume that is filled through the daemon.
    Copied,
}

/// A folder of this machine beside the areas.
pub(super) struct MountedFolder {
    /// Where the guest sees it.
    pub(super) guest: String,
    /// Where the daemon finds it.
    pub(super) source: String,
    pub(super) read_only: bool,
}

/// Describes the container.
///
/// # Errors
/// [`InvalidConfig`](crate::ErrorKind::InvalidConfig) for a limit the daemon can't take.
pub(super) fn describe(plan: &ContainerPlan<'_>) -> Result<ContainerCreateBody> {
    let (init, first_user) = match plan.files {
        FilePlan::Mounted { .. } => (INIT_MOUNTED, plan.user),
        // Podman gives a new volume to the container's user, so that one must not be the guest, who could put other
        // folders in the place of the read-only ones. Only our init runs as it, without any capability.
        FilePlan::Copied => (INIT_COPIED, 0),
    };
    Ok(ContainerCreateBody {
        image: Some(plan.image.id.clone()),
        // Instead of the image's own, which would be a program that nobody looked at.
        entrypoint: Some(vec![init.to_owned(), "hold".to_owned()]),
        cmd: Some(Vec::new()),
        user: Some(format!("{first_user}:{INIT_GROUP}")),
        working_dir: Some("/".to_owned()),
        // One name for all: the default is the container's id, which a script might print into its results.
        hostname: Some("skillcell".to_owned()),
        labels: Some(plan.labels.clone()),
        // The line by which the container lives: it ends with the connection that is attached here.
        attach_stdin: Some(true),
        open_stdin: Some(true),
        stdin_once: Some(true),
        attach_stdout: Some(false),
        attach_stderr: Some(false),
        tty: Some(false),
        // An image's health check would be run beside the guest, again and again.
        healthcheck: Some(HealthConfig { test: Some(vec!["NONE".to_owned()]), ..Default::default() }),
        host_config: Some(host_config(plan)?),
        ..Default::default()
    })
}

fn host_config(plan: &ContainerPlan<'_>) -> Result<HostConfig> {
    let limits = &plan.policy.limits;
    let memory = signed(plan.config.memory(limits)?);
    let network = match plan.policy.network.policy {
        // Without the egress gateway an allow list can't be kept, so in best effort it is nothing at all.
        NetworkPolicy::None | NetworkPolicy::Allowlist => "none",
        NetworkPolicy::Host => "host",
    };
    let ulimit = |name: &str, value: u64| ResourcesUlimits {
        name: Some(name.to_owned()),
        soft: Some(signed(value)),
        hard: Some(signed(value)),
    };
    Ok(HostConfig {
        network_mode: Some(network.to_owned()),
        readonly_rootfs: Some(true),
        privileged: Some(false),
        cap_drop: Some(vec!["ALL".to_owned()]),
        // The daemon's own seccomp filter and AppArmor profile stay on: naming either here would replace it.
        security_opt: Some(vec!["no-new-privileges".to_owned()]),
        memory: Some(memory),
        // Memory and swap together: no swap.
        memory_swap: Some(memory),
        nano_cpus: Some((plan.config.cpus * 1e9) as i64),
        pids_limit: Some(i64::from(plan.config.processes(limits)) + i64::from(OWN_PROCESSES)),
        ulimits: Some(vec![
            ulimit("nofile", u64::from(limits.open_files)),
            // One file can't be larger than all of them together may be.
            ulimit("fsize", limits.disk),
            // Of the guest's user on the whole host, so no limit of ours; podman's own default is refused by its runtime
            // when the host's is lower.
            ulimit("nproc", HOST_PROCESSES),
            // A core dump would be a file that nobody asked for.
            ulimit("core", 0),
        ]),
        tmpfs: Some(tmpfs(&plan.image.volumes)),
        shm_size: Some(SHM_BYTES),
        ipc_mode: Some("private".to_owned()),
        mounts: Some(mounts(plan)),
        runtime: plan.config.oci_runtime.clone(),
        // Gone with the last breath of the init, also when nobody of ours is left to ask for it.
        auto_remove: Some(true),
        restart_policy: Some(RestartPolicy { name: Some(RestartPolicyNameEnum::NO), maximum_retry_count: None }),
        // Output goes to the run that made it; a log on the daemon's disk would grow with the guest's appetite.
        log_config: Some(HostConfigLogConfig { typ: Some("none".to_owned()), config: None }),
        ..Default::default()
    })
}

fn tmpfs(volumes: &[String]) -> HashMap<String, String> {
    let mut all = HashMap::from([("/tmp".to_owned(), format!("rw,noexec,nosuid,nodev,size={TMP_BYTES},mode=1777"))]);
    for volume in volumes {
        // An empty read-only folder in the place of a writable one on the daemon's disk.
        if !volume.starts_with("/workspace") && volume != "/tmp" && volume != "/" {
            all.insert(volume.clone(), "ro,noexec,nosuid,nodev,size=4096".to_owned());
        }
    }
    all
}

fn mounts(plan: &ContainerPlan<'_>) -> Vec<Mount> {
    let bind = |source: String, target: String, read_only: bool| Mount {
        typ: Some(MountType::BIND),
        source: Some(source),
        target: Some(target),
        read_only: Some(read_only),
        ..Default::default()
    };
    match &plan.files {
        FilePlan::Copied => {
            vec![Mount { typ: Some(MountType::VOLUME), target: Some("/workspace".to_owned()), ..Default::default() }]
        }
        FilePlan::Mounted { root, folders } => {
            let inside = |name: &str| root.join(name).to_string_lossy().into_owned();
            let areas = Area::ALL.into_iter().map(|area| {
                let kept = area == Area::Out && plan.config.out == OutAccess::ReadOnly;
                bind(inside(area.name()), area.guest_path().to_string(), kept || !area.writable())
            });
            areas
                .chain([bind(inside(INIT_FILE), INIT_MOUNTED.to_owned(), true)])
                .chain(folders.iter().map(|folder| bind(folder.source.clone(), folder.guest.clone(), folder.read_only)))
                .collect()
        }
    }
}

/// The daemon's numbers are signed; ours are checked to be far below the difference.
fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;
    use crate::runtime::RuntimeConfig;

    fn described(files: FilePlan<'_>, config: Map<String, serde_json::Value>) -> serde_json::Value {
        let image = ImageFacts {
            id: "sha256:00".into(),
            env: Vec::new(),
            volumes: vec!["/data".into(), "/workspace/out".into()],
        };
        let config = DockerConfig::parse(&RuntimeConfig::new(config)).unwrap();
        let policy = SandboxPolicy::default();
        let labels = HashMap::from([("a".to_owned(), "b".to_owned())]);
        let plan = ContainerPlan { image: &image, config: &config, policy: &policy, labels, user: 1000, files };
        serde_json::to_value(describe(&plan).unwrap()).unwrap()
    }

    #[test]
    fn the_whole_description() {
        let folder = |guest: &str, source: &str, read_only| MountedFolder {
            guest: guest.to_owned(),
            source: source.to_owned(),
            read_only,
        };
        let folders = vec![folder("/workspace/in/data", "/srv/a", true), folder("/data", "/srv/b", false)];
        let files = FilePlan::Mounted { root: Path::new("/w:x"), folders };
        let config = json!({"oci_runtime": "runsc", "cpu_limit": 0.5, "workspace_output_mode": "read_only"});
        let bind = |source: &str, target: &str, read_only: bool| json!({"Type": "bind", "Source": source, "Target": target, "ReadOnly": read_only});
        let expected = json!({
            "Image": "sha256:00",
            "Entrypoint": ["/.skillcell-init", "hold"],
            "Cmd": [],
            "User": "1000:19999",
            "WorkingDir": "/",
            "Hostname": "skillcell",
            "Labels": {"a": "b"},
            "AttachStdin": true,
            "OpenStdin": true,
            "StdinOnce": true,
            "AttachStdout": false,
            "AttachStderr": false,
            "Tty": false,
            "Healthcheck": {"Test": ["NONE"]},
            "HostConfig": {
                "NetworkMode": "none",
                "ReadonlyRootfs": true,
                "Privileged": false,
                "CapDrop": ["ALL"],
                "SecurityOpt": ["no-new-privileges"],
                "Memory": 536870912,
                "MemorySwap": 536870912,
                "NanoCpus": 500000000,
                "PidsLimit": 139,
                "Ulimits": [
                    {"Name": "nofile", "Soft": 1024, "Hard": 1024},
                    {"Name": "fsize", "Soft": 1073741824, "Hard": 1073741824},
                    {"Name": "nproc", "Soft": 16384, "Hard": 16384},
                    {"Name": "core", "Soft": 0, "Hard": 0},
                ],
                "Tmpfs": {
                    "/tmp": "rw,noexec,nosuid,nodev,size=67108864,mode=1777",
                    "/data": "ro,noexec,nosuid,nodev,size=4096",
                },
                "ShmSize": 67108864,
                "IpcMode": "private",
                "Mounts": [
                    bind("/w:x/skill", "/workspace/skill", true),
                    bind("/w:x/in", "/workspace/in", true),
                    bind("/w:x/out", "/workspace/out", true),
                    bind("/w:x/tmp", "/workspace/tmp", false),
                    bind("/w:x/site", "/workspace/site", true),
                    bind("/w:x/.skillcell-init", "/.skillcell-init", true),
                    bind("/srv/a", "/workspace/in/data", true),
                    bind("/srv/b", "/data", false),
                ],
                "Runtime": "runsc",
                "AutoRemove": true,
                "RestartPolicy": {"Name": "no"},
                "LogConfig": {"Type": "none"},
            },
        });
        assert_eq!(described(files, config.as_object().cloned().unwrap()), expected);
    }

    #[test]
    fn a_copied_workspace_is_one_volume() {
        let description = described(FilePlan::Copied, Map::new());
        assert_eq!(description["HostConfig"]["Mounts"], json!([{"Type": "volume", "Target": "/workspace"}]));
        assert_eq!(description["Entrypoint"], json!(["/workspace/.skillcell-init", "hold"]));
        assert_eq!(description["User"], "0:19999");
    }
}
