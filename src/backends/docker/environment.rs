//! The environment of every run: the image's own, and over it the fixed set that every guest has. Pure.
//!
//! The image's environment is part of the image that the caller chose (its interpreter may stand on `PATH` alone);
//! nothing of the host's is in it.

use super::image::ImageFacts;
use crate::workspace::Area;

/// For an image that names no search path.
const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The environment but for `PWD` and what a command adds. `site`: packages are installed in `/workspace/site`.
pub(super) fn of_image(image: &ImageFacts, site: Site) -> Vec<(String, String)> {
    let area = |area: Area| area.guest_path().to_string();
    let mut env = vec![("PATH".to_owned(), SYSTEM_PATH.to_owned())];
    let mut set = |name: &str, value: String| {
        env.retain(|(known, _)| known != name);
        env.push((name.to_owned(), value));
    };
    for (name, value) in &image.env {
        // A program must never be looked for where a guest can write, nor in whatever the current folder is.
        let safe =
            |folder: &str| folder.starts_with('/') && !folder.starts_with("/workspace") && !folder.starts_with("/tmp");
        if name != "PATH" || value.split(':').all(safe) {
            set(name, value.clone());
        }
    }
    set("HOME", area(Area::Tmp));
    set("LANG", "C.UTF-8".into());
    set("PYTHONDONTWRITEBYTECODE", "1".into());
    set("SKILL_DIR", area(Area::Skill));
    set("TMPDIR", area(Area::Tmp));
    set("WORKSPACE_IN", area(Area::In));
    set("WORKSPACE_OUT", area(Area::Out));
    if site == Site::Filled {
        set("PYTHONPATH", area(Area::Site));
    }
    env
}

/// Whether packages are installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Site {
    Empty,
    Filled,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fixed_set_stands_over_the_images() {
        let mut image = ImageFacts {
            env: [("PATH", "/opt/bin:/usr/bin"), ("HOME", "/root"), ("JAVA_HOME", "/opt/java")]
                .map(|(n, v)| (n.into(), v.into()))
                .to_vec(),
            ..ImageFacts::default()
        };
        let expected = [
            ("PATH", "/opt/bin:/usr/bin"),
            ("JAVA_HOME", "/opt/java"),
            ("HOME", "/workspace/tmp"),
            ("LANG", "C.UTF-8"),
            ("PYTHONDONTWRITEBYTECODE", "1"),
            ("SKILL_DIR", "/workspace/skill"),
            ("TMPDIR", "/workspace/tmp"),
            ("WORKSPACE_IN", "/workspace/in"),
            ("WORKSPACE_OUT", "/workspace/out"),
            ("PYTHONPATH", "/workspace/site"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(of_image(&image, Site::Filled), expected);
        for path in ["bin:/usr/bin", "/workspace/out:/usr/bin", "/usr/bin::/bin", "/tmp/x"] {
            image.env = vec![("PATH".into(), path.into())];
            assert_eq!(of_image(&image, Site::Empty)[0], ("PATH".into(), SYSTEM_PATH.into()), "{path}");
        }
    }
}
