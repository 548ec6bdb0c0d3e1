//! Hosts that are killed at any moment: the next start removes every leftover of theirs and touches nothing else, and what
//! was promised whole is whole.
//!
//! `tests/kill-hosts N` does it with as many hosts as you like; an ordinary run of the tests kills sixty.
#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a test that starts hosts and looks at what they leave, and says how it went"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::local_support::{alive, marker};

/// Hosts that an ordinary run of the tests kills.
const HOSTS: usize = 60;
/// Hosts at once.
const AT_ONCE: usize = 3;
/// Files that a script leaves, and bytes in each.
const FILES: usize = 12;
const BYTES: usize = 3_000;

struct Place {
    folder: tempfile::TempDir,
    marker: String,
}

impl Place {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A host that runs a script on a runtime, with results for `out`.
    fn host(&self, runtime: &str, script: &str, out: &Path, arguments: &[String]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_skillcell"));
        command
            .current_dir(self.folder.path())
            .env("TMPDIR", self.path("temporary"))
            .env("XDG_CACHE_HOME", self.path("cache"))
            .args(["run", script, "--runtime", runtime, "--allow-advisory", "--in", "inputs", "--out"])
            .arg(out)
            .arg("--")
            .args(arguments)
            .arg(&self.marker)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
    }

    fn names(&self, folder: &str) -> BTreeSet<String> {
        names(&self.path(folder))
    }
}

fn names(folder: &Path) -> BTreeSet<String> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn content() -> String {
    "0123456789".repeat(BYTES / 10)
}

/// What the probe is told: to write its files.
fn probe_arguments() -> Vec<String> {
    let file = |number: usize| ["write".to_owned(), format!("/workspace/out/f{number}"), content()];
    let mut arguments: Vec<String> = (0..FILES).flat_map(file).collect();
    // What follows is a command too, so the marker is said.
    arguments.push("say".to_owned());
    arguments
}

fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    // A hang is for the test runner's own limit to find.
    let mut said = false;
    while !done() {
        if !said {
            eprintln!("waiting until {what}");
            said = true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn the_next_start_finds_every_leftover_and_nothing_else() {
    let count = std::env::var("SKILLCELL_KILL_HOSTS").map_or(HOSTS, |text| text.parse().unwrap());
    let place = Place { folder: tempfile::tempdir().unwrap(), marker: marker() };
    for folder in ["temporary", "inputs", "cache", "results"] {
        fs::create_dir(place.path(folder)).unwrap();
    }
    fs::write(place.path("inputs/data"), content()).unwrap();
    fs::copy(crate::wasm_support::wat("probe.wat"), place.path("probe.wat")).unwrap();
    let script = format!(
        "i=0; while [ $i -lt {FILES} ]; do cat \"$WORKSPACE_IN/inputs/data\" > \"$WORKSPACE_OUT/f$i\"; i=$((i+1)); done\n\
         (setsid sh -c 'sleep 300; : {}' &)\n",
        place.marker
    );
    fs::write(place.path("work.sh"), script).unwrap();
    // What is somebody else's, however much it looks like ours.
    let foreign = ["skillcell-run-", "skillcell-run-0123456789ABCDEF0123456789ABCDEF", "skillcell-notes", "other"];
    for name in foreign {
        fs::create_dir(place.path("temporary").join(name)).unwrap();
        fs::write(place.path("temporary").join(name).join("kept"), "kept").unwrap();
    }
    fs::write(place.path("results/.skillcell-0123456789abcdef"), "a person's own").unwrap();
    // A host that lives all the while, and must not notice.
    let mut living =
        place.host("wasm", "probe.wat", &place.path("living"), &["sleep".into(), "1000000".into(), "say".into()]);
    let mut living = living.spawn().unwrap();
    wait_until("the living host has its workspace", || {
        place.names("temporary").len() > foreign.len() || living.try_wait().unwrap().is_some()
    });
    let of_the_living: Vec<String> =
        place.names("temporary").into_iter().filter(|name| !foreign.contains(&name.as_str())).collect();
    assert_eq!(of_the_living.len(), 1);

    let kinds = [
        ("wasm", "probe.wat", probe_arguments()),
        ("local", "work.sh", Vec::new()),
        ("bubblewrap", "work.sh", Vec::new()),
    ];
    // How long a host takes here and now; each is killed at some moment of that.
    let whole_run: Vec<Duration> = kinds
        .iter()
        .map(|(runtime, script, arguments)| {
            let start = Instant::now();
            let status = place.host(runtime, script, &place.path(&format!("results/{runtime}")), arguments).status();
            assert_eq!(status.unwrap().code(), Some(0), "{runtime}");
            start.elapsed()
        })
        .collect();
    let (mut running, mut killed, mut ended): (Vec<(Child, Instant)>, usize, usize) = (Vec::new(), 0, 0);
    let mut next = 0;
    while next < count || !running.is_empty() {
        if next < count && running.len() < AT_ONCE {
            let (runtime, script, arguments) = &kinds[next % kinds.len()];
            let child =
                place.host(runtime, script, &place.path(&format!("results/{next}")), arguments).spawn().unwrap();
            let moment =
                Duration::from_nanos(random() % u64::try_from(whole_run[next % kinds.len()].as_nanos()).unwrap());
            running.push((child, Instant::now() + moment));
            next += 1;
            continue;
        }
        running.sort_by_key(|(_, moment)| std::cmp::Reverse(*moment));
        let (mut child, moment) = running.pop().unwrap();
        std::thread::sleep(moment.saturating_duration_since(Instant::now()));
        match child.try_wait().unwrap() {
            Some(_) => ended += 1,
            None => {
                child.kill().unwrap();
                killed += 1;
            }
        }
        child.wait().unwrap();
    }
    // The guests of a killed host end by themselves; only the living host has the word in its arguments then.
    wait_until("the guests of killed hosts have ended", || alive(&place.marker) <= 1);
    let left = place.names("temporary").len() - foreign.len() - 1;
    // The next start.
    let last = place.host("local", "work.sh", &place.path("results/last"), &[]).status().unwrap();
    assert_eq!(last.code(), Some(0));
    assert_eq!(living.try_wait().unwrap(), None, "the living host was disturbed");
    let mut expected: BTreeSet<String> = foreign.iter().map(|name| (*name).to_owned()).collect();
    expected.extend(of_the_living.iter().cloned());
    assert_eq!(place.names("temporary"), expected);
    for name in foreign {
        assert_eq!(fs::read_to_string(place.path("temporary").join(name).join("kept")).unwrap(), "kept");
    }
    living.kill().unwrap();
    living.wait().unwrap();

    // Results: whole or not there, and no half of one under another name.
    let mut whole = 0;
    for folder in place.names("results") {
        let folder = place.path("results").join(folder);
        if !folder.is_dir() {
            assert_eq!(fs::read_to_string(&folder).unwrap(), "a person's own");
            continue;
        }
        for name in names(&folder) {
            assert!(name.starts_with('f'), "{name} was left in {}", folder.display());
            assert_eq!(fs::read_to_string(folder.join(&name)).unwrap(), content(), "{name} in {}", folder.display());
            whole += 1;
        }
    }
    assert_eq!(names(&place.path("results/last")).len(), FILES);
    assert_eq!(fs::read_to_string(place.path("inputs/data")).unwrap(), content());
    assert_eq!(place.names("inputs").len(), 1);
    // Compiled code: half a file has a name that begins with a dot. The next start of the runtime that keeps it removes it.
    let code = place.host("wasm", "probe.wat", &place.path("results/code"), &probe_arguments()).status().unwrap();
    assert_eq!(code.code(), Some(0));
    let cache = place.path("cache/skillcell/wasm");
    let half: Vec<String> =
        names(&cache).into_iter().filter(|name| name.starts_with('.') && name != ".skillcell-private").collect();
    assert_eq!(half, Vec::<String>::new());
    wait_until("nothing of any host is left", || alive(&place.marker) == 0);
    // Without kills the rest would prove nothing.
    if killed == 0 {
        panic!("every host ended before it was killed");
    }
    eprintln!(
        "{count} hosts: {killed} killed, {ended} ended by themselves; {left} workspaces left before the last start; {whole} results, all whole"
    );
}
