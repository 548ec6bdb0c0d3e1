//! Names that run code or grant access when a person or a tool meets them later: hooks and configuration of git, start-up
//! files of shells, keys, configuration of editors and agents.
//!
//! In a host folder that a guest may write to, these are refused where the runtime can see names, whether or not they
//! exist, and listed among the changes everywhere. Pure; the table is the whole rule. Names are compared without case and
//! without what file systems ignore, since `.GIT/hooks` is `.git/hooks` on some of them.

use unicode_normalization::UnicodeNormalization;

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
const PROTECTED: [(&[&str], &str); 65] = [
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
    (&[".bash_aliases"], "a shell runs it at its start"),
    (&[".zlogout"], "a shell runs it at its end"),
    (&[".cshrc"], "a shell runs it at its start"),
    (&[".tcshrc"], "a shell runs it at its start"),
    (&[".login"], "a shell runs it at its start"),
    (&[".inputrc"], "shells read it at their start"),
    (&[".xprofile"], "the desktop runs it at its start"),
    (&[".xinitrc"], "the desktop runs it at its start"),
    (&[".vimrc"], "an editor runs it at its start"),
    (&[".exrc"], "an editor runs it at its start"),
    (&[".hg", "hgrc"], "its hooks name programs to run"),
    (&[".cargo", "**"], "its configuration names programs to run"),
    (&[".yarnrc.yml"], "its configuration names programs to run"),
    (&[".pnpmfile.cjs"], "pnpm runs it"),
    (&["lefthook.yml"], "git runs what it names"),
    (&[".gitlab-ci.yml"], "it runs in continuous integration"),
    (&[".git", "rebase-merge", "**"], "git runs what it names when a rebase goes on"),
    (&[".git", "rebase-apply", "**"], "git runs what it names when a rebase goes on"),
    (&[".agents", "**"], "skills and instructions that agents follow"),
    (&["agents.md"], "instructions that agents follow"),
    (&["claude.md"], "instructions that agents follow"),
    (&["gemini.md"], "instructions that agents follow"),
    (&[".windsurfrules"], "instructions that agents follow"),
    (&[".cursorrules"], "instructions that agents follow"),
    (&[".cache", "skillcell", "**"], "compiled code that is trusted"),
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
        // A folder is a repository, with hooks and configuration of its own, by the `HEAD` in it. In `.git` it is what
        // git itself writes.
        if start >= first_own
            && tail.first().is_some_and(|name| name == "head")
            && !path.iter().take(start).any(|name| name == ".git")
        {
            return Protection::Protected(
                "a folder with it is a git repository, whose configuration names programs to run",
            );
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

/// Without case in every script's sense, without what file systems and people don't see, and without what Windows takes for
/// the same name: a stream's name behind a colon, dots and spaces at the end, the short name of `.git`.
fn folded(name: &str) -> String {
    let ignored = |c: &char| {
        matches!(c, '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}'
            | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}'
            | '\u{e0000}'..='\u{e0fff}')
    };
    let lower = |name: &str| name.nfkc().filter(|c| !ignored(c)).flat_map(char::to_lowercase).collect::<String>();
    // Twice: some characters have a lower case that is composed anew.
    let folded = lower(&lower(name));
    let plain = folded.split(':').next().unwrap_or_default().trim_end_matches([' ', '.']);
    let short =
        plain.strip_prefix("git~").is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()));
    if short { ".git".to_owned() } else { plain.to_owned() }
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
            ".ba\u{17f}hrc",
            ".pro\u{fb01}le",
            ".g\u{ad}it/hooks",
            "git~1/hooks",
            ".git::$INDEX_ALLOCATION/hooks",
            "src/HEAD",
            "AGENTS.md",
            ".agents/skills/x/SKILL.md",
            ".cache/skillcell/wasm/x",
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
