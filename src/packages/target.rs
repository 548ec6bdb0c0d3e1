//! [`PythonTarget`]: for which Python packages are chosen. The runtime's own Python says so, in the sandbox itself: the
//! same question to each runtime, whether it brings its interpreter, borrows the host's or has it in an image.
//!
//! The answer is foreign text: an image can hold any program under the name `python3`. Invariant: what comes out of
//! [`PythonTarget::parse`] holds only short printable words, so that it can stand in arguments, file names and messages.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::error::{ErrorKind, Result, SkillRuntimeError};

/// Printed by the runtime's Python: what it is, as one JSON object.
pub const PROBE: &str = include_str!("probe.py");

/// The variables a condition of a requirement may use (PEP 508).
const MARKERS: [&str; 11] = [
    "implementation_name",
    "implementation_version",
    "os_name",
    "platform_machine",
    "platform_python_implementation",
    "platform_release",
    "platform_system",
    "platform_version",
    "python_full_version",
    "python_version",
    "sys_platform",
];
/// Bytes of one value; the longest is the kernel's version.
const MAX_VALUE_BYTES: usize = 256;
/// The newest C library that is named to the tool. Wheels for older ones are named too, down to the oldest there are.
const MAX_GLIBC: u32 = 99;
const OLDEST_GLIBC: u32 = 5;
/// Where nothing native can be loaded, the wheels of the most common platform are looked at for their pure parts.
const REFERENCE: Platform = Platform::Glibc { machine: Machine::X86_64, minor: 28 };

/// What native code a Python can load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Platform {
    /// None: its packages must be Python throughout.
    Pure,
    /// Linux with the GNU C library of this minor version.
    Glibc { machine: Machine, minor: u32 },
    /// Linux with musl 1.2.
    Musl { machine: Machine },
}

/// A processor, as names of wheels have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Machine {
    X86_64,
    Aarch64,
}

impl Machine {
    fn as_str(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
            Self::Aarch64 => "aarch64",
        }
    }
}

/// A Python that packages are chosen for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PythonTarget {
    version: (u32, u32),
    flags: String,
    platform: Platform,
    markers: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Answer {
    version: (u32, u32),
    flags: String,
    machine: String,
    libc: String,
    markers: BTreeMap<String, String>,
}

impl PythonTarget {
    /// Reads the answer to [`PROBE`].
    ///
    /// # Errors
    /// [`Unavailable`](ErrorKind::Unavailable) when that Python is none that packages can be chosen for.
    pub fn parse(answer: &str) -> Result<Self> {
        let unavailable = |what: String| SkillRuntimeError::new(ErrorKind::Unavailable, what);
        let answer: Answer = serde_json::from_str(answer.trim()).map_err(|error| {
            unavailable("the runtime's python3 did not say what it is, so no package can be chosen for it".to_owned())
                .caused_by(error)
        })?;
        let plain = |value: &str| value.len() <= MAX_VALUE_BYTES && value.bytes().all(|b| (b' '..=b'~').contains(&b));
        let markers: BTreeMap<String, String> = answer
            .markers
            .into_iter()
            .filter(|(name, value)| MARKERS.contains(&name.as_str()) && plain(value))
            .collect();
        let marker = |name: &str| markers.get(name).map_or("", String::as_str);
        if markers.len() != MARKERS.len() || answer.flags.len() > 2 || !plain(&answer.flags) {
            return Err(unavailable("the runtime's python3 gave an answer that can't be used".to_owned()));
        }
        if marker("implementation_name") != "cpython" || answer.version.0 != 3 {
            return Err(unavailable(format!(
                "packages are chosen for CPython 3, and the runtime's python3 is {} {}",
                marker("implementation_name"),
                marker("python_version")
            )));
        }
        let platform = match marker("sys_platform") {
            "wasi" | "emscripten" => Platform::Pure,
            "linux" => {
                let machine = match answer.machine.as_str() {
                    "x86_64" => Machine::X86_64,
                    "aarch64" => Machine::Aarch64,
                    other => {
                        return Err(unavailable(format!(
                            "packages can't be chosen for the processor '{}' yet; known are x86_64 and aarch64",
                            other.chars().take(40).flat_map(char::escape_debug).collect::<String>()
                        )));
                    }
                };
                match answer.libc.strip_prefix("glibc 2.").map(str::parse) {
                    Some(Ok(minor)) if minor <= MAX_GLIBC => Platform::Glibc { machine, minor },
                    None if answer.libc == "musl" => Platform::Musl { machine },
                    Some(_) | None => {
                        return Err(unavailable(
                            "the C library of the runtime's python3 is neither the GNU one nor musl".to_owned(),
                        ));
                    }
                }
            }
            other => return Err(unavailable(format!("packages can't be chosen for the system '{other}' yet"))),
        };
        Ok(Self { version: answer.version, flags: answer.flags, platform, markers })
    }

    /// Whether nothing native can be loaded.
    #[must_use]
    pub fn is_pure(&self) -> bool {
        self.platform == Platform::Pure
    }

    /// Names the target in a lock file: wheels that are locked for it suit every machine of that name.
    #[must_use]
    pub fn name(&self) -> String {
        let (major, minor) = self.version;
        let platform = match self.platform {
            Platform::Pure => "pure".to_owned(),
            Platform::Glibc { machine, .. } => format!("linux-{}-glibc", machine.as_str()),
            Platform::Musl { machine } => format!("linux-{}-musl", machine.as_str()),
        };
        format!("cpython-{major}.{minor}{}-{platform}", self.flags)
    }

    /// Names the target among resolved requirements: as [`name`](Self::name), and what else decides which wheels fit.
    #[must_use]
    pub fn exact_name(&self) -> String {
        let patch = self.markers.get("python_full_version").map_or("", String::as_str);
        match self.platform {
            Platform::Glibc { minor, .. } => format!("{} {patch} 2.{minor}", self.name()),
            Platform::Pure | Platform::Musl { .. } => format!("{} {patch}", self.name()),
        }
    }

    /// Values of the variables in conditions.
    #[must_use]
    pub fn markers(&self) -> &BTreeMap<String, String> {
        &self.markers
    }

    /// The options that make `pip` choose for this Python and not for the one it runs on.
    #[must_use]
    pub fn pip_options(&self) -> Vec<String> {
        let (major, minor) = self.version;
        let mut options: Vec<String> = ["--implementation", "cp", "--python-version"].map(str::to_owned).into();
        options.push(format!("{major}.{minor}"));
        options.push("--abi".to_owned());
        options.push(format!("cp{major}{minor}{}", self.flags));
        let platform = if self.is_pure() { REFERENCE } else { self.platform };
        options.extend(platforms(platform).into_iter().flat_map(|name| ["--platform".to_owned(), name]));
        options
    }
}

/// The names of platforms in wheels that fit, best first.
fn platforms(platform: Platform) -> Vec<String> {
    match platform {
        Platform::Pure => Vec::new(),
        Platform::Glibc { machine, minor } => {
            let mut names = Vec::new();
            for minor in (OLDEST_GLIBC..=minor).rev() {
                names.push(format!("manylinux_2_{minor}_{}", machine.as_str()));
                let legacy = match (minor, machine) {
                    (17, _) => "manylinux2014",
                    (12, Machine::X86_64) => "manylinux2010",
                    (5, Machine::X86_64) => "manylinux1",
                    _ => continue,
                };
                names.push(format!("{legacy}_{}", machine.as_str()));
            }
            names.push(format!("linux_{}", machine.as_str()));
            names
        }
        Platform::Musl { machine } => {
            (0..=2).rev().map(|minor| format!("musllinux_1_{minor}_{}", machine.as_str())).collect()
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::packages) fn answer(sys_platform: &str, machine: &str, libc: &str) -> String {
        let mut markers: BTreeMap<&str, &str> = MARKERS.iter().map(|name| (*name, "x")).collect();
        markers.insert("implementation_name", "cpython");
        markers.insert("sys_platform", sys_platform);
        markers.insert("python_full_version", "3.13.1");
        serde_json::json!({"version": [3, 13], "flags": "", "machine": machine, "libc": libc, "markers": markers})
            .to_string()
    }

    #[test]
    fn each_platform_has_its_names() {
        let pure = PythonTarget::parse(&answer("wasi", "", "")).unwrap();
        assert_eq!((pure.name().as_str(), pure.is_pure()), ("cpython-3.13-pure", true));
        assert!(pure.pip_options().contains(&"manylinux_2_28_x86_64".to_owned()), "a reference for their pure parts");
        let glibc = PythonTarget::parse(&answer("linux", "x86_64", "glibc 2.17")).unwrap();
        assert_eq!(glibc.name(), "cpython-3.13-linux-x86_64-glibc");
        assert_eq!(glibc.exact_name(), "cpython-3.13-linux-x86_64-glibc 3.13.1 2.17");
        let options = glibc.pip_options();
        assert_eq!(options.get(..6).unwrap(), ["--implementation", "cp", "--python-version", "3.13", "--abi", "cp313"]);
        assert_eq!(
            options.iter().filter(|option| option.starts_with("manylinux")).take(3).collect::<Vec<_>>(),
            ["manylinux_2_17_x86_64", "manylinux2014_x86_64", "manylinux_2_16_x86_64"]
        );
        let musl = PythonTarget::parse(&answer("linux", "aarch64", "musl")).unwrap();
        assert_eq!(musl.name(), "cpython-3.13-linux-aarch64-musl");
    }

    #[test]
    fn an_answer_is_not_trusted() {
        for bad in [
            String::new(),
            "{}".to_owned(),
            answer("win32", "x86_64", ""),
            answer("linux", "mips", "glibc 2.36"),
            answer("linux", "x86_64", "glibc 2.4000000000"),
            answer("linux", "x86_64", "bionic"),
            answer("wasi", "", "").replace("cpython", "pypy"),
            answer("wasi", "", "").replace("3.13.1", "3.13\\u0007"),
            answer("wasi", "", "").replace("[3,13]", "[2,7]"),
            answer("wasi", "", "").replace("[3,13]", "[3,-1]"),
        ] {
            let error = PythonTarget::parse(&bad).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{bad}");
        }
    }
}
