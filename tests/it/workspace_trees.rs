//! Trees of the host: what counts, what is refused, what the digest says, and that what was checked is what is staged.
#![expect(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests make host files, and fail by unwrapping")]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use proptest::prelude::*;
use skillcell::ErrorKind;
use skillcell::audit::RunId;
use skillcell::workspace::{
    Area, EntryKind, GuestPath, HostTree, Input, InputSource, MAX_TREE_DEPTH, MAX_TREE_ENTRIES, MAX_TREE_FILE_BYTES,
    MountSupport, Workspace,
};

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn put(folder: &Path, path: &str, content: &str) {
    let path = folder.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

fn executable(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

fn workspace(parent: &Path) -> Workspace {
    Workspace::create_in(parent, RunId::random().unwrap()).unwrap()
}

fn guest(path: &str) -> GuestPath {
    path.parse().unwrap()
}

fn paths(tree: &HostTree) -> Vec<&str> {
    tree.entries().iter().map(|entry| entry.path.as_str()).collect()
}

#[test]
fn a_folder_is_read_whole_and_sorted_by_path() {
    let dir = folder();
    let skill = dir.path().join("skill");
    for path in ["a/x", "a-b/y", "a.txt", ".git/config", "z"] {
        put(&skill, path, path);
    }
    fs::create_dir(skill.join("empty")).unwrap();
    executable(&skill.join("a/x"));
    let tree = HostTree::open_folder(&skill).unwrap();
    assert_eq!(paths(&tree), [".git/config", "a-b/y", "a.txt", "a/x", "z"]);
    assert_eq!((tree.name(), tree.total_bytes()), ("skill", 11 + 5 + 5 + 3 + 1));
    assert!(tree.contains("a/x") && tree.entry("a/x").unwrap().executable && !tree.entry("z").unwrap().executable);
    assert!(!tree.contains("a") && !tree.contains("empty"));
    assert_eq!(HostTree::open_folder(&skill.join("a/..")).unwrap().name(), "skill");
}

#[test]
fn the_digest_is_the_documented_one() {
    let dir = folder();
    put(dir.path(), "s/run.sh", "#!/bin/sh\necho hi\n");
    put(dir.path(), "s/data/a.txt", "alpha");
    executable(&dir.path().join("s/run.sh"));
    // Computed by a script that follows the text of `HostTree::digest`.
    let expected = "daaebfdc0a74dfaa2b4a96b1424f3b4ad903ab9bac80116755291c76cfa43da5";
    assert_eq!(HostTree::open_folder(&dir.path().join("s")).unwrap().digest(), expected);
    // Neither times nor empty folders count; content, names and the executable bit do.
    fs::create_dir(dir.path().join("s/empty")).unwrap();
    assert_eq!(HostTree::open_folder(&dir.path().join("s")).unwrap().digest(), expected);
    executable(&dir.path().join("s/data/a.txt"));
    assert_ne!(HostTree::open_folder(&dir.path().join("s")).unwrap().digest(), expected);
}

#[test]
fn a_lone_file_is_a_tree_of_one() {
    let dir = folder();
    put(dir.path(), "real.py", "print(1)");
    put(dir.path(), "secret", "not for the guest");
    symlink("real.py", dir.path().join("link.py")).unwrap();
    let tree = HostTree::open_file(&dir.path().join("link.py")).unwrap();
    assert_eq!((tree.name(), paths(&tree)), ("link.py", vec!["link.py"]));
    assert_eq!(HostTree::open_file(dir.path()).unwrap_err().kind(), ErrorKind::PathDenied, "a folder is no file");
    let missing = HostTree::open_file(&dir.path().join("nope")).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    assert!(missing.to_string().contains("nope"), "{missing}");
}

#[test]
fn links_inside_the_tree_count_as_copies() {
    let dir = folder();
    let skill = dir.path().join("s");
    put(&skill, "lib/util.py", "x = 1");
    put(&skill, "docs/readme", "read");
    symlink("../lib/util.py", skill.join("docs/util.py")).unwrap();
    symlink("lib", skill.join("alias")).unwrap();
    symlink("alias", skill.join("alias2")).unwrap();
    let tree = HostTree::open_folder(&skill).unwrap();
    assert_eq!(paths(&tree), ["alias/util.py", "alias2/util.py", "docs/readme", "docs/util.py", "lib/util.py"]);
    let space = workspace(dir.path());
    space.stage_tree(Area::Skill, &tree).unwrap();
    for path in ["alias/util.py", "alias2/util.py", "docs/util.py"] {
        assert_eq!(space.read_file(&guest(&format!("/workspace/skill/{path}")), 100).unwrap(), "x = 1", "{path}");
    }
    // The copies are files: the digest is that of a tree without links.
    let flat = dir.path().join("flat");
    for path in ["alias/util.py", "alias2/util.py", "docs/util.py", "lib/util.py"] {
        put(&flat, path, "x = 1");
    }
    put(&flat, "docs/readme", "read");
    assert_eq!(HostTree::open_folder(&flat).unwrap().digest(), tree.digest());
}

#[test]
fn links_that_leave_dangle_or_circle_are_refused_by_name() {
    for (target, what) in [
        ("../outside", "leaves by .."),
        ("/etc/passwd", "absolute"),
        ("missing", "dangling"),
        ("bad", "points to itself"),
        (".", "the folder it lies in"),
        ("..", "the tree itself, seen from below"),
    ] {
        let dir = folder();
        put(dir.path(), "outside", "secret");
        let skill = dir.path().join("s");
        put(&skill, "sub/ok", "fine");
        symlink(target, skill.join("sub/bad")).unwrap();
        let target_in_tree = if target == "../outside" { "../../outside" } else { target };
        fs::remove_file(skill.join("sub/bad")).unwrap();
        symlink(target_in_tree, skill.join("sub/bad")).unwrap();
        let error = HostTree::open_folder(&skill).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PathDenied, "{what}");
        assert!(error.to_string().contains("s/sub/bad"), "{what}: {error}");
        assert!(!error.chain().join(" ").contains(dir.path().to_str().unwrap()), "{what}: {error}");
        fs::remove_file(skill.join("sub/bad")).unwrap();
        assert_eq!(paths(&HostTree::open_folder(&skill).unwrap()), ["sub/ok"], "{what}");
    }
}

#[test]
fn a_bomb_of_links_to_folders_ends_at_the_count() {
    let dir = folder();
    for level in 0..20 {
        let here = dir.path().join(format!("s/d{level}"));
        fs::create_dir_all(&here).unwrap();
        for side in ["l", "r"] {
            symlink(format!("../d{}", level + 1), here.join(side)).unwrap();
        }
    }
    put(dir.path(), "s/d20/leaf", "x");
    let error = HostTree::open_folder(&dir.path().join("s")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LimitExceeded);
    assert!(error.to_string().contains(&MAX_TREE_ENTRIES.to_string()), "{error}");
}

#[test]
fn special_files_and_bad_names_are_refused_without_hanging() {
    use std::os::unix::ffi::OsStrExt;
    let dir = folder();
    let skill = dir.path().join("s");
    put(&skill, "ok", "x");
    let pipe = skill.join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0).unwrap();
    let error = HostTree::open_folder(&skill).unwrap_err();
    assert_eq!((error.kind(), error.to_string().contains("s/pipe")), (ErrorKind::PathDenied, true), "{error}");
    assert_eq!(HostTree::open_file(&pipe).unwrap_err().kind(), ErrorKind::PathDenied);
    fs::remove_file(&pipe).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(skill.join("socket")).unwrap();
    assert_eq!(HostTree::open_folder(&skill).unwrap_err().kind(), ErrorKind::PathDenied);
    fs::remove_file(skill.join("socket")).unwrap();
    for bad in [&b"\xff\xfe"[..], b"a\nb", b"a\\b", b"\x1b[2J"] {
        let path = skill.join(std::ffi::OsStr::from_bytes(bad));
        fs::write(&path, "x").unwrap();
        let error = HostTree::open_folder(&skill).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PathDenied, "{bad:?}");
        assert!(!error.to_string().contains(['\n', '\u{1b}']), "{error}");
        fs::remove_file(&path).unwrap();
    }
    assert_eq!(paths(&HostTree::open_folder(&skill).unwrap()), ["ok"]);
}

#[test]
fn caps_name_themselves_and_cost_nothing() {
    let dir = folder();
    let big = dir.path().join("s/big");
    put(dir.path(), "s/big", "");
    // Sparse: nothing is stored, and refusing must not read it.
    fs::File::options().write(true).open(&big).unwrap().set_len(10 << 30).unwrap();
    let error = HostTree::open_folder(&dir.path().join("s")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LimitExceeded);
    assert!(error.to_string().contains(&MAX_TREE_FILE_BYTES.to_string()), "{error}");
    fs::remove_file(&big).unwrap();
    let deepest = "d/".repeat(MAX_TREE_DEPTH);
    put(dir.path(), &format!("s/{deepest}f"), "x");
    let tree = HostTree::open_folder(&dir.path().join("s")).unwrap();
    let mut space = workspace(dir.path());
    space.stage_inputs(&[Input::from_host_path(&dir.path().join("s")).unwrap()], MountSupport::None).unwrap();
    assert_eq!(space.read_file(&guest(&format!("/workspace/in/s/{deepest}f")), 9).unwrap(), "x");
    assert_eq!(tree.entries().len(), 1);
    put(dir.path(), &format!("s/{deepest}d/f"), "x");
    assert_eq!(HostTree::open_folder(&dir.path().join("s")).unwrap_err().kind(), ErrorKind::LimitExceeded);
}

#[test]
fn a_file_that_changes_between_check_and_staging_is_a_trust_violation() {
    let dir = folder();
    let skill = dir.path().join("s");
    put(&skill, "a", "1111");
    put(&skill, "sub/b", "2222");
    let tree = HostTree::open_folder(&skill).unwrap();
    workspace(dir.path()).stage_tree(Area::Skill, &tree).unwrap();
    for (label, change) in [
        ("same size", Box::new(|| put(&skill, "sub/b", "3333")) as Box<dyn Fn()>),
        ("longer", Box::new(|| put(&skill, "sub/b", "22222"))),
        ("gone", Box::new(|| fs::remove_file(skill.join("sub/b")).unwrap())),
        ("a link", Box::new(|| symlink("../a", skill.join("sub/b")).unwrap())),
    ] {
        change();
        let error = workspace(dir.path()).stage_tree(Area::Skill, &tree).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TrustViolation, "{label}");
        assert!(error.to_string().contains("'sub/b'"), "{label}: {error}");
    }
}

#[test]
fn staged_files_are_read_only_and_keep_the_executable_bit() {
    let dir = folder();
    put(dir.path(), "s/bin/run", "#!/bin/sh");
    put(dir.path(), "s/data", "x");
    executable(&dir.path().join("s/bin/run"));
    let space = workspace(dir.path());
    space.stage_tree(Area::Skill, &HostTree::open_folder(&dir.path().join("s")).unwrap()).unwrap();
    let mode = |path: &str| {
        fs::metadata(space.ambient_root().join("skill").join(path)).unwrap().permissions().mode() & 0o7777 & !0o077
    };
    assert_eq!([mode("bin"), mode("bin/run"), mode("data")], [0o500, 0o500, 0o400]);
    let root = space.ambient_root().to_owned();
    space.remove().unwrap();
    assert!(!root.exists());
}

#[test]
fn inputs_of_every_kind() {
    let dir = folder();
    put(dir.path(), "table.csv", "a,b");
    put(dir.path(), "data/x/y.txt", "deep");
    put(dir.path(), "big/z.bin", "mounted");
    let path = |name: &str| dir.path().join(name);
    for mounts in [MountSupport::None, MountSupport::Folders] {
        let mut space = workspace(dir.path());
        let inputs = [
            Input::from_host_path(&path("table.csv")).unwrap(),
            Input::from_host_path(&path("data")).unwrap(),
            Input::mounted(&path("big")).unwrap(),
            Input { name: "copy.csv".into(), source: InputSource::Mount(path("table.csv")) },
            Input::bytes("note.txt", "hello"),
        ];
        space.stage_inputs(&inputs, mounts).unwrap();
        for (file, content) in [
            ("table.csv", "a,b"),
            ("data/x/y.txt", "deep"),
            ("big/z.bin", "mounted"),
            ("copy.csv", "a,b"),
            ("note.txt", "hello"),
        ] {
            assert_eq!(
                space.read_file(&guest(&format!("/workspace/in/{file}")), 99).unwrap(),
                content,
                "{mounts:?} {file}"
            );
        }
        let listed: Vec<_> =
            space.list(&guest("/workspace/in")).unwrap().into_iter().map(|entry| (entry.name, entry.kind)).collect();
        let expected = [
            ("big", EntryKind::Folder),
            ("copy.csv", EntryKind::File),
            ("data", EntryKind::Folder),
            ("note.txt", EntryKind::File),
            ("table.csv", EntryKind::File),
        ];
        assert_eq!(listed, expected.map(|(name, kind)| (name.to_owned(), kind)));
        assert_eq!(space.list(&guest("/workspace/in/big")).unwrap().len(), 1);
        let mounted: Vec<_> = space.mounts().iter().map(|mount| mount.guest.to_string()).collect();
        assert_eq!(mounted, if mounts == MountSupport::None { vec![] } else { vec!["/workspace/in/big".to_owned()] });
        space.remove().unwrap();
        assert_eq!(
            fs::read_to_string(path("big/z.bin")).unwrap(),
            "mounted",
            "removal must not reach a mounted folder"
        );
    }
}

#[test]
fn a_link_in_a_mounted_folder_is_not_followed_by_the_host() {
    let dir = folder();
    put(dir.path(), "secret", "secret");
    put(dir.path(), "big/ok", "fine");
    symlink("../secret", dir.path().join("big/leak")).unwrap();
    symlink("..", dir.path().join("big/up")).unwrap();
    let mut space = workspace(dir.path());
    space.stage_inputs(&[Input::mounted(&dir.path().join("big")).unwrap()], MountSupport::Folders).unwrap();
    assert_eq!(space.read_file(&guest("/workspace/in/big/ok"), 99).unwrap(), "fine");
    for path in ["/workspace/in/big/leak", "/workspace/in/big/up/secret"] {
        assert_eq!(space.read_file(&guest(path), 99).unwrap_err().kind(), ErrorKind::PathDenied, "{path}");
    }
    assert_eq!(space.list(&guest("/workspace/in/big/up")).unwrap_err().kind(), ErrorKind::PathDenied);
    // Copied instead, the same folder is refused.
    let mut space = workspace(dir.path());
    let error =
        space.stage_inputs(&[Input::mounted(&dir.path().join("big")).unwrap()], MountSupport::None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PathDenied);
}

#[test]
fn input_names_that_collide_or_mislead_are_refused_with_both_sources() {
    let dir = folder();
    put(dir.path(), "one/Data.csv", "1");
    put(dir.path(), "two/data.csv", "2");
    let from = |path: &str| Input::from_host_path(&dir.path().join(path)).unwrap();
    let mut space = workspace(dir.path());
    let error = space.stage_inputs(&[from("one/Data.csv"), from("two/data.csv")], MountSupport::None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig);
    let text = error.to_string();
    assert!(text.contains("one/Data.csv") && text.contains("two/data.csv"), "{text}");
    assert_eq!(space.list(&guest("/workspace/in")).unwrap(), [], "nothing is staged when a name is refused");
    let mut space = workspace(dir.path());
    space.stage_inputs(&[from("one/Data.csv")], MountSupport::None).unwrap();
    let later = space.stage_inputs(&[Input::bytes("DATA.csv", "3")], MountSupport::None).unwrap_err();
    assert_eq!(later.kind(), ErrorKind::InvalidConfig, "also across calls");
    for name in ["", "..", "a/b", "a\\b", "a\nb", "."] {
        let error = workspace(dir.path()).stage_inputs(&[Input::bytes(name, "x")], MountSupport::None).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{name:?}");
    }
    let missing = workspace(dir.path()).stage_inputs(&[from("nope.csv")], MountSupport::None).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    assert!(missing.to_string().contains("nope.csv"), "{missing}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_digest_does_not_depend_on_the_order_of_creation(
        files in proptest::collection::btree_map("[a-c]{1,2}/[a-c.-]{1,3}x", "[a-z]{0,8}", 1..12),
        seed in any::<u64>(),
    ) {
        let dir = folder();
        let mut shuffled: Vec<_> = files.iter().collect();
        shuffled.sort_by_key(|(path, _)| path.bytes().fold(seed, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)));
        for (path, content) in &files {
            put(dir.path(), &format!("s/{path}"), content);
        }
        for (path, content) in shuffled {
            put(dir.path(), &format!("t/{path}"), content);
        }
        let (s, t) = (HostTree::open_folder(&dir.path().join("s")).unwrap(), HostTree::open_folder(&dir.path().join("t")).unwrap());
        prop_assert_eq!(s.digest(), t.digest());
        prop_assert_eq!(paths(&s), files.keys().map(String::as_str).collect::<Vec<_>>());
        let space = workspace(dir.path());
        space.stage_tree(Area::Skill, &s).unwrap();
        for (path, content) in &files {
            prop_assert_eq!(&space.read_file(&guest(&format!("/workspace/skill/{path}")), 99).unwrap()[..], content.as_bytes());
        }
    }
}
