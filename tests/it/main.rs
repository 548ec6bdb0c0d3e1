//! Integration tests, one module a behaviour.

mod cli;
