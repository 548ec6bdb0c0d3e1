//! What a script in runtime `firejail` sees, may do, and can't get away with. All of it is run twice: as whoever runs the
//! tests, and, when that is root, once more as an ordinary user.
#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail like tests")]

use std::time::Duration;

use skillcell::policy::{Limits, NetworkPolicy, OutMode, ResolvedNetwork};
use skillcell::runtime::{RunCommand, RuntimeConfig, RuntimeRunResult, Termination};
use skillcell::workspace::{Input, InputSource};
use skillcell::{ErrorKind, SandboxPolicy};

use crate::local_support::{Prepared, alive, marker, shell, until};

fn policy() -> SandboxPolicy {
    let limits = Limits { wall_time: Duration::from_secs(60), ..Limits::default() };
    SandboxPolicy { limits, ..SandboxPolicy::default() }
}

async fn with(policy: SandboxPolicy) -> Prepared {
    let inputs = [Input { name: "b".into(), source: InputSource::Bytes("beta".into()) }];
    let prepared = Prepared::on("firejail", policy, RuntimeConfig::default(), &inputs).await;
    prepared.unwrap_or_else(|error| panic!("{:?}", error.chain()))
}

fn lines(result: &RuntimeRunResult) -> String {
    assert_eq!(result.termination, Termination::Exited(0), "{}\n{}", result.stdout.text(), result.stderr.text());
    result.stdout.text()
}

async fn attempt(prepared: &Prepared, code: &str) -> String {
    let body: String = code.lines().map(|line| format!("    {line}\n")).collect();
    let code = format!(
        "import os, socket, errno\nhome = os.environ['WORKSPACE_IN'][:-3]\n\
         try:\n{body}    print('done')\nexcept OSError as e:\n    print(errno.errorcode.get(e.errno, e))\n"
    );
    let command = RunCommand::new(["python3", "-c", &code]).unwrap();
    lines(&prepared.run(&command).await.unwrap()).trim().to_owned()
}

#[tokio::test]
async fn a_script_reads_its_inputs_and_leaves_results_and_nothing_else() {
    let prepared = with(policy()).await;
    prepared.script(
        "run.sh",
        "#!/bin/sh\ncat \"$1\" > \"$WORKSPACE_OUT/both\"; pwd; cat \"${2#--out=}\"; printf '<%s>' \"$3\" \"$4\"\n",
    );
    let argv = ["/workspace/skill/run.sh", "/workspace/in/b", "--out=/workspace/out/both", ";id $(id) '\"\n", ""];
    let text = lines(&prepared.run(&RunCommand::new(argv).unwrap()).await.unwrap());
    assert!(text.ends_with("/skill\nbeta<;id $(id) '\"\n><>"), "{text}");
    let path = "/workspace/out/both".parse().unwrap();
    assert_eq!(&prepared.runtime.read_file(&prepared.handle, &path, 100).await.unwrap()[..], b"beta");
    let mut command = RunCommand::new(["env"]).unwrap();
    command.env.set("GIVEN", "a b").unwrap();
    let text = lines(&prepared.run(&command).await.unwrap());
    let mut names: Vec<&str> = text.lines().filter_map(|line| line.split('=').next()).collect();
    names.sort_unstable();
    assert_eq!(
        names,
        [
            "GIVEN",
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
    let root = prepared.workspace.ambient_root().to_str().unwrap().to_owned();
    for (code, allowed) in [
        ("open(home + '/in/b', 'w')", false),
        ("os.chmod(home + '/in/b', 0o777)", false),
        ("os.unlink(home + '/in/b')", false),
        ("os.mkdir(home + '/skill/x')", false),
        ("os.mkdir(home + '/x')", false),
        ("os.rename(home + '/out', home + '/away')", false),
        ("os.mkdir('/usr/skillcell-must-not-be')", false),
        ("os.mkdir('/x')", false),
        ("open('/run/x', 'w')", false),
        ("os.mkdir('/home/x')", false),
        ("open('/dev/x', 'w')", false),
        ("os.listdir('/root')", false),
        ("os.chown(home + '/out', 0, 0)", false),
        ("os.setuid(0)", false),
        ("os.stat('/proc/self/fd/3')", false),
        ("open('/etc/shadow')", false),
        ("os.stat('/var/lib')", false),
        ("os.stat('/run/dbus/system_bus_socket')", false),
        ("os.stat('/home/somebody/.ssh')", false),
        (&format!("os.stat({:?})", format!("{root}/in")), false),
        (&format!("open('/proc/{}/environ')", std::process::id()), false),
        ("open('/proc/sys/kernel/core_pattern', 'w')", false),
        ("socket.socket(socket.AF_UNIX)", false),
        ("socket.socket(socket.AF_PACKET, socket.SOCK_RAW)", false),
        ("socket.create_connection(('192.0.2.1', 80), 5)", false),
        ("os.setuid(12345)", false),
        ("open(home + '/out/n', 'w')", true),
        ("os.mkdir(home + '/tmp/x')", true),
        ("open('/tmp/x', 'w')", true),
        ("import threading; t = threading.Thread(target=int); t.start(); t.join()", true),
    ] {
        let met = attempt(&prepared, code).await;
        assert_eq!(met == "done", allowed, "{code}: {met}");
    }
    let line = lines(&prepared.shell("cat /proc/1/cmdline /proc/1/environ | tr '\\0' ' '").await);
    assert!(!line.contains(&root), "{line}");
}

#[tokio::test]
async fn the_network_is_what_the_policy_says() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let connect = format!("socket.create_connection(('127.0.0.1', {}), 5)", listener.local_addr().unwrap().port());
    assert_eq!(attempt(&with(policy()).await, &connect).await, "ECONNREFUSED");
    let network = ResolvedNetwork { policy: NetworkPolicy::Host, allowlist: vec![] };
    assert_eq!(attempt(&with(SandboxPolicy { network, ..policy() }).await, &connect).await, "done");
}

#[tokio::test]
async fn nothing_outlives_a_run() {
    let limits = Limits { wall_time: Duration::from_secs(4), ..Limits::default() };
    let prepared = with(SandboxPolicy { limits, ..policy() }).await;
    for escape in [
        "sh -c 'sleep 300; : @' &",
        "(setsid nohup sh -c 'sleep 300; : @' >/dev/null 2>&1 &) &",
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
            () = until(|| alive(&marker) >= 4) => {}
        }
        until(|| alive(&marker) == 0).await;
    }
    assert_eq!(prepared.shell("yes").await.termination, Termination::OutputLimit);
    assert_eq!(prepared.limits_hit(), ["time_limit", "time_limit", "time_limit", "output_limit"]);
}

#[tokio::test]
async fn the_number_of_processes_is_bounded() {
    let limits = Limits { processes: 20, wall_time: Duration::from_secs(60), ..Limits::default() };
    let prepared = with(SandboxPolicy { limits, ..policy() }).await;
    let marker = marker();
    let bomb = format!("for i in $(seq 200); do (setsid sh -c 'sleep 100; : {marker}' &); done; sleep 5");
    let result = prepared.shell(&bomb).await;
    // The kernel refuses.
    let refused = result.stderr.text().contains("annot fork");
    assert!(refused, "{:?} {}", result.termination, result.stderr.text());
    assert_eq!(alive(&marker), 0);
    assert_eq!(prepared.shell("echo fine").await.stdout.text(), "fine\n");
}

#[tokio::test]
async fn what_it_cannot_do_is_refused_and_said() {
    let refused = async |policy| {
        let prepared = Prepared::on("firejail", policy, RuntimeConfig::default(), &[]).await;
        prepared.err().map(|error| error.kind())
    };
    let without_delete = SandboxPolicy { out: OutMode::ReadWriteWithoutDelete, ..policy() };
    assert_eq!(refused(without_delete).await, Some(ErrorKind::PolicyUnenforceable));
    let prepared = with(policy()).await;
    assert_eq!(prepared.handle.report().gaps(), []);
    let long = "x".repeat(5_000);
    for (argv, kind) in [
        (["nosuchprogram", ""], ErrorKind::NotFound),
        (["sh", &long], ErrorKind::LimitExceeded),
        (["a=b", ""], ErrorKind::NotFound),
        (["/bin/sh", ""], ErrorKind::PathDenied),
    ] {
        let error = prepared.run(&RunCommand::new(argv).unwrap()).await.unwrap_err();
        assert!(error.kind() == kind || argv[0] == "a=b", "{error}");
    }
}

#[tokio::test]
async fn nothing_of_a_guest_belongs_to_root_and_it_can_change_what_the_host_writes() {
    let prepared = with(policy()).await;
    let path = "/workspace/out/new/file".parse().unwrap();
    prepared.runtime.write_file(&prepared.handle, &path, b"host").await.unwrap();
    let line = "id -u; cd \"$WORKSPACE_OUT/new\" && printf guest >> file && mv file other && chmod 4777 other";
    let identity = lines(&prepared.shell(line).await);
    assert_ne!(identity, "0\n");
    let file = std::fs::symlink_metadata(prepared.workspace.ambient_root().join("out/new/other")).unwrap();
    assert_ne!(std::os::unix::fs::MetadataExt::uid(&file), 0);
    assert_eq!(file.len(), 9);
}

/// Where the tests run as root, all of the above once more as somebody else. `firejail` looks its user up, so one is made
/// for the copy: in a mount namespace, where a list of users of ours lies over the system's.
#[tokio::test]
async fn an_ordinary_user_gets_the_same() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let text = crate::ordinary_user::tests_of("firejail");
    assert!(text.contains("test result: ok. 6 passed"), "{text}");
}
