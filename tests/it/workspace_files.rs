//! Reading, writing and removing in a workspace that a guest did its worst to.
#![expect(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests make host files, and fail by unwrapping")]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use cap_fs_ext::DirExt;
use skillcell::ErrorKind;
use skillcell::audit::RunId;
use skillcell::policy::Limits;
use skillcell::workspace::{Area, GuestPath, Workspace};

fn workspace() -> (tempfile::TempDir, Workspace) {
    let dir = tempfile::tempdir().unwrap();
    let space = Workspace::create_in(dir.path(), RunId::random().unwrap()).unwrap();
    (dir, space)
}

fn guest(path: &str) -> GuestPath {
    path.parse().unwrap()
}

#[test]
fn a_tree_of_100_000_folders_is_removed() {
    const DEPTH: usize = 100_000;
    // Some disks take milliseconds to free a folder; memory does not, and depth is the same there.
    let memory = std::path::Path::new("/dev/shm");
    let dir = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
    let space = Workspace::create_in(dir.path(), RunId::random().unwrap()).unwrap();
    let mut here = space.area(Area::Out).try_clone().unwrap();
    for _ in 0..DEPTH {
        here.create_dir("d").unwrap();
        here = here.open_dir_nofollow("d").unwrap();
    }
    here.write("bottom", "x").unwrap();
    drop(here);
    space.remove().unwrap();
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_closed_wide_and_linked_tree_is_removed_and_nothing_else() {
    let (dir, space) = workspace();
    let keep = dir.path().join("keep");
    fs::create_dir(&keep).unwrap();
    fs::write(keep.join("file"), "kept").unwrap();
    let out = space.ambient_root().join("out");
    for index in 0..1_500 {
        fs::create_dir_all(out.join(format!("w{index}/inner"))).unwrap();
        fs::write(out.join(format!("w{index}/inner/f")), "x").unwrap();
    }
    symlink(&keep, out.join("link")).unwrap();
    symlink(&keep, out.join("w0/inner/link")).unwrap();
    // Names that the remover itself uses.
    fs::create_dir_all(space.ambient_root().join(".skillcell-removing-1/full")).unwrap();
    fs::write(space.ambient_root().join(".skillcell-removing-2"), "x").unwrap();
    for closed in ["w1/inner", "w1", "w2"] {
        fs::set_permissions(out.join(closed), fs::Permissions::from_mode(0o0)).unwrap();
    }
    fs::set_permissions(&out, fs::Permissions::from_mode(0o0)).unwrap();
    space.remove().unwrap();
    space.remove().unwrap();
    let left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["keep"]);
    assert_eq!(fs::read_to_string(keep.join("file")).unwrap(), "kept");
}

#[test]
fn writing_through_a_link_is_refused_and_a_dangling_one_makes_nothing() {
    let (dir, space) = workspace();
    let limits = Limits::default();
    let outside = dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    let out = space.ambient_root().join("out");
    symlink(&outside, out.join("folder")).unwrap();
    symlink(outside.join("absent"), out.join("dangling")).unwrap();
    let error = space.write_file(&guest("/workspace/out/folder/x"), b"x", &limits).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PathDenied);
    // The link itself is replaced; nothing appears where it pointed.
    space.write_file(&guest("/workspace/out/dangling"), b"mine", &limits).unwrap();
    assert!(fs::symlink_metadata(out.join("dangling")).unwrap().is_file());
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    space.write_file(&guest("/workspace/out/a/b/c"), b"deep", &limits).unwrap();
    assert_eq!(space.read_file(&guest("/workspace/out/a/b/c"), 4).unwrap(), "deep");
    for area in ["skill", "in", "site"] {
        let error = space.write_file(&guest(&format!("/workspace/{area}/x")), b"x", &limits).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PathDenied, "{area}");
    }
}

#[test]
fn writes_count_against_what_lies_there_already() {
    let (_dir, space) = workspace();
    let limits = Limits { disk: 10, files: 3, ..Limits::default() };
    space.write_file(&guest("/workspace/out/a"), b"123456", &limits).unwrap();
    let error = space.write_file(&guest("/workspace/tmp/b"), b"12345", &limits).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LimitExceeded);
    // A file that is replaced doesn't count twice.
    space.write_file(&guest("/workspace/out/a"), b"1234567890", &limits).unwrap();
    space.write_file(&guest("/workspace/out/a"), b"", &limits).unwrap();
    space.write_file(&guest("/workspace/out/d/b"), b"1", &limits).unwrap();
    let error = space.write_file(&guest("/workspace/out/c"), b"1", &limits).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LimitExceeded);
    assert!(error.to_string().contains("limit of 3 files"), "{error}");
}

#[test]
fn reading_stops_at_the_limit_and_never_blocks() {
    let (_dir, space) = workspace();
    let out = space.ambient_root().join("out");
    fs::write(out.join("f"), "12345").unwrap();
    assert_eq!(space.read_file(&guest("/workspace/out/f"), 5).unwrap(), "12345");
    assert_eq!(space.read_file(&guest("/workspace/out/f"), u64::MAX).unwrap(), "12345");
    assert_eq!(space.read_file(&guest("/workspace/out/f"), 4).unwrap_err().kind(), ErrorKind::LimitExceeded);
    fs::File::create(out.join("giant")).unwrap().set_len(10 << 30).unwrap();
    assert_eq!(space.read_file(&guest("/workspace/out/giant"), 1 << 20).unwrap_err().kind(), ErrorKind::LimitExceeded);
    let pipe = out.join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0).unwrap();
    symlink("f", out.join("link")).unwrap();
    symlink("loop", out.join("loop")).unwrap();
    fs::create_dir(out.join("folder")).unwrap();
    for path in ["pipe", "link", "loop", "folder", "link/x"] {
        let error = space.read_file(&guest(&format!("/workspace/out/{path}")), 100).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PathDenied, "{path}: {error}");
    }
    assert_eq!(space.read_file(&guest("/workspace/out/none"), 1).unwrap_err().kind(), ErrorKind::NotFound);
}
