//! Host folders beside the workspace: what is staged, what a guest changed, and what goes back to the host.
#![expect(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests make host files, and fail by unwrapping")]

use std::fs;
use std::path::Path;
use std::sync::Arc;

use skillcell::ErrorKind;
use skillcell::audit::{AuditScope, Layer, MemorySink, RunId};
use skillcell::policy::{MountMode, MountRequest, Protection};
use skillcell::workspace::{ApplyChanges, ChangeKind, MountReport, PrivateDir, Workspace, private_home};

/// A host folder with some files, and a workspace that mounts it.
struct Setup {
    host: tempfile::TempDir,
    workspace: Workspace,
    sink: Arc<MemorySink>,
    audit: AuditScope,
    _parent: tempfile::TempDir,
}

fn request(host: &Path, mode: MountMode) -> MountRequest {
    MountRequest { host: host.to_owned(), guest: "/data".parse().unwrap(), mode }
}

impl Setup {
    fn new(mode: MountMode) -> Self {
        let (host, parent) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir_all(host.path().join("sub/deep")).unwrap();
        fs::write(host.path().join("kept"), "kept").unwrap();
        fs::write(host.path().join("sub/changed"), "old").unwrap();
        fs::write(host.path().join("sub/deep/gone"), "gone").unwrap();
        let run = RunId::random().unwrap();
        let sink = Arc::new(MemorySink::default());
        let mut workspace = Workspace::create_in(parent.path(), run).unwrap();
        workspace.stage_mounts(&[request(host.path(), mode)]).unwrap();
        Self { host, workspace, audit: AuditScope::new(run, "test", sink.clone()), sink, _parent: parent }
    }

    /// What a guest does, through the handle a runtime would show it.
    fn guest(&self) {
        let dir = self.workspace.host_mounts()[0].dir();
        dir.write("sub/changed", "new").unwrap();
        dir.create_dir("made").unwrap();
        dir.write("made/added", "added").unwrap();
        dir.remove_dir_all("sub/deep").unwrap();
    }

    fn report(&self, apply: ApplyChanges) -> MountReport {
        let mut reports = self.workspace.mount_reports(apply, &self.audit);
        assert_eq!(reports.len(), 1);
        reports.remove(0)
    }

    fn read(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.host.path().join(path)).ok()
    }

    fn denials(&self) -> Vec<String> {
        let events = self.sink.events();
        let denials = events.iter().filter(|event| event.layer == Layer::Files);
        denials.map(|event| format!("{} {} {}", event.action, event.object, event.reason)).collect()
    }
}

fn lines(report: &MountReport) -> Vec<String> {
    let line = |change: &skillcell::workspace::MountChange| {
        let what = match change.change {
            ChangeKind::Added => "+",
            ChangeKind::Changed => "~",
            ChangeKind::Removed => "-",
        };
        format!("{what}{}", change.path)
    };
    report.changes.iter().map(line).collect()
}

const CHANGES: [&str; 5] = ["+made", "+made/added", "~sub/changed", "-sub/deep", "-sub/deep/gone"];

#[test]
fn a_private_copy_leaves_the_host_alone_and_its_changes_are_listed() {
    let setup = Setup::new(MountMode::CopyOnWrite);
    setup.guest();
    let report = setup.report(ApplyChanges::Never);
    assert_eq!(lines(&report), CHANGES);
    assert_eq!(report.changes_total, 5);
    let changed = &report.changes[2];
    assert_eq!((changed.size, changed.executable, changed.protected), (Some(3), false, None));
    assert_eq!(changed.sha256.as_deref(), Some("11507a0e2f5e69d5dfa40a62a1bd7b6ee57e6bcd85c67c9b8431b36fff21c437"));
    assert!(report.applied.is_empty());
    assert_eq!(setup.read("sub/changed").unwrap(), "old");
    assert_eq!(setup.read("made/added"), None);
    setup.workspace.remove().unwrap();
    assert_eq!(setup.read("sub/deep/gone").unwrap(), "gone");
}

#[test]
fn applying_writes_what_was_added_and_changed_and_removes_nothing() {
    let setup = Setup::new(MountMode::CopyOnWrite);
    setup.guest();
    let report = setup.report(ApplyChanges::OnSuccess);
    assert_eq!(report.applied, ["made/added", "sub/changed"]);
    assert!(report.not_applied.is_empty());
    assert_eq!(setup.read("sub/changed").unwrap(), "new");
    assert_eq!(setup.read("made/added").unwrap(), "added");
    assert_eq!(setup.read("sub/deep/gone").unwrap(), "gone");
    assert_eq!(setup.denials(), Vec::<String>::new());
}

#[test]
fn what_changed_on_the_host_meanwhile_is_not_replaced() {
    let setup = Setup::new(MountMode::CopyOnWrite);
    setup.guest();
    fs::write(setup.host.path().join("sub/changed"), "edited by its owner").unwrap();
    fs::create_dir(setup.host.path().join("made")).unwrap();
    fs::write(setup.host.path().join("made/added"), "made by its owner").unwrap();
    let report = setup.report(ApplyChanges::OnSuccess);
    assert_eq!(report.applied, Vec::<String>::new());
    assert_eq!(setup.read("sub/changed").unwrap(), "edited by its owner");
    assert_eq!(setup.read("made/added").unwrap(), "made by its owner");
    assert_eq!(
        setup.denials(),
        ["made/added", "sub/changed"]
            .map(|path| format!("apply /data/{path} changed on the host during the run; it was left as it is"))
    );
}

#[cfg(unix)]
#[test]
fn protected_names_links_and_planted_folders_are_not_applied() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let setup = Setup::new(MountMode::CopyOnWrite);
    let outside = tempfile::tempdir().unwrap();
    let dir = setup.workspace.host_mounts()[0].dir();
    dir.create_dir_all(".GIT/hooks").unwrap();
    dir.write(".GIT/hooks/pre-commit", "evil").unwrap();
    dir.write(".bashrc", "evil").unwrap();
    dir.write(".git", "gitdir: elsewhere").unwrap();
    dir.symlink("kept", "link").unwrap();
    dir.create_dir("swapped").unwrap();
    dir.write("swapped/file", "x").unwrap();
    dir.write("tool", "#!/bin/sh").unwrap();
    dir.set_permissions("tool", cap_permissions(0o755)).unwrap();
    // A folder of the guest's choice is a link on the host by now.
    symlink(outside.path(), setup.host.path().join("swapped")).unwrap();
    let report = setup.report(ApplyChanges::OnSuccess);
    assert_eq!(report.applied, ["tool"]);
    let refused: Vec<&str> = report.not_applied.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(refused, [".GIT/hooks/pre-commit", ".bashrc", ".git", "link", "swapped/file"]);
    assert_eq!(setup.denials().len(), 5);
    assert!(fs::read_dir(outside.path()).unwrap().next().is_none());
    for name in [".GIT", ".git", ".bashrc", "link"] {
        assert!(fs::symlink_metadata(setup.host.path().join(name)).is_err(), "{name}");
    }
    assert_eq!(fs::metadata(setup.host.path().join("tool")).unwrap().permissions().mode() & 0o111, 0o111);
    // What needs a look stands first.
    let first: Vec<(&str, bool)> =
        report.changes.iter().take(5).map(|change| (change.path.as_str(), change.protected.is_some())).collect();
    assert_eq!(
        first,
        [(".GIT/hooks", true), (".GIT/hooks/pre-commit", true), (".bashrc", true), ("tool", false), (".GIT", false)]
    );
    assert!(report.changes[3].executable);
}

#[cfg(unix)]
fn cap_permissions(mode: u32) -> cap_std::fs::Permissions {
    use cap_std::fs::PermissionsExt;
    cap_std::fs::Permissions::from_mode(mode)
}

#[test]
fn a_writable_mount_is_the_hosts_own_and_its_changes_are_listed() {
    let setup = Setup::new(MountMode::ReadWrite);
    setup.guest();
    assert_eq!(setup.read("made/added").unwrap(), "added");
    let report = setup.report(ApplyChanges::OnSuccess);
    assert_eq!(lines(&report), CHANGES);
    assert!(report.applied.is_empty());
    let mount = &setup.workspace.host_mounts()[0];
    assert!(matches!(mount.protection([".git", "hooks", "x"]), Protection::Protected(_)));
    assert_eq!(mount.protection(["src", "x"]), Protection::Free);
    assert!(Setup::new(MountMode::ReadOnly).workspace.mount_reports(ApplyChanges::Never, &setup.audit).is_empty());
}

#[test]
fn what_cannot_be_mounted_is_refused_before_anything_runs() {
    let (host, parent) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::create_dir_all(host.path().join(".git/hooks")).unwrap();
    fs::write(host.path().join("file"), "").unwrap();
    let mut workspace = Workspace::create_in(parent.path(), RunId::random().unwrap()).unwrap();
    let mut kind = |path: &str, mode| {
        workspace.stage_mounts(&[request(&host.path().join(path), mode)]).map_err(|error| error.kind())
    };
    assert_eq!(kind("absent", MountMode::ReadOnly), Err(ErrorKind::NotFound));
    assert_eq!(kind("file", MountMode::ReadOnly), Err(ErrorKind::PathDenied));
    assert_eq!(kind(".git/hooks", MountMode::ReadWrite), Err(ErrorKind::PathDenied));
    assert_eq!(kind(".git/hooks", MountMode::ReadOnly), Ok(()));
    assert_eq!(kind(".git/hooks", MountMode::CopyOnWrite), Ok(()));
    for never in ["/", "/proc", "/run", "/dev/shm"] {
        assert_eq!(kind(never, MountMode::ReadOnly), Err(ErrorKind::PathDenied), "{never}");
    }
}

#[test]
fn folders_of_our_own_are_never_writable() {
    let (host, parent) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let private = host.path().join("a/cache");
    PrivateDir::open(&private).unwrap();
    fs::create_dir(private.join("inner")).unwrap();
    let mut workspace = Workspace::create_in(parent.path(), RunId::random().unwrap()).unwrap();
    let mut kind =
        |path: &Path, mode| workspace.stage_mounts(&[request(path, mode)]).map(drop).map_err(|error| error.kind());
    for mode in [MountMode::ReadWrite, MountMode::ReadWriteWithoutDelete, MountMode::CopyOnWrite] {
        for path in [host.path(), &private, &private.join("inner")] {
            assert_eq!(kind(path, mode), Err(ErrorKind::PathDenied), "{} {mode}", path.display());
        }
        assert_eq!(kind(parent.path(), MountMode::ReadOnly), Ok(()));
    }
    assert_eq!(kind(host.path(), MountMode::ReadOnly), Ok(()));
    // The usual place counts before anything is there.
    if let Some(home) = private_home() {
        let above = home.ancestors().find(|above| above.is_dir()).unwrap();
        assert_eq!(kind(above, MountMode::ReadWrite), Err(ErrorKind::PathDenied), "{}", above.display());
    }
}

#[test]
fn what_cannot_be_looked_at_leaves_the_rest_listed_and_nothing_applied() {
    let setup = Setup::new(MountMode::CopyOnWrite);
    setup.guest();
    let mut dir = setup.workspace.host_mounts()[0].dir().try_clone().unwrap();
    for _ in 0..200 {
        dir.create_dir("d").unwrap();
        dir = dir.open_dir("d").unwrap();
    }
    let report = setup.report(ApplyChanges::OnSuccess);
    assert!(report.incomplete.unwrap().contains("folders deeper than 128"));
    assert!(report.applied.is_empty());
    let listed: Vec<&str> = report.changes.iter().map(|change| change.path.as_str()).collect();
    assert!(listed.contains(&"made/added") && listed.contains(&"sub/changed"), "{listed:?}");
    assert_eq!(setup.denials().len(), 1);
    assert_eq!(setup.read("sub/changed").unwrap(), "old");
}

#[cfg(unix)]
#[test]
fn applying_keeps_owner_and_rights_and_no_file_runs_as_its_owner() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
    let host = tempfile::tempdir().unwrap();
    let (parent, secret) = (tempfile::tempdir().unwrap(), host.path().join("secret"));
    fs::write(&secret, "old").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    let run = RunId::random().unwrap();
    let audit = AuditScope::new(run, "test", Arc::new(MemorySink::default()));
    let mut workspace = Workspace::create_in(parent.path(), run).unwrap();
    workspace.stage_mounts(&[request(host.path(), MountMode::CopyOnWrite)]).unwrap();
    workspace.host_mounts()[0].dir().write("secret", "new").unwrap();
    assert_eq!(workspace.mount_reports(ApplyChanges::OnSuccess, &audit)[0].applied, ["secret"]);
    assert_eq!((mode(&secret), fs::read_to_string(&secret).unwrap().as_str()), (0o600, "new"));

    let setup = Setup::new(MountMode::ReadWrite);
    let shell = setup.host.path().join("shell");
    fs::write(&shell, "x").unwrap();
    fs::set_permissions(&shell, fs::Permissions::from_mode(0o6755)).unwrap();
    let report = setup.report(ApplyChanges::Never);
    assert_eq!(mode(&shell), 0o755);
    assert_eq!(report.changes[0].protected, Some("it ran as its owner or group, which was taken from it"));
}

#[cfg(target_os = "linux")]
#[test]
fn names_that_are_no_text_are_told_apart() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let setup = Setup::new(MountMode::ReadWrite);
    for name in [&b"a\xff"[..], b"a\xfe", b"a\\xfe"] {
        fs::write(setup.host.path().join(OsStr::from_bytes(name)), "").unwrap();
    }
    let report = setup.report(ApplyChanges::Never);
    let listed: Vec<&str> = report.changes.iter().map(|change| change.path.as_str()).collect();
    assert_eq!(listed, ["a\\\\xfe", "a\\xfe", "a\\xff"]);
}
