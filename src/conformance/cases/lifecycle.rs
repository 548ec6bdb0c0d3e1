//! The life of a sandbox: prepared, used several times and at once, dropped, cleaned up; and what it says of itself.

use std::time::Duration;

use crate::conformance::case::{Case, Fault, Group, Setting, Verdict, broken, ensure, written};
use crate::conformance::claims;
use crate::conformance::probe::Answer;
use crate::conformance::world::{World, policy, prepare_with};
use crate::error::ErrorKind;
use crate::policy::{Dimension, Enforcement, EnforcementMode, Isolation, SandboxPolicy};
use crate::runtime::{Availability, RunCommand, RuntimeConfig};

const fn case(name: &'static str, written: crate::conformance::case::Written) -> Case {
    Case::written(Group::Lifecycle, name, written)
}

pub(super) const CASES: &[Case] = &[
    case("it_says_that_it_is_available", written!(available)),
    case("the_handle_says_whose_it_is", written!(handle)),
    case("the_handle_claims_no_more_than_is_declared", written!(no_more)),
    case("strict_mode_prepares_or_refuses", written!(strict)).last(),
    case("files_are_claimed_no_less_than_kept", written!(claims::files)).last(),
    case("network_is_claimed_no_less_than_kept", written!(claims::network)),
    case("output_is_claimed_no_less_than_kept", written!(claims::output)).in_setting(Setting::Tight),
    case("time_is_claimed_no_less_than_kept", written!(claims::wall_time)).in_setting(Setting::Brief),
    case("options_that_nobody_knows_are_refused", written!(options)),
    case("programs_that_are_missing_are_an_error", written!(missing)),
    case("programs_outside_are_refused", written!(outside)),
    case("folders_are_no_programs", written!(folder)),
    case("files_stay_from_run_to_run", written!(stay)),
    case("several_runs_at_once_work", written!(at_once)),
    case("a_dropped_run_ends", written!(dropped)),
    case("a_dropped_run_leaves_its_neighbour_alone", written!(dropped_neighbour)),
    case("two_sandboxes_are_apart", written!(apart)).last(),
    case("cleanup_can_be_repeated", written!(cleanup)).last(),
    case("nothing_is_left_on_the_host", written!(left)).last(),
];

fn fault(error: impl std::fmt::Display) -> Fault {
    Fault::Broken(error.to_string())
}

async fn available(world: &World<'_>) -> Verdict {
    match world.runtime().availability().await {
        Availability::Available { detail } => Ok(detail),
        Availability::Missing { reason, .. } => broken(format!("it works and says that it doesn't: {reason}")),
    }
}

async fn handle(world: &World<'_>) -> Verdict {
    let (name, handle) = (world.runtime().name(), &world.handle);
    ensure(handle.runtime() == name && handle.report().runtime == name, || {
        format!("the handle of '{name}' says '{}'", handle.runtime())
    })?;
    let flag = handle.backend().get("network_enforced").and_then(serde_json::Value::as_bool);
    let report = handle.report().network_enforced();
    ensure(flag == Some(report), || format!("network_enforced is {flag:?}, and the report says {report}"))?;
    let text = serde_json::to_string(handle.backend()).map_err(fault)?;
    ensure(!world.names_a_host_path(&text), || "the backend map names the host's folder".to_owned())?;
    Ok("and its flag is that of the report".to_owned())
}

async fn no_more(world: &World<'_>) -> Verdict {
    let declared = world.runtime().enforcement(&policy(Setting::Roomy));
    for dimension in Dimension::ALL {
        let (said, here) = (declared.control(dimension), world.enforcement(dimension));
        let more = here == Enforcement::Enforced && said != Enforcement::Enforced;
        ensure(!more, || format!("{dimension} is declared {said}, and the handle says {here}"))?;
    }
    let capabilities = world.runtime().capabilities();
    let same = world.handle.report().isolation == capabilities.isolation;
    ensure(same, || "the handle names another isolation than is declared".to_owned())?;
    Ok("in every dimension".to_owned())
}

async fn strict(world: &World<'_>) -> Verdict {
    let policy = SandboxPolicy { mode: EnforcementMode::Strict, ..policy(Setting::Roomy) };
    let gaps = world.handle.report().gaps();
    match prepare_with(world.shared, &policy).await {
        Ok((handle, ..)) => {
            world.runtime().cleanup(&handle).await.map_err(fault)?;
            ensure(gaps.is_empty(), || format!("it was prepared in spite of gaps: {gaps:?}"))?;
            Ok("prepared: everything is enforced".to_owned())
        }
        Err(error) if error.kind() == ErrorKind::PolicyUnenforceable => {
            ensure(!gaps.is_empty(), || format!("it was refused without a gap: {error}"))?;
            Ok(format!("refused: {gaps:?}"))
        }
        Err(error) => broken(format!("neither prepared nor refused for its gaps: {error}")),
    }
}

async fn options(world: &World<'_>) -> Verdict {
    let mut map = world.shared.config.as_map().clone();
    map.insert("no_such_option".to_owned(), true.into());
    match world.runtime().check_config(&RuntimeConfig::new(map)) {
        Err(error) if error.kind() == ErrorKind::InvalidConfig => {}
        other => return broken(format!("an unknown option: {other:?}")),
    }
    match world.runtime().check_config(&world.shared.config) {
        Ok(()) => Ok("and known ones are taken".to_owned()),
        Err(error) => broken(format!("its own options: {error}")),
    }
}

async fn refused(world: &World<'_>, program: &str, kinds: &[ErrorKind]) -> Result<(), Fault> {
    let command = RunCommand::new([program]).map_err(fault)?;
    match world.runtime().run(&world.handle, &command).await {
        Err(error) if kinds.contains(&error.kind()) => Ok(()),
        Err(error) => broken(format!("'{program}': {} ({error})", error.kind())),
        Ok(result) => broken(format!("'{program}' ran: {}", result.termination)),
    }
}

async fn missing(world: &World<'_>) -> Verdict {
    refused(world, "/workspace/skill/missing", &[ErrorKind::NotFound]).await?;
    refused(world, "no-such-program-anywhere", &[ErrorKind::NotFound]).await?;
    world.must(&["folder"]).await?;
    Ok("by path and by name".to_owned())
}

async fn outside(world: &World<'_>) -> Verdict {
    let kinds = [ErrorKind::PathDenied, ErrorKind::NotFound, ErrorKind::InvalidConfig];
    // In a world with a root folder of its own, the programs there are the guest's.
    let own_root = matches!(world.runtime().capabilities().isolation, Isolation::Container | Isolation::Microvm);
    let of_host: &[&str] =
        if own_root { &[] } else { &["/bin/sh", "/usr/bin/env", "../../bin/sh", "/workspace/skill/../../bin/sh"] };
    for program in of_host {
        refused(world, program, &kinds).await?;
    }
    world.must(&["folder"]).await?;
    Ok("before anything is started".to_owned())
}

async fn folder(world: &World<'_>) -> Verdict {
    refused(world, "/workspace/skill/sub", &[ErrorKind::PathDenied, ErrorKind::InvalidConfig, ErrorKind::NotFound])
        .await?;
    world.must(&["folder"]).await?;
    Ok("refused".to_owned())
}

async fn stay(world: &World<'_>) -> Verdict {
    world.must(&["write @tmp/note one", "write @out/note two"]).await?;
    let both = (world.must(&["read @tmp/note"]).await?, world.must(&["read @out/note"]).await?);
    ensure(both == ("one".to_owned(), "two".to_owned()), || format!("{both:?}"))?;
    Ok("in tmp and in out".to_owned())
}

async fn at_once(world: &World<'_>) -> Verdict {
    // The first can't end before the second has begun, and the other way round.
    let first = world.must(&["write @tmp/first x", "await @tmp/second"]);
    let second = world.must(&["write @tmp/second x", "await @tmp/first"]);
    let (first, second) = futures_util::future::join(first, second).await;
    first.and(second)?;
    Ok("each waits for the other".to_owned())
}

/// Looks again after a moment: what was dropped ends in the background.
const PAUSE: Duration = Duration::from_millis(5);
/// So often, before it counts as not ended.
const LOOKS: u32 = 4_000;

/// Starts a run, waits until it has begun, and drops it.
async fn drop_midway(world: &World<'_>) -> Result<(), Fault> {
    let began = "/workspace/tmp/began".parse().map_err(|_| Fault::Broken("no path".to_owned()))?;
    let command = world.command(&["linger background @tmp/lock", "write @tmp/began x", "sleep 3600000"])?;
    let began = async {
        while world.runtime().read_file(&world.handle, &began, 16).await.is_err() {
            tokio::time::sleep(PAUSE).await;
        }
    };
    let run = world.runtime().run(&world.handle, &command);
    match futures_util::future::select(Box::pin(began), run).await {
        futures_util::future::Either::Left(_) => Ok(()),
        futures_util::future::Either::Right((ended, _)) => {
            broken(format!("it ended by itself: {:?}", ended.map(|result| result.termination)))
        }
    }
}

async fn dropped(world: &World<'_>) -> Verdict {
    drop_midway(world).await?;
    for _ in 0..LOOKS {
        let ran = world.steps(&["free @tmp/lock"]).await?;
        match ran.answers.first() {
            Some(Answer::Done(_)) => return Ok("with what it started, and the sandbox works".to_owned()),
            Some(Answer::Absent) => return Ok("and the sandbox works".to_owned()),
            _ => tokio::time::sleep(PAUSE).await,
        }
    }
    broken("what it started still lives")
}

async fn dropped_neighbour(world: &World<'_>) -> Verdict {
    let neighbour = world.must(&["await @tmp/go", "read @in/input.txt"]);
    let dropping = async {
        drop_midway(world).await?;
        let go = "/workspace/tmp/go".parse().map_err(|_| Fault::Broken("no path".to_owned()))?;
        world.runtime().write_file(&world.handle, &go, b"x").await.map_err(fault)
    };
    let (neighbour, dropping) = futures_util::future::join(neighbour, dropping).await;
    dropping?;
    neighbour?;
    Ok("it goes on to its end".to_owned())
}

async fn apart(world: &World<'_>) -> Verdict {
    world.must(&["write @tmp/mine x", "write @out/mine x"]).await?;
    let (handle, ..) = prepare_with(world.shared, &policy(Setting::Roomy)).await.map_err(fault)?;
    let command = world.command(&["list @tmp", "list @out", "read @in/input.txt"])?;
    let result = world.runtime().run(&handle, &command).await.map_err(fault);
    world.runtime().cleanup(&handle).await.map_err(fault)?;
    let text = result?.stdout.text();
    ensure(text == "ok \nok \nok text of the input\n", || format!("the other one sees {text:?}"))?;
    Ok("neither sees the other's files".to_owned())
}

async fn cleanup(world: &World<'_>) -> Verdict {
    let (handle, ..) = prepare_with(world.shared, &policy(Setting::Roomy)).await.map_err(fault)?;
    let command = world.command(&["folder"])?;
    let result = world.runtime().run(&handle, &command).await.map_err(fault)?;
    ensure(result.success(), || format!("{}", result.termination))?;
    for _ in 0..3 {
        world.runtime().cleanup(&handle).await.map_err(fault)?;
    }
    world.must(&["folder"]).await?;
    Ok("three times, and other sandboxes go on".to_owned())
}

async fn left(world: &World<'_>) -> Verdict {
    let (handle, workspace, _) = prepare_with(world.shared, &policy(Setting::Roomy)).await.map_err(fault)?;
    let command = world.command(&["deep @out/d 12", "many @tmp/m 50", "write @out/f x", "mode @out/d 0"])?;
    world.runtime().run(&handle, &command).await.map_err(fault)?;
    ensure(workspace.ambient_root().exists(), || "the workspace was removed before its time".to_owned())?;
    world.runtime().cleanup(&handle).await.map_err(fault)?;
    drop(handle);
    workspace.remove().map_err(fault)?;
    ensure(!workspace.ambient_root().exists(), || "the workspace is still there".to_owned())?;
    Ok("the workspace can be removed whole".to_owned())
}
