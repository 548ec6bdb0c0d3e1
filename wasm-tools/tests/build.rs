//! Building real guests. These tests need a compiler for guests and fail with the remedy where there is none.

#![expect(clippy::panic, reason = "the helpers of tests are tests too")]

use std::fs;
use std::path::Path;

use skillcell_wasm_tools::{BuildRequest, Built, Cache, Encoding, Kind, Profile, Toolchain, build};

const GUEST: &str = r#"
    use skillcell_guest::Workspace;
    fn main() {
        let workspace = Workspace::from_env();
        println!("{} {:?}", workspace.inputs_dir().display(), std::env::args().nth(1));
        assert!(workspace.inputs().is_ok(), "no inputs");
    }
"#;

fn toolchain() -> Toolchain {
    match Toolchain::find() {
        Ok(found) => found,
        Err(error) => panic!("{error}"),
    }
}

fn request(source: &Path, out: &Path) -> BuildRequest {
    BuildRequest {
        source: source.to_path_buf(),
        out: Some(out.to_path_buf()),
        encoding: Encoding::Module,
        profile: Profile::Release,
        bin: None,
        cargo_arguments: vec!["--quiet".to_owned(), "--offline".to_owned()],
    }
}

/// Builds with the cache that `tests/build-guests` uses, so that the guests' library is made once.
fn built(request: &BuildRequest) -> anyhow::Result<Built> {
    let cache = match std::env::var_os("SKILLCELL_GUEST_CACHE") {
        Some(folder) => Cache::at(Path::new(&folder))?,
        None => Cache::at(&Path::new(env!("CARGO_TARGET_TMPDIR")).join("../guest-cache"))?,
    };
    build(request, &toolchain(), &cache, &mut |_| {})
}

#[test]
fn a_single_file_builds_to_a_runnable_module_the_same_wherever_it_lies() {
    let mut digests = Vec::new();
    for folder in ["one", "a-longer-name/two"] {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join(folder);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("guest.rs"), GUEST).unwrap();
        let out = root.path().join("guest.wasm");
        let built = built(&request(&folder.join("guest.rs"), &out)).unwrap();
        assert_eq!(built.inspection.kind, Kind::Module);
        assert_eq!(built.inspection.problems, Vec::<String>::new());
        let bytes = fs::read(&out).unwrap();
        let leaked = root.path().to_str().unwrap().as_bytes();
        assert!(!bytes.windows(leaked.len()).any(|window| window == leaked), "the guest holds a path of this machine");
        digests.push(built.sha256);
    }
    assert_eq!(digests[0], digests[1]);
}

#[test]
fn a_crate_builds_to_a_component_when_asked() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join("src")).unwrap();
    fs::write(
        root.path().join("Cargo.toml"),
        "[package]\nname = \"small\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[workspace]\n",
    )
    .unwrap();
    fs::write(root.path().join("src/main.rs"), "fn main() { println!(\"hi\") }").unwrap();
    let out = root.path().join("small.wasm");
    let request = BuildRequest { encoding: Encoding::Component, profile: Profile::Debug, ..request(root.path(), &out) };
    let built = built(&request).unwrap();
    assert_eq!(built.inspection.kind, Kind::Component);
    assert_eq!(built.inspection.problems, Vec::<String>::new());
}

#[test]
fn sources_that_cannot_be_built_are_refused_with_the_reason() {
    let root = tempfile::tempdir().unwrap();
    let out = root.path().join("out.wasm");
    fs::write(root.path().join("x.py"), "").unwrap();
    fs::write(root.path().join("bad.rs"), "fn main() { let x: u32 = \"\"; }").unwrap();
    fs::create_dir(root.path().join("empty")).unwrap();
    for (source, expected) in [
        ("missing.rs", "no source at "),
        ("x.py", "is no Rust source; give a .rs file or the folder of a crate"),
        ("empty", "has no Cargo.toml; give a .rs file or the folder of a crate"),
        ("bad.rs", "failed to build "),
    ] {
        let error = format!("{:#}", built(&request(&root.path().join(source), &out)).unwrap_err());
        assert!(error.contains(expected), "{source}: {error}");
        assert!(!out.exists());
    }
}
