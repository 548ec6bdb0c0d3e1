//! A guest for tests of files and exit codes: does one thing per word of its arguments and says what came of it.
//!
//! Arguments are verbs with their operands, worked through in order:
//! `read FILE`, `write FILE TEXT`, `append FILE TEXT`, `rename FROM TO`, `remove FILE`, `mkdir FOLDER`, `list FOLDER`,
//! `size FILE`, `link TARGET LINK`, `stdin`, `env NAME`, `folders`, `warn TEXT`, `exit CODE`, `panic`.
//! Each prints one line: what was asked and `ok RESULT` or `error KIND`. After an error the next verb is still done, so
//! that a test sees what a refusal left behind; the exit code is then 1, unless `exit` says otherwise.

use std::fs;
use std::io::{self, Read, Write};
use std::process::ExitCode;

use skillcell_guest::Workspace;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let mut failed = false;
    while let Some(verb) = arguments.next() {
        let mut operand = || arguments.next().unwrap_or_default();
        let (asked, result) = match verb.as_str() {
            "exit" => return operand().parse::<u8>().map_or(ExitCode::from(64), ExitCode::from),
            "panic" => panic!("asked to"),
            "warn" => {
                let text = operand();
                eprintln!("{text}");
                continue;
            }
            "stdin" => (verb, stdin()),
            "folders" => (verb, Ok(folders())),
            "env" => {
                let name = operand();
                let value = std::env::var(&name).map_err(|_| io::Error::from(io::ErrorKind::NotFound));
                (format!("env {name}"), value)
            }
            "read" | "remove" | "mkdir" | "list" | "size" => {
                let path = operand();
                let result = one(&verb, &path);
                (format!("{verb} {path}"), result)
            }
            "write" | "append" | "rename" | "link" => {
                let (first, second) = (operand(), operand());
                let result = two(&verb, &first, &second);
                (format!("{verb} {first}"), result)
            }
            other => {
                eprintln!("files: unknown verb '{other}'");
                return ExitCode::from(64);
            }
        };
        match result {
            Ok(text) => println!("{asked}: ok {text}"),
            Err(error) => {
                failed = true;
                println!("{asked}: error {:?}", error.kind());
            }
        }
    }
    ExitCode::from(u8::from(failed))
}

fn one(verb: &str, path: &str) -> io::Result<String> {
    match verb {
        "read" => fs::read_to_string(path),
        "remove" => fs::remove_file(path).map(|()| String::new()),
        "mkdir" => fs::create_dir(path).map(|()| String::new()),
        "size" => fs::metadata(path).map(|data| data.len().to_string()),
        _ => {
            let names = fs::read_dir(path)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
            let mut names = names.collect::<io::Result<Vec<_>>>()?;
            names.sort();
            Ok(names.join(" "))
        }
    }
}

fn two(verb: &str, first: &str, second: &str) -> io::Result<String> {
    match verb {
        "write" => fs::write(first, second)?,
        "append" => fs::OpenOptions::new().append(true).open(first)?.write_all(second.as_bytes())?,
        "rename" => fs::rename(first, second)?,
        _ => {
            // The only portable way to make a link that also exists for WASI.
            #[allow(deprecated)]
            fs::soft_link(first, second)?;
        }
    }
    Ok(String::new())
}

fn stdin() -> io::Result<String> {
    let mut text = String::new();
    io::stdin().read_to_string(&mut text)?;
    Ok(text)
}

fn folders() -> String {
    let workspace = Workspace::from_env();
    [workspace.inputs_dir(), workspace.outputs_dir(), workspace.skill_dir(), workspace.tmp_dir()]
        .map(|folder| folder.display().to_string())
        .join(" ")
}
