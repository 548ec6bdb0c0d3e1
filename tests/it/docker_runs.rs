//! Runtime `docker`: what a command sees and what comes back.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use serde_json::json;
use skillcell::ErrorKind;
use skillcell::policy::Limits;
use skillcell::runtime::{OutputSink, RunCommand, Stdin, Stream, Termination};
use skillcell::workspace::Area;

use super::docker_support::{Prepared, Setup, shell};

#[tokio::test(flavor = "multi_thread")]
async fn output_exit_codes_and_signals_are_the_scripts_own() {
    let prepared = Prepared::new().await;
    for (line, stdout, stderr, termination) in [
        ("echo out; echo err >&2", "out\n", "err\n", Termination::Exited(0)),
        ("printf no-newline", "no-newline", "", Termination::Exited(0)),
        ("exit 3", "", "", Termination::Exited(3)),
        // CARL takes 125 for docker's own failure, and 126 and 127 are no errors either.
        ("exit 125", "", "", Termination::Exited(125)),
        ("exit 126", "", "", Termination::Exited(126)),
        ("exit 127", "", "", Termination::Exited(127)),
        ("exit 137", "", "", Termination::Exited(137)),
        ("kill -TERM $$", "", "", Termination::Signaled(15)),
        ("kill -KILL $$", "", "", Termination::Signaled(9)),
    ] {
        let result = prepared.shell(line).await;
        assert_eq!(
            (result.stdout.text().as_str(), result.stderr.text().as_str(), result.termination),
            (stdout, stderr, termination),
            "{line}"
        );
    }
    prepared.cleanup().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_is_an_argument_vector() {
    let prepared = Prepared::new().await;
    let odd = ["", "a b", "$(id)", "; reboot", "-rf", "two\nlines", "ü", "'\""];
    let mut argv = vec!["python3", "-c", "import sys, json; print(json.dumps(sys.argv[1:]))"];
    argv.extend(odd);
    let result = prepared.run(&RunCommand::new(argv).unwrap()).await;
    assert_eq!(serde_json::from_str::<Vec<String>>(&result.stdout.text()).unwrap(), odd);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_guests_world() {
    let files = vec![(Area::Skill, "hello.txt", "hi"), (Area::In, "data.csv", "1,2")];
    let prepared = Setup { files, ..Setup::default() }.prepare().await;
    assert_eq!(prepared.output("pwd; cat hello.txt ../in/data.csv").await, "/workspace/skill\nhi1,2");
    let expected = "HOME=/workspace/tmp\nLANG=C.UTF-8\nPATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n\
        PWD=/workspace/skill\nPYTHONDONTWRITEBYTECODE=1\nSKILL_DIR=/workspace/skill\nTMPDIR=/workspace/tmp\n\
        WORKSPACE_IN=/workspace/in\nWORKSPACE_OUT=/workspace/out";
    let mut env: Vec<String> =
        prepared.run(&RunCommand::new(["env"]).unwrap()).await.stdout.text().lines().map(str::to_owned).collect();
    env.sort();
    assert_eq!(env.join("\n"), expected);
    let mut command = shell("echo $SECRET; pwd");
    command.env.set("SECRET", "s3cret").unwrap();
    command.cwd = Area::Out.guest_path();
    assert_eq!(prepared.run(&command).await.stdout.text(), "s3cret\n/workspace/out\n");
    prepared.cleanup().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_run_writes_the_next_one_and_the_host_see() {
    let prepared = Prepared::new().await;
    prepared.output("mkdir -p /workspace/out/a; echo 1 > /workspace/out/a/x; chmod 600 /workspace/out/a/x; echo 2 > /workspace/tmp/y").await;
    assert_eq!(
        prepared
            .output("echo 3 >> /workspace/out/a/x; cat /workspace/out/a/x; rm /workspace/tmp/y; ls /workspace/tmp")
            .await,
        "1\n3"
    );
    let path = "/workspace/out/a/x".parse().unwrap();
    assert_eq!(prepared.runtime.read_file(&prepared.handle, &path, 100).await.unwrap(), "1\n3\n");
    // And the other way: the guest may change and remove what the host wrote.
    prepared
        .runtime
        .write_file(&prepared.handle, &"/workspace/out/b/c/new.txt".parse().unwrap(), b"host")
        .await
        .unwrap();
    assert_eq!(
        prepared.output("cd /workspace/out/b/c; echo guest >> new.txt; cat new.txt; mv new.txt ../old; ls .. ").await,
        "hostguest\nc\nold"
    );
    prepared.cleanup().await;
    prepared.workspace.remove().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn standard_input_arrives_whole_and_is_closed_otherwise() {
    let prepared = Prepared::new().await;
    assert_eq!(prepared.output("cat; echo end").await, "end");
    let big: Vec<u8> = (0..3_000_000u32).flat_map(u32::to_le_bytes).collect();
    let mut command = RunCommand::new([
        "python3",
        "-c",
        "import sys, hashlib; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())",
    ])
    .unwrap();
    command.stdin = Stdin::Bytes(big.clone().into());
    let expected = {
        use sha2::Digest;
        sha2::Sha256::digest(&big).iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    assert_eq!(prepared.run(&command).await.stdout.text().trim_end(), expected);
    // A guest that doesn't read holds up nothing.
    let mut command = shell("exit 7");
    command.stdin = Stdin::Bytes(big.into());
    assert_eq!(prepared.run(&command).await.termination, Termination::Exited(7));
    // From an open file.
    let mut file = tempfile::tempfile().unwrap();
    std::io::Write::write_all(&mut file, b"from a file").unwrap();
    std::io::Seek::rewind(&mut file).unwrap();
    let mut command = shell("cat");
    command.stdin = Stdin::File(Arc::new(file));
    assert_eq!(prepared.run(&command).await.stdout.text(), "from a file");
    // From a pipe that nobody closes: the run's end doesn't wait for it.
    let (reader, _writer) = std::io::pipe().unwrap();
    let mut command = shell("echo done");
    command.stdin = Stdin::File(Arc::new(std::fs::File::from(std::os::fd::OwnedFd::from(reader))));
    assert_eq!(prepared.run(&command).await.stdout.text(), "done\n");
    prepared.cleanup().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn several_runs_at_once_on_one_handle() {
    let prepared = Prepared::new().await;
    let runs = (0..8).map(|number| {
        let prepared = &prepared;
        async move { prepared.output(&format!("echo start{number}; sleep 0.2; echo end{number}")).await }
    });
    let outputs = futures_util::future::join_all(runs).await;
    let expected: Vec<String> = (0..8).map(|number| format!("start{number}\nend{number}")).collect();
    assert_eq!(outputs, expected);
    prepared.cleanup().await;
}

#[derive(Default)]
struct Heard(Mutex<(Vec<u8>, Vec<u8>)>);

impl OutputSink for Heard {
    fn write(&self, stream: Stream, bytes: &[u8]) {
        let mut heard = self.0.lock().unwrap();
        match stream {
            Stream::Stdout => heard.0.extend_from_slice(bytes),
            Stream::Stderr => heard.1.extend_from_slice(bytes),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listener_hears_the_output_and_nothing_else() {
    let prepared = Prepared::new().await;
    let heard = Arc::new(Heard::default());
    let mut command = shell("echo out; echo err >&2; exit 1");
    command.sink = Some(heard.clone());
    let result = prepared.run(&command).await;
    assert_eq!(*heard.0.lock().unwrap(), (b"out\n".to_vec(), b"err\n".to_vec()));
    assert_eq!((result.stdout.head(), result.stderr.head()), (&b"out\n"[..], &b"err\n"[..]));
    prepared.cleanup().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_can_not_be_started_is_an_error_that_says_what_to_do() {
    let files = vec![(Area::Skill, "plain.txt", "x")];
    let prepared = Setup { files, ..Setup::default() }.prepare().await;
    let in_folder = |folder: &str| {
        let mut command = shell("true");
        command.cwd = folder.parse().unwrap();
        command
    };
    for (command, kind, message) in [
        (
            RunCommand::new(["nosuchprogram"]).unwrap(),
            ErrorKind::NotFound,
            "'nosuchprogram' can't be started: no such file or directory; it, or the interpreter that its first line names, is not in the image; choose another image or program",
        ),
        (
            RunCommand::new(["/workspace/skill/plain.txt"]).unwrap(),
            ErrorKind::PathDenied,
            "'/workspace/skill/plain.txt' can't be started: permission denied; give it execute permission, or name its interpreter first",
        ),
        (
            in_folder("/workspace/out/none"),
            ErrorKind::NotFound,
            "'/workspace/out/none' can't be the current folder: no such file or directory",
        ),
    ] {
        let error = prepared.try_run(&command).await.unwrap_err();
        assert_eq!((error.kind(), error.to_string().as_str()), (kind, message));
    }
    prepared.cleanup().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_is_not_there_is_an_error_that_says_what_to_do() {
    for (config, kind, message) in [
        (
            json!({"image": "skillcell-test:absent"}),
            ErrorKind::NotFound,
            "the docker daemon has no image 'skillcell-test:absent'; fetch it (`docker pull skillcell-test:absent`), or set runtime_config['pull'] to 'missing'",
        ),
        // The registry is a port of loopback where nobody listens.
        (
            json!({"image": "127.0.0.1:1/none:1", "pull": "missing"}),
            ErrorKind::Unavailable,
            "image '127.0.0.1:1/none:1' could not be pulled; check its name and that the daemon reaches its registry, or load it (`docker load`)",
        ),
        (
            json!({"oci_runtime": "nosuch"}),
            ErrorKind::Unavailable,
            "this docker daemon has no OCI runtime 'nosuch'; it has: ",
        ),
    ] {
        let error = Setup::config(config).try_prepare().await.map(drop).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().starts_with(message), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_is_measured() {
    let prepared = Setup::limits(Limits { wall_time: Duration::from_secs(60), ..Limits::default() }).prepare().await;
    let result = prepared
        .run(&RunCommand::new(["python3", "-c", "x = bytearray(50_000_000); [i for i in range(1_000_000)]"]).unwrap())
        .await;
    assert!(result.success(), "{}", result.stderr.text());
    assert!(result.usage.peak_memory.unwrap() > 50_000_000, "{:?}", result.usage);
    assert!(result.usage.cpu_time.unwrap() > Duration::from_millis(5), "{:?}", result.usage);
    prepared.cleanup().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_supervisor_that_waits_serves_one_run_and_a_dead_one_is_passed_over() {
    let prepared = Prepared::new().await;
    for number in 0..6 {
        assert_eq!(prepared.output(&format!("echo {number}; mkdir /workspace/tmp/{number}")).await, number.to_string());
    }
    // One run ends, which has the next supervisor started; the other kills whatever supervisor isn't its own, which may
    // be that of the first one, at its very end.
    let killer = "while [ ! -e /workspace/tmp/ends ]; do :; done; while :; do for p in /proc/[0-9]*; do n=${p#/proc/}; \
                  [ $n = $PPID ] && continue; grep -qs ^/.skillcell-init.run $p/cmdline && kill -9 $n && exit 0; done; done";
    let (_, killed) = tokio::join!(prepared.shell("touch /workspace/tmp/ends"), prepared.shell(killer));
    assert!(killed.success(), "{}", killed.termination);
    for number in 0..6 {
        assert_eq!(prepared.output(&format!("echo {number}; rmdir /workspace/tmp/{number}")).await, number.to_string());
    }
    prepared.cleanup().await;
}
