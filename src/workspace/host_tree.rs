//! A folder or file of the host, read whole and known by digest.

use std::path::Path;

use crate::error::Result;

/// A tree of the host.
#[derive(Debug)]
pub struct HostTree {}

/// One file of it.
#[derive(Debug)]
pub struct TreeEntry {}

impl HostTree {
    /// Placeholder until staged.
    pub fn open_folder(_path: &Path) -> Result<Self> {
        Ok(Self {})
    }
    /// Placeholder until staged.
    pub fn open_file(_path: &Path) -> Result<Self> {
        Ok(Self {})
    }
    /// Placeholder until staged.
    pub fn name(&self) -> &str {
        ""
    }
    /// Placeholder until staged.
    pub fn digest(&self) -> &str {
        ""
    }
}
