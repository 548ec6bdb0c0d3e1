//! What is run: a skill's folder, or one script, as a tree whose every byte is known by digest.
//!
//! A [`VerifiedSkill`] carries the authority to be run: it can only be made by [`VerifiedSkill::verify`], after the
//! whole tree was read and checked against the caller's pin. [`LoadedSkill`] adds what its manifest says;
//! [`SkillResolver`] turns a reference ([`AgentSkillSource`]) into a folder on this machine. This module reads and
//! writes files only through `workspace`.
//!
//! Invariant: nothing that a skill says about itself widens what the caller allowed.

#[cfg(feature = "fetch")]
mod archive;
#[cfg(not(feature = "fetch"))]
#[path = "archive_absent.rs"]
mod archive;
mod fetch;
#[cfg(feature = "fetch")]
mod fetch_http;
mod frontmatter;
mod imports;
mod loaded;
mod lock;
mod manifest;
mod pep723;
mod prompt;
mod reference;
mod resolve;
mod resources;
mod source;
mod trust;

pub(crate) use archive::{MAX_ARCHIVE_BYTES, unpack_files};
pub use fetch::{FetchRequest, Fetched, Fetcher};
#[cfg(feature = "fetch")]
pub use fetch_http::HttpFetcher;
pub use frontmatter::MAX_SKILL_MD_BYTES;
pub(crate) use imports::first_imports;
pub use loaded::LoadedSkill;
pub use lock::{LockedFile, LockedSkill, MAX_LOCK_BYTES, SkillLock};
pub use manifest::{ManifestFinding, ManifestMode, SkillManifest};
pub use pep723::{MAX_SCANNED_BYTES, ScriptMetadata, script_metadata};
pub use prompt::{PromptOptions, PromptText, skill_prompt};
pub use reference::AgentSkillSource;
pub use resolve::{CatalogEntry, ResolvedSkill, SkillResolver, default_search_paths};
pub use resources::{SKILL_MD, SkillResources};
pub use source::SkillSource;
pub use trust::{TrustPolicy, VerifiedSkill};
