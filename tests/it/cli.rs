//! The command as people and scripts use it: what stands on which stream, exit codes, JSON, refusals.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "tests read files, start the command, and fail by panicking"
)]

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// Prints `hello` on stdout and `oops` on stderr, then exits with 3.
pub(crate) const HELLO_WAT: &str = r#"(module
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (memory (export "memory") 1)
  (data (i32.const 64) "hello\n")
  (data (i32.const 96) "oops\n")
  (func $say (param $fd i32) (param $at i32) (param $len i32)
    (i32.store (i32.const 0) (local.get $at))
    (i32.store (i32.const 4) (local.get $len))
    (drop (call $write (local.get $fd) (i32.const 0) (i32.const 1) (i32.const 8))))
  (func (export "_start")
    (call $say (i32.const 1) (i32.const 64) (i32.const 6))
    (call $say (i32.const 2) (i32.const 96) (i32.const 5))
    (call $exit (i32.const 3))))"#;
pub(crate) const LOOP_WAT: &str = r#"(module (memory (export "memory") 1) (func (export "_start") (loop (br 0))))"#;

struct Run {
    folder: tempfile::TempDir,
}

impl Run {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn file(&self, name: &str, content: &str) -> &Self {
        let path = self.folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
        self
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    fn skillcell(&self, args: &[&str]) -> Output {
        self.command(args).stdin(Stdio::null()).output().unwrap()
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_skillcell"));
        command
            .current_dir(self.folder.path())
            .env("XDG_CACHE_HOME", self.folder.path().join("cache"))
            .env("SKILLCELL_TEST_SECRET", "hunter2")
            .args(args);
        command
    }
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// Code, stdout, stderr.
fn shown(output: &Output) -> (Option<i32>, &str, &str) {
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn leftovers(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("skillcell-"))
        .collect()
}

#[test]
fn a_script_speaks_on_its_own_streams_and_its_code_is_the_commands() {
    let run = Run::new();
    run.file("hello.wat", HELLO_WAT);
    assert_eq!(shown(&run.skillcell(&["run", "hello.wat"])), (Some(3), "hello\n", "oops\n"));
}

#[test]
fn json_is_one_document_with_everything() {
    let run = Run::new();
    run.file("hello.wat", HELLO_WAT);
    let output = run.skillcell(&["run", "hello.wat", "--json", "--fuel", "1000000"]);
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(3), ""));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["runtime"], "wasm");
    assert_eq!(document["termination"], serde_json::json!({"kind": "exited", "detail": 3}));
    assert_eq!(document["stdout"], serde_json::json!({"text": "hello\n", "bytes": 6, "dropped": 0}));
    assert_eq!(document["stderr"]["text"], "oops\n");
    assert_eq!(document["network_enforced"], true);
    assert_eq!(document["enforcement"]["controls"]["files"], "enforced");
    assert!(document["usage"]["fuel"].as_u64().unwrap() > 0, "{document}");
}

#[test]
fn errors_say_what_and_what_to_do_and_have_their_codes() {
    let run = Run::new();
    run.file("hello.wat", HELLO_WAT).file("bad.wasm", "not a module").file("notes.txt", "hello");
    for (args, code, says) in [
        (&["run", "missing.wasm"][..], 2, "missing.wasm"),
        (&["run", "hello.wat", "--runtime", "nosuch"], 2, "Unknown skill runtime 'nosuch'. Available: "),
        (&["run", "hello.wat", "--timeout", "soon"], 2, "'soon' is not a duration"),
        (&["run", "hello.wat", "--memory", "1"], 2, "memory limit must be between"),
        (
            &["run", "hello.wat", "--network", "bad"],
            2,
            "Unknown network policy 'bad'. Valid options: 'none', 'allowlist', 'host'.",
        ),
        (
            &["run", "hello.wat", "--network", "allowlist", "--allow-host", "a.com"],
            3,
            "can't enforce what was asked: network",
        ),
        (&["run", "hello.wat", "--pin", &"0".repeat(64)], 3, "is not what was pinned"),
        (&["run", "hello.wat", "--config", "colour=blue"], 2, "has no option 'colour'"),
        (&["run", "notes.txt"], 2, "nothing says what runs 'notes.txt'"),
        (&["run", "bad.wasm"], 2, "bad.wasm"),
        (&["run", "hello.wat", "--in", "nothing.csv"], 2, "nothing.csv"),
        (&["run", "hello.wat", "--env", "SKILLCELL_NO_SUCH"], 2, "--env SKILLCELL_NO_SUCH"),
        (&["run"], 2, "Usage: "),
    ] {
        let output = run.skillcell(args);
        let (got, stdout, stderr) = shown(&output);
        assert_eq!((got, stdout), (Some(code), ""), "{args:?}\n{stderr}");
        assert!(stderr.contains(says), "{args:?}\n{stderr}");
        assert!(!stderr.contains("panicked"), "{stderr}");
    }
}

#[cfg(feature = "local")]
#[test]
fn isolation_below_what_the_run_needs_is_refused_and_an_override_is_recorded() {
    let run = Run::new();
    run.file("a.sh", "echo ran\n");
    let base = ["run", "a.sh", "--runtime", "local", "--allow-advisory", "--audit", "audit.jsonl", "--require"];
    let refused = run.skillcell(&[&base[..], &["auto"]].concat());
    let (code, stdout, stderr) = shown(&refused);
    assert_eq!((code, stdout), (Some(3), ""), "{stderr}");
    assert!(stderr.contains("isolates by 'none', but this run needs at least 'wasm'"), "{stderr}");
    assert_eq!(shown(&run.skillcell(&[&base[..], &["none"]].concat())), (Some(0), "ran\n", ""));
    let log = fs::read_to_string(run.path("audit.jsonl")).unwrap();
    assert!(
        log.contains("the caller overrides the least isolation 'wasm' (code that reaches no network) with 'none'"),
        "{log}"
    );
}

#[cfg(target_os = "linux")]
#[test]
fn output_that_is_lost_is_a_failure() {
    let run = Run::new();
    run.file("hello.wat", HELLO_WAT);
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let output =
        run.command(&["run", "hello.wat"]).stdin(Stdio::null()).stdout(full).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    assert!(text(&output.stderr).contains("the script ran, but its output could not be written"), "{output:?}");
}

#[cfg(unix)]
#[test]
fn a_refused_link_is_a_denial_and_a_bad_out_folder_is_met_before_the_run() {
    let run = Run::new();
    run.file("skill/hello.wat", HELLO_WAT);
    std::os::unix::fs::symlink("/etc/passwd", run.path("skill/l")).unwrap();
    let refused = run.skillcell(&["run", "hello.wat", "--skill", "skill", "--audit", "audit.jsonl"]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let log = fs::read_to_string(run.path("audit.jsonl")).unwrap();
    let denials: Vec<&str> = log.lines().filter(|line| line.contains(r#""decision":"deny""#)).collect();
    assert!(matches!(denials[..], [one] if one.contains("is a link that leaves the tree")), "{log}");
    run.file("file", "x").file("hello.wat", HELLO_WAT);
    let refused = run.skillcell(&["run", "hello.wat", "--out", "file"]);
    assert_eq!(shown(&refused), (Some(2), "", "skillcell: error: --out file is not a folder; name a folder\n"));
    let refused = run.skillcell(&["run", "hello.wat", "--out", "file/below"]);
    let (code, stdout, stderr) = shown(&refused);
    assert_eq!((code, stdout), (Some(2), ""), "{stderr}");
    assert!(stderr.contains("results can't be put into 'file/below'"), "{stderr}");
    // Neither is anything made where nothing ran.
    assert!(!run.path("other").exists());
    let refused = run.skillcell(&["run", "missing.wat", "--out", "other/results"]);
    assert_eq!((refused.status.code(), run.path("other").exists()), (Some(2), false), "{refused:?}");
}

#[test]
fn an_error_is_a_document_too() {
    let run = Run::new();
    let output = run.skillcell(&["run", "missing.wasm", "--json"]);
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(2), ""));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["error"]["kind"], "not_found");
}

#[test]
fn the_time_limit_has_its_code_and_is_named() {
    let run = Run::new();
    run.file("loop.wat", LOOP_WAT);
    let output = run.skillcell(&["run", "loop.wat", "--timeout", "300ms"]);
    assert_eq!(shown(&output), (Some(124), "", "skillcell: the script was stopped at the time limit\n"));
}

#[cfg(feature = "local")]
#[test]
fn local_needs_one_explicit_word_and_then_runs_an_ordinary_script() {
    let run = Run::new();
    run.file("a.sh", "#!/bin/sh\ncat \"$WORKSPACE_IN/data.csv\" > \"$WORKSPACE_OUT/copy.csv\"\necho \"args: $*\"\nenv | grep -c hunter2\n")
        .file("data.csv", "a,b\n1,2\n");
    let refused = run.skillcell(&["run", "a.sh", "--runtime", "local"]);
    let (code, stdout, stderr) = shown(&refused);
    assert_eq!((code, stdout), (Some(3), ""), "{stderr}");
    assert!(
        stderr.contains("runtime 'local' can't enforce what was asked: files (unsupported), network (unsupported), wall_time (advisory), processes (advisory)"),
        "{stderr}"
    );
    assert!(stderr.contains("--allow-advisory"), "{stderr}");
    let output = run.skillcell(&[
        "run",
        "a.sh",
        "--runtime",
        "local",
        "--allow-advisory",
        "--in",
        "data.csv",
        "--out",
        "results",
        "--",
        "x; reboot",
        "$(id)",
    ]);
    // `grep -c` finds nothing, so it exits with 1.
    assert_eq!(shown(&output), (Some(1), "args: x; reboot $(id)\n0\n", ""));
    assert_eq!(fs::read_to_string(run.path("results/copy.csv")).unwrap(), "a,b\n1,2\n");
}

#[cfg(feature = "local")]
#[test]
fn results_never_replace_files_unless_asked() {
    let run = Run::new();
    run.file("a.sh", "echo new > \"$WORKSPACE_OUT/r.txt\"; echo more > \"$WORKSPACE_OUT/q.txt\"\n")
        .file("results/r.txt", "old");
    let args = ["run", "a.sh", "--runtime", "local", "--allow-advisory", "--out", "results"];
    let aside = |output: &Output| {
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert_eq!(fs::read_to_string(run.path("results/r.txt")).unwrap(), "old");
        assert!(!run.path("results/q.txt").exists(), "results stay together");
        let folders = fs::read_dir(run.path("results")).unwrap().map(|entry| entry.unwrap().path());
        folders.filter(|path| path.is_dir()).collect::<Vec<_>>()
    };
    let conflict = run.skillcell(&args);
    let [folder] = &aside(&conflict)[..] else { panic!("{conflict:?}") };
    // Nothing is lost, and the person is told where it is.
    assert_eq!(fs::read_to_string(folder.join("r.txt")).unwrap(), "new\n");
    assert_eq!(fs::read_to_string(folder.join("q.txt")).unwrap(), "more\n");
    let name = folder.file_name().unwrap().to_str().unwrap();
    assert_eq!(
        text(&conflict.stderr),
        format!(
            "skillcell: not replaced: 'r.txt' exists in 'results' already; choose another folder, or ask for files to be \
             replaced\nskillcell: all results are in 'results/{name}' instead\n"
        )
    );
    let conflict = run.skillcell(&[&args[..], &["--json"]].concat());
    assert_eq!(aside(&conflict).len(), 2);
    let document: Value = serde_json::from_slice(&conflict.stdout).unwrap();
    assert_eq!(
        (&document["exit_code"], &document["output_conflict"]["files"][0]["path"]),
        (&0.into(), &"r.txt".into())
    );
    let told = document["output_files"][1]["copied_to"].as_str().unwrap();
    assert_eq!(fs::read_to_string(run.path(told)).unwrap(), "new\n");
    let replaced = run.skillcell(&[&args[..], &["--overwrite"]].concat());
    assert_eq!(replaced.status.code(), Some(0), "{replaced:?}");
    assert_eq!(fs::read_to_string(run.path("results/r.txt")).unwrap(), "new\n");
}

#[cfg(feature = "local")]
#[test]
fn stdin_is_closed_unless_given() {
    let run = Run::new();
    run.file("cat.sh", "cat; echo end\n").file("in.txt", "from a file\n");
    let base = ["run", "cat.sh", "--runtime", "local", "--allow-advisory"];
    let pipe = |args: &[&str]| {
        let mut child =
            run.command(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(b"from the pipe\n").unwrap();
        child.wait_with_output().unwrap()
    };
    assert_eq!(shown(&pipe(&base)), (Some(0), "end\n", ""));
    assert_eq!(shown(&pipe(&[&base[..], &["--stdin", "-"]].concat())), (Some(0), "from the pipe\nend\n", ""));
    assert_eq!(
        shown(&run.skillcell(&[&base[..], &["--stdin", "in.txt"]].concat())),
        (Some(0), "from a file\nend\n", "")
    );
}

#[test]
fn a_lone_script_is_staged_alone_and_a_skill_whole() {
    let run = Run::new();
    run.file("skill/SKILL.md", "---\nname: x\ndescription: y\n---\n")
        .file("skill/scripts/hello.wat", HELLO_WAT)
        .file("skill/other.txt", "x");
    let output = run.skillcell(&["run", "scripts/hello.wat", "--skill", "skill"]);
    assert_eq!(shown(&output), (Some(3), "hello\n", "oops\n"));
    let escaped = run.skillcell(&["run", "../skill/scripts/hello.wat", "--skill", "skill"]);
    assert_eq!(escaped.status.code(), Some(2), "{escaped:?}");
    assert!(text(&escaped.stderr).contains("contains '..'"), "{escaped:?}");
}

#[test]
fn the_audit_file_has_every_boundary_in_order() {
    let run = Run::new();
    run.file("hello.wat", HELLO_WAT);
    run.skillcell(&["run", "hello.wat", "--audit", "audit.jsonl"]);
    let refused = run.skillcell(&[
        "run",
        "hello.wat",
        "--audit",
        "audit.jsonl",
        "--network",
        "allowlist",
        "--allow-host",
        "a.com",
    ]);
    assert_eq!(refused.status.code(), Some(3));
    let log = fs::read_to_string(run.path("audit.jsonl")).unwrap();
    let events: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let actions: Vec<(u64, &str, &str)> = events
        .iter()
        .map(|event| {
            (event["seq"].as_u64().unwrap(), event["action"].as_str().unwrap(), event["decision"].as_str().unwrap())
        })
        .collect();
    assert_eq!(
        actions,
        [
            (0, "plan", "allow"),
            (1, "gate", "allow"),
            (2, "verify", "allow"),
            (3, "stage", "allow"),
            (4, "run", "allow"),
            (5, "result", "allow"),
            (6, "close", "allow"),
            (0, "plan", "allow"),
            (1, "gate", "deny"),
            (2, "result", "allow"),
            (3, "close", "allow"),
        ],
        "{log}"
    );
}

#[test]
fn a_changed_audit_file_is_reported_and_not_continued() {
    let run = Run::new();
    run.file("hello.wat", HELLO_WAT);
    run.skillcell(&["run", "hello.wat", "--audit", "audit.jsonl"]);
    let intact = run.skillcell(&["audit", "verify", "audit.jsonl"]);
    assert!(text(&intact.stdout).starts_with("intact: 7 events of 1 runs, last hash "), "{intact:?}");
    assert_eq!(intact.status.code(), Some(0));
    assert!(text(&run.skillcell(&["audit", "show", "audit.jsonl"]).stdout).lines().count() == 7);
    let log = fs::read_to_string(run.path("audit.jsonl")).unwrap();
    run.file("audit.jsonl", &log.replacen("enforced", "enfeebled", 1));
    let changed = run.skillcell(&["audit", "verify", "audit.jsonl"]);
    assert_eq!(changed.status.code(), Some(3));
    assert!(text(&changed.stdout).contains("audit.jsonl:2: the line was changed"), "{changed:?}");
    run.file("audit.jsonl", &log[..log.len() - 5]);
    let refused = run.skillcell(&["run", "hello.wat", "--audit", "audit.jsonl"]);
    assert_eq!(refused.status.code(), Some(4), "{refused:?}");
    assert!(text(&refused.stderr).contains("does not end in a whole sealed event"), "{refused:?}");
    let missing = run.skillcell(&["audit", "verify", "nothing.jsonl"]);
    assert_eq!(missing.status.code(), Some(2));
}

#[test]
fn nothing_is_left_behind() {
    let run = Run::new();
    run.file("hello.wat", HELLO_WAT).file("loop.wat", LOOP_WAT).file("bad.wasm", "x");
    let temporary = run.path("temporary");
    fs::create_dir(&temporary).unwrap();
    for args in [
        &["run", "hello.wat"][..],
        &["run", "bad.wasm"],
        &["run", "loop.wat", "--timeout", "200ms"],
        &["run", "hello.wat", "--in", "nothing"],
    ] {
        run.command(args).env("TMPDIR", &temporary).output().unwrap();
        assert_eq!(leftovers(&temporary), Vec::<String>::new(), "{args:?}");
    }
}

#[test]
fn what_a_killed_process_left_is_removed_by_the_next() {
    let run = Run::new();
    run.file("loop.wat", LOOP_WAT).file("hello.wat", HELLO_WAT);
    let temporary = run.path("temporary");
    fs::create_dir(&temporary).unwrap();
    let mut child =
        run.command(&["run", "loop.wat", "--audit", "audit.jsonl"]).env("TMPDIR", &temporary).spawn().unwrap();
    while !fs::read_to_string(run.path("audit.jsonl")).is_ok_and(|log| log.contains("\"action\":\"run\"")) {
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(leftovers(&temporary).len(), 1, "a killed process can't clean up");
    run.command(&["run", "hello.wat"]).env("TMPDIR", &temporary).output().unwrap();
    assert_eq!(leftovers(&temporary), Vec::<String>::new());
}

#[test]
fn an_interrupt_ends_the_script_and_leaves_nothing() {
    let run = Run::new();
    run.file("loop.wat", LOOP_WAT);
    let temporary = run.path("temporary");
    fs::create_dir(&temporary).unwrap();
    let mut child = run
        .command(&["run", "loop.wat", "--audit", "audit.jsonl"])
        .env("TMPDIR", &temporary)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The audit trail says when the script runs.
    while !fs::read_to_string(run.path("audit.jsonl")).is_ok_and(|log| log.contains("\"action\":\"run\"")) {
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        std::thread::yield_now();
    }
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    assert_eq!(leftovers(&temporary), Vec::<String>::new());
}

#[test]
fn runtimes_tells_what_is_here_and_what_is_enforced() {
    let run = Run::new();
    let output = run.skillcell(&["runtimes"]);
    let (code, stdout, stderr) = shown(&output);
    assert_eq!((code, stderr), (Some(0), ""));
    assert!(
        stdout.contains("wasm ") && stdout.contains("available") && stdout.contains("files: only the workspace"),
        "{stdout}"
    );
    let document: Value = serde_json::from_slice(&run.skillcell(&["runtimes", "--json"]).stdout).unwrap();
    let wasm =
        document["runtimes"].as_array().unwrap().iter().find(|runtime| runtime["name"] == "wasm").unwrap().clone();
    assert_eq!(wasm["availability"]["state"], "available");
    assert_eq!(wasm["enforces"]["files: only the workspace"], "enforced");
}

#[test]
fn completions_and_help_print() {
    let run = Run::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = run.skillcell(&["completions", shell]);
        assert!(output.status.success() && text(&output.stdout).contains("skillcell"), "{shell}: {output:?}");
    }
    let help = run.skillcell(&["run", "--help"]);
    assert!(text(&help.stdout).contains("Examples:\n  skillcell run report.wasm"), "{help:?}");
    assert!(!text(&help.stdout).contains('\u{1b}'), "no colours outside a terminal");
}
