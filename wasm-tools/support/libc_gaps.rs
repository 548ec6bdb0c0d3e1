//! What the standard library asks of the C library and Debian 12's (of May 2022) does not have.
//!
//! WASI preview 1 has no threads, so a truthful answer exists for each: starting one is not supported, and attributes
//! of a thread that can't start can be set to anything. `realpath` has no answer without reading links one by one; it
//! fails, so `std::fs::canonicalize` gives an error in guests that are built this way.

#![no_std]

use core::ffi::{c_char, c_int, c_void};

/// `ENOTSUP` in WASI's numbering.
const NOT_SUPPORTED: c_int = 58;

#[unsafe(no_mangle)]
extern "C" fn pthread_create(_: *mut c_void, _: *const c_void, _: *mut c_void, _: *mut c_void) -> c_int {
    NOT_SUPPORTED
}

#[unsafe(no_mangle)]
extern "C" fn pthread_detach(_: usize) -> c_int {
    NOT_SUPPORTED
}

#[unsafe(no_mangle)]
extern "C" fn pthread_join(_: usize, _: *mut c_void) -> c_int {
    NOT_SUPPORTED
}

#[unsafe(no_mangle)]
extern "C" fn pthread_attr_init(_: *mut c_void) -> c_int {
    0
}

#[unsafe(no_mangle)]
extern "C" fn pthread_attr_destroy(_: *mut c_void) -> c_int {
    0
}

#[unsafe(no_mangle)]
extern "C" fn pthread_attr_setstacksize(_: *mut c_void, _: usize) -> c_int {
    0
}

#[unsafe(no_mangle)]
extern "C" fn pthread_attr_setguardsize(_: *mut c_void, _: usize) -> c_int {
    0
}

#[unsafe(no_mangle)]
extern "C" fn realpath(_: *const c_char, _: *mut c_char) -> *mut c_char {
    core::ptr::null_mut()
}
