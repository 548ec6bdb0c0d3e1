//! Taking results out: everything in `/workspace/out` that the caller asked for, without trusting how it got there.
//!
//! Folders are opened one component at a time and no link is followed, so a guest process that still lives can swap
//! what it likes: what is read lies in `out` or isn't read. Pipes, sockets and devices are never opened. What can't be
//! collected is a [`SkippedOutput`] and one denial in the audit trail, not an error: the rest is still of use.
//!
//! A file with several hard links is content like any other: a guest can only link what lies on the file system of
//! `out` and what its user may touch, which it could as well have copied, and collecting only reads.

use std::ffi::OsString;
use std::io;

use bytes::Bytes;
use cap_fs_ext::DirExt;
use cap_std::fs::Dir;
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

use super::access::EntryKind;
use super::guest_path::Area;
use super::root::Workspace;
use super::transfer::{hash_into, is_executable, open_below, open_regular, read_remedy, says_changed, shown};
use crate::audit::{AuditScope, Layer};
use crate::error::{ErrorKind, Result, SkillRuntimeError};

/// Files collected unless the caller says otherwise: as many as the default limit of a run lets lie there.
pub const DEFAULT_MAX_OUTPUT_FILES: usize = 10_000;
/// Bytes of one file, unless the caller says otherwise.
pub const DEFAULT_MAX_OUTPUT_FILE_BYTES: u64 = 512 << 20;
/// Bytes of all files, unless the caller says otherwise: the default disk limit of a run.
pub const DEFAULT_MAX_OUTPUT_BYTES: u64 = 1 << 30;
/// Folders below `out`; deeper files have no [`GuestPath`](super::GuestPath).
pub const MAX_OUTPUT_DEPTH: usize = 62;
/// Entries looked at, whatever they are: a guest on a runtime without a file limit can make millions.
pub const MAX_ENTRIES_SEEN: usize = 100_000;
/// Skipped entries listed one by one; more are counted.
pub const MAX_SKIPPED_LISTED: usize = 1_000;
/// Bytes of content kept in memory, so that small results can be read after the workspace is gone.
pub const MAX_HELD_BYTES: u64 = 8 << 20;
/// Patterns and bytes of one pattern: more is a mistake, and each costs time on every file.
const MAX_GLOBS: usize = 100;
const MAX_GLOB_BYTES: usize = 1_024;

/// What to collect, and how much.
#[derive(Debug, Clone)]
pub struct CollectRules {
    /// `None`: everything.
    globs: Option<GlobSet>,
    /// Files at most. Default [`DEFAULT_MAX_OUTPUT_FILES`].
    pub max_files: usize,
    /// Bytes of one file at most. Default [`DEFAULT_MAX_OUTPUT_FILE_BYTES`].
    pub max_file_bytes: u64,
    /// Bytes of all files at most. Default [`DEFAULT_MAX_OUTPUT_BYTES`].
    pub max_bytes: u64,
}

impl Default for CollectRules {
    /// Everything, with the default caps.
    fn default() -> Self {
        Self {
            globs: None,
            max_files: DEFAULT_MAX_OUTPUT_FILES,
            max_file_bytes: DEFAULT_MAX_OUTPUT_FILE_BYTES,
            max_bytes: DEFAULT_MAX_OUTPUT_BYTES,
        }
    }
}

impl CollectRules {
    /// Files whose path below `out` matches one of `globs`; no glob means everything. `*` and `?` match any character,
    /// `/` too, as in CARL's `output_files_glob`; `[abc]`, `[!abc]` as usual, and `{` is an ordinary character.
    ///
    /// # Errors
    /// [`InvalidConfig`](ErrorKind::InvalidConfig) quoting the glob that can't be used: not well formed, empty, absolute,
    /// with a part `..`, or too long.
    pub fn new<S: AsRef<str>>(globs: &[S]) -> Result<Self> {
        if globs.is_empty() {
            return Ok(Self::default());
        }
        if globs.len() > MAX_GLOBS {
            return Err(SkillRuntimeError::invalid(format!("more than {MAX_GLOBS} globs for output files")));
        }
        let mut set = GlobSetBuilder::new();
        for glob in globs {
            let glob = glob.as_ref();
            let bad = |why: &str| SkillRuntimeError::invalid(format!("output glob '{}' {why}", shown(glob)));
            if glob.is_empty() || glob.len() > MAX_GLOB_BYTES {
                return Err(bad("must have between 1 and 1024 bytes"));
            }
            if glob.starts_with('/') || glob.split('/').any(|part| part == "..") {
                return Err(bad("must name files below /workspace/out, such as 'report.txt' or '*.csv'"));
            }
            // Alternatives in braces are an addition of globset; a guest's file may well be called `{x}`.
            let plain = glob.replace('{', "[{]").replace('}', "[}]");
            let text = if glob.contains('[') && plain != glob {
                return Err(bad("mixes braces and brackets; use one of them"));
            } else {
                plain
            };
            let parsed = GlobBuilder::new(&text).literal_separator(false).backslash_escape(false).build();
            set.add(parsed.map_err(|error| bad("is not a glob").caused_by(error))?);
        }
        let globs = set
            .build()
            .map_err(|error| SkillRuntimeError::invalid("the output globs are too large").caused_by(error))?;
        Ok(Self { globs: Some(globs), ..Self::default() })
    }

    fn wanted(&self, path: &str) -> bool {
        self.globs.as_ref().is_none_or(|globs| globs.is_match(path))
    }
}

/// One file that was collected.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct OutputFile {
    /// Path below `/workspace/out`, `/` between parts.
    pub path: String,
    /// Bytes.
    pub size: u64,
    /// SHA-256 of the content, lower-case hex.
    pub sha256: String,
    /// Media type by the name's extension, else `text/plain` or `application/octet-stream` by the content.
    pub media_type: String,
    /// Whether anybody may execute it.
    pub executable: bool,
    /// The content, when it was small enough to be kept.
    #[serde(skip)]
    pub(super) held: Option<Bytes>,
}

/// Why something was left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SkipReason {
    /// A symbolic link: never followed.
    Link,
    /// A pipe, socket or device: never opened.
    Special,
    /// A name that not every host can store, or a path that is too long.
    BadName,
    /// Deeper than [`MAX_OUTPUT_DEPTH`] folders.
    TooDeep,
    /// The file is larger than one file may be.
    FileTooLarge,
    /// The files before it used up the bytes.
    TotalTooLarge,
    /// The files before it used up the count, or there are more than [`MAX_ENTRIES_SEEN`] entries.
    TooMany,
    /// It could not be read: its permissions, or it changed meanwhile.
    Unreadable,
}

impl SkipReason {
    /// A short sentence for people.
    #[must_use]
    pub fn sentence(self) -> &'static str {
        match self {
            Self::Link => "is a link, which is never followed",
            Self::Special => "is a pipe, socket or device, which is never opened",
            Self::BadName => "has a name or path that not every system can store",
            Self::TooDeep => "lies too deep",
            Self::FileTooLarge => "is larger than one collected file may be",
            Self::TotalTooLarge => "does not fit in the bytes that may be collected",
            Self::TooMany => "is one more than may be collected",
            Self::Unreadable => "could not be read",
        }
    }
}

/// Something in `out` that was left there.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct SkippedOutput {
    /// Path below `/workspace/out`; what is no UTF-8 or a control character is escaped, and long paths are cut.
    pub path: String,
    /// Why.
    pub reason: SkipReason,
    /// The same for people.
    pub message: &'static str,
}

/// What was collected and what was left.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct Collected {
    files: Vec<OutputFile>,
    skipped: Vec<SkippedOutput>,
    skipped_total: u64,
}

impl Collected {
    /// The files, sorted by path (by bytes).
    #[must_use]
    pub fn files(&self) -> &[OutputFile] {
        &self.files
    }

    /// What was left: the first [`MAX_SKIPPED_LISTED`].
    #[must_use]
    pub fn skipped(&self) -> &[SkippedOutput] {
        &self.skipped
    }

    /// How much was left, listed or not.
    #[must_use]
    pub fn skipped_total(&self) -> u64 {
        self.skipped_total
    }

    /// Whether everything that was asked for is here.
    #[must_use]
    pub fn complete(&self) -> bool {
        self.skipped_total == 0
    }

    /// The file at this path below `out`, or nothing.
    #[must_use]
    pub fn file(&self, path: &str) -> Option<&OutputFile> {
        let index = self.files.binary_search_by(|file| file.path.as_str().cmp(path)).ok()?;
        self.files.get(index)
    }

    /// The content of a small file, also after the workspace is gone: [`MAX_HELD_BYTES`] are kept, in order of paths.
    #[must_use]
    pub fn held(&self, path: &str) -> Option<Bytes> {
        self.file(path)?.held.clone()
    }

    /// The content of a file, from memory or from the workspace, where it must still be what was collected.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound) when it wasn't collected, [`TrustViolation`](ErrorKind::TrustViolation) when it
    /// changed since.
    pub fn read(&self, workspace: &Workspace, path: &str) -> Result<Bytes> {
        let file = self.file(path).ok_or_else(|| {
            SkillRuntimeError::new(ErrorKind::NotFound, format!("'{}' is not among the collected files", shown(path)))
        })?;
        if let Some(bytes) = &file.held {
            return Ok(bytes.clone());
        }
        let mut bytes = Vec::new();
        copy_output(workspace.area(Area::Out), file, &mut bytes)?;
        Ok(bytes.into())
    }
}

/// Copies a collected file from `out` into `sink`, and checks that it is what was collected.
pub(super) fn copy_output(out: &Dir, file: &OutputFile, sink: &mut impl io::Write) -> Result<()> {
    let changed = |error: io::Error| {
        SkillRuntimeError::new(
            ErrorKind::TrustViolation,
            format!("'{}' changed after it was collected; a process of the run may still live", file.path),
        )
        .caused_by(error)
    };
    if let Some(bytes) = &file.held {
        return sink
            .write_all(bytes)
            .map_err(|error| SkillRuntimeError::backend(format!("could not write '{}'", file.path), error));
    }
    let (parent, name) = file.path.rsplit_once('/').unwrap_or(("", &file.path));
    let (mut source, metadata) =
        open_below(out, parent.split('/')).and_then(|folder| open_regular(&folder, name)).map_err(|error| {
            if says_changed(&error) {
                return changed(error);
            }
            let message = format!("could not read the result '{}'; {}", file.path, read_remedy(&error));
            SkillRuntimeError::new(ErrorKind::Backend, message).caused_by(error)
        })?;
    if metadata.len() != file.size {
        return Err(changed(io::Error::other("its size differs")));
    }
    let copied = hash_into(&mut source, file.size, file.size, sink)
        .map_err(|error| SkillRuntimeError::backend(format!("could not copy '{}'", file.path), error))?;
    if copied.sha256 == file.sha256 { Ok(()) } else { Err(changed(io::Error::other("its content differs"))) }
}

impl Workspace {
    /// Collects from `/workspace/out`. Links, special files, and what doesn't fit `rules` are left, listed and denied in
    /// the audit trail, one event each. Links and special files are reported whatever the globs say.
    ///
    /// # Errors
    /// None today; whatever a guest did to `out` is a result. Kept for hosts where `out` has to be fetched first.
    pub fn collect(&self, rules: &CollectRules, audit: &AuditScope) -> Result<Collected> {
        let mut walk = Walk { rules, audit, seen: 0, bytes: 0, held: 0, found: Collected::default() };
        let out = self.area(Area::Out);
        // A guest that runs as our user can take the rights from `out` itself: its own loss, not a failure of ours.
        match walk.list(out, "") {
            Ok(names) => walk.folder(out, "", names, 0),
            Err(_) => walk.skip(".", SkipReason::Unreadable),
        }
        let mut found = walk.found;
        found.files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(found)
    }
}

struct Walk<'a> {
    rules: &'a CollectRules,
    audit: &'a AuditScope,
    seen: usize,
    bytes: u64,
    held: u64,
    found: Collected,
}

impl Walk<'_> {
    /// The entries of a folder in the order of the paths below them: a folder sorts as if its name ended in `/`.
    fn list(&mut self, dir: &Dir, path: &str) -> io::Result<Vec<(OsString, EntryKind)>> {
        let mut names = Vec::new();
        for entry in dir.entries()? {
            if self.seen >= MAX_ENTRIES_SEEN {
                self.skip(if path.is_empty() { "." } else { path }, SkipReason::TooMany);
                break;
            }
            let entry = entry?;
            self.seen += 1;
            names.push((entry.file_name(), EntryKind::of(entry.file_type()?)));
        }
        names.sort_by_cached_key(|(name, kind)| {
            let mut key = name.as_encoded_bytes().to_vec();
            if *kind == EntryKind::Folder {
                key.push(b'/');
            }
            key
        });
        Ok(names)
    }

    fn folder(&mut self, dir: &Dir, path: &str, names: Vec<(OsString, EntryKind)>, depth: usize) {
        for (name, kind) in names {
            let shown_path = || join(path, &name.to_string_lossy());
            match kind {
                EntryKind::Link => self.skip(&shown_path(), SkipReason::Link),
                EntryKind::Special => self.skip(&shown_path(), SkipReason::Special),
                EntryKind::File | EntryKind::Folder => {
                    let Some(inside) = name.to_str().map(|name| join(path, name)).filter(|inside| storable(inside))
                    else {
                        let reason = if depth >= MAX_OUTPUT_DEPTH { SkipReason::TooDeep } else { SkipReason::BadName };
                        self.skip(&shown_path(), reason);
                        continue;
                    };
                    if kind == EntryKind::File {
                        self.file(dir, &name, inside);
                    } else if depth >= MAX_OUTPUT_DEPTH {
                        self.skip(&inside, SkipReason::TooDeep);
                    } else {
                        let below =
                            dir.open_dir_nofollow(&name).and_then(|below| Ok((self.list(&below, &inside)?, below)));
                        match below {
                            Ok((names, below)) => self.folder(&below, &inside, names, depth + 1),
                            Err(_) => self.skip(&inside, SkipReason::Unreadable),
                        }
                    }
                }
            }
        }
    }

    fn file(&mut self, dir: &Dir, name: &OsString, path: String) {
        if !self.rules.wanted(&path) {
            return;
        }
        match self.read(dir, name, &path) {
            Ok(file) => self.found.files.push(file),
            Err(reason) => self.skip(&path, reason),
        }
    }

    fn read(&mut self, dir: &Dir, name: &OsString, path: &str) -> Result<OutputFile, SkipReason> {
        if self.found.files.len() >= self.rules.max_files {
            return Err(SkipReason::TooMany);
        }
        let (mut file, metadata) = open_regular(dir, name).map_err(|_| SkipReason::Unreadable)?;
        let left = self.rules.max_bytes.saturating_sub(self.bytes);
        let fits = |size: u64| match size {
            size if size > self.rules.max_file_bytes => Err(SkipReason::FileTooLarge),
            size if size > left => Err(SkipReason::TotalTooLarge),
            size => Ok(size),
        };
        // By its size first: a sparse file of terabytes costs its guest nothing, and must cost us nothing.
        let size = fits(metadata.len())?;
        let mut head = Head {
            bytes: Vec::new(),
            keep: if self.held.saturating_add(size) <= MAX_HELD_BYTES { size } else { SNIFFED },
        };
        let limit = self.rules.max_file_bytes.min(left);
        let hashed = hash_into(&mut file, size, limit, &mut head).map_err(|_| SkipReason::Unreadable)?;
        fits(hashed.bytes)?;
        self.bytes += hashed.bytes;
        let media_type = media_type(path, &head.bytes, hashed.bytes);
        let held = (head.bytes.len() as u64 == hashed.bytes
            && self.held.saturating_add(hashed.bytes) <= MAX_HELD_BYTES)
            .then(|| {
                self.held += hashed.bytes;
                Bytes::from(head.bytes)
            });
        let executable = is_executable(&metadata);
        Ok(OutputFile {
            path: path.to_owned(),
            size: hashed.bytes,
            sha256: hashed.sha256,
            media_type,
            executable,
            held,
        })
    }

    fn skip(&mut self, path: &str, reason: SkipReason) {
        self.audit.deny(Layer::Files, "collect", &format!("/workspace/out/{path}"), reason.sentence());
        self.found.skipped_total += 1;
        if self.found.skipped.len() < MAX_SKIPPED_LISTED {
            self.found.skipped.push(SkippedOutput { path: shown(path), reason, message: reason.sentence() });
        }
    }
}

/// Bytes looked at to tell text from other content.
const SNIFFED: u64 = 1_024;

/// Keeps the first bytes that pass through.
struct Head {
    bytes: Vec<u8>,
    keep: u64,
}

impl io::Write for Head {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let room = usize::try_from(self.keep).unwrap_or(usize::MAX).saturating_sub(self.bytes.len());
        self.bytes.extend_from_slice(data.get(..room).unwrap_or(data));
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn media_type(path: &str, head: &[u8], size: u64) -> String {
    if let Some(known) = mime_guess::from_path(path).first_raw() {
        return known.to_owned();
    }
    let sniffed = head.get(..SNIFFED as usize).unwrap_or(head);
    let text = match std::str::from_utf8(sniffed) {
        Ok(_) => true,
        // A character cut at the end of what was looked at.
        Err(error) => error.error_len().is_none() && (sniffed.len() as u64) < size,
    };
    if text && !sniffed.contains(&0) { "text/plain" } else { "application/octet-stream" }.to_owned()
}

fn storable(path: &str) -> bool {
    Area::Out.guest_path().join(path).is_ok_and(|guest| guest.parts().len() == path.split('/').count() + 1)
}

fn join(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") }
}
