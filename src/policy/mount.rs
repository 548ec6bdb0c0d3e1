//! Extra host folders in the guest's world: where they may appear and what the guest may do there.
//!
//! Pure. A mount point is absolute, normal, and never ours or the system's: a guest path that could hide `/workspace`,
//! a system folder or another mount is refused here, for every runtime in the same words.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::error::{Result, SkillRuntimeError};

/// Extra mounts of one run: each costs a runtime a system call or more, and a person reads the list.
pub const MAX_MOUNTS: usize = 64;
/// `PATH_MAX` of Linux less room for a prefix of ours.
const MAX_POINT_BYTES: usize = 1_024;
/// `NAME_MAX` of every host file system in use.
const MAX_NAME_BYTES: usize = 255;
/// Guest folders that are ours or the system's. What is mounted over one of them, or inside it, would change what
/// programs, libraries, devices and the workspace are.
const RESERVED: [&str; 16] = [
    "workspace",
    "proc",
    "sys",
    "dev",
    "etc",
    "usr",
    "bin",
    "sbin",
    "lib",
    "lib32",
    "lib64",
    "libx32",
    "run",
    "boot",
    "tmp",
    "var",
];

/// What the guest may do in a mounted folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum MountMode {
    /// Read.
    #[serde(rename = "ro")]
    ReadOnly,
    /// Read, create, change, remove. Changes reach the host at once.
    #[serde(rename = "rw")]
    ReadWrite,
    /// Read, create, write; nothing that is there can be removed, renamed away or replaced by another file. Content can
    /// be changed.
    #[serde(rename = "rw-no-delete")]
    ReadWriteWithoutDelete,
    /// The guest works on a private copy; the host's folder stays as it is, and what changed is listed afterwards.
    #[serde(rename = "cow")]
    CopyOnWrite,
}

impl MountMode {
    /// All, least first.
    pub const ALL: [Self; 4] = [Self::ReadOnly, Self::CopyOnWrite, Self::ReadWriteWithoutDelete, Self::ReadWrite];

    /// The word in configurations, tables and messages.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ReadOnly => "ro",
            Self::ReadWrite => "rw",
            Self::ReadWriteWithoutDelete => "rw-no-delete",
            Self::CopyOnWrite => "cow",
        }
    }

    /// Whether the guest can change the host's own files.
    #[must_use]
    pub fn writes_to_host(self) -> bool {
        match self {
            Self::ReadWrite | Self::ReadWriteWithoutDelete => true,
            Self::ReadOnly | Self::CopyOnWrite => false,
        }
    }
}

impl fmt::Display for MountMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for MountMode {
    type Err = SkillRuntimeError;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|mode| mode.as_str() == text).ok_or_else(|| {
            SkillRuntimeError::invalid(format!(
                "unknown mount mode '{}'; use ro, rw, rw-no-delete or cow",
                text.escape_debug()
            ))
        })
    }
}

/// Where a mounted folder appears: an absolute guest path outside `/workspace` and the system's folders.
///
/// ```
/// use skillcell::policy::MountPoint;
/// let point: MountPoint = "/data/./2026".parse().unwrap();
/// assert_eq!(point.as_str(), "/data/2026");
/// assert!("/workspace/in/x".parse::<MountPoint>().is_err());
/// assert!("/data/../etc".parse::<MountPoint>().is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(transparent)]
pub struct MountPoint(String);

impl MountPoint {
    /// The path, without a slash at its end.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The components, top first.
    pub fn parts(&self) -> impl Iterator<Item = &str> {
        self.0.split('/').skip(1)
    }

    /// Whether one of the two lies inside the other, or they are the same. Names are compared without case, since some
    /// hosts can't tell the difference.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        self.parts().zip(other.parts()).all(|(a, b)| a.to_lowercase() == b.to_lowercase())
    }
}

impl fmt::Display for MountPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for MountPoint {
    type Err = SkillRuntimeError;

    fn from_str(text: &str) -> Result<Self> {
        let refused = |why: &str| {
            let shown: String = text.chars().take(120).collect();
            SkillRuntimeError::invalid(format!("the mount point '{}' {why}", shown.escape_debug()))
        };
        let Some(rest) = text.strip_prefix('/') else {
            return Err(refused("is not absolute; give a guest path such as /data"));
        };
        if text.len() > MAX_POINT_BYTES {
            return Err(refused("is longer than 1024 bytes"));
        }
        let parts: Vec<&str> = rest.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
        for part in &parts {
            if *part == ".." {
                return Err(refused("contains '..'; name the folder from / down"));
            }
            if part.len() > MAX_NAME_BYTES || part.chars().any(|c| c.is_control() || matches!(c, '\\' | ':')) {
                return Err(refused(
                    "has a name that is too long, or holds a control character, a colon or a backslash",
                ));
            }
        }
        let Some(top) = parts.first() else {
            return Err(refused("is the root of the guest's world; give a folder such as /data"));
        };
        if RESERVED.contains(&top.to_lowercase().as_str()) {
            return Err(refused("lies in a folder that is ours or the system's; give another one, such as /data"));
        }
        Ok(Self(format!("/{}", parts.join("/"))))
    }
}

/// One folder of the host to show to the guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountRequest {
    /// The folder on this machine. Links in the path are followed, as for any path the caller types.
    pub host: PathBuf,
    /// Where the guest sees it.
    pub guest: MountPoint,
    /// What it may do there.
    pub mode: MountMode,
}

impl FromStr for MountRequest {
    type Err = SkillRuntimeError;

    /// Parses `HOST:GUEST[:ro|rw|rw-no-delete|cow]`; read-only unless said otherwise. Read from the right, so the host's
    /// path may hold colons.
    fn from_str(text: &str) -> Result<Self> {
        let refused = || {
            SkillRuntimeError::invalid(format!(
                "a mount is HOST:GUEST[:MODE] with MODE ro, rw, rw-no-delete or cow, such as ./data:/data:ro; got '{}'",
                text.escape_debug()
            ))
        };
        let (rest, last) = text.rsplit_once(':').ok_or_else(refused)?;
        let (host, guest, mode) = if last.starts_with('/') {
            (rest, last, MountMode::ReadOnly)
        } else {
            let mode = last.parse()?;
            let (host, guest) = rest.rsplit_once(':').ok_or_else(refused)?;
            (host, guest, mode)
        };
        if host.is_empty() {
            return Err(refused());
        }
        Ok(Self { host: PathBuf::from(host), guest: guest.parse()?, mode })
    }
}

/// A mount as the policy knows it: the host's folder is none of a runtime's report.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct MountGrant {
    /// Where the guest sees it.
    pub guest: MountPoint,
    /// What it may do there.
    pub mode: MountMode,
}

/// Checks mounts against each other.
///
/// # Errors
/// [`InvalidConfig`](crate::ErrorKind::InvalidConfig) naming two mounts of which one would hide the other, or for more
/// than [`MAX_MOUNTS`].
pub fn grants_of(requests: &[MountRequest]) -> Result<Vec<MountGrant>> {
    if requests.len() > MAX_MOUNTS {
        return Err(SkillRuntimeError::invalid(format!("more than {MAX_MOUNTS} mounts; mount a folder above them")));
    }
    for (index, request) in requests.iter().enumerate() {
        if let Some(other) = requests.iter().take(index).find(|other| other.guest.overlaps(&request.guest)) {
            return Err(SkillRuntimeError::invalid(format!(
                "the mounts '{}' and '{}' overlap, so one would hide the other; choose separate guest paths",
                other.guest, request.guest
            )));
        }
    }
    Ok(requests.iter().map(|request| MountGrant { guest: request.guest.clone(), mode: request.mode }).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_normal_and_never_ours_or_the_systems() {
        for (text, expected) in [("/data", "/data"), ("/data//a/./b/", "/data/a/b"), ("/home/me/x", "/home/me/x")] {
            assert_eq!(text.parse::<MountPoint>().unwrap().as_str(), expected);
        }
        for text in [
            "",
            "data",
            "/",
            "//",
            "/.",
            "/..",
            "/data/..",
            "/workspace",
            "/workspace/in",
            "/WorkSpace/x",
            "/proc/self",
            "/etc",
            "/usr/lib/x",
            "/tmp/x",
            "/var/run",
            "/a\nb",
            "/a\\b",
            "/a:b",
        ] {
            assert!(text.parse::<MountPoint>().is_err(), "{text:?}");
        }
        assert!(format!("/{}", "x".repeat(256)).parse::<MountPoint>().is_err());
        assert!("/x".repeat(600).parse::<MountPoint>().is_err());
    }

    #[test]
    fn a_mount_is_read_from_the_right() {
        let read = |text: &str| {
            let request: MountRequest = text.parse().unwrap();
            (request.host.to_str().unwrap().to_owned(), request.guest.to_string(), request.mode)
        };
        assert_eq!(read("./d:/data"), ("./d".into(), "/data".into(), MountMode::ReadOnly));
        assert_eq!(read("/a:b:/data:cow"), ("/a:b".into(), "/data".into(), MountMode::CopyOnWrite));
        assert_eq!(read("C:/x:/data:rw"), ("C:/x".into(), "/data".into(), MountMode::ReadWrite));
        for text in ["", "/data", ":/data", "x:data", "x:/data:", "x:/data:rx", "x:/data:ro:rw", "x:/workspace/out:rw"]
        {
            assert!(text.parse::<MountRequest>().is_err(), "{text}");
        }
    }

    #[test]
    fn mounts_do_not_hide_each_other() {
        let request = |text: &str| text.parse::<MountRequest>().unwrap();
        assert_eq!(grants_of(&[request("a:/data"), request("b:/data2:rw")]).unwrap().len(), 2);
        for (a, b) in [("a:/data", "b:/data"), ("a:/data", "b:/data/x"), ("a:/data/x", "b:/Data")] {
            assert!(grants_of(&[request(a), request(b)]).unwrap_err().to_string().contains("overlap"), "{a} {b}");
        }
        let many: Vec<_> = (0..=MAX_MOUNTS).map(|n| request(&format!("a:/m{n}"))).collect();
        assert!(grants_of(&many).is_err());
    }
}
