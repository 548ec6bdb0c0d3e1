//! The tests of one module once more, as an ordinary user with a home, in a copy of this program.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::os::unix::fs::{PermissionsExt, chown};
use std::process::Command;

/// A user that no machine has.
const USER: u32 = 54_321;

/// Runs the tests of `module`, but for the one that calls this, and gives what was printed. Only root can.
pub(crate) fn tests_of(module: &str) -> String {
    let place = tempfile::tempdir().unwrap();
    std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let home = place.path().join("home");
    std::fs::DirBuilder::new().create(&home).unwrap();
    chown(&home, Some(USER), Some(USER)).unwrap();
    // By another process: this one forks all the time, and a program that is open for writing can't be started.
    let script = r#"
        set -e
        cp "$1" "$2/it"; chmod 755 "$2/it"
        printf 'root:x:0:0:root:/root:/bin/sh\nordinary:x:%s:%s::%s:/bin/sh\n' "$3" "$3" "$2/home" > "$2/passwd"
        mount --bind "$2/passwd" /etc/passwd
        cd "$2"
        exec setpriv --reuid "$3" --regid "$3" --clear-groups \
            env -i PATH=/usr/local/bin:/usr/bin:/bin HOME="$2/home" TMPDIR="$2" \
            "$2/it" "$4::" --skip an_ordinary_user --test-threads=2
    "#;
    #[expect(clippy::disallowed_methods, reason = "another user needs a process of its own")]
    let output = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "--", "sh", "-c", script, "sh"])
        .arg(std::env::current_exe().unwrap())
        .arg(place.path())
        .args([&USER.to_string(), module])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    text
}
