//! Runtime `docker`: whatever happens to the host's process or its futures, nothing of ours stays on the daemon, and
//! nothing of others is touched.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests fail like tests")]

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::Duration;

use skillcell::ErrorKind;
use skillcell::policy::Limits;
use skillcell::runtime::Termination;
use skillcell::workspace::Area;

use super::docker_support::{Prepared, Setup, docker, docker_fails, image, shell};

/// How many handles are opened, and how many host processes are killed. `tests/docker/many-handles` asks for more.
const HANDLES: usize = 12;
const KILLED: usize = 4;
/// Makes the test below a host process that waits to be killed.
const HOLD: &str = "SKILLCELL_TEST_HOLD";

fn container_of(prepared: &Prepared) -> String {
    prepared.handle.backend()["container"].as_str().unwrap().to_owned()
}

fn exists(container: &str) -> bool {
    !docker(&["ps", "--all", "--quiet", "--no-trunc", "--filter", &format!("id={container}")]).is_empty()
}

async fn until_gone(container: &str) {
    // A hang is for the test runner's own limit to find.
    while exists(container) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits for the file that a run makes first.
async fn until_started(prepared: &Prepared) {
    while prepared.workspace.area(Area::Out).symlink_metadata("started").is_err() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cleanup_removes_the_container_and_may_be_called_again() {
    let prepared = Prepared::new().await;
    let container = container_of(&prepared);
    assert!(exists(&container));
    prepared.cleanup().await;
    assert!(!exists(&container));
    prepared.cleanup().await;
    let error = prepared.try_run(&shell("true")).await.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Backend);
    assert_eq!(error.to_string(), "the container of this handle is gone; prepare again");
}

#[tokio::test(flavor = "multi_thread")]
async fn cleanup_ends_what_runs() {
    let prepared = Prepared::new().await;
    let container = container_of(&prepared);
    let command = shell("touch /workspace/out/started; sleep 1030");
    let (run, ()) = tokio::join!(prepared.try_run(&command), async {
        until_started(&prepared).await;
        prepared.cleanup().await;
    });
    assert_eq!(run.map(drop).unwrap_err().kind(), ErrorKind::Backend);
    assert!(!exists(&container));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_is_removed_under_a_run_is_an_error_and_the_next_run_has_another() {
    let prepared = Prepared::new().await;
    let container = container_of(&prepared);
    let command = shell("touch /workspace/out/started; sleep 1031");
    let (run, ()) = tokio::join!(prepared.try_run(&command), async {
        until_started(&prepared).await;
        docker(&["rm", "--force", &container]);
    });
    let error = run.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Backend, "{}", error.chain().join("\n"));
    assert_eq!(prepared.output("ls /workspace/out").await, "started");
    // And one that ended between two runs is no error at all.
    let label = format!("label=io.skillcell.run={}", prepared.handle.audit().run());
    let another = docker(&["ps", "--quiet", "--no-trunc", "--filter", &label]);
    assert_ne!(another.trim(), container);
    docker(&["rm", "--force", another.trim()]);
    assert_eq!(prepared.output("ls /workspace/out").await, "started");
    prepared.cleanup().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_nothing_can_reach_costs_the_container() {
    let prepared = Setup::limits(Limits { wall_time: Duration::from_secs(2), ..Limits::default() }).prepare().await;
    let container = container_of(&prepared);
    let (result, ()) = tokio::join!(prepared.shell("touch /workspace/out/started; sleep 1032"), async {
        until_started(&prepared).await;
        // No process in it can end now, and none can be started.
        docker(&["pause", &container]);
    });
    assert_eq!(result.termination, Termination::TimedOut);
    assert!(!exists(&container));
    assert!(prepared.sink.events().iter().any(|event| event.action == "replace"));
    assert_eq!(prepared.output("ls /workspace/out").await, "started");
    prepared.cleanup().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_handle_takes_its_container_along() {
    let prepared = Prepared::new().await;
    let container = container_of(&prepared);
    if std::env::var_os(HOLD).is_some() {
        // The host process of another test: see `HostProcess`.
        println!("\nholding {container} {}", prepared.workspace.ambient_root().display());
        std::future::pending::<()>().await;
    }
    drop(prepared);
    until_gone(&container).await;
}

/// A process of its own with one handle.
struct HostProcess {
    child: Child,
    container: String,
    workspace: PathBuf,
}

impl HostProcess {
    async fn start() -> Self {
        tokio::task::spawn_blocking(Self::start_blocking).await.unwrap()
    }

    fn start_blocking() -> Self {
        #[expect(clippy::disallowed_methods, reason = "a process that can be killed is what is tested")]
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "docker_leftovers::a_dropped_handle_takes_its_container_along", "--nocapture"])
            .env(HOLD, "1")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let held =
            lines.map_while(Result::ok).find_map(|line| line.strip_prefix("holding ").map(str::to_owned)).unwrap();
        let (container, workspace) = held.split_once(' ').unwrap();
        Self { child, container: container.to_owned(), workspace: workspace.into() }
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn handles_are_opened_and_closed_and_host_processes_are_killed() {
    let number = |name: &str, usual| std::env::var(name).map_or(usual, |text| text.parse().unwrap());
    let (handles, killed) = (number("SKILLCELL_TEST_HANDLES", HANDLES), number("SKILLCELL_TEST_KILLED", KILLED));
    let foreign = docker(&["create", "--network", "none", "--label", "io.skillcell.run=forged", &image(), "true"]);
    let foreign = foreign.trim();
    let volumes = docker(&["volume", "ls", "--quiet"]);
    let networks = docker(&["network", "ls", "--quiet"]);

    let mut containers = Vec::new();
    let mut folders = Vec::new();
    for _ in 0..killed {
        let mut process = HostProcess::start().await;
        assert!(exists(&process.container) && process.workspace.is_dir());
        process.kill();
        containers.push(process.container);
        folders.push(process.workspace);
    }
    let mut left = handles - killed;
    while left > 0 {
        let batch = left.min(4);
        let opened = futures_util::future::join_all((0..batch).map(|number| async move {
            let config = if number % 4 == 3 { serde_json::json!({"files": "copy"}) } else { serde_json::json!({}) };
            let prepared = Setup::config(config).prepare().await;
            prepared.output("echo 1 > /workspace/out/x").await;
            let container = container_of(&prepared);
            // Some are cleaned up, one in four is only dropped.
            if number % 4 != 2 {
                prepared.cleanup().await;
                assert!(!exists(&container));
            }
            container
        }));
        containers.extend(opened.await);
        left -= batch;
    }
    for container in &containers {
        until_gone(container).await;
    }
    assert_eq!((docker(&["volume", "ls", "--quiet"]), docker(&["network", "ls", "--quiet"])), (volumes, networks));
    // Folders are left by a process that is killed, until the next one starts.
    let mut next = HostProcess::start().await;
    assert_eq!(folders.iter().filter(|folder| folder.exists()).count(), 0);
    next.kill();
    assert!(exists(foreign), "a container that only claims to be ours was removed");
    docker(&["rm", foreign]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_was_never_started_is_swept_by_the_next_process() {
    // As a host process leaves it that is killed between making and starting it.
    let mut first = HostProcess::start().await;
    let container = first.container.clone();
    let labels =
        docker(&["inspect", "--format", "{{range $k, $v := .Config.Labels}}{{$k}}={{$v}}\n{{end}}", &container]);
    let labels: Vec<&str> = labels.lines().filter(|line| line.starts_with("io.skillcell.")).collect();
    assert_eq!(labels.len(), 6, "{labels:?}");
    let image = image();
    let mut create = vec!["create", "--network", "none"];
    labels.iter().for_each(|label| create.extend(["--label", label]));
    create.extend([image.as_str(), "true"]);
    let never_started = docker(&create);
    let never_started = never_started.trim();
    // Its process lives, so a new one leaves it alone.
    let mut second = HostProcess::start().await;
    assert!(exists(never_started) && first.workspace.is_dir());
    first.kill();
    let mut third = HostProcess::start().await;
    assert!(!exists(never_started) && !first.workspace.exists() && second.workspace.is_dir());
    second.kill();
    third.kill();
    until_gone(&container).await;
    assert!(docker_fails(&["inspect", &container]));
}

/// Passes connections on to the daemon until it is dropped, which cuts them all.
struct Relay {
    folder: tempfile::TempDir,
    task: tokio::task::JoinHandle<()>,
}

impl Relay {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = tokio::net::UnixListener::bind(folder.path().join("socket")).unwrap();
        let daemon = std::env::var("DOCKER_HOST").unwrap_or_else(|_| "unix:///var/run/docker.sock".into());
        let daemon = daemon.strip_prefix("unix://").expect("these tests need a daemon behind a unix socket").to_owned();
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((mut ours, _)) = listener.accept().await {
                let daemon = daemon.clone();
                connections.spawn(async move {
                    let mut theirs = tokio::net::UnixStream::connect(&daemon).await.unwrap();
                    let _ = tokio::io::copy_bidirectional(&mut ours, &mut theirs).await;
                });
            }
        });
        Self { folder, task }
    }

    fn address(&self) -> String {
        format!("unix://{}/socket", self.folder.path().display())
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Makes the test below the host process whose daemon goes away.
const LOSE: &str = "SKILLCELL_TEST_LOSE";

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_goes_away_under_a_run_is_an_error_that_says_what_to_do() {
    if std::env::var_os(LOSE).is_some() {
        let prepared = Prepared::new().await;
        let container = container_of(&prepared);
        let command = shell("echo partial; touch /workspace/out/started; sleep 1040");
        let (run, ()) = tokio::join!(prepared.try_run(&command), async {
            until_started(&prepared).await;
            println!("\nbegun {container}");
        });
        let error = run.map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        let message = "the connection to the container was lost during the run; check that the docker daemon runs, then prepare again";
        assert_eq!(error.to_string(), message);
        let error = prepared.runtime.cleanup(&prepared.handle).await.unwrap_err();
        assert_eq!((error.kind(), error.to_string().contains(&container)), (ErrorKind::Unavailable, true), "{error}");
        return;
    }
    let relay = Relay::new();
    #[expect(clippy::disallowed_methods, reason = "the address of the daemon is a process's environment")]
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "docker_leftovers::a_daemon_that_goes_away_under_a_run_is_an_error_that_says_what_to_do",
            "--nocapture",
        ])
        .env(LOSE, "1")
        .env("DOCKER_HOST", relay.address())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let (container, mut lines) = tokio::task::spawn_blocking(move || {
        let found =
            lines.by_ref().map_while(Result::ok).find_map(|line| line.strip_prefix("begun ").map(str::to_owned));
        (found.unwrap(), lines)
    })
    .await
    .unwrap();
    drop(relay);
    let (status, rest) = tokio::task::spawn_blocking(move || {
        let rest: Vec<String> = lines.by_ref().map_while(Result::ok).collect();
        (child.wait().unwrap(), rest)
    })
    .await
    .unwrap();
    assert!(status.success(), "{}", rest.join("\n"));
    until_gone(&container).await;
}
