//! A profile for Seatbelt, the sandbox of macOS, made from a policy: what `sandbox-exec -p` takes.
//!
//! Pure: text out of values. No runtime of ours starts anything with it yet, and none is registered: skillcell's code that
//! ends a script's whole process tree needs Linux. **Unproved on a real Mac**: nobody has run the attacks of the tests
//! under such a profile; what it says follows from how Apple's own profiles are written. An embedder may use it on its own
//! account.
//!
//! Invariant: everything is denied that isn't allowed here, and no path can change the meaning of the profile: what can't
//! be quoted is refused.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::error::{Result, SkillRuntimeError};
use crate::policy::{MountMode, NetworkPolicy, OutMode, SandboxPolicy, protected_patterns};

/// Folders of the system that programs and libraries are read from.
const SYSTEM: [&str; 7] = ["/System", "/Library/Apple", "/usr/lib", "/usr/bin", "/usr/share", "/bin", "/sbin"];
/// Single files of the system that most programs read: time zones, names of users, the shared cache of libraries.
const SYSTEM_FILES: [&str; 4] =
    ["/private/etc/localtime", "/private/var/db/timezone", "/private/var/select/sh", "/private/etc/ssl/openssl.cnf"];
/// Devices without state of the host's.
const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/random", "/dev/urandom", "/dev/dtracehelper"];
/// What the kernel tells about the machine, and no more.
const KERNEL_NAMES: [&str; 8] = [
    "hw.activecpu",
    "hw.byteorder",
    "hw.logicalcpu_max",
    "hw.memsize",
    "hw.ncpu",
    "hw.pagesize_compat",
    "kern.osrelease",
    "kern.version",
];
/// `PATH_MAX` of macOS.
const MAX_PATH: usize = 1_024;

/// Where the guest's world lies on the host. Every path must be the real one: Seatbelt compares after links are followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeatbeltWorld {
    /// Read only: the skill, the inputs, installed packages, folders of interpreters.
    pub readable: Vec<PathBuf>,
    /// `/workspace/out`.
    pub out: PathBuf,
    /// `/workspace/tmp`.
    pub tmp: PathBuf,
    /// Folders of the host beside the workspace, with what the guest may do there. A private copy for copy-on-write.
    pub mounts: Vec<(PathBuf, MountMode)>,
}

/// The profile.
///
/// # Errors
/// [`InvalidConfig`](crate::ErrorKind::InvalidConfig) for a path that is relative, not normal, or can't be quoted.
pub fn seatbelt_profile(policy: &SandboxPolicy, world: &SeatbeltWorld) -> Result<String> {
    let mut profile = String::from("(version 1)\n(deny default)\n");
    profile.push_str(
        "(allow process-fork)\n(allow signal (target same-sandbox))\n(allow process-info* (target same-sandbox))\n",
    );
    list(&mut profile, "(allow sysctl-read", KERNEL_NAMES.map(|name| format!("(sysctl-name \"{name}\")")));
    // Names on the way to a file are looked at one by one; what lies in them is not shown by that.
    profile.push_str("(allow file-read-metadata)\n(allow file-read* (literal \"/\"))\n");
    let mut readable: Vec<String> = SYSTEM.iter().map(|path| format!("(subpath \"{path}\")")).collect();
    readable.extend(SYSTEM_FILES.iter().chain(&DEVICES).map(|path| format!("(literal \"{path}\")")));
    let shown = world.readable.iter().chain([&world.out, &world.tmp]).chain(world.mounts.iter().map(|(path, _)| path));
    for path in shown {
        readable.push(subpath(path)?);
    }
    list(&mut profile, "(allow file-read*", readable.iter().cloned());
    list(&mut profile, "(allow file-map-executable process-exec", readable);
    let mut writable: Vec<String> =
        DEVICES.iter().filter(|path| **path == "/dev/null").map(|path| format!("(literal \"{path}\")")).collect();
    writable.extend([subpath(&world.out)?, subpath(&world.tmp)?]);
    for (path, mode) in &world.mounts {
        match mode {
            MountMode::ReadOnly => {}
            MountMode::ReadWrite | MountMode::ReadWriteWithoutDelete | MountMode::CopyOnWrite => {
                writable.push(subpath(path)?);
            }
        }
    }
    list(&mut profile, "(allow file-write*", writable);
    // The last rule that fits wins, so what is taken away comes after what is given.
    let mut kept: Vec<String> = Vec::new();
    match policy.out {
        OutMode::ReadWrite => {}
        OutMode::ReadWriteWithoutDelete => kept.push(subpath(&world.out)?),
    }
    for (path, mode) in &world.mounts {
        match mode {
            MountMode::ReadWriteWithoutDelete => kept.push(subpath(path)?),
            MountMode::ReadOnly | MountMode::ReadWrite | MountMode::CopyOnWrite => {}
        }
        if mode.writes_to_host() {
            protect(&mut profile, path)?;
        }
    }
    if !kept.is_empty() {
        // Renaming removes the old name, and replacing removes the old file: both are an unlink here.
        list(&mut profile, "(deny file-write-unlink", kept);
    }
    // A set-id bit would outlive the sandbox; sockets and devices have no place in a workspace.
    profile.push_str("(deny file-write-setugid)\n");
    let special = ["CHARACTER-DEVICE", "BLOCK-DEVICE", "SOCKET"];
    list(&mut profile, "(deny file-write-create", special.map(|kind| format!("(vnode-type {kind})")));
    match policy.network.policy {
        NetworkPolicy::Host => {
            profile.push_str("(allow network*)\n(allow mach-lookup (global-name \"com.apple.dnssd.service\"))\n");
        }
        // An allow list needs a gateway; without one there is no network.
        NetworkPolicy::None | NetworkPolicy::Allowlist => profile.push_str("(deny network*)\n"),
    }
    Ok(profile)
}

/// Takes away the right to change protected names below a folder, whether or not they exist, and to move the folders on
/// the way to them.
fn protect(profile: &mut String, folder: &Path) -> Result<()> {
    let folder = quoted(folder)?;
    let start = format!("^{}/(.*/)?", escaped_for_regex(&folder));
    let (mut names, mut ways): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    for pattern in protected_patterns() {
        let parts: Vec<String> = pattern.iter().filter(|part| **part != "**").map(|part| any_case(part)).collect();
        names.push(format!("(regex #\"{start}{}(/.*)?$\")", parts.join("/")));
        ways.extend(
            (1..parts.len())
                .map(|end| format!("(regex #\"{start}{}$\")", parts.get(..end).unwrap_or_default().join("/"))),
        );
    }
    ways.sort();
    ways.dedup();
    list(profile, "(deny file-write*", names);
    list(profile, "(deny file-write-unlink file-write-xattr", ways);
    Ok(())
}

fn list(profile: &mut String, rule: &str, filters: impl IntoIterator<Item = String>) {
    profile.push_str(rule);
    for filter in filters {
        // Writing to a string can't fail.
        let _ = write!(profile, "\n  {filter}");
    }
    profile.push_str(")\n");
}

fn subpath(path: &Path) -> Result<String> {
    Ok(format!("(subpath \"{}\")", quoted(path)?))
}

/// A path as it may stand between quotes. What would need escaping is refused: two parsers, ours and Apple's, would have
/// to agree on it.
fn quoted(path: &Path) -> Result<String> {
    let refused = |why: &str| {
        SkillRuntimeError::invalid(format!("a path of the guest's world can't stand in a Seatbelt profile: it {why}"))
    };
    let text = path.to_str().ok_or_else(|| refused("is not UTF-8"))?;
    let normal = path.is_absolute()
        && text.len() > 1
        && !text.ends_with('/')
        && text.split('/').skip(1).all(|part| !matches!(part, "" | "." | ".."));
    if !normal {
        return Err(refused("is not absolute and normal"));
    }
    if text.len() > MAX_PATH {
        return Err(refused("is longer than 1024 bytes"));
    }
    if text.chars().any(|c| c.is_control() || matches!(c, '"' | '\\')) {
        return Err(refused("holds a quotation mark, a backslash or a control character"));
    }
    Ok(text.to_owned())
}

fn escaped_for_regex(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
        if matches!(c, '.' | '+' | '*' | '?' | '(' | ')' | '[' | ']' | '{' | '}' | '^' | '$' | '|') {
            // A class of one: no backslash, which the profile's own quoting could take away.
            match c {
                '^' => escaped.push_str("\\^"),
                other => {
                    escaped.push('[');
                    escaped.push(other);
                    escaped.push(']');
                }
            }
        } else {
            escaped.push(c);
        }
    }
    escaped
}

/// The usual file system there doesn't tell case apart.
fn any_case(name: &str) -> String {
    let mut pattern = String::new();
    for c in name.chars() {
        if c.is_ascii_alphabetic() {
            let _ = write!(pattern, "[{}{}]", c.to_ascii_lowercase(), c.to_ascii_uppercase());
        } else {
            pattern.push_str(&escaped_for_regex(&c.to_string()));
        }
    }
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::ResolvedNetwork;

    fn world() -> SeatbeltWorld {
        let place = Path::new("/private/tmp/skillcell-run-1");
        SeatbeltWorld {
            readable: vec![
                place.join("skill"),
                place.join("in"),
                place.join("site"),
                "/opt/homebrew/opt/python".into(),
            ],
            out: place.join("out"),
            tmp: place.join("tmp"),
            mounts: Vec::new(),
        }
    }

    #[test]
    fn the_usual_profile() {
        insta::assert_snapshot!(seatbelt_profile(&SandboxPolicy::default(), &world()).unwrap());
    }

    #[test]
    fn mounts_are_given_and_what_is_protected_in_them_is_taken_away_last() {
        let mut world = world();
        let mount = |path: &str, mode| (PathBuf::from(path), mode);
        world.mounts = vec![
            mount("/Users/me/data", MountMode::ReadOnly),
            mount("/Users/me/my (new) repo", MountMode::ReadWrite),
            mount("/Users/me/archive", MountMode::ReadWriteWithoutDelete),
            mount("/private/tmp/skillcell-run-1/copy-3", MountMode::CopyOnWrite),
        ];
        let network = ResolvedNetwork { policy: NetworkPolicy::Host, allowlist: vec![] };
        let policy = SandboxPolicy { network, out: OutMode::ReadWriteWithoutDelete, ..SandboxPolicy::default() };
        let profile = seatbelt_profile(&policy, &world).unwrap();
        let at = |text: &str| profile.find(text).unwrap_or_else(|| panic!("{text}:\n{profile}"));
        let given = at("(allow file-write*");
        let unlink = at(
            "(deny file-write-unlink\n  (subpath \"/private/tmp/skillcell-run-1/out\")\n  (subpath \"/Users/me/archive\"))",
        );
        let hooks = at("(regex #\"^/Users/me/my [(]new[)] repo/(.*/)?[.][gG][iI][tT]/[hH][oO][oO][kK][sS](/.*)?$\")");
        let way = at("(regex #\"^/Users/me/my [(]new[)] repo/(.*/)?[.][gG][iI][tT]$\")");
        assert!(given < hooks && hooks < way && way < unlink);
        assert!(!profile.contains("^/Users/me/data") && !profile.contains("copy-3/(.*/)?"));
        assert!(!profile.contains("(deny network*)") && profile.contains("(allow network*)"));
        let written = profile.get(given..hooks).unwrap();
        assert!(!written.contains("/Users/me/data\"") && written.contains("/Users/me/archive\""), "{written}");
    }

    #[test]
    fn what_could_change_its_meaning_is_refused() {
        for path in ["relative", "/", "/a/", "/a//b", "/a/../b", "/a\"))(allow default)", "/a\\", "/a\nb", ""] {
            let world = SeatbeltWorld { out: path.into(), ..world() };
            assert!(seatbelt_profile(&SandboxPolicy::default(), &world).is_err(), "{path:?}");
        }
        let long = SeatbeltWorld { tmp: format!("/{}", "x".repeat(1_100)).into(), ..world() };
        assert!(seatbelt_profile(&SandboxPolicy::default(), &long).is_err());
    }
}
