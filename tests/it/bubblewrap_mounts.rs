//! Host folders in runtime `bubblewrap`: each mode holds against every way of changing something, and what is protected
//! stays as it is. Run twice, as in `bubblewrap.rs`.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "helpers of tests fail like tests, and play the host's other programs"
)]

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

use skillcell::audit::Layer;
use skillcell::policy::{MountMode, MountRequest};
use skillcell::runtime::{RunCommand, RuntimeConfig, Termination};
use skillcell::workspace::ApplyChanges;
use skillcell::{ErrorKind, Result, SandboxPolicy};

use crate::local_support::Prepared;

fn request(host: &Path, guest: &str, mode: MountMode) -> MountRequest {
    MountRequest { host: host.to_owned(), guest: guest.parse().unwrap(), mode }
}

async fn mounted(mounts: &[MountRequest]) -> Result<Prepared> {
    Prepared::mounted("bubblewrap", SandboxPolicy::default(), RuntimeConfig::default(), &[], mounts).await
}

async fn with(host: &Path, mode: MountMode) -> Prepared {
    mounted(&[request(host, "/data/here", mode)]).await.unwrap_or_else(|error| panic!("{:?}", error.chain()))
}

/// A folder with a repository in it.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join("sub/.git/hooks")).unwrap();
    for (path, text) in
        [("f", "old"), ("sub/g", "old"), ("sub/.git/config", "[core]"), ("sub/.git/hooks/sample", ""), (".bashrc", "")]
    {
        fs::write(folder.path().join(path), text).unwrap();
    }
    folder
}

/// Runs Python that tries something in `/data/here`, and prints `done` or the name of the error it met.
async fn attempt(prepared: &Prepared, code: &str) -> String {
    let body: String = code.lines().map(|line| format!("    {line}\n")).collect();
    let code = format!(
        "import os, errno, shutil, socket\nos.chdir('/data/here')\ntry:\n{body}    print('done')\nexcept OSError as e:\n    \
         print(errno.errorcode.get(e.errno, e))\n"
    );
    let result = prepared.run(&RunCommand::new(["python3", "-c", &code]).unwrap()).await.unwrap();
    assert_eq!(result.termination, Termination::Exited(0), "{code}: {}", result.stderr.text());
    result.stdout.text().trim().to_owned()
}

async fn refused(prepared: &Prepared, attempts: &[&str]) {
    for code in attempts {
        let met = attempt(prepared, code).await;
        assert!(["EROFS", "EACCES", "EPERM", "EBUSY", "EXDEV"].contains(&met.as_str()), "{code}: {met}");
    }
}

async fn allowed(prepared: &Prepared, attempts: &[&str]) {
    for code in attempts {
        assert_eq!(attempt(prepared, code).await, "done", "{code}");
    }
}

fn read(host: &Path, path: &str) -> Option<String> {
    fs::read_to_string(host.join(path)).ok()
}

#[tokio::test]
async fn a_read_only_folder_can_be_read_and_nothing_else() {
    let host = folder();
    // A second name of a file outside, and a socket somebody listens on.
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("outside"), "mine").unwrap();
    fs::hard_link(outside.path().join("outside"), host.path().join("second-name")).unwrap();
    let _listener = std::os::unix::net::UnixListener::bind(host.path().join("socket")).unwrap();
    let prepared = with(host.path(), MountMode::ReadOnly).await;
    allowed(&prepared, &["assert open('f').read() == 'old'", "os.listdir('sub/.git')"]).await;
    refused(
        &prepared,
        &[
            "open('f', 'a')",
            "os.truncate('f', 0)",
            "os.chmod('f', 0o777)",
            "os.utime('f')",
            "os.unlink('f')",
            "os.rename('f', 'h')",
            "open('new', 'w')",
            "os.mkdir('new')",
            "os.link('f', '/workspace/out/l')",
            "os.rename('/data/here', '/data/there')",
            "os.mkdir('/data/other')",
            "open('second-name', 'a')",
            "os.setxattr('f', 'user.x', b'x')",
            "socket.socket(socket.AF_UNIX).connect('socket')",
        ],
    )
    .await;
    assert_eq!(read(outside.path(), "outside").as_deref(), Some("mine"));
    // The host's changes are seen, as in any folder.
    fs::write(host.path().join("later"), "x").unwrap();
    allowed(&prepared, &["open('later')"]).await;
}

#[tokio::test]
async fn a_writable_folder_is_the_owners_but_for_what_is_protected() {
    let host = folder();
    let prepared = with(host.path(), MountMode::ReadWrite).await;
    allowed(
        &prepared,
        &[
            "open('f', 'w').write('new')",
            "os.mkdir('d')",
            "open('d/x', 'w').write('x')",
            "os.rename('d/x', 'y')",
            "os.rmdir('d')",
            "os.chmod('f', 0o600)",
            "os.utime('f')",
            "os.unlink('sub/g')",
            "open('sub/.git/index', 'w')",
            "os.rename('sub/.git/index', 'sub/.git/index2')",
        ],
    )
    .await;
    // Neither what is protected, nor any folder on the way to it.
    refused(
        &prepared,
        &[
            "open('sub/.git/hooks/pre-commit', 'w')",
            "open('sub/.git/hooks/sample', 'a')",
            "os.chmod('sub/.git/hooks/sample', 0o755)",
            "os.unlink('sub/.git/hooks/sample')",
            "os.rename('sub/.git/hooks', 'sub/.git/aside')",
            "os.rename('sub/.git', 'sub/git')",
            "os.rename('sub', 'aside')",
            "shutil.rmtree('sub/.git/hooks')",
            "open('sub/.git/config', 'a')",
            "os.rename('f', 'sub/.git/config')",
            "os.link('f', 'sub/.git/hooks/pre-commit')",
            "open('.bashrc', 'a')",
            "os.unlink('.bashrc')",
            "os.rename('f', '.bashrc')",
        ],
    )
    .await;
    assert_eq!(read(host.path(), "f").as_deref(), Some("new"));
    assert_eq!(read(host.path(), "y").as_deref(), Some("x"));
    assert_eq!(read(host.path(), "sub/.git/config").as_deref(), Some("[core]"));
    // What the guest made belongs to the folder's owner, whoever the guest was.
    let owner = fs::metadata(host.path()).unwrap().uid();
    assert_eq!(fs::metadata(host.path().join("y")).unwrap().uid(), owner);
}

/// What a sandbox of mounts can't refuse, said in SECURITY.md: names that are not there yet, and second names. They are in
/// the change list.
#[tokio::test]
async fn a_protected_name_that_was_not_there_is_listed_first() {
    let host = folder();
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("outside"), "mine").unwrap();
    fs::hard_link(outside.path().join("outside"), host.path().join("second-name")).unwrap();
    let prepared = with(host.path(), MountMode::ReadWrite).await;
    allowed(&prepared, &["os.makedirs('new/.git/hooks')", "open('new/.git/hooks/pre-commit', 'w')"]).await;
    allowed(&prepared, &["open('second-name', 'w').write('changed')"]).await;
    assert_eq!(read(outside.path(), "outside").as_deref(), Some("changed"), "a second name is the file");
    let reports = prepared.workspace.mount_reports(ApplyChanges::Never, prepared.handle.audit());
    let [report] = &reports[..] else { panic!("{reports:?}") };
    let listed: Vec<(&str, bool)> =
        report.changes.iter().map(|change| (change.path.as_str(), change.protected.is_some())).collect();
    assert_eq!(
        listed,
        [
            ("new/.git/hooks", true),
            ("new/.git/hooks/pre-commit", true),
            ("new", false),
            ("new/.git", false),
            ("second-name", false)
        ]
    );
}

#[tokio::test]
async fn without_delete_keeps_what_is_there_though_not_its_content() {
    let host = folder();
    let prepared = with(host.path(), MountMode::ReadWriteWithoutDelete).await;
    allowed(
        &prepared,
        &[
            "open('new', 'w').write('x')",
            "os.mkdir('d')",
            "open('d/x', 'w').write('x')",
            "open('f', 'a').write('+')",
            "os.link('new', 'other-name')",
            // Content is not kept: a program that may write to a file may also empty it.
            "open('sub/g', 'w')",
            "os.truncate('sub/g', 0)",
        ],
    )
    .await;
    refused(
        &prepared,
        &[
            "os.unlink('f')",
            "os.unlink('new')",
            "os.rmdir('d')",
            "os.rename('f', 'h')",
            "os.rename('new', 'f')",
            "os.rename('d', 'e')",
            "os.rename('d/x', 'x')",
            "open('/workspace/tmp/t', 'w'); os.rename('/workspace/tmp/t', 'f')",
            "os.rename('f', '/workspace/out/f')",
            "os.link('f', 'd/f')",
            "os.rename('sub', 'aside')",
            "open('.bashrc', 'a')",
        ],
    )
    .await;
    assert_eq!(read(host.path(), "f").as_deref(), Some("old+"));
    assert_eq!(read(host.path(), "sub/g").as_deref(), Some(""));
    // The twin: elsewhere removing works.
    allowed(&prepared, &["open('/workspace/out/x', 'w'); os.unlink('/workspace/out/x')"]).await;
    let config = serde_json::json!({"landlock": "off"}).as_object().unwrap().clone();
    let mounts = [request(host.path(), "/data", MountMode::ReadWriteWithoutDelete)];
    let config = RuntimeConfig::new(config);
    let refused = Prepared::mounted("bubblewrap", SandboxPolicy::default(), config, &[], &mounts).await;
    assert_eq!(refused.err().map(|error| error.kind()), Some(ErrorKind::PolicyUnenforceable));
}

#[tokio::test]
async fn a_private_copy_is_the_guests_and_its_changes_are_listed() {
    let host = folder();
    let prepared = with(host.path(), MountMode::CopyOnWrite).await;
    allowed(
        &prepared,
        &[
            "open('f', 'w').write('new')",
            "os.unlink('sub/g')",
            "open('sub/.git/hooks/pre-commit', 'w')",
            "os.mkdir('d')",
        ],
    )
    .await;
    assert_eq!(read(host.path(), "f").as_deref(), Some("old"));
    let reports = prepared.workspace.mount_reports(ApplyChanges::OnSuccess, prepared.handle.audit());
    let mut paths: Vec<&str> = reports[0].changes.iter().map(|change| change.path.as_str()).collect();
    paths.sort_unstable();
    assert_eq!(paths, ["d", "f", "sub/.git/hooks/pre-commit", "sub/g"]);
    assert_eq!(read(host.path(), "f").as_deref(), Some("new"));
    assert_eq!(read(host.path(), "sub/g").as_deref(), Some("old"));
    assert_eq!(read(host.path(), "sub/.git/hooks/pre-commit"), None);
}

#[tokio::test]
async fn what_cannot_be_kept_is_refused_before_anything_runs() {
    let host = folder();
    let kind = async |mounts: &[MountRequest]| mounted(mounts).await.err().map(|error| error.kind());
    // Covered by no mount: a link in the place of a protected name.
    fs::remove_file(host.path().join(".bashrc")).unwrap();
    symlink("f", host.path().join(".bashrc")).unwrap();
    let request = |mode| [request(host.path(), "/data", mode)];
    assert_eq!(kind(&request(MountMode::ReadWrite)).await, Some(ErrorKind::PathDenied));
    assert_eq!(kind(&request(MountMode::ReadOnly)).await, None);
    // The folder of this very run.
    let temporary = [self::request(&std::env::temp_dir(), "/data", MountMode::ReadWrite)];
    let error = mounted(&temporary).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::PathDenied, "{:?}", error.chain());
    assert!(error.to_string().contains("the folder of this very run"), "{error}");
    // Runtimes that can't show a folder.
    for name in ["local", "firejail"] {
        let refused = Prepared::mounted(
            name,
            SandboxPolicy { mode: skillcell::policy::EnforcementMode::BestEffort, ..SandboxPolicy::default() },
            RuntimeConfig::default(),
            &[],
            &request(MountMode::ReadOnly),
        )
        .await;
        let error = refused.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::PolicyUnenforceable, "{name}: {:?}", error.chain());
    }
    let prepared = with(&host.path().join("sub"), MountMode::ReadWrite).await;
    assert!(prepared.sink.events().iter().all(|event| event.layer != Layer::Policy));
}

/// Where the tests run as root, all of the above once more as somebody else.
#[tokio::test]
async fn an_ordinary_user_gets_the_same() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let text = crate::ordinary_user::tests_of("bubblewrap_mounts");
    assert!(text.contains("test result: ok. 7 passed"), "{text}");
}

#[tokio::test]
async fn no_file_can_be_made_to_run_as_its_owner() {
    let host = folder();
    let prepared = with(host.path(), MountMode::ReadWrite).await;
    refused(
        &prepared,
        &[
            "open('s', 'w').close(); os.chmod('s', 0o4755)",
            "os.chmod('f', 0o2755)",
            "os.fchmod(os.open('f', os.O_RDONLY), 0o6755)",
            "os.close(os.open('made', os.O_CREAT | os.O_WRONLY, 0o4755))",
            "os.mknod('node', 0o104755)",
        ],
    )
    .await;
    allowed(
        &prepared,
        &[
            "os.chmod('f', 0o755)",
            "os.fchmod(os.open('f', os.O_RDONLY), 0o1644)",
            "os.close(os.open('plain', os.O_CREAT | os.O_WRONLY, 0o755))",
        ],
    )
    .await;
    for entry in fs::read_dir(host.path()).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().mode() & 0o4000, 0, "{:?}", entry.path());
    }
}
