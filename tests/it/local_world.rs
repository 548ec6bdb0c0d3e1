//! What a script of runtime `local` is given, and the limits of what it may use.

use std::io::Write;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use skillcell::ErrorKind;
use skillcell::policy::Limits;
use skillcell::runtime::{OutputSink, RunCommand, Stdin, Stream, Termination};

use crate::local_support::{Prepared, shell};

#[tokio::test]
async fn arguments_arrive_one_by_one() {
    let prepared = Prepared::new(Limits::default()).await;
    prepared.script("show", "#!/bin/sh\nfor a in \"$@\"; do printf '<%s>' \"$a\"; done\n");
    let hostile = ["-rf", ";reboot", "$(id)", "a\nb", "`id`", "", "*", "'\"", "ü"];
    let argv = ["/workspace/skill/show"].into_iter().chain(hostile);
    let result = prepared.run(&RunCommand::new(argv).unwrap()).await.unwrap();
    let expected: String = hostile.iter().map(|argument| format!("<{argument}>")).collect();
    assert_eq!((result.termination, result.stdout.text()), (Termination::Exited(0), expected));
}

#[tokio::test]
async fn the_environment_is_exact_and_paths_lead_into_the_workspace() {
    let prepared = Prepared::new(Limits::default()).await;
    let mut command = RunCommand::new(["env", "-0"]).unwrap();
    command.env.set("GIVEN", "a=b\nc").unwrap();
    command.env.set("LANG", "C").unwrap();
    command.env.set("FILE", "/workspace/in/x").unwrap();
    let result = prepared.run(&command).await.unwrap();
    let text = result.stdout.text();
    let mut variables: Vec<(&str, &str)> =
        text.split_terminator('\0').map(|pair| pair.split_once('=').unwrap()).collect();
    variables.sort_unstable();
    let root = prepared.workspace.ambient_root().canonicalize().unwrap();
    let path = |inside: &str| root.join(inside).to_str().unwrap().to_owned();
    let (skill, inputs, out, tmp, file) = (path("skill"), path("in"), path("out"), path("tmp"), path("in/x"));
    let expected = [
        ("FILE", file.as_str()),
        ("GIVEN", "a=b\nc"),
        ("HOME", &tmp),
        ("LANG", "C"),
        ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
        ("PWD", &skill),
        ("PYTHONDONTWRITEBYTECODE", "1"),
        ("SKILL_DIR", &skill),
        ("TMPDIR", &tmp),
        ("WORKSPACE_IN", &inputs),
        ("WORKSPACE_OUT", &out),
    ];
    assert_eq!(variables, expected);
    let result = prepared.shell("pwd -P; cd \"$WORKSPACE_OUT\" && echo data > f").await;
    assert_eq!(result.stdout.text(), format!("{skill}\n"));
    let read = prepared.runtime.read_file(&prepared.handle, &"/workspace/out/f".parse().unwrap(), 100).await.unwrap();
    assert_eq!(&read[..], b"data\n");
}

#[tokio::test]
async fn only_the_three_standard_descriptors_are_open() {
    let prepared = Prepared::new(Limits::default()).await;
    let secret = tempfile::tempfile().unwrap();
    // One that would be inherited, as an embedder's may be.
    rustix::io::fcntl_setfd(&secret, rustix::io::FdFlags::empty()).unwrap();
    assert!(secret.as_raw_fd() > 2);
    // `ls` itself holds one more: the folder it reads.
    let result = prepared.run(&RunCommand::new(["ls", "/proc/self/fd"]).unwrap()).await.unwrap();
    assert_eq!(result.stdout.text(), "0\n1\n2\n3\n");
    let result = prepared.shell("readlink /proc/self/fd/0; readlink /proc/self/fd/3 || echo none").await;
    assert_eq!(result.stdout.text(), "/dev/null\nnone\n");
}

#[tokio::test]
async fn standard_input_is_closed_or_what_was_given() {
    let prepared = Prepared::new(Limits::default()).await;
    let big = vec![b'x'; 300_000];
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(b"from a file").unwrap();
    std::io::Seek::rewind(&mut file).unwrap();
    for (stdin, expected) in [
        (Stdin::Closed, "0"),
        (Stdin::Bytes(big.clone().into()), "300000"),
        (Stdin::Bytes(bytes::Bytes::new()), "0"),
        (Stdin::File(Arc::new(file)), "11"),
    ] {
        let mut command = RunCommand::new(["wc", "-c"]).unwrap();
        command.stdin = stdin;
        assert_eq!(prepared.run(&command).await.unwrap().stdout.text().trim(), expected);
    }
    // A guest that doesn't read, and a source that never ends.
    let mut command = shell("exit 7");
    command.stdin = Stdin::Bytes(big.into());
    assert_eq!(prepared.run(&command).await.unwrap().termination, Termination::Exited(7));
    let (read, _write) = rustix::pipe::pipe().unwrap();
    command.stdin = Stdin::File(Arc::new(read.into()));
    assert_eq!(prepared.run(&command).await.unwrap().termination, Termination::Exited(7));
}

#[tokio::test]
async fn what_cannot_be_started_says_what_to_do() {
    let prepared = Prepared::new(Limits::default()).await;
    prepared.script("no-interpreter", "#!/nonexistent/interpreter\n");
    prepared.script("module.wasm", "");
    let skill = prepared.workspace.area(skillcell::workspace::Area::Skill);
    skill.create("plain.py").unwrap();
    skill.symlink("no-interpreter", "link").unwrap();
    for (program, kind, message) in [
        (
            "nosuchprogram",
            ErrorKind::NotFound,
            "no program 'nosuchprogram' in a trusted folder of PATH; install it, or use a runtime that brings its own",
        ),
        ("/workspace/skill/none", ErrorKind::NotFound, "'/workspace/skill/none' does not exist"),
        (
            "/workspace/skill/module.wasm",
            ErrorKind::InvalidConfig,
            "'/workspace/skill/module.wasm' is a WebAssembly module, which this machine can't run as a program; use --runtime wasm",
        ),
        (
            "/workspace/skill/plain.py",
            ErrorKind::InvalidConfig,
            "'/workspace/skill/plain.py' has no execute permission; set it in the skill, or name the interpreter first (python3 /workspace/skill/plain.py)",
        ),
        (
            "/workspace/skill/link",
            ErrorKind::PathDenied,
            "'/workspace/skill/link' is not a regular file, so it can't be run",
        ),
        ("/workspace/skill", ErrorKind::PathDenied, "'/workspace/skill' is not a regular file, so it can't be run"),
        (
            "/bin/sh",
            ErrorKind::PathDenied,
            "path '/bin/sh' lies outside /workspace; use /workspace/in, /workspace/out or /workspace/skill",
        ),
        ("../bin/sh", ErrorKind::PathDenied, "path '../bin/sh' is relative; guest paths begin with /workspace/"),
        (
            "/workspace/skill/no-interpreter",
            ErrorKind::NotFound,
            "the program could not be started: it, or the interpreter that its first line names, does not exist (program: /workspace/skill/no-interpreter)",
        ),
    ] {
        let error = prepared.run(&RunCommand::new([program]).unwrap()).await.unwrap_err();
        assert_eq!((error.kind(), error.to_string()), (kind, message.to_owned()));
        let root = prepared.workspace.ambient_root().to_str().unwrap();
        assert!(!error.chain().join("\n").contains(root), "{:?}", error.chain());
    }
    let mut command = shell("pwd");
    command.cwd = "/workspace/out/none".parse().unwrap();
    assert_eq!(prepared.run(&command).await.unwrap_err().to_string(), "'/workspace/out/none' does not exist");
    skill.symlink("../..", "away").unwrap();
    command.cwd = "/workspace/skill/away".parse().unwrap();
    assert_eq!(prepared.run(&command).await.unwrap_err().kind(), ErrorKind::PathDenied);
}

#[tokio::test]
async fn a_planted_interpreter_is_not_taken() {
    let prepared = Prepared::new(Limits::default()).await;
    prepared.script("sh", "#!/bin/false\n");
    let mut command = shell("echo real");
    command.env.set("PATH", "/workspace/skill").unwrap();
    assert_eq!(prepared.run(&command).await.unwrap().stdout.text(), "real\n");
}

#[tokio::test]
async fn every_limit_ends_the_run_under_its_own_name() {
    let base = || Limits { wall_time: Duration::from_secs(100), ..Limits::default() };
    let python = |code: &str| RunCommand::new(["python3", "-c", code]).unwrap();
    let endless = shell("yes");
    let gigabyte = shell("head -c 1073741824 /dev/zero");
    let one_line_on_stderr = shell("head -c 20000000 /dev/zero >&2; sleep 100");
    let spin = shell("while :; do :; done");
    let spinners = shell("for i in 1 2 3 4; do (while :; do :; done) & done; wait");
    let fill = shell("while :; do head -c 1000000 /dev/zero >> \"$WORKSPACE_OUT/f$((i+=1))\"; done");
    let sparse = shell("exec truncate -s 10G \"$WORKSPACE_OUT/f\"");
    let quick_fill =
        shell("for d in OUT TMP; do head -c 3000000 /dev/zero > $SKILL_DIR/../$(echo $d | tr A-Z a-z)/f; done");
    let many = shell("while :; do : > \"$WORKSPACE_OUT/f$((i+=1))\"; done");
    let hogs = python(
        "import os,time\nfor _ in range(4):\n  if not os.fork(): b=b'x'*60_000_000; time.sleep(100)\ntime.sleep(100)",
    );
    let cpu = Some(Duration::from_secs(1));
    for (name, command, limits, termination, limit) in [
        ("endless output", &endless, Limits { output: 1 << 20, ..base() }, Termination::OutputLimit, "output_limit"),
        ("a gigabyte", &gigabyte, base(), Termination::OutputLimit, "output_limit"),
        (
            "no newline",
            &one_line_on_stderr,
            Limits { output: 10_000_000, ..base() },
            Termination::OutputLimit,
            "output_limit",
        ),
        ("one spinner", &spin, Limits { cpu_time: cpu, ..base() }, Termination::OutOfFuel, "cpu_limit"),
        ("four spinners", &spinners, Limits { cpu_time: cpu, ..base() }, Termination::OutOfFuel, "cpu_limit"),
        ("many files' bytes", &fill, Limits { disk: 20_000_000, ..base() }, Termination::DiskLimit, "disk_limit"),
        ("a sparse file", &sparse, base(), Termination::DiskLimit, "disk_limit"),
        ("written at the end", &quick_fill, Limits { disk: 5_000_000, ..base() }, Termination::DiskLimit, "disk_limit"),
        ("many files", &many, Limits { files: 500, ..base() }, Termination::DiskLimit, "disk_limit"),
        ("many hogs", &hogs, Limits { memory: 100 << 20, ..base() }, Termination::OutOfMemory, "memory_limit"),
    ] {
        let prepared = Prepared::new(limits.clone()).await;
        let result = prepared.run(command).await.unwrap();
        assert_eq!(result.termination, termination, "{name}: {} {}", result.stderr.text().len(), result.stdout.total());
        assert_eq!(prepared.limits_hit(), [limit], "{name}");
        assert!(result.stdout.bytes().len() as u64 <= limits.output_kept + 64, "{name}");
    }
    // One process that asks for too much is refused by the kernel and says so itself.
    let prepared = Prepared::new(Limits { memory: 100 << 20, ..base() }).await;
    let result = prepared.run(&python("b = b'x' * 500_000_000")).await.unwrap();
    assert_eq!(result.termination, Termination::Exited(1));
    assert!(result.stderr.text().contains("MemoryError"), "{}", result.stderr.text());
    let result =
        prepared.run(&python("import resource\nfs=[]\nwhile True: fs.append(open('/dev/null'))")).await.unwrap();
    assert!(result.stderr.text().contains("Too many open files"), "{}", result.stderr.text());
    // The twin: within the limits all is well.
    let result = prepared.run(&python("b = b'x' * 10_000_000; print(len(b))")).await.unwrap();
    assert_eq!((result.termination, result.stdout.text()), (Termination::Exited(0), "10000000\n".into()));
    assert!(result.usage.peak_memory.unwrap() > 10_000_000 && result.usage.cpu_time.unwrap() > Duration::ZERO);
}

#[tokio::test]
async fn output_is_heard_while_it_comes_and_counted_whole() {
    struct Heard(Mutex<Vec<(Stream, Vec<u8>)>>);
    impl OutputSink for Heard {
        fn write(&self, stream: Stream, bytes: &[u8]) {
            self.0.lock().unwrap().push((stream, bytes.to_vec()));
        }
    }
    let heard = Arc::new(Heard(Mutex::default()));
    let prepared = Prepared::new(Limits { output_kept: 10, ..Limits::default() }).await;
    let mut command = shell("echo out; head -c 100000 /dev/zero | tr '\\0' x >&2");
    command.sink = Some(heard.clone());
    let result = prepared.run(&command).await.unwrap();
    assert_eq!(result.stdout.text(), "out\n");
    assert_eq!(result.stderr.text(), "xxxxx\n[... 99990 bytes not kept ...]\nxxxxx");
    assert_eq!((result.stderr.total(), result.truncated()), (100_000, true));
    let heard = heard.0.lock().unwrap();
    let of = |wanted| heard.iter().filter(|(stream, _)| *stream == wanted).map(|(_, bytes)| bytes.len()).sum::<usize>();
    assert_eq!((of(Stream::Stdout), of(Stream::Stderr)), (4, 100_000));
}

#[tokio::test]
async fn strict_mode_is_refused_before_anything_starts() {
    let runtime = skillcell::get_skill_runtime("local").unwrap();
    let error = runtime.enforcement(&skillcell::SandboxPolicy::default()).gate().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PolicyUnenforceable);
    assert!(error.to_string().contains("files (unsupported), network (unsupported)"), "{error}");
}
