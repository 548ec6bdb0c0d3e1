//! What runtime `wasm` costs, beside a bare wasmtime embedding that does the same without any of the guarantees: no
//! limits, no digests, no audit, no bounded capture, files by `std::fs`. Both alternate within one process, so that a
//! busy machine slows both; the figures to quote are the ratios.
//!
//! `cargo bench --no-default-features --features wasm --bench wasm`, with `-- --quick` for a short look that only shows
//! that everything still runs. With `TMPDIR` on a file system in memory the work of the processor shows.
#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "the bare side uses the standard library, and a benchmark prints and may fail"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use skillcell::SandboxPolicy;
use skillcell::audit::{AuditScope, NullSink, RunId};
use skillcell::runtime::{PrepareContext, Progress, RunCommand, RuntimeConfig, SilentProgress};
use skillcell::skill::{SkillSource, TrustPolicy, VerifiedSkill};
use skillcell::step::{AgentSkillStepConfig, StepContext, execute};
use skillcell::workspace::{Area, Workspace};
use wasmtime::{Engine, InstancePre, Linker, Module, Store};
use wasmtime_wasi::p1::{self, WasiP1Ctx};
use wasmtime_wasi::p2::pipe::MemoryOutputPipe;
use wasmtime_wasi::{FsPerms, WasiCtxBuilder};

/// Not counted: page cache, allocator and branch predictors settle.
const WARM_UP: usize = 20;
/// What the bare side keeps of its guest's output: as much as skillcell does by default.
const KEPT: usize = 1 << 20;
/// One more than skillcell keeps compiled in memory, and some: a second pass over so many finds each on disk only.
const VARIANTS: usize = 80;

/// How often each thing is done.
struct Rounds {
    compile: usize,
    load: usize,
    warm: usize,
}

fn main() {
    // `cargo test --benches` runs benchmarks too, without this argument.
    let measure = std::env::args().any(|argument| argument == "--bench");
    let quick = !measure || std::env::args().any(|argument| argument == "--quick");
    let rounds = if quick {
        Rounds { compile: 3, load: 2, warm: 20 }
    } else {
        // Enough for a 99th percentile that some values lie above.
        Rounds { compile: 200, load: VARIANTS * 5, warm: 2_000 }
    };
    let bench = Bench::new();
    println!("{:<34} {:>10} {:>10} {:>10} {:>10} {:>7} {:>7}", "", "skillcell", "", "bare", "", "ratio", "");
    println!("{:<34} {:>10} {:>10} {:>10} {:>10} {:>7} {:>7}", "", "p50", "p99", "p50", "p99", "p50", "p99");
    bench.compile(rounds.compile);
    bench.load(rounds.load);
    bench.instantiate(rounds.warm);
    bench.run_on_a_handle(rounds.warm);
    bench.whole("whole run, hello", "hello", &[], rounds.warm);
    bench.whole("whole run, one result file", "probe", &["write", "/workspace/out/report", "done"], rounds.warm);
}

struct Bench {
    executor: tokio::runtime::Runtime,
    context: StepContext,
    bare: Bare,
    /// Holds modules, workspaces of the bare side, and compiled code of both.
    folder: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        Self {
            executor: tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap(),
            context: StepContext::new(skillcell::builtin_registry()),
            bare: Bare::new(),
            folder: tempfile::tempdir().unwrap(),
        }
    }

    /// The first run of a module that was never seen.
    fn compile(&self, rounds: usize) {
        let mut times = Times::default();
        for round in 0..WARM_UP.min(rounds) + rounds {
            let script = self.variant("compile", round);
            let config = step(&script, "", &[]);
            times.ours(|| self.execute(config));
            times.bare(|| {
                let module = Module::from_binary(&self.bare.engine, &fs::read(&script).unwrap()).unwrap();
                self.bare.whole(self.folder.path(), &script, &self.bare.link(&module), &[]);
            });
        }
        times.print("first run, with compiling", rounds);
    }

    /// The first run of this process of a module that was compiled by an earlier one.
    fn load(&self, rounds: usize) {
        let cache = self.folder.path().join("cache");
        let cache = cache.to_str().unwrap();
        let scripts: Vec<PathBuf> = (0..VARIANTS).map(|index| self.variant("load", index)).collect();
        for script in &scripts {
            self.execute(step(script, cache, &[]));
            let module = Module::from_file(&self.bare.engine, script).unwrap();
            fs::write(script.with_extension("cwasm"), module.serialize().unwrap()).unwrap();
        }
        let mut times = Times::default();
        for script in scripts.iter().cycle().take(WARM_UP.min(rounds) + rounds) {
            let config = step(script, cache, &[]);
            times.ours(|| self.execute(config));
            times.bare(|| {
                // SAFETY: the file was written a moment ago by this process, in a folder that only its user can reach.
                #[expect(unsafe_code, reason = "the bare side loads compiled code as an embedder would")]
                let module =
                    unsafe { Module::deserialize_file(&self.bare.engine, script.with_extension("cwasm")) }.unwrap();
                self.bare.whole(self.folder.path(), script, &self.bare.link(&module), &[]);
            });
        }
        times.print("first run, compiled code on disk", rounds);
    }

    /// Only the bare side has a figure of its own for it.
    fn instantiate(&self, rounds: usize) {
        let linked = self.bare.link(&Module::from_file(&self.bare.engine, self.guest("hello")).unwrap());
        let root = self.folder.path().join("instantiate");
        make_areas(&root);
        let mut times = Vec::new();
        for _ in 0..WARM_UP + rounds {
            let (mut store, _) = self.bare.store(&root, "hello.wasm", &[]);
            let start = Instant::now();
            linked.instantiate(&mut store).unwrap();
            times.push(start.elapsed());
        }
        let [p50, p99] = percentiles(&times[WARM_UP..]);
        println!("{:<34} {:>10} {:>10} {p50:>10.1?} {p99:>10.1?}", "instantiate", "", "");
    }

    /// A run on a handle that is prepared already: what each further call costs.
    fn run_on_a_handle(&self, rounds: usize) {
        let runtime = self.context.registry.get("wasm").unwrap();
        let run = RunId::random().unwrap();
        let audit = AuditScope::new(run, "wasm", Arc::new(NullSink));
        let source = SkillSource::Script(self.guest("hello"));
        let skill = VerifiedSkill::verify(&source, &TrustPolicy::Any, &audit).unwrap();
        let workspace = Arc::new(Workspace::create(run).unwrap());
        workspace.stage_tree(Area::Skill, skill.tree()).unwrap();
        let (policy, config) = (SandboxPolicy::default(), RuntimeConfig::new(no_cache()));
        let progress: Arc<dyn Progress> = Arc::new(SilentProgress);
        let context = PrepareContext { policy: &policy, config: &config, audit: &audit, progress: &progress };
        let handle = self.executor.block_on(runtime.prepare(&skill, workspace, &context)).unwrap();
        let command = RunCommand::new(["/workspace/skill/hello.wasm"]).unwrap();
        let linked = self.bare.link(&Module::from_file(&self.bare.engine, self.guest("hello")).unwrap());
        let root = self.folder.path().join("handle");
        make_areas(&root);
        let mut times = Times::default();
        for _ in 0..WARM_UP + rounds {
            times.ours(|| {
                let result = self.executor.block_on(runtime.run(&handle, &command)).unwrap();
                assert!(result.success() && result.stdout.head() == b"hello\n", "{result:?}");
            });
            times.bare(|| assert_eq!(self.bare.run(&root, &linked, "hello.wasm", &[]), "hello\n"));
        }
        self.executor.block_on(runtime.cleanup(&handle)).unwrap();
        times.print("run on a prepared handle, hello", rounds);
    }

    /// Everything, warm: stage, prepare, run, collect, clean up.
    fn whole(&self, what: &str, script: &str, args: &[&str], rounds: usize) {
        let script = self.guest(script);
        let linked = self.bare.link(&Module::from_file(&self.bare.engine, &script).unwrap());
        let mut times = Times::default();
        for _ in 0..WARM_UP + rounds {
            let config = step(&script, "", args);
            times.ours(|| self.execute(config));
            times.bare(|| self.bare.whole(self.folder.path(), &script, &linked, args));
        }
        times.print(what, rounds);
    }

    fn execute(&self, config: AgentSkillStepConfig) {
        let files = usize::from(!config.args.is_empty());
        let result = self.executor.block_on(execute(config, &self.context)).unwrap();
        assert!(result.run.success() && result.outputs.len() == files, "{result:?}");
    }

    /// A guest of the tests in binary form, so that neither side translates text.
    fn guest(&self, name: &str) -> PathBuf {
        let path = self.folder.path().join(format!("{name}.wasm"));
        if !path.exists() {
            fs::write(&path, wat::parse_file(text(name)).unwrap()).unwrap();
        }
        path
    }

    /// A module that does what `hello` does and is different from every other: a custom section holds a number.
    fn variant(&self, name: &str, index: usize) -> PathBuf {
        let mut bytes = wat::parse_file(text("hello")).unwrap();
        bytes.extend([0, 10, 1, b'n']);
        bytes.extend(u64::try_from(index).unwrap().to_le_bytes());
        let path = self.folder.path().join(format!("{name}-{index}.wasm"));
        fs::write(&path, bytes).unwrap();
        path
    }
}

fn text(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guests/wat").join(format!("{name}.wat"))
}

fn no_cache() -> serde_json::Map<String, serde_json::Value> {
    std::iter::once(("cache_dir".to_owned(), "".into())).collect()
}

fn step(script: &Path, cache: &str, args: &[&str]) -> AgentSkillStepConfig {
    let mut config = AgentSkillStepConfig::new(SkillSource::Script(script.to_owned()));
    config.runtime_config.insert("cache_dir".to_owned(), cache.into());
    config.args = args.iter().map(|argument| (*argument).to_owned()).collect();
    config
}

/// The bare embedding: the engine's defaults, WASI preview 1, five preopened folders.
struct Bare {
    engine: Engine,
    linker: Linker<WasiP1Ctx>,
}

impl Bare {
    fn new() -> Self {
        let engine = Engine::default();
        let mut linker = Linker::new(&engine);
        p1::add_to_linker_sync(&mut linker, |context: &mut WasiP1Ctx| context).unwrap();
        Self { engine, linker }
    }

    fn link(&self, module: &Module) -> InstancePre<WasiP1Ctx> {
        self.linker.instantiate_pre(module).unwrap()
    }

    fn store(&self, root: &Path, name: &str, args: &[&str]) -> (Store<WasiP1Ctx>, MemoryOutputPipe) {
        let output = MemoryOutputPipe::new(KEPT);
        let mut wasi = WasiCtxBuilder::new();
        wasi.arg(name).args(args).env("LANG", "C.UTF-8").allow_blocking_current_thread(true);
        wasi.stdout(output.clone()).stderr(MemoryOutputPipe::new(KEPT));
        for area in Area::ALL {
            let perms = if area.writable() { FsPerms::ReadWrite } else { FsPerms::ReadOnly };
            wasi.preopened_dir(root.join(area.name()), area.guest_path().to_string(), perms).unwrap();
        }
        (Store::new(&self.engine, wasi.build_p1()), output)
    }

    fn run(&self, root: &Path, linked: &InstancePre<WasiP1Ctx>, name: &str, args: &[&str]) -> String {
        let (mut store, output) = self.store(root, name, args);
        let instance = linked.instantiate(&mut store).unwrap();
        instance.get_typed_func::<(), ()>(&mut store, "_start").unwrap().call(&mut store, ()).unwrap();
        drop(store);
        String::from_utf8(output.contents().to_vec()).unwrap()
    }

    /// The run and the work on files around it.
    fn whole(&self, parent: &Path, script: &Path, linked: &InstancePre<WasiP1Ctx>, args: &[&str]) {
        let root = parent.join("bare");
        make_areas(&root);
        let name = script.file_name().unwrap().to_str().unwrap();
        fs::copy(script, root.join("skill").join(name)).unwrap();
        let printed = self.run(&root, linked, name, args);
        let mut found = Vec::new();
        for entry in fs::read_dir(root.join("out")).unwrap() {
            found.push(fs::read(entry.unwrap().path()).unwrap());
        }
        fs::remove_dir_all(&root).unwrap();
        if args.is_empty() {
            assert_eq!((printed.as_str(), found.len()), ("hello\n", 0));
        } else {
            assert_eq!((printed.as_str(), found), ("write 0\n", vec![b"done".to_vec()]));
        }
    }
}

fn make_areas(root: &Path) {
    for area in Area::ALL {
        fs::create_dir_all(root.join(area.name())).unwrap();
    }
}

/// Times of both sides, in the order they were taken.
#[derive(Default)]
struct Times {
    ours: Vec<Duration>,
    bare: Vec<Duration>,
}

impl Times {
    fn ours(&mut self, work: impl FnOnce()) {
        let start = Instant::now();
        work();
        self.ours.push(start.elapsed());
    }

    fn bare(&mut self, work: impl FnOnce()) {
        let start = Instant::now();
        work();
        self.bare.push(start.elapsed());
    }

    /// The last `rounds` count.
    fn print(&self, what: &str, rounds: usize) {
        let [ours, bare] = [&self.ours, &self.bare].map(|times| percentiles(&times[times.len() - rounds..]));
        let ratio = |index: usize| ours[index].as_secs_f64() / bare[index].as_secs_f64();
        println!(
            "{what:<34} {:>10.1?} {:>10.1?} {:>10.1?} {:>10.1?} {:>7.2} {:>7.2}",
            ours[0],
            ours[1],
            bare[0],
            bare[1],
            ratio(0),
            ratio(1)
        );
    }
}

/// The median and the 99th percentile.
fn percentiles(times: &[Duration]) -> [Duration; 2] {
    let mut times = times.to_vec();
    times.sort();
    [times.len() / 2, times.len() * 99 / 100].map(|index| times[index.min(times.len() - 1)])
}
