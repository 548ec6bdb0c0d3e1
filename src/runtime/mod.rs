//! The contract every runtime keeps: [`SkillRuntime`], the [`SkillRuntimeHandle`] it returns, the [`RunCommand`] it
//! is given, the [`RuntimeRunResult`] it answers with, and the [`RuntimeRegistry`] that finds it by name.
//!
//! This module names no runtime and starts nothing. A run that ended is a result, whatever its exit; an error means
//! that the sandbox itself failed or refused.

mod command;
mod contract;
mod guest_env;
mod handle;
mod output;
mod registry;
mod result;
mod script;
mod table;

pub use command::{RunCommand, RuntimeConfig, Stdin};
pub use contract::{Availability, PrepareContext, Progress, SilentProgress, SkillRuntime};
pub use guest_env::guest_env;
pub use handle::SkillRuntimeHandle;
pub use output::{CapturedOutput, OutputCapture, OutputSink, Stream};
pub use registry::{RuntimeFactory, RuntimeRegistry};
pub use result::{RuntimeRunResult, Termination, Trap, Usage};
pub use script::command_for_script;
pub use table::{EnforcementTable, enforcement_table};
