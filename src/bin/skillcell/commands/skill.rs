//! `skillcell skill`: what a skill says of itself, whether it is what was reviewed, and where skills are.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use skillcell::audit::{AuditScope, NullSink, RunId};
use skillcell::skill::{
    AgentSkillSource, HttpFetcher, LoadedSkill, LockedSkill, MAX_LOCK_BYTES, MAX_SCANNED_BYTES, ManifestMode,
    ResolvedSkill, SkillLock, SkillResolver, TrustPolicy, VerifiedSkill, default_search_paths, script_metadata,
};
use skillcell::workspace::{host_file_exists, private_home, read_host_file, write_host_file};
use skillcell::{ErrorKind, Result, SkillRuntimeError};

use crate::{exit, terminal};

/// Check, inspect, lock and find skills
#[derive(Debug, Args)]
pub(crate) struct SkillArgs {
    #[command(subcommand)]
    verb: SkillVerb,
}

#[derive(Debug, Subcommand)]
enum SkillVerb {
    /// Check a skill's SKILL.md against the format
    Validate {
        /// A path, a name, github://owner/repo/path@ref, or the address of an archive
        skill: String,
        /// Report departures from the format without failing for those that can be forgiven
        #[arg(long)]
        lenient: bool,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Show what a skill says of itself, its files, and what its scripts need
    Inspect {
        /// As for validate
        skill: String,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Write the digests of skills into a lock file
    Lock {
        /// As for validate; may be given several times
        #[arg(required = true)]
        skills: Vec<String>,
        /// The lock file
        #[arg(long, value_name = "FILE", default_value = "skill.lock")]
        lock: PathBuf,
    },
    /// Compare skills with the lock file
    Verify {
        /// As for validate; may be given several times
        #[arg(required = true)]
        skills: Vec<String>,
        /// The lock file
        #[arg(long, value_name = "FILE", default_value = "skill.lock")]
        lock: PathBuf,
    },
    /// List the skills of the search paths, and those that were fetched
    List {
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
}

pub(crate) fn main(args: SkillArgs) -> ExitCode {
    let done = match args.verb {
        SkillVerb::Validate { skill, lenient, json } => {
            validate(&skill, if lenient { ManifestMode::Lenient } else { ManifestMode::Strict }, json)
        }
        SkillVerb::Inspect { skill, json } => inspect(&skill, json),
        SkillVerb::Lock { skills, lock } => write_lock(&skills, &lock),
        SkillVerb::Verify { skills, lock } => verify(&skills, &lock),
        SkillVerb::List { json } => list(json),
    };
    done.unwrap_or_else(|error| exit::fail(&error))
}

/// The resolver of the command: names in the usual folders, fetched skills in the user's cache.
pub(crate) fn resolver() -> Result<SkillResolver> {
    let home = std::env::home_dir();
    let project = std::env::current_dir()
        .map_err(|error| SkillRuntimeError::backend("this folder can't be found; change into another", error))?;
    let cache = private_home().unwrap_or_else(|| std::env::temp_dir().join("skillcell"));
    let mut resolver = SkillResolver::local(default_search_paths(&project, home.as_deref()), cache.join("skills"));
    resolver.fetcher = Some(Arc::new(HttpFetcher::new()?));
    Ok(resolver)
}

/// Finds or fetches a skill.
pub(crate) fn resolve(source: &AgentSkillSource) -> Result<ResolvedSkill> {
    let resolver = resolver()?;
    let executor = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| SkillRuntimeError::backend("could not start the executor", error))?;
    let resolved = executor.block_on(resolver.resolve(source));
    resolved.map_err(|error| {
        // A name means the search paths only: a folder that happens to lie here must not come before them, or instead.
        let AgentSkillSource::Name(name) = source else { return error };
        if error.kind() != ErrorKind::NotFound || !Path::new(name).is_dir() {
            return error;
        }
        SkillRuntimeError::new(
            ErrorKind::NotFound,
            format!("{error}; for the folder of that name that lies here write './{}'", name.escape_debug()),
        )
    })
}

/// On the command line a path with a `/` in it needs no `./` when it is there.
pub(crate) fn reference(text: &str) -> Result<AgentSkillSource> {
    match text.parse() {
        Ok(source) => Ok(source),
        Err(error) => match text.contains("://") || !Path::new(text).is_dir() {
            true => Err(error),
            false => Ok(AgentSkillSource::Path(text.into())),
        },
    }
}

fn load(skill: &str, mode: ManifestMode) -> Result<(LoadedSkill, ResolvedSkill)> {
    let resolved = resolve(&reference(skill)?)?;
    let audit = AuditScope::new(RunId::random()?, "none", Arc::new(NullSink));
    let verified = VerifiedSkill::verify(&resolved.source, &TrustPolicy::Any, &audit)?;
    Ok((LoadedSkill::load(Arc::new(verified), mode)?, resolved))
}

fn print(document: &Value) -> ExitCode {
    let text = serde_json::to_string_pretty(document).unwrap_or_default();
    terminal::print_bytes(format!("{text}\n").as_bytes())
}

fn validate(skill: &str, mode: ManifestMode, as_json: bool) -> Result<ExitCode> {
    // Lenient first, so that every finding is shown and not only the first error.
    let (loaded, _) = load(skill, ManifestMode::Lenient)?;
    let faults = loaded.findings.iter().filter(|finding| !finding.advice).count();
    let valid = mode == ManifestMode::Lenient || faults == 0;
    let printed = if as_json {
        print(&json!({"valid": valid, "name": loaded.manifest.name, "findings": loaded.findings}))
    } else {
        let mut text = String::new();
        for finding in &loaded.findings {
            let kind = if finding.advice { "advice" } else { "fault" };
            text.push_str(&format!("{kind}: {finding} [{}]\n", finding.rule));
        }
        text.push_str(&format!(
            "{}: {}\n",
            loaded.manifest.name.escape_debug(),
            if valid { "valid" } else { "not valid" }
        ));
        terminal::print_bytes(text.as_bytes())
    };
    Ok(if valid { printed } else { ExitCode::from(exit::USAGE) })
}

fn inspect(skill: &str, as_json: bool) -> Result<ExitCode> {
    let (loaded, resolved) = load(skill, ManifestMode::Lenient)?;
    let mut needs = serde_json::Map::new();
    for path in
        loaded.verified.tree().entries().iter().map(|entry| entry.path.as_str()).filter(|path| path.ends_with(".py"))
    {
        let bytes = loaded.verified.tree().read(path, MAX_SCANNED_BYTES as u64)?;
        match script_metadata(&String::from_utf8_lossy(&bytes)) {
            Ok(Some(metadata)) => {
                needs.insert(path.to_owned(), serde_json::to_value(metadata).unwrap_or_default());
            }
            Ok(None) => {}
            Err(error) => {
                needs.insert(path.to_owned(), json!({"error": error.to_string()}));
            }
        }
    }
    let tools: Vec<String> =
        skillcell::agent::Tool::offered(&loaded.manifest).iter().map(|tool| tool.name().to_owned()).collect();
    let hosts = skillcell::parse_network_allowlist_from_allowed_tools(loaded.manifest.allowed_tools.as_ref());
    let document = json!({
        "manifest": loaded.manifest,
        "findings": loaded.findings,
        "origin": resolved.origin,
        "tree_sha256": loaded.verified.digest(),
        "skill_sha256": loaded.skill_sha256(),
        "files": loaded.verified.tree().entries().len(),
        "bytes": loaded.verified.tree().total_bytes(),
        "resources": loaded.resources,
        "tools_offered": tools,
        "hosts_asked_for": hosts,
        "script_needs": needs,
    });
    if as_json {
        return Ok(print(&document));
    }
    let list = |items: &[String]| {
        if items.is_empty() {
            "-".to_owned()
        } else {
            items.iter().map(|item| item.escape_debug().to_string()).collect::<Vec<_>>().join(", ")
        }
    };
    let mut text = format!(
        "name:         {}\ndescription:  {}\norigin:       {}\ntree sha256:  {}\nskill sha256: {} (SKILL.md only)\nfiles:        {} ({} bytes)\nscripts:      {}\nreferences:   {}\nassets:       {}\nother:        {}\ntools:        {}\nhosts asked:  {} (count only with manifest_network = \"merge\")\n",
        loaded.manifest.name.escape_debug(),
        loaded.manifest.description,
        resolved.origin,
        loaded.verified.digest(),
        loaded.skill_sha256(),
        loaded.verified.tree().entries().len(),
        loaded.verified.tree().total_bytes(),
        list(&loaded.resources.scripts),
        list(&loaded.resources.references),
        list(&loaded.resources.assets),
        list(&loaded.resources.other),
        list(&tools),
        list(&hosts),
    );
    for (path, need) in &needs {
        text.push_str(&format!("needs:        {}: {need}\n", path.escape_debug()));
    }
    for finding in &loaded.findings {
        text.push_str(&format!("finding:      {finding} [{}]\n", finding.rule));
    }
    Ok(terminal::print_bytes(text.as_bytes()))
}

fn write_lock(skills: &[String], path: &Path) -> Result<ExitCode> {
    let mut lock = if host_file_exists(path) {
        SkillLock::parse(&read_host_file(path, MAX_LOCK_BYTES)?)?
    } else {
        SkillLock::default()
    };
    let mut text = String::new();
    for skill in skills {
        let (loaded, resolved) = load(skill, ManifestMode::Lenient)?;
        let entry = LockedSkill::of(&loaded, &resolved.origin);
        text.push_str(&format!("{}  {}\n", entry.tree_sha256, entry.name.escape_debug()));
        lock.insert(entry);
    }
    write_host_file(path, lock.to_text()?.as_bytes())?;
    Ok(terminal::print_bytes(text.as_bytes()))
}

fn verify(skills: &[String], path: &Path) -> Result<ExitCode> {
    let lock = SkillLock::parse(&read_host_file(path, MAX_LOCK_BYTES)?)?;
    let (mut text, mut changed) = (String::new(), Vec::new());
    for skill in skills {
        let (loaded, _) = load(skill, ManifestMode::Lenient)?;
        let name = loaded.verified.name();
        let entry = lock.get(name).ok_or_else(|| {
            SkillRuntimeError::new(
                ErrorKind::TrustViolation,
                format!(
                    "'{}' is not in {}; review it, then add it with `skillcell skill lock`",
                    name.escape_debug(),
                    path.display()
                ),
            )
        })?;
        let differences = entry.differences(&loaded);
        if differences.is_empty() {
            text.push_str(&format!("{}: as locked\n", name.escape_debug()));
        } else {
            differences.iter().for_each(|what| text.push_str(&format!("{}: {what}\n", name.escape_debug())));
            changed.push(name.escape_debug().to_string());
        }
    }
    let printed = terminal::print_bytes(text.as_bytes());
    if changed.is_empty() {
        return Ok(printed);
    }
    Err(SkillRuntimeError::new(
        ErrorKind::TrustViolation,
        format!("{} changed since it was locked; review the change, then lock it anew", changed.join(", ")),
    ))
}

fn list(as_json: bool) -> Result<ExitCode> {
    let resolver = resolver()?;
    let (catalog, cached) = (resolver.catalog()?, resolver.list_cached()?);
    if as_json {
        return Ok(print(&json!({"found": catalog, "fetched": cached})));
    }
    let mut text = String::new();
    for entry in &catalog {
        let note = if entry.shadowed { " (hidden by an earlier one of this name)" } else { "" };
        text.push_str(&format!("{}  {}{note}\n", entry.name.escape_debug(), entry.path.display()));
    }
    for tree in &cached {
        text.push_str(&format!("{}  {}\n", tree.name.escape_debug(), tree.origin));
    }
    if text.is_empty() {
        text =
            "no skills found; they are looked for in .agents/skills and .claude/skills, here and in your home folder\n"
                .to_owned();
    }
    Ok(terminal::print_bytes(text.as_bytes()))
}
