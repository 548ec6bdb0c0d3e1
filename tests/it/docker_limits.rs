//! Runtime `docker`: every limit ends what it limits, and nothing a run started outlives it.

use std::time::Duration;

use skillcell::audit::Layer;
use skillcell::policy::{EnforcementMode, Limits};
use skillcell::runtime::{RunCommand, Stdin, Termination};
use skillcell::{ErrorKind, SandboxPolicy};

use super::docker_support::{Prepared, Setup, shell};

/// Children in every way that leaves a process group, a session or a parent; each would run for long.
const RUNAWAYS: &str = "sleep 1001 & setsid sleep 1002 & (setsid sleep 1003 & ) ; (sh -c 'trap \"\" TERM INT HUP; sleep 1004; true' &) ; \
    nohup sleep 1005 >/dev/null 2>&1 & sh -c 'sh -c \"setsid nohup sleep 1006 >/dev/null 2>&1 &\" &' ;";

/// Kills every process that isn't of its own run, for ever, and its own supervisor first, so that no killer of ours
/// lives long. Several do it at once.
const FIGHTER: &str = r#"
import os, signal
group, supervisor = os.getgid(), os.getppid()
os.setsid() if os.fork() == 0 else None
for _ in range(2):
    os.fork()
os.kill(supervisor, signal.SIGKILL) if os.path.exists(f"/proc/{supervisor}") else None
while True:
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and int(name) > 1 and os.stat(f"/proc/{name}").st_gid != group:
                os.kill(int(name), signal.SIGKILL)
        except OSError:
            pass
"#;

fn short(milliseconds: u64) -> Setup {
    Setup::limits(Limits { wall_time: Duration::from_millis(milliseconds), ..Limits::default() })
}

#[tokio::test(flavor = "multi_thread")]
async fn the_time_limit_ends_the_whole_tree_and_keeps_the_output() {
    let prepared = short(1500).prepare().await;
    let result = prepared.shell(&format!("{RUNAWAYS} echo partial; echo problem >&2; sleep 1007")).await;
    assert_eq!(result.termination, Termination::TimedOut);
    assert_eq!((result.exit_code(), result.stdout.text().as_str()), (124, "partial\n"));
    assert!(result.stderr.text().contains("problem\n"), "{}", result.stderr.text());
    assert_eq!(prepared.processes().await, Vec::<String>::new());
    assert_eq!(prepared.limits_hit(), ["time_limit"]);
    prepared.cleanup().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_normal_end_leaves_no_process_and_does_not_wait_for_any() {
    let prepared = Prepared::new().await;
    // They hold the output open; the end of the run must not wait for them.
    let result = prepared.shell(&format!("{RUNAWAYS} exit 4")).await;
    assert_eq!(result.termination, Termination::Exited(4));
    assert_eq!(prepared.processes().await, Vec::<String>::new());
    prepared.cleanup().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_one_run_leaves_the_others_alone() {
    let prepared = Prepared::new().await;
    let long = async {
        let line = "sleep 1008 & child=$!; while [ ! -e /workspace/tmp/go ]; do sleep 0.05; done; kill -0 $child && echo alive";
        prepared.output(line).await
    };
    let short = async {
        prepared.shell(&format!("{RUNAWAYS} exit 0")).await;
        assert!(prepared.processes().await.iter().any(|line| line.contains("sleep 1008")), "the other run was ended");
        prepared.output("touch /workspace/tmp/go").await
    };
    let (long, _) = tokio::join!(long, short);
    assert_eq!(long, "alive");
    assert_eq!(prepared.processes().await, Vec::<String>::new());
    prepared.cleanup().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_run_is_ended() {
    let prepared = Prepared::new().await;
    let line = format!("{RUNAWAYS} touch /workspace/out/started; sleep 1009");
    let started = "/workspace/out/started".parse().unwrap();
    tokio::select! {
        _ = prepared.shell(&line) => panic!("it ended by itself"),
        () = async {
            while prepared.runtime.read_file(&prepared.handle, &started, 0).await.is_err() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        } => {}
    }
    // A hang is for the test runner's own limit to find.
    while !prepared.processes().await.is_empty() {}
    prepared.cleanup().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_that_kills_its_supervisor_gains_nothing() {
    let prepared = Prepared::new().await;
    let result = prepared.shell(&format!("{RUNAWAYS} echo before; kill -KILL $PPID; sleep 1010")).await;
    assert_eq!((result.termination, result.stdout.text().as_str()), (Termination::Signaled(9), "before\n"));
    assert_eq!(prepared.processes().await, Vec::<String>::new());
    assert_eq!(prepared.output("echo fine").await, "fine");
    prepared.cleanup().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_that_fights_the_killers_loses_its_container_and_nothing_else() {
    let prepared = short(3000).prepare().await;
    prepared.output("echo kept > /workspace/out/kept").await;
    let result = prepared.run(&RunCommand::new(["python3", "-c", FIGHTER]).unwrap()).await;
    assert!(matches!(result.termination, Termination::Signaled(9) | Termination::TimedOut), "{}", result.termination);
    assert_eq!(prepared.processes().await, Vec::<String>::new());
    assert_eq!(prepared.output("cat /workspace/out/kept").await, "kept");
    prepared.cleanup().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_bomb_is_stopped() {
    let limits = Limits { wall_time: Duration::from_secs(2), processes: 40, ..Limits::default() };
    let prepared = Setup::limits(limits).prepare().await;
    let result = prepared
        .run(
            &RunCommand::new(["python3", "-c", "import os\nwhile True:\n try: os.fork()\n except OSError: pass"])
                .unwrap(),
        )
        .await;
    assert_eq!(result.termination, Termination::TimedOut);
    assert_eq!(prepared.processes().await, Vec::<String>::new());
    prepared.cleanup().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_process_limit_is_kept() {
    let count = "import os, time\nn = 0\ntry:\n while n < 100:\n  if os.fork() == 0: time.sleep(100)\n  n += 1\nexcept OSError: pass\nprint(n)";
    let command = RunCommand::new(["python3", "-c", count]).unwrap();
    let prepared = Setup::limits(Limits { processes: 20, ..Limits::default() }).prepare().await;
    let started: u32 = prepared.run(&command).await.stdout.text().trim().parse().unwrap();
    // The room that is kept for starting a run beside a full container may be used as well.
    assert!((10..=30).contains(&started), "{started}");
    prepared.cleanup().await;
    let prepared = Setup::limits(Limits { processes: 200, ..Limits::default() }).prepare().await;
    assert_eq!(prepared.run(&command).await.stdout.text().trim(), "100");
    prepared.cleanup().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_output_limit_ends_the_run() {
    let limits = Limits { output: 100_000, output_kept: 100, ..Limits::default() };
    let prepared = Setup::limits(limits).prepare().await;
    let result = prepared.shell("yes").await;
    assert_eq!(
        (result.termination.clone(), result.stdout.head()),
        (Termination::OutputLimit, "y\n".repeat(25).as_bytes())
    );
    assert!(result.truncated());
    assert_eq!(prepared.limits_hit(), ["output_limit"]);
    // Without a line break, on the other stream.
    let result = prepared.shell("tr '\\0' x </dev/zero >&2").await;
    assert_eq!(result.termination, Termination::OutputLimit);
    assert_eq!(prepared.processes().await, Vec::<String>::new());
    // Under the limit: all counted, not all kept.
    let result = prepared.shell("head -c 90000 /dev/zero").await;
    assert_eq!((result.termination, result.stdout.total()), (Termination::Exited(0), 90_000));
    prepared.cleanup().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_memory_limit_ends_the_run_and_is_told_from_a_signal() {
    let mut policy =
        SandboxPolicy { limits: Limits { memory: 64 << 20, ..Limits::default() }, ..SandboxPolicy::default() };
    policy.limits.requested.memory = true;
    let prepared = Setup { policy, ..Setup::default() }.prepare().await;
    let hog = |megabytes: u32| {
        RunCommand::new(["python3".into(), "-c".into(), format!("x = b'x' * {megabytes}_000_000; print(len(x))")])
            .unwrap()
    };
    assert_eq!(prepared.run(&hog(30)).await.stdout.text(), "30000000\n");
    let result = prepared.run(&hog(200)).await;
    assert_eq!((result.termination, result.stdout.text().as_str()), (Termination::OutOfMemory, ""));
    assert_eq!(prepared.limits_hit(), ["memory_limit"]);
    // Through a shell, which answers 137 for its child.
    let result = prepared.shell("python3 -c 'x = b\"x\" * 200_000_000'; exit $?").await;
    assert_eq!(result.termination, Termination::OutOfMemory);
    // One that survives the death of its child ended by itself, and a signal is a signal.
    assert_eq!(
        prepared.shell("python3 -c 'x = b\"x\" * 200_000_000'; exit 3").await.termination,
        Termination::Exited(3)
    );
    assert_eq!(prepared.shell("kill -KILL $$").await.termination, Termination::Signaled(9));
    prepared.cleanup().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_in_files_is_memory_and_its_end_may_be_the_containers() {
    let mut policy =
        SandboxPolicy { limits: Limits { memory: 64 << 20, ..Limits::default() }, ..SandboxPolicy::default() };
    policy.limits.requested.memory = true;
    let prepared = Setup { policy, ..Setup::default() }.prepare().await;
    assert_eq!(prepared.shell("head -c 30000000 /dev/zero >/tmp/x && echo fits").await.stdout.text(), "fits\n");
    // Nothing gives memory back when a process is killed, so the kernel goes on, up to the first process of all: whichever
    // it takes, the run ends as what it is, and the handle goes on. Tried until nothing of it is left, at most.
    let fill = "while :; do head -c 60000000 /dev/zero >/dev/shm/x; head -c 60000000 /dev/zero >/tmp/y; done";
    let result = prepared.shell(fill).await;
    assert_eq!(result.termination, Termination::OutOfMemory);
    let hits = prepared.limits_hit();
    assert_eq!(hits, ["memory_limit"]);
    assert_eq!(prepared.shell("ls /tmp /dev/shm; echo on").await.stdout.text(), "/dev/shm:\n\n/tmp:\non\n");
    prepared.cleanup().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn processor_time_and_file_size_end_the_run() {
    let limits = Limits {
        cpu_time: Some(Duration::from_secs(1)),
        disk: 1 << 20,
        wall_time: Duration::from_secs(60),
        ..Limits::default()
    };
    let prepared = Setup::limits(limits).prepare().await;
    assert_eq!(
        prepared.run(&RunCommand::new(["python3", "-c", "while True: pass"]).unwrap()).await.termination,
        Termination::OutOfFuel
    );
    let write = "import signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_DFL)\nopen('/workspace/out/x', 'wb').write(bytes(2 << 20))";
    assert_eq!(
        prepared.run(&RunCommand::new(["python3", "-c", write]).unwrap()).await.termination,
        Termination::DiskLimit
    );
    assert_eq!(prepared.limits_hit(), ["cpu_limit", "disk_limit"]);
    prepared.cleanup().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unread_input_does_not_hold_up_the_time_limit() {
    let prepared = short(1000).prepare().await;
    let mut command = shell("sleep 1011");
    command.stdin = Stdin::Bytes(vec![b'x'; 8 << 20].into());
    assert_eq!(prepared.run(&command).await.termination, Termination::TimedOut);
    assert_eq!(prepared.processes().await, Vec::<String>::new());
    prepared.cleanup().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_limit_that_ended_a_run_is_one_denial_in_the_trail() {
    let prepared = short(300).prepare().await;
    prepared.shell("sleep 1012").await;
    let denials: Vec<String> = prepared
        .sink
        .events()
        .iter()
        .filter(|event| event.layer == Layer::Limit)
        .map(|event| format!("{} {} {}", event.action, event.object, event.reason))
        .collect();
    assert_eq!(denials, ["time_limit sh stopped at the time limit"]);
    prepared.cleanup().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_it_can_not_hold_is_refused_in_strict_mode() {
    let mut policy = SandboxPolicy { mode: EnforcementMode::Strict, ..SandboxPolicy::default() };
    policy.limits.cpu_time = Some(Duration::from_secs(1));
    policy.limits.requested.cpu = true;
    let error = Setup { policy, ..Setup::default() }.try_prepare().await.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PolicyUnenforceable);
}
