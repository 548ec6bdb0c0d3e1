//! Names that run code or grant access when a person or a tool meets them later: hooks and configuration of git, start-up
//! files of shells, keys, configuration of editors and agents.
//!
//! In a host folder that a guest may write to, these are refused where the runtime can see names, whether or not they
//! exist, and listed among the changes everywhere. Pure; the table is the whole rule. Names are compared without case and
//! without what file systems ignore, since `.GIT/hooks` is `.git/hooks` on some of them.

/// What a path inside a writable mount means to the person who owns the folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protection {
    /// Nothing special.
    Free,
    /// A folder that holds protected names: it may be filled, but not moved, replaced or removed.
    Above,
    /// Protected, for this reason: nothing there may be made, changed, moved or removed.
    Protected(&'static str),
}

/// Patterns of components, anywhere in a path; a last `**` stands for everything at and below.
const PROTECTED: [(&[&str], &str); 40] = [
    (&[".git", "hooks", "**"], "git runs what lies there"),
    (&[".git", "config"], "git's configuration can name programs to run"),
    (&[".git", "config.worktree"], "git's configuration can name programs to run"),
    (&[".git", "info", "attributes"], "git's attributes can name programs to run"),
    (&[".git", "modules", "**"], "git's submodules have hooks and configuration of their own"),
    (&[".git", "commondir"], "it tells git where hooks and configuration lie"),
    (&[".git", "worktrees", "**"], "it tells git where hooks and configuration lie"),
    (&[".gitconfig"], "git's configuration can name programs to run"),
    (&[".gitmodules"], "git fetches what it names"),
    (&[".config", "git", "**"], "git's configuration can name programs to run"),
    (&[".husky", "**"], "git runs what lies there"),
    (&[".pre-commit-config.yaml"], "its hooks run at the next commit"),
    (&[".bashrc"], "a shell runs it at its start"),
    (&[".bash_profile"], "a shell runs it at its start"),
    (&[".bash_login"], "a shell runs it at its start"),
    (&[".bash_logout"], "a shell runs it at its end"),
    (&[".profile"], "a shell runs it at its start"),
    (&[".zshrc"], "a shell runs it at its start"),
    (&[".zshenv"], "a shell runs it at its start"),
    (&[".zprofile"], "a shell runs it at its start"),
    (&[".zlogin"], "a shell runs it at its start"),
    (&[".config", "fish", "**"], "a shell runs it at its start"),
    (&[".config", "autostart", "**"], "the desktop runs it at its start"),
    (&[".config", "systemd", "**"], "the system runs it"),
    (&[".envrc"], "direnv runs it when the folder is entered"),
    (&[".ssh", "**"], "keys and the programs ssh runs"),
    (&[".gnupg", "**"], "keys"),
    (&[".netrc"], "passwords"),
    (&[".npmrc"], "npm's configuration names registries and programs"),
    (&[".pypirc"], "passwords of registries"),
    (&[".vscode", "**"], "an editor runs its tasks and settings"),
    (&[".idea", "**"], "an editor runs its tasks and settings"),
    (&[".cursor", "**"], "an agent's configuration"),
    (&[".claude", "**"], "an agent's configuration"),
    (&[".codex", "**"], "an agent's configuration"),
    (&[".gemini", "**"], "an agent's configuration"),
    (&[".mcp.json"], "an agent's configuration"),
    (&[".aider.conf.yml"], "an agent's configuration"),
    (&[".github", "workflows", "**"], "it runs in continuous integration"),
    (&[".devcontainer", "**"], "an editor builds and runs it"),
];

/// The patterns themselves, for runtimes whose sandbox takes patterns: components, of which a last `**` stands for
/// everything at and below.
pub(crate) fn protected_patterns() -> impl Iterator<Item = &'static [&'static str]> {
    PROTECTED.iter().map(|(pattern, _)| *pattern)
}

/// What a path means: `parts` are its components below the mount, top first, without `.` and `..`. `above` are the last
/// components of the host's own path, so that a mount of `.git` itself is known for what it is.
#[must_use]
pub fn protection<'a>(above: &[String], parts: impl IntoIterator<Item = &'a str>) -> Protection {
    let mut path: Vec<String> = above.iter().map(|part| folded(part)).collect();
    let first_own = path.len();
    path.extend(parts.into_iter().map(folded));
    let mut found = Protection::Free;
    for start in 0..path.len() {
        let tail = path.get(start..).unwrap_or_default();
        for (pattern, reason) in PROTECTED {
            match matched(pattern, tail) {
                Match::Here => return Protection::Protected(reason),
                // A component of the host's path above the mount can't be moved by the guest.
                Match::Above if path.len() > first_own => found = Protection::Above,
                Match::Above | Match::No => {}
            }
        }
        // A file `.git` names the folder that git uses instead: making one is as good as making the folder's hooks. It
        // is `Above` like the folder, and a runtime refuses to make a *file* or link of a name that is `Above`.
    }
    found
}

enum Match {
    No,
    /// The path ends inside the pattern: what lies deeper may be protected.
    Above,
    Here,
}

fn matched(pattern: &[&str], path: &[String]) -> Match {
    for (index, part) in pattern.iter().enumerate() {
        if *part == "**" {
            return Match::Here;
        }
        match path.get(index) {
            None => return Match::Above,
            Some(name) if name == part => {}
            Some(_) => return Match::No,
        }
    }
    // At the protected file, or, when a folder has its name, somewhere below.
    Match::Here
}

/// Without case, and without what Windows and macOS ignore at the end of or inside a name.
fn folded(name: &str) -> String {
    let ignored = |c: &char| !matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
    let folded: String = name.chars().filter(ignored).flat_map(char::to_lowercase).collect();
    folded.trim_end_matches([' ', '.']).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(path: &str) -> Protection {
        protection(&[], path.split('/'))
    }

    #[test]
    fn the_table() {
        for path in [
            ".git/hooks",
            ".git/hooks/pre-commit",
            "a/b/.git/hooks/x/y",
            ".git/config",
            ".GIT/Hooks/x",
            ".git./hooks",
            ".g\u{200c}it/hooks",
            ".bashrc",
            "home/.ssh/authorized_keys",
            ".claude/settings.json",
            ".mcp.json",
            ".vscode",
            "sub/.github/workflows/x.yml",
        ] {
            assert!(matches!(of(path), Protection::Protected(_)), "{path}");
        }
        for path in [".git", "a/.git", ".git/info", ".config", ".github"] {
            assert_eq!(of(path), Protection::Above, "{path}");
        }
        for path in
            ["a", "git/hooks", ".git/objects/aa", ".git/HEAD", "hooks", ".gitignore", ".config/app", "bashrc", ""]
        {
            assert_eq!(of(path), Protection::Free, "{path}");
        }
    }

    #[test]
    fn the_hosts_own_path_counts() {
        let above = |parts: &[&str], path: &str| {
            let above: Vec<String> = parts.iter().map(|part| (*part).to_owned()).collect();
            protection(&above, path.split('/').filter(|part| !part.is_empty()))
        };
        assert!(matches!(above(&["repo", ".git"], "hooks/x"), Protection::Protected(_)));
        assert!(matches!(above(&[".git", "hooks"], "x"), Protection::Protected(_)));
        assert!(matches!(above(&[".git", "hooks"], ""), Protection::Protected(_)));
        assert_eq!(above(&["repo", ".git"], ""), Protection::Free);
        assert_eq!(above(&["repo", ".git"], "info"), Protection::Above);
        assert_eq!(above(&["repo"], "src/main.rs"), Protection::Free);
    }
}
