//! What is run: a skill's folder, or one script, as a tree whose every byte is known by digest.
//!
//! A [`VerifiedSkill`] carries the authority to be run: it can only be made by [`VerifiedSkill::verify`], after the
//! whole tree was read and checked against the caller's pin. This module reads files only through `workspace`.

mod source;
mod trust;

pub use source::SkillSource;
pub use trust::{TrustPolicy, VerifiedSkill};
