//! What a WebAssembly guest can do to files: everything in `/workspace/out` and `/workspace/tmp`, reading elsewhere in
//! `/workspace`, and nothing outside.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::io::Write;

use skillcell::ErrorKind;
use skillcell::step::OutputDelivery;
use skillcell::workspace::{Area, Input, SkipReason};

use crate::wasm_support::{Prepared, Seen, generous, printed, probe, read_host, run, wat, write_host};

/// Puts a file and a folder into an area, from the host's side.
fn seed(prepared: &Prepared, area: Area) {
    let dir = prepared.workspace.area(area);
    dir.create("data").unwrap().write_all(b"data").unwrap();
    dir.create_dir("folder").unwrap();
    dir.create("folder/inner").unwrap().write_all(b"inner").unwrap();
}

#[tokio::test]
async fn exactly_the_five_areas_are_there() {
    let result = run(probe(&["preopens"])).await;
    let mut seen = Seen::of(&result.run);
    let mut folders: Vec<&str> = seen.stdout.lines().collect();
    folders.sort_unstable();
    seen.stdout = folders.join("\n");
    let all = "/workspace/in\n/workspace/out\n/workspace/site\n/workspace/skill\n/workspace/tmp";
    assert_eq!(seen, printed(all));
}

/// What can be tried on an area `@` that holds `data` and `folder/inner`, with `/workspace/tmp` holding the same;
/// and what comes of it where writing is allowed. Where it isn't, each line says `perm` and nothing changes.
const CHANGES: [(&str, &str); 24] = [
    ("write @/new text", "ok"),
    ("write @/data text", "ok"),
    ("write @/folder/new text", "ok"),
    ("append @/data text", "ok"),
    ("existing @/data text", "ok"),
    ("create @/new", "ok"),
    ("cut @/data", "ok"),
    ("cutw @/data", "ok"),
    ("resize @/data 100", "ok"),
    ("resize @/data 1", "ok"),
    ("poke @/data 100", "ok"),
    ("pwrite @/data 100", "ok"),
    ("times @/data", "ok"),
    ("times @/folder", "ok"),
    ("fdtimes @/data", "ok"),
    ("mkdir @/new", "ok"),
    ("rmdir @/empty", "ok"),
    ("unlink @/data", "ok"),
    ("rename @/data @/other", "ok"),
    ("rename @/data /workspace/tmp/taken", "ok"),
    ("rename /workspace/tmp/data @/given", "ok"),
    ("link @/data @/other", "ok"),
    ("link /workspace/tmp/data @/given", "ok"),
    ("symlink data @/link", "ok"),
];

#[tokio::test]
async fn read_only_areas_cannot_be_changed_in_any_way() {
    for area in Area::ALL {
        for (line, _) in CHANGES {
            let prepared = Prepared::new(generous()).await;
            seed(&prepared, area);
            if area != Area::Tmp {
                seed(&prepared, Area::Tmp);
            }
            prepared.workspace.area(area).create_dir("empty").unwrap();
            let before = prepared.tree(area);
            let line = line.replace('@', &area.guest_path().to_string());
            let words: Vec<&str> = line.split(' ').collect();
            let seen = prepared.run(&words).await;
            let verb = words[0];
            if area.writable() {
                assert_eq!(seen, printed(&format!("{verb} ok\n")), "{line}");
                assert_ne!(prepared.tree(area), before, "{line}");
            } else {
                assert_eq!(seen, printed(&format!("{verb} perm\n")), "{line}");
                assert_eq!(prepared.tree(area), before, "{line}");
                assert_eq!(prepared.tree(Area::Tmp).len(), 3, "{line}: something came to lie elsewhere");
            }
        }
    }
}

#[tokio::test]
async fn every_area_can_be_read() {
    for area in Area::ALL {
        let prepared = Prepared::new(generous()).await;
        seed(&prepared, area);
        let line = "read @/data read @/folder/../folder/inner list @/folder stat @/data stat @/folder/inner read @/none \
                    read @/folder list @/data";
        let line = line.replace('@', &area.guest_path().to_string());
        let seen = prepared.run(&line.split_whitespace().collect::<Vec<_>>()).await;
        let expected = "read ok data\nread ok inner\nlist ok inner\nstat ok 4 4\nstat ok 4 5\nread noent\nread badf\nlist notdir\n";
        assert_eq!(seen, printed(expected), "{area:?}");
    }
}

#[tokio::test]
async fn no_path_leads_out_of_the_workspace_or_into_another_area() {
    let prepared = Prepared::new(generous()).await;
    seed(&prepared, Area::In);
    prepared.workspace.area(Area::Out).create_dir("folder").unwrap();
    let before = prepared.tree(Area::In);
    for path in [
        "/etc/passwd",
        "/workspace/out//etc/passwd",
        "/workspace/out/../../etc/passwd",
        "/workspace/out/../../../../../../../../etc/passwd",
        "/workspace/out/folder/../../../etc/passwd",
        "/workspace/out/..",
        "/workspace/out/../in/data",
        "/workspace/skill/../in/data",
        "/workspace/out//workspace/in/data",
        "/workspace/out//proc/self/root/etc/passwd",
        "/workspace/out/../../proc/self/cwd",
    ] {
        for verb in ["read", "list", "stat", "cut", "create", "mkdir", "rmdir", "unlink", "readlink", "times"] {
            assert_eq!(prepared.run(&[verb, path]).await, printed(&format!("{verb} perm\n")), "{verb} {path}");
        }
        prepared.workspace.area(Area::Out).create("mine").unwrap();
        for words in [
            ["rename", "/workspace/out/mine", path],
            ["rename", path, "/workspace/out/stolen"],
            ["link", path, "/workspace/out/stolen"],
            ["link", "/workspace/out/mine", path],
            ["symlink", "x", path],
        ] {
            assert_eq!(prepared.run(&words).await, printed(&format!("{} perm\n", words[0])), "{words:?}");
        }
    }
    assert_eq!(prepared.tree(Area::In), before);
    assert_eq!(prepared.tree(Area::Out).keys().collect::<Vec<_>>(), ["folder", "mine"]);
    // The twin: dots are fine as long as the path stays inside.
    let inside = ["mkdir", "/workspace/out/other", "write", "/workspace/out/folder/../file", "text"];
    assert_eq!(prepared.run(&inside).await, printed("mkdir ok\nwrite ok\n"));
    assert_eq!(prepared.run(&["read", "/workspace/out/./folder/.././file"]).await, printed("read ok text\n"));
}

#[tokio::test]
async fn links_that_lead_out_are_not_followed() {
    let prepared = Prepared::new(generous()).await;
    seed(&prepared, Area::In);
    let outside = tempfile::tempdir().unwrap();
    write_host(&outside.path().join("secret"), b"secret");
    let root = prepared.workspace.ambient_root().canonicalize().unwrap();
    // As many steps up as there are folders above the area: the link then leads into the folder outside.
    let up = "../".repeat(root.components().count());
    let outside_path = outside.path().canonicalize().unwrap();
    let relative = format!("{up}{}", outside_path.strip_prefix("/").unwrap().display());
    for target in [format!("{relative}/secret"), "../in/data".to_owned(), "../../../etc/passwd".to_owned()] {
        let out = prepared.workspace.area(Area::Out);
        for (path, up) in [("link", ""), ("folder/link", "../")] {
            out.create_dir_all("folder").unwrap();
            let target = format!("{up}{target}");
            // Made by the host, so that the test doesn't depend on whether the guest may make it.
            out.symlink_contents(&target, path).unwrap();
            let guest = format!("/workspace/out/{path}");
            for verb in ["read", "list", "stat", "cut", "fdtimes", "times"] {
                assert_eq!(prepared.run(&[verb, &guest]).await, printed(&format!("{verb} perm\n")), "{target}");
            }
            for verb in ["write", "append", "existing", "resize", "poke", "pwrite"] {
                let seen = prepared.run(&[verb, &guest, "1"]).await;
                assert_eq!(seen, printed(&format!("{verb} perm\n")), "{target}");
            }
            // What acts on the link itself is fine.
            let seen = prepared.run(&["readlink", &guest, "unlink", &guest]).await;
            assert_eq!(seen, printed(&format!("readlink ok {target}\nunlink ok\n")));
        }
        // A link to a folder in the middle of a path.
        let (parent, name) = target.rsplit_once('/').unwrap();
        out.symlink_contents(parent, "way").unwrap();
        let through = format!("/workspace/out/way/{name}");
        for verb in ["read", "stat", "unlink", "mkdir", "rmdir", "create"] {
            assert_eq!(prepared.run(&[verb, &through]).await, printed(&format!("{verb} perm\n")), "{target}");
        }
        out.remove_file("way").unwrap();
    }
    assert_eq!(read_host(&outside.path().join("secret")), b"secret");
    assert_eq!(prepared.tree(Area::In).get("data").map(|data| data.ends_with(" data")), Some(true));
}

#[tokio::test]
async fn links_a_guest_makes_work_inside_and_dangle_outside() {
    let prepared = Prepared::new(generous()).await;
    let seen = prepared
        .run(&[
            "write",
            "/workspace/out/file",
            "text",
            "symlink",
            "file",
            "/workspace/out/a",
            "symlink",
            "a",
            "/workspace/out/b",
            "read",
            "/workspace/out/b",
            "lstat",
            "/workspace/out/b",
            // Written through a link that dangles inside: the target appears there.
            "symlink",
            "made",
            "/workspace/out/dangling",
            "write",
            "/workspace/out/dangling",
            "new",
            "read",
            "/workspace/out/made",
            // A circle.
            "symlink",
            "two",
            "/workspace/out/one",
            "symlink",
            "one",
            "/workspace/out/two",
            "read",
            "/workspace/out/one",
            // Targets that are refused when the link is made, or when it is used.
            "symlink",
            "/etc/passwd",
            "/workspace/out/absolute",
            "read",
            "/workspace/out/absolute",
            "symlink",
            "../nowhere",
            "/workspace/out/up",
            "write",
            "/workspace/out/up",
            "text",
            "read",
            "/workspace/out/up",
        ])
        .await;
    let expected = "write ok\nsymlink ok\nsymlink ok\nread ok text\nlstat ok 7 1\nsymlink ok\nwrite ok\nread ok new\n\
                    symlink ok\nsymlink ok\nread loop\nsymlink perm\nread noent\nsymlink ok\nwrite perm\nread perm\n";
    assert_eq!(seen, printed(expected));
    let root = prepared.workspace.root();
    let names: Vec<String> = root.entries().unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(names.len(), Area::ALL.len(), "{names:?}");
    // A chain of links longer than any system follows, made one by one: it ends, whatever it ends with.
    let out = prepared.workspace.area(Area::Out);
    for step in 0..100 {
        out.symlink_contents(format!("c{}", step + 1), format!("c{step}")).unwrap();
    }
    out.create("c100").unwrap().write_all(b"end").unwrap();
    assert_eq!(prepared.run(&["read", "/workspace/out/c0"]).await, printed("read loop\n"));
    assert_eq!(prepared.run(&["read", "/workspace/out/c90"]).await, printed("read ok end\n"));
}

#[tokio::test]
async fn the_host_does_not_follow_links_that_a_guest_left() {
    let words = [
        "symlink",
        "../../etc/passwd",
        "/workspace/out/l",
        "symlink",
        "../in",
        "/workspace/out/inputs",
        "symlink",
        "report",
        "/workspace/out/harmless",
        "mkdir",
        "/workspace/out/d",
        "symlink",
        "../../skill/probe.wat",
        "/workspace/out/d/script",
        "write",
        "/workspace/out/report",
        "fine",
    ];
    let mut config = probe(&words);
    config.inputs = vec![Input::bytes("secret", "secret")];
    let result = run(config.clone()).await;
    assert_eq!(Seen::of(&result.run), printed("symlink ok\nsymlink ok\nsymlink ok\nmkdir ok\nsymlink ok\nwrite ok\n"));
    let collected: Vec<_> =
        result.outputs.iter().map(|output| (output.file.path.as_str(), output.content.as_deref())).collect();
    assert_eq!(collected, [("report", Some(&b"fine"[..]))]);
    let skipped: Vec<_> = result.skipped.iter().map(|skipped| (skipped.path.as_str(), skipped.reason)).collect();
    let link = SkipReason::Link;
    assert_eq!(skipped, [("d/script", link), ("harmless", link), ("inputs", link), ("l", link)]);
    // Copied to a folder it is the same.
    let folder = tempfile::tempdir().unwrap();
    config.output =
        OutputDelivery::Folder { path: folder.path().to_owned(), overwrite: skillcell::workspace::Overwrite::Refuse };
    run(config).await;
    let names: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["report"]);
    // And so it is for a single file that the host is asked for.
    let prepared = Prepared::new(generous()).await;
    prepared.run(&words).await;
    for path in ["/workspace/out/l", "/workspace/out/inputs", "/workspace/out/harmless", "/workspace/out/d/script"] {
        let read = prepared.runtime.read_file(&prepared.handle, &path.parse().unwrap(), 1 << 20).await;
        assert_eq!(read.unwrap_err().kind(), ErrorKind::PathDenied, "{path}");
        let written = prepared.runtime.write_file(&prepared.handle, &path.parse().unwrap(), b"x").await;
        written.unwrap();
        let lstat = prepared.run(&["lstat", path]).await;
        assert_eq!(lstat, printed("lstat ok 4 1\n"), "the link itself is replaced");
    }
    let report = prepared.runtime.read_file(&prepared.handle, &"/workspace/out/report".parse().unwrap(), 9).await;
    assert_eq!(&report.unwrap()[..], b"fine");
}

#[tokio::test]
async fn mounted_folders_are_seen_and_read_only() {
    let host = tempfile::tempdir().unwrap();
    let folder = host.path().join("shared");
    std::fs::create_dir(&folder).unwrap();
    std::fs::create_dir(folder.join("sub")).unwrap();
    std::fs::create_dir(folder.join("empty")).unwrap();
    write_host(&folder.join("data"), b"data");
    write_host(&folder.join("sub/inner"), b"inner");
    write_host(&host.path().join("secret"), b"secret");
    std::os::unix::fs::symlink("../secret", folder.join("up")).unwrap();
    std::os::unix::fs::symlink("sub/inner", folder.join("fine")).unwrap();
    let inputs = [Input::mounted(&folder).unwrap(), Input::bytes("copied", "copied")];
    let prepared = Prepared::with(&wat("probe.wat"), generous(), &inputs).await;
    seed(&prepared, Area::Tmp);
    assert_eq!(prepared.workspace.mounts().len(), 1, "the folder is mounted, not copied");
    let line = "read @/data read @/sub/inner read @/fine read @/up list @ list /workspace/in read /workspace/in/copied \
                read @/../copied read @/../../../secret";
    let words = |line: &str| -> Vec<String> {
        line.replace('@', "/workspace/in/shared").split_whitespace().map(str::to_owned).collect()
    };
    let run = async |line: &str| {
        let words = words(line);
        prepared.run(&words.iter().map(String::as_str).collect::<Vec<_>>()).await
    };
    let expected = "read ok data\nread ok inner\nread ok inner\nread perm\nlist ok data empty fine sub up\n\
                    list ok copied shared\nread ok copied\nread perm\nread perm\n";
    assert_eq!(run(line).await, printed(expected));
    let state = |path: &str| std::fs::symlink_metadata(folder.join(path)).unwrap().modified().unwrap();
    let before = ["", "data", "sub", "sub/inner", "empty"].map(state);
    for (line, _) in CHANGES {
        let line = line.replace("/folder", "/sub");
        let verb = line.split(' ').next().unwrap().to_owned();
        assert_eq!(run(&line).await, printed(&format!("{verb} perm\n")), "{line}");
    }
    assert_eq!(["", "data", "sub", "sub/inner", "empty"].map(state), before);
    assert_eq!(
        (read_host(&folder.join("data")), read_host(&host.path().join("secret"))),
        (b"data".into(), b"secret".into())
    );
    // The host may go on working in it, and the guest sees that.
    write_host(&folder.join("later"), b"later");
    assert_eq!(run("read @/later").await, printed("read ok later\n"));
    // A swap of the folder's path changes nothing: the folder that was given is the one that is seen.
    #[expect(clippy::disallowed_methods, reason = "the test plays somebody who exchanges the folder")]
    std::fs::rename(&folder, host.path().join("moved")).unwrap();
    std::fs::create_dir(&folder).unwrap();
    write_host(&folder.join("data"), b"swapped");
    assert_eq!(run("read @/data").await, printed("read ok data\n"));
    // The mount ends with the run; what it showed stays.
    let moved = host.path().join("moved");
    prepared.runtime.cleanup(&prepared.handle).await.unwrap();
    drop(prepared);
    assert_eq!(read_host(&moved.join("sub/inner")), b"inner");
}
