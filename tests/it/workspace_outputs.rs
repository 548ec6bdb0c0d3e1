//! Collecting and exporting, with a guest that did its worst.
#![expect(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests make host files, and fail by unwrapping")]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;

use skillcell::ErrorKind;
use skillcell::audit::{AuditScope, Decision, MemorySink, RunId};
use skillcell::workspace::{CollectRules, Collected, MAX_HELD_BYTES, Overwrite, SkipReason, Workspace};

struct World {
    dir: tempfile::TempDir,
    space: Workspace,
    sink: Arc<MemorySink>,
    audit: AuditScope,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let run = RunId::random().unwrap();
        let space = Workspace::create_in(dir.path(), run).unwrap();
        let sink = Arc::new(MemorySink::default());
        let audit = AuditScope::new(run, "test", sink.clone());
        Self { dir, space, sink, audit }
    }

    fn out(&self) -> std::path::PathBuf {
        self.space.ambient_root().join("out")
    }

    fn put(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.out().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn collect(&self) -> Collected {
        self.collect_by(&CollectRules::default())
    }

    fn collect_by(&self, rules: &CollectRules) -> Collected {
        self.space.collect(rules, &self.audit).unwrap()
    }

    /// Objects of the denials so far.
    fn denied(&self) -> Vec<String> {
        let events = self.sink.events();
        events.into_iter().filter(|event| event.decision == Decision::Deny).map(|event| event.object).collect()
    }
}

fn paths(found: &Collected) -> Vec<&str> {
    found.files().iter().map(|file| file.path.as_str()).collect()
}

fn skipped(found: &Collected) -> Vec<(&str, SkipReason)> {
    found.skipped().iter().map(|skipped| (skipped.path.as_str(), skipped.reason)).collect()
}

#[test]
fn results_are_sorted_and_described() {
    let world = World::new();
    world.put("report.txt", "hello");
    world.put("a/x.csv", "1,2");
    world.put("a-b", "plain");
    world.put("blob", [0, 159, 146, 150]);
    world.put("run", "#!/bin/sh");
    fs::set_permissions(world.out().join("run"), fs::Permissions::from_mode(0o6755)).unwrap();
    let found = world.collect();
    // Digests by sha256sum.
    assert_eq!(
        serde_json::to_value(&found).unwrap(),
        serde_json::json!({
            "files": [
                {"path": "a-b", "size": 5, "sha256": "a116c9ed46d6207734a43317d30fd88f52ac8634c37d904bbf4e41d865f90475" , "media_type": "text/plain", "executable": false},
                {"path": "a/x.csv", "size": 3, "sha256": "17f8af97ad4a7f7639a4c9171d5185cbafb85462877a4746c21bdb0a4f940ca0", "media_type": "text/csv", "executable": false},
                {"path": "blob", "size": 4, "sha256": "b02a591131217cb579165aeccf0d94569acffb9934c84d6c813d77e3abedd233", "media_type": "application/octet-stream", "executable": false},
                {"path": "report.txt", "size": 5, "sha256": "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824", "media_type": "text/plain", "executable": false},
                {"path": "run", "size": 9, "sha256": "3af71adb278ad4af33c144b78fa1ae708da03b773d98324ae991a7daedb53ca2", "media_type": "text/plain", "executable": true},
            ],
            "skipped": [],
            "skipped_total": 0,
        })
    );
    assert!(found.complete());
    assert_eq!(world.denied(), [] as [&str; 0]);
    assert_eq!(found.read(&world.space, "report.txt").unwrap(), "hello");
    assert_eq!(found.read(&world.space, "nope").unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn links_are_reported_and_never_followed() {
    let world = World::new();
    fs::write(world.dir.path().join("secret"), "secret").unwrap();
    world.put("ok.txt", "fine");
    symlink("../../secret", world.out().join("up")).unwrap();
    symlink("/etc/passwd", world.out().join("absolute")).unwrap();
    symlink("..", world.out().join("folder")).unwrap();
    symlink("loop", world.out().join("loop")).unwrap();
    symlink("ok.txt", world.out().join("inside")).unwrap();
    symlink("missing", world.out().join("dangling")).unwrap();
    let found = world.collect();
    assert_eq!(paths(&found), ["ok.txt"]);
    let names = ["absolute", "dangling", "folder", "inside", "loop", "up"];
    assert_eq!(skipped(&found), names.map(|name| (name, SkipReason::Link)));
    assert_eq!(world.denied(), names.map(|name| format!("/workspace/out/{name}")));
    assert!(!found.complete());
}

#[test]
fn special_files_are_never_opened() {
    let world = World::new();
    world.put("ok.txt", "fine");
    let pipe = world.out().join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(world.out().join("socket")).unwrap();
    let found = world.collect();
    assert_eq!(paths(&found), ["ok.txt"]);
    assert_eq!(skipped(&found), [("pipe", SkipReason::Special), ("socket", SkipReason::Special)]);
    assert_eq!(world.denied().len(), 2);
}

#[test]
fn names_that_no_other_system_can_store_are_skipped_and_shown_escaped() {
    use std::os::unix::ffi::OsStrExt;
    let world = World::new();
    world.put("fine ü.txt", "x");
    for bad in [&b"\xff"[..], b"a\nb", b"c\\d"] {
        fs::write(world.out().join(std::ffi::OsStr::from_bytes(bad)), "x").unwrap();
    }
    let found = world.collect();
    assert_eq!(paths(&found), ["fine ü.txt"]);
    let bad = SkipReason::BadName;
    assert_eq!(skipped(&found), [("a\\nb", bad), ("c\\\\d", bad), ("\u{fffd}", bad)]);
}

#[test]
fn globs_match_the_whole_path_and_the_star_crosses_folders() {
    let world = World::new();
    for path in ["a.csv", "sub/b.csv", "sub/c.txt", "{x}"] {
        world.put(path, "x");
    }
    for (globs, expected) in [
        (vec!["*.csv"], vec!["a.csv", "sub/b.csv"]),
        (vec!["sub/*"], vec!["sub/b.csv", "sub/c.txt"]),
        (vec!["?.csv", "{x}"], vec!["a.csv", "{x}"]),
        (vec!["[!a]*.csv"], vec!["sub/b.csv"]),
        (vec![], vec!["a.csv", "sub/b.csv", "sub/c.txt", "{x}"]),
    ] {
        let found = world.collect_by(&CollectRules::new(&globs).unwrap());
        assert_eq!((paths(&found), found.complete()), (expected, true), "{globs:?}");
    }
    for bad in ["", "/etc/*", "../*", "a/../b", "[", "[z-a]"] {
        let error = CollectRules::new(&[bad]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{bad}");
    }
}

#[test]
fn what_does_not_fit_is_left_and_said() {
    let world = World::new();
    for (path, content) in [("a", "12345"), ("b", "1234567890"), ("c", "123"), ("d", "1")] {
        world.put(path, content);
    }
    let by = |change: fn(&mut CollectRules)| {
        let mut rules = CollectRules::default();
        change(&mut rules);
        let found = world.collect_by(&rules);
        let left = skipped(&found).into_iter().map(|(path, reason)| (path.to_owned(), reason)).collect::<Vec<_>>();
        (paths(&found).join(" "), left)
    };
    let left = |path: &str, reason| (path.to_owned(), reason);
    assert_eq!(by(|rules| rules.max_file_bytes = 5), ("a c d".into(), vec![left("b", SkipReason::FileTooLarge)]));
    assert_eq!(by(|rules| rules.max_bytes = 9), ("a c d".into(), vec![left("b", SkipReason::TotalTooLarge)]));
    assert_eq!(
        by(|rules| rules.max_files = 2),
        ("a b".into(), vec![left("c", SkipReason::TooMany), left("d", SkipReason::TooMany)])
    );
    assert_eq!(by(|_| {}), ("a b c d".into(), vec![]));
}

#[test]
fn a_sparse_giant_and_a_deep_tree_cost_nothing() {
    let world = World::new();
    world.put("giant", "");
    fs::File::options().write(true).open(world.out().join("giant")).unwrap().set_len(10 << 30).unwrap();
    world.put(&format!("{}f", "d/".repeat(63)), "x");
    world.put(&format!("{}f", "e/".repeat(62)), "x");
    let found = world.collect();
    assert_eq!(paths(&found), [format!("{}f", "e/".repeat(62))]);
    let reasons: Vec<_> = found.skipped().iter().map(|skipped| skipped.reason).collect();
    assert_eq!(reasons, [SkipReason::TooDeep, SkipReason::FileTooLarge]);
}

#[test]
fn large_content_is_read_back_from_the_workspace_and_must_be_the_same() {
    let world = World::new();
    let large = vec![7; usize::try_from(MAX_HELD_BYTES).unwrap() + 1];
    world.put("large.bin", &large);
    world.put("small", "s");
    let found = world.collect();
    assert_eq!(found.held("large.bin"), None);
    assert_eq!(found.held("small").unwrap(), "s");
    assert_eq!(found.read(&world.space, "large.bin").unwrap(), large);
    world.put("large.bin", vec![8; large.len()]);
    assert_eq!(found.read(&world.space, "large.bin").unwrap_err().kind(), ErrorKind::TrustViolation);
    let to = world.dir.path().join("results");
    assert_eq!(found.export(&world.space, &to, Overwrite::Refuse).unwrap_err().kind(), ErrorKind::TrustViolation);
    assert!(!to.join("large.bin").exists());
}

fn listing(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn export_copies_and_refuses_to_overwrite_anything() {
    let world = World::new();
    world.put("a.txt", "new");
    world.put("sub/run", "#!/bin/sh");
    fs::set_permissions(world.out().join("sub/run"), fs::Permissions::from_mode(0o6777)).unwrap();
    let found = world.collect();
    let to = world.dir.path().join("deep/results");
    found.export(&world.space, &to, Overwrite::Refuse).unwrap();
    assert_eq!(listing(&to), ["a.txt", "sub"]);
    assert_eq!(listing(&to.join("sub")), ["run"]);
    assert_eq!(fs::read_to_string(to.join("a.txt")).unwrap(), "new");
    let mode = fs::metadata(to.join("sub/run")).unwrap().permissions().mode();
    assert_eq!((mode & 0o7000, mode & 0o100), (0, 0o100), "{mode:o}");
    // `sub/run` exists, so `a.txt` isn't written either.
    fs::remove_file(to.join("a.txt")).unwrap();
    fs::write(to.join("sub/run"), "old").unwrap();
    let error = found.export(&world.space, &to, Overwrite::Refuse).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig);
    assert!(error.to_string().contains("'sub/run'"), "{error}");
    assert_eq!(
        (listing(&to), fs::read_to_string(to.join("sub/run")).unwrap()),
        (vec!["sub".to_owned()], "old".to_owned())
    );
    found.export(&world.space, &to, Overwrite::Replace).unwrap();
    assert_eq!(
        (listing(&to), fs::read_to_string(to.join("sub/run")).unwrap()),
        (vec!["a.txt".to_owned(), "sub".to_owned()], "#!/bin/sh".to_owned())
    );
}

#[test]
fn export_follows_no_link_below_the_folder_it_was_given() {
    let world = World::new();
    world.put("a.txt", "new");
    world.put("sub/b.txt", "new");
    let found = world.collect();
    let victim = world.dir.path().join("victim");
    fs::create_dir(&victim).unwrap();
    fs::write(victim.join("file"), "untouched").unwrap();
    let to = world.dir.path().join("results");
    fs::create_dir(&to).unwrap();
    symlink(&victim, to.join("sub")).unwrap();
    for overwrite in [Overwrite::Refuse, Overwrite::Replace] {
        let error = found.export(&world.space, &to, overwrite).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PathDenied, "{error}");
    }
    assert_eq!((listing(&victim), listing(&to)), (vec!["file".to_owned()], vec!["sub".to_owned()]));
    fs::remove_file(to.join("sub")).unwrap();
    // A link in a file's place, even a dangling one, counts as existing; asked to replace, the link goes.
    for target in ["../victim/file", "../victim/absent"] {
        symlink(target, to.join("a.txt")).unwrap();
        assert_eq!(found.export(&world.space, &to, Overwrite::Refuse).unwrap_err().kind(), ErrorKind::InvalidConfig);
        found.export(&world.space, &to, Overwrite::Replace).unwrap();
        assert!(fs::symlink_metadata(to.join("a.txt")).unwrap().is_file());
        fs::remove_dir_all(&to).unwrap();
        fs::create_dir(&to).unwrap();
    }
    assert_eq!(
        (listing(&victim), fs::read_to_string(victim.join("file")).unwrap()),
        (vec!["file".to_owned()], "untouched".to_owned())
    );
    // The folder itself may be a link: the caller typed it.
    symlink(&victim, world.dir.path().join("typed")).unwrap();
    found.export(&world.space, &world.dir.path().join("typed"), Overwrite::Refuse).unwrap();
    assert_eq!(listing(&victim), ["a.txt", "file", "sub"]);
}

#[test]
fn a_folder_swapped_for_a_link_while_collecting_leaks_nothing() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let world = World::new();
    let secret = world.dir.path().join("outside");
    fs::create_dir(&secret).unwrap();
    fs::write(secret.join("f"), "SECRET").unwrap();
    world.put("d/f", "inside");
    let (out, stop) = (world.out(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                fs::rename(out.join("d"), out.join("../tmp/d")).unwrap();
                symlink(&secret, out.join("d")).unwrap();
                fs::remove_file(out.join("d")).unwrap();
                fs::rename(out.join("../tmp/d"), out.join("d")).unwrap();
            }
        });
        let mut seen = [false; 2];
        // Until both states were met, and often enough to meet the gap between them.
        let mut rounds = 0;
        while rounds < 2_000 || seen != [true; 2] {
            let found = world.collect();
            for file in found.files() {
                assert_eq!(found.read(&world.space, &file.path).unwrap(), "inside");
                seen[0] = true;
            }
            seen[1] |= found.skipped().iter().any(|skipped| skipped.reason == SkipReason::Link);
            rounds += 1;
            assert!(rounds < 1_000_000, "the other thread stopped, or is never met: {seen:?}");
        }
        stop.store(true, Ordering::Relaxed);
    });
}
