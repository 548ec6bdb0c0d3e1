//! One file a verb.

pub(crate) mod agent;
pub(crate) mod audit;
pub(crate) mod completions;
pub(crate) mod prove;
pub(crate) mod run;
pub(crate) mod runtimes;
pub(crate) mod skill;
