//! Making a component of a preview 1 module: the module, and the adapter that translates preview 1 to preview 2.

use anyhow::{Context, Result, bail};
use wasi_preview1_component_adapter_provider::{
    WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME, WASI_SNAPSHOT_PREVIEW1_COMMAND_ADAPTER,
};
use wit_component::ComponentEncoder;

use crate::inspect::{Kind, inspect};

/// Wraps a command module as a component that exports `wasi:cli/run`.
///
/// # Errors
/// When the bytes are no valid module, are a component already, have no `_start`, or import what the adapter doesn't
/// give.
pub fn wrap(module: &[u8]) -> Result<Vec<u8>> {
    let inspection = inspect(module)?;
    match inspection.kind {
        Kind::Module => {}
        Kind::Component => bail!("this is a component already; only modules are wrapped"),
    }
    if !inspection.exports.iter().any(|export| export.name == "_start") {
        bail!("the module exports no `_start`; only a program (a crate with a src/main.rs) becomes a component");
    }
    ComponentEncoder::default()
        .validate(true)
        .module(module)
        .and_then(|encoder| {
            encoder.adapter(WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME, WASI_SNAPSHOT_PREVIEW1_COMMAND_ADAPTER)
        })
        .and_then(|mut encoder| encoder.encode())
        .context("can't make a component of this module")
}
