//! Packages for scripts (`extra_pip`): installed from the index this machine's pip is set up for, used in the sandbox.
//!
//! These tests need that index, and fail without it.

#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::panic,
    reason = "tests start the command, make host files, and fail by unwrapping"
)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// An address where nothing listens: an index that can't be reached.
const NO_INDEX: (&str, &str) = ("PIP_INDEX_URL", "http://127.0.0.1:9/simple");
/// A small package without native code, and one whose native code has Python to stand in for it.
const PURE: &str = "tabulate==0.9.0";
const WITH_SPEEDUPS: &str = "markupsafe==3.0.2";

/// A machine of its own: a cache, a folder for scripts.
struct Machine {
    folder: tempfile::TempDir,
}

impl Machine {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn script(&self, name: &str, text: &str) -> PathBuf {
        fs::write(self.path(name), text).unwrap();
        self.path(name)
    }

    fn command(&self, runtime: &str, script: &Path) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_skillcell"));
        command
            .arg("run")
            .arg(script)
            .args(["--runtime", runtime, "--timeout", "600s"])
            .env("XDG_CACHE_HOME", self.path("cache"))
            .stdin(Stdio::null());
        match runtime {
            // The compiled interpreter is shared by all tests.
            "wasm" => {
                let shared = Path::new(env!("CARGO_TARGET_TMPDIR")).join("python-cache/skillcell/wasm");
                command.arg("--config").arg(format!("cache_dir={}", shared.display()));
            }
            "docker" => {
                let image = std::env::var("SKILLCELL_TEST_IMAGE")
                    .unwrap_or_else(|_| panic!("no SKILLCELL_TEST_IMAGE: run these tests by tests/docker/with-daemon"));
                command.arg("--config").arg(format!("image={image}"));
            }
            "local" => {
                command.args(["--allow-advisory", "--require", "none"]);
            }
            _ => {}
        }
        command
    }

    fn run(&self, runtime: &str, script: &Path, options: &[&str]) -> Output {
        self.command(runtime, script).args(options).output().unwrap()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn stdout(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

/// The document of a run that must have worked.
fn document(output: &Output) -> Value {
    serde_json::from_str(&stdout(output)).unwrap()
}

/// Exit code and message of a run that was refused.
fn refused(output: &Output) -> (Option<i32>, String) {
    assert_eq!(text(&output.stdout), "");
    (output.status.code(), text(&output.stderr))
}

fn pip<'a>(requirements: &[&'a str]) -> Vec<&'a str> {
    requirements.iter().flat_map(|requirement| ["--pip", requirement]).collect()
}

#[test]
fn packages_that_skills_use_do_on_wasm_what_they_do_in_native_python() {
    let machine = Machine::new();
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/packages");
    let requirements = fs::read_to_string(data.join("requirements.txt")).unwrap();
    let requirements: Vec<&str> = requirements.lines().collect();
    assert_eq!(requirements.len(), 11);
    let script = data.join("use.py");
    let out = |name: &str| machine.path(name).to_str().unwrap().to_owned();
    let run = |runtime: &str| {
        let out = out(runtime);
        let mut options = pip(&requirements);
        options.extend(["--out", out.as_str()]);
        stdout(&machine.run(runtime, &script, &options))
    };
    let (wasm, native) = (run("wasm"), run("local"));
    assert_eq!(wasm, native);
    for package in ["pypdf 1 Report 'Quarter three'", "openpyxl A1:C4", "jinja2 1.A=1.2;", "dateutil 2024-02-29T13:05"]
    {
        assert!(wasm.contains(package), "no '{package}' in\n{wasm}");
    }
    for runtime in ["wasm", "local"] {
        assert!(fs::read(machine.path(runtime).join("report.pdf")).unwrap().starts_with(b"%PDF-"));
        assert!(fs::read(machine.path(runtime).join("sales.xlsx")).unwrap().starts_with(b"PK"));
    }
}

const ESCAPES: &str = "import markupsafe, tabulate, sys\n\
    native = '_speedups' in str(markupsafe._escape_inner) or 'markupsafe._speedups' in sys.modules\n\
    print(markupsafe.escape('<a&b>'), tabulate.tabulate([[1, 2]], tablefmt='tsv'), native)\n";

#[test]
fn native_runtimes_get_the_wheels_of_their_own_python() {
    let machine = Machine::new();
    let script = machine.script("escape.py", ESCAPES);
    let mut options = pip(&[PURE, WITH_SPEEDUPS]);
    options.push("--json");
    for (runtime, native) in [("wasm", "False"), ("bubblewrap", "True"), ("docker", "True")] {
        let result = document(&machine.run(runtime, &script, &options));
        assert_eq!(result["stdout"]["text"], format!("&lt;a&amp;b&gt; 1\t2 {native}\n"), "{runtime}: {result}");
        let left_out: BTreeMap<String, Vec<String>> =
            serde_json::from_value(result["packages"]["left_out"].clone()).unwrap();
        let expected = match native {
            "False" => BTreeMap::from([("markupsafe".to_owned(), vec!["markupsafe._speedups".to_owned()])]),
            _ => BTreeMap::new(),
        };
        assert_eq!(left_out, expected, "{runtime}");
    }
}

#[test]
fn installing_is_confined_recorded_locked_and_done_once() {
    let machine = Machine::new();
    let script = machine.script("table.py", "import tabulate; print(tabulate.tabulate([[1]]))\n");
    let (lock, audit) = (machine.path("table.py.packages.lock"), machine.path("audit.jsonl"));
    let mut options = pip(&[PURE]);
    options.extend(["--lock", "--json", "--audit", audit.to_str().unwrap()]);
    let first = document(&machine.run("wasm", &script, &options));
    assert_eq!(
        first["packages"]["origin"],
        serde_json::json!({"from": "index", "tool_runtime": "bubblewrap", "confined": true})
    );
    let package = first["packages"]["files"][0].clone();
    assert_eq!((package["name"].as_str(), package["version"].as_str()), (Some("tabulate"), Some("0.9.0")));
    let locked: Value = serde_json::from_slice(&fs::read(&lock).unwrap()).unwrap();
    assert_eq!(locked["targets"]["cpython-3.13-pure"]["files"][0], package);
    let trail = fs::read_to_string(&audit).unwrap();
    let events: Vec<Value> = trail.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |action: &str| -> Vec<String> {
        let event = |event: &&Value| event["action"] == action && event["run"] == first["run"];
        events.iter().filter(event).map(|event| event["object"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(
        (of("fetch"), of("install")),
        (vec!["pip in runtime 'bubblewrap'".to_owned()], vec!["tabulate 0.9.0".to_owned()])
    );
    // No network is needed any more, and the lock beside the script is found by itself.
    let options = ["--pip", PURE, "--json"];
    let again = document(&machine.command("wasm", &script).args(options).env(NO_INDEX.0, NO_INDEX.1).output().unwrap());
    assert_eq!(again["packages"]["origin"], serde_json::json!({"from": "cache"}));
    assert_eq!(again["packages"]["files"], first["packages"]["files"]);

    // Another machine gets the same file, or nothing.
    let other = Machine::new();
    let script = other.script("table.py", &fs::read_to_string(&script).unwrap());
    let lock_there = other.path("table.py.packages.lock");
    fs::copy(&lock, &lock_there).unwrap();
    let (code, message) =
        refused(&other.command("wasm", &script).args(["--pip", PURE]).env(NO_INDEX.0, NO_INDEX.1).output().unwrap());
    assert_eq!(code, Some(4), "{message}");
    assert!(message.contains("could not reach the package index"), "{message}");
    let forged = fs::read_to_string(&lock).unwrap().replace(package["sha256"].as_str().unwrap(), &"0".repeat(64));
    fs::write(&lock_there, forged).unwrap();
    let (code, message) = refused(&other.run("wasm", &script, &["--pip", PURE]));
    assert_eq!(code, Some(3), "{message}");
    assert!(message.contains("is not the one that the lock of packages names"), "{message}");
    let (code, message) = refused(&other.run("wasm", &script, &["--pip", "tabulate"]));
    assert_eq!(code, Some(3), "{message}");
    assert!(message.contains("for other requirements (tabulate==0.9.0)"), "{message}");
    fs::copy(&lock, &lock_there).unwrap();
    assert_eq!(stdout(&other.run("wasm", &script, &["--pip", PURE])), "-\n1\n-\n");
}

#[test]
fn what_can_not_work_is_said_with_the_runtime_that_can() {
    let machine = Machine::new();
    let script = machine.script("x.py", "print('ran')\n");
    for (package, module) in [("lxml==5.3.0", "lxml."), ("psutil==6.1.0", "(without it: ")] {
        let (code, message) = refused(&machine.run("wasm", &script, &["--pip", package]));
        assert_eq!(code, Some(4), "{message}");
        assert!(message.contains("needs native code") && message.contains(module), "{message}");
        assert!(
            message.contains("use a runtime with a native Python: bubblewrap, docker, firejail, local"),
            "{message}"
        );
    }
    let (code, message) = refused(&machine.run("wasm", &script, &["--pip", "tabulate==99999"]));
    assert_eq!(code, Some(2), "{message}");
    assert!(message.contains("pip found no set of wheels"), "{message}");
    for bad in ["--pip=--index-url=http://127.0.0.1/", "--pip=x @ http://127.0.0.1/x.whl", "--pip=./x.whl"] {
        let (code, message) = refused(&machine.run("wasm", &script, &[bad]));
        assert_eq!(code, Some(2), "{message}");
        assert!(message.contains("name a package of the index"), "{message}");
    }
    let (code, message) = refused(&machine.run("wasm", &script, &["--pip", PURE, "--env", "PYTHONPATH=/x"]));
    assert_eq!(code, Some(2), "{message}");
}

#[test]
fn what_a_script_says_it_needs_is_installed_with_consent_only() {
    let machine = Machine::new();
    let block = "# /// script\n# requires-python = \">=3.9\"\n# dependencies = [\"tabulate==0.9.0\"]\n# ///\n";
    let script = machine.script("x.py", &format!("{block}import tabulate\nprint(tabulate.__version__)\n"));
    let (code, message) = refused(&machine.run("wasm", &script, &[]));
    assert_eq!(code, Some(4), "{message}");
    assert!(message.contains("'x.py' imports 'tabulate' in line 5"), "{message}");
    assert_eq!(stdout(&machine.run("wasm", &script, &["--pip-from-script"])), "0.9.0\n");
    let evil = machine.script("evil.py", "# /// script\n# dependencies = [\"--pre\"]\n# ///\n");
    let (code, message) = refused(&machine.run("wasm", &evil, &["--pip-from-script"]));
    assert_eq!(code, Some(2), "{message}");
    let old = machine.script("old.py", &block.replace(">=3.9", "<3.9"));
    let (code, message) = refused(&machine.run("wasm", &old, &["--pip-from-script"]));
    assert_eq!(code, Some(4), "{message}");
    assert!(message.contains("'requires-python' doesn't allow"), "{message}");
}

#[test]
fn a_guest_can_neither_change_its_packages_nor_reach_the_network_because_of_them() {
    let machine = Machine::new();
    let script = machine.script(
        "x.py",
        "import os, socket, tabulate\n\
         place = os.path.dirname(tabulate.__path__[0])\n\
         for name in ('tabulate/__init__.py', 'new.py'):\n    \
             try:\n        open(os.path.join(place, name), 'a').close()\n        print('changed')\n    \
             except OSError:\n        print('refused')\n\
         try:\n    socket.create_connection(('127.0.0.1', 9), 1)\n    print('connected')\n\
         except Exception:\n    print('no network')\n",
    );
    for runtime in ["wasm", "bubblewrap"] {
        let result = document(&machine.run(runtime, &script, &["--pip", PURE, "--json"]));
        assert_eq!(result["stdout"]["text"], "refused\nrefused\nno network\n", "{runtime}");
        assert_eq!(result["network_enforced"], true);
    }
}

#[test]
fn a_script_is_refused_before_it_runs_only_when_it_certainly_can_not_work() {
    let machine = Machine::new();
    let skill = machine.path("skill");
    fs::create_dir_all(skill.join("lib")).unwrap();
    fs::write(
        skill.join("helper.py"),
        "import sys, os\nsys.path.insert(0, os.path.join(os.environ['SKILL_DIR'], 'lib'))\n",
    )
    .unwrap();
    fs::write(skill.join("lib/hidden.py"), "NAME = 'found'\n").unwrap();
    let run = |runtime: &str, text: &str| {
        fs::write(skill.join("x.py"), text).unwrap();
        machine.run(runtime, Path::new("x.py"), &["--skill", skill.to_str().unwrap()])
    };
    let (code, message) =
        refused(&run("wasm", "\"\"\"Doc.\"\"\"\nimport os, json\nimport numpy as np\nprint('ran')\n"));
    assert_eq!(code, Some(4), "{message}");
    assert!(
        message.contains("'x.py' imports 'numpy' in line 3, which the Python of runtime 'wasm' doesn't have"),
        "{message}"
    );
    assert!(message.contains("use a runtime with a native Python: bubblewrap, docker, firejail, local"), "{message}");
    let (code, message) = refused(&run("wasm", "import ssl\n"));
    assert_eq!(code, Some(4), "{message}");
    for (text, printed) in [
        ("try:\n    import numpy\nexcept ImportError:\n    print('without')\n", "without\n"),
        ("import helper\nimport hidden\nprint(hidden.NAME)\n", "found\n"),
        ("print('first')\ndef late():\n    import numpy\n", "first\n"),
        ("import xml.etree.ElementTree, email.message\nprint('library')\n", "library\n"),
    ] {
        assert_eq!(stdout(&run("wasm", text)), printed, "{text}");
    }
    // What a native Python has isn't known before it is asked, so it is not refused but fails by itself.
    let output = run("bubblewrap", "import certainly_not_there\n");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("No module named 'certainly_not_there'"), "{}", text(&output.stderr));
}

#[test]
fn the_list_of_modules_is_what_the_built_in_python_can_import() {
    let machine = Machine::new();
    let list = include_str!("../../wasm-tools/packs/python/modules.txt");
    let script = machine.script(
        "x.py",
        "import importlib, pkgutil, sys\n\
         names = set(sys.builtin_module_names) | {m.name for m in pkgutil.iter_modules(sys.path[1:])} | set(sys.modules)\n\
         quiet = {'this', 'antigravity', '__hello__'}\n\
         for name in sorted(names - {'__main__'}):\n    \
             if '.' in name:\n        continue\n    \
             try:\n        name in quiet or importlib.import_module(name)\n    \
             except ImportError:\n        continue\n    \
             print(name)\n",
    );
    assert_eq!(stdout(&machine.run("wasm", &script, &[])), list);
}
