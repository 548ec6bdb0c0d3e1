//! Runtime `docker` with a daemon that can't see this machine's folders: the same world, copied.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::time::Duration;

use serde_json::json;
use skillcell::policy::Limits;
use skillcell::runtime::Termination;
use skillcell::workspace::{Area, EntryKind, GuestEntry};
use skillcell::{ErrorKind, Result};

use super::docker_support::{Prepared, Setup};

fn copied() -> Setup {
    let files = vec![(Area::Skill, "a.txt", "skill"), (Area::In, "b.txt", "in")];
    Setup { files, ..Setup::config(json!({"files": "copy"})) }
}

async fn read(prepared: &Prepared, path: &str, limit: u64) -> Result<bytes::Bytes> {
    prepared.runtime.read_file(&prepared.handle, &path.parse().unwrap(), limit).await
}

async fn write(prepared: &Prepared, path: &str, data: &[u8]) -> Result<()> {
    prepared.runtime.write_file(&prepared.handle, &path.parse().unwrap(), data).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_world() {
    let prepared = copied().prepare().await;
    assert_eq!(prepared.handle.backend()["files"], "copy");
    assert_eq!(prepared.output("pwd; cat a.txt ../in/b.txt").await, "/workspace/skill\nskillin");
    for attempt in [
        "echo x > a.txt",
        "rm -f a.txt",
        "touch ../in/b.txt",
        "echo x > /workspace/x",
        "echo x > /workspace/site/x",
        "rm -f /workspace/.skillcell-init",
        "mv /workspace/skill /workspace/elsewhere",
    ] {
        assert!(!prepared.shell(attempt).await.success(), "{attempt}");
    }
    prepared.output("mkdir /workspace/out/d; echo 1 > /workspace/out/d/x; echo 2 > /workspace/tmp/y").await;
    assert_eq!(prepared.output("cat /workspace/out/d/x /workspace/tmp/y").await, "1\n2");
    prepared.cleanup().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_read_written_and_listed_in_the_container() {
    let prepared = copied().prepare().await;
    assert_eq!(read(&prepared, "/workspace/skill/a.txt", 5).await.unwrap(), "skill");
    let data: Vec<u8> = (0..300_000u32).flat_map(u32::to_le_bytes).collect();
    write(&prepared, "/workspace/out/new/deep/data.bin", &data).await.unwrap();
    assert_eq!(read(&prepared, "/workspace/out/new/deep/data.bin", 2 << 20).await.unwrap(), data);
    assert_eq!(
        prepared.output("cd /workspace/out/new/deep; wc -c < data.bin; rm data.bin; echo x > mine").await,
        "1200000"
    );
    write(&prepared, "/workspace/out/empty", b"").await.unwrap();
    let entry = |name: &str, kind, size| GuestEntry { name: name.into(), kind, size };
    let list = |path: &str| {
        let path = path.parse().unwrap();
        let prepared = &prepared;
        async move { prepared.runtime.list_files(&prepared.handle, &path).await }
    };
    prepared.output("cd /workspace/out; ln -s /etc/passwd link; mkfifo pipe").await;
    assert_eq!(
        list("/workspace/out").await.unwrap(),
        [
            entry("empty", EntryKind::File, 0),
            entry("link", EntryKind::Link, 0),
            entry("new", EntryKind::Folder, 0),
            entry("pipe", EntryKind::Special, 0)
        ]
    );
    let world: Vec<String> = list("/workspace").await.unwrap().into_iter().map(|entry| entry.name).collect();
    assert_eq!(world, ["in", "out", "site", "skill", "tmp"]);
    assert_eq!(list("/workspace/none").await.unwrap_err().kind(), ErrorKind::NotFound);
    prepared.cleanup().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn links_lead_nowhere_and_limits_hold() {
    let prepared = copied().prepare().await;
    prepared
        .output("cd /workspace/out; ln -s /etc/passwd l; ln -s /workspace/skill d; mkdir f; mkfifo p; echo 123456 > six; ln -s none dangling")
        .await;
    for (path, limit, kind) in [
        ("/workspace/out/l", 9999, ErrorKind::PathDenied),
        ("/workspace/out/d/a.txt", 9999, ErrorKind::PathDenied),
        ("/workspace/out/f", 9999, ErrorKind::PathDenied),
        ("/workspace/out/p", 9999, ErrorKind::PathDenied),
        ("/workspace/out/six/x", 9999, ErrorKind::PathDenied),
        ("/workspace/out/none", 9999, ErrorKind::NotFound),
        ("/workspace/out/six", 6, ErrorKind::LimitExceeded),
    ] {
        let error = read(&prepared, path, limit).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{path}: {error}");
    }
    assert_eq!(read(&prepared, "/workspace/out/six", 7).await.unwrap(), "123456\n");
    for path in [
        "/workspace/out/d/new.txt",
        "/workspace/skill/x",
        "/workspace/out",
        "/workspace/out/f",
        "/workspace/elsewhere/x",
    ] {
        assert_eq!(write(&prepared, path, b"x").await.unwrap_err().kind(), ErrorKind::PathDenied, "{path}");
    }
    // A link is replaced, not followed.
    write(&prepared, "/workspace/out/dangling", b"mine").await.unwrap();
    assert_eq!(
        prepared
            .output("cat /workspace/out/dangling; ls /workspace/skill; ls /workspace/out/none 2>/dev/null || true")
            .await,
        "minea.txt"
    );
    prepared.cleanup().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn outputs_are_fetched() {
    let prepared = copied().prepare().await;
    prepared.output("cd /workspace/out; mkdir -p a/b; echo 1 > a/b/x; ln a/b/x hard; ln -s /etc/passwd link; printf '#!/bin/sh' > run; chmod 755 run").await;
    prepared.runtime.sync_outputs(&prepared.handle).await.unwrap();
    let out = prepared.workspace.area(Area::Out);
    assert_eq!(
        (out.read_to_string("a/b/x").unwrap(), out.read_to_string("hard").unwrap()),
        ("1\n".into(), "1\n".into())
    );
    assert!(out.symlink_metadata("link").unwrap().is_symlink());
    // Again: what is gone there is gone here.
    prepared.output("rm -r /workspace/out/a; echo 2 > /workspace/out/y").await;
    prepared.runtime.sync_outputs(&prepared.handle).await.unwrap();
    assert!(out.symlink_metadata("a").is_err());
    assert_eq!(out.read_to_string("y").unwrap(), "2\n");
    prepared.cleanup().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn outputs_over_the_limit_are_not_fetched() {
    let setup = Setup::limits(Limits { disk: 1000, ..Limits::default() });
    let prepared = Setup { config: json!({"files": "copy"}), ..setup }.prepare().await;
    prepared.output("cd /workspace/out; for i in 1 2 3; do head -c 500 /dev/zero > $i; done").await;
    let error = prepared.runtime.sync_outputs(&prepared.handle).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LimitExceeded, "{error}");
    prepared.cleanup().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_are_ended_as_anywhere() {
    let setup = Setup::limits(Limits { wall_time: Duration::from_secs(4), ..Limits::default() });
    let prepared = Setup { config: json!({"files": "copy"}), ..setup }.prepare().await;
    assert_eq!(prepared.shell("setsid sleep 1020 & sleep 1021").await.termination, Termination::TimedOut);
    assert_eq!(prepared.processes().await, Vec::<String>::new());
    prepared.cleanup().await;
}
