//! Skills from elsewhere: archives and GitHub, against a server of the loopback.

#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "helpers of tests, which play the host")]

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use skillcell::audit::{AuditScope, NullSink, RunId};
use skillcell::skill::{
    AgentSkillSource, HttpFetcher, LoadedSkill, ManifestMode, SkillResolver, SkillSource, TrustPolicy, VerifiedSkill,
    default_search_paths,
};
use skillcell::{ErrorKind, Result};

use crate::http_server::{Reply, Server};

const SKILL: &str = "---\nname: pdf\ndescription: d\n---\nbody";
const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

fn tar_gz(files: &[(&str, &str)]) -> Vec<u8> {
    let encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let mut builder = tar::Builder::new(encoder);
    for (path, text) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        builder.append_data(&mut header, path, text.as_bytes()).unwrap();
    }
    builder.into_inner().unwrap().finish().unwrap()
}

fn repository() -> Vec<u8> {
    tar_gz(&[
        ("skills-x/skills/pdf/SKILL.md", SKILL),
        ("skills-x/skills/pdf/scripts/a.py", "print()"),
        ("skills-x/skills/pdf2/SKILL.md", "other"),
    ])
}

fn sha256(bytes: &[u8]) -> String {
    use sha2::Digest;
    sha2::Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn resolver(server: &Server, cache: &tempfile::TempDir) -> SkillResolver {
    let mut resolver = SkillResolver::local(Vec::new(), cache.path().join("cache"));
    resolver.fetcher = Some(Arc::new(HttpFetcher::new().unwrap()));
    resolver.github_api.clone_from(&server.url);
    resolver.github_archives.clone_from(&server.url);
    resolver
}

fn load(source: &SkillSource, policy: &TrustPolicy) -> Result<LoadedSkill> {
    let audit = AuditScope::new(RunId::random().unwrap(), "test", Arc::new(NullSink));
    LoadedSkill::load(Arc::new(VerifiedSkill::verify(source, policy, &audit)?), ManifestMode::Strict)
}

#[tokio::test]
async fn a_branch_is_pinned_to_its_commit_and_fetched_once() {
    let server = Server::start(|request| match request.path.as_str() {
        "/repos/acme/skills/commits/v1" => Reply::new(200, format!("{COMMIT}\n")),
        path if path == format!("/acme/skills/tar.gz/{COMMIT}") => Reply::new(200, repository()),
        _ => Reply::new(404, ""),
    });
    let cache = tempfile::tempdir().unwrap();
    let resolver = resolver(&server, &cache);
    let source: AgentSkillSource = "github://acme/skills/skills/pdf@v1".parse().unwrap();
    let first = resolver.resolve(&source).await.unwrap();
    assert_eq!(first.origin, format!("github://acme/skills/skills/pdf@{COMMIT}"));
    let skill = load(&first.source, &TrustPolicy::pinned(first.tree_sha256.as_deref().unwrap()).unwrap()).unwrap();
    assert_eq!((skill.manifest.name.as_str(), skill.resources.scripts), ("pdf", vec!["scripts/a.py".to_owned()]));
    assert_eq!(resolver.resolve(&source).await.unwrap(), first);
    let paths: Vec<String> = server.requests().into_iter().map(|request| request.path).collect();
    // The branch is asked for each time, the archive once.
    assert_eq!(paths.iter().filter(|path| path.contains("commits")).count(), 2, "{paths:?}");
    assert_eq!(paths.iter().filter(|path| path.contains("tar.gz")).count(), 1, "{paths:?}");
    assert_eq!(server.requests()[0].header("accept"), Some("application/vnd.github.sha"));
    assert_eq!(resolver.list_cached().unwrap().len(), 1);

    // A damaged copy is not handed out.
    let SkillSource::Folder(folder) = &first.source else { panic!("a folder") };
    std::fs::write(folder.join("scripts/a.py"), "evil").unwrap();
    assert_eq!(resolver.resolve(&source).await.unwrap(), first);
    load(&first.source, &TrustPolicy::pinned(first.tree_sha256.as_deref().unwrap()).unwrap()).unwrap();
}

#[tokio::test]
async fn an_archive_must_have_its_digest() {
    let archive = repository();
    let digest = sha256(&archive);
    let served = archive.clone();
    let server = Server::start(move |_| Reply::new(200, served.clone()));
    let cache = tempfile::tempdir().unwrap();
    let resolver = resolver(&server, &cache);
    let source =
        |fragment: &str| -> AgentSkillSource { format!("{}/a.tar.gz#{fragment}", server.url).parse().unwrap() };
    let good = resolver.resolve(&source(&format!("sha256={digest}&path=skills-x/skills/pdf"))).await.unwrap();
    load(&good.source, &TrustPolicy::Any).unwrap();
    let error =
        resolver.resolve(&source(&format!("sha256={}&path=skills-x/skills/pdf", "0".repeat(64)))).await.unwrap_err();
    assert_eq!((error.kind(), error.failed_operation()), (ErrorKind::TrustViolation, "resolve"));
    let error = resolver.resolve(&source(&format!("sha256={digest}"))).await.unwrap_err().to_string();
    assert!(error.contains("holds 2 skills"), "{error}");
    let error = resolver.resolve(&source(&format!("sha256={digest}&path=skills"))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn servers_that_fail_or_lie_give_errors() {
    let cache = tempfile::tempdir().unwrap();
    for (reply, kind) in [
        (Reply::new(404, ""), ErrorKind::NotFound),
        (Reply::new(500, ""), ErrorKind::Unavailable),
        (Reply::new(200, "<html>not a commit</html>"), ErrorKind::Unavailable),
        (Reply::new(200, "x".repeat(5_000)), ErrorKind::LimitExceeded),
        (Reply::new(200, COMMIT).cut(), ErrorKind::Unavailable),
        (Reply::new(302, "").header("location", "/loop"), ErrorKind::Unavailable),
    ] {
        let answer = reply.clone();
        let server = Server::start(move |_| answer.clone());
        let source: AgentSkillSource = "github://a/b@main".parse().unwrap();
        let error = resolver(&server, &cache).resolve(&source).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{reply:?}: {error}");
    }
    let hostile = Server::start(|request| match request.path.contains("commits") {
        true => Reply::new(200, COMMIT),
        false => Reply::new(200, tar_gz(&[("x/SKILL.md", SKILL)])).in_pieces(7).cut(),
    });
    let source: AgentSkillSource = "github://a/b@main".parse().unwrap();
    assert_eq!(resolver(&hostile, &cache).resolve(&source).await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(resolver(&hostile, &cache).list_cached().unwrap(), []);
}

#[tokio::test]
async fn names_are_found_in_order_and_nothing_is_fetched_unasked() {
    let home = tempfile::tempdir().unwrap();
    let (project, user) = (home.path().join("project"), home.path().join("user"));
    let paths = default_search_paths(&project, Some(&user));
    for (folder, name) in [(0, "pdf"), (3, "pdf"), (3, "docx")] {
        let path: PathBuf = paths[folder].join(name);
        std::fs::create_dir_all(&path).unwrap();
        let mut file = std::fs::File::create(path.join("SKILL.md")).unwrap();
        file.write_all(SKILL.replace("pdf", name).as_bytes()).unwrap();
    }
    std::fs::create_dir_all(paths[0].join("empty")).unwrap();
    let resolver = SkillResolver::local(paths.clone(), home.path().join("cache"));
    let found = |name: &str, folder: usize, shadowed| (name.to_owned(), paths[folder].join(name), shadowed);
    let catalog: Vec<_> =
        resolver.catalog().unwrap().into_iter().map(|entry| (entry.name, entry.path, entry.shadowed)).collect();
    assert_eq!(catalog, [found("pdf", 0, false), found("docx", 3, false), found("pdf", 3, true)]);
    let pdf = resolver.resolve(&AgentSkillSource::Name("pdf".into())).await.unwrap();
    assert_eq!(pdf.source, SkillSource::Folder(paths[0].join("pdf")));
    for (text, kind, message) in [
        ("empty", ErrorKind::NotFound, "Skill 'empty' not found in any search path. Search paths: ["),
        ("./nowhere", ErrorKind::NotFound, "No SKILL.md found at path: ./nowhere"),
        ("github://a/b", ErrorKind::Unavailable, "fetching is off"),
    ] {
        let error = resolver.resolve(&text.parse().unwrap()).await.unwrap_err();
        assert_eq!(error.kind(), kind);
        assert!(error.to_string().contains(message), "{error}");
    }
}
