//! Installing what the caller asked for: ask the runtime's Python what it is, look in the cache, have the machine's `pip`
//! choose and fetch wheels, compile them, store the tree.
//!
//! The tool runs in a sandbox where this machine has one that confines programs of the host and still lets them reach
//! the network; otherwise as an ordinary process, and the result says so. It fetches wheels and does nothing else: no
//! code of a package runs outside the step's own runtime.
//!
//! The policy of the step is the guest's and stays what it is. That the caller's machine fetched something is in the
//! audit trail.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::json;

use super::errand::Errand;
use super::execute::{StepContext, blocking};
use super::index_settings::IndexSettings;
use super::pip_answer::{Answer, PACKAGES, shown, taken};
use super::plan::StepPlan;
use crate::audit::{AuditScope, Layer, RunId};
use crate::error::{ErrorKind, Result, SkillRuntimeError};
use crate::packages::{
    FINISH, InstalledPackages, LockedPackage, LockedTarget, NativeCode, PIP_TOOL, PROBE, PackageLock, PackageOrigin,
    PipRequirement, PythonTarget, Site, SiteParts, SiteStore, Wheel, files_key, native_only, request_key, requirements,
};
use crate::policy::{EnforcementMode, EnvVars, Isolation, Limits, NetworkPolicy, OutMode, SandboxPolicy};
use crate::runtime::{Availability, RuntimeConfig, RuntimeRegistry, SkillRuntime};
use crate::skill::{MAX_ARCHIVE_BYTES, MAX_SCANNED_BYTES, SkillSource, VerifiedSkill, script_metadata};
use crate::workspace::{Area, HostTree, Workspace, host_file_exists, private_home};

/// Choosing, fetching or compiling may take this long: a slow network, a large package, an interpreter that has to be
/// compiled first.
const ERRAND_TIME: Duration = Duration::from_secs(600);
/// Memory of the tool: `pip` holds the index's pages.
const TOOL_MEMORY: u64 = 2 << 30;
/// Bytes of compiled Python, packed.
const MAX_COMPILED_BYTES: u64 = MAX_ARCHIVE_BYTES;
/// Bytes of a report of ours.
const MAX_REPORT_BYTES: u64 = 1 << 20;
/// Programs that can run the tool, the likelier first. `uv` fetches a `pip` of its own.
const TOOL_COMMANDS: [&[&str]; 2] =
    [&["python3", "-I"], &["uv", "run", "--quiet", "--no-project", "--with", "pip", "--", "python", "-I"]];
/// The interpreter of the step's runtime, as scripts get it.
const RUNTIME_PYTHON: &[&str] = &["python3"];

/// Packages for a step, ready to be staged.
pub(super) struct Packages {
    /// What goes to `/workspace/site`.
    pub(super) tree: Arc<HostTree>,
    /// What the result says.
    pub(super) installed: InstalledPackages,
}

/// What is wanted, once scripts were asked too.
struct Wanted {
    requirements: Vec<String>,
    requires_python: Vec<String>,
}

/// The folder of installed packages of this user.
pub(super) fn default_cache() -> PathBuf {
    private_home().unwrap_or_else(|| std::env::temp_dir().join("skillcell")).join("packages")
}

/// Installs what the plan asks for. `scripts` are the Python files that may run, for what they say they need.
///
/// # Errors
/// [`NotFound`](ErrorKind::NotFound): no such package as a wheel. [`Unavailable`](ErrorKind::Unavailable): no tool, no
/// network, or a package with native code that the runtime can't load. [`TrustViolation`](ErrorKind::TrustViolation):
/// other files than were locked.
pub(super) async fn install(
    plan: &StepPlan,
    skill: &VerifiedSkill,
    scripts: &[String],
    context: &StepContext,
    audit: &AuditScope,
) -> Result<Option<Packages>> {
    let wanted = wanted(plan, skill, scripts)?;
    if wanted.requirements.is_empty() {
        return Ok(None);
    }
    Installer { plan, context, audit, wanted }.install().await.map(Some).map_err(|error| error.operation("packages"))
}

/// The Python files of a skill, as paths in it.
pub(super) fn python_files(skill: &VerifiedSkill) -> impl Iterator<Item = &str> {
    skill.tree().entries().iter().map(|entry| entry.path.as_str()).filter(|path| path.ends_with(".py"))
}

/// The caller's requirements, and with consent the scripts'.
fn wanted(plan: &StepPlan, skill: &VerifiedSkill, scripts: &[String]) -> Result<Wanted> {
    let mut texts: Vec<String> = plan.packages.pip.iter().map(|wanted| wanted.as_str().to_owned()).collect();
    let mut requires_python = BTreeSet::new();
    if plan.packages.script_requirements == super::ScriptRequirements::Install {
        for path in scripts {
            let bytes = skill.tree().read(path, MAX_SCANNED_BYTES as u64)?;
            let found =
                script_metadata(&String::from_utf8_lossy(&bytes)).map_err(|error| error.with("script", path))?;
            let Some(metadata) = found else { continue };
            texts.extend(metadata.dependencies);
            requires_python.extend(metadata.requires_python);
        }
    }
    let parsed: Vec<PipRequirement> = requirements(texts.iter().map(String::as_str))?;
    Ok(Wanted {
        requirements: parsed.iter().map(|wanted| wanted.as_str().to_owned()).collect(),
        requires_python: requires_python.into_iter().collect(),
    })
}

/// One installation.
struct Installer<'a> {
    plan: &'a StepPlan,
    context: &'a StepContext,
    audit: &'a AuditScope,
    wanted: Wanted,
}

impl Installer<'_> {
    async fn install(self) -> Result<Packages> {
        let cache = &self.context.package_cache;
        let target = self.target().await?;
        let lock_path = self.lock_path();
        let mut lock = lock_path.as_deref().map_or_else(|| Ok(PackageLock::default()), PackageLock::read)?;
        let requirements = &self.wanted.requirements;
        let locked = lock.target(&target.name(), requirements)?.cloned();
        let key = match &locked {
            Some(locked) => files_key(&self.fit(&target), &locked.files),
            None => request_key(&self.fit(&target), requirements),
        };
        let found = {
            let (cache, key) = (cache.clone(), key.clone());
            blocking(move || SiteStore::open(&cache)?.get(&key)).await?
        };
        let (site, origin) = match found {
            Some(site) => (site, PackageOrigin::Cache),
            None => self.fetch(&target, locked.as_ref(), &key).await?,
        };
        let how = match &origin {
            PackageOrigin::Cache => "from the cache of this machine".to_owned(),
            PackageOrigin::Index { tool_runtime, confined } => {
                let how = if *confined { "confined by" } else { "not confined, in" };
                format!("fetched by pip, {how} runtime '{tool_runtime}'")
            }
        };
        for package in &site.record.files {
            let reason = format!("sha256 {}, {how}", package.sha256);
            self.audit.allow(Layer::Trust, "install", &format!("{} {}", package.name, package.version), &reason)?;
        }
        if let (Some(path), None) = (lock_path, &locked) {
            lock.set(
                target.name(),
                LockedTarget { requirements: requirements.clone(), files: site.record.files.clone() },
            );
            blocking(move || lock.write(&path)).await?;
        }
        let installed = InstalledPackages { files: site.record.files, left_out: site.record.left_out, origin };
        Ok(Packages { tree: Arc::new(site.tree), installed })
    }

    /// What decides beside the requirements: the Python, and what scripts demand of it, which the tool looks at.
    fn fit(&self, target: &PythonTarget) -> String {
        format!("{} {}", target.exact_name(), self.wanted.requires_python.join(" "))
    }

    /// The lock the caller named, or the one beside the skill if there is one.
    fn lock_path(&self) -> Option<PathBuf> {
        self.plan.packages.lock.clone().or_else(|| {
            let (SkillSource::Folder(path) | SkillSource::Script(path)) = &self.plan.skill;
            let beside = PackageLock::beside(path);
            host_file_exists(&beside).then_some(beside)
        })
    }

    /// Asks the runtime's Python what it is.
    async fn target(&self) -> Result<PythonTarget> {
        self.context.progress.working("asking the runtime's Python what it is");
        let errand = self.errand("probe.py", PROBE);
        let answer = errand
            .run(&self.tools(), self.context, |run, _| {
                if run.success() {
                    return Ok(run.stdout.text());
                }
                Err(SkillRuntimeError::new(
                    ErrorKind::Unavailable,
                    "the runtime's python3 could not say what it is, so no package can be chosen for it",
                )
                .caused_by(shown(&run.stderr.text())))
            })
            .await?;
        PythonTarget::parse(&answer)
    }

    /// Chooses, fetches, unpacks, compiles and stores.
    async fn fetch(
        &self,
        target: &PythonTarget,
        locked: Option<&LockedTarget>,
        key: &str,
    ) -> Result<(Site, PackageOrigin)> {
        let (wheels, origin) = self.wheels(target, locked).await?;
        let files: Vec<LockedPackage> = wheels.iter().map(LockedPackage::of).collect();
        if let Some(locked) = locked
            && locked.files != files
        {
            return Err(SkillRuntimeError::new(
                ErrorKind::TrustViolation,
                "what was fetched is not what the lock of packages names; review the change, then remove the entry to lock anew",
            ));
        }
        let instead = instead(&self.context.registry);
        let native = if target.is_pure() { NativeText::LeftOut(instead.clone()) } else { NativeText::Loaded };
        let parts = Arc::new(Parts { requirements: self.wanted.requirements.clone(), wheels, native });
        self.context.progress.working("compiling packages");
        // First where nobody looks: what doesn't work is not stored.
        let (scratch, first, checks) = {
            let parts = parts.clone();
            blocking(move || {
                let scratch = Workspace::create(RunId::random()?)?;
                let store = SiteStore::open(&scratch.ambient_root().join("tmp").join("site"))?;
                let (site, checks) = store.put(&["first"], &parts.borrowed(None))?;
                Ok((scratch, site, checks))
            })
            .await?
        };
        let compiled = self.finish(Arc::new(first.tree), checks, &files, &instead).await?;
        drop(scratch);
        let (cache, other) = (self.context.package_cache.clone(), files_key(&self.fit(target), &files));
        let keys = BTreeSet::from([key.to_owned(), other]);
        let site = blocking(move || {
            let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
            SiteStore::open(&cache)?.put(&keys, &parts.borrowed(Some(compiled))).map(|(site, _)| site)
        })
        .await?;
        Ok((site, origin))
    }

    /// Compiles the packages in the step's runtime, and sees whether those that lost native code work without.
    async fn finish(
        &self,
        tree: Arc<HostTree>,
        checks: BTreeMap<String, BTreeSet<String>>,
        files: &[LockedPackage],
        instead: &str,
    ) -> Result<Bytes> {
        #[derive(Deserialize)]
        struct Report {
            failed: BTreeMap<String, String>,
        }
        let mut errand = self.errand("finish.py", FINISH);
        errand.stdin = json!({"check": checks}).to_string().into_bytes();
        errand.env.set("PYTHONPATH", Area::Site.guest_path().to_string())?;
        errand.site = Some(tree);
        let (compiled, report) = errand
            .run(&self.tools(), self.context, |run, workspace| {
                if !run.success() {
                    return Err(SkillRuntimeError::new(
                        ErrorKind::Backend,
                        format!("the packages could not be compiled in the runtime: {}", run.termination),
                    )
                    .caused_by(shown(&run.stderr.text())));
                }
                let out = Area::Out.guest_path();
                let compiled = workspace.read_file(&out.join("pyc.zip")?, MAX_COMPILED_BYTES)?;
                Ok((compiled, workspace.read_file(&out.join("report.json")?, MAX_REPORT_BYTES)?))
            })
            .await?;
        let report: Report = serde_json::from_slice(&report).map_err(|error| {
            SkillRuntimeError::backend("the report on compiled packages can't be read; try again", error)
        })?;
        match report.failed.iter().next() {
            None => Ok(compiled),
            Some((name, why)) => {
                let package = files.iter().find(|package| package.name == *name);
                let what = format!("without it: {}", shown(why));
                Err(match package {
                    Some(package) => native_only(package, &what, instead),
                    None => SkillRuntimeError::new(ErrorKind::Backend, "a package could not be tried in the runtime"),
                })
            }
        }
    }

    /// Has the machine's `pip` fetch the wheels, in the most confining of the runtimes that can do it.
    async fn wheels(
        &self,
        target: &PythonTarget,
        locked: Option<&LockedTarget>,
    ) -> Result<(Vec<Wheel>, PackageOrigin)> {
        let lines: Vec<String> = match locked {
            None => self.wanted.requirements.clone(),
            Some(locked) => {
                let line = |package: &LockedPackage| {
                    format!("{}=={} --hash=sha256:{}", package.name, package.version, package.sha256)
                };
                locked.files.iter().map(line).collect()
            }
        };
        let job = json!({
            "requirements": lines,
            "locked": locked.is_some(),
            "options": target.pip_options(),
            "pure": target.is_pure(),
            "markers": target.markers(),
            "requires_python": self.wanted.requires_python,
        })
        .to_string();
        let settings = blocking(IndexSettings::of_this_machine).await?;
        let mut missing = Vec::new();
        for tool in self.tool_runtimes().await {
            for command in TOOL_COMMANDS {
                let name = tool.runtime.name().to_owned();
                self.context.progress.working("fetching packages with pip");
                let object = format!("pip in runtime '{name}'");
                self.audit.allow(Layer::Network, "fetch", &object, "the caller's packages; not the guest's network")?;
                match self.ask(&tool, command, &job, &settings).await {
                    Ok(Answer::Wheels(wheels)) => {
                        let origin = PackageOrigin::Index { tool_runtime: name, confined: tool.confined };
                        return Ok((wheels, origin));
                    }
                    Ok(Answer::NoTool) => {
                        missing.push(format!("{} in {name} has no pip that will do", command_name(command)))
                    }
                    Err(error)
                        if matches!(
                            error.kind(),
                            ErrorKind::Unavailable | ErrorKind::PolicyUnenforceable | ErrorKind::NotFound
                        ) && error.failed_operation() != PACKAGES =>
                    {
                        missing.push(format!("{name}: {error}"));
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Err(SkillRuntimeError::new(
            ErrorKind::Unavailable,
            "installing packages needs python3 with pip 22 or newer, or uv, on this machine; install one",
        )
        .caused_by(if missing.is_empty() {
            "no runtime that runs programs of this machine".to_owned()
        } else {
            missing.join("; ")
        }))
    }

    async fn ask(&self, tool: &ToolRuntime, command: &[&str], job: &str, settings: &IndexSettings) -> Result<Answer> {
        let errand = Errand {
            runtime: &tool.runtime,
            config: &RuntimeConfig::default(),
            policy: tool.policy.clone(),
            name: "pip_tool.py",
            text: PIP_TOOL,
            interpreter: command,
            stdin: job.as_bytes().to_vec(),
            env: settings.env.clone(),
            inputs: settings.inputs.clone(),
            site: None,
        };
        errand.run(&self.tools(), self.context, |run, workspace| taken(&run, workspace)).await
    }

    /// The runtimes that run programs of this machine and let them reach the network, the confining ones first.
    async fn tool_runtimes(&self) -> Vec<ToolRuntime> {
        let mut found = Vec::new();
        for name in self.context.registry.names() {
            let Ok(runtime) = self.context.registry.get(name) else { continue };
            let confined = match runtime.capabilities().isolation {
                Isolation::Process => true,
                Isolation::None => false,
                Isolation::Container | Isolation::Wasm | Isolation::Microvm | Isolation::Unknown => continue,
            };
            let mut policy = SandboxPolicy { limits: errand_limits(), ..SandboxPolicy::default() };
            policy.limits.memory = TOOL_MEMORY;
            policy.network.policy = NetworkPolicy::Host;
            policy.mode = if confined { EnforcementMode::Strict } else { EnforcementMode::BestEffort };
            if runtime.enforcement(&policy).gate().is_err()
                || !matches!(runtime.availability().await, Availability::Available { .. })
            {
                continue;
            }
            found.push(ToolRuntime { runtime, policy, confined });
        }
        found.sort_by_key(|tool| !tool.confined);
        found
    }

    /// An errand in the step's own runtime, under the step's policy but for its limits.
    fn errand(&self, name: &'static str, text: &'static str) -> Errand<'_> {
        Errand {
            runtime: &self.plan.runtime,
            config: &self.plan.runtime_config,
            // The caller's folders are the script's, and none of an errand's business.
            policy: SandboxPolicy {
                limits: errand_limits(),
                mounts: Vec::new(),
                out: OutMode::ReadWrite,
                ..self.plan.policy.clone()
            },
            name,
            text,
            interpreter: RUNTIME_PYTHON,
            stdin: Vec::new(),
            env: EnvVars::default(),
            inputs: Vec::new(),
            site: None,
        }
    }

    fn tools(&self) -> PathBuf {
        self.context.package_cache.join("tools")
    }
}

/// Where native code and the modules of this machine work, for a message.
pub(super) fn instead(registry: &RuntimeRegistry) -> String {
    let native =
        |name: &&str| registry.get(name).is_ok_and(|runtime| runtime.capabilities().isolation != Isolation::Wasm);
    let names: Vec<&str> = registry.names().into_iter().filter(native).collect();
    if names.is_empty() {
        "use a build of skillcell with other runtimes".to_owned()
    } else {
        format!("use a runtime with a native Python: {}", names.join(", "))
    }
}

/// A runtime that a tool of this machine can run in.
struct ToolRuntime {
    runtime: Arc<dyn SkillRuntime>,
    policy: SandboxPolicy,
    confined: bool,
}

/// [`SiteParts`] with everything its own.
struct Parts {
    requirements: Vec<String>,
    wheels: Vec<Wheel>,
    native: NativeText,
}

enum NativeText {
    Loaded,
    LeftOut(String),
}

impl Parts {
    fn borrowed(&self, compiled: Option<Bytes>) -> SiteParts<'_> {
        let native = match &self.native {
            NativeText::Loaded => NativeCode::Loaded,
            NativeText::LeftOut(instead) => NativeCode::LeftOut { instead },
        };
        SiteParts { requirements: &self.requirements, wheels: &self.wheels, native, compiled }
    }
}

fn errand_limits() -> Limits {
    Limits { wall_time: ERRAND_TIME, ..Limits::default() }
}

fn command_name<'a>(command: &[&'a str]) -> &'a str {
    command.first().copied().unwrap_or_default()
}
