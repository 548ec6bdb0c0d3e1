//! `skillcell run`: one script, once.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use serde_json::{Map, Value, json};
use skillcell::audit::JsonlFileSink;
use skillcell::packages::PackageLock;
use skillcell::policy::{EnforcementMode, MountMode, parse_duration, parse_size};
use skillcell::runtime::{CapturedOutput, OutputSink, Stdin, Stream, Termination};
use skillcell::skill::{SkillSource, TrustPolicy};
use skillcell::step::{
    AgentSkillStepConfig, OutputDelivery, PackageConfig, ScriptRequirements, StepContext, StepResult, execute,
};
use skillcell::workspace::{ApplyChanges, ChangeKind, Input, MountReport, Overwrite};
use skillcell::{ErrorKind, Result, SkillRuntimeError};

use crate::{exit, progress, terminal};

/// Run a script in a sandbox
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  skillcell run report.wasm --in sales.csv --out results
  skillcell run scripts/report.wasm --skill ./my-skill --in ./data --out results -- --title 'Q3 report'
  skillcell run check.sh --runtime local --allow-advisory --timeout 10s
  skillcell run convert.wasm --stdin - --json < input.json
  skillcell run extract.py --pip pypdf --lock --in paper.pdf --out results

The script finds its inputs in /workspace/in and leaves results in /workspace/out. A lone script sees only itself;
with --skill it sees the skill's whole folder, read-only, in /workspace/skill.")]
pub(crate) struct RunArgs {
    /// The script: a file on this machine, or with --skill a path inside the skill
    script: PathBuf,
    /// Arguments for the script, after `--`
    #[arg(last = true)]
    args: Vec<String>,
    /// The sandbox to use; `skillcell runtimes` lists them
    #[arg(long, short, default_value = "wasm", value_name = "NAME")]
    runtime: String,
    /// The folder of the skill the script belongs to
    #[arg(long, value_name = "DIR")]
    skill: Option<PathBuf>,
    /// Refuse to run unless the SHA-256 of the whole skill (or lone script) is this one
    #[arg(long, value_name = "SHA256")]
    pin: Option<String>,
    /// A file or folder to copy into /workspace/in; may be given several times
    #[arg(long = "in", value_name = "FILE|DIR")]
    inputs: Vec<PathBuf>,
    /// A folder to show read-only in /workspace/in without copying, where the runtime can; may be given several times
    #[arg(long = "in-mount", value_name = "DIR")]
    mounts: Vec<PathBuf>,
    /// A folder to show at a guest path outside /workspace: ro (default), rw, rw-no-delete, or cow, a private copy whose
    /// changes are listed; may be given several times
    #[arg(long = "mount", value_name = "HOST:GUEST[:MODE]")]
    host_mounts: Vec<String>,
    /// Write what the script added or changed in cow mounts to the folders on this machine, when it ends with exit code 0;
    /// what it removed is only listed
    #[arg(long)]
    apply_changes: bool,
    /// A folder to copy the results to; made if missing
    #[arg(long, short, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Let results replace files that are in the --out folder
    #[arg(long, requires = "out")]
    overwrite: bool,
    /// Keep only results whose path matches; may be given several times
    #[arg(long = "out-glob", value_name = "PATTERN", default_value = "*")]
    globs: Vec<String>,
    /// A variable for the script; NAME alone takes the value from this environment
    #[arg(long = "env", short, value_name = "NAME[=VALUE]")]
    env: Vec<String>,
    /// What the script reads on stdin: a file, or - for this command's own stdin (closed unless given)
    #[arg(long, value_name = "FILE|-")]
    stdin: Option<PathBuf>,
    /// Wall-clock limit, compilation included: 500ms, 30s, 2m
    #[arg(long, value_name = "TIME", default_value = "120s")]
    timeout: String,
    /// Processor-time limit
    #[arg(long, value_name = "TIME")]
    cpu_time: Option<String>,
    /// Memory limit: 64M, 1G [default: 512M]
    #[arg(long, value_name = "SIZE")]
    memory: Option<String>,
    /// Fuel limit, about one unit a WebAssembly instruction; the same on every machine
    #[arg(long, value_name = "N")]
    fuel: Option<u64>,
    /// Limit on what the script may write on stdout and stderr together; more ends it
    #[arg(long, value_name = "SIZE", default_value = "64M")]
    max_output: String,
    /// Limit on what the script may leave in /workspace/out and /workspace/tmp [default: 1G]
    #[arg(long, value_name = "SIZE")]
    max_disk: Option<String>,
    /// Limit on processes and threads at once [default: 128]
    #[arg(long, value_name = "N")]
    max_processes: Option<u32>,
    /// Network policy: none, allowlist or host [default: none]
    #[arg(long, value_name = "POLICY")]
    network: Option<String>,
    /// A host the script may reach, with --network allowlist; may be given several times
    #[arg(long = "allow-host", value_name = "HOST")]
    hosts: Vec<String>,
    /// A Python package for the script, such as 'jinja2' or 'httpx<1'; may be given several times
    #[arg(long = "pip", value_name = "SPEC")]
    pip: Vec<String>,
    /// Install the packages that the script itself says it needs (PEP 723)
    #[arg(long)]
    pip_from_script: bool,
    /// Install only packages whose digests are in this lock, and add to it what is new; without FILE, the lock beside the
    /// script or skill, which is used in any case if it exists
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    lock: Option<Option<PathBuf>>,
    /// An option of the runtime, as JSON or text; may be given several times
    #[arg(long = "config", value_name = "KEY=VALUE")]
    config: Vec<String>,
    /// Run even where the runtime can't enforce everything that was asked; --json and the audit trail say what it doesn't
    #[arg(long)]
    allow_advisory: bool,
    /// Refuse a runtime that isolates less than this: auto (by what the run may touch), none, wasm, process, container,
    /// microvm
    #[arg(long, value_name = "TIER")]
    require: Option<String>,
    /// Who looks after the run, for --require auto: developer, non-expert, unattended
    #[arg(long, value_name = "WHO", default_value = "unattended")]
    operator: String,
    /// Print one JSON document instead of the script's output
    #[arg(long)]
    json: bool,
    /// Append the audit trail to a file, hash-chained JSON lines; see `skillcell audit`
    #[arg(long, value_name = "FILE")]
    audit: Option<PathBuf>,
}

pub(crate) fn main(args: RunArgs) -> ExitCode {
    let as_json = args.json;
    match run(args) {
        Ok(result) => report(&result, as_json),
        Err(error) if as_json => {
            let printed = terminal::print_bytes(&line(&error_document(&error)));
            // The document went out, so the code is the error's.
            if printed == ExitCode::SUCCESS { ExitCode::from(exit::of_error(&error)) } else { printed }
        }
        Err(error) => exit::fail(&error),
    }
}

fn run(args: RunArgs) -> Result<StepResult> {
    let audit = args.audit.as_deref().map(open_audit).transpose()?;
    let as_json = args.json;
    let config = configuration(args)?;
    let mut context = StepContext::new(skillcell::builtin_registry());
    if let Some(sink) = audit {
        context.audit = Arc::new(sink);
    }
    context.progress = Arc::new(progress::TerminalProgress::new());
    let output = Arc::new(PassThrough::default());
    if !as_json {
        context.sink = Some(output.clone());
    }
    // One thread is enough to wait; file work and guests run on the blocking pool.
    let executor = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| SkillRuntimeError::backend("could not start the executor", error))?;
    let cancel = context.cancel.clone();
    let result = executor.block_on(async {
        let step = execute(config, &context);
        tokio::pin!(step);
        tokio::select! {
            result = &mut step => return result,
            () = interrupted() => cancel.fire(),
        }
        // The script is ended and everything removed; who asks again doesn't want to wait for that.
        tokio::select! {
            result = &mut step => result,
            () = interrupted() => exit::at_once(),
        }
    });
    // A read of a terminal can't be interrupted: leave its thread behind rather than wait for a key.
    executor.shutdown_timeout(std::time::Duration::from_secs(5));
    if let (Ok(_), Some(error)) = (&result, output.failure()) {
        return Err(SkillRuntimeError::backend("the script ran, but its output could not be written", error));
    }
    result
}

/// Waits for Ctrl-C or a request to end.
pub(crate) async fn interrupted() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let (Ok(mut terminate), Ok(mut hang_up)) = (signal(SignalKind::terminate()), signal(SignalKind::hangup())) {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = hang_up.recv() => {}
                _ = tokio::signal::ctrl_c() => {}
            }
            return;
        }
    }
    let _ = tokio::signal::ctrl_c().await;
}

/// Turns the arguments into a step.
fn configuration(args: RunArgs) -> Result<AgentSkillStepConfig> {
    let lock =
        args.lock.map(|path| path.unwrap_or_else(|| PackageLock::beside(args.skill.as_ref().unwrap_or(&args.script))));
    let (skill, script_name) = match args.skill {
        Some(folder) => {
            let name =
                args.script.to_str().ok_or_else(|| SkillRuntimeError::invalid("the script's path is not UTF-8"))?;
            (SkillSource::Folder(folder), Some(name.to_owned()))
        }
        None => (SkillSource::Script(args.script), None),
    };
    let mut config = AgentSkillStepConfig::new(skill);
    config.script_name = script_name;
    config.args = args.args;
    config.runtime = args.runtime;
    config.runtime_config = runtime_config(&args.config, args.network, args.hosts)?;
    config.packages = PackageConfig {
        extra_pip: args.pip,
        script_requirements: if args.pip_from_script {
            ScriptRequirements::Install
        } else {
            ScriptRequirements::Ignore
        },
        lock,
    };
    if let Some(pin) = args.pin {
        config.trust_policy = TrustPolicy::pinned(&pin)?;
    }
    for path in &args.inputs {
        config.inputs.push(Input::from_host_path(path)?);
    }
    for path in &args.mounts {
        config.inputs.push(Input::mounted(path)?);
    }
    for mount in &args.host_mounts {
        config.mounts.push(mount.parse()?);
    }
    if args.apply_changes {
        if !config.mounts.iter().any(|mount| mount.mode == MountMode::CopyOnWrite) {
            return Err(SkillRuntimeError::invalid("--apply-changes needs a --mount with mode cow"));
        }
        config.apply_changes = ApplyChanges::OnSuccess;
    }
    for variable in &args.env {
        match variable.split_once('=') {
            Some((name, value)) => config.env.set(name, value)?,
            None => config.env.set(variable.as_str(), inherited(variable)?)?,
        }
    }
    config.stdin = match args.stdin {
        None => Stdin::Closed,
        Some(path) => Stdin::File(Arc::new(open_stdin(&path)?)),
    };
    let limits = &mut config.limits;
    limits.wall_time = parse_duration(&args.timeout)?;
    limits.output = parse_size(&args.max_output)?;
    limits.fuel = args.fuel;
    limits.cpu_time = args.cpu_time.as_deref().map(parse_duration).transpose()?;
    limits.requested.cpu = limits.fuel.is_some() || limits.cpu_time.is_some();
    if let Some(memory) = args.memory {
        limits.memory = parse_size(&memory)?;
        limits.requested.memory = true;
    }
    if let Some(disk) = args.max_disk {
        limits.disk = parse_size(&disk)?;
        limits.requested.disk = true;
    }
    if let Some(processes) = args.max_processes {
        limits.processes = processes;
        limits.requested.processes = true;
    }
    if args.allow_advisory {
        config.enforcement = EnforcementMode::BestEffort;
    }
    if let Some(require) = args.require {
        config.require = require.parse()?;
    }
    config.operator = args.operator.parse()?;
    config.output_files_glob = args.globs;
    if let Some(path) = args.out {
        // Found out now rather than when the results are there.
        if path.exists() && !path.is_dir() {
            return Err(SkillRuntimeError::invalid(format!("--out {} is not a folder; name a folder", path.display())));
        }
        let overwrite = if args.overwrite { Overwrite::Replace } else { Overwrite::Refuse };
        config.output = OutputDelivery::Folder { path, overwrite };
    }
    Ok(config)
}

/// CARL's `runtime_config` from the flags.
fn runtime_config(pairs: &[String], network: Option<String>, hosts: Vec<String>) -> Result<Map<String, Value>> {
    let mut config = options(pairs)?;
    if let Some(network) = network {
        config.insert("network".to_owned(), network.into());
    }
    if !hosts.is_empty() {
        config.insert("network_allowlist".to_owned(), hosts.into());
    }
    Ok(config)
}

/// The options of a runtime from `--config KEY=VALUE`.
pub(crate) fn options(pairs: &[String]) -> Result<Map<String, Value>> {
    let mut config = Map::new();
    for pair in pairs {
        let (key, text) = pair.split_once('=').ok_or_else(|| {
            SkillRuntimeError::invalid(format!("--config takes KEY=VALUE, got '{}'", pair.escape_debug()))
        })?;
        // `true`, `3`, `["a"]` are JSON; anything else is text.
        let value = serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()));
        if config.insert(key.to_owned(), value).is_some() {
            return Err(SkillRuntimeError::invalid(format!("--config gives '{}' twice", key.escape_debug())));
        }
    }
    Ok(config)
}

fn inherited(name: &str) -> Result<String> {
    std::env::var(name).map_err(|error| {
        SkillRuntimeError::invalid(format!("--env {}: this environment has no such text variable", name.escape_debug()))
            .caused_by(error)
    })
}

#[expect(clippy::disallowed_methods, reason = "files that the person at the terminal named, opened as that person")]
fn open_stdin(path: &Path) -> Result<File> {
    let opened = if path == Path::new("-") {
        #[cfg(unix)]
        {
            use std::os::fd::AsFd;
            std::io::stdin().as_fd().try_clone_to_owned().map(File::from)
        }
        #[cfg(windows)]
        {
            use std::os::windows::io::AsHandle;
            std::io::stdin().as_handle().try_clone_to_owned().map(File::from)
        }
    } else {
        File::open(path)
    };
    opened.map_err(|error| {
        SkillRuntimeError::new(ErrorKind::NotFound, format!("could not open '{}' for --stdin", path.display()))
            .caused_by(error)
    })
}

/// Opens the file of `--audit`.
pub(crate) fn open_audit(path: &Path) -> Result<JsonlFileSink> {
    File::options().read(true).append(true).create(true).open(path).map(JsonlFileSink::new).map_err(|error| {
        SkillRuntimeError::invalid(format!("could not open '{}' for --audit", path.display())).caused_by(error)
    })
}

/// Passes the script's output on as it comes, and remembers the first failure.
#[derive(Default)]
struct PassThrough {
    failed: std::sync::Mutex<Option<std::io::Error>>,
}

impl OutputSink for PassThrough {
    fn write(&self, stream: Stream, bytes: &[u8]) {
        let written = match stream {
            Stream::Stdout => write_all(&mut std::io::stdout().lock(), bytes),
            Stream::Stderr => write_all(&mut std::io::stderr().lock(), bytes),
        };
        if let Err(error) = written {
            self.failed.lock().unwrap_or_else(std::sync::PoisonError::into_inner).get_or_insert(error);
        }
    }
}

impl PassThrough {
    /// Why output was lost. A reader that went away wanted no more: its going is no failure, and the script's results
    /// may still be wanted.
    fn failure(&self) -> Option<std::io::Error> {
        let failed = self.failed.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        failed.filter(|error| error.kind() != std::io::ErrorKind::BrokenPipe)
    }
}

fn write_all(writer: &mut impl Write, bytes: &[u8]) -> std::io::Result<()> {
    writer.write_all(bytes)?;
    writer.flush()
}

/// Says what came of it and gives the exit code.
fn report(result: &StepResult, as_json: bool) -> ExitCode {
    let code = exit::with_conflict(exit::of_termination(&result.run.termination), result.conflict.as_ref());
    if as_json {
        let printed = terminal::print_bytes(&line(&document(result)));
        return if printed == ExitCode::SUCCESS { ExitCode::from(code) } else { printed };
    }
    if !matches!(result.run.termination, Termination::Exited(_)) {
        terminal::note(&format!("the script was {}", ended(&result.run.termination)));
    }
    for skipped in &result.skipped {
        terminal::note(&format!("not kept: /workspace/out/{} {}", skipped.path, skipped.message));
    }
    let unlisted = result.skipped_total.saturating_sub(result.skipped.len() as u64);
    if unlisted > 0 {
        terminal::note(&format!("not kept: {unlisted} more"));
    }
    if let Some(conflict) = &result.conflict {
        terminal::note_conflict(conflict);
    }
    for mount in &result.mounts {
        report_mount(mount);
    }
    let unkept = result.outputs.iter().filter(|output| output.copied_to.is_none()).count();
    if unkept > 0 {
        terminal::note(&format!("{unkept} result file(s) were not kept; name a folder with --out"));
    }
    ExitCode::from(code)
}

/// Lists what a script changed in a mounted folder, what needs a look first.
fn report_mount(mount: &MountReport) {
    const LISTED: usize = 20;
    for change in mount.changes.iter().take(LISTED) {
        let what = match (change.change, mount.mode) {
            (ChangeKind::Added, _) => "added",
            (ChangeKind::Changed, _) => "changed",
            (ChangeKind::Removed, MountMode::CopyOnWrite) => "asked to remove",
            (ChangeKind::Removed, MountMode::ReadOnly | MountMode::ReadWrite | MountMode::ReadWriteWithoutDelete) => {
                "removed"
            }
        };
        let look = match (change.protected, change.executable) {
            (Some(why), _) => format!("; look at it: {why}"),
            (None, true) => "; look at it: it can be executed".to_owned(),
            (None, false) => String::new(),
        };
        terminal::note(&format!("{what} {}/{}{look}", mount.guest, change.path.escape_debug()));
    }
    let unlisted = mount.changes_total.saturating_sub(mount.changes.len().min(LISTED) as u64);
    if unlisted > 0 {
        terminal::note(&format!("{unlisted} more change(s) in {}; --json lists them", mount.guest));
    }
    if let Some(why) = &mount.incomplete {
        terminal::note(&format!("the list of changes in {} isn't whole: {why}", mount.guest));
    }
    for (path, why) in mount.not_applied.iter().take(LISTED) {
        terminal::note(&format!("not applied: {}/{} {why}", mount.guest, path.escape_debug()));
    }
    if !mount.applied.is_empty() {
        terminal::note(&format!("applied {} change(s) in {}", mount.applied.len(), mount.guest));
    }
}

fn ended(termination: &Termination) -> String {
    match termination {
        Termination::Trapped(trap) => format!("stopped by a trap: {}", trap.message),
        Termination::Exited(_)
        | Termination::Signaled(_)
        | Termination::TimedOut
        | Termination::OutOfFuel
        | Termination::OutOfMemory
        | Termination::OutputLimit
        | Termination::DiskLimit
        | Termination::ProcessLimit
        | Termination::Cancelled => termination.to_string(),
    }
}

fn line(document: &Value) -> Vec<u8> {
    let mut bytes = document.to_string().into_bytes();
    bytes.push(b'\n');
    bytes
}

/// The result as a document. Text that isn't UTF-8 has U+FFFD in it; the counts tell what was cut.
fn document(result: &StepResult) -> Value {
    let stream =
        |output: &CapturedOutput| json!({"text": output.text(), "bytes": output.total(), "dropped": output.dropped()});
    let run = &result.run;
    let outputs: Vec<Value> = result
        .outputs
        .iter()
        .map(|output| {
            let mut entry = serde_json::to_value(&output.file).unwrap_or_default();
            if let (Some(map), Some(path)) = (entry.as_object_mut(), &output.copied_to) {
                map.insert("copied_to".to_owned(), path.to_string_lossy().into_owned().into());
            }
            entry
        })
        .collect();
    json!({
        "run": result.run_id,
        "runtime": result.runtime,
        "skill_sha256_tree": result.skill_digest,
        "termination": run.termination,
        "exit_code": run.exit_code(),
        "timed_out": run.timed_out(),
        "duration_s": run.duration.as_secs_f64(),
        "stdout": stream(&run.stdout),
        "stderr": stream(&run.stderr),
        "usage": {
            "cpu_time_s": run.usage.cpu_time.map(|time| time.as_secs_f64()),
            "peak_memory": run.usage.peak_memory,
            "fuel": run.usage.fuel,
            "disk_written": run.usage.disk_written,
        },
        "output_files": outputs,
        "skipped": result.skipped,
        "skipped_total": result.skipped_total,
        "packages": result.packages,
        "output_conflict": result.conflict,
        "mounts": result.mounts,
        "enforcement": result.enforcement,
        "network_enforced": result.enforcement.network_enforced(),
        "audit": result.audit,
    })
}

fn error_document(error: &SkillRuntimeError) -> Value {
    json!({
        "error": {
            "kind": error.kind(),
            "operation": error.failed_operation(),
            "message": error.to_string(),
            "chain": error.chain(),
        }
    })
}
