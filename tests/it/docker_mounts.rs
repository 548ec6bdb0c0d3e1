//! Host folders in a container.
#![expect(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests make host files, and fail by unwrapping")]

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

use skillcell::ErrorKind;
use skillcell::policy::{MountMode, MountRequest};
use skillcell::workspace::{ApplyChanges, ChangeKind, Input, InputSource};

use super::docker_support::Setup;

/// A folder with one file, which belongs to an ordinary user.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "old\n").unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    if rustix::process::geteuid().is_root() {
        for path in [folder.path().to_owned(), folder.path().join("file")] {
            chown(path, Some(12_345), None).unwrap();
        }
    }
    folder
}

fn mounted(host: &Path, mode: MountMode) -> Setup {
    let mounts = vec![MountRequest { host: host.to_owned(), guest: "/data/here".parse().unwrap(), mode }];
    Setup { mounts, ..Setup::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_folder_is_seen_and_stays_as_it_is() {
    let host = folder();
    let prepared = mounted(host.path(), MountMode::ReadOnly).prepare().await;
    assert_eq!(prepared.output("cat /data/here/file").await, "old");
    for attempt in [
        "echo new >/data/here/file",
        "touch /data/here/added",
        "rm -f /data/here/file",
        "mv /data/here/file /data/here/x",
        "chmod 777 /data/here/file",
        "ln /data/here/file /workspace/tmp/x",
        "mount -o remount,rw /data/here",
    ] {
        assert!(!prepared.shell(attempt).await.success(), "{attempt}");
    }
    prepared.cleanup().await;
    assert_eq!(fs::read_to_string(host.path().join("file")).unwrap(), "old\n");
    assert_eq!(fs::read_dir(host.path()).unwrap().count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writable_folder_is_the_hosts_own_and_its_changes_are_listed() {
    let host = folder();
    let prepared = mounted(host.path(), MountMode::ReadWrite).prepare().await;
    prepared.output("echo new >/data/here/file && mkdir /data/here/sub && echo x >/data/here/sub/added").await;
    assert_eq!(fs::read_to_string(host.path().join("file")).unwrap(), "new\n");
    let reports = prepared.workspace.mount_reports(ApplyChanges::Never, prepared.handle.audit());
    let changes: Vec<(&str, ChangeKind)> =
        reports[0].changes.iter().map(|change| (change.path.as_str(), change.change)).collect();
    assert_eq!(changes, [("file", ChangeKind::Changed), ("sub", ChangeKind::Added), ("sub/added", ChangeKind::Added)]);
    prepared.cleanup().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_private_copy_can_be_written_to_whomever_the_folder_belongs_to() {
    let host = tempfile::tempdir().unwrap();
    fs::write(host.path().join("file"), "old\n").unwrap();
    let prepared = mounted(host.path(), MountMode::CopyOnWrite).prepare().await;
    prepared.output("echo new >/data/here/file && echo x >/data/here/added").await;
    assert_eq!(fs::read_to_string(host.path().join("file")).unwrap(), "old\n");
    let reports = prepared.workspace.mount_reports(ApplyChanges::OnSuccess, prepared.handle.audit());
    assert_eq!(reports[0].applied, ["added", "file"]);
    assert_eq!(fs::read_to_string(host.path().join("file")).unwrap(), "new\n");
    prepared.cleanup().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_can_not_be_mounted_is_refused() {
    let host = folder();
    let kind = async |setup: Setup| setup.try_prepare().await.map(drop).unwrap_err().kind();
    assert_eq!(kind(mounted(host.path(), MountMode::ReadWriteWithoutDelete)).await, ErrorKind::PolicyUnenforceable);
    let copied = Setup { config: serde_json::json!({"files": "copy"}), ..mounted(host.path(), MountMode::ReadOnly) };
    assert_eq!(kind(copied).await, ErrorKind::PolicyUnenforceable);
    if rustix::process::geteuid().is_root() {
        let of_root = tempfile::tempdir().unwrap();
        assert_eq!(kind(mounted(of_root.path(), MountMode::ReadWrite)).await, ErrorKind::PolicyUnenforceable);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_input_that_is_mounted_is_seen_where_it_would_be_copied() {
    let host = folder();
    let inputs = vec![Input { name: "given".into(), source: InputSource::Mount(host.path().to_owned()) }];
    let prepared = Setup { inputs, ..Setup::default() }.prepare().await;
    assert_eq!(prepared.output("cat /workspace/in/given/file").await, "old");
    fs::write(host.path().join("file"), "newer\n").unwrap();
    assert_eq!(prepared.output("cat /workspace/in/given/file").await, "newer");
    assert!(!prepared.shell("echo x >/workspace/in/given/file").await.success());
    prepared.cleanup().await;
}
