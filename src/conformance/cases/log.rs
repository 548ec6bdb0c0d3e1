//! The audit trail: complete, in order, without secrets, and so sealed that any change is seen.

use std::io::{Read, Seek, SeekFrom};

use crate::audit::{AuditSink, Decision, JsonlFileSink, Layer, verify_chain};
use crate::conformance::case::{Case, Fault, Group, Setting, Verdict, broken, ensure, written};
use crate::conformance::probe::Answer;
use crate::conformance::world::{World, policy, prepare_with};
use crate::policy::Dimension;
use crate::runtime::{RunCommand, Stdin};
use crate::workspace::{Area, CollectRules};

const fn case(name: &'static str, written: crate::conformance::case::Written) -> Case {
    Case::written(Group::Log, name, written)
}

pub(super) const CASES: &[Case] = &[
    case("events_are_numbered_without_gaps", written!(numbered)),
    case("events_name_the_runtime_and_the_run", written!(named)),
    case("what_is_allowed_leaves_no_denial", written!(quiet)),
    case("a_limit_leaves_one_denial", written!(limit)).in_setting(Setting::Tight),
    case("a_refused_program_leaves_at_most_one_denial", written!(program)),
    case("refused_file_calls_of_a_guest_leave_one_event_each", written!(file_calls)).claims(Dimension::Files),
    case("variables_are_in_no_event", written!(variables)),
    case("contents_are_in_no_event", written!(contents)),
    case("host_paths_are_in_no_event", written!(paths)),
    case("control_characters_are_escaped", written!(control)),
    case("a_whole_trail_is_intact", written!(sealed)).last(),
    case("a_dropped_line_is_seen", written!(dropped)).last(),
    case("a_changed_line_is_seen", written!(changed)).last(),
    case("a_moved_line_is_seen", written!(moved)).last(),
    case("a_cut_trail_is_seen", written!(cut)).last(),
    // Its world's trail is full afterwards.
    case("floods_are_counted_not_kept", written!(flood)).last(),
];

fn fault(error: impl std::fmt::Display) -> Fault {
    Fault::Broken(error.to_string())
}

async fn numbered(world: &World<'_>) -> Verdict {
    world.must(&["folder"]).await?;
    let events = world.sink.events();
    let numbers: Vec<u64> = events.iter().map(|event| event.seq).collect();
    ensure(!numbers.is_empty() && numbers.iter().copied().eq(0..numbers.len() as u64), || format!("{numbers:?}"))?;
    let summary = world.handle.audit().summary();
    ensure(summary.lost == 0 && summary.events == numbers.len() as u64, || format!("{summary:?}"))?;
    Ok(format!("{} events", numbers.len()))
}

async fn named(world: &World<'_>) -> Verdict {
    let (name, run) = (world.runtime().name(), world.handle.audit().run());
    world.must(&["folder"]).await?;
    let events = world.sink.events();
    let other = events.iter().find(|event| event.run != run || event.runtime != name);
    ensure(!events.is_empty() && other.is_none(), || format!("{other:?}"))?;
    Ok(format!("all {}", events.len()))
}

async fn quiet(world: &World<'_>) -> Verdict {
    let mark = world.mark();
    world.must(&["read @in/input.txt", "write @out/a x", "list @skill", "remove @out/a"]).await?;
    let denials = world.denials_since(mark);
    ensure(denials.is_empty(), || format!("{denials:?}"))?;
    Ok("none".to_owned())
}

async fn limit(world: &World<'_>) -> Verdict {
    let mark = world.mark();
    let ran = world.steps(&["pour out 10000000"]).await?;
    let denials = world.denials_since(mark);
    let here: Vec<Layer> = denials.iter().map(|event| event.layer).collect();
    ensure(here == [Layer::Limit], || format!("after {} the trail has {denials:?}", ran.result.termination))?;
    Ok("of its layer".to_owned())
}

async fn program(world: &World<'_>) -> Verdict {
    let mark = world.mark();
    let command = RunCommand::new(["/etc/passwd"]).map_err(fault)?;
    if let Ok(result) = world.runtime().run(&world.handle, &command).await {
        return broken(format!("it ran: {}", result.termination));
    }
    // The flow around a runtime records a refusal that the runtime didn't.
    let denials = world.denials_since(mark).len();
    ensure(denials <= 1, || format!("{denials} denials for one refusal"))?;
    world.must(&["folder"]).await?;
    Ok(format!("{denials} of the runtime's own"))
}

/// Where a runtime sees the file calls of its guest, each that it refuses is one event: no more, and no fewer.
async fn file_calls(world: &World<'_>) -> Verdict {
    let mark = world.mark();
    let steps = ["create @skill/new", "create @in/new", "remove @in/input.txt", "mkdir @skill/new"];
    let ran = world.steps(&steps).await?;
    let refused = ran.answers.iter().filter(|answer| matches!(answer, Answer::Refused(_))).count();
    let denials: Vec<_> = world.denials_since(mark).into_iter().filter(|event| event.layer == Layer::Files).collect();
    if denials.is_empty() {
        return Err(Fault::Disclaimed("this runtime writes no events for file calls of a guest".to_owned()));
    }
    ensure(refused == steps.len() && denials.len() == refused, || {
        format!("{refused} calls were refused, and {} events written: {denials:?}", denials.len())
    })?;
    let mark = world.mark();
    world.must(&["create @out/new", "remove @out/new"]).await?;
    ensure(world.denials_since(mark).is_empty(), || "an allowed call left a denial".to_owned())?;
    Ok(format!("{refused} refused, {refused} events"))
}

/// Every text of every event of a world so far.
fn texts(world: &World<'_>) -> Vec<String> {
    world.sink.events().iter().filter_map(|event| serde_json::to_string(event).ok()).collect()
}

const TOKEN: &str = "token-9b2e41d0";

async fn variables(world: &World<'_>) -> Verdict {
    let mut command = world.command(&["environment", "exit 1"])?;
    command.env.set("GIVEN_SECRET", TOKEN).map_err(fault)?;
    let ran = world.run(&command).await?;
    ensure(ran.result.stdout.text().contains(TOKEN), || "the guest doesn't have it".to_owned())?;
    ensure(!texts(world).iter().any(|text| text.contains(TOKEN)), || "a value stands in an event".to_owned())?;
    ensure(!format!("{command:?}").contains(TOKEN), || "a value stands in the command's description".to_owned())?;
    Ok("none".to_owned())
}

async fn contents(world: &World<'_>) -> Verdict {
    let mut command = world.command(&["stdin", &format!("write @out/a {TOKEN}"), &format!("complain {TOKEN}")])?;
    command.stdin = Stdin::Bytes(TOKEN.into());
    world.run(&command).await?.all_done(3)?;
    ensure(!texts(world).iter().any(|text| text.contains(TOKEN)), || "a content stands in an event".to_owned())?;
    Ok("neither of stdin, nor of files, nor of output".to_owned())
}

async fn paths(world: &World<'_>) -> Verdict {
    world.steps(&["read {outside}/secret.txt", "list {outside}"]).await?;
    let texts = texts(world);
    let root = world.workspace.ambient_root().to_string_lossy();
    let found = texts.iter().find(|text| text.contains(root.as_ref()));
    ensure(found.is_none(), || format!("an event names the host's folder: {found:?}"))?;
    Ok(format!("none of {}", texts.len()))
}

async fn control(world: &World<'_>) -> Verdict {
    let name = "out/\u{1b}[2J\u{202e}x";
    let command = RunCommand::new([format!("/workspace/{name}")]).map_err(fault)?;
    // Refused or missing; what counts is what is written about it.
    if let Ok(result) = world.runtime().run(&world.handle, &command).await
        && result.success()
    {
        return broken(format!("it ran: {}", result.termination));
    }
    let hidden = |text: &str| text.chars().any(|c| c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c));
    let events = world.sink.events();
    let found = events.iter().find(|event| hidden(&event.object) || hidden(&event.reason));
    ensure(found.is_none(), || format!("{found:?}"))?;
    Ok("in every event".to_owned())
}

/// More than are kept one by one.
const FLOOD: usize = 1_200;

async fn flood(world: &World<'_>) -> Verdict {
    let out = world.workspace.area(Area::Out);
    for number in 0..FLOOD {
        out.symlink_contents("/nowhere", format!("link{number}")).map_err(fault)?;
    }
    let collected = CollectRules::new(&["**"])
        .and_then(|rules| world.workspace.collect(&rules, world.handle.audit()))
        .map_err(fault)?;
    ensure(collected.skipped_total() == FLOOD as u64, || format!("{} were left", collected.skipped_total()))?;
    let summary = world.handle.audit().summary();
    let kept = world.sink.events().iter().filter(|event| event.decision == Decision::Deny).count() as u64;
    ensure(
        summary.denials == FLOOD as u64 && kept < summary.denials && summary.suppressed == summary.denials - kept,
        || format!("{kept} are kept, and the summary is {summary:?}"),
    )?;
    Ok(format!("{} denials, {kept} kept, {} counted only", summary.denials, summary.suppressed))
}

/// The lines of a real run's trail, sealed.
async fn trail(world: &World<'_>) -> Result<Vec<String>, Fault> {
    let (handle, _, sink) = prepare_with(world.shared, &policy(Setting::Tight)).await.map_err(fault)?;
    for steps in [&["folder"][..], &["pour out 10000000"]] {
        world.runtime().run(&handle, &world.command(steps)?).await.map_err(fault)?;
    }
    world.runtime().cleanup(&handle).await.map_err(fault)?;
    handle.audit().close().map_err(fault)?;
    let mut options = cap_std::fs::File::options();
    options.read(true).append(true).create_new(true);
    let mut file = world.outside.folder.open_with("trail", &options).map_err(fault)?.into_std();
    let sealed = JsonlFileSink::new(file.try_clone().map_err(fault)?);
    for event in sink.events() {
        sealed.record(&event).map_err(fault)?;
    }
    let mut text = String::new();
    file.seek(SeekFrom::Start(0)).and_then(|_| file.read_to_string(&mut text)).map_err(fault)?;
    world.outside.folder.remove_file("trail").map_err(fault)?;
    Ok(text.lines().map(str::to_owned).collect())
}

fn intact(lines: &[String]) -> Result<bool, Fault> {
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    verify_chain(text.as_bytes()).map(|report| report.intact()).map_err(fault)
}

async fn sealed(world: &World<'_>) -> Verdict {
    let lines = world.trail.get_or_try_init(|| trail(world)).await?;
    ensure(lines.len() >= 3 && intact(lines)?, || format!("{} lines are not intact", lines.len()))?;
    Ok(format!("{} lines", lines.len()))
}

/// Changes a trail, which must be seen; untouched it must be intact.
async fn tampered(world: &World<'_>, tamper: impl Fn(&mut Vec<String>)) -> Verdict {
    let mut lines = world.trail.get_or_try_init(|| trail(world)).await?.clone();
    ensure(lines.len() >= 3 && intact(&lines)?, || "it isn't intact to begin with".to_owned())?;
    let before = lines.clone();
    tamper(&mut lines);
    ensure(lines != before, || "nothing was changed".to_owned())?;
    ensure(!intact(&lines)?, || "the change is not seen".to_owned())?;
    Ok("it is".to_owned())
}

async fn dropped(world: &World<'_>) -> Verdict {
    tampered(world, |lines| drop(lines.remove(1))).await
}

async fn changed(world: &World<'_>) -> Verdict {
    tampered(world, |lines| {
        for line in lines.iter_mut() {
            *line = line.replacen("\"deny\"", "\"allow\"", 1);
        }
    })
    .await
}

async fn moved(world: &World<'_>) -> Verdict {
    tampered(world, |lines| lines.swap(0, 1)).await
}

async fn cut(world: &World<'_>) -> Verdict {
    tampered(world, |lines| drop(lines.pop())).await
}
