//! Whether skillcell's wasm runtime can run a guest, told from its imports and exports alone.
//!
//! Pure. It knows what the runtime links (WASI preview 1 for modules, WASI 0.2 for components), not how. A guest that
//! passes can still fail at run time, by a limit or by itself; one that doesn't pass can't even be instantiated.

use crate::inspect::{Inspection, Kind};

/// Every function of WASI preview 1.
const PREVIEW1_FUNCTIONS: [&str; 46] = [
    "args_get",
    "args_sizes_get",
    "clock_res_get",
    "clock_time_get",
    "environ_get",
    "environ_sizes_get",
    "fd_advise",
    "fd_allocate",
    "fd_close",
    "fd_datasync",
    "fd_fdstat_get",
    "fd_fdstat_set_flags",
    "fd_fdstat_set_rights",
    "fd_filestat_get",
    "fd_filestat_set_size",
    "fd_filestat_set_times",
    "fd_pread",
    "fd_prestat_dir_name",
    "fd_prestat_get",
    "fd_pwrite",
    "fd_read",
    "fd_readdir",
    "fd_renumber",
    "fd_seek",
    "fd_sync",
    "fd_tell",
    "fd_write",
    "path_create_directory",
    "path_filestat_get",
    "path_filestat_set_times",
    "path_link",
    "path_open",
    "path_readlink",
    "path_remove_directory",
    "path_rename",
    "path_symlink",
    "path_unlink_file",
    "poll_oneoff",
    "proc_exit",
    "proc_raise",
    "random_get",
    "sched_yield",
    "sock_accept",
    "sock_recv",
    "sock_send",
    "sock_shutdown",
];
const PREVIEW1: &str = "wasi_snapshot_preview1";
/// The packages of WASI 0.2 that a command may use.
const PREVIEW2_PACKAGES: [&str; 6] = ["io", "clocks", "random", "filesystem", "sockets", "cli"];
/// More problems than this help nobody.
const MAX_PROBLEMS: usize = 20;

/// Why the guest can't be run; empty when it can.
pub(crate) fn problems(guest: &Inspection) -> Vec<String> {
    let mut problems = match guest.kind {
        Kind::Module => problems_of_module(guest),
        Kind::Component => problems_of_component(guest),
    };
    for memory in &guest.memories {
        if memory.shared {
            problems
                .push("a memory is shared between threads; guests have one thread: build without threads".to_owned());
        }
    }
    if problems.len() > MAX_PROBLEMS {
        let more = problems.len() - MAX_PROBLEMS;
        problems.truncate(MAX_PROBLEMS);
        problems.push(format!("and {more} more"));
    }
    problems
}

fn problems_of_module(guest: &Inspection) -> Vec<String> {
    let mut problems = Vec::new();
    for import in &guest.imports {
        let name = format!("{} '{}' from '{}'", import.kind, import.name, import.from);
        if import.from == "wasi_unstable" {
            problems.push(format!("imports the {name}, which is older than preview 1; build with a newer compiler"));
        } else if import.from != PREVIEW1 {
            problems.push(format!("imports the {name}; only '{PREVIEW1}' is given to modules"));
        } else if import.kind != "function" || !PREVIEW1_FUNCTIONS.contains(&import.name.as_str()) {
            problems.push(format!("imports the {name}, which WASI preview 1 does not have"));
        }
    }
    match guest.exports.iter().find(|export| export.name == "_start") {
        Some(export) if export.takes_and_gives_nothing => {}
        Some(_) => problems.push("its `_start` is no function without parameters and results".to_owned()),
        None => problems.push("exports no `_start`; build a program (src/main.rs), not a library".to_owned()),
    }
    let memory = guest.exports.iter().any(|export| export.name == "memory" && export.kind == "memory");
    if !memory && !guest.imports.is_empty() {
        problems.push("exports no memory named `memory`, through which WASI's functions work".to_owned());
    }
    problems
}

fn problems_of_component(guest: &Inspection) -> Vec<String> {
    let mut problems = Vec::new();
    for import in &guest.imports {
        if !is_preview2(&import.from, &PREVIEW2_PACKAGES) {
            problems
                .push(format!("imports '{}'; only the wasi:cli world of WASI 0.2 is given to components", import.from));
        }
    }
    let runs = guest
        .exports
        .iter()
        .any(|export| export.name.starts_with("wasi:cli/run@") && is_preview2(&export.name, &["cli"]));
    if !runs {
        problems.push("exports no `wasi:cli/run@0.2`; build a program, or wrap a module with `component`".to_owned());
    }
    problems
}

/// Whether a name is `wasi:PACKAGE/…@0.2.…` for one of the packages.
fn is_preview2(name: &str, packages: &[&str]) -> bool {
    let Some((interface, version)) = name.split_once('@') else { return false };
    let Some((package, _)) = interface.strip_prefix("wasi:").and_then(|rest| rest.split_once('/')) else {
        return false;
    };
    packages.contains(&package) && version.starts_with("0.2.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_preview2() {
        assert!(is_preview2("wasi:cli/run@0.2.12", &["cli"]));
        assert!(is_preview2("wasi:io/streams@0.2.0", &PREVIEW2_PACKAGES));
        for name in ["wasi:cli/run@0.3.0", "wasi:cli/run", "wasi:http/types@0.2.0", "x:cli/run@0.2.0", "wasi:cli@0.2.0"]
        {
            assert!(!is_preview2(name, &PREVIEW2_PACKAGES), "{name}");
        }
    }

    #[test]
    fn the_list_of_functions_is_sorted_and_has_no_doubles() {
        assert!(PREVIEW1_FUNCTIONS.is_sorted());
        let mut unique = PREVIEW1_FUNCTIONS.to_vec();
        unique.dedup();
        assert_eq!(unique.len(), PREVIEW1_FUNCTIONS.len());
    }
}
