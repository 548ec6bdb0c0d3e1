//! Errors of the engine turned into [`Termination`]s and clear messages.

use wasmtime::component::ResourceTableError;
use wasmtime::{Trap as EngineTrap, WasmBacktrace};
use wasmtime_wasi::I32Exit;

use crate::error::SkillRuntimeError;
use crate::runtime::{Termination, Trap};

/// Innermost functions named in a message: more is noise.
const NAMED_FRAMES: usize = 5;
/// The code of a run that ended because it held too many files open at once.
pub(super) const OPEN_FILE_LIMIT: &str = "open_file_limit";

/// How a run that ended with an error of the engine ended.
pub(super) fn termination(error: &wasmtime::Error) -> Termination {
    if let Some(exit) = error.downcast_ref::<I32Exit>() {
        return Termination::Exited(exit.0);
    }
    let trap = error.downcast_ref::<EngineTrap>().copied();
    if trap == Some(EngineTrap::OutOfFuel) {
        return Termination::OutOfFuel;
    }
    let table_is_full = matches!(error.downcast_ref::<ResourceTableError>(), Some(ResourceTableError::Full));
    let (code, mut message) = match trap {
        Some(trap) => (snake_case(&format!("{trap:?}")), trap.to_string()),
        None if table_is_full => (OPEN_FILE_LIMIT.to_owned(), "the limit of open files is reached".to_owned()),
        None => ("host_error".to_owned(), format!("{:#}", error.root_cause())),
    };
    let names: Vec<String> = error
        .downcast_ref::<WasmBacktrace>()
        .into_iter()
        .flat_map(|backtrace| backtrace.frames())
        .filter_map(|frame| frame.func_name().map(|name| format!("{:#}", rustc_demangle::demangle(name))))
        .take(NAMED_FRAMES)
        .collect();
    if !names.is_empty() {
        message.push_str(&format!(" in {}", names.join(" < ")));
    }
    Termination::Trapped(Trap { code, message })
}

/// A module that can't be loaded.
pub(super) fn load_error(name: &str, error: &wasmtime::Error) -> SkillRuntimeError {
    SkillRuntimeError::invalid(format!(
        "'{name}' can't be loaded: {error:#}; give a core module for WASI preview 1 or a component that exports wasi:cli/run"
    ))
}

fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    for c in name.chars() {
        if c.is_ascii_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.push(c.to_ascii_lowercase());
    }
    snake
}
