//! Steps on what a program is given and gives: arguments, environment, streams, its end, memory and time.

use std::io::{self, Read, Write};
use std::time::Duration;

use crate::{Done, Outcome, done, number, say, text, word};

/// More of stdin is counted, not told.
const SHOWN: usize = 64 << 10;
/// Memory is taken in pieces, so that what was had is known.
const PIECE: usize = 1 << 20;

/// Does a step on streams; `None` for other verbs.
pub fn attempt(verb: &str, operands: &[String]) -> Option<Outcome> {
    Some(match verb {
        "arguments" => text(operands.iter().map(|word| format!("<{word}>")).collect::<String>()),
        "environment" => environment(),
        "folder" => std::env::current_dir().and_then(|folder| text(folder.to_string_lossy())),
        "stdin" => stdin(),
        "out" => io::stdout().write_all(word(operands, 0).as_bytes()).and_then(|()| done()),
        "complain" => io::stderr().write_all(word(operands, 0).as_bytes()).and_then(|()| done()),
        "octets" => octets(),
        "pour" => pour(operands),
        "exit" => number(operands, 0).map(|code| Done::Exit(u8::try_from(code).unwrap_or(u8::MAX))),
        "abort" => std::process::abort(),
        "recurse" => text(recurse(number(operands, 0).unwrap_or(u64::MAX)).to_string()),
        "spin" => spin(),
        "work" => work(operands),
        "sleep" => sleep(operands),
        "allocate" => allocate(operands),
        "random" => text(format!("{:x}", random())),
        _ => return None,
    })
}

fn environment() -> Outcome {
    let mut variables: Vec<String> = std::env::vars_os()
        .map(|(name, value)| format!("{}={}", name.to_string_lossy(), value.to_string_lossy()))
        .collect();
    variables.sort();
    text(variables.join("\n"))
}

fn stdin() -> Outcome {
    let mut bytes = Vec::new();
    io::stdin().lock().read_to_end(&mut bytes)?;
    if bytes.len() > SHOWN {
        return text(format!("{} bytes", bytes.len()));
    }
    text(String::from_utf8_lossy(&bytes))
}

/// Every octet once, as they are.
fn octets() -> Outcome {
    let octets: Vec<u8> = (0..=u8::MAX).collect();
    let mut stdout = io::stdout().lock();
    stdout.write_all(&octets)?;
    stdout.flush()?;
    done()
}

/// Writes so many bytes on a stream, in lines or without an end.
fn pour(operands: &[String]) -> Outcome {
    let mut piece = [b'y'; 4 << 10];
    if word(operands, 2) == "lines" {
        piece.iter_mut().skip(63).step_by(64).for_each(|byte| *byte = b'\n');
    }
    let mut left = number(operands, 1)?;
    while left > 0 {
        let now = left.min(piece.len() as u64);
        let bytes = &piece[..now as usize];
        match word(operands, 0) {
            "out" => io::stdout().write_all(bytes)?,
            "err" => io::stderr().write_all(bytes)?,
            _ => {
                io::stdout().write_all(bytes)?;
                io::stderr().write_all(bytes)?;
            }
        }
        left -= now;
    }
    io::stdout().flush()?;
    done()
}

/// Uses the stack, a frame a call.
#[inline(never)]
fn recurse(depth: u64) -> u64 {
    let frame = std::hint::black_box([depth; 32]);
    if depth == 0 { 0 } else { recurse(depth - 1) + std::hint::black_box(frame[0]) % 2 }
}

/// Computes for ever.
fn spin() -> ! {
    let mut value = 0u64;
    loop {
        value = std::hint::black_box(value.wrapping_mul(31).wrapping_add(7));
    }
}

/// Computes for a while.
fn work(operands: &[String]) -> Outcome {
    let mut value = 0u64;
    for _ in 0..number(operands, 0)? {
        value = std::hint::black_box(value.wrapping_mul(31).wrapping_add(7));
    }
    done()
}

/// Says that it begins to wait, so that the suite knows how far it came.
fn sleep(operands: &[String]) -> Outcome {
    say("ok waiting");
    std::thread::sleep(Duration::from_millis(number(operands, 0)?));
    done()
}

/// Takes so many MiB and writes to all of it.
fn allocate(operands: &[String]) -> Outcome {
    let mut held: Vec<Vec<u8>> = Vec::new();
    for _ in 0..number(operands, 0)? {
        let mut piece: Vec<u8> = Vec::new();
        piece.try_reserve_exact(PIECE).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        // Not zeros: those need no memory of their own.
        piece.resize(PIECE, 0xa5);
        held.push(std::hint::black_box(piece));
    }
    let count = held.len();
    // Kept to the end of the program: what is given back counts no more.
    std::mem::forget(held);
    text(count.to_string())
}

/// A number of the system's random source, by way of the standard library's hash seeds.
fn random() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0u8)
}
