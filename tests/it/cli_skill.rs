//! `skillcell skill validate`, `inspect`, `lock`, `verify` and `list`: whole outputs, exit codes, refusals.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "tests read files, start the command, and fail by panicking"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

struct Scene {
    folder: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        let scene = Self { folder: tempfile::tempdir().unwrap() };
        scene.file("pdf/SKILL.md", "---\nname: pdf\ndescription: Reads PDF files.\nallowed-tools: Read WebFetch(domain:a.example.com)\n---\nUse it.\n");
        scene.file("pdf/scripts/read.py", "# /// script\n# dependencies = [\"pypdf\"]\n# ///\nprint()\n");
        scene.file("pdf/references/guide.md", "A guide.\n");
        scene
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn file(&self, name: &str, content: &str) {
        fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        fs::write(self.path(name), content).unwrap();
    }

    fn skill(&self, args: &[&str]) -> (Option<i32>, String, String) {
        let output: Output = Command::new(env!("CARGO_BIN_EXE_skillcell"))
            .current_dir(self.folder.path())
            .env("XDG_CACHE_HOME", self.path("cache"))
            .env("HOME", self.path("home"))
            .arg("skill")
            .args(args)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    }

    fn json(&self, args: &[&str]) -> (Option<i32>, Value) {
        let (code, stdout, stderr) = self.skill(args);
        (code, serde_json::from_str(&stdout).unwrap_or_else(|error| unreachable!("{error}: {stdout}{stderr}")))
    }
}

fn said(code: i32, stdout: &str) -> (Option<i32>, String, String) {
    (Some(code), stdout.to_owned(), String::new())
}

fn shapes(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/skills").join(name).to_str().unwrap().to_owned()
}

#[test]
fn validate_says_valid_or_every_fault_at_once() {
    let scene = Scene::new();
    for path in ["./pdf", "pdf/", "home/../pdf"] {
        fs::create_dir_all(scene.path("home")).unwrap();
        assert_eq!(scene.skill(&["validate", path]), said(0, "pdf: valid\n"));
    }
    // A name means the search paths, whatever lies here.
    let (code, stdout, stderr) = scene.skill(&["validate", "pdf"]);
    assert_eq!((code, stdout.as_str()), (Some(2), ""));
    assert!(stderr.contains("not found in any search path") && stderr.contains("write './pdf'"), "{stderr}");
    let faults = "fault: line 2: the key 'Name' must be written 'name' [key-spelling]\n\
                  fault: line 3: the key 'Description' must be written 'description' [key-spelling]\n\
                  fault: line 4: the key 'allowed_tools' must be written 'allowed-tools' [key-spelling]\n";
    let misspelt = shapes("keys-misspelt");
    assert_eq!(scene.skill(&["validate", &misspelt]), said(2, &format!("{faults}keys-misspelt: not valid\n")));
    assert_eq!(scene.skill(&["validate", "--lenient", &misspelt]), said(0, &format!("{faults}keys-misspelt: valid\n")));
    let listed = shapes("tools-as-block-list");
    let advice =
        "advice: line 5: 'allowed-tools' is a list; the format has one text, separated by blanks [allowed-tools]\n";
    assert_eq!(scene.skill(&["validate", &listed]), said(0, &format!("{advice}tools-as-block-list: valid\n")));
    let (code, document) = scene.json(&["validate", "--json", &shapes("Big-Letters")]);
    let finding = json!({"rule": "name-case", "message": "the name 'Big-Letters' must be lower case", "line": 2, "advice": false});
    assert_eq!((code, document), (Some(2), json!({"valid": false, "name": "Big-Letters", "findings": [finding]})));
    // What can't be read at all is an error of its own, with the fault and no half answer.
    for (shape, what) in [
        ("yaml-alias", "in SKILL.md, line 4: a YAML alias ('*name') is not accepted; write the value out"),
        ("no-description", "SKILL.md is missing required 'description' field"),
        ("no-manifest", "No SKILL.md found"),
        ("not-utf-8", "SKILL.md is not UTF-8 at byte 35"),
        ("nowhere", "No SKILL.md found at path"),
    ] {
        let (code, stdout, stderr) = scene.skill(&["validate", &shapes(shape)]);
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "{shape}: {stderr}");
        assert!(stderr.starts_with("skillcell: error: ") && stderr.contains(what), "{shape}: {stderr}");
    }
}

#[test]
fn inspect_shows_what_a_skill_is() {
    let scene = Scene::new();
    let (code, document) = scene.json(&["inspect", "./pdf", "--json"]);
    assert_eq!(code, Some(0));
    assert_eq!(
        document["manifest"],
        json!({
            "name": "pdf", "description": "Reads PDF files.", "license": null, "compatibility": null,
            "allowed_tools": "Read WebFetch(domain:a.example.com)", "metadata": {}
        })
    );
    assert_eq!(
        (&document["resources"], &document["script_needs"], &document["files"]),
        (
            &json!({"scripts": ["scripts/read.py"], "references": ["references/guide.md"], "assets": [], "other": []}),
            &json!({"scripts/read.py": {"requires_python": null, "dependencies": ["pypdf"]}}),
            &json!(3)
        )
    );
    assert_eq!(
        (&document["tools_offered"], &document["hosts_asked_for"]),
        (&json!(["read_file", "list_resources", "read_resource"]), &json!(["a.example.com"]))
    );
    let (tree, manifest) = (document["tree_sha256"].as_str().unwrap(), document["skill_sha256"].as_str().unwrap());
    assert!(tree.len() == 64 && manifest.len() == 64 && tree != manifest);
    let (code, stdout, stderr) = scene.skill(&["inspect", "./pdf"]);
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    for line in [
        "name:         pdf".to_owned(),
        format!("tree sha256:  {tree}"),
        format!("skill sha256: {manifest} (SKILL.md only)"),
        "scripts:      scripts/read.py".to_owned(),
        "assets:       -".to_owned(),
        "tools:        read_file, list_resources, read_resource".to_owned(),
        "hosts asked:  a.example.com (count only with manifest_network = \"merge\")".to_owned(),
    ] {
        assert!(stdout.lines().any(|known| known == line), "{line}: {stdout}");
    }
    // Text of the skill's can't paint on the terminal.
    let (_, stdout, _) = scene.skill(&["inspect", &shapes("control-characters")]);
    assert!(!stdout.contains('\u{1b}') && !stdout.contains('\u{7}'), "{stdout:?}");
}

#[test]
fn a_lock_holds_what_was_reviewed_and_verify_sees_every_change() {
    let scene = Scene::new();
    scene.file("docx/SKILL.md", "---\nname: docx\ndescription: d\n---\n");
    let (code, stdout, _) = scene.skill(&["lock", "./pdf", "./docx"]);
    let digests: Vec<(&str, &str)> = stdout.lines().map(|line| line.split_once("  ").unwrap()).collect();
    assert_eq!((code, digests.len(), digests[0].1, digests[1].1), (Some(0), 2, "pdf", "docx"));
    assert_eq!(scene.skill(&["verify", "./pdf", "./docx"]), said(0, "pdf: as locked\ndocx: as locked\n"));
    // The digest is the one that --pin takes.
    let (_, inspected) = scene.json(&["inspect", "./pdf", "--json"]);
    assert_eq!(inspected["tree_sha256"], digests[0].0);

    let change = |name: &str, content: &str, what: &str| {
        let before = fs::read(scene.path(name)).ok();
        scene.file(name, content);
        let (code, stdout, stderr) = scene.skill(&["verify", "./docx", "./pdf"]);
        assert_eq!(code, Some(3), "{name}: {stdout}{stderr}");
        assert!(stdout.starts_with("docx: as locked\npdf: ") && stdout.contains(what), "{name}: {stdout}");
        assert!(stderr.contains("pdf changed since it was locked; review the change, then lock it anew"), "{stderr}");
        match before {
            Some(bytes) => fs::write(scene.path(name), bytes).unwrap(),
            None => fs::remove_file(scene.path(name)).unwrap(),
        }
        assert_eq!(scene.skill(&["verify", "./pdf"]), said(0, "pdf: as locked\n"));
    };
    change("pdf/scripts/read.py", "print('evil')\n", "scripts/read.py");
    change("pdf/SKILL.md", "---\nname: pdf\ndescription: Other.\n---\n", "SKILL.md");
    change("pdf/scripts/more.py", "print()\n", "scripts/more.py");
    let (code, _, stderr) = scene.skill(&["verify", &shapes("minimal")]);
    assert!(code == Some(3) && stderr.contains("'minimal' is not in skill.lock; review it, then add it"), "{stderr}");
    // Another file, and files that are no lock.
    assert_eq!(scene.skill(&["lock", "./pdf", "--lock", "other.lock"]).0, Some(0));
    assert_eq!(scene.skill(&["verify", "./pdf", "--lock", "other.lock"]), said(0, "pdf: as locked\n"));
    for (text, what) in [(None, "none.lock"), (Some("nonsense"), ""), (Some("version = 99\n"), "")] {
        if let Some(text) = text {
            scene.file("none.lock", text);
        }
        let (code, stdout, stderr) = scene.skill(&["verify", "./pdf", "--lock", "none.lock"]);
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "{stderr}");
        assert!(stderr.starts_with("skillcell: error: ") && stderr.contains(what), "{stderr}");
        // A file that can't be read is not written over.
        if let Some(text) = text {
            assert_eq!(scene.skill(&["lock", "./pdf", "--lock", "none.lock"]).0, Some(2));
            assert_eq!(fs::read_to_string(scene.path("none.lock")).unwrap(), text);
        }
    }
}

#[test]
fn list_shows_the_search_paths_in_their_order() {
    let scene = Scene::new();
    assert_eq!(
        scene.skill(&["list"]),
        said(
            0,
            "no skills found; they are looked for in .agents/skills and .claude/skills, here and in your home folder\n"
        )
    );
    let manifest = |name: &str| format!("---\nname: {name}\ndescription: d\n---\n");
    scene.file("home/.agents/skills/pdf/SKILL.md", &manifest("pdf"));
    scene.file("home/.claude/skills/docx/SKILL.md", &manifest("docx"));
    scene.file(".agents/skills/pdf/SKILL.md", &manifest("pdf"));
    scene.file(".agents/skills/no-skill/README.md", "x");
    let at = |path: &str| fs::canonicalize(scene.path(path)).unwrap().to_str().unwrap().to_owned();
    let found = scene.json(&["list", "--json"]).1;
    let expected: Vec<Value> = [
        ("pdf", ".agents/skills/pdf", false),
        ("docx", "home/.claude/skills/docx", false),
        ("pdf", "home/.agents/skills/pdf", true),
    ]
    .map(|(name, path, shadowed)| json!({"name": name, "path": at(path), "shadowed": shadowed}))
    .to_vec();
    let mut seen = found["found"].as_array().unwrap().clone();
    for entry in &mut seen {
        let path = entry["path"].as_str().unwrap();
        let real = fs::canonicalize(path).unwrap().to_str().unwrap().to_owned();
        entry.as_object_mut().unwrap().insert("path".to_owned(), real.into());
    }
    let sort = |mut list: Vec<Value>| {
        list.sort_by_key(Value::to_string);
        list
    };
    assert_eq!((sort(seen), &found["fetched"]), (sort(expected), &json!([])));
    let (_, stdout, _) = scene.skill(&["list"]);
    assert_eq!(stdout.lines().count(), 3);
    assert!(stdout.contains("(hidden by an earlier one of this name)"), "{stdout}");
    // A name means the first of them.
    assert_eq!(scene.skill(&["validate", "pdf"]).0, Some(0));
}
