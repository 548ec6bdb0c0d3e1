//! [`Approver`]: somebody who is asked before a call that changes something.
//!
//! Invariant: silence is no. There is no time limit here that could turn into a yes; the run's own budget ends the wait,
//! and then the call is not begun.

use async_trait::async_trait;

/// A call that waits for a yes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProposedCall {
    /// The tool.
    pub tool: &'static str,
    /// Its arguments, canonical JSON.
    pub arguments: String,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Approval {
    /// Do it.
    Approved,
    /// Don't, for this reason, which the model is told.
    Rejected(String),
}

/// Decides on calls.
#[async_trait]
pub trait Approver: Send + Sync {
    /// Decides on one call. May wait for a person.
    async fn approve(&self, call: &ProposedCall) -> Approval;
}
