//! `pack verify --run`: what the interpreter of a pack must be seen to do.
//!
//! The cases are data in the pack's folder (`tests/proof.json`), because what an interpreter promises is the pack's
//! affair. A case is one call, with files before it and files, output and exit code after it. Scripts for the cases
//! are in `tests/skill`, which every case has as its `/workspace/skill`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use super::run::{FolderAccess, PackEngine, PackProgram, Run, Streams};
use super::verify::verify;

/// The pack's cases.
const CASES_FILE: &str = "tests/proof.json";
/// The folder that every case has as `/workspace/skill`.
const SKILL_FOLDER: &str = "tests/skill";
/// No case works for long; one that hangs must not hang the check.
const DEADLINE: Duration = Duration::from_secs(60);
/// The guest's folders, as a skill has them.
const FOLDERS: [(&str, FolderAccess); 4] = [
    ("skill", FolderAccess::ReadOnly),
    ("in", FolderAccess::ReadOnly),
    ("out", FolderAccess::ReadWrite),
    ("tmp", FolderAccess::ReadWrite),
];

/// One call and what must come of it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    arguments: Vec<String>,
    #[serde(default)]
    environment: BTreeMap<String, String>,
    #[serde(default)]
    stdin: String,
    /// Files below `/workspace` before the call.
    #[serde(default)]
    files: BTreeMap<String, String>,
    #[serde(default)]
    code: i32,
    #[serde(default)]
    stdout: Option<String>,
    #[serde(default)]
    stdout_contains: Vec<String>,
    #[serde(default)]
    stderr: Option<String>,
    #[serde(default)]
    stderr_contains: Vec<String>,
    /// Files below `/workspace` after the call.
    #[serde(default)]
    files_after: BTreeMap<String, String>,
    /// Files below `/workspace` that must not be there after the call.
    #[serde(default)]
    absent_after: Vec<String>,
    /// Every line of the output must differ between two calls.
    #[serde(default)]
    differs_between_runs: bool,
}

/// Runs every case of the pack in `folder`; gives their number.
///
/// # Errors
/// Names every case that did not end as it must.
pub fn prove(folder: &Path, progress: &mut dyn FnMut(&str)) -> Result<usize> {
    let path = folder.join(CASES_FILE);
    let text = fs::read(&path).with_context(|| format!("can't read {}", path.display()))?;
    let cases: Vec<Case> = serde_json::from_slice(&text).with_context(|| format!("can't use {}", path.display()))?;
    ensure!(!cases.is_empty(), "{} has no cases, so nothing would be shown", path.display());
    let pack = verify(folder)?;
    let engine = PackEngine::new()?;
    progress("compiling the interpreter");
    let program = engine.compile(&pack)?;
    let name = pack.manifest.programs.first().map_or("", String::as_str);
    let mut failed = Vec::new();
    for case in &cases {
        if let Err(error) = case.check(&program, name, &folder.join(SKILL_FOLDER)) {
            failed.push(format!("{}: {error:#}", case.name));
        }
    }
    if !failed.is_empty() {
        bail!("{} of {} checks failed:\n{}", failed.len(), cases.len(), failed.join("\n"));
    }
    Ok(cases.len())
}

impl Case {
    fn check(&self, program: &PackProgram, name: &str, skill: &Path) -> Result<()> {
        let first = self.call(program, name, skill)?;
        if self.differs_between_runs {
            let second = self.call(program, name, skill)?;
            ensure!(
                !first.is_empty() && first.lines().count() == second.lines().count(),
                "printed {first:?}, then {second:?}"
            );
            for (one, other) in first.lines().zip(second.lines()) {
                ensure!(one != other, "two runs printed the same: {one}");
            }
        }
        Ok(())
    }

    fn call(&self, program: &PackProgram, name: &str, skill: &Path) -> Result<String> {
        let workspace = tempfile::tempdir().context("can't make a folder")?;
        let mut run = Run {
            arguments: [name.to_owned()].into_iter().chain(self.arguments.clone()).collect(),
            environment: Vec::new(),
            folders: Vec::new(),
            streams: Streams::Captured { stdin: self.stdin.clone().into_bytes() },
            deadline: Some(DEADLINE),
        };
        let mut environment = BTreeMap::from([
            ("PWD".to_owned(), "/workspace/skill".to_owned()),
            ("TMPDIR".to_owned(), "/workspace/tmp".to_owned()),
        ]);
        environment.extend(self.environment.clone());
        run.environment.extend(environment);
        for (folder, access) in FOLDERS {
            let host = workspace.path().join(folder);
            fs::create_dir(&host).context("can't make a folder")?;
            run.folders.push((host, format!("/workspace/{folder}"), access));
        }
        copy_tree(skill, &workspace.path().join("skill"))?;
        for (file, text) in &self.files {
            let host = workspace.path().join(file);
            fs::create_dir_all(host.parent().context("a file needs a folder")?).context("can't make a folder")?;
            fs::write(&host, text).with_context(|| format!("can't write {}", host.display()))?;
        }

        let outcome = program.call(&run)?;
        ensure!(outcome.code == self.code, "exit code {} instead of {}: {outcome:?}", outcome.code, self.code);
        for (stream, text, exact, parts) in [
            ("stdout", &outcome.stdout, &self.stdout, &self.stdout_contains),
            ("stderr", &outcome.stderr, &self.stderr, &self.stderr_contains),
        ] {
            if let Some(exact) = exact {
                ensure!(text == exact, "{stream} is {text:?} instead of {exact:?}; {outcome:?}");
            }
            for part in parts {
                ensure!(text.contains(part), "{stream} lacks {part:?}: {text:?}");
            }
        }
        for (file, expected) in &self.files_after {
            let text = fs::read_to_string(workspace.path().join(file)).with_context(|| format!("no file {file}"))?;
            ensure!(&text == expected, "{file} holds {text:?} instead of {expected:?}");
        }
        for file in &self.absent_after {
            ensure!(!workspace.path().join(file).exists(), "{file} is there and must not be");
        }
        Ok(outcome.stdout)
    }
}

/// Copies what is in one folder into another. Links are not followed and not copied.
fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    let entries = fs::read_dir(from).with_context(|| format!("can't read {}", from.display()))?;
    for entry in entries {
        let entry = entry.with_context(|| format!("can't read {}", from.display()))?;
        let target = to.join(entry.file_name());
        let kind = entry.file_type().context("can't tell what a file is")?;
        if kind.is_dir() {
            fs::create_dir(&target).with_context(|| format!("can't make {}", target.display()))?;
            copy_tree(&entry.path(), &target)?;
        } else if kind.is_file() {
            fs::copy(entry.path(), &target).with_context(|| format!("can't copy {}", entry.path().display()))?;
        }
    }
    Ok(())
}
