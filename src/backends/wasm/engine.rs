//! Engines and linkers, made once per combination of settings, and the programs compiled for them.
//!
//! Must not run anything. Invariant: nothing here grows without bound, whatever a caller runs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use wasmtime::component::Component;
use wasmtime::{Config, Engine, InstancePre, Linker, Module};
use wasmtime_wasi::I32Exit;
use wasmtime_wasi::p1::wasi_snapshot_preview1;
use wasmtime_wasi::p2::bindings::CommandPre;
use wasmtime_wasi::p2::bindings::filesystem::{preopens, types};

use super::cache::{CompileCache, Kind};
use super::fs::GuardedFiles;
use super::guest::Guest;
use super::program::{Entry, Program};
use super::sleep;
use super::trap::load_error;
use crate::error::{Result, SkillRuntimeError};
use crate::runtime::Progress;

/// Engines kept: two for fuel or none, times the stack sizes in use. An embedder that varies the stack limit must not
/// collect engines; one that is dropped lives on in the runs that use it.
const MAX_ENGINES: usize = 8;
/// Compiled programs kept in memory per engine: a skill has a handful. The oldest goes first.
const MAX_PROGRAMS: usize = 64;
/// Stack for the host's functions that a guest calls, beside the guest's own.
const HOST_STACK: usize = 1 << 20;
/// Images up to this size are mapped copy-on-write at each instantiation even when they are sparse; larger or sparser
/// ones are copied, which costs milliseconds. An interpreter's image is about 40 MiB.
const MAPPED_IMAGE_BYTES: u64 = 128 << 20;
/// Functions named in the backtrace of a trap.
const BACKTRACE_FRAMES: usize = 16;

/// A program compiled and linked, ready to be instantiated.
#[derive(Clone)]
pub(super) enum Ready {
    /// A core module and the export that starts it.
    Core(InstancePre<Guest>, Entry),
    /// A component with `wasi:cli/run`.
    Component(CommandPre<Guest>),
}

/// What decides which engine a run needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Settings {
    /// Whether fuel is counted: counting slows a tight loop by up to four times, so only when asked for.
    pub(super) fuel: bool,
    /// Bytes of guest stack.
    pub(super) stack: u64,
}

/// One engine, its linkers, and what was compiled for it.
pub(super) struct Host {
    pub(super) engine: Engine,
    core: Linker<Guest>,
    /// Made when the first component is met: it has several hundred functions, and most runs are core modules.
    component: OnceLock<wasmtime::component::Linker<Guest>>,
    programs: Mutex<Programs>,
}

#[derive(Default)]
struct Programs {
    ready: HashMap<blake3::Hash, Ready>,
    order: std::collections::VecDeque<blake3::Hash>,
}

impl Host {
    /// The engine for these settings.
    pub(super) fn get(settings: Settings) -> Result<Arc<Self>> {
        /// The newest last.
        type Hosts = Vec<(Settings, Arc<Host>)>;
        static HOSTS: OnceLock<Mutex<Hosts>> = OnceLock::new();
        let mut hosts = HOSTS.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, host)) = hosts.iter().find(|(known, _)| *known == settings) {
            return Ok(Arc::clone(host));
        }
        let host = Arc::new(Self::new(settings).map_err(|error| {
            SkillRuntimeError::backend("the WebAssembly engine could not be made", format!("{error:#}"))
        })?);
        if hosts.len() >= MAX_ENGINES {
            hosts.remove(0);
        }
        hosts.push((settings, Arc::clone(&host)));
        Ok(host)
    }

    fn new(settings: Settings) -> wasmtime::Result<Self> {
        let stack = usize::try_from(settings.stack)?;
        let mut config = Config::new();
        config
            .consume_fuel(settings.fuel)
            .epoch_interruption(true)
            .max_wasm_stack(stack)
            .async_stack_size(stack.saturating_add(HOST_STACK))
            .memory_guaranteed_dense_image_size(MAPPED_IMAGE_BYTES)
            .wasm_backtrace_max_frames(std::num::NonZeroUsize::new(BACKTRACE_FRAMES));
        let engine = Engine::new(&config)?;
        let mut core = Linker::new(&engine);
        wasi_snapshot_preview1::add_to_linker(&mut core, |guest: &mut Guest| guest)?;
        // The original refuses statuses above 125, which programs do exit with.
        core.allow_shadowing(true);
        core.func_wrap("wasi_snapshot_preview1", "proc_exit", |status: i32| -> wasmtime::Result<()> {
            Err(I32Exit(status).into())
        })?;
        sleep::replace_poll(&mut core)?;
        core.allow_shadowing(false);
        Ok(Self { engine, core, component: OnceLock::new(), programs: Mutex::default() })
    }

    fn component_linker(&self) -> Result<&wasmtime::component::Linker<Guest>> {
        if let Some(linker) = self.component.get() {
            return Ok(linker);
        }
        let make = || -> wasmtime::Result<_> {
            let mut linker = wasmtime::component::Linker::new(&self.engine);
            wasmtime_wasi::p2::add_to_linker_async(&mut linker)?;
            // The file calls go through our own seam.
            linker.allow_shadowing(true);
            preopens::add_to_linker::<Guest, GuardedFiles>(&mut linker, |guest| guest)?;
            types::add_to_linker::<Guest, GuardedFiles>(&mut linker, |guest| guest)?;
            linker.allow_shadowing(false);
            Ok(linker)
        };
        let linker = make().map_err(|error| {
            SkillRuntimeError::backend("the interfaces for components could not be made", format!("{error:#}"))
        })?;
        // Another run may have been quicker; both are alike.
        Ok(self.component.get_or_init(|| linker))
    }

    /// Compiles and links a program, or finds what was compiled before. Takes long the first time.
    pub(super) fn load(&self, program: &Program, cache: &CompileCache, progress: &dyn Progress) -> Result<Ready> {
        let digest = program.digest;
        if let Some(ready) = self.programs.lock().unwrap_or_else(PoisonError::into_inner).ready.get(&digest) {
            return Ok(ready.clone());
        }
        let ready = self.link(program, cache, progress)?;
        let mut programs = self.programs.lock().unwrap_or_else(PoisonError::into_inner);
        if programs.ready.insert(digest, ready.clone()).is_none() {
            programs.order.push_back(digest);
        }
        if programs.order.len() > MAX_PROGRAMS
            && let Some(oldest) = programs.order.pop_front()
        {
            programs.ready.remove(&oldest);
        }
        Ok(ready)
    }

    fn link(&self, program: &Program, cache: &CompileCache, progress: &dyn Progress) -> Result<Ready> {
        let failed = |error: wasmtime::Error| load_error(&program.name, &error);
        match program.kind {
            Kind::Component => {
                let component = self.component(program, cache, progress)?;
                let linked = self.component_linker()?.instantiate_pre(&component).map_err(failed)?;
                Ok(Ready::Component(CommandPre::new(linked).map_err(failed)?))
            }
            Kind::Core => {
                let module = self.module(program, cache, progress)?;
                let entry = program.entry;
                let export = module.get_export(entry.export());
                let start = export.as_ref().and_then(wasmtime::ExternType::func);
                let fits =
                    start.is_some_and(|start| start.params().len() == 0 && start.results().len() == entry.results());
                if !fits {
                    return Err(SkillRuntimeError::invalid(format!(
                        "'{}' exports no function '{}' to start it; build it as a program, not as a library (for Rust: a \
                         binary for wasm32-wasip1)",
                        program.name,
                        entry.export()
                    )));
                }
                Ok(Ready::Core(self.core.instantiate_pre(&module).map_err(failed)?, entry))
            }
        }
    }

    fn module(&self, program: &Program, cache: &CompileCache, progress: &dyn Progress) -> Result<Module> {
        let key = CompileCache::key(&self.engine, Kind::Core, &program.digest);
        if let Some(module) = cache.module(&self.engine, &key) {
            return Ok(module);
        }
        progress.working(&format!("compiling {}", program.name));
        let module = Module::new(&self.engine, program.bytes()?).map_err(|error| load_error(&program.name, &error))?;
        cache.store(&key, module.serialize());
        Ok(module)
    }

    fn component(&self, program: &Program, cache: &CompileCache, progress: &dyn Progress) -> Result<Component> {
        let key = CompileCache::key(&self.engine, Kind::Component, &program.digest);
        if let Some(component) = cache.component(&self.engine, &key) {
            return Ok(component);
        }
        progress.working(&format!("compiling {}", program.name));
        let component =
            Component::new(&self.engine, program.bytes()?).map_err(|error| load_error(&program.name, &error))?;
        cache.store(&key, component.serialize());
        Ok(component)
    }
}
