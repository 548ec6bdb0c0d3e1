//! Running a pack's interpreter under the bare engine: for `pack verify --run`, for the pack's tests, for measurements.
//!
//! This is not the sandbox of skillcell: no policy, no limits but a deadline. It shows what the pack itself does, so
//! that a fault can be told from one of the runtime around it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use wasmtime::{Cache, Config, Engine, InstancePre, Linker, Module, Store, Trap};
use wasmtime_wasi::p1::{self, WasiP1Ctx};
use wasmtime_wasi::p2::pipe::{MemoryInputPipe, MemoryOutputPipe};
use wasmtime_wasi::{FsPerms, I32Exit, WasiCtxBuilder};

use super::manifest::Role;
use super::verify::{Verified, verify};

/// Output above this is a fault of the test, and ends the run.
const OUTPUT_LIMIT: usize = 64 << 20;
/// The engine is asked this often whether a run is over time.
const TICK: Duration = Duration::from_millis(10);
/// The stack for calls of the guest: what the runtime gives when nothing else is asked for. Deep recursion must end in
/// the interpreter's own error before it is used up.
const STACK: usize = 8 << 20;
/// A snapshot's memory is mapped copy-on-write only if it is below this or more than half full; with the engine's own
/// 16 MiB it would be copied for every instance, which takes ten times as long as the rest.
const DENSE_IMAGE: u64 = 256 << 20;

/// The engine that packs are run with here.
pub struct PackEngine {
    engine: Engine,
    stop: Arc<AtomicBool>,
}

impl std::fmt::Debug for PackEngine {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("PackEngine").finish_non_exhaustive()
    }
}

/// A pack that is compiled and ready to be called.
pub struct PackProgram {
    engine: Engine,
    instances: InstancePre<WasiP1Ctx>,
    export: String,
    /// Holds the library while programs run.
    library: Option<(tempfile::TempDir, String)>,
}

impl std::fmt::Debug for PackProgram {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("PackProgram").field("export", &self.export).finish_non_exhaustive()
    }
}

/// Where a program reads from and writes to.
#[derive(Debug, Clone)]
pub enum Streams {
    /// It reads these bytes; what it writes is kept for [`Outcome`].
    Captured {
        /// Its standard input.
        stdin: Vec<u8>,
    },
    /// It has the streams of this process.
    Inherited,
}

impl Default for Streams {
    fn default() -> Self {
        Self::Captured { stdin: Vec::new() }
    }
}

/// One call of an interpreter.
#[derive(Debug, Clone, Default)]
pub struct Run {
    /// Arguments, the program's name first.
    pub arguments: Vec<String>,
    /// The whole environment.
    pub environment: Vec<(String, String)>,
    /// Folders: host path, guest path, whether the guest may write.
    pub folders: Vec<(PathBuf, String, FolderAccess)>,
    /// Standard input, output and error.
    pub streams: Streams,
    /// The longest it may take.
    pub deadline: Option<Duration>,
}

/// What a guest may do in a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FolderAccess {
    /// Read.
    ReadOnly,
    /// Read, write, delete.
    ReadWrite,
}

/// What came out of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Exit code.
    pub code: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl PackEngine {
    /// Starts an engine.
    ///
    /// # Errors
    /// When the engine can't be had on this machine.
    pub fn new() -> Result<Self> {
        let mut config = Config::new();
        config.epoch_interruption(true);
        config.max_wasm_stack(STACK);
        config.async_stack_size(2 * STACK);
        // The user's own cache of compiled modules, as the engine's command has it: a pack takes seconds to compile.
        config.cache(Some(Cache::from_file(None).map_err(|error| anyhow!("can't use the cache: {error}"))?));
        config.memory_guaranteed_dense_image_size(DENSE_IMAGE);
        let engine = Engine::new(&config).map_err(|error| anyhow!("can't start the engine: {error}"))?;
        let stop = Arc::new(AtomicBool::new(false));
        let (ticking, stopped) = (engine.weak(), Arc::clone(&stop));
        std::thread::Builder::new()
            .name("pack-deadline".to_owned())
            .spawn(move || {
                while !stopped.load(Ordering::Relaxed) {
                    std::thread::sleep(TICK);
                    match ticking.upgrade() {
                        Some(engine) => engine.increment_epoch(),
                        None => break,
                    }
                }
            })
            .context("can't start the clock of the engine")?;
        Ok(Self { engine, stop })
    }

    /// Compiles a verified pack.
    ///
    /// # Errors
    /// When it does not compile, or its library can't be laid out.
    pub fn compile(&self, pack: &Verified) -> Result<PackProgram> {
        let module = Module::new(&self.engine, pack.data(Role::Module)?)
            .map_err(|error| anyhow!("the module does not compile: {error}"))?;
        let mut linker = Linker::new(&self.engine);
        p1::add_to_linker_sync(&mut linker, |state| state).map_err(|error| anyhow!("{error}"))?;
        // The engine's own takes no code above 125 for an exit.
        linker.allow_shadowing(true);
        linker
            .func_wrap("wasi_snapshot_preview1", "proc_exit", |code: i32| -> wasmtime::Result<()> {
                Err(I32Exit(code & 0xff).into())
            })
            .map_err(|error| anyhow!("{error}"))?;
        let instances = linker.instantiate_pre(&module).map_err(|error| anyhow!("an import is missing: {error}"))?;
        let library = match pack.manifest.file(Role::Library) {
            Ok(file) => {
                let folder = tempfile::tempdir().context("can't make a folder for the library")?;
                std::fs::write(folder.path().join(&file.name), pack.data(Role::Library)?)
                    .context("can't lay out the library")?;
                let guest_path = file.guest_path.as_deref().unwrap_or_default();
                let guest_folder = guest_path.rsplit_once('/').map_or("/", |(folder, _)| folder);
                Some((folder, guest_folder.to_owned()))
            }
            Err(_) => None,
        };
        let export = pack.manifest.entry.export.clone();
        Ok(PackProgram { engine: self.engine.clone(), instances, export, library })
    }
}

impl Drop for PackEngine {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl PackProgram {
    /// Calls the interpreter in an instance of its own.
    ///
    /// # Errors
    /// When the call could not be made, trapped, or took longer than its deadline. An exit code other than 0 is no
    /// error.
    pub fn call(&self, run: &Run) -> Result<Outcome> {
        let (stdout, stderr) = (MemoryOutputPipe::new(OUTPUT_LIMIT), MemoryOutputPipe::new(OUTPUT_LIMIT));
        let mut wasi = WasiCtxBuilder::new();
        wasi.args(&run.arguments).envs(&run.environment).allow_blocking_current_thread(true);
        match &run.streams {
            Streams::Captured { stdin } => {
                wasi.stdin(MemoryInputPipe::new(stdin.clone())).stdout(stdout.clone()).stderr(stderr.clone());
            }
            Streams::Inherited => {
                wasi.inherit_stdio();
            }
        }
        if let Some((folder, guest)) = &self.library {
            preopen(&mut wasi, folder.path(), guest, FolderAccess::ReadOnly)?;
        }
        for (host, guest, access) in &run.folders {
            preopen(&mut wasi, host, guest, *access)?;
        }
        let mut store = Store::new(&self.engine, wasi.build_p1());
        let ticks = run.deadline.map_or(u64::MAX / 2, |deadline| {
            u64::try_from(deadline.as_nanos() / TICK.as_nanos()).unwrap_or(u64::MAX / 2).max(1)
        });
        store.set_epoch_deadline(ticks);
        let result = self.enter(store)?;
        let text = |pipe: MemoryOutputPipe| String::from_utf8_lossy(&pipe.contents()).into_owned();
        let (stdout, stderr) = (text(stdout), text(stderr));
        let code = match result {
            Ok(()) => 0,
            Err(error) => match (error.downcast_ref::<I32Exit>(), error.downcast_ref::<Trap>()) {
                (Some(exit), _) => exit.0,
                (None, Some(Trap::Interrupt)) => {
                    return Err(anyhow!(
                        "took longer than {:?}; until then it printed {stdout:?} {stderr:?}",
                        run.deadline
                    ));
                }
                (None, _) => return Err(anyhow!("{error:?}; it printed {stdout:?} {stderr:?}")),
            },
        };
        Ok(Outcome { code, stdout, stderr })
    }

    /// On a thread of its own, because the guest's stack is part of the thread's, which may be smaller.
    fn enter(&self, mut store: Store<WasiP1Ctx>) -> Result<wasmtime::Result<()>> {
        let call = move || {
            let instance = self.instances.instantiate(&mut store)?;
            instance.get_typed_func::<(), ()>(&mut store, &self.export)?.call(&mut store, ())
        };
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().stack_size(2 * STACK).spawn_scoped(scope, call);
            let ended = thread.context("can't start a thread for the guest")?.join();
            ended.map_err(|_| anyhow!("the engine panicked; please report it"))
        })
    }
}

/// What `pack run` is given.
#[derive(Debug, Args)]
pub(super) struct RunArguments {
    /// The pack
    name: String,
    /// A folder for the guest: HOST::GUEST, or HOST::GUEST::rw to let it write
    #[arg(long = "dir", value_name = "HOST::GUEST[::rw]")]
    folders: Vec<String>,
    /// A variable for the guest
    #[arg(long = "env", value_name = "NAME=VALUE")]
    variables: Vec<String>,
    /// The interpreter's arguments
    #[arg(last = true)]
    arguments: Vec<String>,
}

/// Runs a pack's interpreter with the streams of this process; gives its exit code.
pub(super) fn run_interpreter(packs: &Path, arguments: &RunArguments) -> Result<u8> {
    let pack = verify(&packs.join(&arguments.name))?;
    let mut run = Run { streams: Streams::Inherited, ..Run::default() };
    run.arguments = pack.manifest.programs.first().cloned().into_iter().chain(arguments.arguments.clone()).collect();
    for folder in &arguments.folders {
        let parts: Vec<&str> = folder.split("::").collect();
        let (host, guest, access) = match parts.as_slice() {
            [host, guest] => (host, guest, FolderAccess::ReadOnly),
            [host, guest, "rw"] => (host, guest, FolderAccess::ReadWrite),
            _ => bail!("--dir {folder:?} is not HOST::GUEST or HOST::GUEST::rw"),
        };
        run.folders.push((PathBuf::from(host), (*guest).to_owned(), access));
    }
    for variable in &arguments.variables {
        let (name, value) =
            variable.split_once('=').with_context(|| format!("--env {variable:?} is not NAME=VALUE"))?;
        run.environment.push((name.to_owned(), value.to_owned()));
    }
    let outcome = PackEngine::new()?.compile(&pack)?.call(&run)?;
    Ok(u8::try_from(outcome.code).unwrap_or(u8::MAX))
}

fn preopen(wasi: &mut WasiCtxBuilder, host: &Path, guest: &str, access: FolderAccess) -> Result<()> {
    let permissions = match access {
        FolderAccess::ReadOnly => FsPerms::ReadOnly,
        FolderAccess::ReadWrite => FsPerms::ReadWrite,
    };
    wasi.preopened_dir(host, guest, permissions)
        .map(|_| ())
        .map_err(|error| anyhow!("can't give the folder {} to the guest: {error}", host.display()))
}
