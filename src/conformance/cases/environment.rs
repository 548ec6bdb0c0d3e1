//! What a guest is given: arguments, variables, stdin, its current folder. Exactly that, whatever it means to a shell.

use bytes::Bytes;

use crate::conformance::case::{Case, Fault, Group, Verdict, broken, ensure, written};
use crate::conformance::probe::Answer;
use crate::conformance::world::World;
use crate::policy::{EnvVars, Isolation};
use crate::runtime::{RunCommand, Stdin};
use crate::workspace::{Area, GuestPath};

const fn case(name: &'static str, written: crate::conformance::case::Written) -> Case {
    Case::written(Group::Environment, name, written)
}

pub(super) const CASES: &[Case] = &[
    case("arguments_arrive_as_they_are", written!(arguments)),
    case("many_arguments_arrive", written!(many_arguments)),
    case("arguments_with_nul_are_refused", written!(nul)),
    case("the_variables_of_every_guest_are_set", written!(fixed)),
    case("given_variables_arrive", written!(given)),
    case("given_variables_win", written!(given_wins)),
    case("values_arrive_as_they_are", written!(values)),
    case("bad_variables_are_refused", written!(bad_variables)),
    case("stdin_is_empty_unless_given", written!(stdin_closed)),
    case("stdin_arrives", written!(stdin)),
    case("much_stdin_arrives", written!(stdin_much)),
    case("stdin_that_nobody_reads_is_no_fault", written!(stdin_unread)),
    case("the_current_folder_is_the_skill", written!(cwd)),
    case("another_current_folder_can_be_given", written!(cwd_given)),
    case("a_current_folder_that_is_missing_is_an_error", written!(cwd_missing)),
    case("home_and_scratch_can_be_written", written!(home)),
    case("programs_are_not_found_in_the_workspace", written!(hijack)),
];

fn fault(error: impl std::fmt::Display) -> Fault {
    Fault::Broken(error.to_string())
}

async fn arguments(world: &World<'_>) -> Verdict {
    let words = ["a b", "", "$(id)", "`id`", ";reboot", "-rf", "*", "'\"\\", "\n", "ü", "|cat", "%PATH%", "~", "--"];
    let command = world.command_of(&[&["arguments"], &words[..]].concat())?;
    let told = world.run(&command).await?.all_done(1)?;
    let expected: String = words.iter().map(|word| format!("<{word}>")).collect();
    ensure(told == expected, || format!("expected {expected:?}, got {told:?}"))?;
    Ok("each as one word".to_owned())
}

async fn many_arguments(world: &World<'_>) -> Verdict {
    let words: Vec<String> = (0..300).map(|number| format!("word{number}")).collect();
    let all: Vec<&str> = std::iter::once("arguments").chain(words.iter().map(String::as_str)).collect();
    let told = world.run(&world.command_of(&all)?).await?.all_done(1)?;
    let expected: String = words.iter().map(|word| format!("<{word}>")).collect();
    ensure(told == expected, || format!("{} bytes arrived of {}", told.len(), expected.len()))?;
    Ok("300 of them".to_owned())
}

async fn nul(world: &World<'_>) -> Verdict {
    ensure(RunCommand::new(["a", "b\0c"]).is_err(), || "it was taken".to_owned())?;
    arguments(world).await.map(|_| "before anything is started".to_owned())
}

fn value<'a>(told: &'a str, name: &str) -> Option<&'a str> {
    told.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
}

async fn fixed(world: &World<'_>) -> Verdict {
    let told = world.must(&["environment"]).await?;
    for name in ["HOME", "LANG", "PATH", "PWD", "SKILL_DIR", "TMPDIR", "WORKSPACE_IN", "WORKSPACE_OUT"] {
        ensure(value(&told, name).is_some_and(|value| !value.is_empty()), || format!("{name} is not set: {told}"))?;
    }
    world.must(&["list @in", "list @out", "list @tmp", "list @skill"]).await?;
    Ok("and the folders they name are there".to_owned())
}

async fn with_env(world: &World<'_>, set: &[(&str, &str)]) -> Result<String, Fault> {
    let mut command = world.command(&["environment"])?;
    for (name, value) in set {
        command.env.set(*name, *value).map_err(fault)?;
    }
    world.run(&command).await?.all_done(1)
}

async fn given(world: &World<'_>) -> Verdict {
    let told = with_env(world, &[("GIVEN", "a value"), ("given_2", "x")]).await?;
    let both = (value(&told, "GIVEN"), value(&told, "given_2"));
    ensure(both == (Some("a value"), Some("x")), || format!("{both:?}"))?;
    Ok("both".to_owned())
}

async fn given_wins(world: &World<'_>) -> Verdict {
    let told = with_env(world, &[("LANG", "xx_YY")]).await?;
    let lines: Vec<&str> = told.lines().filter(|line| line.starts_with("LANG=")).collect();
    ensure(lines == ["LANG=xx_YY"], || format!("{lines:?}"))?;
    Ok("and stands there once".to_owned())
}

async fn values(world: &World<'_>) -> Verdict {
    for text in ["", "a=b", "$HOME", "'\"", "ü", " x ", "() { :;}; echo x"] {
        let told = with_env(world, &[("GIVEN", text)]).await?;
        ensure(value(&told, "GIVEN") == Some(text), || format!("{text:?} became {:?}", value(&told, "GIVEN")))?;
    }
    Ok("each".to_owned())
}

async fn bad_variables(world: &World<'_>) -> Verdict {
    let mut env = EnvVars::default();
    for (name, value) in [("", "x"), ("A=B", "x"), ("A\0", "x"), ("A", "x\0")] {
        ensure(env.set(name, value).is_err(), || format!("{name:?} was taken"))?;
    }
    given(world).await.map(|_| "before anything is started".to_owned())
}

async fn stdin_closed(world: &World<'_>) -> Verdict {
    let told = world.must(&["stdin"]).await?;
    ensure(told.is_empty(), || format!("it read {told:?}"))?;
    Ok("the end, at once".to_owned())
}

async fn with_stdin(world: &World<'_>, steps: &[&str], bytes: Bytes) -> Result<String, Fault> {
    let mut command = world.command(steps)?;
    command.stdin = Stdin::Bytes(bytes);
    world.run(&command).await?.all_done(steps.len())
}

async fn stdin(world: &World<'_>) -> Verdict {
    let told = with_stdin(world, &["stdin"], Bytes::from_static(b"one\ntwo \\n\n")).await?;
    ensure(told == "one\ntwo \\n\n", || format!("it read {told:?}"))?;
    Ok("and then the end".to_owned())
}

async fn stdin_much(world: &World<'_>) -> Verdict {
    let told = with_stdin(world, &["stdin"], Bytes::from(vec![b'z'; 1 << 20])).await?;
    ensure(told == "1048576 bytes", || format!("it read {told:?}"))?;
    Ok("1 MiB".to_owned())
}

async fn stdin_unread(world: &World<'_>) -> Verdict {
    with_stdin(world, &["folder"], Bytes::from(vec![b'z'; 1 << 20])).await?;
    Ok("the run ends by itself".to_owned())
}

/// Whether the guests of a runtime have a current folder: WebAssembly with WASI preview 1 has none, and its guests go
/// by `PWD`, which every guest has.
fn has_folder(world: &World<'_>) -> bool {
    world.runtime().capabilities().isolation != Isolation::Wasm
}

/// Reads a file by its name alone, or by its name in the folder that `PWD` names.
async fn read_here(world: &World<'_>, cwd: GuestPath, name: &str) -> Result<String, Fault> {
    let steps = if has_folder(world) { vec![format!("read {name}")] } else { vec![format!("read {cwd}/{name}")] };
    let steps: Vec<&str> = steps.iter().map(String::as_str).chain(["environment"]).collect();
    let mut command = world.command(&steps)?;
    command.cwd = cwd;
    let ran = world.run(&command).await?;
    let environment = ran.all_done(2)?;
    let pwd = value(&environment, "PWD").unwrap_or_default();
    ensure(has_folder(world) || pwd == command.cwd.to_string(), || format!("PWD is {pwd}"))?;
    Ok(ran.answers.first().and_then(Answer::text).unwrap_or_default().to_owned())
}

async fn cwd(world: &World<'_>) -> Verdict {
    let cwd = world.command(&["folder"])?.cwd;
    let told = read_here(world, cwd, "data.txt").await?;
    ensure(told == "data of the skill", || format!("data.txt is {told:?}"))?;
    Ok(how(world))
}

fn how(world: &World<'_>) -> String {
    let how = if has_folder(world) { "its files are found by their names" } else { "PWD says so: WASI has no folder" };
    how.to_owned()
}

async fn cwd_given(world: &World<'_>) -> Verdict {
    let nested = Area::In.guest_path().join("nested").map_err(fault)?;
    let told = read_here(world, nested, "leaf.txt").await?;
    ensure(told == "leaf of the input", || format!("leaf.txt is {told:?}"))?;
    world.must(&["write @out/here.txt x"]).await?;
    let told = read_here(world, Area::Out.guest_path(), "here.txt").await?;
    ensure(told == "x", || format!("here.txt is {told:?}"))?;
    Ok(how(world))
}

async fn cwd_missing(world: &World<'_>) -> Verdict {
    if !has_folder(world) {
        return Ok("a guest of WASI has no current folder that could be missing".to_owned());
    }
    let mut command = world.command(&["folder"])?;
    command.cwd = Area::Tmp.guest_path().join("missing").map_err(fault)?;
    match world.runtime().run(&world.handle, &command).await {
        Err(_) => {}
        // Where the folder is entered inside, the failure is the run's.
        Ok(result) if !result.success() && result.stdout.total() == 0 => {}
        Ok(result) => return broken(format!("it ran: {}", result.termination)),
    }
    cwd(world).await.map(|_| "nothing is run".to_owned())
}

async fn home(world: &World<'_>) -> Verdict {
    let told = world.must(&["environment"]).await?;
    let home = value(&told, "HOME").unwrap_or_default().to_owned();
    let place = format!("{home}/file");
    let ran = world.run(&world.command_of(&["write", &place, "x", "::", "read", &place])?).await?;
    ran.all_done(2)?;
    Ok("both".to_owned())
}

/// A bare name is never looked for where a guest can write, nor among the skill's files.
async fn hijack(world: &World<'_>) -> Verdict {
    let name = "skillcell-conformance-tool";
    let path: GuestPath = Area::Out.guest_path().join(name).map_err(fault)?;
    world.runtime().write_file(&world.handle, &path, b"#!/bin/sh\necho hijacked\n").await.map_err(fault)?;
    world.steps(&[&format!("mode @out/{name} 755")]).await?;
    for program in [name, "probe"] {
        let mut command = RunCommand::new([program]).map_err(fault)?;
        command.cwd = Area::Out.guest_path();
        if let Ok(result) = world.runtime().run(&world.handle, &command).await {
            return broken(format!("'{program}' was found in the workspace and ran: {}", result.termination));
        }
    }
    let ran = world.steps(&["folder"]).await?;
    ensure(ran.answers.iter().all(Answer::done), || ran.told())?;
    Ok("by its path it runs, by its name it doesn't".to_owned())
}
