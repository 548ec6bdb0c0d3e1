//! Scripts of which the output was recorded from Node must print the same in the JavaScript pack.

#![cfg(feature = "pack-build")]
#![expect(clippy::unwrap_used, reason = "the helpers of tests are tests too")]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use skillcell_wasm_tools::pack::{FolderAccess, PackEngine, PackProgram, Run, Streams, verify};

/// No script works for longer than a few seconds.
const DEADLINE: Duration = Duration::from_secs(120);

fn pack() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("packs/js")
}

fn scripts() -> Vec<PathBuf> {
    let recorded = fs::read_dir(pack().join("tests/agree")).unwrap().map(|entry| entry.unwrap().path());
    let mut scripts: Vec<PathBuf> =
        recorded.filter(|path| path.extension().is_some_and(|word| word == "expected")).collect();
    scripts.sort();
    scripts.iter().map(|path| path.with_extension("")).collect()
}

fn call(program: &PackProgram, arguments: &[&str], temporary: &Path) -> (i32, String, String) {
    let environment = [("PWD", "/workspace/agree"), ("TMPDIR", "/workspace/tmp")];
    let outcome = program
        .call(&Run {
            arguments: ["node"].iter().chain(arguments).map(|&word| word.to_owned()).collect(),
            environment: environment.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec(),
            folders: vec![
                (pack().join("tests/agree"), "/workspace/agree".to_owned(), FolderAccess::ReadOnly),
                (temporary.to_owned(), "/workspace/tmp".to_owned(), FolderAccess::ReadWrite),
            ],
            streams: Streams::Captured { stdin: Vec::new() },
            deadline: Some(DEADLINE),
        })
        .unwrap();
    (outcome.code, outcome.stdout, outcome.stderr)
}

#[test]
fn scripts_print_what_node_prints() {
    let program = PackEngine::new().unwrap().compile(&verify(&pack()).unwrap()).unwrap();
    let temporary = tempfile::tempdir().unwrap();
    let scripts = scripts();
    assert!(scripts.len() >= 9, "{scripts:?}");
    for script in scripts {
        let name = script.file_name().unwrap().to_str().unwrap();
        let expected = fs::read_to_string(script.with_file_name(format!("{name}.expected"))).unwrap();
        let (code, stdout, stderr) = call(&program, &[name], temporary.path());
        assert_eq!((code, stderr.as_str()), (0, ""), "{name}: {stdout}");
        let lines = stdout.lines().zip(expected.lines()).enumerate();
        for (number, (line, wanted)) in lines {
            assert_eq!(line, wanted, "{name}, line {} of its output", number + 1);
        }
        assert_eq!(stdout.lines().count(), expected.lines().count(), "{name}");
    }
}
