//! Limits: each ends the run, or refuses the operation, at its own place and by its own name, with one event; and what
//! stays below it is not touched.

use crate::audit::Layer;
use crate::conformance::case::{Case, Fault, Group, Setting, Verdict, broken, ensure, written};
use crate::conformance::probe::Answer;
use crate::conformance::world::{Ran, TIGHT_DISK, TIGHT_FILES, TIGHT_OUTPUT_KEPT, World};
use crate::error::ErrorKind;
use crate::policy::Dimension;
use crate::runtime::Termination;
use crate::workspace::Area;

const fn case(
    name: &'static str,
    claim: Dimension,
    setting: Setting,
    written: crate::conformance::case::Written,
) -> Case {
    Case::written(Group::Limits, name, written).claims(claim).in_setting(setting)
}

pub(super) const CASES: &[Case] = &[
    case("the_clock_stops_a_loop", Dimension::WallTime, Setting::Brief, written!(clock_loop)),
    case("the_clock_stops_a_wait", Dimension::WallTime, Setting::Brief, written!(clock_wait)),
    case("the_clock_leaves_the_next_run_alone", Dimension::WallTime, Setting::Brief, written!(clock_next)),
    case("what_was_written_before_the_clock_is_kept", Dimension::WallTime, Setting::Brief, written!(clock_output)),
    case("fuel_stops_a_loop", Dimension::Cpu, Setting::Fuel, written!(fuel)),
    case("processor_time_stops_a_loop", Dimension::Cpu, Setting::Processor, written!(processor)),
    case("memory_is_limited", Dimension::Memory, Setting::Tight, written!(memory)),
    case("memory_of_children_is_limited_together", Dimension::Memory, Setting::Tight, written!(memory_together)),
    case("output_is_limited", Dimension::Output, Setting::Tight, written!(output)),
    case("output_without_an_end_of_line_is_limited", Dimension::Output, Setting::Tight, written!(output_endless)),
    case("output_on_stderr_is_limited", Dimension::Output, Setting::Tight, written!(output_stderr)),
    case("output_of_both_streams_is_limited_together", Dimension::Output, Setting::Tight, written!(output_both)),
    case("output_below_the_limit_is_left_alone", Dimension::Output, Setting::Tight, written!(output_below)),
    case("disk_is_limited_in_out", Dimension::Disk, Setting::Tight, written!(disk_out)),
    case("disk_is_limited_in_tmp", Dimension::Disk, Setting::Tight, written!(disk_tmp)),
    case("holes_count_as_disk", Dimension::Disk, Setting::Tight, written!(disk_holes)),
    case("files_are_limited", Dimension::Disk, Setting::Tight, written!(disk_files)),
    case("disk_below_the_limit_is_left_alone", Dimension::Disk, Setting::Tight, written!(disk_below)),
    Case::written(Group::Limits, "host_writes_are_limited", written!(host_writes)).in_setting(Setting::Tight),
    case("open_files_are_limited", Dimension::Processes, Setting::Tight, written!(open_files)),
    Case::written(Group::Limits, "deep_recursion_ends_the_guest_only", written!(recursion)),
];

/// One denial at the layer of limits; none without a limit.
fn one_event(world: &World<'_>, mark: usize) -> Result<(), Fault> {
    let denials = world.denials_since(mark);
    let limits = denials.iter().filter(|event| event.layer == Layer::Limit).count();
    ensure(limits == 1 && denials.len() == 1, || {
        let actions: Vec<String> = denials.iter().map(|event| format!("{:?} {}", event.layer, event.action)).collect();
        format!("one event of the limit is expected, the trail has {actions:?}")
    })
}

/// Runs steps that a limit must end by its name, with one event.
async fn ended_by(world: &World<'_>, steps: &[&str], by: &Termination) -> Result<Ran, Fault> {
    let mark = world.mark();
    let ran = world.steps(steps).await?;
    ensure(ran.result.termination == *by, || format!("expected '{by}', got {}", ran.told()))?;
    one_event(world, mark)?;
    Ok(ran)
}

async fn clock_loop(world: &World<'_>) -> Verdict {
    ended_by(world, &["spin"], &Termination::TimedOut).await?;
    Ok("stopped, with an event".to_owned())
}

async fn clock_wait(world: &World<'_>) -> Verdict {
    ended_by(world, &["sleep 3600000"], &Termination::TimedOut).await?;
    Ok("stopped, with an event".to_owned())
}

async fn clock_output(world: &World<'_>) -> Verdict {
    let ran = ended_by(world, &["out before", "sleep 3600000"], &Termination::TimedOut).await?;
    let text = ran.result.stdout.text();
    if text.is_empty() {
        return Err(Fault::TooSoon);
    }
    ensure(text.starts_with("before"), || format!("it kept {text:?}"))?;
    Ok("kept".to_owned())
}

async fn clock_next(world: &World<'_>) -> Verdict {
    ended_by(world, &["sleep 3600000"], &Termination::TimedOut).await?;
    let ran = world.steps(&["read @in/input.txt"]).await?;
    if ran.result.termination == Termination::TimedOut {
        return Err(Fault::TooSoon);
    }
    ran.all_done(1)?;
    Ok("the next run has its own time".to_owned())
}

async fn fuel(world: &World<'_>) -> Verdict {
    ended_by(world, &["spin"], &Termination::OutOfFuel).await?;
    world.must(&["work 1000"]).await?;
    Ok("stopped, and the next run has its own".to_owned())
}

async fn processor(world: &World<'_>) -> Verdict {
    ended_by(world, &["spin"], &Termination::OutOfFuel).await?;
    world.must(&["work 1000"]).await?;
    Ok("stopped, and the next run has its own".to_owned())
}

/// Either the guest is told, or it is ended by name; it must not have had it.
async fn memory_refused(world: &World<'_>, steps: &[&str]) -> Result<bool, Fault> {
    let mark = world.mark();
    let ran = world.steps(steps).await?;
    match (&ran.result.termination, ran.answers.last()) {
        (_, Some(Answer::Absent)) => Ok(false),
        (_, Some(Answer::Done(_))) => broken(format!("more than the limit was had: {}", ran.told())),
        (Termination::OutOfMemory, None) => one_event(world, mark).map(|()| true),
        (_, Some(Answer::Refused(_))) => Ok(true),
        // A program may end by itself when it is refused memory.
        (Termination::Exited(code), None) if *code != 0 => Ok(true),
        (Termination::Signaled(_) | Termination::Trapped(_), None) => Ok(true),
        _ => broken(format!("it was not limited by memory: {}", ran.told())),
    }
}

async fn memory(world: &World<'_>) -> Verdict {
    memory_refused(world, &["allocate 256"]).await?;
    let had = world.must(&["allocate 8"]).await?;
    ensure(had == "8", || format!("8 MiB were asked for, {had} had"))?;
    Ok("refused, and less is given".to_owned())
}

async fn memory_together(world: &World<'_>) -> Verdict {
    // 8 times 24 MiB, of 64.
    if !memory_refused(world, &["crowd 8 24"]).await? {
        return Ok("a guest of this runtime has no children".to_owned());
    }
    world.must(&["crowd 2 4"]).await?;
    Ok("refused, and less is given".to_owned())
}

async fn poured(world: &World<'_>, step: &str) -> Verdict {
    let ran = ended_by(world, &[step], &Termination::OutputLimit).await?;
    for stream in [&ran.result.stdout, &ran.result.stderr] {
        let kept = stream.head().len() + stream.tail().len();
        ensure(kept as u64 <= TIGHT_OUTPUT_KEPT, || format!("{kept} bytes were kept of a stream"))?;
    }
    ensure(ran.result.truncated(), || "the result doesn't say that something is missing".to_owned())?;
    Ok("stopped, with an event, and little is kept".to_owned())
}

async fn output(world: &World<'_>) -> Verdict {
    poured(world, "pour out 1000000000 lines").await
}

async fn output_endless(world: &World<'_>) -> Verdict {
    poured(world, "pour out 1000000000").await
}

async fn output_stderr(world: &World<'_>) -> Verdict {
    poured(world, "pour err 1000000000 lines").await
}

async fn output_both(world: &World<'_>) -> Verdict {
    poured(world, "pour both 50000").await
}

async fn output_below(world: &World<'_>) -> Verdict {
    let mark = world.mark();
    let ran = world.steps(&["pour both 20000"]).await?;
    let totals = (ran.result.stdout.total(), ran.result.stderr.total());
    ensure(ran.result.success() && totals.1 == 20_000 && totals.0 > 20_000, || {
        format!("of 20000 bytes each it counts {totals:?}: {}", ran.result.termination)
    })?;
    ensure(world.denials_since(mark).is_empty(), || "a run below its limits left a denial".to_owned())?;
    Ok("every byte is counted, and nothing is denied".to_owned())
}

/// Bytes and files that lie in an area of the host, holes counted.
fn left(world: &World<'_>, area: Area) -> std::io::Result<(u64, u64)> {
    fn walk(folder: &cap_std::fs::Dir, sum: &mut (u64, u64)) -> std::io::Result<()> {
        for entry in folder.entries()? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            sum.1 += 1;
            if metadata.is_dir() {
                walk(&folder.open_dir(entry.file_name())?, sum)?;
            } else {
                sum.0 += metadata.len();
            }
        }
        Ok(())
    }
    let mut sum = (0, 0);
    walk(world.workspace.area(area), &mut sum)?;
    Ok(sum)
}

/// More than the limit is refused or ends the run, and no more is left than the limit.
async fn overfilled(world: &World<'_>, step: &str, area: Area) -> Verdict {
    let mark = world.mark();
    let ran = world.steps(&[step]).await?;
    let refused = matches!(ran.answers.last(), Some(Answer::Refused(_)));
    ensure(ran.result.termination == Termination::DiskLimit || refused, || {
        format!("more than the limit was written: {}", ran.told())
    })?;
    if ran.result.termination == Termination::DiskLimit {
        one_event(world, mark)?;
    }
    if let Err(error) = world.runtime().sync_outputs(&world.handle).await
        && error.kind() != ErrorKind::LimitExceeded
    {
        return broken(format!("the outputs could not be fetched: {error}"));
    }
    let (bytes, files) = left(world, area).map_err(|error| Fault::Broken(error.to_string()))?;
    ensure(bytes <= TIGHT_DISK && files <= TIGHT_FILES, || format!("{bytes} bytes in {files} files are left"))?;
    world.wipe().map_err(|error| Fault::Broken(error.to_string()))?;
    world.must(&["fill @out/a 65536", "fill @tmp/a 65536"]).await?;
    Ok("refused, and less is given".to_owned())
}

async fn disk_out(world: &World<'_>) -> Verdict {
    overfilled(world, "fill @out/big 67108864", Area::Out).await
}

async fn disk_tmp(world: &World<'_>) -> Verdict {
    overfilled(world, "fill @tmp/big 67108864", Area::Tmp).await
}

async fn disk_holes(world: &World<'_>) -> Verdict {
    overfilled(world, "resize @out/holes 1099511627776", Area::Out).await
}

async fn disk_files(world: &World<'_>) -> Verdict {
    overfilled(world, "many @out/d 1000", Area::Out).await
}

async fn disk_below(world: &World<'_>) -> Verdict {
    let mark = world.mark();
    world.must(&["fill @out/a 1000000", "fill @tmp/a 1000000", "many @out/d 20"]).await?;
    ensure(world.denials_since(mark).is_empty(), || "a run below its limits left a denial".to_owned())?;
    Ok("nothing is denied".to_owned())
}

async fn host_writes(world: &World<'_>) -> Verdict {
    let path = "/workspace/out/big".parse().map_err(|_| Fault::Broken("no path".to_owned()))?;
    let large = vec![b'x'; usize::try_from(TIGHT_DISK).unwrap_or(0) + 1];
    match world.runtime().write_file(&world.handle, &path, &large).await {
        Err(error) if error.kind() == ErrorKind::LimitExceeded => {}
        other => return broken(format!("a write over the limit: {other:?}")),
    }
    match world.runtime().write_file(&world.handle, &path, b"small").await {
        Ok(()) => Ok("refused, and less is written".to_owned()),
        Err(error) => broken(format!("a small write: {error}")),
    }
}

async fn open_files(world: &World<'_>) -> Verdict {
    let ran = world.steps(&["arguments", "open-many @in/input.txt 2000"]).await?;
    ensure(!ran.answers.is_empty(), || format!("the probe did not start: {}", ran.told()))?;
    ensure(!ran.answers.get(1).is_some_and(Answer::done), || format!("all could be opened: {}", ran.told()))?;
    let had = world.must(&["open-many @in/input.txt 8"]).await?;
    ensure(had == "8", || format!("8 were asked for, {had} opened"))?;
    Ok("refused, and fewer are opened".to_owned())
}

async fn recursion(world: &World<'_>) -> Verdict {
    let ran = world.steps(&["arguments", "recurse 1000000000"]).await?;
    ensure(ran.answers.len() == 1 && !ran.result.success(), || format!("it did not end: {}", ran.told()))?;
    let ended = matches!(
        ran.result.termination,
        Termination::Signaled(_) | Termination::Trapped(_) | Termination::OutOfMemory | Termination::Exited(_)
    );
    ensure(ended, || format!("it ended as {}", ran.result.termination))?;
    world.must(&["recurse 100"]).await?;
    Ok(format!("ended: {}", ran.result.termination))
}
