//! The rules of the house as checks: arrows between modules, who may touch what, the size and the header of files,
//! and documents that must match the code.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests read files, start the command, and fail by panicking"
)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Source files longer than the limit of 600 lines, each with the reason why it can't be split.
const LONG_FILES: [(&str, &str); 0] = [];
const MAX_LINES: usize = 600;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// All Rust files below a folder of the repository, as (path from the root, content).
fn rust_files(folder: &str) -> BTreeMap<String, String> {
    fn walk(path: &Path, files: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())) {
            let path = entry.unwrap().path();
            if path.is_dir() {
                if !path.ends_with("target") {
                    walk(&path, files);
                }
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    let mut files = Vec::new();
    walk(&root().join(folder), &mut files);
    assert!(!files.is_empty(), "no Rust files in {folder}: the check checks nothing");
    files
        .into_iter()
        .map(|path| {
            let name = path.strip_prefix(root()).unwrap().to_string_lossy().replace('\\', "/");
            (name, fs::read_to_string(path).unwrap())
        })
        .collect()
}

/// The code of a file: no comments, nothing from where its tests begin.
fn code(content: &str) -> String {
    let end =
        ["#[cfg(test)]", "#[cfg(all(test"].iter().filter_map(|mark| content.find(mark)).min().unwrap_or(content.len());
    content[..end]
        .lines()
        .map(|line| line.find("//").map_or(line, |start| &line[..start]))
        .collect::<Vec<_>>()
        .join("\n")
}

fn fail(findings: &[String]) {
    assert!(findings.is_empty(), "\n{}", findings.join("\n"));
}

#[test]
fn files_are_short_and_say_what_they_are_for() {
    let mut findings = Vec::new();
    for folder in ["src", "wasm-tools/src", "guest-sdk/src", "tests", "benches"] {
        if !root().join(folder).exists() {
            continue;
        }
        for (name, content) in rust_files(folder) {
            let lines = content.lines().count();
            if lines > MAX_LINES && !LONG_FILES.iter().any(|(known, _)| *known == name) {
                findings.push(format!("{name}: {lines} lines; split it (the limit is {MAX_LINES})"));
            }
            if !content.starts_with("//!") {
                findings.push(format!("{name}: no header that says what it is for (//! on the first line)"));
            }
        }
    }
    fail(&findings);
}

/// Modules of the library and the modules of ours that each may use. Anything else is a new arrow: change
/// ARCHITECTURE.md in the same commit.
const ARROWS: [(&str, &[&str]); 13] = [
    ("error", &[]),
    ("digest", &[]),
    ("http", &["error"]),
    ("policy", &["error"]),
    ("audit", &["error", "digest", "policy"]),
    ("workspace", &["error", "digest", "policy", "audit"]),
    ("skill", &["error", "digest", "http", "policy", "audit", "workspace"]),
    ("runtime", &["error", "policy", "audit", "skill", "workspace"]),
    ("backends", &["error", "policy", "audit", "skill", "workspace", "runtime"]),
    ("agent", &["error", "digest", "http", "policy", "audit", "skill", "workspace", "runtime"]),
    ("conformance", &["error", "policy", "audit", "skill", "workspace", "runtime"]),
    ("packages", &["error", "digest", "skill", "workspace"]),
    ("step", &["error", "policy", "audit", "skill", "workspace", "runtime", "agent", "packages"]),
];

#[test]
fn arrows_point_down_only() {
    let mut findings = Vec::new();
    for (name, content) in rust_files("src") {
        let Some(module) = name.strip_prefix("src/").and_then(|rest| rest.split(['/', '.']).next()) else { continue };
        if matches!(module, "lib" | "bin") {
            continue;
        }
        let Some((_, allowed)) = ARROWS.iter().find(|(known, _)| *known == module) else {
            findings.push(format!("{name}: module '{module}' has no line in ARROWS"));
            continue;
        };
        for (index, _) in code(&content).match_indices("crate::") {
            let code = code(&content);
            let used: String =
                code[index + "crate::".len()..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            let is_module = ARROWS.iter().any(|(known, _)| *known == used);
            if is_module && used != module && !allowed.contains(&used.as_str()) {
                findings.push(format!("{name}: uses crate::{used}, an arrow that isn't allowed"));
            }
        }
    }
    fail(&findings);
}

/// Words that only some files may use: (what, words, path prefixes that may, why).
const HOMES: [(&str, &[&str], &[&str], &str); 8] = [
    (
        "host files",
        &[
            " std::fs::read",
            "(std::fs::read",
            "std::fs::write",
            "std::fs::remove",
            "std::fs::create",
            "std::fs::rename",
            "std::fs::metadata",
            "std::fs::canonicalize",
            " File::open(",
            " File::create(",
            " File::options",
            "OpenOptions::new",
            "open_ambient",
            "ambient_authority",
            "tokio::fs",
        ],
        // The init of a container is a program of its own.
        &["src/workspace/", "src/bin/", "src/backends/docker/init/"],
        "only workspace/ touches host files",
    ),
    (
        "processes",
        &["process::Command", "tokio::process"],
        &["src/backends/child", "src/backends/docker/init/"],
        "only backends/child starts processes",
    ),
    ("wasmtime", &["wasmtime::", "wasmtime_wasi::"], &["src/backends/wasm/"], "wasmtime has one home"),
    ("bollard", &["bollard::"], &["src/backends/docker"], "bollard has one home"),
    ("anyhow", &["anyhow::", "anyhow!"], &["src/bin/"], "anyhow is for the command"),
    ("clap", &["clap::"], &["src/bin/"], "clap is for the command"),
    (
        "unsafe",
        &["unsafe "],
        &["src/backends/wasm/cache.rs", "src/backends/child", "src/backends/docker/init/system.rs"],
        "unsafe stands in three places, each with its argument",
    ),
    (
        "clocks and environment in pure code",
        &["SystemTime::now", "Instant::now", "std::env::var", "async fn", ".await", "std::net::TcpStream", "getrandom"],
        &[
            "src/workspace/",
            "src/audit/",
            "src/skill/",
            "src/runtime/",
            "src/backends/",
            "src/agent/",
            "src/step/",
            "src/conformance/",
            "src/bin/",
            "src/lib.rs",
        ],
        "policy is pure: no IO, no async, no clock, no environment",
    ),
];

#[test]
fn heavy_things_have_one_home() {
    let mut findings = Vec::new();
    for (name, content) in rust_files("src") {
        let code = code(&content);
        for (what, words, homes, why) in HOMES {
            if homes.iter().any(|home| name.starts_with(home)) {
                continue;
            }
            for word in words.iter().filter(|word| code.contains(**word)) {
                findings.push(format!("{name}: '{word}' ({what}): {why}"));
            }
        }
    }
    fail(&findings);
}

#[test]
fn only_backends_names_a_runtime() {
    let mut findings = Vec::new();
    let registry = skillcell::builtin_registry();
    let mut names: Vec<&str> = registry.names();
    names.extend(["local", "wasm", "bubblewrap", "firejail", "docker", "e2b"]);
    for (name, content) in rust_files("src") {
        // The command and the default of a step name one for the user's sake.
        if name.starts_with("src/backends/") || name.starts_with("src/bin/") || name == "src/step/config.rs" {
            continue;
        }
        let code = code(&content);
        for runtime in &names {
            if code.contains(&format!("\"{runtime}\"")) {
                // An extension and a kind of isolation aren't runtimes.
                let excused =
                    *runtime == "wasm" && matches!(name.as_str(), "src/runtime/script.rs" | "src/policy/tier.rs");
                if !excused {
                    findings.push(format!("{name}: names the runtime \"{runtime}\""));
                }
            }
        }
    }
    fail(&findings);
}

#[test]
fn the_library_never_prints() {
    let mut findings = Vec::new();
    for (name, content) in rust_files("src") {
        if name.starts_with("src/bin/") {
            continue;
        }
        for word in ["println!", "eprintln!", "print!(", "dbg!", "process::exit", "process::abort"] {
            if code(&content).contains(word) {
                findings.push(format!("{name}: {word}"));
            }
        }
    }
    fail(&findings);
}

#[test]
fn nothing_is_left_unfinished() {
    let mut findings = Vec::new();
    // Spelled apart, so that this file doesn't find itself.
    let words = [
        ["TO", "DO"].concat(),
        ["FIX", "ME"].concat(),
        ["todo", "!("].concat(),
        ["unimple", "mented!("].concat(),
        ["#[ig", "nore"].concat(),
    ];
    for folder in ["src", "wasm-tools/src", "guest-sdk/src", "tests"] {
        for (name, content) in rust_files(folder) {
            for word in words.iter().filter(|word| content.contains(word.as_str())) {
                findings.push(format!("{name}: {word}"));
            }
        }
    }
    fail(&findings);
}

#[test]
fn the_readme_table_is_the_one_the_code_makes() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let table = skillcell::enforcement_table(&skillcell::builtin_registry()).unwrap().markdown();
    assert!(
        readme.contains(&table),
        "README.md lacks the current table; put in the output of `skillcell runtimes --markdown`:\n{table}"
    );
}

#[test]
fn documents_are_there_and_the_changelog_knows_the_version() {
    for document in [
        "README.md",
        "ARCHITECTURE.md",
        "SECURITY.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "LICENSE",
        "docs/coming-from-carl.md",
    ] {
        assert!(root().join(document).is_file(), "{document} is missing");
    }
    let changelog = fs::read_to_string(root().join("CHANGELOG.md")).unwrap();
    assert!(
        changelog.contains(&format!("## [{}]", env!("CARGO_PKG_VERSION"))),
        "CHANGELOG.md has no entry for this version"
    );
}

/// Every test that a document names as proof is there, and is a test.
#[test]
fn tests_that_documents_name_exist() {
    let text = fs::read_to_string(root().join("docs/coming-from-carl.md")).unwrap();
    let (_, table) = text.split_once("## Faults of CARL's skills").unwrap();
    let (mut findings, mut found) = (Vec::new(), 0);
    for line in table.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| fault |")) {
        let proof = line.trim_end_matches(" |").rsplit(" | ").next().unwrap_or_default();
        let names: Vec<&str> = proof.split('`').skip(1).step_by(2).collect();
        if names.is_empty() {
            findings.push(format!("no test is named for: {line}"));
        }
        for name in names {
            found += 1;
            let (module, test) = name.rsplit_once("::").unwrap_or(("", name));
            let inner = module.trim_end_matches("::tests").replace("::", "/");
            let files = [format!("tests/it/{module}.rs"), format!("src/{inner}.rs"), format!("src/{inner}/mod.rs")];
            let content = files.iter().find_map(|file| fs::read_to_string(root().join(file)).ok()).unwrap_or_default();
            let lines: Vec<&str> = content.lines().map(str::trim).collect();
            let at = lines.iter().position(|line| {
                line.trim_start_matches("async ")
                    .strip_prefix("fn ")
                    .is_some_and(|rest| rest.starts_with(&format!("{test}(")))
            });
            // Attributes and comments may stand between the two.
            let is_test = at.is_some_and(|at| {
                let before =
                    lines[..at].iter().rev().take_while(|line| line.starts_with("#[") || line.starts_with("//"));
                before.into_iter().any(|line| line.starts_with("#[test]") || line.starts_with("#[tokio::test"))
            });
            if !is_test && !content.contains("proptest") {
                findings.push(format!("{name} is no test ({})", files.join(", ")));
            } else if !is_test && !content.contains(&format!("fn {test}(")) {
                findings.push(format!("{name} is not there"));
            }
        }
    }
    fail(&findings);
    assert!(found > 40, "only {found} tests are named");
}
