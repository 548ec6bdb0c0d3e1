//! What a guest could learn of its host: variables, open files, paths, other runs.

use std::collections::BTreeSet;

use crate::conformance::case::{Case, Fault, Group, Verdict, broken, ensure, written};
use crate::conformance::probe::Answer;
use crate::conformance::world::World;
use crate::policy::Dimension;
use crate::runtime::RunCommand;

const fn case(name: &'static str, written: crate::conformance::case::Written) -> Case {
    Case::written(Group::Leaks, name, written)
}

pub(super) const CASES: &[Case] = &[
    case("variables_of_the_host_are_not_there", written!(variables)),
    case("variables_of_the_host_are_not_in_a_child", written!(variables_in_child)),
    case("no_variable_changes_how_programs_load", written!(loader)),
    case("open_files_of_the_host_are_not_there", written!(descriptors)).claims(Dimension::Files),
    case("host_paths_are_in_no_variable", written!(paths_in_variables)).claims(Dimension::Files),
    case("host_paths_are_in_no_argument", written!(paths_in_arguments)).claims(Dimension::Files),
    case("the_current_folder_names_no_host_path", written!(path_of_folder)).claims(Dimension::Files),
    case("host_paths_are_in_no_error", written!(paths_in_errors)),
    case("the_temporary_folder_of_the_host_is_not_there", written!(temporary)).claims(Dimension::Files),
    case("the_folder_above_the_workspace_shows_no_host_files", written!(above)).claims(Dimension::Files),
    case("variables_of_one_run_are_not_in_the_next", written!(next_run)),
    case("input_of_one_run_is_not_in_the_next", written!(next_input)),
    case("random_numbers_differ", written!(random)),
];

/// Names that both may have, each with a value of its own.
const COMMON: [&str; 9] = ["PATH", "LANG", "LC_ALL", "HOME", "PWD", "TMPDIR", "SHLVL", "TERM", "USER"];

fn shared_variables(told: &str) -> Vec<String> {
    let of_host: BTreeSet<String> = std::env::vars_os()
        .filter(|(name, value)| !value.is_empty() && !COMMON.iter().any(|common| name == common))
        .map(|(name, value)| format!("{}={}", name.to_string_lossy(), value.to_string_lossy()))
        .collect();
    // The fixed values of every guest may be the host's as well.
    let fixed = ["PYTHONDONTWRITEBYTECODE=1"];
    told.lines()
        .filter(|line| of_host.contains(*line) && !fixed.contains(line))
        .filter_map(|line| line.split('=').next().map(str::to_owned))
        .collect()
}

async fn variables(world: &World<'_>) -> Verdict {
    let told = world.must(&["environment"]).await?;
    let shared = shared_variables(&told);
    ensure(shared.is_empty(), || format!("the guest has variables of the host: {shared:?}"))?;
    ensure(told.contains("WORKSPACE_OUT="), || format!("the guest's own variables are missing: {told}"))?;
    Ok("none of the host's, and its own".to_owned())
}

async fn variables_in_child(world: &World<'_>) -> Verdict {
    let ran = world.steps(&["child environment"]).await?;
    if ran.answers.first() == Some(&Answer::Absent) {
        return Ok("a guest of this runtime has no children".to_owned());
    }
    let told = ran.all_done(1)?.replace("\\n", "\n");
    let shared = shared_variables(&told);
    ensure(shared.is_empty(), || format!("a child has variables of the host: {shared:?}"))?;
    Ok("none of the host's".to_owned())
}

async fn loader(world: &World<'_>) -> Verdict {
    let told = world.must(&["environment"]).await?;
    for name in
        ["LD_PRELOAD=", "LD_LIBRARY_PATH=", "BASH_ENV=", "ENV=", "NODE_OPTIONS=", "PYTHONSTARTUP=", "SSH_AUTH_SOCK="]
    {
        ensure(!told.lines().any(|line| line.starts_with(name)), || format!("{name} is set"))?;
    }
    ensure(told.contains("PATH="), || "PATH is not set".to_owned())?;
    Ok("none is set".to_owned())
}

/// A file of the host that children would inherit, as a careless embedder has them.
#[cfg(unix)]
async fn descriptors(world: &World<'_>) -> Verdict {
    let failed = |error: std::io::Error| Fault::Broken(format!("a file of the host could not be opened: {error}"));
    let file = world.outside.folder.open("secret.txt").map_err(failed)?.into_std();
    // A copy lacks the mark that closes it in children.
    let kept = rustix::io::dup(&file).map_err(|error| failed(error.into()))?;
    let ran = world.steps(&["descriptors"]).await;
    drop(kept);
    let ran = ran?;
    if ran.answers.first() == Some(&Answer::Absent) {
        return Ok("a guest of this runtime can't list what is open".to_owned());
    }
    let told = ran.all_done(1)?;
    ensure(!told.contains(&world.outside.secret) && !told.contains("secret.txt"), || {
        format!("a file of the host is open in the guest: {told:?}")
    })?;
    Ok("not inherited".to_owned())
}

#[cfg(not(unix))]
async fn descriptors(_world: &World<'_>) -> Verdict {
    Ok("this host's files aren't inherited".to_owned())
}

async fn paths_in_variables(world: &World<'_>) -> Verdict {
    let told = world.must(&["environment"]).await?;
    ensure(!world.names_a_host_path(&told), || "a variable names the workspace's folder on the host".to_owned())?;
    Ok("none".to_owned())
}

async fn paths_in_arguments(world: &World<'_>) -> Verdict {
    let command = world.command_of(&[
        "arguments",
        "/workspace/in/input.txt",
        "--out=/workspace/out",
        "::",
        "read",
        "/proc/self/cmdline",
    ])?;
    let ran = world.run(&command).await?;
    ensure(ran.answers.first().is_some_and(Answer::done), || ran.told())?;
    let told: String = ran.answers.iter().filter_map(Answer::text).collect();
    ensure(!world.names_a_host_path(&told), || format!("the arguments name the host's folder: {told:?}"))?;
    Ok("none".to_owned())
}

async fn path_of_folder(world: &World<'_>) -> Verdict {
    let told = world.must(&["folder"]).await?;
    ensure(!world.names_a_host_path(&told), || format!("it is {told}"))?;
    Ok(format!("it is {told}"))
}

/// Errors are shown to users and models: a refused program, and files that can't be read.
async fn paths_in_errors(world: &World<'_>) -> Verdict {
    let mut said = Vec::new();
    let command = |words: [&str; 1]| RunCommand::new(words).map_err(|error| Fault::Broken(error.to_string()));
    for program in ["/workspace/skill/missing", "/workspace/skill/sub", "no-such-program", "/etc/passwd"] {
        match world.runtime().run(&world.handle, &command([program])?).await {
            Ok(result) => return broken(format!("{program} ran: {}", result.termination)),
            Err(error) => said.extend(error.chain()),
        }
    }
    for path in ["/workspace/out/missing", "/workspace/in/nested", "/workspace/skill/sub/leaf.txt/x"] {
        let path = path.parse().map_err(|_| Fault::Broken("no path".to_owned()))?;
        match world.runtime().read_file(&world.handle, &path, 100).await {
            Ok(bytes) => return broken(format!("{path} was read: {bytes:?}")),
            Err(error) => said.extend(error.chain()),
        }
    }
    for line in &said {
        ensure(!world.names_a_host_path(line), || format!("an error names the host's folder: {line}"))?;
    }
    Ok(format!("{} lines of errors name none", said.len()))
}

async fn temporary(world: &World<'_>) -> Verdict {
    let folder = std::env::temp_dir();
    let ran = world.run(&world.command_of(&["arguments", "::", "list", &folder.to_string_lossy()])?).await?;
    ensure(ran.answers.len() == 2, || format!("the probe did not start: {}", ran.told()))?;
    let names = ran.answers.last().and_then(Answer::text).unwrap_or_default();
    ensure(!world.names_a_host_path(names), || "the guest sees the host's temporary folder".to_owned())?;
    world.must(&["list @in"]).await?;
    Ok("it can't be seen".to_owned())
}

async fn above(world: &World<'_>) -> Verdict {
    let ran = world.steps(&["arguments", "list @root/.."]).await?;
    ensure(ran.answers.len() == 2, || format!("the probe did not start: {}", ran.told()))?;
    let names = ran.answers.last().and_then(Answer::text).unwrap_or_default();
    ensure(!world.names_a_host_path(names), || "the guest sees the host's folder by its name".to_owned())?;
    world.must(&["list @in"]).await?;
    Ok("it can't be seen".to_owned())
}

/// A value that no other run can have by chance.
const TOKEN: &str = "token-5f1d9c7e";

async fn next_run(world: &World<'_>) -> Verdict {
    let mut command = world.command(&["environment"])?;
    command.env.set("SECRET_OF_ONE_RUN", TOKEN).map_err(|error| Fault::Broken(error.to_string()))?;
    let told = world.run(&command).await?.all_done(1)?;
    ensure(told.contains(TOKEN), || "the run it was given to doesn't have it".to_owned())?;
    let told = world.must(&["environment"]).await?;
    ensure(!told.contains(TOKEN), || "the next run has it".to_owned())?;
    let ran = world.steps(&["arguments", "read /proc/1/environ"]).await?;
    ensure(!ran.result.stdout.text().contains(TOKEN), || "another process of the guest has it".to_owned())?;
    Ok("it is in its run and not in the next".to_owned())
}

async fn next_input(world: &World<'_>) -> Verdict {
    let mut command = world.command(&["stdin"])?;
    command.stdin = crate::runtime::Stdin::Bytes(TOKEN.into());
    let told = world.run(&command).await?.all_done(1)?;
    ensure(told == TOKEN, || format!("it read {told:?}"))?;
    let told = world.must(&["stdin"]).await?;
    ensure(told.is_empty(), || format!("the next run reads {told:?}"))?;
    Ok("the next run reads nothing".to_owned())
}

async fn random(world: &World<'_>) -> Verdict {
    let (first, second) = (world.must(&["random"]).await?, world.must(&["random"]).await?);
    ensure(first != second, || format!("two runs drew {first}"))?;
    Ok("two runs draw different numbers".to_owned())
}
