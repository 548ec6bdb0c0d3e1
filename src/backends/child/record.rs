//! What passes through the status pipe: small records of fixed size, written by the processes of a run.

use std::mem::size_of;

/// What the supervisor tells the host, as it lies in the status pipe. Smaller than `PIPE_BUF`, so written whole.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// [`STARTED`], [`ENDED`] or [`FAILED`].
    pub(super) kind: u32,
    /// The guest's process id; in a [`FAILED`] record the [`Stage`] that failed.
    pub(super) guest: i32,
    /// The guest's wait status in an [`ENDED`] record, the error number in a [`FAILED`] one.
    pub(super) status: i32,
    /// Processes that were still there when the sweep gave up: 0 or 1.
    pub(super) left: u32,
    /// Processor time of everything that was reaped, microseconds.
    pub(super) cpu_microseconds: u64,
    /// The largest resident set of one process, bytes.
    pub(super) peak_memory: u64,
}

/// The first record.
pub(super) const STARTED: u32 = 1;
/// The last record: nothing of the run is left, unless `left` says so.
pub(super) const ENDED: u32 = 2;
/// The run could not be set up; the error follows from the spawn itself.
pub(super) const FAILED: u32 = 3;
/// Bytes of a record.
pub(super) const RECORD_BYTES: usize = size_of::<Record>();

impl Record {
    /// Reads a record from its bytes.
    pub(super) fn from_bytes(bytes: &[u8; RECORD_BYTES]) -> Self {
        let word = |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        let long = |at: usize| if cfg!(target_endian = "little") { long(at) } else { long(at).rotate_left(32) };
        Self {
            kind: word(0),
            guest: word(4).cast_signed(),
            status: word(8).cast_signed(),
            left: word(12),
            cpu_microseconds: long(16),
            peak_memory: long(24),
        }
    }
}

/// Which step of setting up a run failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub(in crate::backends) enum Stage {
    /// The supervisor or the guest's process could not be made.
    Fork = 1,
    /// The namespaces could not be entered.
    Namespaces = 2,
    /// `/proc` or `/dev/shm` could not be mounted.
    Mounts = 3,
    /// The current folder could not be entered.
    Folder = 4,
    /// A resource limit could not be set.
    Limits = 5,
    /// The unprivileged user could not be taken on.
    Identity = 6,
    /// Landlock refused.
    Landlock = 7,
    /// Capabilities could not be dropped.
    Capabilities = 8,
    /// The system-call filter could not be installed.
    Seccomp = 9,
    /// Something that must be impossible inside was possible.
    SelfTest = 10,
}

impl Stage {
    /// The stage behind a number of a record.
    pub(super) fn from_number(number: i32) -> Option<Self> {
        [
            Self::Fork,
            Self::Namespaces,
            Self::Mounts,
            Self::Folder,
            Self::Limits,
            Self::Identity,
            Self::Landlock,
            Self::Capabilities,
            Self::Seccomp,
            Self::SelfTest,
        ]
        .into_iter()
        .find(|stage| *stage as i32 == number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_survives_its_bytes() {
        let record = Record {
            kind: ENDED,
            guest: -7,
            status: i32::MIN + 1,
            left: 1,
            cpu_microseconds: u64::MAX - 0x0123_4567_89ab,
            peak_memory: 1 << 40,
        };
        // SAFETY: a record is plain data without padding.
        #[expect(unsafe_code, reason = "the writer's side of the pipe")]
        let bytes: [u8; RECORD_BYTES] = unsafe { std::mem::transmute(record) };
        assert_eq!(Record::from_bytes(&bytes), record);
    }
}
