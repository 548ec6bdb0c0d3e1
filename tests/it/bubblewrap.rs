//! What a script in runtime `bubblewrap` sees, may do, and can't get away with. All of it is run twice: as whoever runs
//! the tests, and, when that is root, once more as an ordinary user.
#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail like tests")]

use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::time::Duration;

use skillcell::audit::{Decision, Layer};
use skillcell::policy::{EnforcementMode, Limits, NetworkPolicy, OutMode, ResolvedNetwork};
use skillcell::runtime::{RunCommand, RuntimeConfig, RuntimeRunResult, Termination};
use skillcell::workspace::{Input, InputSource};
use skillcell::{ErrorKind, SandboxPolicy};

use crate::local_support::{Prepared, alive, marker, shell, until};

fn limits() -> Limits {
    Limits { wall_time: Duration::from_secs(60), ..Limits::default() }
}

fn policy() -> SandboxPolicy {
    SandboxPolicy { limits: limits(), ..SandboxPolicy::default() }
}

async fn with(policy: SandboxPolicy, inputs: &[Input]) -> Prepared {
    let prepared = Prepared::on("bubblewrap", policy, RuntimeConfig::default(), inputs).await;
    prepared.unwrap_or_else(|error| panic!("{:?}", error.chain()))
}

async fn prepared() -> Prepared {
    with(policy(), &[]).await
}

fn python(code: &str) -> RunCommand {
    RunCommand::new(["python3", "-c", code]).unwrap()
}

/// Python that prints the ids of all processes it can see.
const PROCESSES: &str = "import os; print([name for name in os.listdir('/proc') if name.isdigit()])";

fn lines(result: &RuntimeRunResult) -> String {
    assert_eq!(result.termination, Termination::Exited(0), "{}\n{}", result.stdout.text(), result.stderr.text());
    result.stdout.text()
}

/// Runs Python that tries something and prints `done`, or the name of the error it met.
async fn attempt(prepared: &Prepared, code: &str) -> String {
    let body: String = code.lines().map(|line| format!("    {line}\n")).collect();
    let code = format!(
        "import os, socket, ctypes, errno\nlibc = ctypes.CDLL(None, use_errno=True)\n\
         def call(*a):\n    r = libc.syscall(*a)\n    if r < 0: raise OSError(ctypes.get_errno(), '')\n    return r\n\
         try:\n{body}    print('done')\nexcept OSError as e:\n    print(errno.errorcode.get(e.errno, e))\n"
    );
    lines(&prepared.run(&python(&code)).await.unwrap()).trim().to_owned()
}

#[tokio::test]
async fn the_world_is_the_workspace_and_the_system() {
    let prepared = prepared().await;
    let text = lines(&prepared.shell("ls /; echo; ls /workspace; echo; ls /dev; pwd; id -u; id -g; hostname").await);
    let (root, rest) = text.split_once("\n\n").unwrap();
    for name in root.lines() {
        let known = [
            "bin",
            "sbin",
            "lib",
            "lib32",
            "lib64",
            "libx32",
            "usr",
            "etc",
            "proc",
            "dev",
            "tmp",
            "workspace",
            "nix",
            "gnu",
            // Where an interpreter of the host's user lies, its folder is shown under its own path.
            "root",
            "home",
            "opt",
        ];
        assert!(known.contains(&name), "/{name}");
    }
    assert_eq!(
        rest,
        "in\nout\nsite\nskill\ntmp\n\nfd\nfull\nnull\nrandom\nshm\nstderr\nstdin\nstdout\nurandom\nzero\n\
         /workspace/skill\n1000\n1000\nskillcell\n"
    );
    let text = lines(&prepared.run(&RunCommand::new(["env"]).unwrap()).await.unwrap());
    let mut names: Vec<&str> = text.lines().filter_map(|line| line.split('=').next()).collect();
    names.sort_unstable();
    assert_eq!(
        names,
        [
            "HOME",
            "LANG",
            "PATH",
            "PWD",
            "PYTHONDONTWRITEBYTECODE",
            "SKILL_DIR",
            "TMPDIR",
            "WORKSPACE_IN",
            "WORKSPACE_OUT"
        ]
    );
    assert_eq!(lines(&prepared.run(&RunCommand::new(["ls", "/proc/self/fd"]).unwrap()).await.unwrap()), "0\n1\n2\n3\n");
    // Only the guest's own processes exist for it, and pid 1's memory is nobody's business.
    assert_eq!(lines(&prepared.run(&python(PROCESSES)).await.unwrap()), "['2']\n");
    assert_eq!(lines(&prepared.shell("test -e /proc/1 || echo none").await), "none\n");
}

#[tokio::test]
async fn a_script_reads_its_inputs_and_leaves_results() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(folder.path().join("a"))
        .unwrap()
        .write_all(b"alpha")
        .unwrap();
    let inputs = [
        Input { name: "b".into(), source: InputSource::Bytes("beta".into()) },
        Input { name: "folder".into(), source: InputSource::Mount(folder.path().to_owned()) },
    ];
    let prepared = with(policy(), &inputs).await;
    prepared.script(
        "run.sh",
        "#!/bin/sh\ncat /workspace/in/b \"$WORKSPACE_IN/folder/a\" > /workspace/out/both; cat \"$1\"\n",
    );
    let command = RunCommand::new(["/workspace/skill/run.sh", "/workspace/out/both"]).unwrap();
    assert_eq!(lines(&prepared.run(&command).await.unwrap()), "betaalpha");
    let path = "/workspace/out/both".parse().unwrap();
    assert_eq!(&prepared.runtime.read_file(&prepared.handle, &path, 100).await.unwrap()[..], b"betaalpha");
    // What the host writes between two runs is the guest's to change.
    let path = "/workspace/out/new/file".parse().unwrap();
    prepared.runtime.write_file(&prepared.handle, &path, b"host").await.unwrap();
    lines(
        &prepared
            .shell("cd /workspace/out/new && printf guest >> file && mv file other && rm other && cd .. && rmdir new")
            .await,
    );
    // Read-only means read-only, for every way of changing something.
    for change in [
        "open('/workspace/in/b', 'w')",
        "os.truncate('/workspace/in/b', 0)",
        "os.chmod('/workspace/in/b', 0o777)",
        "os.utime('/workspace/in/b')",
        "os.unlink('/workspace/in/b')",
        "os.rename('/workspace/in/b', '/workspace/in/c')",
        "open('/workspace/in/folder/new', 'w')",
        "os.chmod('/workspace/in/folder/a', 0o777)",
        "os.mkdir('/workspace/skill/x')",
        "os.mkdir('/workspace/x')",
        "os.mkdir('/x')",
        "os.rename('/workspace/out', '/workspace/away')",
        "os.mkdir('/usr/skillcell-must-not-be')",
        "open('/etc/passwd', 'a')",
        "open('/proc/sys/kernel/core_pattern', 'w')",
    ] {
        let met = attempt(&prepared, change).await;
        assert!(["EROFS", "EACCES", "EPERM", "EBUSY"].contains(&met.as_str()), "{change}: {met}");
    }
    assert!(
        ["EXDEV", "EACCES"]
            .contains(&attempt(&prepared, "os.link('/workspace/in/b', '/workspace/out/l')").await.as_str())
    );
    for twin in [
        "open('/workspace/out/n', 'w')",
        "os.chmod('/workspace/out/n', 0o600)",
        "os.mkdir('/tmp/x')",
        "open('/dev/shm/x', 'w')",
        "open('/dev/null', 'w')",
    ] {
        assert_eq!(attempt(&prepared, twin).await, "done", "{twin}");
    }
    assert_eq!(std::fs::metadata(folder.path().join("a")).unwrap().len(), 5);
}

#[tokio::test]
async fn the_host_is_not_there() {
    let secret = tempfile::tempdir().unwrap();
    std::fs::set_permissions(secret.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::OpenOptions::new().create(true).append(true).open(secret.path().join("secret")).unwrap();
    let listening = std::os::unix::net::UnixListener::bind(secret.path().join("socket")).unwrap();
    // A folder shown read-only that holds a socket somebody listens on, and a second name of a file outside.
    let shown = tempfile::tempdir().unwrap();
    std::fs::set_permissions(shown.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let _inside = std::os::unix::net::UnixListener::bind(shown.path().join("socket")).unwrap();
    std::fs::set_permissions(shown.path().join("socket"), std::fs::Permissions::from_mode(0o777)).unwrap();
    std::fs::hard_link(secret.path().join("secret"), shown.path().join("link")).unwrap();
    std::fs::set_permissions(secret.path().join("secret"), std::fs::Permissions::from_mode(0o666)).unwrap();
    let input = Input { name: "shown".into(), source: InputSource::Mount(shown.path().to_owned()) };
    let prepared = with(policy(), &[input]).await;
    let connect = "s = socket.socket(socket.AF_UNIX); s.connect('/workspace/in/shown/socket')";
    assert_eq!(attempt(&prepared, connect).await, "EPERM");
    assert_eq!(attempt(&prepared, "os.stat('/workspace/in/shown/socket')").await, "done");
    assert_eq!(attempt(&prepared, "open('/workspace/in/shown/link', 'a')").await, "EROFS");
    let root = prepared.workspace.ambient_root().to_str().unwrap().to_owned();
    for path in [
        secret.path().join("secret").to_str().unwrap(),
        &root,
        &format!("/proc/{}/environ", std::process::id()),
        "/etc/shadow",
        "/root/.ssh",
        "/run/docker.sock",
        "/run/dbus/system_bus_socket",
        "/var/run",
        "/sys/kernel",
        "/proc/1/root/etc",
        "/dev/tty",
        "/dev/vda",
    ] {
        let met = attempt(&prepared, &format!("os.stat({path:?})")).await;
        assert!(["ENOENT", "EACCES"].contains(&met.as_str()), "{path}: {met}");
    }
    drop(listening);
}

#[tokio::test]
async fn system_calls_that_escapes_are_made_of_are_refused() {
    let prepared = prepared().await;
    let newuser = libc_numbers::CLONE_NEWUSER;
    for (code, expected) in [
        ("socket.socket(socket.AF_UNIX)".to_owned(), "EPERM"),
        ("socket.socket(socket.AF_VSOCK)".into(), "EPERM"),
        ("socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET)".into(), "EPERM"),
        ("socket.socket(socket.AF_PACKET, socket.SOCK_RAW)".into(), "EPERM"),
        ("socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)".into(), "EPERM"),
        ("socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 9)".into(), "EPERM"),
        (format!("call({}, {newuser})", libc_numbers::UNSHARE), "EPERM"),
        (format!("call({}, {newuser} | 17, 0, 0, 0, 0)", libc_numbers::CLONE), "EPERM"),
        (format!("call({}, 0, 0)", libc_numbers::CLONE3), "ENOSYS"),
        (format!("call({}, 8, 0)", libc_numbers::IO_URING_SETUP), "ENOSYS"),
        (format!("call({}, 0, 0, 0, 0)", libc_numbers::PTRACE), "EPERM"),
        (format!("call({}, 0, 0, 0, 0, 0)", libc_numbers::MOUNT), "EPERM"),
        (format!("call({}, b'x', 0)", libc_numbers::MEMFD_CREATE), "EPERM"),
        ("import fcntl; fcntl.ioctl(0, 0x5412, b'x')".into(), "EPERM"),
        ("os.setuid(0)".into(), "EINVAL"),
        ("os.chroot('/workspace/out')".into(), "EPERM"),
        // The twins.
        ("socket.socketpair()".into(), "done"),
        ("socket.socket(socket.AF_INET)".into(), "done"),
        ("socket.if_nameindex()".into(), "done"),
        ("import threading; t = threading.Thread(target=print); t.start(); t.join()".into(), "done"),
        ("import subprocess; subprocess.run(['true'], check=True)".into(), "done"),
        ("import multiprocessing; multiprocessing.Lock()".into(), "done"),
    ] {
        let met = attempt(&prepared, &code).await;
        assert_eq!(met.lines().last().unwrap_or_default(), expected, "{code}");
    }
    #[cfg(target_arch = "x86_64")]
    {
        // getpid by the x32 table.
        assert_eq!(attempt(&prepared, &format!("call({})", 0x4000_0000 + 39)).await, "ENOSYS");
        assert_eq!(attempt(&prepared, "call(39)").await, "done");
    }
}

#[tokio::test]
async fn the_network_is_what_the_policy_says() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let connect = format!("socket.create_connection(('127.0.0.1', {}), 5)", listener.local_addr().unwrap().port());
    let closed = prepared().await;
    assert_eq!(attempt(&closed, &connect).await, "ECONNREFUSED");
    assert_eq!(attempt(&closed, "socket.create_connection(('192.0.2.1', 80), 5)").await, "ENETUNREACH");
    assert_eq!(closed.handle.backend()["network_enforced"], true);
    let network = ResolvedNetwork { policy: NetworkPolicy::Host, allowlist: vec![] };
    let open = with(SandboxPolicy { network, ..policy() }, &[]).await;
    assert_eq!(attempt(&open, &connect).await, "done");
    assert_eq!(open.handle.backend()["network_enforced"], false);
    // An allow list can't be kept yet: refused, or, when that is accepted, no network at all.
    let network = ResolvedNetwork { policy: NetworkPolicy::Allowlist, allowlist: vec!["example.org".into()] };
    let listed = SandboxPolicy { network, ..policy() };
    let refused = Prepared::on("bubblewrap", listed.clone(), RuntimeConfig::default(), &[]).await;
    assert_eq!(refused.err().map(|error| error.kind()), Some(ErrorKind::PolicyUnenforceable));
    let listed = with(SandboxPolicy { mode: EnforcementMode::BestEffort, ..listed }, &[]).await;
    assert_eq!(attempt(&listed, &connect).await, "ECONNREFUSED");
}

#[tokio::test]
async fn out_without_delete_keeps_what_is_there() {
    let prepared = with(SandboxPolicy { out: OutMode::ReadWriteWithoutDelete, ..policy() }, &[]).await;
    lines(&prepared.shell("cd /workspace/out && echo 1 > f && mkdir d && echo 2 > d/g && echo 3 >> f").await);
    for (code, expected) in [
        ("os.unlink('/workspace/out/f')", "EACCES"),
        ("os.rename('/workspace/out/f', '/workspace/out/h')", "EACCES"),
        ("os.rename('/workspace/out/d', '/workspace/out/e')", "EACCES"),
        ("os.rename('/workspace/tmp/t', '/workspace/out/f')", "EACCES"),
        ("os.unlink('/workspace/out/d/g')", "EACCES"),
        ("open('/workspace/tmp/t', 'w'); os.unlink('/workspace/tmp/t')", "done"),
        ("open('/workspace/out/n', 'w').write('x')", "done"),
    ] {
        if code.contains("tmp/t', '/workspace") {
            lines(&prepared.shell("echo t > /workspace/tmp/t").await);
        }
        let met = attempt(&prepared, code).await;
        assert!(met == expected || (expected == "EACCES" && met == "EXDEV"), "{code}: {met}");
    }
    assert_eq!(lines(&prepared.shell("cd /workspace/out && cat f d/g").await), "1\n3\n2\n");
    let config = serde_json::json!({"landlock": "off"}).as_object().unwrap().clone();
    let without = SandboxPolicy { out: OutMode::ReadWriteWithoutDelete, ..policy() };
    let refused = Prepared::on("bubblewrap", without, RuntimeConfig::new(config.clone()), &[]).await;
    assert_eq!(refused.err().map(|error| error.kind()), Some(ErrorKind::PolicyUnenforceable));
    let off = Prepared::on("bubblewrap", policy(), RuntimeConfig::new(config), &[]).await.unwrap();
    assert_eq!(off.handle.backend()["landlock"], "off");
    assert_eq!(attempt(&off, "os.mkdir('/workspace/in/x')").await, "EROFS");
}

#[tokio::test]
async fn nothing_outlives_a_run_and_runs_see_only_each_others_files() {
    let prepared =
        with(SandboxPolicy { limits: Limits { wall_time: Duration::from_secs(4), ..limits() }, ..policy() }, &[]).await;
    for escape in [
        "sh -c 'sleep 300; : @' &",
        "(setsid nohup sh -c 'sleep 300; : @' >/dev/null 2>&1 &) &",
        "setsid sh -c 'sleep 300; : @' &",
        "sh -c 'trap \"\" TERM HUP INT; while :; do sleep 1; done; : @' &",
    ] {
        let marker = marker();
        let start = escape.replace('@', &marker);
        let result = prepared.shell(&format!("{start}\necho started; exit 3")).await;
        assert_eq!((result.termination, result.stdout.text()), (Termination::Exited(3), "started\n".to_owned()));
        assert_eq!(alive(&marker), 0, "{escape}");
        let result = prepared.shell(&format!("echo before; {start}\nsleep 300; : {marker}")).await;
        assert_eq!((result.termination, result.stdout.text()), (Termination::TimedOut, "before\n".to_owned()));
        assert_eq!(alive(&marker), 0, "{escape}");
        let command = shell(&format!("{start}\nsleep 300; : {marker}"));
        tokio::select! {
            result = prepared.run(&command) => panic!("ended by itself: {:?}", result.unwrap()),
            () = until(|| alive(&marker) >= 2) => {}
        }
        until(|| alive(&marker) == 0).await;
    }
    // The guest can't hurt what holds it.
    let result = prepared.shell("kill -9 1; kill -STOP 1; kill -9 -1; echo fine").await;
    assert_eq!(result.termination, Termination::Exited(0), "{}", result.stderr.text());
    lines(&prepared.shell("echo kept > /workspace/tmp/f; echo gone > /dev/shm/f").await);
    assert_eq!(lines(&prepared.shell("cat /workspace/tmp/f; ls /dev/shm").await), "kept\n");
    let (one, two) = (python(&format!("import time; time.sleep(0.3)\n{PROCESSES}")), shell("kill -9 $$"));
    let (one, two) = tokio::join!(prepared.run(&one), prepared.run(&two));
    assert_eq!(one.unwrap().stdout.text(), "['2']\n");
    assert_eq!(two.unwrap().termination, Termination::Signaled(9));
    prepared.runtime.cleanup(&prepared.handle).await.unwrap();
    prepared.runtime.cleanup(&prepared.handle).await.unwrap();
}

#[tokio::test]
async fn every_limit_ends_the_run_under_its_own_name() {
    let endless = shell("yes");
    let spinners = shell("for i in 1 2 3; do (while :; do :; done) & done; wait");
    let fill = shell("while :; do head -c 1000000 /dev/zero >> \"/tmp/f$((i+=1))\"; done");
    let hogs = python(
        "import os,time\nfor _ in range(4):\n  if not os.fork(): b=b'x'*60_000_000; time.sleep(100)\ntime.sleep(100)",
    );
    let sleeper = shell("sleep 100");
    for (command, limits, termination, limit) in [
        (&endless, Limits { output: 1 << 20, ..limits() }, Termination::OutputLimit, "output_limit"),
        (&spinners, Limits { cpu_time: Some(Duration::from_secs(1)), ..limits() }, Termination::OutOfFuel, "cpu_limit"),
        (&fill, Limits { disk: 20_000_000, ..limits() }, Termination::DiskLimit, "disk_limit"),
        (&hogs, Limits { memory: 100 << 20, ..limits() }, Termination::OutOfMemory, "memory_limit"),
        (&sleeper, Limits { wall_time: Duration::from_millis(300), ..limits() }, Termination::TimedOut, "time_limit"),
    ] {
        let prepared = with(SandboxPolicy { limits, ..policy() }, &[]).await;
        let result = prepared.run(command).await.unwrap();
        assert_eq!(result.termination, termination, "{limit}: {}", result.stderr.text());
        assert_eq!(prepared.limits_hit(), [limit]);
    }
    // The kernel refuses more processes; the bomb fizzles out and its pieces die with the run.
    let prepared = with(SandboxPolicy { limits: Limits { processes: 20, ..limits() }, ..policy() }, &[]).await;
    let marker = marker();
    let bomb = format!("for i in $(seq 200); do (setsid sh -c 'sleep 100; : {marker}' &); done; echo unreachable");
    let result = prepared.shell(&bomb).await;
    assert!(result.stderr.text().contains("annot fork"), "{:?} {}", result.termination, result.stderr.text());
    assert_eq!(alive(&marker), 0);
    assert_eq!(prepared.shell("echo fine").await.stdout.text(), "fine\n");
}

#[tokio::test]
async fn what_cannot_be_run_says_so_and_names_no_place_of_the_host() {
    let prepared = prepared().await;
    for (program, kind) in [
        ("nosuchprogram", ErrorKind::NotFound),
        ("/workspace/skill/none", ErrorKind::NotFound),
        ("/bin/sh", ErrorKind::PathDenied),
    ] {
        let error = prepared.run(&RunCommand::new([program]).unwrap()).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
    }
    let mut command = shell("pwd -P");
    command.cwd = "/workspace/out/none".parse().unwrap();
    let error = prepared.run(&command).await.unwrap_err();
    assert_eq!((error.kind(), error.to_string().contains("current folder")), (ErrorKind::NotFound, true), "{error}");
    lines(&prepared.shell("ln -s / /workspace/tmp/away").await);
    command.cwd = "/workspace/tmp/away".parse().unwrap();
    // A link to the root leads to the guest's own root.
    assert_eq!(lines(&prepared.run(&command).await.unwrap()), "/\n");
    let root = prepared.workspace.ambient_root().to_str().unwrap();
    let events = prepared.sink.events();
    assert!(events.iter().all(|event| !event.object.contains(root) && !event.reason.contains(root)));
    assert!(events.iter().any(|event| event.layer == Layer::Process && event.decision == Decision::Allow));
    let denied: Vec<_> = events.iter().filter(|event| event.decision == Decision::Deny).collect();
    let denied: Vec<_> = denied.iter().map(|event| (event.layer, event.action, event.object.as_str())).collect();
    assert_eq!(denied, [(Layer::Files, "run", "/bin/sh")]);
    let config = serde_json::json!({"landlock": "maybe"}).as_object().unwrap().clone();
    let error = prepared.runtime.check_config(&RuntimeConfig::new(config)).unwrap_err();
    assert_eq!(error.to_string(), "runtime_config['landlock'] must be strict, degraded or off, got 'maybe'");
}

#[tokio::test]
async fn files_of_a_guest_never_belong_to_root() {
    let prepared = prepared().await;
    lines(&prepared.shell("echo x > /workspace/out/f; chmod 777 /workspace/out/f").await);
    assert!(!prepared.shell("chmod 4777 /workspace/out/f").await.success());
    let file = prepared.workspace.ambient_root().join("out/f");
    assert_ne!(std::fs::symlink_metadata(file).unwrap().uid(), 0);
}

/// Tells a copy of this test binary to be the host that gets killed; its value is the word to find the guest by.
const PLAY_HOST: &str = "SKILLCELL_TEST_PLAY_BUBBLEWRAP_HOST";

#[tokio::test]
async fn killing_the_host_ends_the_tree() {
    if let Ok(marker) = std::env::var(PLAY_HOST) {
        let prepared = with(SandboxPolicy::default(), &[]).await;
        prepared.shell(&format!("(setsid nohup sh -c 'sleep 300; : {marker}' &) &\nsleep 300; : {marker}")).await;
        return;
    }
    let marker = marker();
    // The copy's workspace is left behind by the kill, so it gets a place that this test removes.
    let temporary = tempfile::tempdir().unwrap();
    #[expect(clippy::disallowed_methods, reason = "the host that is killed must be a process of its own")]
    let mut host = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "bubblewrap::killing_the_host_ends_the_tree", "--nocapture"])
        .env(PLAY_HOST, &marker)
        .env("TMPDIR", temporary.path())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    until(|| alive(&marker) >= 2 || host.try_wait().unwrap().is_some()).await;
    assert_eq!(host.try_wait().unwrap(), None, "the host ended by itself");
    host.kill().unwrap();
    host.wait().unwrap();
    until(|| alive(&marker) == 0).await;
}

/// Where the tests run as root, all of the above once more as somebody else.
#[tokio::test]
async fn an_ordinary_user_gets_the_same() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let text = crate::ordinary_user::tests_of("bubblewrap");
    assert!(text.contains("test result: ok. 11 passed"), "{text}");
}

/// Numbers of system calls, for Python's `syscall`.
mod libc_numbers {
    pub(super) const CLONE_NEWUSER: i64 = 0x1000_0000;
    pub(super) const CLONE3: i64 = 435;
    pub(super) const IO_URING_SETUP: i64 = 425;
    #[cfg(target_arch = "x86_64")]
    mod arch {
        pub(crate) const CLONE: i64 = 56;
        pub(crate) const UNSHARE: i64 = 272;
        pub(crate) const PTRACE: i64 = 101;
        pub(crate) const MOUNT: i64 = 165;
        pub(crate) const MEMFD_CREATE: i64 = 319;
    }
    #[cfg(not(target_arch = "x86_64"))]
    mod arch {
        pub(crate) const CLONE: i64 = 220;
        pub(crate) const UNSHARE: i64 = 97;
        pub(crate) const PTRACE: i64 = 117;
        pub(crate) const MOUNT: i64 = 40;
        pub(crate) const MEMFD_CREATE: i64 = 279;
    }
    pub(super) use arch::{CLONE, MEMFD_CREATE, MOUNT, PTRACE, UNSHARE};
}
