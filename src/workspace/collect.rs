//! Taking results out.

/// Rules.
#[derive(Debug)]
pub struct CollectRules {}
/// Result.
#[derive(Debug)]
pub struct Collected {}
/// One file.
#[derive(Debug)]
pub struct OutputFile {}
/// One thing left.
#[derive(Debug)]
pub struct SkippedOutput {}
