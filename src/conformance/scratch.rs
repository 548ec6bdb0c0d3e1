//! What lies outside of every sandbox, for the guest to go after: a secret in a folder that anybody may enter and write
//! to, so that nothing but the sandbox keeps a guest from it. And the skill's folder, made of the probe.

use std::path::PathBuf;

use cap_std::fs::Dir;

use super::probe;
use crate::audit::RunId;
use crate::error::{Result, SkillRuntimeError};
use crate::workspace::{Area, Workspace};

/// Files of the suite on the host, removed on drop.
pub(super) struct Scratch {
    workspace: Workspace,
}

/// One world's outside.
pub(super) struct Outside {
    /// Held open.
    pub(super) folder: Dir,
    /// Its path on the host.
    pub(super) path: PathBuf,
    /// What stands in `secret.txt`.
    pub(super) secret: String,
}

/// The folder of the skill below the scratch folder.
const SKILL: &str = "conformance-skill";
/// A folder that is given as an input.
const NESTED: &str = "nested";

impl Scratch {
    /// Makes it, with the skill's folder. `wasm` is the probe for WebAssembly.
    pub(super) fn make(wasm: &[u8]) -> Result<Self> {
        let workspace = Workspace::create(RunId::random()?)?;
        let failed = |error: std::io::Error| {
            SkillRuntimeError::backend("could not make the files of the conformance suite", error)
        };
        open_up(workspace.root()).map_err(failed)?;
        let tmp = workspace.area(Area::Tmp);
        open_up(tmp).map_err(failed)?;
        let fill = || -> std::io::Result<()> {
            tmp.create_dir(SKILL)?;
            let skill = tmp.open_dir(SKILL)?;
            skill.write(probe::WASM_NAME, wasm)?;
            skill.write(probe::NATIVE_NAME, probe::NATIVE)?;
            make_executable(&skill, probe::NATIVE_NAME)?;
            skill.write("data.txt", "data of the skill")?;
            skill.create_dir("sub")?;
            skill.write("sub/leaf.txt", "leaf of the skill")?;
            tmp.create_dir(NESTED)?;
            tmp.write(format!("{NESTED}/leaf.txt"), "leaf of the input")
        };
        fill().map_err(failed)?;
        Ok(Self { workspace })
    }

    /// The skill's folder on the host.
    pub(super) fn skill(&self) -> PathBuf {
        self.path().join(SKILL)
    }

    /// A folder to give as an input.
    pub(super) fn nested(&self) -> PathBuf {
        self.path().join(NESTED)
    }

    fn path(&self) -> PathBuf {
        self.workspace.ambient_root().join(Area::Tmp.name())
    }

    /// An outside of its own, so that what is found changed there was changed from one world.
    pub(super) fn outside(&self, name: &str) -> Result<Outside> {
        let secret = format!("secret-{}", RunId::random()?);
        let tmp = self.workspace.area(Area::Tmp);
        let make = || -> std::io::Result<Dir> {
            tmp.create_dir(name)?;
            let folder = tmp.open_dir(name)?;
            folder.write("secret.txt", &secret)?;
            folder.create_dir("sub")?;
            open_up(&folder)?;
            open_up(&folder.open_dir("sub")?)?;
            writable(&folder, "secret.txt")?;
            Ok(folder)
        };
        let folder = make()
            .map_err(|error| SkillRuntimeError::backend("could not make the files of the conformance suite", error))?;
        Ok(Outside { folder, path: self.path().join(name), secret })
    }
}

/// Lets everybody enter and change a folder: a guest may run as another user than the host.
#[cfg(unix)]
fn open_up(folder: &Dir) -> std::io::Result<()> {
    use cap_std::fs::{Permissions, PermissionsExt};
    folder.set_permissions(".", Permissions::from_mode(0o777))
}

#[cfg(unix)]
fn writable(folder: &Dir, name: &str) -> std::io::Result<()> {
    use cap_std::fs::{Permissions, PermissionsExt};
    folder.set_permissions(name, Permissions::from_mode(0o666))
}

#[cfg(unix)]
fn make_executable(folder: &Dir, name: &str) -> std::io::Result<()> {
    use cap_std::fs::{Permissions, PermissionsExt};
    folder.set_permissions(name, Permissions::from_mode(0o755))
}

#[cfg(not(unix))]
fn open_up(_folder: &Dir) -> std::io::Result<()> {
    Ok(())
}

#[cfg(not(unix))]
fn writable(_folder: &Dir, _name: &str) -> std::io::Result<()> {
    Ok(())
}

#[cfg(not(unix))]
fn make_executable(_folder: &Dir, _name: &str) -> std::io::Result<()> {
    Ok(())
}
