//! What it is compared with: the plain interpreters of this machine, and sandboxes that `peers/install` put into the
//! folder `SKILLCELL_PEERS`. What isn't there, or can't do a job, has no row; what isn't there is named.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::jobs::{Job, Language, Material};
use crate::process::Line;
use crate::table::Sample;

/// Where the drivers are.
const DRIVERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/cold_start/peers");

/// What was found on this machine.
pub(crate) struct Peers {
    python: Option<PathBuf>,
    node: Option<PathBuf>,
    folder: Option<PathBuf>,
}

impl Peers {
    pub(crate) fn find() -> Self {
        // The programs themselves: a version manager's shim takes longer than they do.
        let real = |program: &str, arguments: &[&str]| {
            let output = Command::new(program).args(arguments).output().ok()?;
            let path = String::from_utf8(output.stdout).ok()?;
            output.status.success().then(|| PathBuf::from(path.trim()))
        };
        let folder = std::env::var_os("SKILLCELL_PEERS").and_then(|path| std::fs::canonicalize(path).ok());
        let found = Self {
            python: real("python3", &["-c", "import sys; print(sys.executable)"]),
            node: real("node", &["-p", "process.execPath"]),
            folder,
        };
        for (name, there) in [
            ("python3", found.python.is_some()),
            ("node", found.node.is_some()),
            ("eryx", found.file("python/bin/eryx").is_some()),
            ("monty", found.file("python/bin/monty").is_some()),
            ("wasmtime with python.wasm", found.file("python.cwasm").is_some()),
            ("quickjs-emscripten", found.file("javascript/node_modules/quickjs-emscripten").is_some()),
        ] {
            if !there {
                println!("not here, so not compared: {name}");
            }
        }
        found
    }

    fn file(&self, name: &str) -> Option<PathBuf> {
        Some(self.folder.as_ref()?.join(name)).filter(|path| path.exists())
    }

    /// Fresh processes that do a job, without skillcell; the plain interpreter first.
    pub(crate) fn fresh(&self, material: &Material, language: Language, job: Job) -> Vec<(String, Line)> {
        let script = text(&material.script(language, job));
        let mut ways = Vec::new();
        match language {
            Language::Python => {
                if let Some(python) = &self.python {
                    ways.push(("python3", line(job, [text(python), script.clone()])));
                    let bare = [text(python), "-I".to_owned(), "-S".to_owned(), script.clone()];
                    ways.push(("python3 -I -S", line(job, bare)));
                }
                if let (Some(python), Some(_)) = (self.file("python/bin/python"), self.file("python/bin/eryx"))
                    && job != Job::Idle
                {
                    let mut words = vec![text(&python), format!("{DRIVERS}/eryx_runs.py"), script.clone()];
                    words.extend([text(&material.input()), text(&material.output())]);
                    if job == Job::Endless {
                        words.extend(["0", "500"].map(str::to_owned));
                    }
                    ways.push(("eryx", Line::new(words)));
                }
                if let Some(monty) = self.file("python/bin/monty").filter(|_| matches!(job, Job::Hello | Job::Loop)) {
                    ways.push(("monty (part of Python)", Line::new([text(&monty), script])));
                }
                if let (Some(wasmtime), Some(code)) = (self.file("wasmtime"), self.file("python.cwasm")) {
                    let limit = if job == Job::Endless { "500ms" } else { "120s" };
                    let mut words = vec![text(&wasmtime), "run".to_owned(), "--allow-precompiled".to_owned()];
                    words.extend(["-W".to_owned(), format!("timeout={limit}")]);
                    let folder = material.input().parent().map(text).unwrap_or_default();
                    words.extend(["--dir".to_owned(), format!("{folder}::/work")]);
                    words.extend(
                        ["--env", "WORKSPACE_IN=/work/in", "--env", "WORKSPACE_OUT=/work/out"].map(str::to_owned),
                    );
                    let name =
                        material.script(language, job).file_name().map(|name| name.to_owned()).unwrap_or_default();
                    words.extend([text(&code), format!("/work/{}", name.to_string_lossy())]);
                    ways.push(("wasmtime with python.wasm 3.12", Line::new(words)));
                }
            }
            Language::JavaScript => {
                if let Some(node) = &self.node {
                    ways.push(("node", line(job, [text(node), script.clone()])));
                    if let Some(packages) = self.quickjs_for(job) {
                        let mut words = vec![text(node), format!("{DRIVERS}/quickjs_runs.mjs"), packages, script];
                        if job == Job::Endless {
                            words.extend(["0", "500"].map(str::to_owned));
                        }
                        ways.push(("quickjs-emscripten on node", Line::new(words)));
                    }
                }
            }
        }
        let variables = [("WORKSPACE_IN", material.input()), ("WORKSPACE_OUT", material.output())];
        ways.into_iter()
            .map(|(name, mut line)| {
                line.variables.extend(variables.clone());
                (name.to_owned(), line)
            })
            .collect()
    }

    /// Calls in a process that lives.
    pub(crate) fn warm(
        &self,
        material: &Material,
        language: Language,
        job: Job,
        rounds: usize,
    ) -> Vec<(String, Vec<Sample>)> {
        let script = text(&material.script(language, job));
        let mut words = Vec::new();
        let name = match language {
            Language::Python => {
                let mut ways = Vec::new();
                if let (Some(python), Some(_)) = (self.file("python/bin/python"), self.file("python/bin/eryx")) {
                    let driver = format!("{DRIVERS}/eryx_runs.py");
                    let mut words = vec![text(&python), driver, script.clone()];
                    words.extend([text(&material.input()), text(&material.output()), rounds.to_string()]);
                    words.extend(limit(job));
                    ways.push(("eryx".to_owned(), calls(&words)));
                }
                if let (Some(python), Some(_)) = (self.file("python/bin/python"), self.file("python/bin/monty"))
                    && matches!(job, Job::Hello | Job::Loop | Job::Endless)
                {
                    let mut words = vec![text(&python), format!("{DRIVERS}/monty_runs.py"), script, rounds.to_string()];
                    words.extend(limit(job));
                    ways.push(("monty (part of Python; CPU not seen)".to_owned(), calls(&words)));
                }
                return ways;
            }
            Language::JavaScript => {
                let (Some(node), Some(packages)) = (&self.node, self.quickjs_for(job)) else { return Vec::new() };
                words.extend([text(node), format!("{DRIVERS}/quickjs_runs.mjs"), packages, script, rounds.to_string()]);
                words.extend(limit(job));
                "quickjs-emscripten"
            }
        };
        vec![(name.to_owned(), calls(&words))]
    }

    /// It has neither files, modules nor timers.
    fn quickjs_for(&self, job: Job) -> Option<String> {
        let found = self.file("javascript/node_modules/quickjs-emscripten")?;
        let can = matches!(job, Job::Hello | Job::Loop | Job::Endless);
        can.then(|| found.parent().and_then(Path::parent).map(text)).flatten()
    }
}

fn limit(job: Job) -> Option<String> {
    (job == Job::Endless).then(|| "500".to_owned())
}

/// A plain interpreter has no time limit of its own.
fn line(job: Job, words: impl IntoIterator<Item = String>) -> Line {
    let limit: &[&str] = if job == Job::Endless { &["timeout", "-s", "KILL", "0.5"] } else { &[] };
    Line::new(limit.iter().map(|word| (*word).to_owned()).chain(words))
}

/// Runs a driver and reads what its calls took.
fn calls(words: &[String]) -> Vec<Sample> {
    let output = Command::new(&words[0]).args(&words[1..]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{words:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
    let nanoseconds = |text: &str| Duration::from_nanos(text.parse().unwrap());
    let sample = |line: &str| {
        let (wall, cpu) = line.split_once(' ').unwrap();
        Sample { wall: nanoseconds(wall), cpu: nanoseconds(cpu) }
    };
    text.lines().map(sample).collect()
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}
