//! Freezing an interpreter after its start, so that no run pays for it.
//!
//! The same module and library give the same snapshot: while it starts, the interpreter is told a time that stands
//! still, random bytes that are all alike, no arguments and no environment. What must differ between runs is therefore
//! the entry program's duty to draw anew in each run, and the pack's tests check that it does.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use wasmtime::{Engine, Linker, Module, Store};
use wasmtime_wasi::p1::{self, WasiP1Ctx};
use wasmtime_wasi::random::Deterministic;
use wasmtime_wasi::{FsPerms, HostMonotonicClock, HostWallClock, WasiCtxBuilder};

/// What a pack's module exports for the snapshot. `prepare` is gone from the result and `run` is its `_start`.
const PREPARE: &str = "prepare";
const RUN: &str = "run";
const START: &str = "_start";

/// A clock that stands still, so that no date gets into a snapshot.
struct StandingClock {
    seconds: u64,
}

impl HostWallClock for StandingClock {
    fn resolution(&self) -> Duration {
        Duration::from_nanos(1)
    }

    fn now(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }
}

impl HostMonotonicClock for StandingClock {
    fn resolution(&self) -> u64 {
        1
    }

    fn now(&self) -> u64 {
        1_000_000
    }
}

/// Runs the module's `prepare` and freezes what became of it. `library` is a folder, and where the module sees it.
pub(super) fn snapshot(wasm: &[u8], library: Option<(&Path, &str)>, source_date: u64) -> Result<Vec<u8>> {
    let engine = Engine::default();
    // Any byte would do. It must only be the same each time.
    let random = || Deterministic::new(vec![0x5a]);
    let mut wasi = WasiCtxBuilder::new();
    wasi.inherit_stderr()
        .wall_clock(StandingClock { seconds: source_date })
        .monotonic_clock(StandingClock { seconds: source_date })
        .secure_random(random())
        .insecure_random(random())
        .insecure_random_seed(0);
    if let Some((folder, guest_folder)) = library {
        wasi.preopened_dir(folder, guest_folder, FsPerms::ReadOnly)
            .map_err(|error| anyhow!("can't open {}: {error}", folder.display()))?;
    }
    let mut store = Store::new(&engine, wasi.build_p1());
    let mut wizer = wasmtime_wizer::Wizer::new();
    wizer.init_func(PREPARE).func_rename(START, RUN);
    let runtime = tokio::runtime::Builder::new_current_thread().build().context("can't start the snapshot")?;
    runtime
        .block_on(wizer.run(&mut store, wasm, async |store: &mut Store<WasiP1Ctx>, module: &Module| {
            let mut linker = Linker::new(store.engine());
            p1::add_to_linker_async(&mut linker, |state| state)?;
            linker.instantiate_async(store, module).await
        }))
        .map_err(|error| anyhow!("the interpreter did not get ready to be frozen: {error:?}"))
}
