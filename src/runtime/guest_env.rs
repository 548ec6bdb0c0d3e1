//! The fixed environment every guest starts from, the same on every runtime that runs programs in `/workspace`.
//!
//! Must never read the host's environment: what a guest sees is this set plus what the command gives.

use super::RunCommand;
use crate::error::Result;
use crate::policy::EnvVars;
use crate::workspace::Area;

/// The fixed set, with the command's own variables over it.
///
/// # Errors
/// [`InvalidConfig`](crate::ErrorKind::InvalidConfig) when the two together are more than an environment may hold.
pub fn guest_env(command: &RunCommand) -> Result<EnvVars> {
    let mut env = EnvVars::default();
    env.set("PATH", "/usr/local/bin:/usr/bin:/bin")?;
    env.set("LANG", "C.UTF-8")?;
    env.set("HOME", Area::Tmp.guest_path().to_string())?;
    env.set("TMPDIR", Area::Tmp.guest_path().to_string())?;
    env.set("PWD", command.cwd.to_string())?;
    env.set("SKILL_DIR", Area::Skill.guest_path().to_string())?;
    env.set("WORKSPACE_IN", Area::In.guest_path().to_string())?;
    env.set("WORKSPACE_OUT", Area::Out.guest_path().to_string())?;
    env.extend(&command.env)?;
    Ok(env)
}
