//! The job from outside: a raw [`AgentSkillStepConfig`] becomes a checked [`StepPlan`], the plan is executed, and a
//! [`StepResult`] comes back.
//!
//! This module can't tell one runtime from another. The order in `execute.rs` is a security property: it is written
//! once, as straight code.

mod absent;
mod agent_step;
mod cancel;
mod config;
mod deliver;
mod errand;
mod execute;
mod file;
mod index_settings;
mod packages;
mod pip_answer;
mod plan;
mod result;

pub use crate::runtime::command_for_script;
pub use agent_step::{AgentJob, ManifestNetwork, OutputCapture, execute_agent};
pub use cancel::Cancel;
pub use config::{AgentSkillStepConfig, OutputDelivery, PackageConfig, ScriptRequirements};
pub use execute::{StepContext, execute};
pub use file::{BudgetFile, MAX_STEP_FILE_BYTES, ModelFile, ScreenFile, StepFile, StepFromFile};
pub use plan::StepPlan;
pub use result::{ConflictingOutput, DeliveredOutput, MAX_CONFLICTS_LISTED, OutputConflict, StepResult};
