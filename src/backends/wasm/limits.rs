//! The resource limiter of one run: memory, tables, instances.
//!
//! Invariant: all linear memories of a run together stay within the memory limit, all tables within theirs; a growth
//! beyond ends the run. A refusal would leave it to the guest whether it ends at all, and a loop that grows for ever
//! would be reported as a timeout.

use wasmtime::ResourceLimiter;

/// Instances, tables and memories of one run; a component made by common tools has under 20 of each.
const MAX_OBJECTS: usize = 100;

/// Counts what the guest holds and ends it over the limit.
pub(super) struct Limiter {
    memory_limit: u64,
    table_limit: u64,
    memory: u64,
    tables: u64,
    exceeded: bool,
}

impl Limiter {
    pub(super) fn new(memory_limit: u64, table_limit: u64) -> Self {
        Self { memory_limit, table_limit, memory: 0, tables: 0, exceeded: false }
    }

    /// Whether a growth was refused: the run ended for that.
    pub(super) fn exceeded(&self) -> bool {
        self.exceeded
    }

    /// Bytes of linear memory; it never shrinks, so this is the peak.
    pub(super) fn memory(&self) -> u64 {
        self.memory
    }

    fn grow(held: &mut u64, limit: u64, current: usize, desired: usize, exceeded: &mut bool) -> wasmtime::Result<bool> {
        let total = held.saturating_add(desired.saturating_sub(current) as u64);
        if total > limit {
            *exceeded = true;
            return Err(wasmtime::Error::msg("the memory limit is reached"));
        }
        *held = total;
        Ok(true)
    }
}

impl ResourceLimiter for Limiter {
    fn memory_growing(&mut self, current: usize, desired: usize, _maximum: Option<usize>) -> wasmtime::Result<bool> {
        Self::grow(&mut self.memory, self.memory_limit, current, desired, &mut self.exceeded)
    }

    fn table_growing(&mut self, current: usize, desired: usize, _maximum: Option<usize>) -> wasmtime::Result<bool> {
        Self::grow(&mut self.tables, self.table_limit, current, desired, &mut self.exceeded)
    }

    fn instances(&self) -> usize {
        MAX_OBJECTS
    }

    fn tables(&self) -> usize {
        MAX_OBJECTS
    }

    fn memories(&self) -> usize {
        MAX_OBJECTS
    }
}
