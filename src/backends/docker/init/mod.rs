//! The init, as the host sees it: the compiled program, and the protocol spoken with it.
//!
//! `main.rs` and `system.rs` are not part of the library: `build.rs` compiles them into [`PROGRAM`].

#[expect(dead_code, reason = "the init's half of the protocol")]
pub(super) mod protocol;

/// The static executable.
pub(super) const PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/skillcell-init"));

/// The machine it is for, in the daemon's words.
pub(super) const ARCHITECTURE: &str = if cfg!(target_arch = "x86_64") {
    "amd64"
} else if cfg!(target_arch = "aarch64") {
    "arm64"
} else {
    std::env::consts::ARCH
};
