//! Every call that runtime `wasm` refuses a guest is one event of the audit trail, on both previews, with the path as
//! the guest sees it; and what is allowed leaves none.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::sync::{Arc, Mutex};

use skillcell::audit::{AuditEvent, Decision, Layer};
use skillcell::policy::Limits;
use skillcell::runtime::{OutputSink, Stream, Termination};

use crate::wasm_support::{Prepared, component, generous, printed, wat, write_host};

/// The probe as a module and as a component.
async fn both(limits: Limits) -> [Prepared; 2] {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("probe.wasm");
    write_host(&path, &component("probe"));
    [Prepared::with(&wat("probe.wat"), limits.clone(), &[]).await, Prepared::with(&path, limits, &[]).await]
}

/// The denials of a run, whole, beside what is expected: action, object, reason. What no test can know (time, run) is
/// taken from the event; its number must be right.
fn assert_denials(prepared: &Prepared, layer: Layer, expected: &[(&'static str, &str, &str)], after: &str) {
    let denials: Vec<AuditEvent> =
        prepared.sink.events().into_iter().filter(|event| event.decision == Decision::Deny).collect();
    let expected: Vec<AuditEvent> = expected
        .iter()
        .zip(&denials)
        .map(|((action, object, reason), seen)| AuditEvent {
            seq: seen.seq,
            time: seen.time,
            run: prepared.handle.audit().run(),
            runtime: "wasm".to_owned(),
            layer,
            decision: Decision::Deny,
            action,
            object: (*object).to_owned(),
            reason: (*reason).to_owned(),
        })
        .collect();
    assert_eq!(denials, expected, "{after}");
    let all = prepared.sink.events();
    assert!(all.iter().map(|event| event.seq).eq(0..all.len() as u64), "{after}: numbers have gaps");
}

async fn refused(line: &str, action: &'static str, object: &str, reason: &str) {
    for prepared in both(generous()).await {
        prepared.workspace.area(skillcell::workspace::Area::In).create("data").unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        let seen = prepared.run(&words).await;
        assert_eq!(seen, printed(&format!("{} perm\n", words[0])), "{line}");
        assert_denials(&prepared, Layer::Files, &[(action, object, reason)], line);
    }
}

#[tokio::test]
async fn paths_that_lead_out_are_events() {
    let out = "it leads out of /workspace/out";
    for (verb, action) in [
        ("read", "open"),
        ("list", "open"),
        ("cut", "open"),
        ("create", "open"),
        ("stat", "stat"),
        ("lstat", "stat"),
        ("readlink", "read_link"),
        ("times", "set_times"),
        ("mkdir", "create_folder"),
        ("rmdir", "remove_folder"),
        ("unlink", "remove_file"),
    ] {
        for path in ["/workspace/out/../../etc/passwd", "/workspace/out//etc/passwd"] {
            refused(&format!("{verb} {path}"), action, path, out).await;
        }
    }
    refused("symlink x /workspace/out/../in/l", "symlink", "/workspace/out/../in/l", out).await;
    refused("symlink /etc/passwd /workspace/out/l", "symlink", "/workspace/out/l", "a link may not be absolute").await;
    for (verb, action) in [("rename", "rename"), ("link", "link")] {
        let object = "/workspace/out/../in/data to /workspace/out/x";
        refused(&format!("{verb} /workspace/out/../in/data /workspace/out/x"), action, object, out).await;
    }
    // Outside of everything: the first folder is asked.
    let object = "/workspace/skill//etc/passwd";
    refused("read /etc/passwd", "open", object, "it leads out of /workspace/skill").await;
}

#[tokio::test]
async fn writes_to_read_only_parts_are_events() {
    let read_only = "/workspace/in is read-only";
    for (line, action) in [
        ("write /workspace/in/data x", "open"),
        ("append /workspace/in/data x", "open"),
        ("create /workspace/in/new", "open"),
        ("cut /workspace/in/data", "open"),
        ("mkdir /workspace/in/new", "create_folder"),
        ("rmdir /workspace/in/data", "remove_folder"),
        ("unlink /workspace/in/data", "remove_file"),
        ("times /workspace/in/data", "set_times"),
        ("fdtimes /workspace/in/data", "set_times"),
        ("resizer /workspace/in/data 9", "set_size"),
    ] {
        refused(line, action, line.split(' ').nth(1).unwrap(), read_only).await;
    }
    for (verb, action) in [("rename", "rename"), ("link", "link")] {
        let object = "/workspace/in/data to /workspace/out/x";
        refused(&format!("{verb} /workspace/in/data /workspace/out/x"), action, object, read_only).await;
    }
    refused("symlink x /workspace/in/l", "symlink", "/workspace/in/l", read_only).await;
}

#[tokio::test]
async fn a_missing_right_and_a_passed_limit_are_events() {
    for prepared in both(generous()).await {
        // On a descriptor that was opened for reading.
        let words = ["write", "/workspace/out/f", "x", "resizer", "/workspace/out/f", "9"];
        let seen = prepared.run(&words).await;
        assert!(seen.stdout.starts_with("write ok\nresizer ") && !seen.stdout.contains("resizer ok"), "{seen:?}");
        let denial = ("set_size", "/workspace/out/f", "it was opened for reading only");
        assert_denials(&prepared, Layer::Files, &[denial], "resizer");
    }
    for prepared in both(Limits { disk: 1_000, ..generous() }).await {
        let seen = prepared.run(&["resize", "/workspace/tmp/./f", "1001"]).await;
        assert_eq!(seen.termination, Termination::DiskLimit);
        let reason = "the limit of 1000 bytes in the writable folders is reached";
        assert_denials(&prepared, Layer::Limit, &[("disk_limit", "/workspace/tmp/f", reason)], "bytes");
    }
    for prepared in both(Limits { files: 1, ..generous() }).await {
        let seen = prepared.run(&["mkdir", "/workspace/out/a", "create", "/workspace/out/b"]).await;
        assert_eq!(seen.termination, Termination::DiskLimit);
        let reason = "the limit of 1 files in the writable folders is reached";
        assert_denials(&prepared, Layer::Limit, &[("disk_limit", "/workspace/out/b", reason)], "files");
    }
}

#[tokio::test]
async fn what_is_allowed_or_merely_fails_is_no_event() {
    for prepared in both(generous()).await {
        let line = "write /workspace/out/f text read /workspace/out/f stat /workspace/out/f mkdir /workspace/out/d \
                    rename /workspace/out/f /workspace/out/d/f symlink d/f /workspace/out/l read /workspace/out/l \
                    read /workspace/out/none mkdir /workspace/out/d rmdir /workspace/out/d list /workspace/out/l";
        let seen = prepared.run(&line.split_whitespace().collect::<Vec<_>>()).await;
        let expected = "write ok\nread ok text\nstat ok 4 4\nmkdir ok\nrename ok\nsymlink ok\nread ok text\n\
                        read noent\nmkdir exist\nrmdir notempty\nlist notdir\n";
        assert_eq!(seen, printed(expected));
        assert_denials(&prepared, Layer::Files, &[], line);
    }
}

#[tokio::test]
async fn hostile_paths_are_escaped_and_floods_are_counted() {
    let prepared = Prepared::new(generous()).await;
    let path = "/workspace/out/../\n{\"seq\":0}\u{1b}[2J\u{202e}";
    assert_eq!(prepared.run(&["read", path]).await, printed("read perm\n"));
    let shown = "/workspace/out/../\\u{a}{\"seq\":0}\\u{1b}[2J\\u{202e}";
    assert_denials(&prepared, Layer::Files, &[("open", shown, "it leads out of /workspace/out")], "escapes");
    // More than are kept one by one.
    let words: Vec<&str> = std::iter::repeat_n(["stat", "/workspace/out/../x"], 1_500).flatten().collect();
    let seen = prepared.run(&words).await;
    assert_eq!(seen.stdout.lines().filter(|line| *line == "stat perm").count(), 1_500);
    let summary = prepared.handle.audit().summary();
    assert_eq!((summary.denials, summary.suppressed, summary.lost), (1_501, 501, 0));
    assert_eq!(prepared.sink.events().len() as u64, summary.events);
}

#[tokio::test]
async fn the_event_is_there_before_the_answer() {
    /// Counts the denials of the trail each time the guest says something.
    struct Watch(Arc<skillcell::audit::MemorySink>, Mutex<Vec<usize>>);
    impl OutputSink for Watch {
        fn write(&self, _stream: Stream, _bytes: &[u8]) {
            let denials = self.0.events().iter().filter(|event| event.decision == Decision::Deny).count();
            self.1.lock().unwrap().push(denials);
        }
    }
    let prepared = Prepared::new(generous()).await;
    let watch = Arc::new(Watch(prepared.sink.clone(), Mutex::default()));
    let words = ["say", "a", "stat", "/workspace/out/..", "stat", "/workspace/out/../x", "say", "b"];
    let mut command = prepared.command(&words);
    command.sink = Some(watch.clone());
    prepared.run_command(&command).await;
    let mut seen = watch.1.lock().unwrap().clone();
    assert_eq!((seen.first(), seen.last()), (Some(&0), Some(&2)));
    seen.dedup();
    // The first write after each refusal sees its event.
    assert_eq!(seen, [0, 1, 2]);
}
