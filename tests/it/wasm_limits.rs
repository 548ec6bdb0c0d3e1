//! Every limit of runtime `wasm` ends the run under its own name, what was written until then is kept, and the host
//! goes on: each run is followed by a good one. Nothing here measures time; wall-clock limits that aren't under test
//! only guard against a hang.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use skillcell::policy::Limits;
use skillcell::runtime::{OutputSink, Stdin, Stream, Termination};
use skillcell::workspace::Area;

use crate::wasm_support::{Prepared, Seen, generous, module, printed, probe, run, step, until, wat};

/// A wall-clock limit for guests that never end: short, but long enough for a busy machine to let them say a word first.
fn short() -> Limits {
    Limits { wall_time: Duration::from_secs(3), ..Limits::default() }
}

/// The host is alive and well: another run works.
async fn assert_alive(prepared: &Prepared, after: &str) {
    assert_eq!(prepared.run(&["say", "alive"]).await, printed("alive"), "after {after}");
}

/// A run on a new handle that is ended by a limit, after the guest has said something on both streams.
async fn ended(limits: Limits, words: &[&str], termination: Termination, limit: &str) -> Prepared {
    let prepared = Prepared::new(limits).await;
    let words = [&["say", "out\n", "err", "err\n"], words].concat();
    let seen = prepared.run(&words).await;
    assert_eq!(seen, Seen { termination, stdout: "out\n".into(), stderr: "err\n".into() }, "{words:?}");
    assert_eq!(prepared.limits_hit(), [limit], "{words:?}");
    prepared
}

#[tokio::test]
async fn endless_computing_and_endless_waiting_end_at_the_time_limit() {
    for words in [&["spin"][..], &["sleep", "31536000"]] {
        let prepared = ended(short(), words, Termination::TimedOut, "time_limit").await;
        assert_alive(&prepared, words[0]).await;
    }
    // The twin: a sleep that fits.
    assert_eq!(Seen::of(&run(probe(&["sleep", "0", "say", "awake"])).await.run), printed("sleep ok\nawake"));
    // Endless before its first instruction.
    let prepared = Prepared::with(&wat("start_loop.wat"), short(), &[]).await;
    let seen = prepared.run(&[]).await;
    assert_eq!(seen, Seen { termination: Termination::TimedOut, stdout: String::new(), stderr: String::new() });
    assert_eq!(Seen::of(&run(step(&wat("hello.wat"))).await.run), printed("hello\n"));
}

#[tokio::test]
async fn waiting_for_input_that_never_comes_ends_at_the_time_limit() {
    let prepared = Prepared::new(short()).await;
    let (read, write) = rustix::pipe::pipe().unwrap();
    let mut command = prepared.command(&["say", "asking\n", "cat"]);
    command.stdin = Stdin::File(Arc::new(read.into()));
    let seen = Seen::of(&prepared.run_command(&command).await);
    let expected = Seen { termination: Termination::TimedOut, stdout: "asking\n".into(), stderr: String::new() };
    assert_eq!(seen, expected);
    assert_alive(&prepared, "a read of nothing").await;
    // The twin: input that comes late, in pieces, from a pipe that is then closed.
    let prepared = Prepared::new(generous()).await;
    let (late, mut late_write) = {
        let (read, write) = rustix::pipe::pipe().unwrap();
        (read, std::fs::File::from(write))
    };
    command.stdin = Stdin::File(Arc::new(late.into()));
    let feed = async move {
        for piece in ["one ", "two"] {
            tokio::task::yield_now().await;
            late_write.write_all(piece.as_bytes()).unwrap();
        }
    };
    let (result, ()) = tokio::join!(prepared.run_command(&command), feed);
    assert_eq!(Seen::of(&result), printed("asking\none two"));
    drop(write);
}

#[tokio::test]
async fn endless_recursion_traps_and_names_the_function() {
    for stack in [64 << 10, 1 << 20, 64 << 20] {
        let prepared = Prepared::new(Limits { stack, ..generous() }).await;
        let seen = prepared.run(&["say", "before\n", "descend"]).await;
        let Termination::Trapped(trap) = seen.termination else { panic!("{seen:?}") };
        assert_eq!((trap.code.as_str(), seen.stdout.as_str()), ("stack_overflow", "before\n"));
        assert!(trap.message.contains("descend"), "{}", trap.message);
        assert_eq!(prepared.limits_hit(), Vec::<&str>::new(), "a trap is the guest's own fault");
        assert_alive(&prepared, "recursion").await;
    }
}

#[tokio::test]
async fn memory_ends_at_its_limit() {
    let limits = Limits { memory: 16 << 20, ..generous() };
    let prepared = ended(limits.clone(), &["grow"], Termination::OutOfMemory, "memory_limit").await;
    assert_alive(&prepared, "growth").await;
    let prepared = ended(limits.clone(), &["pages", "60000"], Termination::OutOfMemory, "memory_limit").await;
    // The twin: 44 pages to begin with, 212 more are 16 MiB.
    assert_eq!(prepared.run(&["pages", "212"]).await, printed("pages ok 44\n"));
    // Modules whose declaration alone is too much, with and without the pages being touched.
    for (name, text) in [
        ("minimum", "(module (memory (export \"memory\") 65536) (func (export \"_start\")))"),
        (
            "data",
            "(module (memory (export \"memory\") 2000) (data (i32.const 131071000) \"x\") (func (export \"_start\")))",
        ),
        ("several", "(module (memory (export \"memory\") 200) (memory 200) (func (export \"_start\")))"),
    ] {
        let (mut config, _folder) = module("greedy.wat", text);
        config.limits = limits.clone();
        let seen = Seen::of(&run(config).await.run);
        let expected = Seen { termination: Termination::OutOfMemory, stdout: String::new(), stderr: String::new() };
        assert_eq!(seen, expected, "{name}");
    }
    let (mut config, _folder) =
        module("modest.wat", "(module (memory (export \"memory\") 256) (func (export \"_start\")))");
    config.limits = limits;
    assert_eq!(Seen::of(&run(config).await.run), printed(""));
}

#[tokio::test]
async fn tables_end_at_their_limit() {
    let table = |size: u32| {
        format!("(module (memory (export \"memory\") 1) (table {size} funcref) (func (export \"_start\")))")
    };
    let growing = "(module (memory (export \"memory\") 1) (table $t 1 funcref) (func (export \"_start\")
        (loop $more (drop (table.grow $t (ref.null func) (i32.const 1000))) (br $more))))";
    for text in [table(u32::MAX), table(100_001), growing.to_owned()] {
        let (config, _folder) = module("table.wat", &text);
        let seen = Seen::of(&run(config).await.run);
        let expected = Seen { termination: Termination::OutOfMemory, stdout: String::new(), stderr: String::new() };
        assert_eq!(seen, expected, "{text}");
    }
    let (config, _folder) = module("table.wat", table(100_000));
    assert_eq!(Seen::of(&run(config).await.run), printed(""));
}

#[tokio::test]
async fn data_outside_memory_is_a_trap_and_not_a_fault_of_the_host() {
    let text = "(module (memory (export \"memory\") 1) (data (i32.const 65530) \"too long for it\") (func (export \"_start\")))";
    let (config, _folder) = module("data.wat", text);
    let result = run(config).await;
    let Termination::Trapped(trap) = &result.run.termination else { panic!("{:?}", result.run) };
    assert_eq!(trap.code, "memory_out_of_bounds");
    // A large segment that fits is no fault.
    let big = format!(
        "(module (memory (export \"memory\") 100) (data (i32.const 0) \"{}\") (func (export \"_start\")))",
        "x".repeat(6 << 20)
    );
    let (config, _folder) = module("data.wat", big);
    assert_eq!(Seen::of(&run(config).await.run), printed(""));
}

#[tokio::test]
async fn fuel_ends_the_run_and_is_the_same_each_time() {
    let limits = Limits { fuel: Some(5_000_000), ..generous() };
    let prepared = ended(limits.clone(), &["spin"], Termination::OutOfFuel, "fuel_limit").await;
    assert_alive(&prepared, "fuel").await;
    let start_loop = Prepared::with(&wat("start_loop.wat"), limits.clone(), &[]).await;
    assert_eq!(start_loop.run(&[]).await.termination, Termination::OutOfFuel);
    let mut used = Vec::new();
    for _ in 0..3 {
        let prepared = Prepared::new(limits.clone()).await;
        let words = ["write", "/workspace/out/f", "text", "read", "/workspace/out/f", "print", "100000"];
        used.push(prepared.run_command(&prepared.command(&words)).await.usage.fuel.unwrap());
    }
    assert!(used[0] > 1_000 && used[0] < 5_000_000, "{used:?}");
    assert_eq!(used, [used[0]; 3]);
    // That much is enough, and half of it isn't. (The engine looks at calls and loops only, so a little less may do.)
    for (fuel, termination) in [(used[0], Termination::Exited(0)), (used[0] / 2, Termination::OutOfFuel)] {
        let prepared = Prepared::new(Limits { fuel: Some(fuel), ..generous() }).await;
        let words = ["write", "/workspace/out/f", "text", "read", "/workspace/out/f", "print", "100000"];
        assert_eq!(prepared.run(&words).await.termination, termination, "{fuel} of {}", used[0]);
    }
}

#[tokio::test]
async fn output_ends_at_its_limit_and_head_and_tail_are_kept() {
    for (descriptor, stream) in [("1", "stdout"), ("2", "stderr")] {
        let limits = Limits { output: 3_000_000, output_kept: 1_000, ..generous() };
        let prepared = Prepared::new(limits).await;
        let result = prepared.run_command(&prepared.command(&["say", "head", "flood", descriptor])).await;
        assert_eq!(result.termination, Termination::OutputLimit, "{stream}");
        assert_eq!(result.stdout.total() + result.stderr.total(), 3_000_000, "{stream}: every byte counts");
        let flooded = if descriptor == "1" { &result.stdout } else { &result.stderr };
        assert_eq!((flooded.head().len(), flooded.tail().len()), (500, 500), "{stream}");
        assert!(result.stdout.text().starts_with("head"), "{stream}");
        assert_eq!(prepared.limits_hit(), ["output_limit"], "{stream}");
        assert_alive(&prepared, stream).await;
    }
    // A gigabyte at the default limit; and the twin, a little less than the limit.
    let prepared = Prepared::new(generous()).await;
    let result = prepared.run_command(&prepared.command(&["print", "1073741824"])).await;
    assert_eq!((result.termination, result.stdout.total()), (Termination::OutputLimit, 64 << 20));
    let result = prepared.run_command(&prepared.command(&["print", "67108864"])).await;
    assert_eq!((result.termination, result.stdout.total()), (Termination::Exited(0), 64 << 20));
    let kept = result.stdout.head().len() + result.stdout.tail().len();
    assert_eq!((kept, result.stdout.dropped()), (1 << 20, 63 << 20));
}

/// Tells a copy of this test binary to do the work whose memory is looked at.
const PLAY_HOST: &str = "SKILLCELL_TEST_FLOOD";

/// The most memory this process ever held, in KiB.
fn peak_memory() -> u64 {
    let status = String::from_utf8(crate::wasm_support::read_host("/proc/self/status".as_ref())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
#[cfg(target_os = "linux")]
async fn a_gigabyte_of_output_does_not_stay_in_the_hosts_memory() {
    if std::env::var_os(PLAY_HOST).is_none() {
        // In a process of its own: other tests of this one use memory too.
        #[expect(clippy::disallowed_methods, reason = "the process whose memory is measured must be a quiet one")]
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "wasm_limits::a_gigabyte_of_output_does_not_stay_in_the_hosts_memory", "--nocapture"])
            .env(PLAY_HOST, "yes")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && text.contains("1 passed"),
            "{text}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        return;
    }
    let prepared = Prepared::new(Limits { output: 2 << 30, ..generous() }).await;
    assert_alive(&prepared, "compiling").await;
    let before = peak_memory();
    let result = prepared.run_command(&prepared.command(&["print", "1073741824"])).await;
    assert_eq!((result.termination, result.stdout.total()), (Termination::Exited(0), 1 << 30));
    let grown = peak_memory() - before;
    assert!(grown < 32 << 10, "{grown} KiB for a gigabyte of output of which one MiB is kept");
}

#[tokio::test]
async fn files_end_at_the_disk_limit() {
    let small = Limits { disk: 50_000_000, ..generous() };
    for (words, limits) in [
        (&["files", "/workspace/out/f", "1000000"][..], generous()),
        (&["files", "/workspace/tmp/f", "1000000"], generous()),
        (&["fill", "/workspace/out/f"], small.clone()),
        (&["fill", "/workspace/tmp/f"], small.clone()),
        (&["poke", "/workspace/out/f", "10737418240", "spin"], generous()),
        (&["pwrite", "/workspace/out/f", "10737418240", "spin"], generous()),
        (&["resize", "/workspace/out/f", "10737418240", "spin"], generous()),
        (&["resize", "/workspace/tmp/f", "10737418240", "spin"], generous()),
        (&["allocate", "/workspace/out/f", "10737418240", "spin"], generous()),
    ] {
        let prepared = Prepared::new(limits).await;
        let result = prepared.run_command(&prepared.command(&[&["say", "begun\n"], words].concat())).await;
        let seen = Seen::of(&result);
        assert_eq!(seen.termination, Termination::DiskLimit, "{words:?}: {seen:?}");
        assert!(seen.stdout.starts_with("begun\n"), "{words:?}");
        assert_eq!(prepared.limits_hit(), ["disk_limit"], "{words:?}");
        prepared.runtime.cleanup(&prepared.handle).await.unwrap();
        let root = prepared.workspace.ambient_root().to_owned();
        prepared.workspace.remove().unwrap();
        assert!(!root.exists(), "{words:?}");
    }
    // The file never was that large: the call that asked for it is where the run ended.
    let prepared = Prepared::new(generous()).await;
    let seen = prepared.run(&["resize", "/workspace/out/f", "10737418240"]).await;
    assert_eq!(seen.termination, Termination::DiskLimit);
    assert_eq!(prepared.workspace.area(Area::Out).metadata("f").unwrap().len(), 0);
    // The twins: within the limits.
    let words = ["files", "/workspace/out/f", "9999", "resize", "/workspace/out/f1", "1073741824"];
    assert_eq!(Seen::of(&run(probe(&words)).await.run), printed("files ok 9999\nresize ok\n"));
    let words =
        ["allocate", "/workspace/out/f", "1000", "allocate", "/workspace/out/f", "10", "stat", "/workspace/out/f"];
    assert_eq!(Seen::of(&run(probe(&words)).await.run), printed("allocate ok\nallocate ok\nstat ok 4 1000\n"));
}

#[tokio::test]
async fn open_files_end_at_their_limit() {
    // Low enough for hosts whose own limit is low too.
    let prepared = Prepared::new(Limits { open_files: 300, ..generous() }).await;
    let greedy = ["write", "/workspace/out/f", "x", "open", "/workspace/out/f", "100000"];
    for _ in 0..2 {
        let seen = prepared.run(&greedy).await;
        let Termination::Trapped(trap) = &seen.termination else { panic!("{seen:?}") };
        assert_eq!((trap.code.as_str(), seen.stdout.as_str()), ("open_file_limit", "write ok\n"));
        assert!(trap.message.starts_with("the limit of open files is reached in "), "{}", trap.message);
        assert_alive(&prepared, "many open files").await;
    }
    assert_eq!(prepared.limits_hit(), ["open_file_limit"; 2]);
    // They are closed with the run: the next one can open as many as are allowed.
    assert_eq!(prepared.run(&["open", "/workspace/out/f", "290"]).await, printed("open ok 290\n"));
    // What is moved onto another descriptor is closed too.
    assert_eq!(prepared.run(&["renumber", "/workspace/out/f", "20000"]).await, printed("renumber ok 20000\n"));
}

#[tokio::test]
async fn randomness_comes_in_bounded_pieces_and_clocks_run() {
    let seen = Seen::of(&run(probe(&["random", "64"])).await.run);
    assert_eq!(seen, printed("random ok 1\n"));
    let result = run(probe(&["random", "2000000"])).await;
    assert!(!result.run.success(), "more than fits in one call: {:?}", result.run);
    let seen = Seen::of(&run(probe(&["clock", "0", "clock", "1"])).await.run);
    let times: Vec<u64> = seen.stdout.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    assert_eq!((times.len(), seen.termination), (2, Termination::Exited(0)), "{}", seen.stdout);
    assert!(times[0] > 1_700_000_000_000_000_000, "the time of day: {}", times[0]);
}

/// Keeps what it hears.
#[derive(Default)]
struct Heard(Mutex<Vec<u8>>);

impl OutputSink for Heard {
    fn write(&self, _stream: Stream, bytes: &[u8]) {
        self.0.lock().unwrap().extend_from_slice(bytes);
    }
}

#[tokio::test]
async fn dropping_the_future_ends_the_guest() {
    let prepared = Prepared::new(generous()).await;
    for words in [
        &["count", "/workspace/out/counted"][..],
        &["say", "go", "spin"],
        &["say", "go", "sleep", "31536000"],
        &["say", "go", "flood", "1"],
    ] {
        let heard = Arc::new(Heard::default());
        let mut command = prepared.command(words);
        command.sink = Some(heard.clone());
        let size = || prepared.workspace.area(Area::Out).metadata("counted").map_or(0, |metadata| metadata.len());
        let begun = || size() > 1_000 || !heard.0.lock().unwrap().is_empty();
        tokio::select! {
            result = prepared.runtime.run(&prepared.handle, &command) => panic!("{words:?} ended by itself: {result:?}"),
            () = until(begun) => {}
        }
        drop(command);
        // The guest's streams hold the listener: when only ours is left, the guest's whole store is gone.
        until(|| Arc::strong_count(&heard) == 1).await;
        let before = (size(), heard.0.lock().unwrap().len());
        assert_alive(&prepared, "a dropped run").await;
        assert_eq!((size(), heard.0.lock().unwrap().len()), before, "{words:?}");
        if before.0 > 0 {
            prepared.workspace.area(Area::Out).remove_file("counted").unwrap();
        }
    }
}

#[tokio::test]
async fn dropping_a_whole_step_ends_the_guest_and_removes_the_workspace() {
    struct Found(Mutex<Option<String>>);
    impl skillcell::audit::AuditSink for Found {
        fn record(&self, event: &skillcell::audit::AuditEvent) -> skillcell::Result<()> {
            *self.0.lock().unwrap() = Some(event.run.to_string());
            Ok(())
        }
    }
    let (found, heard) = (Arc::new(Found(Mutex::default())), Arc::new(Heard::default()));
    let mut context = skillcell::step::StepContext::new(skillcell::builtin_registry());
    context.audit = found.clone();
    context.sink = Some(heard.clone());
    tokio::select! {
        result = skillcell::step::execute(probe(&["say", "go", "spin"]), &context) => panic!("{result:?}"),
        () = until(|| !heard.0.lock().unwrap().is_empty()) => {}
    }
    drop(context);
    until(|| Arc::strong_count(&heard) == 1).await;
    let name = format!("skillcell-{}", found.0.lock().unwrap().clone().unwrap());
    until(|| !std::env::temp_dir().join(&name).exists()).await;
}

#[tokio::test]
async fn runs_at_once_on_one_handle_do_not_touch_each_other() {
    let prepared = Prepared::new(generous()).await;
    let (heard, other) = (Arc::new(Heard::default()), Arc::new(Heard::default()));
    let endless = |words: &[&str], sink: &Arc<Heard>| {
        let mut command = prepared.command(words);
        command.sink = Some(sink.clone());
        command
    };
    let spin = endless(&["say", "spinning", "spin"], &heard);
    let sleep = endless(&["say", "sleeping", "sleep", "31536000"], &other);
    let ordinary = async {
        until(|| heard.0.lock().unwrap().as_slice() == b"spinning").await;
        until(|| other.0.lock().unwrap().as_slice() == b"sleeping").await;
        tokio::join!(
            prepared.run(&["say", "trapping", "trap"]),
            prepared.run(&["say", "quick", "write", "/workspace/out/quick", "1"]),
            prepared.run(&["say", "exiting", "exit", "9"]),
        )
    };
    let (trapping, quick, exiting) = tokio::select! {
        ended = prepared.run_command(&spin) => panic!("{ended:?}"),
        ended = prepared.run_command(&sleep) => panic!("{ended:?}"),
        ordinary = ordinary => ordinary,
    };
    assert!(matches!(trapping.termination, Termination::Trapped(_)), "{trapping:?}");
    assert_eq!(trapping.stdout, "trapping");
    assert_eq!(quick, printed("quickwrite ok\n"));
    let nine = Seen { termination: Termination::Exited(9), stdout: "exiting".into(), stderr: String::new() };
    assert_eq!(exiting, nine);
    // Many at once.
    let mut all = tokio::task::JoinSet::new();
    let prepared = Arc::new(prepared);
    for index in 0..40 {
        let prepared = prepared.clone();
        all.spawn(async move {
            let name = format!("/workspace/out/{index}");
            let seen = prepared.run(&["write", &name, &name, "read", &name]).await;
            assert_eq!(seen, printed(&format!("write ok\nread ok {name}\n")));
        });
    }
    while let Some(joined) = all.join_next().await {
        joined.unwrap();
    }
}
