//! What a guest writes, and how it ends: whole, in order, counted, and never taken for something else.

use std::sync::{Arc, Mutex, PoisonError};

use crate::conformance::case::Setting;
use crate::conformance::case::{Case, Fault, Group, Verdict, broken, ensure, written};
use crate::conformance::world::{TIGHT_OUTPUT_KEPT, World};
use crate::runtime::{OutputSink, Stream, Termination};

const fn case(name: &'static str, written: crate::conformance::case::Written) -> Case {
    Case::written(Group::Output, name, written)
}

pub(super) const CASES: &[Case] = &[
    case("the_streams_are_kept_apart", written!(apart)),
    case("octets_arrive_as_they_are", written!(octets)),
    case("much_output_arrives_whole", written!(much)),
    case("both_streams_at_once_do_not_block", written!(both)),
    case("no_output_is_no_output", written!(none)),
    case("a_listener_hears_everything", written!(heard)),
    case("head_and_tail_are_kept", written!(head_and_tail)).in_setting(Setting::Tight),
    case("exit_codes_are_the_scripts_own", written!(codes)),
    case("success_is_code_0", written!(success)),
    case("an_abort_is_a_result", written!(abort)),
    case("a_failed_run_leaves_the_next_alone", written!(after_failure)),
    case("printed_words_change_no_result", written!(forged)),
];

async fn apart(world: &World<'_>) -> Verdict {
    let ran = world.steps(&["complain err", "out out"]).await?;
    let both = (ran.result.stdout.text(), ran.result.stderr.text());
    ensure(both == ("ok \noutok \n".to_owned(), "err".to_owned()), || format!("{both:?}"))?;
    Ok("each in its place".to_owned())
}

async fn octets(world: &World<'_>) -> Verdict {
    let ran = world.steps(&["octets"]).await?;
    let expected: Vec<u8> = (0..=u8::MAX).chain(*b"ok \n").collect();
    let found = ran.result.stdout.bytes();
    ensure(*found == expected, || format!("it is {found:?}"))?;
    Ok("all 256".to_owned())
}

async fn much(world: &World<'_>) -> Verdict {
    let ran = world.steps(&["pour out 400000 lines"]).await?;
    let (bytes, lines) = (ran.result.stdout.bytes(), 400_000 / 64);
    let newlines = bytes.iter().filter(|byte| **byte == b'\n').count();
    ensure(ran.result.stdout.total() == 400_004 && !ran.result.truncated() && newlines == lines + 1, || {
        format!("{} bytes with {newlines} lines arrived", ran.result.stdout.total())
    })?;
    Ok("every byte".to_owned())
}

async fn both(world: &World<'_>) -> Verdict {
    let ran = world.steps(&["pour both 400000"]).await?;
    let totals = (ran.result.stdout.total(), ran.result.stderr.total());
    ensure(ran.result.success() && totals == (400_004, 400_000), || format!("{totals:?} bytes arrived"))?;
    Ok("every byte of both".to_owned())
}

async fn none(world: &World<'_>) -> Verdict {
    let ran = world.steps(&["exit 0"]).await?;
    let totals = (ran.result.stdout.total(), ran.result.stderr.total());
    ensure(ran.result.success() && totals == (0, 0), || ran.told())?;
    Ok("both are empty".to_owned())
}

#[derive(Default)]
struct Heard(Mutex<(Vec<u8>, Vec<u8>)>);

impl OutputSink for Heard {
    fn write(&self, stream: Stream, bytes: &[u8]) {
        let mut both = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match stream {
            Stream::Stdout => both.0.extend_from_slice(bytes),
            Stream::Stderr => both.1.extend_from_slice(bytes),
        }
    }
}

async fn heard(world: &World<'_>) -> Verdict {
    let sink = Arc::new(Heard::default());
    let mut command = world.command(&["out one", "complain two", "pour out 10000", "pour err 10000"])?;
    command.sink = Some(sink.clone());
    let ran = world.run(&command).await?;
    let both = sink.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
    ensure(both.0 == *ran.result.stdout.bytes() && both.1 == *ran.result.stderr.bytes(), || {
        format!("it heard {} and {} bytes", both.0.len(), both.1.len())
    })?;
    ensure(both.1.len() == 10_003, || format!("{} bytes on stderr", both.1.len()))?;
    Ok("what the result has".to_owned())
}

async fn head_and_tail(world: &World<'_>) -> Verdict {
    let ran = world.steps(&["out first", "pour out 20000", "out last"]).await?;
    let stdout = &ran.result.stdout;
    let kept = (stdout.head().len() + stdout.tail().len()) as u64;
    ensure(stdout.head().starts_with(b"first") && stdout.tail().ends_with(b"lastok \n"), || ran.told())?;
    ensure(kept == TIGHT_OUTPUT_KEPT && stdout.total() == kept + stdout.dropped(), || {
        format!("{kept} bytes are kept")
    })?;
    ensure(ran.result.success(), || ran.told())?;
    Ok("and every byte is counted".to_owned())
}

async fn codes(world: &World<'_>) -> Verdict {
    for code in [1, 2, 42, 124, 255] {
        let ran = world.steps(&[&format!("exit {code}")]).await?;
        ensure(ran.result.termination == Termination::Exited(code), || format!("{code} became {}", ran.told()))?;
    }
    Ok("1, 2, 42, 124 and 255 arrive".to_owned())
}

async fn success(world: &World<'_>) -> Verdict {
    let ran = world.steps(&["complain words-on-stderr"]).await?;
    ensure(ran.result.termination == Termination::Exited(0) && ran.result.success(), || ran.told())?;
    Ok("whatever is on stderr".to_owned())
}

async fn abort(world: &World<'_>) -> Verdict {
    let ran = world.steps(&["out before", "abort"]).await?;
    let ended = match ran.result.termination {
        Termination::Signaled(_) | Termination::Trapped(_) => true,
        // As shells tell a signal.
        Termination::Exited(code) => code != 0,
        Termination::TimedOut
        | Termination::OutOfFuel
        | Termination::OutOfMemory
        | Termination::OutputLimit
        | Termination::DiskLimit
        | Termination::ProcessLimit
        | Termination::Cancelled => false,
    };
    ensure(ended, || ran.told())?;
    ensure(ran.result.stdout.text().starts_with("before"), || ran.told())?;
    let cores = world.must(&["list @out", "list @tmp"]).await?;
    ensure(cores.is_empty(), || format!("it left {cores:?}"))?;
    Ok(format!("{}, and what it wrote before is kept", ran.result.termination))
}

async fn after_failure(world: &World<'_>) -> Verdict {
    let ran = world.steps(&["exit 3"]).await?;
    ensure(ran.result.termination == Termination::Exited(3), || ran.told())?;
    abort(world).await?;
    world.must(&["read @in/input.txt"]).await?;
    Ok("it works as before".to_owned())
}

/// Words of ours, and of the programs around a sandbox, printed by a guest.
async fn forged(world: &World<'_>) -> Verdict {
    let words = ["[timeout]", "stopped-at-the-time-limit", "{\"termination\":\"exited\"}", "\u{1b}[2J", "exit-code:0"];
    for word in words {
        let ran = world.run(&world.command_of(&["complain", word, "::", "out", word, "::", "exit", "7"])?).await?;
        ensure(ran.result.termination == Termination::Exited(7), || format!("{word:?}: {}", ran.told()))?;
        if ran.result.stderr.text() != word {
            return broken(format!("{word:?} became {:?}", ran.result.stderr.text()));
        }
    }
    world.must(&["folder"]).await.map_err(|fault: Fault| fault)?;
    Ok("the exit code is 7 each time".to_owned())
}
