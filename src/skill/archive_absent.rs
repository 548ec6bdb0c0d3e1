//! Stands in for `archive` in builds without the feature `fetch`: says so, and does nothing else.

use crate::error::{ErrorKind, Result, SkillRuntimeError};
use crate::workspace::TreeBuilder;

/// As in a full build.
pub(crate) const MAX_ARCHIVE_BYTES: u64 = 64 << 20;

/// As in a full build.
#[derive(Debug, Clone, Copy)]
pub(super) enum Wanted<'a> {
    /// Below the top folder.
    BelowTop(&'a str),
    /// This folder.
    Folder(&'a str),
    /// The only skill.
    OnlySkill,
}

/// Can't be made.
pub(super) struct Archive<'a> {
    never: std::convert::Infallible,
    _bytes: std::marker::PhantomData<&'a [u8]>,
}

impl Archive<'_> {
    pub(super) fn open(_bytes: &[u8], wanted: Wanted<'_>) -> Result<Self> {
        let folder = match wanted {
            Wanted::BelowTop(folder) | Wanted::Folder(folder) => folder,
            Wanted::OnlySkill => "",
        };
        Err(SkillRuntimeError::new(
            ErrorKind::Unavailable,
            "this build of skillcell can't unpack archives; build it with the feature 'fetch', or give a folder",
        )
        .with("folder", folder))
    }

    pub(super) fn folder_name(&self) -> &str {
        match self.never {}
    }

    /// As in a full build.
    pub(super) fn unpack(&self, _builder: &mut TreeBuilder<'_>) -> Result<()> {
        match self.never {}
    }
}

/// As in a full build.
pub(crate) fn unpack_files(
    _bytes: &[u8],
    _builder: &mut TreeBuilder<'_>,
    _place: &mut dyn FnMut(&str) -> Result<Option<String>>,
) -> Result<()> {
    Err(SkillRuntimeError::new(
        ErrorKind::Unavailable,
        "this build of skillcell can't unpack packages; build it with the feature 'fetch'",
    ))
}
