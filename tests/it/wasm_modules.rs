//! Which files runtime `wasm` runs, what it says about those it doesn't, and what a program is given.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::io::{Seek, Write};
use std::sync::Arc;

use skillcell::ErrorKind;
use skillcell::policy::EnvVars;
use skillcell::runtime::{Stdin, Termination};

use crate::wasm_support::{Seen, component, execute, module, printed, probe, run, step, wat, wat_bytes};

fn binary(name: &str) -> Vec<u8> {
    wat::parse_bytes(&wat_bytes(name)).unwrap().into_owned()
}

#[tokio::test]
async fn modules_and_components_run_in_every_form() {
    let hello = wat_bytes("hello.wat");
    for (name, content) in [
        ("hello.wat", hello.clone()),
        ("hello.wasm", binary("hello.wat")),
        // The magic number counts, not the name.
        ("hello", binary("hello.wat")),
        ("hello.wat", binary("hello.wat")),
        ("hello.wasm", component("hello")),
        ("hello", component("hello")),
    ] {
        let (config, _folder) = module(name, content);
        assert_eq!(Seen::of(&run(config).await.run), printed("hello\n"), "{name}");
    }
}

/// A file that can't be run: the kind of error is always the same, the message must say what and what to do.
async fn refused(name: &str, content: impl AsRef<[u8]>, said: &[&str]) {
    let (config, folder) = module(name, content);
    let error = execute(config).await.unwrap_err();
    let chain = error.chain().join(": ");
    assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{name}: {chain}");
    for words in said {
        assert!(chain.contains(words), "{name}: '{words}' is not in: {chain}");
    }
    assert!(chain.contains(name), "the file is named: {chain}");
    assert!(!chain.contains(folder.path().to_str().unwrap()), "no path of the host: {chain}");
    assert!(!chain.contains("skillcell-"), "no path of the host: {chain}");
    assert!(chain.len() < 2_000, "{name}: {} bytes of message", chain.len());
}

#[tokio::test]
async fn what_is_no_program_is_refused_with_a_reason_and_a_next_step() {
    let hello = binary("hello.wat");
    refused("text.wasm", "hello, I am not a module", &["not a WebAssembly module", "wasm32-wasip1"]).await;
    refused("empty.wasm", "", &["not a WebAssembly module"]).await;
    refused("magic.wasm", "\0asm", &["ends within its header"]).await;
    refused("header.wasm", &hello[..6], &["ends within its header"]).await;
    for cut in [9, hello.len() / 2, hello.len() - 1] {
        refused("cut.wasm", &hello[..cut], &["can't be loaded"]).await;
    }
    let mut version = hello.clone();
    version[4] = 2;
    refused("version.wasm", &version, &["version", "[02, 00, 00, 00]"]).await;
    refused("imports.wasm", binary("imports.wat"), &["can't be loaded", "env", "open_socket_v9"]).await;
    refused("library.wasm", binary("library.wat"), &["_start", "build it as a program"]).await;
    refused(
        "syntax.wat",
        "(module (func (export \"_start\") (i32.addd)))",
        &["not valid WebAssembly text", "i32.addd"],
    )
    .await;
    refused("open.wat", "(module", &["not valid WebAssembly text"]).await;
    refused("invalid.wat", "(module (func (export \"_start\") (result i32)))", &["can't be loaded"]).await;
    let parameters = "(module (memory (export \"memory\") 1) (func (export \"_start\") (param i32)))";
    refused("parameters.wat", parameters, &["_start"]).await;
    let memory = "(module (memory (export \"memory\") 1) (memory (export \"_start\") 1))";
    refused("memory.wat", memory, &["_start"]).await;
    refused("empty_component.wat", "(component)", &["wasi:cli/run"]).await;
    let foreign = "(component (import \"acme:door/open\" (instance (export \"open\" (func)))))";
    refused("foreign_component.wat", foreign, &["acme:door/open"]).await;
    // The twin of all of them.
    let (config, _folder) = module("fine.wasm", hello);
    assert_eq!(Seen::of(&run(config).await.run), printed("hello\n"));
}

#[tokio::test]
async fn machine_code_is_never_taken_from_a_skill() {
    let engine = wasmtime::Engine::default();
    let module_code = engine.precompile_module(&binary("hello.wat")).unwrap();
    let component_code = engine.precompile_component(&component("hello")).unwrap();
    for code in [module_code, component_code] {
        for name in ["hello.wasm", "hello.cwasm.wasm"] {
            refused(name, &code, &["machine code", "never loads"]).await;
        }
    }
}

#[tokio::test]
async fn modules_are_bounded_in_size_and_depth() {
    // Just under and just over the cap of 128 MiB, as a custom section that means nothing.
    let padded = |size: u32| {
        let mut bytes = binary("hello.wat");
        let padding = size - u32::try_from(bytes.len()).unwrap() - 8;
        bytes.push(0);
        // LEB128 in five bytes, whatever the size.
        bytes.extend(
            (0..5).map(|i| u8::try_from((padding + 2) >> (7 * i) & 0x7f).unwrap() | if i < 4 { 0x80 } else { 0 }),
        );
        bytes.extend([1, b'x']);
        bytes.resize(size as usize, 0);
        bytes
    };
    let (config, _folder) = module("big.wasm", padded(128 << 20));
    assert_eq!(Seen::of(&run(config).await.run), printed("hello\n"));
    let (config, _folder) = module("big.wasm", padded((128 << 20) + 1));
    let error = execute(config).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LimitExceeded, "{error}");
    assert!(error.to_string().contains("134217728"), "{error}");
    // Deep nesting in text and in the module itself: an error or a run, no crash of the host.
    let deep = format!(
        "(module (memory (export \"memory\") 1) (func (export \"_start\") {} {}))",
        "(block ".repeat(50_000),
        ")".repeat(50_000)
    );
    let many = format!(
        "(module (memory (export \"memory\") 1) (func (export \"_start\") {} {}))",
        "block ".repeat(20_000),
        "end ".repeat(20_000)
    );
    for text in [deep, many] {
        let (config, _folder) = module("nested.wat", text);
        match execute(config).await {
            Ok(result) => assert_eq!(result.run.termination, Termination::Exited(0)),
            Err(error) => assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{}", error.chain().join(": ")),
        }
    }
}

#[tokio::test]
async fn traps_name_the_functions() {
    let (config, _folder) = module("traps.wasm", binary("traps.wat"));
    let result = run(config).await;
    let Termination::Trapped(trap) = &result.run.termination else { panic!("{:?}", result.run) };
    assert_eq!(trap.code, "memory_out_of_bounds");
    assert_eq!(trap.message, "wasm trap: out of bounds memory access in innermost_function < middle_function");
    assert_eq!(result.run.exit_code(), 134);
    for (verb, code) in [("trap", "unreachable_code_reached"), ("divide", "integer_division_by_zero")] {
        let result = run(probe(&["say", "before", verb])).await;
        let Termination::Trapped(trap) = &result.run.termination else { panic!("{:?}", result.run) };
        assert_eq!((trap.code.as_str(), result.run.stdout.text().as_str()), (code, "before"));
        assert!(trap.message.contains(&format!(" in {verb}")), "{}", trap.message);
    }
}

#[tokio::test]
async fn exit_codes_arrive_as_they_are() {
    for code in [0, 1, 2, 125, 126, 127, 255, 256, 1_000_000, i32::MAX, -1, i32::MIN] {
        let result = run(probe(&["say", "bye", "exit", &code.to_string()])).await;
        assert_eq!(result.run.termination, Termination::Exited(code));
        assert_eq!((result.run.stdout.text().as_str(), result.run.exit_code()), ("bye", code));
    }
    // A component can only say whether it succeeded.
    for (given, seen) in [("0", 0), ("1", 1), ("7", 1)] {
        let (mut config, _folder) = module("probe.wasm", component("probe"));
        config.args = ["say", "bye", "exit", given].map(str::to_owned).to_vec();
        let result = run(config).await;
        assert_eq!((result.run.termination, result.run.stdout.text().as_str()), (Termination::Exited(seen), "bye"));
    }
}

#[tokio::test]
async fn arguments_arrive_one_by_one() {
    let hostile = ["args", "-rf", ";reboot", "$(id)", "a\nb", "`id`", "", "*", "'\"", "ü", "\u{1b}[31m", "--"];
    let long = "x".repeat(100_000);
    let words = [&hostile[..], &[&long]].concat();
    let expected: String = words.iter().map(|word| format!("<{word}>")).collect();
    let result = run(probe(&words)).await;
    assert_eq!(result.run.stdout.text(), format!("</workspace/skill/probe.wat>{expected}"));
    assert_eq!(result.run.termination, Termination::Exited(0));
}

#[tokio::test]
async fn the_environment_is_exact() {
    let mut config = probe(&["env"]);
    config.env = EnvVars::default();
    config.env.set("GIVEN", "a=b c").unwrap();
    config.env.set("LANG", "C").unwrap();
    config.env.set("EMPTY", "").unwrap();
    let result = run(config).await;
    let text = result.run.stdout.text();
    let mut variables: Vec<&str> = text.lines().collect();
    variables.sort_unstable();
    let expected = [
        "EMPTY=",
        "GIVEN=a=b c",
        "HOME=/workspace/tmp",
        "LANG=C",
        "PATH=/usr/local/bin:/usr/bin:/bin",
        "PWD=/workspace/skill",
        "SKILL_DIR=/workspace/skill",
        "TMPDIR=/workspace/tmp",
        "WORKSPACE_IN=/workspace/in",
        "WORKSPACE_OUT=/workspace/out",
    ];
    assert_eq!(variables, expected);
}

#[tokio::test]
async fn standard_input_is_closed_or_what_was_given() {
    let big: Vec<u8> = (0..300_000_u32).map(|i| b'a' + u8::try_from(i % 26).unwrap()).collect();
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(b"from a file").unwrap();
    file.rewind().unwrap();
    for (stdin, expected) in [
        (Stdin::Closed, &b""[..]),
        (Stdin::Bytes(bytes::Bytes::new()), b""),
        (Stdin::Bytes(big.clone().into()), &big),
        (Stdin::Bytes(b"\xff\0\n"[..].into()), b"\xff\0\n"),
        (Stdin::File(Arc::new(file)), b"from a file"),
    ] {
        for component_too in [false, true] {
            let mut config = probe(&["cat"]);
            let folder;
            if component_too {
                (config, folder) = module("probe.wasm", component("probe"));
                config.args = vec!["cat".to_owned()];
                // A file is read to its end once.
                if matches!(stdin, Stdin::File(_)) {
                    drop(folder);
                    continue;
                }
            }
            config.stdin = stdin.clone();
            let result = run(config).await;
            assert_eq!(result.run.termination, Termination::Exited(0), "{}", result.run.stderr.text());
            assert!(result.run.stdout.bytes() == expected, "{} bytes came back", result.run.stdout.total());
        }
    }
    // A guest that doesn't read what it is given.
    let mut config = probe(&["exit", "7"]);
    config.stdin = Stdin::Bytes(big.into());
    assert_eq!(run(config).await.run.termination, Termination::Exited(7));
}

#[tokio::test]
async fn a_component_sees_the_same_world() {
    let (mut config, _folder) = module("probe.wasm", component("probe"));
    config.inputs = vec![skillcell::workspace::Input::bytes("data", "data")];
    let line = "read /workspace/in/data write /workspace/in/data x write /workspace/skill/new x create /workspace/site/x \
                write /workspace/out/f text read /workspace/out/f read /workspace/out/../in/data read /workspace/out/../../etc/passwd \
                read /workspace/out//etc/passwd symlink ../../../etc/passwd /workspace/out/l read /workspace/out/l \
                symlink /etc/passwd /workspace/out/m rename /workspace/in/data /workspace/out/stolen \
                link /workspace/in/data /workspace/out/linked cut /workspace/in/data times /workspace/in/data \
                unlink /workspace/in/data read /workspace/in/data";
    config.args = line.split_whitespace().map(str::to_owned).collect();
    let result = run(config).await;
    let expected = "read ok data\nwrite perm\nwrite perm\ncreate perm\nwrite ok\nread ok text\nread perm\nread perm\nread perm\n\
                    symlink ok\nread perm\nsymlink perm\nrename perm\nlink perm\ncut perm\ntimes perm\nunlink perm\nread ok data\n";
    assert_eq!(Seen::of(&result.run), printed(expected));
    let collected: Vec<&str> = result.outputs.iter().map(|output| output.file.path.as_str()).collect();
    assert_eq!(collected, ["f"]);
}

#[tokio::test]
async fn a_component_gets_no_sockets() {
    // Succeeds when it was refused each kind; that it can ask at all shows that the refusal is an answer, not a trap.
    let result = run(step(&wat("sockets.wat"))).await;
    assert_eq!(Seen::of(&result.run), printed(""));
    assert!(result.enforcement.network_enforced());
}

#[tokio::test]
async fn programs_of_the_machine_are_not_run() {
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in [("x.sh", "echo hello"), ("x.rb", "puts 1")] {
        let path = folder.path().join(name);
        crate::wasm_support::write_host(&path, content.as_bytes());
        let error = execute(step(&path)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        assert!(error.to_string().starts_with("runtime 'wasm' has no '"), "{error}");
    }
    assert_eq!(Seen::of(&run(step(&wat("hello.wat"))).await.run), printed("hello\n"));
}
