//! Sleeping guests of preview 1 that can be woken.
//!
//! The original `poll_oneoff` puts the thread itself to sleep when a guest waits for nothing but a span of time, for as
//! long as the guest says. No limit and no cancellation would reach it: the run would be reported as ended while its
//! thread and its workspace stay, for a year if the guest says so. Here such a wait is a timer on the caller's executor,
//! which is dropped with the run. Everything else goes to the original.

use std::time::Duration;

use wasmtime::{AsContextMut, Caller, Linker, Memory};
use wasmtime_wasi::p1::wasi_snapshot_preview1::{WasiSnapshotPreview1, poll_oneoff};
use wiggle::GuestMemory;

use super::guest::Guest;

/// Shorter pauses are left to the original: it is more exact, and nobody waits for its end.
const EXACT: Duration = Duration::from_millis(1);
/// Sizes of the witx types `subscription` and `event`.
const SUBSCRIPTION_BYTES: usize = 48;
const EVENT_BYTES: usize = 32;
/// The tag of a clock in a subscription, which is also the type of its event, and the flag for an absolute time.
const CLOCK: u8 = 0;
const ABSOLUTE: u16 = 1;

/// The parameters of `poll_oneoff`: subscriptions, events, their number, where the number of events goes.
type PollParameters = (i32, i32, i32, i32);

/// Puts a `poll_oneoff` that can be dropped in the place of the one that is defined. Shadowing must be allowed.
pub(super) fn replace_poll(linker: &mut Linker<Guest>) -> wasmtime::Result<()> {
    linker.func_wrap_async("wasi_snapshot_preview1", "poll_oneoff", |caller, parameters: PollParameters| {
        Box::new(poll(caller, parameters))
    })?;
    Ok(())
}

async fn poll(mut caller: Caller<'_, Guest>, parameters: PollParameters) -> wasmtime::Result<i32> {
    let memory = caller.get_export("memory").and_then(wasmtime::Extern::into_memory);
    let memory = memory.ok_or_else(|| wasmtime::Error::msg("missing required memory export"))?;
    if let Some((userdata, pause)) = only_a_pause(&caller, memory, parameters)
        && pause > EXACT
    {
        tokio::time::sleep(pause).await;
        return answer(&mut caller, memory, userdata, parameters);
    }
    // What the engine's own binding does.
    let fuel = caller.as_context_mut().hostcall_fuel();
    let (bytes, guest) = memory.data_and_store_mut(&mut caller);
    guest.wasi.set_hostcall_fuel(fuel);
    let (subscriptions, events, count, written) = parameters;
    let mut bytes = GuestMemory::Unshared(bytes);
    poll_oneoff(&mut guest.wasi, &mut bytes, subscriptions, events, count, written).await
}

/// The guest's own number and the time, when there is one subscription and it is for a span of time. What can't be read
/// is the original's to refuse.
fn only_a_pause(caller: &Caller<'_, Guest>, memory: Memory, parameters: PollParameters) -> Option<([u8; 8], Duration)> {
    let (subscriptions, _, count, _) = parameters;
    if count != 1 {
        return None;
    }
    let mut subscription = [0; SUBSCRIPTION_BYTES];
    memory.read(caller, offset(subscriptions), &mut subscription).ok()?;
    let userdata = *subscription.first_chunk::<8>()?;
    let timeout = u64::from_le_bytes(*subscription.get(24..)?.first_chunk()?);
    let flags = u16::from_le_bytes(*subscription.get(40..)?.first_chunk()?);
    let relative = subscription.get(8) == Some(&CLOCK) && flags & ABSOLUTE == 0;
    relative.then_some((userdata, Duration::from_nanos(timeout)))
}

/// Writes the event that the time has passed.
fn answer(
    caller: &mut Caller<'_, Guest>,
    memory: Memory,
    userdata: [u8; 8],
    parameters: PollParameters,
) -> wasmtime::Result<i32> {
    let (_, events, _, written) = parameters;
    let mut event = [0; EVENT_BYTES];
    let (number, _) = event.split_at_mut(userdata.len());
    number.copy_from_slice(&userdata);
    memory.write(&mut *caller, offset(events), &event)?;
    memory.write(&mut *caller, offset(written), &1_u32.to_le_bytes())?;
    Ok(0)
}

/// An address of the guest's 32-bit memory.
fn offset(address: i32) -> usize {
    usize::try_from(address.cast_unsigned()).unwrap_or(usize::MAX)
}
