//! The suite that every runtime must pass, for ours and for those of other authors.
//!
//! One probe program runs inside the sandbox and attempts what a hostile script would; the suite looks from outside at
//! what came of it. Cases apply by what the runtime *declares* ([`RuntimeCapabilities`](crate::policy::RuntimeCapabilities)
//! and the handle's report): what is declared enforced must hold, with no trace of the attempt and a twin that shows
//! that the same operation works where it is allowed; what isn't declared must be refused in strict mode. So a runtime
//! that claims too much fails, one that claims less than it plainly keeps fails, and so does one that merely fails at
//! everything.
//!
//! ```no_run
//! # async fn example(mine: &dyn skillcell::SkillRuntime) -> skillcell::Result<()> {
//! use skillcell::conformance::{self, Options};
//! let report = conformance::run(mine, &Options::default()).await?;
//! for case in report.failures() {
//!     eprintln!("{}: {}", case.case, case.reason);
//! }
//! assert!(report.passed());
//! # Ok(()) }
//! ```
//!
//! It uses nothing but the contract, and names no runtime. It opens sockets on the loopback interface only, makes its
//! files in the system's temporary folder, and leaves nothing behind. Invariant: a case that could not be decided is
//! `failed`, never `held`.

mod case;
mod cases;
mod claims;
mod probe;
mod report;
mod scratch;
mod suite;
mod traces;
mod world;

pub use case::Group;
pub use report::{CaseReport, Outcome, Report, matrix};
pub use suite::{Options, case_names, run};
