//! The job from outside: a raw [`AgentSkillStepConfig`] becomes a checked [`StepPlan`], the plan is executed, and a
//! [`StepResult`] comes back.
//!
//! This module can't tell one runtime from another. The order in `execute.rs` is a security property: it is written
//! once, as straight code.

mod cancel;
mod command;
mod config;
mod execute;
mod plan;
mod result;

pub use cancel::Cancel;
pub use command::command_for_script;
pub use config::{AgentSkillStepConfig, OutputDelivery};
pub use execute::{StepContext, execute};
pub use plan::StepPlan;
pub use result::{DeliveredOutput, StepResult};
