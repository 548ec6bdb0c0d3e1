//! JavaScript skill scripts on the wasm runtime, with the interpreter that is built in.
//!
//! What the interpreter itself does is proved by `skillcell-wasm-tools pack verify js --run` and by its scripts that
//! are compared with Node; these tests show that it does so in skillcell's world: workspace, limits, exit codes.

#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests start the command, make host files, and fail by unwrapping"
)]

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// Runs `script`, whose text is given, as the only script of a skill: exit code, stdout, stderr.
fn run(script: &str, text: &str, options: &[&str], arguments: &[&str]) -> (Option<i32>, String, String) {
    let folder = tempfile::tempdir().unwrap();
    let skill = folder.path().join("skill");
    fs::create_dir(&skill).unwrap();
    fs::write(skill.join("SKILL.md"), "---\nname: skill\ndescription: Tests JavaScript.\n---\n").unwrap();
    fs::write(skill.join("sibling.cjs"), "exports.answer = 42;\n").unwrap();
    fs::write(skill.join(script), text).unwrap();
    // The first call on a machine compiles the interpreter; all tests share what it made.
    let patience: &[&str] = if options.contains(&"--timeout") { &[] } else { &["--timeout", "600s"] };
    let output = Command::new(env!("CARGO_BIN_EXE_skillcell"))
        .args(["run", "--runtime", "wasm", "--skill", skill.to_str().unwrap(), script])
        .args(patience)
        .args(options)
        .arg("--")
        .args(arguments)
        .env("XDG_CACHE_HOME", Path::new(env!("CARGO_TARGET_TMPDIR")).join("javascript-cache"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn scripts_of_each_kind_run_with_their_arguments() {
    let common = "console.log(process.argv.slice(2), require('./sibling.cjs').answer, __dirname);";
    let module =
        "import { answer } from './sibling.cjs'; await 1; console.log(process.argv.slice(2), answer, import.meta.url);";
    for (name, text, place) in [
        ("a.js", common, "/workspace/skill"),
        ("a.cjs", common, "/workspace/skill"),
        ("a.mjs", module, "file:///workspace/skill/a.mjs"),
        ("b.js", module, "file:///workspace/skill/b.js"),
    ] {
        let (code, stdout, stderr) = run(name, text, &[], &["one", "ü"]);
        assert_eq!((code, stdout), (Some(0), format!("[ 'one', 'ü' ] 42 {place}\n")), "{name}: {stderr}");
    }
}

#[test]
fn the_skill_is_read_only_and_the_other_folders_are_not() {
    let text = "const fs = require('fs'); const out = [];
        for (const place of ['skill', 'in', 'out', 'tmp']) {
            try { fs.writeFileSync(`/workspace/${place}/x`, ''); out.push(place); } catch (error) { out.push(error.code); }
        }
        try { fs.readFileSync('/etc/passwd'); } catch (error) { out.push(error.code); }
        console.log(out.join());";
    let (code, stdout, stderr) = run("a.js", text, &[], &[]);
    assert_eq!((code, stdout.as_str()), (Some(0), "EPERM,EPERM,out,tmp,ENOENT\n"), "{stderr}");
}

#[test]
fn a_failure_has_the_scripts_exit_code_and_shows_its_line() {
    let (code, _, stderr) = run("a.js", "let a = 1;\nnull.x;\n", &[], &[]);
    assert_eq!(code, Some(1), "{stderr}");
    assert!(stderr.contains("/workspace/skill/a.js:2\nnull.x;") && stderr.contains("TypeError"), "{stderr}");
    assert_eq!(run("a.js", "process.exit(7)", &[], &[]).0, Some(7));
}

#[test]
fn an_endless_script_is_stopped_and_endless_recursion_is_its_own_error() {
    // The interpreter is compiled first, by a call with time for it.
    assert_eq!(run("a.js", "", &[], &[]).0, Some(0));
    let (code, stdout, stderr) = run("a.js", "console.log('before'); for (;;);", &["--timeout", "5s"], &[]);
    assert_eq!((code, stdout.as_str()), (Some(124), "before\n"), "{stderr}");
    let recursion = "try { (function f() { return f() + 1; })(); } catch (error) { console.log(error.name); }
        try { eval('['.repeat(1e5)); } catch (error) { console.log(error.name); }";
    let (code, stdout, stderr) = run("a.js", recursion, &[], &[]);
    assert_eq!((code, stdout.as_str()), (Some(0), "RangeError\nRangeError\n"), "{stderr}");
}

#[test]
fn two_runs_draw_other_random_numbers() {
    let text = "console.log(Math.random(), crypto.randomUUID());";
    let (one, two) = (run("a.js", text, &[], &[]), run("a.js", text, &[], &[]));
    assert_eq!((one.0, two.0), (Some(0), Some(0)), "{}", one.2);
    assert_ne!(one.1, two.1);
}

#[test]
fn typescript_runs_as_it_is_and_keeps_its_lines() {
    let text = "import { readFileSync } from 'node:fs';\ninterface Row { id: number }\n\
        const rows: Row[] = [{ id: 1 } as Row];\nconsole.log(rows[0]!.id, typeof readFileSync);\n\
        throw new Error('line five');\n";
    for name in ["a.ts", "a.mts"] {
        let (code, stdout, stderr) = run(name, text, &[], &[]);
        assert_eq!((code, stdout.as_str()), (Some(1), "1 function\n"), "{name}: {stderr}");
        assert!(stderr.contains(&format!("/workspace/skill/{name}:5")), "{name}: {stderr}");
    }
    let (code, stdout, stderr) = run(
        "a.cts",
        "const { answer } = require('./sibling.cjs') as { answer: number };\nconsole.log(answer);\n",
        &[],
        &[],
    );
    assert_eq!((code, stdout.as_str()), (Some(0), "42\n"), "{stderr}");
}

#[test]
fn typescript_that_breaks_the_parser_ends_its_own_run_only() {
    let deep = format!("let a: number = {}", "[".repeat(200_000));
    let (code, stdout, stderr) = run("a.ts", &deep, &[], &[]);
    assert_eq!((code, stdout.as_str()), (Some(134), ""), "{stderr}");
    let (code, _, stderr) = run("a.ts", "enum E { A }\nconsole.log(E.A);\n", &[], &[]);
    assert_eq!(code, Some(1), "{stderr}");
    assert!(
        stderr.contains("ERR_UNSUPPORTED_TYPESCRIPT_SYNTAX") && stderr.contains("/workspace/skill/a.ts:1:1"),
        "{stderr}"
    );
}
