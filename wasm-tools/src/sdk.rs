//! The source of `skillcell-guest`, carried inside the tool.
//!
//! A single-file guest can `use skillcell_guest` without a manifest; the tool must be able to give it that crate
//! wherever the tool itself was installed to, and in the version it was built with.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// Every source file of the crate. A test compares the list with the folder.
pub(crate) const SOURCES: [(&str, &str); 6] = [
    ("inputs.rs", include_str!("../../guest-sdk/src/inputs.rs")),
    ("lib.rs", include_str!("../../guest-sdk/src/lib.rs")),
    ("markdown.rs", include_str!("../../guest-sdk/src/markdown.rs")),
    ("names.rs", include_str!("../../guest-sdk/src/names.rs")),
    ("outputs.rs", include_str!("../../guest-sdk/src/outputs.rs")),
    ("workspace.rs", include_str!("../../guest-sdk/src/workspace.rs")),
];

/// Writes the crate to `folder`.
pub(crate) fn write(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder.join("src")).with_context(|| format!("can't make {}", folder.display()))?;
    let manifest = format!(
        "[package]\nname = \"skillcell-guest\"\nversion = \"{}\"\nedition = \"2024\"\n",
        env!("CARGO_PKG_VERSION")
    );
    write_if_changed(&folder.join("Cargo.toml"), &manifest)?;
    SOURCES.into_iter().try_for_each(|(name, text)| write_if_changed(&folder.join("src").join(name), text))
}

/// Cargo decides by the time of the last change what to compile, so a file that is right is left alone.
pub(crate) fn write_if_changed(path: &Path, text: &str) -> Result<()> {
    if fs::read(path).is_ok_and(|present| present == text.as_bytes()) {
        return Ok(());
    }
    fs::write(path, text).with_context(|| format!("can't write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_crate_is_carried() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../guest-sdk/src");
        let mut present: Vec<_> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        present.sort();
        assert_eq!(present, SOURCES.map(|(name, _)| name));
    }
}
