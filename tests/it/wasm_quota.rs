//! The disk limit of runtime `wasm` under attack, on both previews: whatever a guest does with names and descriptors,
//! no more comes to lie in the workspace than may, and the run that asks for more ends by name. Each attack has a twin
//! that stays within the limit and ends well.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::io::Write;

use skillcell::policy::{Dimension, Enforcement, Limits};
use skillcell::runtime::Termination;
use skillcell::workspace::{Area, MAX_OUTPUT_DEPTH};

use crate::wasm_support::{Prepared, Seen, component, generous, printed, probe, run, wat, write_host};

/// A megabyte is sixteen writes of the probe.
const MEGABYTE: u64 = 1 << 20;

fn small() -> Limits {
    Limits { disk: MEGABYTE, files: 20, ..generous() }
}

/// The probe as a module (preview 1) and as a component (preview 2), each on a handle of its own.
async fn both(limits: &Limits) -> [(&'static str, Prepared); 2] {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("probe.wasm");
    write_host(&path, &component("probe"));
    [
        ("module", Prepared::with(&wat("probe.wat"), limits.clone(), &[]).await),
        ("component", Prepared::with(&path, limits.clone(), &[]).await),
    ]
}

/// What lies in an area: bytes of all names, and entries.
fn lies(prepared: &Prepared, area: Area) -> (u64, u64) {
    let (mut bytes, mut entries) = (0, 0);
    let mut folders = vec![prepared.workspace.area(area).try_clone().unwrap()];
    while let Some(folder) = folders.pop() {
        for entry in folder.entries().unwrap() {
            let entry = entry.unwrap();
            let metadata = entry.metadata().unwrap();
            entries += 1;
            if metadata.is_file() {
                bytes += metadata.len();
            } else if metadata.is_dir() {
                folders.push(folder.open_dir(entry.file_name()).unwrap());
            }
        }
    }
    (bytes, entries)
}

/// The line's run ends at the disk limit, with one event, and no more than the limit lies there.
async fn held(line: &str, setup: impl Fn(&Prepared)) {
    for (form, prepared) in both(&small()).await {
        setup(&prepared);
        let seen = prepared.run(&line.split_whitespace().collect::<Vec<_>>()).await;
        assert_eq!(seen.termination, Termination::DiskLimit, "{form}: {line}: {seen:?}");
        assert_eq!(prepared.limits_hit(), ["disk_limit"], "{form}: {line}");
        let (bytes, entries) = lies(&prepared, Area::Out);
        assert!(bytes <= MEGABYTE && entries <= 20, "{form}: {line}: {bytes} bytes, {entries} entries");
        // The host is well, and what is there can still be read.
        assert_eq!(prepared.run(&["say", "alive"]).await, printed("alive"), "{form}: {line}");
    }
}

/// The line's run prints this and ends well.
async fn allowed(line: &str, output: &str) {
    for (form, prepared) in both(&small()).await {
        let seen = prepared.run(&line.split_whitespace().collect::<Vec<_>>()).await;
        assert_eq!(seen, printed(output), "{form}: {line}");
        assert_eq!(prepared.limits_hit(), Vec::<&str>::new(), "{form}: {line}");
    }
}

#[tokio::test]
async fn plain_growth_is_held_in_every_way_of_writing() {
    for verb in ["fill @", "double @", "resize @ 1048577", "poke @ 1048576", "pwrite @ 1048576"] {
        held(&verb.replace('@', "/workspace/out/f"), |_| {}).await;
    }
    // To the last byte, and again after it was cut or removed.
    allowed(
        "resize /workspace/out/f 1048576 cut /workspace/out/f poke /workspace/out/f 1048575 resize /workspace/out/f 0 \
         pwrite /workspace/out/f 1048575 unlink /workspace/out/f resize /workspace/tmp/g 1048576",
        "resize ok\ncut ok\npoke ok\nresize ok\npwrite ok\nunlink ok\nresize ok\n",
    )
    .await;
    // Over what is there already nothing grows.
    allowed("resize /workspace/out/f 1048576 existing /workspace/out/f text", "resize ok\nexisting ok\n").await;
}

#[tokio::test]
async fn both_areas_share_one_limit_and_so_do_runs() {
    held("resize /workspace/tmp/f 600000 resize /workspace/out/f 600000", |_| {}).await;
    for (form, prepared) in both(&small()).await {
        // What the host or an earlier run left counts, and what was removed since doesn't.
        prepared.workspace.area(Area::Tmp).create("host").unwrap().write_all(&[0; 600_000]).unwrap();
        let words = ["resize", "/workspace/out/f", "600000"];
        assert_eq!(prepared.run(&words).await.termination, Termination::DiskLimit, "{form}");
        prepared.workspace.area(Area::Tmp).remove_file("host").unwrap();
        assert_eq!(prepared.run(&words).await, printed("resize ok\n"), "{form}");
        assert_eq!(prepared.run(&words).await, printed("resize ok\n"), "{form}: it is that large already");
        assert_eq!(prepared.run(&["resize", "/workspace/out/g", "600000"]).await.termination, Termination::DiskLimit);
    }
}

#[tokio::test]
async fn runs_at_once_on_one_handle_share_the_limit() {
    for (form, prepared) in both(&small()).await {
        let fill = |name: &str| prepared.command(&["fill", &format!("/workspace/out/{name}")]);
        let (a, b) = (fill("a"), fill("b"));
        let (a, b) = tokio::join!(prepared.run_command(&a), prepared.run_command(&b));
        assert_eq!((&a.termination, &b.termination), (&Termination::DiskLimit, &Termination::DiskLimit), "{form}");
        let (bytes, entries) = lies(&prepared, Area::Out);
        assert!(bytes <= MEGABYTE && entries <= 2, "{form}: {bytes} bytes, {entries} entries");
    }
}

#[tokio::test]
async fn a_guest_that_keeps_moving_its_folders_is_held() {
    held("mkdir /workspace/out/a hide /workspace/out/a/f /workspace/out/a /workspace/out/b", |_| {}).await;
    // From one area to the other and back.
    held("mkdir /workspace/out/a hide /workspace/out/a/f /workspace/out/a /workspace/tmp/b", |_| {}).await;
    allowed(
        "mkdir /workspace/out/a resize /workspace/out/a/f 1048576 rename /workspace/out/a /workspace/tmp/b \
         rename /workspace/tmp/b/f /workspace/out/f unlink /workspace/out/f rmdir /workspace/tmp/b \
         resize /workspace/out/f 1048576",
        "mkdir ok\nresize ok\nrename ok\nrename ok\nunlink ok\nrmdir ok\nresize ok\n",
    )
    .await;
}

#[tokio::test]
async fn files_without_a_name_count_until_they_are_closed() {
    held("orphans /workspace/out/f 100", |_| {}).await;
    allowed("orphans /workspace/out/f 15 write /workspace/out/g x", "orphans ok 15\nwrite ok\n").await;
    // Far more than the limit, one after the other.
    allowed("reuse /workspace/out/f 100 resize /workspace/out/f 1048576", "reuse ok 100\nresize ok\n").await;
    // They are closed with their run.
    for (form, prepared) in both(&small()).await {
        for _ in 0..3 {
            assert_eq!(
                prepared.run(&["orphans", "/workspace/out/f", "15"]).await,
                printed("orphans ok 15\n"),
                "{form}"
            );
        }
    }
}

#[tokio::test]
async fn every_name_of_a_file_counts() {
    held("resize /workspace/out/f 100000 links /workspace/out/f 100", |_| {}).await;
    held("write /workspace/out/f x links /workspace/out/f 9 resize /workspace/out/f 200000", |_| {}).await;
    held("write /workspace/out/f x links /workspace/out/f 100", |_| {}).await;
    allowed(
        "resize /workspace/out/f 100000 links /workspace/out/f 9 unlink /workspace/out/f0 unlink /workspace/out/f1 \
         resize /workspace/out/g 200000",
        "resize ok\nlinks ok 9\nunlink ok\nunlink ok\nresize ok\n",
    )
    .await;
}

#[tokio::test]
async fn many_small_entries_of_any_kind_are_held() {
    held("files /workspace/out/f 100", |_| {}).await;
    for words in ["mkdir @", "symlink x @", "create @", "write @ x", "resize @ 0"] {
        held(&format!("files /workspace/out/f 20 {}", words.replace('@', "/workspace/out/one")), |_| {}).await;
    }
    // One that replaces another is no more than before.
    allowed(
        "files /workspace/out/f 19 mkdir /workspace/out/d rmdir /workspace/out/d symlink f1 /workspace/out/l \
         unlink /workspace/out/l create /workspace/out/n rename /workspace/out/n /workspace/out/f1 mkdir /workspace/tmp/d \
         rename /workspace/out/f2 /workspace/out/f2",
        "files ok 19\nmkdir ok\nrmdir ok\nsymlink ok\nunlink ok\ncreate ok\nrename ok\nmkdir ok\nrename ok\n",
    )
    .await;
    // A call that fails costs nothing.
    allowed(
        "files /workspace/out/f 19 mkdir /workspace/out/f1 create /workspace/out/f1 symlink x /workspace/out/f1 \
         link /workspace/out/f1 /workspace/out/f2 mkdir /workspace/out/no/d create /workspace/out/no/f mkdir /workspace/out/d",
        "files ok 19\nmkdir exist\ncreate exist\nsymlink exist\nlink exist\nmkdir noent\ncreate noent\nmkdir ok\n",
    )
    .await;
}

#[tokio::test]
async fn folders_lie_only_as_deep_as_the_host_can_collect_and_remove() {
    let deep = MAX_OUTPUT_DEPTH;
    for (form, prepared) in both(&generous()).await {
        let seen = prepared.run(&["nest", "/workspace/out", "26000"]).await;
        assert_eq!(seen, printed(&format!("nest nametoolong {deep}\n")), "{form}");
        assert_eq!(prepared.limits_hit(), ["depth_limit"], "{form}");
        // Nor by putting one tall tree into another.
        let half = (deep / 2).to_string();
        let words = ["mkdir", "/workspace/tmp/a", "mkdir", "/workspace/tmp/b"];
        assert_eq!(prepared.run(&words).await, printed("mkdir ok\nmkdir ok\n"), "{form}");
        let nest = ["nest", "/workspace/tmp/a", &half, "nest", "/workspace/tmp/b", &half];
        assert_eq!(prepared.run(&nest).await, printed(&format!("nest ok {half}\nnest ok {half}\n")), "{form}");
        let bottom = format!("/workspace/tmp/b/{}", vec!["x"; deep / 2].join("/"));
        let middle = format!("/workspace/tmp/b/{}", vec!["x"; deep / 2 - 2].join("/"));
        let (into_bottom, into_middle) = (format!("{bottom}/y"), format!("{middle}/y"));
        let seen = prepared.run(&["rename", "/workspace/tmp/a", &into_bottom]).await;
        assert_eq!(seen, printed("rename nametoolong\n"), "{form}");
        // Two higher it fits, to the last folder; and what is moved out makes room.
        let seen = prepared.run(&["rename", "/workspace/tmp/a", &into_middle]).await;
        assert_eq!(seen, printed("rename ok\n"), "{form}");
        let seen = prepared.run(&["rename", &into_middle, "/workspace/tmp/a", "nest", &middle, "1"]).await;
        assert_eq!(seen.stdout, "rename ok\nnest exist 0\n", "{form}");
        prepared.runtime.cleanup(&prepared.handle).await.unwrap();
        prepared.workspace.remove().unwrap();
    }
}

#[tokio::test]
async fn a_disk_limit_that_was_asked_for_is_enforced() {
    let mut config = probe(&["resize", "/workspace/out/f", "1000"]);
    config.limits.disk = 1_000;
    config.limits.requested.disk = true;
    let result = run(config.clone()).await;
    assert_eq!(Seen::of(&result.run), printed("resize ok\n"));
    assert_eq!(result.enforcement.control(Dimension::Disk), Enforcement::Enforced);
    config.args[2] = "1001".to_owned();
    let result = run(config).await;
    assert_eq!((result.run.termination, result.audit.denials), (Termination::DiskLimit, 1));
}
