//! Steps on files: what every guest can try, on WebAssembly too.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};

use crate::{Outcome, done, number, place, text, word};

/// More of a file is not told.
const SHOWN: u64 = 64 << 10;

/// Does a step on files; `None` for other verbs.
pub fn attempt(verb: &str, operands: &[String]) -> Option<Outcome> {
    let path = || place(operands, 0);
    Some(match verb {
        "read" => read(operands),
        "write" => fs::write(path(), word(operands, 1)).and_then(|()| done()),
        "append" => append(operands),
        "create" => File::create_new(path()).and_then(|_| done()),
        "truncate" => OpenOptions::new().write(true).truncate(true).open(path()).and_then(|_| done()),
        "resize" => resize(operands),
        "stat" => stat(operands),
        "list" => list(operands),
        "mkdir" => fs::create_dir(path()).and_then(|()| done()),
        "rmdir" => fs::remove_dir(path()).and_then(|()| done()),
        "remove" => fs::remove_file(path()).and_then(|()| done()),
        "rename" => fs::rename(path(), place(operands, 1)).and_then(|()| done()),
        "hard-link" => fs::hard_link(path(), place(operands, 1)).and_then(|()| done()),
        "link" => link(operands),
        "times" => times(operands),
        "fill" => fill(operands),
        "many" => many(operands),
        "open-many" => open_many(operands),
        "deep" => deep(operands),
        "await" => wait_for(operands),
        _ => return None,
    })
}

fn read(operands: &[String]) -> Outcome {
    let mut bytes = Vec::new();
    File::open(place(operands, 0))?.take(SHOWN).read_to_end(&mut bytes)?;
    text(String::from_utf8_lossy(&bytes))
}

fn append(operands: &[String]) -> Outcome {
    let mut file = OpenOptions::new().append(true).open(place(operands, 0))?;
    file.write_all(word(operands, 1).as_bytes())?;
    done()
}

fn resize(operands: &[String]) -> Outcome {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .open(place(operands, 0))?
        .set_len(number(operands, 1)?)?;
    done()
}

fn stat(operands: &[String]) -> Outcome {
    let metadata = fs::metadata(place(operands, 0))?;
    let kind = if metadata.is_dir() { "folder" } else { "file" };
    text(format!("{kind} {}", metadata.len()))
}

fn list(operands: &[String]) -> Outcome {
    let mut names = Vec::new();
    for entry in fs::read_dir(place(operands, 0))? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    text(names.join(" "))
}

fn link(operands: &[String]) -> Outcome {
    // The only portable way to make a link that also exists for WASI.
    #[allow(deprecated)]
    fs::soft_link(place(operands, 0), place(operands, 1))?;
    done()
}

/// Sets the times of a file that is opened for reading only, which an owner may.
fn times(operands: &[String]) -> Outcome {
    let times = fs::FileTimes::new().set_modified(std::time::SystemTime::UNIX_EPOCH);
    File::open(place(operands, 0))?.set_times(times)?;
    done()
}

/// Writes so many bytes, a piece at a time, as far as it gets.
fn fill(operands: &[String]) -> Outcome {
    let (mut file, bytes) = (File::create(place(operands, 0))?, number(operands, 1)?);
    let piece = [b'x'; 16 << 10];
    let mut left = bytes;
    while left > 0 {
        let now = left.min(piece.len() as u64);
        file.write_all(&piece[..now as usize])?;
        left -= now;
    }
    file.flush()?;
    done()
}

/// Makes so many empty files in a folder.
fn many(operands: &[String]) -> Outcome {
    let folder = place(operands, 0);
    fs::create_dir_all(&folder)?;
    for index in 0..number(operands, 1)? {
        File::create_new(folder.join(format!("f{index}")))?;
    }
    done()
}

/// Opens one file so many times.
fn open_many(operands: &[String]) -> Outcome {
    let path = place(operands, 0);
    let files = (0..number(operands, 1)?).map(|_| File::open(&path)).collect::<io::Result<Vec<_>>>()?;
    text(files.len().to_string())
}

/// Makes folders in folders, so many.
fn deep(operands: &[String]) -> Outcome {
    let mut path = place(operands, 0);
    for _ in 0..number(operands, 1)? {
        fs::create_dir(&path)?;
        path.push("d");
    }
    done()
}

/// Waits until a file is there.
fn wait_for(operands: &[String]) -> Outcome {
    let path = place(operands, 0);
    while !path.exists() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    done()
}
