//! Nothing a script starts outlives its run, whatever it does to get away.

use std::time::Duration;

use skillcell::policy::Limits;
use skillcell::runtime::Termination;

use crate::local_support::{Prepared, alive, marker, shell, until};

/// Ways to start a process that lasts. `@` is a word to find it by.
const ESCAPES: [(&str, &str); 6] = [
    ("background", "sh -c 'sleep 300; : @' &"),
    ("setsid", "setsid sh -c 'sleep 300; : @' &"),
    ("double fork and nohup", "(setsid nohup sh -c 'sleep 300; : @' >/dev/null 2>&1 &) &"),
    ("ignores TERM and HUP", "sh -c 'trap \"\" TERM HUP INT; while :; do sleep 1; done; : @' &"),
    ("holds the output", "setsid sh -c 'sleep 300; : @' & sh -c 'sleep 300; : @' &"),
    (
        "python daemon",
        "python3 -c 'import os,time\nfor _ in range(3):\n  if os.fork(): os._exit(0)\n  os.setsid()\ntime.sleep(300)' @",
    ),
];

fn limits(wall_time: Duration) -> Limits {
    Limits { wall_time, ..Limits::default() }
}

#[tokio::test]
async fn children_that_are_left_die_with_a_normal_end() {
    let prepared = Prepared::new(Limits::default()).await;
    for (name, line) in ESCAPES {
        let marker = marker();
        let line = format!("{}\necho started; exit 3", line.replace('@', &marker));
        let result = prepared.shell(&line).await;
        assert_eq!(result.termination, Termination::Exited(3), "{name}: {}", result.stderr.text());
        assert_eq!(result.stdout.text(), "started\n", "{name}");
        assert_eq!(alive(&marker), 0, "{name}");
    }
    assert_eq!(prepared.limits_hit(), Vec::<&str>::new());
}

#[tokio::test]
async fn a_timeout_ends_the_whole_tree_and_keeps_what_was_written() {
    for (name, line) in ESCAPES {
        let prepared = Prepared::new(limits(Duration::from_millis(400))).await;
        let marker = marker();
        let line = format!("echo before; echo also >&2\n{}\nsleep 300; : {marker}", line.replace('@', &marker));
        let result = prepared.shell(&line).await;
        assert_eq!(result.termination, Termination::TimedOut, "{name}: {}", result.stderr.text());
        assert_eq!((result.stdout.text(), result.stderr.text()), ("before\n".into(), "also\n".into()), "{name}");
        assert_eq!(result.exit_code(), 124);
        assert_eq!(alive(&marker), 0, "{name}");
        assert_eq!(prepared.limits_hit(), ["time_limit"]);
    }
}

#[tokio::test]
async fn dropping_the_future_ends_the_tree() {
    let prepared = Prepared::new(Limits::default()).await;
    for (name, line) in ESCAPES {
        let marker = marker();
        let line = format!("{}\nsleep 300; : {marker}", line.replace('@', &marker));
        let command = shell(&line);
        let run = prepared.run(&command);
        tokio::select! {
            result = run => panic!("{name}: ended by itself: {:?}", result.unwrap()),
            () = until(|| alive(&marker) >= 2) => {}
        }
        until(|| alive(&marker) == 0).await;
    }
    // The handle is still good.
    assert_eq!(prepared.shell("echo fine").await.stdout.text(), "fine\n");
    prepared.runtime.cleanup(&prepared.handle).await.unwrap();
    prepared.runtime.cleanup(&prepared.handle).await.unwrap();
}

#[tokio::test]
async fn a_fork_bomb_is_bounded_and_leaves_nothing() {
    let prepared = Prepared::new(Limits { processes: 20, ..limits(Duration::from_secs(60)) }).await;
    let marker = marker();
    // Bounded by itself too, so that a failing test doesn't take the machine along.
    let bomb = format!("for i in $(seq 200); do (setsid sh -c 'sleep 100; : {marker}' &); done; sleep 100");
    let result = prepared.shell(&bomb).await;
    // Where a control group keeps the limit, the kernel refuses more; the shell says so and gives up.
    let by_kernel = prepared.handle.backend()["limits"].as_str().unwrap().starts_with("cgroup");
    let fizzled = by_kernel && result.stderr.text().contains("annot fork");
    assert!(result.termination == Termination::ProcessLimit || fizzled, "{result:?}");
    assert_eq!(prepared.limits_hit(), ["process_limit"]);
    assert_eq!(alive(&marker), 0);
}

#[tokio::test]
async fn several_runs_at_once_do_not_touch_each_other() {
    let prepared = Prepared::new(limits(Duration::from_secs(60))).await;
    let slow = shell("sleep 0.5; echo slow; kill -9 $$");
    let quick = shell("echo quick");
    let (slow, quick, other) = tokio::join!(prepared.run(&slow), prepared.run(&quick), prepared.run(&quick));
    let slow = slow.unwrap();
    assert_eq!((slow.termination, slow.stdout.text()), (Termination::Signaled(9), "slow\n".to_owned()));
    for quick in [quick, other] {
        let quick = quick.unwrap();
        assert_eq!((quick.termination, quick.stdout.text()), (Termination::Exited(0), "quick\n".to_owned()));
    }
}

#[tokio::test]
async fn a_script_that_kills_its_supervisor_is_an_error_and_its_group_dies() {
    let prepared = Prepared::new(limits(Duration::from_secs(60))).await;
    let marker = marker();
    let line = format!("sh -c 'sleep 300; : {marker}' & kill -9 $PPID; sleep 300; : {marker}");
    let error = prepared.run(&shell(&line)).await.unwrap_err();
    assert!(error.to_string().starts_with("the supervisor of the run was stopped from inside the run"), "{error}");
    until(|| alive(&marker) == 0).await;
    // Stopping it only delays the kill.
    let prepared = Prepared::new(limits(Duration::from_millis(300))).await;
    let result = prepared.shell("kill -STOP $PPID; sleep 300").await;
    assert_eq!(result.termination, Termination::TimedOut);
}

/// Tells a copy of this test binary to be the host that gets killed; its value is the word to find the guest by.
const PLAY_HOST: &str = "SKILLCELL_TEST_PLAY_HOST";

#[tokio::test]
async fn killing_the_host_ends_the_tree() {
    if let Ok(marker) = std::env::var(PLAY_HOST) {
        let prepared = Prepared::new(Limits::default()).await;
        let (_, escape) = ESCAPES[2];
        prepared.shell(&format!("{}\nsleep 300; : {marker}", escape.replace('@', &marker))).await;
        return;
    }
    let marker = marker();
    // The copy's workspace is left behind by the kill, so it gets a place that this test removes.
    let temporary = tempfile::tempdir().unwrap();
    #[expect(clippy::disallowed_methods, reason = "the host that is killed must be a process of its own")]
    let mut host = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "local_processes::killing_the_host_ends_the_tree", "--nocapture"])
        .env(PLAY_HOST, &marker)
        .env("TMPDIR", temporary.path())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    // The shell of the run and the daemon it started.
    until(|| alive(&marker) >= 2 || host.try_wait().unwrap().is_some()).await;
    assert_eq!(host.try_wait().unwrap(), None, "the host ended by itself");
    host.kill().unwrap();
    host.wait().unwrap();
    until(|| alive(&marker) == 0).await;
}
