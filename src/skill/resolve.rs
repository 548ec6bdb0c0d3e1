//! [`SkillResolver`]: turns a reference into a folder on this machine.
//!
//! What is fetched is stored under the digest of its tree and found again under what was asked for: a commit, or the
//! digest of an archive. A branch or tag is looked up each time and never cached, so that it can't go stale.
//! Whether the bytes may run is not decided here but by [`VerifiedSkill`](super::VerifiedSkill), which reads them again.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use sha2::{Digest, Sha256};

use super::archive::{Archive, MAX_ARCHIVE_BYTES, Wanted};
use super::reference::{is_commit, shown};
use super::resources::{SKILL_MD, SKILL_MD_LOWER};
use super::{AgentSkillSource, FetchRequest, Fetcher, SkillSource};
use crate::digest::hex;
use crate::error::{ErrorKind, Result, SkillRuntimeError};
use crate::workspace::{StoredTree, TreeStore, host_file_exists, list_host_folder};

/// Bytes of GitHub's answer that names a commit.
const MAX_COMMIT_ANSWER: u64 = 4 << 10;
/// Folders of one search path that are looked at.
const MAX_SEARCHED: usize = 2_000;

/// Finds and fetches skills.
#[derive(Clone)]
pub struct SkillResolver {
    /// Where names are looked for, in order.
    pub search_paths: Vec<PathBuf>,
    /// Where fetched skills are kept.
    pub cache: PathBuf,
    /// How they are fetched. `None`: only skills of this machine.
    pub fetcher: Option<Arc<dyn Fetcher>>,
    /// Where GitHub's API is, without a slash at the end.
    pub github_api: String,
    /// Where GitHub's archives are, without a slash at the end.
    pub github_archives: String,
}

/// A skill on this machine, and where it came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedSkill {
    /// What [`VerifiedSkill::verify`](super::VerifiedSkill::verify) takes.
    pub source: SkillSource,
    /// The reference, with the commit or digest that was found in the place of a branch.
    pub origin: String,
    /// The digest it is stored under, for what was fetched.
    pub tree_sha256: Option<String>,
}

/// One skill of a search path.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct CatalogEntry {
    /// The folder's name: what is given as the reference.
    pub name: String,
    /// The folder.
    pub path: PathBuf,
    /// Whether an earlier search path has a skill of this name, which then wins.
    pub shadowed: bool,
}

/// Where names are looked for unless the caller says otherwise: `.agents/skills` and `.claude/skills`, in `project` and
/// then in `home` (CARL's order).
#[must_use]
pub fn default_search_paths(project: &Path, home: Option<&Path>) -> Vec<PathBuf> {
    [Some(project), home]
        .into_iter()
        .flatten()
        .flat_map(|folder| [".agents/skills", ".claude/skills"].map(|inside| folder.join(inside)))
        .collect()
}

impl SkillResolver {
    /// A resolver for this machine only.
    #[must_use]
    pub fn local(search_paths: Vec<PathBuf>, cache: PathBuf) -> Self {
        Self {
            search_paths,
            cache,
            fetcher: None,
            github_api: "https://api.github.com".to_owned(),
            github_archives: "https://codeload.github.com".to_owned(),
        }
    }

    /// Finds or fetches a skill.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound) saying where it was looked for; [`Unavailable`](ErrorKind::Unavailable) without a
    /// fetcher or a connection; [`TrustViolation`](ErrorKind::TrustViolation) when an archive hasn't its digest; else those
    /// of unpacking.
    pub async fn resolve(&self, source: &AgentSkillSource) -> Result<ResolvedSkill> {
        let resolved = match source {
            AgentSkillSource::Path(path) => local(path),
            AgentSkillSource::Name(name) => self.by_name(name),
            AgentSkillSource::Github { owner, repo, subpath, reference } => {
                self.github(owner, repo, subpath, reference).await
            }
            AgentSkillSource::Archive { url, sha256, subpath } => self.archive(url, sha256.as_deref(), subpath).await,
        };
        resolved.map_err(|error| error.operation("resolve"))
    }

    /// Every skill of the search paths, in order.
    ///
    /// # Errors
    /// [`LimitExceeded`](ErrorKind::LimitExceeded) for a search path with too many folders. One that isn't there is
    /// empty.
    pub fn catalog(&self) -> Result<Vec<CatalogEntry>> {
        let mut all: Vec<CatalogEntry> = Vec::new();
        for folder in &self.search_paths {
            for name in list_host_folder(folder, MAX_SEARCHED)? {
                let path = folder.join(&name);
                if has_manifest(&path) {
                    let shadowed = all.iter().any(|known| known.name == name);
                    all.push(CatalogEntry { name, path, shadowed });
                }
            }
        }
        Ok(all)
    }

    /// Every skill that was fetched and is kept.
    ///
    /// # Errors
    /// [`Backend`](ErrorKind::Backend) when the cache can't be read.
    pub fn list_cached(&self) -> Result<Vec<StoredTree>> {
        TreeStore::open(&self.cache)?.list()
    }

    fn by_name(&self, name: &str) -> Result<ResolvedSkill> {
        match self.search_paths.iter().map(|folder| folder.join(name)).find(|path| has_manifest(path)) {
            Some(path) => local(&path),
            None => {
                let searched: Vec<String> = self.search_paths.iter().map(|path| path.display().to_string()).collect();
                Err(SkillRuntimeError::new(
                    ErrorKind::NotFound,
                    format!(
                        "Skill '{}' not found in any search path. Search paths: [{}]",
                        shown(name),
                        searched.join(", ")
                    ),
                ))
            }
        }
    }

    async fn github(&self, owner: &str, repo: &str, subpath: &str, reference: &str) -> Result<ResolvedSkill> {
        let commit = if is_commit(reference) {
            reference.to_ascii_lowercase()
        } else {
            let url = format!("{}/repos/{owner}/{repo}/commits/{reference}", self.github_api);
            let accept = Some("application/vnd.github.sha");
            let answer = self.fetch(FetchRequest { url, accept, limit: MAX_COMMIT_ANSWER }).await?;
            let text = String::from_utf8_lossy(&answer).trim().to_owned();
            if !is_commit(&text) {
                return Err(SkillRuntimeError::new(
                    ErrorKind::Unavailable,
                    format!(
                        "GitHub's answer for '{}' names no commit; give the commit itself after '@'",
                        shown(reference)
                    ),
                ));
            }
            text.to_ascii_lowercase()
        };
        let origin = AgentSkillSource::Github {
            owner: owner.to_owned(),
            repo: repo.to_owned(),
            subpath: subpath.to_owned(),
            reference: commit.clone(),
        }
        .to_string();
        let key = key(&["github", owner, repo, subpath, &commit]);
        if let Some(found) = self.stored(&key).await? {
            return Ok(found);
        }
        let url = format!("{}/{owner}/{repo}/tar.gz/{commit}", self.github_archives);
        let bytes = self.fetch(FetchRequest { url, accept: None, limit: MAX_ARCHIVE_BYTES }).await?;
        let name = subpath.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(repo).to_owned();
        let subpath = subpath.to_owned();
        self.store(key, origin, bytes, name, move |bytes| Archive::open(bytes, Wanted::BelowTop(&subpath))).await
    }

    async fn archive(&self, url: &str, sha256: Option<&str>, subpath: &str) -> Result<ResolvedSkill> {
        if let Some(digest) = sha256
            && let Some(found) = self.stored(&key(&["archive", digest, subpath])).await?
        {
            return Ok(found);
        }
        let request = FetchRequest { url: url.to_owned(), accept: None, limit: MAX_ARCHIVE_BYTES };
        let bytes = self.fetch(request).await?;
        let found = hex(&Sha256::digest(&bytes));
        if let Some(pinned) = sha256
            && pinned != found
        {
            return Err(SkillRuntimeError::new(
                ErrorKind::TrustViolation,
                format!("Tarball SHA256 mismatch for {}; review what changed, then give the new digest", shown(url)),
            )
            .with("pinned", pinned)
            .with("found", found));
        }
        let origin =
            AgentSkillSource::Archive { url: url.to_owned(), sha256: Some(found.clone()), subpath: subpath.to_owned() }
                .to_string();
        let file = url.split('?').next().unwrap_or(url).rsplit('/').next().unwrap_or("skill");
        let stem = [".tar.gz", ".tgz", ".zip"].iter().find_map(|end| file.strip_suffix(end)).unwrap_or(file);
        let name = if stem.is_empty() { "skill" } else { stem }.to_owned();
        let key = key(&["archive", &found, subpath]);
        let subpath = subpath.to_owned();
        self.store(key, origin, bytes, name, move |bytes| {
            Archive::open(bytes, if subpath.is_empty() { Wanted::OnlySkill } else { Wanted::Folder(&subpath) })
        })
        .await
    }

    async fn fetch(&self, request: FetchRequest) -> Result<Bytes> {
        let fetcher = self.fetcher.as_ref().ok_or_else(|| {
            SkillRuntimeError::new(
                ErrorKind::Unavailable,
                format!(
                    "{} would have to be fetched, and fetching is off; give a folder of this machine",
                    shown(&request.url)
                ),
            )
        })?;
        fetcher.fetch(&request).await.map(|fetched| fetched.bytes)
    }

    async fn stored(&self, key: &str) -> Result<Option<ResolvedSkill>> {
        let (cache, key) = (self.cache.clone(), key.to_owned());
        let found = blocking(move || TreeStore::open(&cache)?.get(&key)).await?;
        Ok(found.map(resolved))
    }

    /// Unpacks and stores. `name` is used when the skill is the archive's root.
    async fn store(
        &self,
        key: String,
        origin: String,
        bytes: Bytes,
        name: String,
        open: impl for<'b> FnOnce(&'b [u8]) -> Result<Archive<'b>> + Send + 'static,
    ) -> Result<ResolvedSkill> {
        let cache = self.cache.clone();
        blocking(move || {
            let archive = open(&bytes)?;
            let folder = archive.folder_name();
            // GitHub's top folder is named after the commit, so `name` stands for it.
            let name = if folder.is_empty() || origin.starts_with("github://") { name } else { folder.to_owned() };
            TreeStore::open(&cache)?.put(&key, &name, &origin, |builder| archive.unpack(builder))
        })
        .await
        .map(resolved)
    }
}

impl std::fmt::Debug for SkillResolver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SkillResolver")
            .field("search_paths", &self.search_paths)
            .field("cache", &self.cache)
            .field("fetches", &self.fetcher.is_some())
            .finish_non_exhaustive()
    }
}

fn resolved((stored, folder): (StoredTree, PathBuf)) -> ResolvedSkill {
    ResolvedSkill { source: SkillSource::Folder(folder), origin: stored.origin, tree_sha256: Some(stored.tree_sha256) }
}

fn local(path: &Path) -> Result<ResolvedSkill> {
    if !has_manifest(path) {
        return Err(SkillRuntimeError::new(
            ErrorKind::NotFound,
            format!("No SKILL.md found at path: {}", path.display()),
        ));
    }
    Ok(ResolvedSkill {
        source: SkillSource::Folder(path.to_owned()),
        origin: path.display().to_string(),
        tree_sha256: None,
    })
}

fn has_manifest(folder: &Path) -> bool {
    [SKILL_MD, SKILL_MD_LOWER].iter().any(|name| host_file_exists(&folder.join(name)))
}

/// One digest for what was asked. Parts are separated by a byte that none of them can hold.
fn key(parts: &[&str]) -> String {
    hex(&Sha256::digest(parts.join("\n").as_bytes()))
}

/// Runs file work off the executor's threads.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => {
            Err(SkillRuntimeError::new(ErrorKind::Internal, "file work ended unexpectedly; please report it")
                .caused_by(error))
        }
    }
}
