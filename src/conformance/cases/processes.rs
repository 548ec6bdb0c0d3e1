//! Other processes: the guest's own, which must end with the run, and the host's, which must be out of reach.
//!
//! Whether a process that was left behind still lives is told by a lock that it holds on a file for as long as it does:
//! seen by the host where it shares the guest's files, and by another run of the guest everywhere.

use crate::conformance::case::{Case, Fault, Group, Setting, Verdict, broken, ensure, written};
use crate::conformance::probe::Answer;
use crate::conformance::world::World;
use crate::policy::Dimension;
use crate::runtime::Termination;
use crate::workspace::Area;

const fn denied(name: &'static str, attempt: &'static [&'static str], twin: &'static [&'static str]) -> Case {
    Case::denied(Group::Processes, name, attempt, twin).claims(Dimension::Processes)
}

const fn case(name: &'static str, written: crate::conformance::case::Written) -> Case {
    Case::written(Group::Processes, name, written).claims(Dimension::Processes)
}

const fn timed(name: &'static str, written: crate::conformance::case::Written) -> Case {
    Case::written(Group::Processes, name, written).claims(Dimension::WallTime).in_setting(Setting::Brief)
}

/// A child that was waited for.
const CHILD: &[&str] = &["child folder"];

pub(super) const CASES: &[Case] = &[
    case("a_child_is_gone_after_the_run", written!(background)),
    case("a_child_that_keeps_the_output_open_is_gone", written!(output)),
    case("a_child_in_a_session_of_its_own_is_gone", written!(session)),
    case("a_child_without_a_parent_is_gone", written!(double)),
    case("a_child_that_ignores_signals_is_gone", written!(stubborn)),
    timed("the_time_limit_ends_a_child", written!(timed_background)),
    timed("the_time_limit_ends_a_child_in_a_session_of_its_own", written!(timed_session)),
    timed("the_time_limit_ends_a_child_without_a_parent", written!(timed_double)),
    timed("the_time_limit_ends_a_child_that_ignores_signals", written!(timed_stubborn)),
    denied("children_are_limited", &["children 400"], &["children 3"]).in_setting(Setting::Tight),
    denied("threads_are_limited", &["threads 400"], &["threads 3"]).in_setting(Setting::Tight),
    case("children_can_be_waited_for", written!(child)),
    case("host_processes_have_no_name", written!(names)),
    case("host_processes_take_no_signals", written!(signals)),
    denied("host_processes_cannot_be_traced", &["trace {pid}"], CHILD),
    denied("host_memory_cannot_be_read", &["peek {pid}"], CHILD),
    denied("host_descriptors_cannot_be_taken", &["take-descriptor {pid}"], CHILD),
    denied("host_memory_has_no_file", &["read /proc/{pid}/mem"], CHILD),
    denied("host_environment_has_no_file", &["read /proc/{pid}/environ"], CHILD).harmless(),
    denied("host_descriptors_have_no_folder", &["list /proc/{pid}/fd"], CHILD).harmless(),
    denied("host_namespaces_cannot_be_entered", &["enter /proc/{pid}/ns/mnt"], CHILD),
    denied("another_user_cannot_be_taken_on", &["become 12345"], CHILD),
    denied("user_namespaces_cannot_be_made", &["unshare user"], CHILD),
    denied("mount_namespaces_cannot_be_made", &["unshare mount"], CHILD),
    denied("there_is_no_terminal", &["terminal"], CHILD).harmless(),
    denied("the_kernel_cannot_be_set", &["append /proc/sys/kernel/domainname x"], CHILD),
];

/// Whether the lock of a process that was left behind can be had, by the host and by the guest.
async fn gone(world: &World<'_>) -> Result<(), Fault> {
    // Where the guest's files are elsewhere there is none here, and the guest's own look is what counts.
    if let Ok(file) = world.workspace.area(Area::Out).open("lock") {
        ensure(file.into_std().try_lock().is_ok(), || "a process of the guest still lives after its run".to_owned())?;
    }
    let ran = world.steps(&["free @out/lock"]).await?;
    ran.all_done(1).map(|_| ())
}

/// Leaves a process behind, shows that it lived, and looks for it after the run.
async fn linger(world: &World<'_>, how: &str) -> Verdict {
    let ran = world.steps(&[&format!("linger {how} @out/lock"), "free @out/lock"]).await?;
    match ran.answers.as_slice() {
        [Answer::Absent, Answer::Absent] => {
            return Ok("a guest of this runtime has no such operation".to_owned());
        }
        // The lock is held: the process was there.
        [Answer::Done(_), Answer::Refused(_)] => {}
        _ => return broken(format!("no process could be left behind: {}", ran.told())),
    }
    ensure(ran.result.success(), || format!("the run did not end by itself: {}", ran.told()))?;
    gone(world).await?;
    Ok("it lived, and ended with the run".to_owned())
}

async fn background(world: &World<'_>) -> Verdict {
    linger(world, "background").await
}

async fn output(world: &World<'_>) -> Verdict {
    linger(world, "output").await
}

async fn session(world: &World<'_>) -> Verdict {
    linger(world, "session").await
}

async fn double(world: &World<'_>) -> Verdict {
    linger(world, "double").await
}

async fn stubborn(world: &World<'_>) -> Verdict {
    linger(world, "stubborn").await
}

/// The same, ended by the time limit.
async fn linger_timed(world: &World<'_>, how: &str) -> Verdict {
    let ran = world.steps(&[&format!("linger {how} @out/lock"), "sleep 3600000"]).await?;
    ensure(ran.result.termination == Termination::TimedOut, || format!("it was not stopped: {}", ran.told()))?;
    match ran.answers.as_slice() {
        // Whatever it was doing then, it wasn't there yet.
        [] | [_] => return Err(Fault::TooSoon),
        [Answer::Absent, ..] => return Ok("a guest of this runtime has no such operation".to_owned()),
        [Answer::Done(_), Answer::Done(_)] => {}
        _ => return broken(format!("no process could be left behind: {}", ran.told())),
    }
    gone(world).await?;
    Ok("it ended with the run".to_owned())
}

async fn timed_background(world: &World<'_>) -> Verdict {
    linger_timed(world, "background").await
}

async fn timed_session(world: &World<'_>) -> Verdict {
    linger_timed(world, "session").await
}

async fn timed_double(world: &World<'_>) -> Verdict {
    linger_timed(world, "double").await
}

async fn timed_stubborn(world: &World<'_>) -> Verdict {
    linger_timed(world, "stubborn").await
}

async fn child(world: &World<'_>) -> Verdict {
    let ran = world.steps(CHILD).await?;
    if ran.answers.first() == Some(&Answer::Absent) {
        return Ok("a guest of this runtime has no such operation".to_owned());
    }
    ran.all_done(CHILD.len())?;
    Ok("a program can start a program".to_owned())
}

/// The command line of this process, as `/proc` has it.
fn own_command_line() -> String {
    std::env::args_os().map(|word| format!("{}\0", word.to_string_lossy())).collect()
}

/// A number of the host may by chance be one of the guest's own; then it has another command line.
async fn names(world: &World<'_>) -> Verdict {
    let ran = world.steps(&["arguments", "read /proc/{pid}/cmdline"]).await?;
    let own = own_command_line();
    ensure(ran.answers.len() == 2, || format!("the probe did not start: {}", ran.told()))?;
    let seen = ran.answers.last().and_then(Answer::text).is_some_and(|line| line == own);
    ensure(!seen, || "the guest sees the command line of the host's process".to_owned())?;
    child(world).await?;
    Ok("the host's process can't be seen".to_owned())
}

async fn signals(world: &World<'_>) -> Verdict {
    let ran = world.steps(&["signal {pid}", "read /proc/{pid}/cmdline"]).await?;
    let own = own_command_line();
    let [signal, line] = ran.answers.as_slice() else {
        // Ended for the attempt, or never there: a child shows which.
        child(world).await?;
        return Ok(format!("the guest was ended: {}", ran.result.termination));
    };
    let another = line.text().is_some_and(|line| line != own);
    ensure(!signal.done() || another, || "the guest may send signals to the host's process".to_owned())?;
    child(world).await?;
    Ok("the host's process can't be reached".to_owned())
}
