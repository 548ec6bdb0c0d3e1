//! Runtime `docker`: what a hostile guest tries against its container. Every refusal has its allowed twin.

use skillcell::ErrorKind;
use skillcell::policy::OutMode;
use skillcell::runtime::RunCommand;
use skillcell::workspace::Area;
use skillcell::{NetworkPolicy, SandboxPolicy};

use super::docker_support::{Prepared, Setup, docker, shell};

#[tokio::test(flavor = "multi_thread")]
async fn the_kernel_grants_nothing() {
    let prepared = Prepared::new().await;
    let status = prepared.output("grep -E '^(Uid|Gid|Cap|NoNewPrivs|Seccomp:|Groups)' /proc/self/status").await;
    let field = |name: &str| {
        let line =
            status.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("no {name} in {status}"));
        line.split_whitespace().skip(1).map(str::to_owned).collect::<Vec<_>>()
    };
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(field(set), ["0000000000000000"], "{set}");
    }
    assert_eq!((field("NoNewPrivs"), field("Seccomp:")), (vec!["1".into()], vec!["2".into()]));
    // Docker lists the run's own group once more, podman doesn't.
    assert!(field("Groups").iter().all(|group| *group == field("Gid")[0]), "{status}");
    assert!(field("Uid").iter().all(|id| id != "0"), "{status}");
    for attempt in [
        "unshare -U true",
        "unshare -r true",
        "unshare -m true",
        "mount -t tmpfs none /workspace/tmp",
        "mount -t proc none /workspace/tmp",
        "chroot / true",
        "mknod /workspace/tmp/x c 1 3",
        "chown 0 /workspace/tmp",
        "echo 1 > /proc/sys/kernel/sysrq",
        "echo core > /proc/sys/kernel/core_pattern",
        "kill -KILL 1; sleep 0.2; false",
    ] {
        let result = prepared.shell(attempt).await;
        assert!(!result.success(), "{attempt}: {}", result.stdout.text());
    }
    // And still alive.
    assert_eq!(prepared.output("echo fine").await, "fine");
    prepared.cleanup().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_workspace_can_be_written_to() {
    let files = vec![(Area::Skill, "a", "skill"), (Area::In, "a", "in"), (Area::Site, "a", "site")];
    let prepared = Setup { files, ..Setup::default() }.prepare().await;
    for attempt in [
        "echo x > /x",
        "echo x > /etc/x",
        "echo x > /usr/bin/python3",
        "echo x > /workspace/x",
        "echo x > /.skillcell-init",
        "rm -f /.skillcell-init",
        "echo x > /workspace/skill/a",
        "echo x > /workspace/skill/new",
        "rm -f /workspace/skill/a",
        "mv /workspace/skill /workspace/elsewhere",
        "chmod 777 /workspace/skill/a",
        "touch /workspace/in/a",
        "rm -f /workspace/in/a",
        "echo x > /workspace/site/a",
        "ln /workspace/in/a /workspace/out/link",
        "echo x > /dev/x",
    ] {
        let result = prepared.shell(attempt).await;
        assert!(!result.success(), "{attempt}");
    }
    for allowed in [
        "echo x > /workspace/out/x",
        "mkdir -p /workspace/out/a/b",
        "echo x > /workspace/tmp/x",
        "echo x > /tmp/x",
        "echo x > /dev/shm/x",
    ] {
        prepared.output(allowed).await;
    }
    // Programs run from the workspace, not from the shared temporary folder.
    let program = "printf '#!/bin/sh\\necho ran\\n' > $D/p; chmod 755 $D/p; $D/p";
    assert_eq!(prepared.output(&format!("D=/workspace/tmp; {program}")).await, "ran");
    assert!(!prepared.shell(&format!("D=/tmp; {program}")).await.success());
    for (area, text) in [(Area::Skill, "skill"), (Area::In, "in"), (Area::Site, "site")] {
        assert_eq!(prepared.workspace.area(area).read_to_string("a").unwrap(), text);
    }
    prepared.cleanup().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_supervisor_and_the_first_process_are_closed() {
    let prepared = Prepared::new().await;
    for attempt in [
        // What can't be read can't be traced, not even in its first moment.
        "cat /.skillcell-init",
        "cat /proc/1/environ",
        "cat /proc/1/mem",
        "ls /proc/1/fd/",
        "ls /proc/1/root/",
        "ls /proc/$PPID/fd/",
        "cat /proc/$PPID/environ",
        "head -c 1 /proc/$PPID/mem",
        "echo x > /proc/1/fd/1",
    ] {
        let result = prepared.shell(attempt).await;
        assert!(!result.success(), "{attempt}: {}", result.stdout.text());
    }
    assert_eq!(prepared.output("ls /proc/self/fd/ | wc -l").await, "4", "three streams and the folder that is listed");
    assert!(prepared.output("cat /proc/self/environ | tr '\\0' '\\n'").await.contains("HOME="));
    prepared.cleanup().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn there_is_no_network_and_nothing_of_the_host() {
    let prepared = Prepared::new().await;
    let connect = |address: &str, port: u16| {
        let program = format!("import socket; socket.create_connection(('{address}', {port}), 2)");
        RunCommand::new(["python3".to_owned(), "-c".to_owned(), program]).unwrap()
    };
    assert_eq!(prepared.output("ls /sys/class/net").await, "lo");
    // A server on the host's loopback, which the guest must not reach.
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = server.local_addr().unwrap().port();
    for address in ["127.0.0.1", "192.0.2.1", "8.8.8.8", "::1"] {
        let result = prepared.run(&connect(address, port)).await;
        assert!(!result.success(), "{address}");
    }
    for path in ["/var/run/docker.sock", "/run/docker.sock", "/run/dbus", "/run/user"] {
        assert!(!prepared.shell(&format!("ls -d {path}")).await.success(), "{path}");
    }
    let root = prepared.workspace.ambient_root().display().to_string();
    assert!(!prepared.shell(&format!("ls -d {root}")).await.success());
    assert_eq!(prepared.output("hostname 2>/dev/null || cat /proc/sys/kernel/hostname").await, "skillcell");
    prepared.cleanup().await;

    // The twin: with the host's network the same server is reached.
    let mut policy = SandboxPolicy::default();
    policy.network.policy = NetworkPolicy::Host;
    let prepared = Setup { policy, ..Setup::default() }.prepare().await;
    let result = prepared.run(&connect("127.0.0.1", port)).await;
    assert!(result.success(), "{}", result.stderr.text());
    assert!(!prepared.handle.report().network_enforced());
    prepared.cleanup().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_and_arguments_are_not_in_the_daemons_records() {
    let prepared = Prepared::new().await;
    let mut command = shell("echo $TOKEN argument-to-hide; sleep 0.1");
    command.env.set("TOKEN", "hunter2hunter2").unwrap();
    let run = prepared.handle.backend()["container"].as_str().unwrap().to_owned();
    assert_eq!(prepared.run(&command).await.stdout.text(), "hunter2hunter2 argument-to-hide\n");
    let now = std::time::UNIX_EPOCH.elapsed().unwrap();
    let now = format!("{}.{:09}", now.as_secs(), now.subsec_nanos());
    let events = docker(&["events", "--since", "1h", "--until", &now, "--filter", &format!("container={run}")]);
    let records = docker(&["inspect", &run]) + &events;
    assert!(records.contains("exec_start"), "{records}");
    for hidden in ["hunter2hunter2", "argument-to-hide"] {
        assert!(!records.contains(hidden), "{hidden} in {records}");
    }
    prepared.cleanup().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_it_says_of_itself_is_what_the_daemon_says() {
    let prepared = Prepared::new().await;
    let backend = prepared.handle.backend().clone();
    assert_eq!(
        (&backend["isolation"], &backend["network_enforced"], &backend["files"]),
        (&"container".into(), &true.into(), &"mount".into())
    );
    let container = backend["container"].as_str().unwrap();
    let format = "{{.HostConfig.NetworkMode}} {{.HostConfig.ReadonlyRootfs}} {{.HostConfig.Privileged}} {{.HostConfig.CapDrop}} \
        {{.HostConfig.CapAdd}} {{.HostConfig.SecurityOpt}} {{.HostConfig.Memory}} {{.HostConfig.MemorySwap}} {{.HostConfig.PidsLimit}} \
        {{.HostConfig.PidMode}}|{{.HostConfig.UsernsMode}}|{{.AppArmorProfile}}|{{.Config.User}} {{.Image}}";
    let said = docker(&["inspect", "--format", format, container]);
    let apparmor = if backend["mandatory_access_control"] == "on" { "docker-default" } else { "" };
    let user = backend["container_user"].as_str().unwrap();
    let expected = format!(
        "none true false [ALL] [] [no-new-privileges] 536870912 536870912 139 ||{apparmor}|{user}:19999 {}\n",
        backend["image_id"].as_str().unwrap()
    );
    assert_eq!(said, expected);
    prepared.cleanup().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_output_mode_it_can_not_keep_is_refused() {
    let policy = SandboxPolicy { out: OutMode::ReadWriteWithoutDelete, ..SandboxPolicy::default() };
    let error = Setup { policy, ..Setup::default() }.try_prepare().await.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PolicyUnenforceable);
    let prepared = Setup::config(serde_json::json!({"workspace_output_mode": "read_only"})).prepare().await;
    assert!(!prepared.shell("echo x > /workspace/out/x").await.success());
    prepared.output("echo x > /workspace/tmp/x").await;
    prepared.cleanup().await;
}
