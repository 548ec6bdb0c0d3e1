//! What `inspect` and `wrap` say about small modules, and about bytes that are none.

#![expect(clippy::unwrap_used, reason = "the helpers of tests are tests too")]

use skillcell_wasm_tools::{Kind, inspect, wrap};

fn module(text: &str) -> Vec<u8> {
    wat::parse_str(text).unwrap()
}

fn problems(text: &str) -> Vec<String> {
    inspect(&module(text)).unwrap().problems
}

const RUNNABLE: &str = r#"(module
    (import "wasi_snapshot_preview1" "proc_exit" (func (param i32)))
    (memory (export "memory") 2 16)
    (func (export "_start")))"#;

#[test]
fn a_command_module_is_described_and_runnable() {
    let bytes = module(RUNNABLE);
    let found = inspect(&bytes).unwrap();
    assert_eq!(found.kind, Kind::Module);
    assert_eq!(found.bytes, bytes.len() as u64);
    assert_eq!(found.problems, Vec::<String>::new());
    let imports: Vec<_> = found.imports.iter().map(|i| (i.from.as_str(), i.name.as_str(), i.kind)).collect();
    assert_eq!(imports, [("wasi_snapshot_preview1", "proc_exit", "function")]);
    let exports: Vec<_> = found.exports.iter().map(|e| (e.name.as_str(), e.kind, e.takes_and_gives_nothing)).collect();
    assert_eq!(exports, [("memory", "memory", false), ("_start", "function", true)]);
    let memories: Vec<_> = found.memories.iter().map(|m| (m.initial_bytes, m.maximum_bytes)).collect();
    assert_eq!(memories, [(131_072, Some(1_048_576))]);
}

#[test]
fn a_module_without_imports_needs_no_memory() {
    assert_eq!(problems(r#"(module (func (export "_start")))"#), Vec::<String>::new());
}

#[test]
fn each_reason_not_to_run_is_named() {
    for (text, expected) in [
        ("(module)", "exports no `_start`; build a program (src/main.rs), not a library"),
        (
            r#"(module (func (export "_start") (param i32)))"#,
            "its `_start` is no function without parameters and results",
        ),
        (
            r#"(module (global (export "_start") i32 (i32.const 0)))"#,
            "its `_start` is no function without parameters and results",
        ),
        (
            r#"(module (import "env" "puts" (func)) (memory (export "memory") 1) (func (export "_start")))"#,
            "imports the function 'puts' from 'env'; only 'wasi_snapshot_preview1' is given to modules",
        ),
        (
            r#"(module (import "wasi_snapshot_preview1" "fork" (func)) (memory (export "memory") 1) (func (export "_start")))"#,
            "imports the function 'fork' from 'wasi_snapshot_preview1', which WASI preview 1 does not have",
        ),
        (
            r#"(module (import "wasi_unstable" "fd_write" (func)) (memory (export "memory") 1) (func (export "_start")))"#,
            "imports the function 'fd_write' from 'wasi_unstable', which is older than preview 1; build with a newer compiler",
        ),
        (
            r#"(module (import "wasi_snapshot_preview1" "sched_yield" (func)) (func (export "_start")))"#,
            "exports no memory named `memory`, through which WASI's functions work",
        ),
        (
            r#"(module (memory 1 1 shared) (func (export "_start")))"#,
            "a memory is shared between threads; guests have one thread: build without threads",
        ),
    ] {
        assert_eq!(problems(text), [expected], "{text}");
    }
}

#[test]
fn many_problems_are_counted_and_not_all_told() {
    let imports: String = (0..100).map(|n| format!("(import \"env\" \"f{n}\" (func))")).collect();
    let found = problems(&format!("(module {imports} (memory (export \"memory\") 1) (func (export \"_start\")))"));
    assert_eq!(found.len(), 21);
    assert_eq!(found.last().unwrap(), "and 80 more");
}

#[test]
fn names_from_the_file_cannot_steer_a_terminal_or_fill_it() {
    let long = "x".repeat(5_000);
    let found = inspect(&module(&format!(r#"(module (func (export "\1b[2J{long}")))"#))).unwrap();
    let name = &found.exports.first().unwrap().name;
    assert!(name.starts_with("\\u{1b}[2Jxxx") && name.ends_with('…'), "{name}");
    assert!(name.chars().count() < 300);
}

#[test]
fn a_wrapped_module_is_a_runnable_component() {
    let component = wrap(&module(RUNNABLE)).unwrap();
    let found = inspect(&component).unwrap();
    assert_eq!(found.kind, Kind::Component);
    assert_eq!(found.problems, Vec::<String>::new());
    assert!(found.exports.iter().any(|export| export.name.starts_with("wasi:cli/run@0.2.")), "{:?}", found.exports);
    assert!(found.imports.iter().all(|import| import.from.starts_with("wasi:")), "{:?}", found.imports);
    assert!(!found.imports.is_empty());
    let error = wrap(&component).unwrap_err();
    assert_eq!(error.to_string(), "this is a component already; only modules are wrapped");
}

#[test]
fn a_component_with_other_imports_or_without_run_is_not_runnable() {
    let found = inspect(&module(r#"(component (import "acme:db/query@1.0.0" (instance)))"#)).unwrap();
    assert_eq!(found.kind, Kind::Component);
    assert_eq!(
        found.problems,
        [
            "imports 'acme:db/query@1.0.0'; only the wasi:cli world of WASI 0.2 is given to components",
            "exports no `wasi:cli/run@0.2`; build a program, or wrap a module with `component`",
        ]
    );
}

#[test]
fn a_library_is_not_wrapped() {
    let error = wrap(&module("(module)")).unwrap_err();
    assert!(error.to_string().starts_with("the module exports no `_start`"), "{error}");
}

#[test]
fn bytes_that_are_no_webassembly_are_named_for_what_they_are() {
    for (bytes, expected) in [
        (&b""[..], "the file is empty"),
        (b"#!/bin/sh\n", "this is no WebAssembly: a .wasm begins with the bytes 00 61 73 6d"),
        (b"\x7fELF\x02\x01", "this is an ELF file"),
        (b"\n (module)", "this looks like the text format"),
        (b"\0asm\x01", "the file ends after 5 bytes, inside the header"),
        (b"\0asm\x07\0\0\0", "unknown WebAssembly version (bytes 07 00 00 00)"),
        (b"\0asm\x01\0\0\0\xff", "invalid WebAssembly at byte "),
    ] {
        let error = inspect(bytes).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn a_module_cut_anywhere_gives_an_error_or_a_shorter_module_but_no_panic() {
    let component = wrap(&module(RUNNABLE)).unwrap();
    for bytes in [module(RUNNABLE), component] {
        // Every cut of a small file; of a large one enough to meet every kind of section.
        let step = (bytes.len() / 500).max(1);
        let mut refused = 0;
        for end in (0..bytes.len()).step_by(step) {
            refused += usize::from(inspect(&bytes[..end]).is_err());
        }
        assert!(refused > 10, "{refused}");
    }
}

#[test]
fn a_module_with_any_byte_changed_gives_no_panic() {
    let bytes = module(RUNNABLE);
    for position in 0..bytes.len() {
        for value in [0x00, 0x01, 0x7f, 0x80, 0xff] {
            let mut changed = bytes.clone();
            changed[position] = value;
            // Whatever it says; `wrap` may take it where the change means nothing.
            let said = (inspect(&changed).is_ok(), wrap(&changed).is_ok());
            assert!(said.0 || !said.1, "wrapped what is invalid: byte {position} = {value}");
        }
    }
}
