//! Compiled code on disk: a second process loads it instead of compiling, and what can't be trusted or read is compiled
//! anew and replaced.
#![expect(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "helpers of tests fail like tests")]

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use skillcell::ErrorKind;
use skillcell::runtime::Progress;
use skillcell::step::StepContext;

use crate::wasm_support::{Seen, execute, printed, read_host, step, wat, write_host};

/// Tells a copy of this test binary which script to run, and with which cache folder.
const PLAY_SCRIPT: &str = "SKILLCELL_TEST_CACHE_SCRIPT";
const PLAY_FOLDER: &str = "SKILLCELL_TEST_CACHE_FOLDER";
/// Where the copy looks when no folder is named.
const PLAY_DEFAULT: &str = "default";

/// Hears whether anything was compiled.
#[derive(Default)]
struct Compiled(Mutex<Vec<String>>);

impl Progress for Compiled {
    fn working(&self, what: &str) {
        self.0.lock().unwrap().push(what.to_owned());
    }
    fn done(&self) {}
}

/// The part of the copy: runs the script and prints what happened.
async fn play(script: &str) {
    let compiled = Arc::new(Compiled::default());
    let mut config = step(Path::new(script));
    match std::env::var(PLAY_FOLDER).unwrap().as_str() {
        PLAY_DEFAULT => config.runtime_config.clear(),
        folder => drop(config.runtime_config.insert("cache_dir".to_owned(), folder.into())),
    }
    let mut context = StepContext::new(skillcell::builtin_registry());
    context.progress = compiled.clone();
    let result = skillcell::step::execute(config, &context).await.unwrap();
    let compiled = compiled.0.lock().unwrap();
    println!("\nplayed: {:?} {:?}", result.run.stdout.text(), *compiled);
}

/// What a new process says of a run: the guest's output, and what it compiled.
fn new_process(script: &Path, folder: &str, home: &Path) -> String {
    #[expect(clippy::disallowed_methods, reason = "what is kept in memory ends with the process")]
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "wasm_cache::compiled_code_is_kept_and_never_trusted_blindly", "--nocapture"])
        .env(PLAY_SCRIPT, script)
        .env(PLAY_FOLDER, folder)
        .env("XDG_CACHE_HOME", home)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let played = text.lines().find_map(|line| line.strip_prefix("played: "));
    played.unwrap_or_else(|| panic!("{text}{}", String::from_utf8_lossy(&output.stderr))).to_owned()
}

/// The entries of a folder and their bytes, without the seals, which differ from one writing to the next.
fn entries(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    paths
        .filter(|path| path.extension().is_none_or(|extension| extension != "seal"))
        .filter(|path| !path.ends_with(".skillcell-private"))
        .map(|path| (path.clone(), read_host(&path)))
        .collect()
}

#[tokio::test]
async fn compiled_code_is_kept_and_never_trusted_blindly() {
    if let Ok(script) = std::env::var(PLAY_SCRIPT) {
        return play(&script).await;
    }
    let parent = tempfile::tempdir().unwrap();
    let (folder, home) = (parent.path().join("cache"), parent.path().join("home"));
    let (hello, other) = (wat("hello.wat"), parent.path().join("other.wat"));
    write_host(&other, &String::from_utf8(read_host(&hello)).unwrap().replace("hello\\n", "other\\n").into_bytes());
    let play = |script: &Path| new_process(script, folder.to_str().unwrap(), &home);
    let (compiled, loaded) = (r#""hello\n" ["compiling /workspace/skill/hello.wat"]"#, r#""hello\n" []"#);

    assert_eq!(play(&hello), compiled);
    let good = entries(&folder);
    assert_eq!(good.len(), 1, "one entry");
    assert_eq!(play(&hello), loaded);
    assert_eq!(entries(&folder), good, "what was loaded isn't written again");
    let (entry, code) = good.first_key_value().unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&folder), mode(entry)), (0o700, 0o600));
    assert_eq!(play(&other), r#""other\n" ["compiling /workspace/skill/other.wat"]"#);
    let both = entries(&folder);
    let (_, other_code) = both.iter().find(|(path, _)| *path != entry).unwrap();
    assert_eq!(play(&other), r#""other\n" []"#);

    // Damaged in every way: compiled anew, replaced by what was there before, and good again.
    let (mut flipped, mut end) = (code.clone(), code.clone());
    flipped[code.len() / 2] ^= 1;
    *end.last_mut().unwrap() ^= 1;
    let longer = [code.as_slice(), b"x"].concat();
    for (name, bytes) in [
        ("flipped", flipped.as_slice()),
        ("a changed end", &end),
        ("cut", &code[..code.len() / 2]),
        ("cut by one", &code[..code.len() - 1]),
        ("longer", &longer),
        ("empty", b""),
        ("text", b"not machine code at all"),
        ("no trailer", &code[..code.len() - 64]),
        ("of another module", other_code),
        ("a module", &read_host(&hello)),
    ] {
        write_host(entry, bytes);
        assert_eq!(play(&hello), compiled, "{name}");
        assert_eq!(entries(&folder), both, "{name}");
        assert_eq!(play(&hello), loaded, "{name}");
    }

    // Where others could have written it: compiled anew, though the bytes are good.
    fs::set_permissions(entry, Permissions::from_mode(0o622)).unwrap();
    assert_eq!((play(&hello).as_str(), mode(entry)), (compiled, 0o600));
    let elsewhere = parent.path().join("elsewhere");
    write_host(&elsewhere, code);
    #[expect(clippy::disallowed_methods, reason = "the test plays somebody who exchanges an entry")]
    fs::remove_file(entry).unwrap();
    symlink(&elsewhere, entry).unwrap();
    assert_eq!(play(&hello), compiled);
    assert!(fs::symlink_metadata(entry).unwrap().is_file(), "the link is replaced");
    assert_eq!(play(&hello), loaded);

    // Nothing of all this went to the default place; with no folder named it does, and with an empty name nothing does.
    assert!(!home.exists());
    assert_eq!(new_process(&hello, "", &home), compiled);
    assert!(!home.exists());
    assert_eq!(new_process(&hello, PLAY_DEFAULT, &home), compiled);
    assert_eq!(new_process(&hello, PLAY_DEFAULT, &home), loaded);
    assert_eq!(entries(&home.join("skillcell/wasm")).len(), 1);
    // A default place that isn't private is left alone: slower, and no less safe.
    fs::set_permissions(home.join("skillcell/wasm"), Permissions::from_mode(0o777)).unwrap();
    assert_eq!(new_process(&hello, PLAY_DEFAULT, &home), compiled);
}

#[tokio::test]
async fn a_named_folder_that_is_not_private_is_refused() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("cache");
    fs::create_dir(&folder).unwrap();
    let config = || {
        let mut config = step(&wat("hello.wat"));
        config.runtime_config.insert("cache_dir".to_owned(), folder.to_str().unwrap().into());
        config
    };
    for mode in [0o777, 0o775, 0o702] {
        fs::set_permissions(&folder, Permissions::from_mode(mode)).unwrap();
        let error = execute(config()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PathDenied, "{mode:o}: {error}");
        assert!(error.to_string().contains("is not private"), "{error}");
        assert!(entries(&folder).is_empty());
    }
    // A private folder below one that others can write to is no better.
    let below = folder.join("below");
    fs::create_dir(&below).unwrap();
    fs::set_permissions(&below, Permissions::from_mode(0o700)).unwrap();
    let mut config_below = config();
    config_below.runtime_config.insert("cache_dir".to_owned(), below.to_str().unwrap().into());
    assert_eq!(execute(config_below).await.unwrap_err().kind(), ErrorKind::PathDenied);
    fs::remove_dir(&below).unwrap();
    // The twin.
    fs::set_permissions(&folder, Permissions::from_mode(0o700)).unwrap();
    assert_eq!(Seen::of(&execute(config()).await.unwrap().run), printed("hello\n"));
}

#[tokio::test]
async fn options_that_are_wrong_fail_before_anything_exists() {
    for (key, value, said) in [
        ("cache_dir", serde_json::json!("relative/path"), "must be an absolute path"),
        ("cache_dir", serde_json::json!(7), "must be a string"),
        ("cache_dir", serde_json::json!(null), "must be a string"),
        ("cachedir", serde_json::json!("/x"), "it knows: cache_dir"),
    ] {
        let mut config = step(&wat("hello.wat"));
        config.runtime_config.clear();
        config.runtime_config.insert(key.to_owned(), value);
        let error = execute(config).await.unwrap_err();
        assert_eq!((error.kind(), error.failed_operation()), (ErrorKind::InvalidConfig, "plan"), "{error}");
        assert!(error.to_string().contains(said), "{error}");
    }
}
