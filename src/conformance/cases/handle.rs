//! The file calls of the handle and the collection of results, on what a guest left: no link is followed, nothing that
//! is no file is opened. Every runtime must keep this; it is the host's own safety.

use crate::conformance::case::{Case, Fault, Group, Setting, Verdict, broken, ensure, written};
use crate::conformance::world::{INPUT, TIGHT_DISK, World};
use crate::error::{ErrorKind, Result, SkillRuntimeError};
use crate::workspace::{Area, CollectRules, Collected, EntryKind, GuestPath};

const fn case(name: &'static str, written: crate::conformance::case::Written) -> Case {
    Case::written(Group::Files, name, written)
}

pub(super) const CASES: &[Case] = &[
    case("handle_reads_inputs", written!(reads)),
    case("handle_reads_no_more_than_asked", written!(reads_limited)),
    case("handle_reads_through_no_link", written!(reads_no_link)),
    case("handle_reads_through_no_linked_folder", written!(reads_no_linked_folder)),
    case("handle_reads_no_pipe", written!(reads_no_pipe)),
    case("handle_reads_no_folder", written!(reads_no_folder)),
    case("handle_writes_where_the_guest_reads", written!(writes)),
    case("handle_writes_nothing_read_only", written!(writes_not_read_only)),
    case("handle_writes_through_no_link", written!(writes_no_link)),
    case("handle_writes_through_no_linked_folder", written!(writes_no_linked_folder)),
    case("handle_writes_whole_or_not_at_all", written!(writes_whole)).in_setting(Setting::Tight),
    case("handle_lists_links_as_links", written!(lists)),
    case("handle_takes_no_path_that_leads_out", written!(paths)),
    case("collection_takes_files_only", written!(collects)),
    case("collection_stays_inside", written!(collects_inside)),
];

fn path(text: &str) -> Result<GuestPath, Fault> {
    text.parse().map_err(|error: SkillRuntimeError| Fault::Broken(format!("'{text}' is no path: {error}")))
}

/// Expects a refusal of one of these kinds.
fn refused<T: std::fmt::Debug>(what: &str, result: Result<T>, kinds: &[ErrorKind]) -> Result<(), Fault> {
    match result {
        Err(error) if kinds.contains(&error.kind()) => Ok(()),
        Err(error) => broken(format!("{what}: refused as {} ({error})", error.kind())),
        Ok(got) => broken(format!("{what}: succeeded with {got:?}")),
    }
}

/// A link that leads out, made by the guest or, where it can't, by the host in its place.
async fn link_out(world: &World<'_>, target: &str, name: &str) -> Result<(), Fault> {
    let ran = world.steps(&[&format!("link {{outside}}/{target} @out/{name}")]).await?;
    if ran.answers.first().is_some_and(crate::conformance::probe::Answer::done) {
        return Ok(());
    }
    let target = world.outside.path.join(target);
    world
        .workspace
        .area(Area::Out)
        .symlink_contents(target, name)
        .map_err(|error| Fault::Broken(format!("a link could not be made: {error}")))
}

async fn read(world: &World<'_>, text: &str, limit: u64) -> Result<Result<bytes::Bytes>, Fault> {
    Ok(world.runtime().read_file(&world.handle, &path(text)?, limit).await)
}

async fn write(world: &World<'_>, text: &str, data: &[u8]) -> Result<Result<()>, Fault> {
    Ok(world.runtime().write_file(&world.handle, &path(text)?, data).await)
}

async fn reads(world: &World<'_>) -> Verdict {
    match read(world, "/workspace/in/input.txt", 1 << 10).await? {
        Ok(bytes) if bytes == INPUT.as_bytes() => Ok("the whole file".to_owned()),
        other => broken(format!("{other:?}")),
    }
}

async fn reads_limited(world: &World<'_>) -> Verdict {
    let result = read(world, "/workspace/in/input.txt", 4).await?;
    refused("a larger file", result, &[ErrorKind::LimitExceeded])?;
    reads(world).await
}

async fn reads_no_link(world: &World<'_>) -> Verdict {
    link_out(world, "secret.txt", "link").await?;
    let result = read(world, "/workspace/out/link", 1 << 10).await?;
    refused("reading through a link", result, &[ErrorKind::PathDenied, ErrorKind::NotFound])?;
    world.must(&["write @out/plain x"]).await?;
    match read(world, "/workspace/out/plain", 1 << 10).await? {
        Ok(bytes) if bytes == "x" => Ok("a link is refused, a file is read".to_owned()),
        other => broken(format!("{other:?}")),
    }
}

async fn reads_no_linked_folder(world: &World<'_>) -> Verdict {
    link_out(world, "", "link").await?;
    let result = read(world, "/workspace/out/link/secret.txt", 1 << 10).await?;
    refused("reading through a linked folder", result, &[ErrorKind::PathDenied, ErrorKind::NotFound])?;
    world.must(&["mkdir @out/d", "write @out/d/plain x"]).await?;
    match read(world, "/workspace/out/d/plain", 1 << 10).await? {
        Ok(bytes) if bytes == "x" => Ok("a linked folder is refused, a folder is entered".to_owned()),
        other => broken(format!("{other:?}")),
    }
}

async fn reads_no_pipe(world: &World<'_>) -> Verdict {
    let ran = world.steps(&["fifo @out/pipe"]).await?;
    if ran.answers.first() == Some(&crate::conformance::probe::Answer::Absent) {
        return Ok("a guest of this runtime can't make a pipe with a name".to_owned());
    }
    ran.all_done(1)?;
    // Opening a pipe that nobody writes to would wait for ever.
    let result = read(world, "/workspace/out/pipe", 1 << 10).await?;
    refused("reading a pipe", result, &[ErrorKind::PathDenied])?;
    Ok("refused without waiting".to_owned())
}

async fn reads_no_folder(world: &World<'_>) -> Verdict {
    let result = read(world, "/workspace/in/nested", 1 << 10).await?;
    refused("reading a folder", result, &[ErrorKind::PathDenied])?;
    let result = read(world, "/workspace/in/missing", 1 << 10).await?;
    refused("reading what isn't there", result, &[ErrorKind::NotFound])?;
    Ok("a folder and a missing file are told apart".to_owned())
}

async fn writes(world: &World<'_>) -> Verdict {
    if let Err(error) = write(world, "/workspace/tmp/a/b.txt", b"from the host").await? {
        return broken(format!("{error}"));
    }
    let read = world.must(&["read @tmp/a/b.txt"]).await?;
    ensure(read == "from the host", || format!("the guest reads {read:?}"))?;
    world.must(&["append @tmp/a/b.txt x", "create @tmp/a/c"]).await?;
    Ok("and the guest may change it".to_owned())
}

async fn writes_not_read_only(world: &World<'_>) -> Verdict {
    for place in ["/workspace/skill/data.txt", "/workspace/in/input.txt", "/workspace/in/new", "/workspace/site/new"] {
        refused(place, write(world, place, b"gone").await?, &[ErrorKind::PathDenied])?;
    }
    writes(world).await
}

async fn writes_no_link(world: &World<'_>) -> Verdict {
    link_out(world, "secret.txt", "link").await?;
    link_out(world, "new", "dangling").await?;
    for place in ["/workspace/out/link", "/workspace/out/dangling"] {
        // Putting a file in the place of the link is fine; following it isn't.
        if write(world, place, b"written").await?.is_ok() {
            match read(world, place, 1 << 10).await? {
                Ok(bytes) if bytes == "written" => {}
                other => return broken(format!("{place} was written and reads {other:?}")),
            }
        }
    }
    world.untouched()?;
    Ok("nothing was written where the links lead".to_owned())
}

async fn writes_no_linked_folder(world: &World<'_>) -> Verdict {
    link_out(world, "", "link").await?;
    let result = write(world, "/workspace/out/link/new", b"x").await?;
    refused("writing through a linked folder", result, &[ErrorKind::PathDenied, ErrorKind::NotFound])?;
    world.untouched()?;
    Ok("refused".to_owned())
}

async fn writes_whole(world: &World<'_>) -> Verdict {
    if let Err(error) = write(world, "/workspace/out/a", b"first").await? {
        return broken(format!("{error}"));
    }
    let large = vec![0; usize::try_from(TIGHT_DISK).unwrap_or(0) + 1];
    refused("a file over the limit", write(world, "/workspace/out/a", &large).await?, &[ErrorKind::LimitExceeded])?;
    match read(world, "/workspace/out/a", 1 << 10).await? {
        Ok(bytes) if bytes == "first" => {}
        other => return broken(format!("after a refused write it reads {other:?}")),
    }
    if let Err(error) = write(world, "/workspace/out/a", b"second").await? {
        return broken(format!("{error}"));
    }
    let names = world.must(&["read @out/a", "list @out"]).await?;
    ensure(names == "a", || format!("besides the file there is {names:?}"))?;
    match read(world, "/workspace/out/a", 1 << 10).await? {
        Ok(bytes) if bytes == "second" => Ok("the later one, and nothing beside it".to_owned()),
        other => broken(format!("{other:?}")),
    }
}

async fn lists(world: &World<'_>) -> Verdict {
    world.must(&["mkdir @out/b", "write @out/a xyz"]).await?;
    link_out(world, "", "link").await?;
    let entries = match world.runtime().list_files(&world.handle, &path("/workspace/out")?).await {
        Ok(entries) => entries,
        Err(error) => return broken(format!("{error}")),
    };
    let found: Vec<(&str, EntryKind, u64)> =
        entries.iter().map(|entry| (entry.name.as_str(), entry.kind, entry.size)).collect();
    let expected = [("a", EntryKind::File, 3), ("b", EntryKind::Folder, 0), ("link", EntryKind::Link, 0)];
    ensure(found == expected, || format!("it lists {found:?}"))?;
    let result = world.runtime().list_files(&world.handle, &path("/workspace/out/link")?).await;
    refused("listing through a link", result, &[ErrorKind::PathDenied, ErrorKind::NotFound])?;
    Ok("a link is shown and not entered".to_owned())
}

async fn paths(world: &World<'_>) -> Verdict {
    let long = format!("/workspace/out/{}", "x/".repeat(200));
    for text in
        ["/etc/passwd", "/workspace/../etc/passwd", "../x", "/workspace/out/../in/x", "/workspace/out/a\0b", "", &long]
    {
        if let Ok(path) = text.parse::<GuestPath>() {
            return broken(format!("{text:?} was taken for {path}"));
        }
    }
    reads(world).await.map(|_| "each is refused, and an ordinary one is not".to_owned())
}

async fn collected(world: &World<'_>, globs: &[&str]) -> Result<Result<Collected>, Fault> {
    if let Err(error) = world.runtime().sync_outputs(&world.handle).await {
        return broken(format!("the outputs could not be fetched: {error}"));
    }
    Ok(CollectRules::new(globs).and_then(|rules| world.workspace.collect(&rules, world.handle.audit())))
}

async fn collects(world: &World<'_>) -> Verdict {
    world.must(&["write @out/a result", "mkdir @out/d", "write @out/d/b more"]).await?;
    link_out(world, "secret.txt", "link").await?;
    link_out(world, "", "folder").await?;
    let special = world.steps(&["fifo @out/pipe", "socket-file @out/socket"]).await?;
    let special = special.answers.iter().filter(|answer| answer.done()).count();
    let mark = world.mark();
    let collected = match collected(world, &["**"]).await? {
        Ok(collected) => collected,
        Err(error) => return broken(format!("{error}")),
    };
    let mut found: Vec<&str> = collected.files().iter().map(|file| file.path.as_str()).collect();
    found.sort_unstable();
    ensure(found == ["a", "d/b"], || format!("it took {found:?}"))?;
    let skipped = collected.skipped_total();
    ensure(skipped == 2 + special as u64, || format!("it reports {skipped} things that it left, of {}", 2 + special))?;
    let denials = world.denials_since(mark).len();
    ensure(denials as u64 == skipped, || format!("it left {skipped} things and wrote {denials} denials"))?;
    Ok(format!("two files; {skipped} other things left, each with an event"))
}

async fn collects_inside(world: &World<'_>) -> Verdict {
    world.must(&["write @out/a result"]).await?;
    for glob in ["../**", "../../**", "/etc/*", "/workspace/in/*"] {
        if let Ok(collected) = collected(world, &[glob]).await? {
            let found: Vec<&str> = collected.files().iter().map(|file| file.path.as_str()).collect();
            ensure(found.is_empty(), || format!("'{glob}' took {found:?}"))?;
        }
    }
    match collected(world, &["*"]).await? {
        Ok(collected) if collected.files().len() == 1 => Ok("patterns that lead out take nothing".to_owned()),
        other => broken(format!("'*' took {:?}", other.map(|collected| collected.files().len()))),
    }
}
