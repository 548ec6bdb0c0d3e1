//! Python skill scripts on the wasm runtime, with the interpreter that is built in.
//!
//! What the interpreter itself does is proved by `skillcell-wasm-tools pack verify python --run`; these tests show that
//! it does so in skillcell's world: workspace, limits, exit codes, streams.

#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests start the command, make host files, and fail by unwrapping"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A skill with the pack's own test scripts and what a test adds.
struct Skill {
    folder: tempfile::TempDir,
}

impl Skill {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let skill = folder.path().join("skill");
        fs::create_dir(&skill).unwrap();
        fs::write(skill.join("SKILL.md"), "---\nname: skill\ndescription: Tests Python.\n---\n").unwrap();
        let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("wasm-tools/packs/python/tests/skill");
        for script in fs::read_dir(scripts).unwrap() {
            let path = script.unwrap().path();
            if path.is_file() {
                fs::copy(&path, skill.join(path.file_name().unwrap())).unwrap();
            }
        }
        Self { folder }
    }

    fn script(&self, name: &str, text: &str) -> &Self {
        fs::write(self.path("skill").join(name), text).unwrap();
        self
    }

    fn input(&self, name: &str, text: &str) -> String {
        fs::write(self.path(name), text).unwrap();
        self.path(name).to_str().unwrap().to_owned()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn run(&self, script: &str, options: &[&str], arguments: &[&str]) -> Output {
        // The first call on a machine compiles the interpreter; all tests share what it made.
        let patience: &[&str] = if options.contains(&"--timeout") { &[] } else { &["--timeout", "600s"] };
        Command::new(env!("CARGO_BIN_EXE_skillcell"))
            .args(["run", "--runtime", "wasm", "--skill", self.path("skill").to_str().unwrap(), script])
            .args(patience)
            .args(options)
            .arg("--")
            .args(arguments)
            .env("XDG_CACHE_HOME", Path::new(env!("CARGO_TARGET_TMPDIR")).join("python-cache"))
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }
}

/// Exit code, stdout, stderr.
fn outcome(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn stdout(output: &Output) -> String {
    let (code, stdout, stderr) = outcome(output);
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    stdout
}

#[test]
fn a_skill_script_reads_inputs_and_leaves_results() {
    let skill = Skill::new();
    let rates = skill.input("rates.json", r#"{"EUR": 1, "USD": 0.5}"#);
    let sales = skill.input("sales.csv", "city,amount,currency\nBern,10,EUR\nAarau,4,USD\nBern,6,USD\n");
    let out = skill.path("results");
    let output = skill.run("report.py", &["--in", &rates, "--in", &sales, "--out", out.to_str().unwrap()], &[]);
    assert_eq!(stdout(&output), "Aarau: 2.00\nBern: 13.00\nrows 3\n");
    assert_eq!(fs::read_to_string(out.join("report.txt")).unwrap(), "Aarau: 2.00\nBern: 13.00\n");
    assert!(fs::read(out.join("sales.db")).unwrap().starts_with(b"SQLite format 3\0"));
    assert!(fs::read(out.join("report.zip")).unwrap().starts_with(b"PK\x03\x04"));
}

#[test]
fn arguments_working_folder_and_siblings_are_those_of_python() {
    let skill = Skill::new();
    assert_eq!(stdout(&skill.run("hello.py", &[], &["a b", "-x", "ü"])), "hello a b -x ü\n");
    skill.script(
        "where.py",
        "import os, sys, sibling, tempfile\n\
         print(sibling.NAME, sys.path[0], os.getcwd(), sys.argv[0], tempfile.gettempdir())\n",
    );
    let expected = "sibling /workspace/skill /workspace/skill /workspace/skill/where.py /workspace/tmp\n";
    assert_eq!(stdout(&skill.run("where.py", &[], &[])), expected);
}

#[test]
fn a_failed_script_is_a_result_with_its_traceback_and_code() {
    let skill = Skill::new();
    let (code, out, err) = outcome(&skill.run("fails.py", &[], &[]));
    assert_eq!((code, out.as_str()), (Some(1), ""), "{err}");
    assert!(err.contains("  File \"/workspace/skill/fails.py\", line 2, in inner\n"), "{err}");
    assert!(err.ends_with("KeyError: 'missing'\n"), "{err}");
    skill.script("code.py", "import sys\nprint('out')\nprint('err', file=sys.stderr)\nsys.exit(222)\n");
    assert_eq!(outcome(&skill.run("code.py", &[], &[])), (Some(222), "out\n".to_owned(), "err\n".to_owned()));
}

#[test]
fn every_folder_keeps_its_rights_and_nothing_else_is_there() {
    let skill = Skill::new();
    let input = skill.input("a.txt", "input");
    let expected = "read in worked\nwrite in PermissionError\ncreate in skill PermissionError\n\
                    delete in PermissionError\nwrite out worked\nwrite tmp worked\nclimb FileNotFoundError\n\
                    passwd FileNotFoundError\nlink out PermissionError\nwrite library PermissionError\n";
    assert_eq!(stdout(&skill.run("rights.py", &["--in", &input], &[])), expected);
    assert!(!skill.path("skill").join("new.txt").exists());
    skill.script("look.py", "import os\nprint(sorted(os.environ))\nprint(os.listdir('/usr/local/lib'))\n");
    let expected = "['HOME', 'LANG', 'PATH', 'PWD', 'SKILL_DIR', 'TMPDIR', 'WORKSPACE_IN', 'WORKSPACE_OUT']\n\
                    ['python313.zip']\n";
    assert_eq!(stdout(&skill.run("look.py", &[], &[])), expected);
}

#[test]
fn nothing_random_is_the_same_in_two_runs() {
    let skill = Skill::new();
    let (one, two) = (stdout(&skill.run("randomness.py", &[], &[])), stdout(&skill.run("randomness.py", &[], &[])));
    let same: Vec<_> = one.lines().zip(two.lines()).filter(|(one, two)| one == two).collect();
    assert_eq!((one.lines().count(), two.lines().count(), same), (9, 9, Vec::new()));
}

#[test]
fn limits_end_a_script_and_a_script_within_them_ends_well() {
    let skill = Skill::new();
    skill.script("endless.py", "while True:\n    pass\n").script("large.py", "print(len('x' * (200 << 20)))\n");
    // Compiled by this call, so that the time below is the script's.
    stdout(&skill.run("hello.py", &[], &[]));
    let (code, _, err) = outcome(&skill.run("endless.py", &["--timeout", "5s"], &[]));
    assert_eq!(code, Some(124), "{err}");
    assert_eq!(stdout(&skill.run("large.py", &["--memory", "400M"], &[])), "209715200\n");
    let (code, out, err) = outcome(&skill.run("large.py", &["--memory", "100M"], &[]));
    assert_ne!(code, Some(0), "{out}{err}");
    assert!(err.contains("memory"), "{err}");
    assert_eq!(stdout(&skill.run("deep.py", &[], &[])).lines().last(), Some("alive"));
}

#[test]
fn modules_in_a_further_folder_are_found_by_pythonpath() {
    let skill = Skill::new();
    let module = skill.input("extra.py", "VALUE = 'from inputs'\n");
    skill.script("uses.py", "import extra\nprint(extra.VALUE)\n");
    let output = skill.run("uses.py", &["--in", &module, "-e", "PYTHONPATH=/workspace/in"], &[]);
    assert_eq!(stdout(&output), "from inputs\n");
    let (code, _, err) = outcome(&skill.run("uses.py", &["--in", &module], &[]));
    // Refused before it starts: the module is certainly nowhere.
    assert_eq!(code, Some(4));
    assert!(err.contains("'uses.py' imports 'extra' in line 1"), "{err}");
}
