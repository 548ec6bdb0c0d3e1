//! Unpacks a skill out of a `.tar.gz` or `.zip` that somebody else made.
//!
//! Nothing of an archive is trusted. Invariants: a path that is absolute, has `..`, or can't be stored on some host
//! refuses the whole archive; links and special files inside the skill are refused, never made; bytes are counted as
//! they come out, so that no header can lie about sizes; modes but the executable bit, owners and times are dropped.
//! Files are written by [`TreeBuilder`], which refuses what leaves its folder a second time.

use std::collections::BTreeSet;
use std::io::{self, Cursor, Read};

use flate2::read::GzDecoder;

use super::resources::{SKILL_MD, SKILL_MD_LOWER};
use crate::error::{ErrorKind, Result, SkillRuntimeError};
use crate::workspace::{GuestPath, TreeBuilder};

/// Bytes of an archive. It is held in memory; the largest known repositories of skills have a few.
pub(crate) const MAX_ARCHIVE_BYTES: u64 = 64 << 20;
/// Bytes of everything in it, unpacked.
const MAX_UNPACKED_BYTES: u64 = 256 << 20;
/// Bytes out for each byte in. Deflate gives at most 1032; text gives 10; a bomb lives above.
const MAX_RATIO: u64 = 100;
/// Below this the ratio says nothing.
const RATIO_FREE_BYTES: u64 = 8 << 20;
/// Entries in all, also those outside the skill.
const MAX_ENTRIES: usize = 20_000;
/// `SKILL.md` files listed in a message.
const MAX_LISTED: usize = 10;

/// What kind of archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ArchiveFormat {
    /// A tape archive, compressed with gzip.
    TarGz,
    /// A zip file.
    Zip,
}

impl ArchiveFormat {
    /// By the first bytes: names lie.
    ///
    /// # Errors
    /// [`InvalidConfig`](ErrorKind::InvalidConfig) when it is neither.
    pub(super) fn of(bytes: &[u8]) -> Result<Self> {
        if bytes.starts_with(&[0x1f, 0x8b]) {
            Ok(Self::TarGz)
        } else if bytes.starts_with(b"PK\x03\x04") || bytes.starts_with(b"PK\x05\x06") {
            // The second is one without entries.
            Ok(Self::Zip)
        } else {
            Err(SkillRuntimeError::invalid("what was fetched is neither a .tar.gz nor a .zip; check the address"))
        }
    }
}

/// Which folder of the archive is the skill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted<'a> {
    /// Below the one folder that everything lies in, as GitHub packs it; empty for that folder itself.
    BelowTop(&'a str),
    /// This folder, from the archive's root.
    Folder(&'a str),
    /// The only folder that has a `SKILL.md`.
    OnlySkill,
}

/// An archive whose names were checked and whose skill was found.
pub(super) struct Archive<'a> {
    bytes: &'a [u8],
    format: ArchiveFormat,
    /// The skill's folder, with a `/` at its end; empty for the root.
    prefix: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    File { executable: bool },
    Folder,
    Link,
    Special,
}

impl<'a> Archive<'a> {
    /// Reads all names once, and finds the skill.
    ///
    /// # Errors
    /// [`LimitExceeded`](ErrorKind::LimitExceeded): too large, too many, a bomb. [`PathDenied`](ErrorKind::PathDenied): a
    /// name that leaves the archive. [`NotFound`](ErrorKind::NotFound): no `SKILL.md` where it was wanted.
    /// [`InvalidConfig`](ErrorKind::InvalidConfig): several skills and none named, or bytes that are no archive.
    pub(super) fn open(bytes: &'a [u8], wanted: Wanted<'_>) -> Result<Self> {
        if bytes.len() as u64 > MAX_ARCHIVE_BYTES {
            return Err(too_large("the archive", MAX_ARCHIVE_BYTES));
        }
        let format = ArchiveFormat::of(bytes)?;
        let (mut tops, mut skills) = (BTreeSet::new(), BTreeSet::new());
        walk(bytes, format, &mut |path, _, _| {
            let (top, _) = path.split_once('/').unwrap_or((path, ""));
            if tops.len() < 2 {
                tops.insert(top.to_owned());
            }
            let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
            if (name == SKILL_MD || name == SKILL_MD_LOWER) && skills.len() <= MAX_ENTRIES {
                skills.insert(folder.to_owned());
            }
            Ok(())
        })?;
        let folder = match wanted {
            Wanted::Folder(folder) => folder.to_owned(),
            Wanted::BelowTop(folder) => match tops.first() {
                Some(top) if tops.len() == 1 && folder.is_empty() => top.clone(),
                Some(top) if tops.len() == 1 => format!("{top}/{folder}"),
                _ => folder.to_owned(),
            },
            Wanted::OnlySkill => match (skills.first(), skills.len()) {
                (Some(folder), 1) => folder.clone(),
                (None, _) => {
                    return Err(SkillRuntimeError::new(ErrorKind::NotFound, "No SKILL.md found in the archive"));
                }
                (Some(_), count) => {
                    let shown: Vec<String> =
                        skills.iter().take(MAX_LISTED).map(|folder| folder.escape_debug().to_string()).collect();
                    return Err(SkillRuntimeError::invalid(format!(
                        "the archive holds {count} skills ({}); name one with #path=",
                        shown.join(", ")
                    )));
                }
            },
        };
        if !skills.contains(&folder) {
            return Err(SkillRuntimeError::new(
                ErrorKind::NotFound,
                format!("No SKILL.md found at path: {}", if folder.is_empty() { "." } else { &folder }.escape_debug()),
            ));
        }
        let prefix = if folder.is_empty() { folder } else { format!("{folder}/") };
        Ok(Self { bytes, format, prefix })
    }

    /// The name of the skill's folder; empty when it is the archive's root.
    pub(super) fn folder_name(&self) -> &str {
        self.prefix.trim_end_matches('/').rsplit('/').next().unwrap_or("")
    }

    /// Writes the skill's files.
    ///
    /// # Errors
    /// [`PathDenied`](ErrorKind::PathDenied): a link or special file in the skill, two files that some host can't tell
    /// apart; [`LimitExceeded`](ErrorKind::LimitExceeded); [`Backend`](ErrorKind::Backend): a damaged archive, the disk.
    pub(super) fn unpack(&self, builder: &mut TreeBuilder<'_>) -> Result<()> {
        let mut left = MAX_UNPACKED_BYTES;
        walk(self.bytes, self.format, &mut |path, kind, content| {
            // A whole component: `skills/pdf` must not take `skills/pdf2`.
            let Some(inside) = path.strip_prefix(&*self.prefix) else { return Ok(()) };
            match kind {
                Kind::Folder => Ok(()),
                Kind::File { executable } => {
                    left = left.saturating_sub(builder.file(inside, executable, content, left).map_err(bomb_or)?);
                    Ok(())
                }
                Kind::Link | Kind::Special => Err(special(path)),
            }
        })
    }
}

/// Writes every file of an archive that `place` gives a path to: the archive's own path goes in, the path in the tree
/// comes out. Links and special files are refused wherever they would go. The limits are those of skills.
///
/// # Errors
/// As [`Archive::open`] and [`Archive::unpack`].
pub(crate) fn unpack_files(
    bytes: &[u8],
    builder: &mut TreeBuilder<'_>,
    place: &mut dyn FnMut(&str) -> Result<Option<String>>,
) -> Result<()> {
    if bytes.len() as u64 > MAX_ARCHIVE_BYTES {
        return Err(too_large("the archive", MAX_ARCHIVE_BYTES));
    }
    let mut left = MAX_UNPACKED_BYTES;
    walk(bytes, ArchiveFormat::of(bytes)?, &mut |path, kind, content| {
        let executable = match kind {
            Kind::Folder => return Ok(()),
            Kind::File { executable } => executable,
            Kind::Link | Kind::Special => return Err(special(path)),
        };
        if let Some(inside) = place(path)? {
            left = left.saturating_sub(builder.file(&inside, executable, content, left).map_err(bomb_or)?);
        }
        Ok(())
    })
}

fn special(path: &str) -> SkillRuntimeError {
    SkillRuntimeError::new(
        ErrorKind::PathDenied,
        format!(
            "'{}' in the archive is a link or a special file, which is never made; ask its author for plain files",
            path.escape_debug()
        ),
    )
}

type Visit<'v> = &'v mut dyn FnMut(&str, Kind, &mut dyn Read) -> Result<()>;

fn walk(bytes: &[u8], format: ArchiveFormat, visit: Visit<'_>) -> Result<()> {
    match format {
        ArchiveFormat::TarGz => walk_tar(bytes, visit),
        ArchiveFormat::Zip => walk_zip(bytes, visit),
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the format's types are an open set; what isn't known is special")]
fn walk_tar(bytes: &[u8], visit: Visit<'_>) -> Result<()> {
    let mut archive = tar::Archive::new(Bounded::new(GzDecoder::new(bytes), bytes.len()));
    for (count, entry) in archive.entries().map_err(damaged)?.enumerate() {
        let mut entry = entry.map_err(damaged)?;
        if count >= MAX_ENTRIES {
            return Err(too_many());
        }
        let kind = match entry.header().entry_type() {
            tar::EntryType::Regular | tar::EntryType::Continuous => {
                Kind::File { executable: entry.header().mode().map_err(damaged)? & 0o111 != 0 }
            }
            tar::EntryType::Directory => Kind::Folder,
            tar::EntryType::Symlink | tar::EntryType::Link => Kind::Link,
            tar::EntryType::XGlobalHeader => continue,
            _ => Kind::Special,
        };
        let path = checked_path(&entry.path_bytes())?;
        if let Some(path) = path {
            visit(&path, kind, &mut entry)?;
        }
    }
    Ok(())
}

fn walk_zip(bytes: &[u8], visit: Visit<'_>) -> Result<()> {
    let mut archive = zip::ZipArchive::new(Cursor::new(bytes)).map_err(damaged)?;
    if archive.len() > MAX_ENTRIES {
        return Err(too_many());
    }
    // Entries that share their bytes are how a small file becomes terabytes.
    if archive.has_overlapping_files().map_err(damaged)? {
        return Err(SkillRuntimeError::new(
            ErrorKind::LimitExceeded,
            "the archive has entries that overlap, as bombs do",
        ));
    }
    let mut left = Bounded::new(io::empty(), bytes.len()).left;
    for index in 0..archive.len() {
        let mut file = archive.by_index(index).map_err(damaged)?;
        let Some(path) = checked_path(file.name_raw())? else { continue };
        let kind = if file.is_symlink() {
            Kind::Link
        } else if file.is_dir() {
            Kind::Folder
        } else {
            Kind::File { executable: file.unix_mode().is_some_and(|mode| mode & 0o111 != 0) }
        };
        let mut content = Bounded { inner: &mut file, left };
        visit(&path, kind, &mut content)?;
        left = content.left;
    }
    Ok(())
}

/// A name of an archive as a path from its root; `None` for the root itself.
fn checked_path(name: &[u8]) -> Result<Option<String>> {
    let name = std::str::from_utf8(name).map_err(|_| {
        SkillRuntimeError::new(
            ErrorKind::PathDenied,
            format!("the archive has a name that is no UTF-8: {}", String::from_utf8_lossy(name).escape_debug()),
        )
    })?;
    if name.trim_start_matches("./").is_empty() || name == "." {
        return Ok(None);
    }
    let path = GuestPath::root().join(name).map_err(|error| {
        SkillRuntimeError::new(ErrorKind::PathDenied, format!("the archive is hostile or damaged: {error}"))
    })?;
    let path = path.parts().join("/");
    Ok((!path.is_empty()).then_some(path))
}

/// Passes bytes on until there were too many, then fails.
struct Bounded<R> {
    inner: R,
    left: u64,
}

/// What [`Bounded`] fails with, to be told from a damaged archive.
#[derive(Debug)]
struct Bomb;

impl std::fmt::Display for Bomb {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the archive unpacks to too many bytes")
    }
}

impl std::error::Error for Bomb {}

impl<R> Bounded<R> {
    fn new(inner: R, packed: usize) -> Self {
        let by_ratio = (packed as u64).saturating_mul(MAX_RATIO).max(RATIO_FREE_BYTES);
        Self { inner, left: by_ratio.min(MAX_UNPACKED_BYTES) }
    }
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.left = self.left.checked_sub(count as u64).ok_or_else(|| io::Error::other(Bomb))?;
        Ok(count)
    }
}

fn is_bomb(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        let inner = error.downcast_ref::<io::Error>().and_then(|error| error.get_ref());
        if error.is::<Bomb>() || inner.is_some_and(|inner| inner.is::<Bomb>() || is_bomb_inner(inner)) {
            return true;
        }
        next = error.source();
    }
    false
}

/// `tar` wraps errors of its reader in its own.
fn is_bomb_inner(error: &(dyn std::error::Error + Send + Sync + 'static)) -> bool {
    error.source().is_some_and(is_bomb)
}

fn damaged(error: impl std::error::Error + Send + Sync + 'static) -> SkillRuntimeError {
    if is_bomb(&error) {
        return too_large("the archive, unpacked,", MAX_UNPACKED_BYTES);
    }
    SkillRuntimeError::backend("the archive is damaged or not of its kind; fetch it again", error)
}

/// The builder reads from [`Bounded`] too.
fn bomb_or(error: SkillRuntimeError) -> SkillRuntimeError {
    if is_bomb(&error) { too_large("the archive, unpacked,", MAX_UNPACKED_BYTES) } else { error }
}

fn too_large(what: &str, limit: u64) -> SkillRuntimeError {
    SkillRuntimeError::new(
        ErrorKind::LimitExceeded,
        format!("{what} has more than {limit} bytes, or {MAX_RATIO} times what it has packed"),
    )
}

fn too_many() -> SkillRuntimeError {
    SkillRuntimeError::new(ErrorKind::LimitExceeded, format!("the archive has more than {MAX_ENTRIES} entries"))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::workspace::{HostTree, TreeStore};

    /// (name, type, content): types as in tar's header; `x` is an executable file.
    type Entry<'a> = (&'a str, u8, &'a str);

    /// Writes headers by hand: the crate's own writer refuses the names an attacker would use.
    fn tar_gz(entries: &[Entry<'_>]) -> Vec<u8> {
        let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        for (name, kind, content) in entries {
            let mut header = tar::Header::new_ustar();
            header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
            header.set_size(content.len() as u64);
            header.set_mode(if *kind == b'x' { 0o755 } else { 0o644 });
            header.set_entry_type(tar::EntryType::new(if *kind == b'x' { b'0' } else { *kind }));
            if matches!(kind, b'1' | b'2') {
                header.set_link_name("/etc/passwd").unwrap();
            }
            header.set_cksum();
            out.write_all(header.as_bytes()).unwrap();
            out.write_all(content.as_bytes()).unwrap();
            out.write_all(&vec![0; (512 - content.len() % 512) % 512]).unwrap();
        }
        out.write_all(&[0; 1024]).unwrap();
        out.finish().unwrap()
    }

    fn zipped(entries: &[Entry<'_>]) -> Vec<u8> {
        let mut out = zip::ZipWriter::new(Cursor::new(Vec::new()));
        for (name, kind, content) in entries {
            let mode = if *kind == b'x' { 0o755 } else { 0o644 };
            let options = zip::write::SimpleFileOptions::default().unix_permissions(mode);
            match kind {
                b'5' => out.add_directory(*name, options).unwrap(),
                b'2' => out.add_symlink(*name, *content, options).unwrap(),
                _ => {
                    out.start_file(*name, options).unwrap();
                    out.write_all(content.as_bytes()).unwrap();
                }
            }
        }
        out.finish().unwrap().into_inner()
    }

    fn unpack(bytes: &[u8], wanted: Wanted<'_>) -> Result<Vec<(String, bool, u64)>> {
        let folder = tempfile::tempdir().unwrap();
        let store = TreeStore::open(&folder.path().join("cache")).unwrap();
        let archive = Archive::open(bytes, wanted)?;
        let (_, path) = store.put("k", "skill", "test", |builder| archive.unpack(builder))?;
        let outside: Vec<_> = folder.path().read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(outside, ["cache"], "something was written outside");
        let tree = HostTree::open_folder(&path).unwrap();
        Ok(tree.entries().iter().map(|entry| (entry.path.clone(), entry.executable, entry.size)).collect())
    }

    const GOOD: [Entry<'_>; 6] = [
        ("repo-1/", b'5', ""),
        ("repo-1/README.md", b'0', "x"),
        ("repo-1/skills/pdf/SKILL.md", b'0', "s"),
        ("repo-1/skills/pdf/scripts/a.sh", b'x', "echo"),
        ("repo-1/skills/pdf2/SKILL.md", b'0', "other"),
        ("repo-1/link", b'2', ""),
    ];

    #[test]
    fn one_folder_is_taken_out_of_many() {
        let expected = vec![("SKILL.md".to_owned(), false, 1), ("scripts/a.sh".to_owned(), cfg!(unix), 4)];
        for bytes in [tar_gz(&GOOD), zipped(&GOOD)] {
            assert_eq!(unpack(&bytes, Wanted::BelowTop("skills/pdf")).unwrap(), expected);
            assert_eq!(unpack(&bytes, Wanted::Folder("repo-1/skills/pdf")).unwrap(), expected);
            let error = unpack(&bytes, Wanted::OnlySkill).unwrap_err().to_string();
            assert!(error.contains("holds 2 skills (repo-1/skills/pdf, repo-1/skills/pdf2)"), "{error}");
            for missing in ["skills", "skills/pd", "nothing"] {
                assert_eq!(
                    unpack(&bytes, Wanted::BelowTop(missing)).unwrap_err().kind(),
                    ErrorKind::NotFound,
                    "{missing}"
                );
            }
        }
        let root = tar_gz(&[("./SKILL.md", b'0', "s"), ("./a/b.txt", b'0', "")]);
        assert_eq!(unpack(&root, Wanted::OnlySkill).unwrap().len(), 2);
        let archive = Archive::open(&root, Wanted::OnlySkill).unwrap();
        assert_eq!(archive.folder_name(), "");
    }

    #[test]
    fn nothing_escapes() {
        for bad in ["../x", "/etc/x", "a/../../x", "..", "a\\..\\x", "C:\\x\u{1}", "a\nb"] {
            let entries = [("SKILL.md", b'0', "s"), (bad, b'0', "evil")];
            for bytes in [tar_gz(&entries), zipped(&entries)] {
                assert_eq!(unpack(&bytes, Wanted::OnlySkill).unwrap_err().kind(), ErrorKind::PathDenied, "{bad:?}");
            }
        }
        for (name, kind) in [("ln", b'2'), ("hard", b'1'), ("fifo", b'6'), ("device", b'3'), ("sparse", b'S')] {
            let bytes = tar_gz(&[("SKILL.md", b'0', "s"), (name, kind, "")]);
            let error = unpack(&bytes, Wanted::OnlySkill).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::PathDenied | ErrorKind::Backend), "{name}: {error}");
        }
        let bytes = zipped(&[("SKILL.md", b'0', "s"), ("ln", b'2', "/etc/passwd")]);
        assert_eq!(unpack(&bytes, Wanted::OnlySkill).unwrap_err().kind(), ErrorKind::PathDenied);
        // A link first, then a file through it; two names that differ in case; one name twice.
        for entries in [
            [("SKILL.md", b'0', "s"), ("d", b'2', ""), ("d/x", b'0', "evil")],
            [("SKILL.md", b'0', "s"), ("a", b'0', "1"), ("A", b'0', "2")],
            [("SKILL.md", b'0', "s"), ("a", b'0', "1"), ("a", b'0', "2")],
            [("SKILL.md", b'0', "s"), ("a", b'0', "1"), ("a/b", b'0', "2")],
        ] {
            assert_eq!(
                unpack(&tar_gz(&entries), Wanted::OnlySkill).unwrap_err().kind(),
                ErrorKind::PathDenied,
                "{entries:?}"
            );
        }
    }

    #[test]
    fn bombs_end_early() {
        let zeros = "\0".repeat(16 << 20);
        let entries = [("SKILL.md", b'0', "s"), ("zeros", b'0', zeros.as_str())];
        for bytes in [tar_gz(&entries), zipped(&entries)] {
            assert!(bytes.len() < 64 << 10, "{}", bytes.len());
            let error = unpack(&bytes, Wanted::OnlySkill).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::LimitExceeded, "{error}");
        }
        let names: Vec<String> = (0..=MAX_ENTRIES).map(|index| format!("f{index}")).collect();
        let many: Vec<Entry<'_>> = names.iter().map(|name| (name.as_str(), b'0', "")).collect();
        for bytes in [tar_gz(&many), zipped(&many)] {
            assert_eq!(unpack(&bytes, Wanted::OnlySkill).unwrap_err().kind(), ErrorKind::LimitExceeded);
        }
    }

    #[test]
    fn bytes_that_are_no_archive_are_an_error() {
        for bytes in [&b""[..], b"hello", b"PK\x03\x04", b"\x1f\x8b", b"\x1f\x8b\x08\0\0\0\0\0\0\xffgarbage"] {
            unpack(bytes, Wanted::OnlySkill).unwrap_err();
        }
        let good = tar_gz(&GOOD);
        for cut in 0..good.len() {
            // Any cut gives an error or a part that still has no hole; never a panic.
            let _ = unpack(good.get(..cut).unwrap(), Wanted::BelowTop("skills/pdf"));
        }
    }
}
