//! The packs in the tree are what their manifests say, and damage is noticed.

#![expect(clippy::unwrap_used, reason = "the helpers of tests are tests too")]

use std::fs;
use std::path::{Path, PathBuf};

use skillcell_wasm_tools::pack::{Role, list, verify};

fn packs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("packs")
}

/// A copy of a pack's folder, without its recipe.
fn copy(name: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for place in ["", "licences"] {
        fs::create_dir_all(folder.path().join(place)).unwrap();
        for entry in fs::read_dir(packs().join(name).join(place)).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                fs::copy(&path, folder.path().join(place).join(path.file_name().unwrap())).unwrap();
            }
        }
    }
    folder
}

fn problem(folder: &Path) -> String {
    format!("{:#}", verify(folder).unwrap_err())
}

#[test]
fn every_pack_in_the_tree_is_in_order() {
    let found = list(&packs()).unwrap();
    assert!(found.iter().any(|(_, manifest)| manifest.name == "python"), "{found:?}");
    for (folder, manifest) in found {
        let verified = verify(&folder).unwrap();
        assert!(verified.data(Role::Module).unwrap().starts_with(b"\0asm"));
        let modules: Vec<&str> = manifest.imports.keys().map(String::as_str).collect();
        assert_eq!(modules, ["wasi_snapshot_preview1"], "{}: a host must give nothing but WASI", manifest.name);
    }
}

#[test]
fn a_damaged_or_exchanged_archive_is_refused() {
    let folder = copy("python");
    verify(folder.path()).unwrap();
    let archive = folder.path().join("python.pack.xz");
    let whole = fs::read(&archive).unwrap();

    let mut damaged = whole.clone();
    damaged[100_000] ^= 1;
    fs::write(&archive, &damaged).unwrap();
    assert!(problem(folder.path()).contains("python.pack.xz has the digest"), "{}", problem(folder.path()));

    fs::write(&archive, &whole[..whole.len() / 2]).unwrap();
    assert!(problem(folder.path()).contains("bytes, the manifest says"), "{}", problem(folder.path()));

    let mut longer = whole;
    longer.push(0);
    fs::write(&archive, longer).unwrap();
    assert!(problem(folder.path()).contains("bytes, the manifest says"), "{}", problem(folder.path()));
}

#[test]
fn a_manifest_that_promises_something_else_is_refused() {
    for (from, to, expected) in [
        ("\"fd_write\"", "\"fd_wrote\"", "the module imports"),
        ("\"export\": \"_start\"", "\"export\": \"main\"", "no function \"main\" to enter by"),
        ("zlib.txt", "absent.txt", "the licence of zlib should be in"),
        ("\"format\": 1", "\"format\": 3", "manifest format 3 is unknown"),
    ] {
        let folder = copy("python");
        let path = folder.path().join("manifest.json");
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{from}");
        fs::write(&path, text.replace(from, to)).unwrap();
        let problem = problem(folder.path());
        assert!(problem.contains(expected), "{from}: {problem}");
    }
}

/// The interpreters run, and do what their packs say.
#[cfg(feature = "pack-build")]
#[test]
fn every_pack_in_the_tree_passes_its_own_checks() {
    for (folder, manifest) in list(&packs()).unwrap() {
        let checks = skillcell_wasm_tools::pack::prove(&folder, &mut |_| {}).unwrap();
        assert!(checks > 10, "{} has only {checks} checks", manifest.name);
    }
}
