//! Strips the types of a TypeScript file, for the interpreter to call: swc does it, this is the door.
//!
//! It runs inside the guest, so that a file made to break a parser meets the guest's limits and nothing of the host.

use std::sync::{Arc, Mutex};

use swc_common::errors::{DiagnosticBuilder, Emitter, Handler, HANDLER};
use swc_common::sync::Lrc;
use swc_common::{GLOBALS, Globals, SourceMap, Span};
use swc_ts_fast_strip::{ErrorCode, Mode, Options, operate};

/// What the first byte of an answer says.
const STRIPPED: u8 = 0;
const WRONG_SYNTAX: u8 = 1;
const NOT_STRIPPABLE: u8 = 2;

/// Keeps what the parser says of the first thing that is wrong.
#[derive(Clone, Default)]
struct First(Arc<Mutex<Option<(String, Option<Span>)>>>);

impl Emitter for First {
    fn emit(&mut self, told: &mut DiagnosticBuilder<'_>) {
        if let Ok(mut first) = self.0.lock() {
            first.get_or_insert_with(|| (told.message(), told.span.primary_span()));
        }
    }
}

fn strip(text: &str, module: Option<bool>) -> (u8, String) {
    let (map, first) = (Lrc::new(SourceMap::default()), First::default());
    let handler = Handler::with_emitter(false, false, Box::new(first.clone()));
    let options = Options { module, mode: Mode::StripOnly, deprecated_ts_module_as_error: Some(true), ..Options::default() };
    let done = GLOBALS
        .set(&Globals::new(), || HANDLER.set(&handler, || operate(&map, &handler, text.to_owned(), options)));
    match done {
        Ok(output) => (STRIPPED, output.code),
        Err(error) => {
            let told = first.0.lock().ok().and_then(|mut first| first.take());
            let (message, span) = told.unwrap_or((error.message, None));
            let place = span.map(|span| map.lookup_char_pos(span.lo));
            let place = place.map_or("0 0".to_owned(), |place| format!("{} {}", place.line, place.col.0 + 1));
            let code = if matches!(error.code, ErrorCode::UnsupportedSyntax) { NOT_STRIPPABLE } else { WRONG_SYNTAX };
            (code, format!("{place} {message}"))
        }
    }
}

/// Strips `length` bytes of UTF-8 at `text`. `module` is 1 for a module, 0 for a script, anything else where the text
/// must tell. The answer is one byte (see above) and then the program, or "LINE COLUMN MESSAGE"; its length goes to
/// `answer_length`, and `strip_types_free` takes it back.
///
/// # Safety
/// `text` has `length` readable bytes, `answer_length` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strip_types(text: *const u8, length: usize, module: i32, answer_length: *mut usize) -> *mut u8 {
    // SAFETY: by the contract of this function.
    let text = String::from_utf8_lossy(unsafe { std::slice::from_raw_parts(text, length) });
    let module = match module {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    };
    let (code, told) = strip(&text, module);
    let mut answer = Vec::with_capacity(told.len() + 1);
    answer.push(code);
    answer.extend_from_slice(told.as_bytes());
    let answer = Box::leak(answer.into_boxed_slice());
    // SAFETY: as above.
    unsafe { *answer_length = answer.len() };
    answer.as_mut_ptr()
}

/// Frees an answer.
///
/// # Safety
/// `answer` and `length` are what `strip_types` gave, once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strip_types_free(answer: *mut u8, length: usize) {
    // SAFETY: by the contract of this function it is the boxed slice that was leaked.
    drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(answer, length)) });
}
