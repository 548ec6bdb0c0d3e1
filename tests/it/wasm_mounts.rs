//! Host folders on runtime `wasm`, mode by mode and on both previews: what each lets a guest do, which names are
//! protected, and that no link, no renaming and no second name leads round that. Each refusal is one event.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "helpers of tests fail like tests, and play the host"
)]

use std::fs;
use std::path::Path;

use skillcell::SandboxPolicy;
use skillcell::audit::{Decision, Layer};
use skillcell::policy::{Limits, MountMode, MountRequest, OutMode};
use skillcell::runtime::Termination;

use crate::wasm_support::{Prepared, component, generous, printed, wat, write_host};

/// A project on the host, with what git and a shell would run.
fn project() -> tempfile::TempDir {
    let host = tempfile::tempdir().unwrap();
    let root = host.path();
    for folder in ["sub", "empty", "box", "nested", ".git/hooks", "lib"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    for (path, content) in [
        ("file", "file"),
        ("sub/inner", "inner"),
        ("nested/hooks", "text"),
        (".git/config", "config"),
        (".git/hooks/pre-commit", "hook"),
        (".git/HEAD", "head"),
        (".bashrc", "shell"),
    ] {
        fs::write(root.join(path), content).unwrap();
    }
    std::os::unix::fs::symlink(".git", root.join("way")).unwrap();
    std::os::unix::fs::symlink(".bashrc", root.join("rc")).unwrap();
    std::os::unix::fs::symlink("sub", root.join("alias")).unwrap();
    host
}

/// All paths with their contents.
fn tree(root: &Path) -> Vec<(String, String)> {
    fn walk(root: &Path, folder: &Path, found: &mut Vec<(String, String)>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            let kind = fs::symlink_metadata(&path).unwrap().file_type();
            if kind.is_dir() {
                found.push((name, "folder".to_owned()));
                walk(root, &path, found);
            } else if kind.is_symlink() {
                found.push((name, format!("link to {}", fs::read_link(&path).unwrap().display())));
            } else {
                found.push((name, fs::read_to_string(&path).unwrap()));
            }
        }
    }
    let mut found = Vec::new();
    walk(root, root, &mut found);
    found.sort();
    found
}

/// The probe as a module and as a component, each with a project of its own at `/data`.
async fn both(mode: MountMode, limits: &Limits) -> [(tempfile::TempDir, Prepared); 2] {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("probe.wasm");
    write_host(&path, &component("probe"));
    [with(&wat("probe.wat"), mode, limits).await, with(&path, mode, limits).await]
}

async fn with(script: &Path, mode: MountMode, limits: &Limits) -> (tempfile::TempDir, Prepared) {
    let host = project();
    let mount = MountRequest { host: host.path().to_owned(), guest: "/data".parse().unwrap(), mode };
    let policy = SandboxPolicy { limits: limits.clone(), ..SandboxPolicy::default() };
    (host, Prepared::under(script, policy, &[], &[mount]).await)
}

fn denials(prepared: &Prepared) -> Vec<(Layer, &'static str, String, String)> {
    let denials = prepared.sink.events().into_iter().filter(|event| event.decision == Decision::Deny);
    denials.map(|event| (event.layer, event.action, event.object, event.reason)).collect()
}

/// Each line's first verb says `perm`, the host's folder stays as it is, and there is one event with this reason.
async fn refused(mode: MountMode, lines: &[(&str, &str)]) {
    for (host, prepared) in both(mode, &generous()).await {
        let before = tree(host.path());
        for (line, reason) in lines {
            let earlier = denials(&prepared).len();
            let words: Vec<&str> = line.split(' ').collect();
            assert_eq!(prepared.run(&words).await, printed(&format!("{} perm\n", words[0])), "{line}");
            assert_eq!(tree(host.path()), before, "{line}");
            let new = denials(&prepared).split_off(earlier);
            assert_eq!(new.len(), 1, "{line}: {new:?}");
            assert_eq!((new[0].0, new[0].3.as_str()), (Layer::Files, *reason), "{line}");
            let path = line.split(' ').find(|word| word.starts_with("/data")).unwrap();
            assert!(new[0].2.contains(path), "{line}: {new:?}");
        }
    }
}

/// The lines print this and are no events.
async fn allowed(mode: MountMode, lines: &[(&str, &str)]) {
    for (_host, prepared) in both(mode, &generous()).await {
        for (line, output) in lines {
            let words: Vec<&str> = line.split(' ').collect();
            assert_eq!(prepared.run(&words).await, printed(output), "{line}");
        }
        assert_eq!(denials(&prepared), []);
    }
}

#[tokio::test]
async fn read_only_is_read_only() {
    let reason = "/data is read-only";
    refused(
        MountMode::ReadOnly,
        &[
            ("write /data/file x", reason),
            ("create /data/new", reason),
            ("cut /data/file", reason),
            ("times /data/file", reason),
            ("mkdir /data/new", reason),
            ("rmdir /data/empty", reason),
            ("unlink /data/file", reason),
            ("rename /data/file /data/other", reason),
            ("rename /data/file /workspace/out/other", reason),
            ("link /data/file /workspace/out/other", reason),
            ("symlink file /data/other", reason),
            ("read /data/../etc/passwd", "it leads out of /data"),
        ],
    )
    .await;
    allowed(
        MountMode::ReadOnly,
        &[
            (
                "read /data/file read /data/alias/inner read /data/.git/config",
                "read ok file\nread ok inner\nread ok config\n",
            ),
            ("list /data/sub", "list ok inner\n"),
        ],
    )
    .await;
}

#[tokio::test]
async fn read_write_reaches_the_host() {
    for (host, prepared) in both(MountMode::ReadWrite, &generous()).await {
        let line = "write /data/new text append /data/file more mkdir /data/made write /data/made/x y \
                    rename /data/sub/inner /data/sub/moved unlink /data/sub/moved rmdir /data/empty symlink file /data/l \
                    link /data/new /data/again times /data/new resize /data/file 2 rename /data/new /data/box/new";
        let seen = prepared.run(&line.split_whitespace().collect::<Vec<_>>()).await;
        let verbs = ["write", "append", "mkdir", "write", "rename", "unlink", "rmdir", "symlink", "link", "times"];
        let expected: String = verbs.iter().chain(&["resize", "rename"]).map(|verb| format!("{verb} ok\n")).collect();
        assert_eq!(seen, printed(&expected));
        let read = |path: &str| fs::read_to_string(host.path().join(path)).ok();
        assert_eq!(
            ["box/new", "file", "made/x", "again", "sub/moved"].map(read),
            [Some("text".to_owned()), Some("fi".to_owned()), Some("y".to_owned()), Some("text".to_owned()), None]
        );
        assert!(!host.path().join("empty").exists());
        assert_eq!(denials(&prepared), []);
        // Another disk, as far as a guest can see.
        let seen =
            prepared.run(&["rename", "/data/file", "/workspace/out/f", "link", "/data/file", "/workspace/tmp/f"]);
        assert_eq!(seen.await, printed("rename xdev\nlink xdev\n"));
    }
}

#[tokio::test]
async fn nothing_is_lost_without_delete() {
    let reason = "nothing may be removed, moved or replaced there";
    refused(
        MountMode::ReadWriteWithoutDelete,
        &[
            ("unlink /data/file", reason),
            ("rmdir /data/empty", reason),
            ("rename /data/file /data/other", reason),
            ("rename /data/file /data/sub/inner", reason),
            ("rename /data/sub /data/other", reason),
            ("rename /data/sub /data/empty", reason),
            ("unlink /data/alias", reason),
        ],
    )
    .await;
    allowed(
        MountMode::ReadWriteWithoutDelete,
        &[
            ("write /data/new text append /data/new s read /data/new", "write ok\nappend ok\nread ok texts\n"),
            ("mkdir /data/made create /data/made/x", "mkdir ok\ncreate ok\n"),
            // Content may be changed, and even cut.
            ("existing /data/file FI read /data/file", "existing ok\nread ok FIle\n"),
            ("cut /data/file stat /data/file", "cut ok\nstat ok 4 0\n"),
        ],
    )
    .await;
}

#[tokio::test]
async fn results_that_may_not_be_removed_stay() {
    let policy = SandboxPolicy { limits: generous(), out: OutMode::ReadWriteWithoutDelete, ..SandboxPolicy::default() };
    let prepared = Prepared::under(&wat("probe.wat"), policy, &[], &[]).await;
    let line = "write /workspace/out/f text mkdir /workspace/out/d unlink /workspace/out/f rmdir /workspace/out/d \
                rename /workspace/out/f /workspace/out/g rename /workspace/out/f /workspace/tmp/g \
                write /workspace/tmp/t other rename /workspace/tmp/t /workspace/out/f read /workspace/out/f";
    let seen = prepared.run(&line.split_whitespace().collect::<Vec<_>>()).await;
    let expected =
        "write ok\nmkdir ok\nunlink perm\nrmdir perm\nrename perm\nrename perm\nwrite ok\nrename perm\nread ok text\n";
    assert_eq!(seen, printed(expected));
    assert_eq!(denials(&prepared).len(), 5);
    // The twin: to a name that is free, and in the other area.
    let line = "rename /workspace/tmp/t /workspace/out/new read /workspace/out/new write /workspace/tmp/u x unlink /workspace/tmp/u";
    let seen = prepared.run(&line.split_whitespace().collect::<Vec<_>>()).await;
    assert_eq!(seen, printed("rename ok\nread ok other\nwrite ok\nunlink ok\n"));
}

#[tokio::test]
async fn copies_may_be_changed_and_the_host_stays() {
    for (host, prepared) in both(MountMode::CopyOnWrite, &generous()).await {
        let before = tree(host.path());
        let line = "unlink /data/file write /data/.bashrc mine rename /data/sub /data/other read /data/other/inner \
                    mkdir /data/.git/hooks/more";
        let seen = prepared.run(&line.split_whitespace().collect::<Vec<_>>()).await;
        assert_eq!(seen, printed("unlink ok\nwrite ok\nrename ok\nread ok inner\nmkdir ok\n"));
        assert_eq!(tree(host.path()), before);
        assert_eq!(denials(&prepared), []);
    }
}

#[tokio::test]
async fn protected_names_are_refused_whether_or_not_they_exist() {
    let shell = "protected: a shell runs it at its start";
    let git = "protected: git runs what lies there";
    let above = "protected: it holds, or stands for, protected names";
    let link = "a link leads there; name the place itself";
    for mode in [MountMode::ReadWrite, MountMode::ReadWriteWithoutDelete] {
        refused(
            mode,
            &[
                ("write /data/.bashrc x", shell),
                ("append /data/.bashrc x", shell),
                ("cut /data/.bashrc", shell),
                ("times /data/.bashrc", shell),
                ("fdtimes /data/.bashrc", shell),
                ("create /data/.zshrc", shell),
                ("create /data/sub/.zshrc", shell),
                ("create /data/.ZshRC", shell),
                ("create /data/sub/../.zshrc", shell),
                ("create /data/./sub/./.zshrc", shell),
                ("symlink file /data/.zshrc", shell),
                ("link /data/file /data/.zshrc", shell),
                ("write /data/.git/hooks/post-commit x", git),
                ("write /data/.git/hooks/pre-commit x", git),
                ("mkdir /data/.git/hooks/sub", git),
                ("mkdir /data/sub/.husky", git),
                // A second name for it.
                ("link /data/.bashrc /data/harmless", shell),
                // What stands for a folder of them.
                ("create /data/sub/.git", above),
                ("symlink box /data/sub/.git", above),
                // Ways that hide the name.
                ("create /data/way/hooks/x", link),
                ("write /data/way/config x", link),
                ("write /data/rc x", link),
                ("times /data/rc", link),
                ("create /data/alias/x", link),
                ("mkdir /data/alias/x", link),
            ],
        )
        .await;
    }
    refused(
        MountMode::ReadWrite,
        &[
            ("unlink /data/.bashrc", shell),
            ("rename /data/.bashrc /data/gone", shell),
            ("rename /data/file /data/.bashrc", shell),
            ("rename /data/file /data/.zshrc", shell),
            ("rename /data/.git /data/git", above),
            ("rename /data/nested /data/sub/.git", above),
            ("rename /data/box /data/.git/hooks", git),
            ("rmdir /data/.git/hooks", git),
            ("rename /data/way/hooks /data/gone", link),
            ("unlink /data/alias/inner", link),
        ],
    )
    .await;
    allowed(
        MountMode::ReadWrite,
        &[
            // Reading is free, through links too.
            (
                "read /data/.bashrc read /data/rc read /data/way/config",
                "read ok shell\nread ok shell\nread ok config\n",
            ),
            // What only looks like them.
            ("create /data/bashrc create /data/.bashrc2 mkdir /data/hooks", "create ok\ncreate ok\nmkdir ok\n"),
            ("write /data/.git/HEAD x mkdir /data/fresh mkdir /data/fresh/.git", "write ok\nmkdir ok\nmkdir ok\n"),
            ("unlink /data/rc unlink /data/alias", "unlink ok\nunlink ok\n"),
            ("rename /data/nested /data/moved read /data/moved/hooks", "rename ok\nread ok text\n"),
        ],
    )
    .await;
}

#[tokio::test]
async fn what_is_added_to_a_host_folder_counts() {
    let limits = Limits { disk: 1 << 20, files: 10, ..generous() };
    for line in [
        "fill /data/f",
        "double /data/f",
        "resize /data/f 1048577",
        "files /data/f 11",
        // What was added stays booked: others remove things there too.
        "reuse /data/f 100",
        "resize /data/f 600000 resize /workspace/out/f 600000",
    ] {
        for (_host, prepared) in both(MountMode::ReadWrite, &limits).await {
            let seen = prepared.run(&line.split(' ').collect::<Vec<_>>()).await;
            assert_eq!(seen.termination, Termination::DiskLimit, "{line}: {seen:?}");
            assert_eq!(prepared.limits_hit(), ["disk_limit"], "{line}");
        }
    }
    for (host, prepared) in both(MountMode::ReadWrite, &limits).await {
        // What was there before doesn't count.
        fs::write(host.path().join("large"), vec![0; 2 << 20]).unwrap();
        let seen =
            prepared.run(&["append", "/data/large", "x", "resize", "/data/f", "1048575", "files", "/data/g", "9"]);
        assert_eq!(seen.await, printed("append ok\nresize ok\nfiles ok 9\n"));
    }
    // A private copy is part of the workspace: what it held is given, what is added counts, what goes makes room.
    for (_host, prepared) in both(MountMode::CopyOnWrite, &limits).await {
        let seen = prepared.run(&["reuse", "/data/f", "100", "resize", "/data/f", "1048576"]).await;
        assert_eq!(seen, printed("reuse ok 100\nresize ok\n"));
        assert_eq!(prepared.run(&["resize", "/data/g", "100"]).await.termination, Termination::DiskLimit);
    }
    for (_host, prepared) in both(MountMode::CopyOnWrite, &generous()).await {
        let seen = prepared.run(&["nest", "/data", "26000"]).await;
        assert!(seen.stdout.starts_with("nest nametoolong "), "{seen:?}");
    }
}

#[tokio::test]
async fn pipes_of_the_host_are_not_opened() {
    for mode in [MountMode::ReadOnly, MountMode::ReadWrite] {
        for (host, prepared) in both(mode, &generous()).await {
            rustix::fs::mknodat(
                rustix::fs::CWD,
                host.path().join("pipe"),
                rustix::fs::FileType::Fifo,
                rustix::fs::Mode::from_raw_mode(0o600),
                0,
            )
            .unwrap();
            // Opened, it would wait for a writer for ever.
            assert_eq!(prepared.run(&["read", "/data/pipe"]).await, printed("read perm\n"));
            let reason = "it is a pipe, a socket or a device".to_owned();
            assert_eq!(denials(&prepared), [(Layer::Files, "open", "/data/pipe".to_owned(), reason)]);
        }
    }
}

#[tokio::test]
async fn a_folder_swapped_on_the_host_is_not_followed() {
    let (host, prepared) = with(&wat("probe.wat"), MountMode::ReadWrite, &generous()).await;
    let (path, moved) = (host.path().to_owned(), host.path().with_extension("moved"));
    fs::rename(&path, &moved).unwrap();
    fs::create_dir(&path).unwrap();
    assert_eq!(prepared.run(&["write", "/data/new", "x"]).await, printed("write ok\n"));
    assert!(moved.join("new").exists() && !path.join("new").exists());
    fs::remove_dir_all(&moved).unwrap();
}
