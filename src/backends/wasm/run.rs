//! One run from program to result.
//!
//! The guest has a thread of its own, so that neither its computing nor its file calls hold up the caller's executor.
//! Its host calls that wait (sleep, stdin) are futures on the caller's executor, so that they can be dropped. Invariant:
//! the future of [`run`] is ready soon after the time limit whatever the guest does, and dropping it ends the guest.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use wasmtime::{Store, UpdateDeadline};

use super::cache::CompileCache;
use super::engine::{Host, Ready, Settings};
use super::fs::Account;
use super::guest::Guest;
use super::interrupt::{Deadline, Interrupt, Reason};
use super::program::{Entry, Program};
use super::stdio::Output;
use super::trap;
use crate::audit::AuditScope;
use crate::error::{ErrorKind, Result, SkillRuntimeError};
use crate::policy::{Limits, OutMode};
use crate::runtime::{Progress, RunCommand, RuntimeRunResult, Termination, Usage};
use crate::workspace::Workspace;

/// Guest threads at once, the ones that nobody waits for any more counted: a compilation, or a call of the file
/// system, can't be broken off. More runs are refused rather than piled up.
const MAX_THREADS: usize = 256;
/// How long after the limit a guest that was interrupted may take to end: it is at most one host call away from it.
const GRACE: Duration = Duration::from_millis(500);
/// Stack of a guest's thread. Guest code has its own; this is for compiling.
const THREAD_STACK: usize = 4 << 20;

/// What a run needs beside its command.
pub(super) struct Job {
    pub(super) workspace: Arc<Workspace>,
    pub(super) limits: Limits,
    pub(super) out: OutMode,
    pub(super) cache: Arc<CompileCache>,
    pub(super) progress: Arc<dyn Progress>,
    pub(super) guests: Guests,
    pub(super) account: Arc<Account>,
    pub(super) audit: AuditScope,
}

/// The guests of one handle that live.
#[derive(Clone)]
pub(super) struct Guests(tokio::sync::watch::Sender<usize>);

impl Default for Guests {
    fn default() -> Self {
        Self(tokio::sync::watch::Sender::new(0))
    }
}

impl Guests {
    /// Waits until none lives, or the grace time is over.
    pub(super) async fn all_ended(&self) {
        let mut living = self.0.subscribe();
        let ended = async { living.wait_for(|living| *living == 0).await.is_ok() };
        if !matches!(tokio::time::timeout(GRACE, ended).await, Ok(true)) {
            tracing::warn!("a guest is still in a call of the host after its run was given up");
        }
    }

    /// Counts one for as long as the returned value lives.
    fn enter(&self) -> impl Drop + Send + 'static {
        struct Living(tokio::sync::watch::Sender<usize>);
        impl Drop for Living {
            fn drop(&mut self) {
                self.0.send_modify(|living| *living -= 1);
            }
        }
        self.0.send_modify(|living| *living += 1);
        Living(self.0.clone())
    }
}

/// How a guest ended and what it used.
type Ended = Result<(Termination, Usage)>;

/// Runs one command under the job's limits.
pub(super) async fn run(job: Job, command: &RunCommand) -> Result<RuntimeRunResult> {
    let started = Instant::now();
    let limits = job.limits.clone();
    let deadline = started + limits.wall_time;
    let output = Output::new(limits.output, limits.output_kept, command.sink.clone());
    let host = Host::get(Settings { fuel: limits.fuel.is_some(), stack: limits.stack })?;
    let interrupt = Interrupt::new(host.engine.clone());
    let _deadline = Deadline::set(deadline, interrupt.clone())?;
    let _cancel = CancelOnDrop(interrupt.clone());
    let running = Arc::new(AtomicBool::new(false));
    let guest = {
        let (command, output, interrupt, running) =
            (command.clone(), output.clone(), interrupt.clone(), running.clone());
        let executor = tokio::runtime::Handle::current();
        let living = job.guests.enter();
        on_own_thread(move || {
            let ended = live(&host, &job, &command, &output, &interrupt, &running, &executor);
            drop(living);
            ended
        })?
    };
    let ended = tokio::select! {
        biased;
        ended = guest => ended.map_err(|_| SkillRuntimeError::new(
            ErrorKind::Internal,
            "the thread that ran the guest ended without a result; please report it",
        ))?,
        () = overdue(deadline, &running) => Ok((Termination::TimedOut, Usage::default())),
    };
    let (termination, usage) = ended?;
    let (stdout, stderr) = output.snapshot();
    Ok(RuntimeRunResult { termination, stdout, stderr, duration: started.elapsed(), usage })
}

/// Ends the guest when nobody waits for it any more. After a run that ended it does nothing.
struct CancelOnDrop(Arc<Interrupt>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.fire(Reason::Cancelled);
    }
}

/// Ready when the deadline has passed and the guest isn't about to end: at once while it is still compiled, after the
/// grace time when it runs.
async fn overdue(deadline: Instant, running: &AtomicBool) {
    tokio::time::sleep_until(deadline.into()).await;
    if running.load(Ordering::SeqCst) {
        tokio::time::sleep(GRACE).await;
    }
}

/// Runs `work` on a thread of its own; a panic in it is an error, not the end of the process.
fn on_own_thread(work: impl FnOnce() -> Ended + Send + 'static) -> Result<oneshot::Receiver<Ended>> {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    /// Counts a thread for as long as it lives.
    struct Counted;
    impl Drop for Counted {
        fn drop(&mut self) {
            THREADS.fetch_sub(1, Ordering::SeqCst);
        }
    }
    let counted = Counted;
    if THREADS.fetch_add(1, Ordering::SeqCst) >= MAX_THREADS {
        return Err(SkillRuntimeError::new(
            ErrorKind::Unavailable,
            format!("{MAX_THREADS} guests run or compile already; wait until some have ended"),
        ));
    }
    let (sender, receiver) = oneshot::channel();
    let body = move || {
        let _counted = counted;
        let ended = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
            Err(SkillRuntimeError::new(
                ErrorKind::Internal,
                "the WebAssembly engine panicked on this guest; please report it",
            ))
        });
        // The receiver is gone when the run was cancelled or overdue.
        let _ = sender.send(ended);
    };
    std::thread::Builder::new()
        .name("skillcell-wasm".into())
        .stack_size(THREAD_STACK)
        .spawn(body)
        .map_err(|error| SkillRuntimeError::backend("a thread for the guest could not start", error))?;
    Ok(receiver)
}

/// The guest's life, on its own thread.
fn live(
    host: &Host,
    job: &Job,
    command: &RunCommand,
    output: &Output,
    interrupt: &Arc<Interrupt>,
    running: &AtomicBool,
    executor: &tokio::runtime::Handle,
) -> Ended {
    let _inside = executor.enter();
    let progress = job.progress.as_ref();
    let loaded = Program::resolve(&job.workspace, &command.cwd, command.program(), &job.cache, progress)
        .and_then(|program| Ok((host.load(&program, &job.cache, progress)?, program.library)));
    job.progress.done();
    let (ready, library) = loaded?;
    let guest = Guest::new(
        &job.workspace,
        library.as_ref(),
        command,
        (&job.limits, job.out),
        output,
        (&job.account, &job.audit),
    )?;
    let mut store = Store::new(&host.engine, guest);
    store.limiter(|guest| &mut guest.limiter);
    store.set_epoch_deadline(1);
    let heard = interrupt.clone();
    store.epoch_deadline_callback(move |_| {
        Ok(if heard.fired().is_some() { UpdateDeadline::Interrupt } else { UpdateDeadline::Continue(1) })
    });
    if let Some(fuel) = job.limits.fuel {
        store
            .set_fuel(fuel)
            .map_err(|error| SkillRuntimeError::backend("fuel could not be set", format!("{error:#}")))?;
    }
    // Looked at after the epoch's deadline was set: an interrupt from here on moves the epoch past it, one from before
    // is seen here. The other way round, one in between would be heard by nobody.
    if interrupt.fired().is_some() {
        return Ok((interrupted(interrupt), Usage::default()));
    }
    running.store(true, Ordering::SeqCst);
    let clock = CpuClock::start();
    let called = executor.block_on(async {
        tokio::select! {
            biased;
            called = call(&mut store, ready) => called,
            () = interrupt.wait() => Err(wasmtime::Error::msg("interrupted while it waited")),
        }
    });
    let cpu_time = clock.elapsed();
    let guest = store.data();
    let termination = match called {
        _ if interrupt.fired().is_some() => interrupted(interrupt),
        _ if output.exceeded() => Termination::OutputLimit,
        Err(_) if guest.files.exceeded() => Termination::DiskLimit,
        Ok(code) => Termination::Exited(code),
        Err(_) if guest.limiter.exceeded() => Termination::OutOfMemory,
        Err(error) => trap::termination(&error),
    };
    let fuel = job.limits.fuel.and_then(|fuel| Some(fuel.saturating_sub(store.get_fuel().ok()?)));
    let peak_memory = Some(store.data().limiter.memory());
    Ok((termination, Usage { cpu_time, peak_memory, fuel, disk_written: None }))
}

fn interrupted(interrupt: &Interrupt) -> Termination {
    match interrupt.fired() {
        Some(Reason::Deadline) => Termination::TimedOut,
        Some(Reason::Cancelled) | None => Termination::Cancelled,
    }
}

/// Instantiates and starts; a start function of the module runs here too, under the same limits.
async fn call(store: &mut Store<Guest>, ready: Ready) -> wasmtime::Result<i32> {
    match ready {
        Ready::Core(linked, entry) => {
            let instance = linked.instantiate_async(&mut *store).await?;
            match entry {
                Entry::Command => {
                    let start = instance.get_typed_func::<(), ()>(&mut *store, entry.export())?;
                    start.call_async(store, ()).await.map(|()| 0)
                }
            }
        }
        Ready::Component(linked) => {
            let command = linked.instantiate_async(&mut *store).await?;
            let ran = command.wasi_cli_run().call_run(store).await?;
            Ok(i32::from(ran.is_err()))
        }
    }
}

/// Processor time of the current thread.
struct CpuClock(Option<Duration>);

impl CpuClock {
    fn start() -> Self {
        Self(thread_time())
    }

    fn elapsed(&self) -> Option<Duration> {
        Some(thread_time()?.saturating_sub(self.0?))
    }
}

#[cfg(unix)]
fn thread_time() -> Option<Duration> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Some(Duration::new(u64::try_from(time.tv_sec).ok()?, u32::try_from(time.tv_nsec).ok()?))
}

#[cfg(not(unix))]
fn thread_time() -> Option<Duration> {
    None
}
