//! The declaration itself: whether it claims less than is plainly kept. Claims of too much are what all other cases
//! look for.
//!
//! This is decided only where a few attempts decide it: a runtime that "does nothing" about files and yet refuses every
//! attempt outside and every change of what is read-only does something. What is advisory can't be decided so.

use std::net::TcpListener;

use super::case::{Fault, Verdict, ensure};
use super::probe::Answer;
use super::world::World;
use crate::policy::{Dimension, Enforcement};
use crate::runtime::Termination;

/// The verdict where there is nothing to decide.
fn declared(world: &World<'_>, dimension: Dimension) -> Option<Verdict> {
    match world.enforcement(dimension) {
        Enforcement::Unsupported => None,
        word @ (Enforcement::Enforced | Enforcement::Advisory | Enforcement::NotRequested) => {
            Some(Ok(format!("it is declared {word}")))
        }
    }
}

fn too_little(dimension: Dimension) -> String {
    format!("'{dimension}' is declared unsupported, and everything that was tried was refused: declare what is kept")
}

/// Files: reads outside, and changes of a file that is there to be changed.
pub(super) async fn files(world: &World<'_>) -> Verdict {
    if let Some(verdict) = declared(world, Dimension::Files) {
        return verdict;
    }
    let attempts = [
        "read {outside}/secret.txt",
        "list {outside}",
        "append {outside}/secret.txt x",
        "mode @skill/data.txt 666",
        "append @in/input.txt x",
        "create @skill/new",
        "create @in/new",
        "create @root/new",
    ];
    let ran = world.steps(&attempts).await?;
    ensure(ran.answers.len() == attempts.len(), || format!("the probe did not get through: {}", ran.told()))?;
    let succeeded = ran.answers.iter().filter(|answer| answer.done()).count();
    ensure(succeeded > 0, || too_little(Dimension::Files))?;
    Ok(format!("declared unsupported, and {succeeded} of {} attempts succeed", attempts.len()))
}

/// The network: a connection to the host's own loopback interface.
pub(super) async fn network(world: &World<'_>) -> Verdict {
    if let Some(verdict) = declared(world, Dimension::Network) {
        return verdict;
    }
    let failed = |error: std::io::Error| Fault::Broken(format!("no listener on the loopback interface: {error}"));
    let listener = TcpListener::bind("127.0.0.1:0").map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let ran = world.steps(&[&format!("tcp {address}"), "own-tcp 127.0.0.1", "raw packet"]).await?;
    ensure(ran.answers.len() == 3, || format!("the probe did not get through: {}", ran.told()))?;
    ensure(ran.answers.first().is_some_and(Answer::done), || too_little(Dimension::Network))?;
    Ok("declared unsupported, and a connection to the host succeeds".to_owned())
}

/// Output: a flood.
pub(super) async fn output(world: &World<'_>) -> Verdict {
    if let Some(verdict) = declared(world, Dimension::Output) {
        return verdict;
    }
    let ran = world.steps(&["pour out 10000000"]).await?;
    ensure(ran.result.termination != Termination::OutputLimit, || too_little(Dimension::Output))?;
    Ok("declared unsupported, and a flood goes through".to_owned())
}

/// The clock: a wait.
pub(super) async fn wall_time(world: &World<'_>) -> Verdict {
    if let Some(verdict) = declared(world, Dimension::WallTime) {
        return verdict;
    }
    // Longer than the limit, and ended by itself where nothing ends it.
    let ran = world.steps(&["sleep 6000"]).await?;
    ensure(ran.result.termination != Termination::TimedOut, || too_little(Dimension::WallTime))?;
    Ok("declared unsupported, and a wait goes on".to_owned())
}
