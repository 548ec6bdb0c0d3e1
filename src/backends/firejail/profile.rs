//! What is asked of `firejail`: the profile of a run, and who is asked for.
//!
//! Invariant: a name that could change the meaning of the profile is refused, never quoted.

use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use super::OWN_PROCESSES;
use crate::backends::child::HOME;
use crate::backends::ownership::NOBODY;
use crate::error::{ErrorKind, Result, SkillRuntimeError};
use crate::policy::{NetworkPolicy, SandboxPolicy};
use crate::workspace::Workspace;

/// Folders of the root that a guest may look into; `/home` and `/root` are emptied by `private`.
const SHOWN: [&str; 14] =
    ["bin", "sbin", "lib", "lib32", "lib64", "libx32", "usr", "etc", "dev", "proc", "tmp", "home", "root", "run"];
/// `firejail` itself works below it; blacklisting it ends in an error.
const RUN_KEPT: &str = "firejail";
/// What is kept of `/etc`. `passwd` and `group` are made by `firejail`.
const CONFIGURATION: &str =
    "alternatives,ca-certificates,fonts,ld.so.cache,ld.so.conf,ld.so.conf.d,localtime,mime.types,ssl";
/// A profile of more entries than this means a root folder full of mounts.
const MAX_ENTRIES: usize = 2_000;
/// `/etc/passwd` beyond this is no list of users.
const MAX_PASSWD: u64 = 1 << 20;

/// Who runs the host.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct User {
    pub(super) name: String,
    pub(super) home: PathBuf,
}

/// The profile of every run of one workspace.
pub(super) fn profile(workspace: &Path, policy: &SandboxPolicy) -> Result<String> {
    let text = workspace.to_str().filter(|text| !text.contains(['\n', '\r', '*', '?', '[', '$', '~', '"', '\\']));
    let workspace = text.ok_or_else(|| {
        SkillRuntimeError::invalid(
            "the path of the workspace can't stand in a profile of firejail; set TMPDIR to a plain one",
        )
    })?;
    let network = match policy.network.policy {
        NetworkPolicy::Host => "",
        NetworkPolicy::None | NetworkPolicy::Allowlist => "net none\n",
    };
    // The outer `firejail` is not in the user namespace, in which the kernel counts.
    let processes = policy.limits.processes as usize + OWN_PROCESSES - 1;
    let ledger = Workspace::LEDGER;
    let mut profile = format!(
        "quiet\nprivate {workspace}\nprivate-dev\nprivate-tmp\nprivate-etc {CONFIGURATION}\n\
         blacklist ${{HOME}}/{ledger}\nread-only ${{HOME}}\nread-write ${{HOME}}/out\nread-write ${{HOME}}/tmp\n\
         caps.drop all\nnonewprivs\nnoroot\nrlimit-nproc {processes}\nseccomp\nseccomp.block-secondary\nrestrict-namespaces\n\
         protocol inet,inet6,netlink\n{network}ipc-namespace\ndbus-user none\ndbus-system none\n\
         no3d\nnodvd\nnosound\nnotv\nnou2f\nnovideo\nnoinput\nnoprinters\ndisable-mnt\nmachine-id\n\
         deterministic-exit-code\ndeterministic-shutdown\n"
    );
    for (folder, kept) in [("/", &SHOWN[..]), ("/run", &[RUN_KEPT][..])] {
        for name in names(folder)? {
            if !kept.contains(&name.as_str()) {
                let slash = if folder == "/" { "" } else { "/" };
                profile.push_str(&format!("blacklist {folder}{slash}{name}\n"));
            }
        }
    }
    Ok(profile)
}

/// The names in a folder of the host. One that could not stand in a profile is an error: it could not be hidden.
fn names(folder: &str) -> Result<Vec<String>> {
    let failed = |error| SkillRuntimeError::backend(format!("could not list {folder}"), error);
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
    let opened = rustix::fs::open(folder, flags, rustix::fs::Mode::empty()).map_err(failed)?;
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::new(opened).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().to_string_lossy();
        if name == "." || name == ".." {
            continue;
        }
        let plain = |c: char| c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '+' | '@' | ':' | ',');
        if !name.chars().all(plain) || names.len() >= MAX_ENTRIES {
            return Err(SkillRuntimeError::new(
                ErrorKind::Unavailable,
                format!("'{folder}' holds a name that firejail could not hide; use runtime 'bubblewrap'"),
            ));
        }
        names.push(name.into_owned());
    }
    names.sort();
    Ok(names)
}

/// A file without a name, which a program can read by its descriptor.
pub(super) fn in_memory(text: &str) -> Result<OwnedFd> {
    let failed = |error: std::io::Error| SkillRuntimeError::backend("could not hand firejail its profile", error);
    let file =
        rustix::fs::memfd_create("profile", rustix::fs::MemfdFlags::CLOEXEC).map_err(|error| failed(error.into()))?;
    let mut file = std::fs::File::from(file);
    std::io::Write::write_all(&mut file, text.as_bytes())
        .and_then(|()| std::io::Seek::rewind(&mut file))
        .map_err(failed)?;
    Ok(file.into())
}

impl User {
    /// Whom a host that is root has `firejail` started as.
    pub(super) fn of_root() -> Self {
        Self { name: "guest".into(), home: HOME.into() }
    }

    /// An `/etc/passwd` that knows this user, as [`NOBODY`], and root.
    pub(super) fn passwd(&self) -> Vec<u8> {
        let Self { name, home } = self;
        format!("root:x:0:0:root:/root:/bin/sh\n{name}:x:{NOBODY}:{NOBODY}::{}:/bin/sh\n", home.display()).into_bytes()
    }

    /// The user of this process, from `/etc/passwd`, where `firejail` looks too.
    pub(super) fn current() -> Result<Self> {
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
        let mut text = String::new();
        rustix::fs::open("/etc/passwd", flags, rustix::fs::Mode::empty())
            .map_err(std::io::Error::from)
            .and_then(|file| std::fs::File::from(file).take(MAX_PASSWD).read_to_string(&mut text))
            .map_err(|error| SkillRuntimeError::backend("could not read /etc/passwd", error))?;
        let id = rustix::process::getuid().as_raw();
        Self::find(&text, id).ok_or_else(|| {
            SkillRuntimeError::new(
                ErrorKind::Unavailable,
                format!("runtime 'firejail' needs a user with a home in /etc/passwd, and user {id} has none; use another runtime"),
            )
        })
    }

    fn find(passwd: &str, id: u32) -> Option<Self> {
        passwd.lines().find_map(|line| {
            let fields: Vec<&str> = line.split(':').collect();
            let (name, number, home) = (fields.first()?, fields.get(2)?, Path::new(fields.get(5)?));
            let usable = number.parse() == Ok(id) && home.is_absolute() && home.components().count() > 1;
            usable.then(|| Self { name: (*name).to_owned(), home: home.to_owned() })
        })
    }
}

/// The version in the first line of `firejail --version`.
pub(super) fn version(output: &str) -> Option<[u32; 3]> {
    let number = output.lines().next()?.strip_prefix("firejail version ")?;
    let mut parts = number.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().ok());
    Some([parts.next()??, parts.next()??, parts.next()??])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_and_users_are_read_as_they_are_written() {
        for (output, expected) in [
            ("firejail version 0.9.72\n\nCompile", Some([0, 9, 72])),
            ("firejail version 0.9.74rc1", Some([0, 9, 74])),
            ("firejail version 1.0", None),
            ("Error", None),
            ("", None),
        ] {
            assert_eq!(version(output), expected, "{output}");
        }
        let passwd =
            "root:x:0:0:root:/root:/bin/bash\nbroken\nnobody:x:65534:65534::/:/x\nu:x:1000:1000:U,,:/home/u:/bin/sh\n";
        assert_eq!(User::find(passwd, 1000), Some(User { name: "u".into(), home: "/home/u".into() }));
        assert_eq!(User::find(passwd, 65534), None);
        assert_eq!(User::find(passwd, 7), None);
    }

    #[test]
    fn the_profile_hides_what_is_not_shown_and_refuses_what_it_cannot_say() {
        let profile = profile(Path::new("/tmp/w"), &SandboxPolicy::default()).unwrap();
        for line in ["private /tmp/w", "net none", "caps.drop all", "blacklist /var", "read-only ${HOME}"] {
            assert!(profile.lines().any(|known| known == line), "{line}:\n{profile}");
        }
        assert!(!profile.contains("blacklist /usr\n") && !profile.contains("blacklist /run/firejail\n"));
        for bad in ["/tmp/a\nnet eth0", "/tmp/*", "/tmp/${HOME}"] {
            assert!(super::profile(Path::new(bad), &SandboxPolicy::default()).is_err(), "{bad}");
        }
    }
}
