//! Every shape of skill in `tests/data/skills`, against what lies beside it.

#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests read their data and fail by unwrapping")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Map, Value, json};
use skillcell::agent::Tool;
use skillcell::audit::{AuditScope, NullSink, RunId};
use skillcell::parse_network_allowlist_from_allowed_tools;
use skillcell::skill::{
    LoadedSkill, MAX_SCANNED_BYTES, ManifestMode, SkillSource, TrustPolicy, VerifiedSkill, script_metadata,
};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/skills")
}

fn load(name: &str, mode: ManifestMode) -> Result<LoadedSkill, String> {
    let audit = AuditScope::new(RunId::random().unwrap(), "none", Arc::new(NullSink));
    let source = SkillSource::Folder(folder().join(name));
    let verified = VerifiedSkill::verify(&source, &TrustPolicy::Any, &audit).unwrap();
    LoadedSkill::load(Arc::new(verified), mode).map_err(|error| error.chain().join(": "))
}

/// All that a skill comes to.
fn seen(name: &str) -> Value {
    let lenient = match load(name, ManifestMode::Lenient) {
        Err(error) => json!({ "error": error }),
        Ok(skill) => {
            let findings: Vec<Value> = skill
                .findings
                .iter()
                .map(|finding| {
                    let kind = if finding.advice { "advice" } else { "fault" };
                    json!(format!("{kind} [{}] {finding}", finding.rule))
                })
                .collect();
            let mut needs = Map::new();
            for entry in skill.verified.tree().entries().iter().filter(|entry| entry.path.ends_with(".py")) {
                let text = skill.verified.tree().read(&entry.path, MAX_SCANNED_BYTES as u64).unwrap();
                let need = match script_metadata(&String::from_utf8(text).unwrap()) {
                    Ok(None) => continue,
                    Ok(Some(metadata)) => json!(metadata),
                    Err(error) => json!({"error": error.to_string()}),
                };
                needs.insert(entry.path.clone(), need);
            }
            let offered: Vec<&str> = Tool::offered(&skill.manifest).into_iter().map(Tool::name).collect();
            json!({
                "manifest": skill.manifest,
                "instructions": skill.manifest.instructions,
                "findings": findings,
                "resources": skill.resources,
                "script_needs": needs,
                "tools_offered": offered,
                "hosts_asked_for": parse_network_allowlist_from_allowed_tools(skill.manifest.allowed_tools.as_ref()),
            })
        }
    };
    json!({"lenient": lenient, "strict": load(name, ManifestMode::Strict).map_or_else(|error| error, |_| "valid".to_owned())})
}

#[test]
fn every_shape_comes_to_what_lies_beside_it() {
    let (mut folders, mut files) = (BTreeSet::new(), BTreeSet::new());
    for entry in std::fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        match name.strip_suffix(".json") {
            Some(name) => files.insert(name.to_owned()),
            None => path.is_dir() && folders.insert(name),
        };
    }
    assert!(folders.len() > 50, "only {} skills", folders.len());
    // What came of them, for whoever adds one and reads it before copying it.
    let actual = Path::new(env!("CARGO_TARGET_TMPDIR")).join("skill-shapes");
    std::fs::create_dir_all(&actual).unwrap();
    let mut wrong = Vec::new();
    for name in &folders {
        let seen = seen(name);
        let expected = std::fs::read(folder().join(format!("{name}.json"))).unwrap_or_default();
        if serde_json::from_slice::<Value>(&expected).ok().as_ref() != Some(&seen) {
            std::fs::write(actual.join(format!("{name}.json")), format!("{seen:#}\n")).unwrap();
            wrong.push(name.as_str());
        }
    }
    assert!(wrong.is_empty(), "other than written beside them, see {}: {}", actual.display(), wrong.join(", "));
    assert_eq!(folders, files, "a skill without its file, or a file without its skill");
}

/// What the shapes of the scripts' layout are for: they run, with the files beside them.
#[cfg(all(feature = "cli", feature = "pack-python"))]
#[test]
fn a_script_finds_its_neighbours_and_the_skills_files() {
    for arguments in [&["1", "2"][..], &["40"]] {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_skillcell"))
            .args(["run", "--runtime", "wasm", "--timeout", "600s", "--skill"])
            .arg(folder().join("scripts-with-package"))
            .args(["scripts/main.py", "--"])
            .args(arguments)
            // The interpreter is compiled once for all tests.
            .env("XDG_CACHE_HOME", Path::new(env!("CARGO_TARGET_TMPDIR")).join("python-cache"))
            .output()
            .unwrap();
        let sum: u32 = arguments.iter().map(|word| word.parse::<u32>().unwrap()).sum();
        let seen = (output.status.code(), String::from_utf8(output.stdout).unwrap());
        assert_eq!(seen, (Some(0), format!("together {sum} apples\n")), "{:?}", String::from_utf8(output.stderr));
    }
}
