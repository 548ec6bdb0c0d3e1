//! How this machine reaches its package index: what `pip` and `uv` would read here, handed to them where they can't.
//!
//! The tool runs in a sandbox without the user's home, so its files and variables are given to it. Invariants: only what
//! says where the index is and how it is reached; nothing that could make the tool build, install or choose otherwise;
//! none of it is shown, since addresses may hold passwords.

use std::path::{Path, PathBuf};

use crate::error::Result;
use crate::policy::EnvVars;
use crate::workspace::{Area, Input, InputSource, host_file_exists, read_host_file};

/// Variables that are handed over.
const VARIABLES: [&str; 21] = [
    "PIP_INDEX_URL",
    "PIP_EXTRA_INDEX_URL",
    "PIP_NO_INDEX",
    "PIP_TRUSTED_HOST",
    "PIP_PROXY",
    "PIP_RETRIES",
    "PIP_DEFAULT_TIMEOUT",
    "PIP_TIMEOUT",
    "UV_DEFAULT_INDEX",
    "UV_INDEX",
    "UV_INDEX_URL",
    "UV_EXTRA_INDEX_URL",
    "UV_NATIVE_TLS",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
];
/// Variables that name a file of certificates, the first that is set.
const CERTIFICATES: [&str; 3] = ["PIP_CERT", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"];
/// Bytes of a configuration or of certificates.
const MAX_FILE_BYTES: u64 = 4 << 20;
/// Folders of wheels that are handed over.
const MAX_LINKS: usize = 8;

/// What the tool is given.
#[derive(Debug, Clone, Default)]
pub(super) struct IndexSettings {
    /// Variables.
    pub(super) env: EnvVars,
    /// Files: `pip-N.conf`, `certificates.pem`, and folders `links-N`.
    pub(super) inputs: Vec<Input>,
}

impl IndexSettings {
    /// Reads what this machine says.
    ///
    /// # Errors
    /// For a variable that can't be handed over, or a file that is too large.
    pub(super) fn of_this_machine() -> Result<Self> {
        let home = std::env::home_dir();
        Self::read(&|name| std::env::var(name).ok().filter(|value| !value.is_empty()), home.as_deref())
    }

    fn read(variable: &dyn Fn(&str) -> Option<String>, home: Option<&Path>) -> Result<Self> {
        let mut settings = Self::default();
        for name in VARIABLES {
            if let Some(value) = variable(name) {
                settings.env.set(name, value)?;
            }
        }
        let named = variable("PIP_CONFIG_FILE");
        // pip's own word for none at all.
        if named.as_deref() != Some("/dev/null") {
            let user = variable("XDG_CONFIG_HOME").map(PathBuf::from).or_else(|| home.map(|home| home.join(".config")));
            let files = [
                Some(PathBuf::from("/etc/xdg/pip/pip.conf")),
                Some(PathBuf::from("/etc/pip.conf")),
                home.map(|home| home.join(".pip/pip.conf")),
                user.map(|folder| folder.join("pip/pip.conf")),
                named.map(PathBuf::from),
            ];
            for (index, path) in files.into_iter().flatten().filter(|path| host_file_exists(path)).enumerate() {
                settings.inputs.push(Input::bytes(format!("pip-{index}.conf"), read_host_file(&path, MAX_FILE_BYTES)?));
            }
        }
        if let Some(path) = CERTIFICATES.iter().find_map(|name| variable(name)).map(PathBuf::from)
            && host_file_exists(&path)
        {
            settings.inputs.push(Input::bytes("certificates.pem", read_host_file(&path, MAX_FILE_BYTES)?));
            // For tools that read it before ours does.
            settings.env.set("SSL_CERT_FILE", Area::In.guest_path().join("certificates.pem")?.to_string())?;
        }
        let mut addresses = Vec::new();
        let links = variable("PIP_FIND_LINKS").unwrap_or_default();
        for (index, link) in links.split_whitespace().take(MAX_LINKS).enumerate() {
            let path = Path::new(link.strip_prefix("file://").unwrap_or(link));
            if path.is_dir() {
                let source = InputSource::Mount(path.to_owned());
                settings.inputs.push(Input { name: format!("links-{index}"), source });
            } else if link.contains("://") {
                addresses.push(link);
            }
        }
        if !addresses.is_empty() {
            settings.env.set("PIP_FIND_LINKS", addresses.join(" "))?;
        }
        Ok(settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::write_host_file;

    #[test]
    fn only_what_leads_to_the_index_is_handed_over() {
        let home = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = home.path().join(name);
            write_host_file(&path, text.as_bytes()).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let (config, certificates) = (write("own.conf", "[global]\n"), write("ca.pem", "x"));
        let links = home.path().to_str().unwrap().to_owned();
        let variable = |name: &str| {
            Some(match name {
                "PIP_INDEX_URL" => "http://127.0.0.1:1/simple".to_owned(),
                "PIP_TARGET" | "PIP_NO_BINARY" | "PIP_PRE" | "PYTHONPATH" | "LD_PRELOAD" => "evil".to_owned(),
                "PIP_CONFIG_FILE" => config.clone(),
                "SSL_CERT_FILE" => certificates.clone(),
                "PIP_FIND_LINKS" => format!("{links} /nowhere/at/all http://127.0.0.1:1/links"),
                _ => return None,
            })
        };
        let settings = IndexSettings::read(&variable, Some(home.path())).unwrap();
        assert_eq!(
            settings.env.iter().collect::<Vec<_>>(),
            [
                ("PIP_FIND_LINKS", "http://127.0.0.1:1/links"),
                ("PIP_INDEX_URL", "http://127.0.0.1:1/simple"),
                ("SSL_CERT_FILE", "/workspace/in/certificates.pem"),
            ]
        );
        let names: Vec<&str> = settings.inputs.iter().map(|input| input.name.as_str()).collect();
        assert!(names.ends_with(&["certificates.pem", "links-0"]), "{names:?}");
        let configs = settings.inputs.iter().filter(|input| input.name.ends_with(".conf")).count();
        let none = IndexSettings::read(&|name| (name == "PIP_CONFIG_FILE").then(|| "/dev/null".into()), None).unwrap();
        assert!(configs >= 1 && none.inputs.is_empty());
    }
}
