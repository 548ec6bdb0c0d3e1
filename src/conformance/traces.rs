//! What a folder looks like from the host, to the time of the last change: compared before and after an attempt.

use std::collections::BTreeMap;
use std::io;

use cap_std::fs::Dir;

/// Contents up to this size are compared whole; of larger files (the probe) size and time.
const COMPARED: u64 = 4 << 10;
/// The folders of the suite are shallower; what a guest made deeper differs at this depth already.
const DEPTH: usize = 8;

/// Paths with what is there.
pub(super) type Traces = BTreeMap<String, String>;

/// Looks at folders, each under its name.
pub(super) fn look(folders: &[(&str, &Dir)]) -> io::Result<Traces> {
    let mut found = Traces::new();
    for (name, folder) in folders {
        walk(folder, name, 0, &mut found)?;
    }
    Ok(found)
}

/// The first thing that differs, for a message.
pub(super) fn difference(before: &Traces, after: &Traces) -> Option<String> {
    let changed = before.iter().find(|(path, what)| after.get(*path) != Some(what));
    if let Some((path, what)) = changed {
        return Some(match after.get(path) {
            None => format!("'{path}' is gone"),
            Some(now) => format!("'{path}' was {what} and is {now}"),
        });
    }
    after.iter().find(|(path, _)| !before.contains_key(*path)).map(|(path, what)| format!("'{path}' is new: {what}"))
}

fn walk(folder: &Dir, prefix: &str, depth: usize, found: &mut Traces) -> io::Result<()> {
    if depth > DEPTH {
        return Ok(());
    }
    for entry in folder.entries()? {
        let entry = entry?;
        let name = entry.file_name();
        let path = format!("{prefix}/{}", name.to_string_lossy());
        let metadata = entry.metadata()?;
        let modified = metadata.modified().map(|time| format!("{time:?}")).unwrap_or_default();
        let mode = mode(&metadata);
        let what = if metadata.is_dir() {
            walk(&folder.open_dir(&name)?, &path, depth + 1, found)?;
            // The time of a folder changes with its entries, which are compared themselves.
            format!("a folder, mode {mode}")
        } else if metadata.is_symlink() {
            format!("a link to {:?}", folder.read_link_contents(&name)?)
        } else if metadata.is_file() && metadata.len() <= COMPARED {
            format!("a file, mode {mode}, {modified}, {:?}", String::from_utf8_lossy(&folder.read(&name)?))
        } else {
            format!("{} bytes, mode {mode}, {modified}", metadata.len())
        };
        found.insert(path, what);
    }
    Ok(())
}

#[cfg(unix)]
fn mode(metadata: &cap_std::fs::Metadata) -> String {
    use cap_std::fs::{MetadataExt, PermissionsExt};
    format!("{:o} links {}", metadata.permissions().mode() & 0o7777, metadata.nlink())
}

#[cfg(not(unix))]
fn mode(_metadata: &cap_std::fs::Metadata) -> String {
    String::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_change_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let dir = Dir::open_ambient_dir(folder.path(), cap_std::ambient_authority()).unwrap();
        dir.write("a", "one").unwrap();
        let before = look(&[("x", &dir)]).unwrap();
        assert_eq!(difference(&before, &look(&[("x", &dir)]).unwrap()), None);
        dir.write("b", "new").unwrap();
        let said = difference(&before, &look(&[("x", &dir)]).unwrap()).unwrap();
        assert!(said.starts_with("'x/b' is new"), "{said}");
        dir.write("a", "two").unwrap();
        let said = difference(&before, &look(&[("x", &dir)]).unwrap()).unwrap();
        assert!(said.starts_with("'x/a' was") && said.contains("two"), "{said}");
        dir.remove_file("a").unwrap();
        assert_eq!(difference(&before, &look(&[("x", &dir)]).unwrap()).unwrap(), "'x/a' is gone");
    }
}
