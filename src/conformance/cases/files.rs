//! What a guest can do to files: outside, in the read-only parts of its world, and where it may write.

use crate::conformance::case::{Case, Fault, Group, Setting, Verdict, broken, ensure, written};
use crate::conformance::probe::Answer;
use crate::conformance::world::World;
use crate::policy::Dimension;
use crate::workspace::Area;

const fn denied(name: &'static str, attempt: &'static [&'static str], twin: &'static [&'static str]) -> Case {
    Case::denied(Group::Files, name, attempt, twin).claims(Dimension::Files)
}

const fn works(name: &'static str, steps: &'static [&'static str], told: Option<&'static str>) -> Case {
    Case::works(Group::Files, name, steps, told)
}

const fn no_delete(name: &'static str, attempt: &'static [&'static str], twin: &'static [&'static str]) -> Case {
    denied(name, attempt, twin).in_setting(Setting::NoDelete)
}

/// The steps that make a file and show that it is there.
const OWN: &[&str] = &["write @out/own mine", "read @out/own"];

pub(super) const CASES: &[Case] = &[
    // What lies outside, by its own path.
    denied("outside_file_cannot_be_read", &["read {outside}/secret.txt"], &["read @in/input.txt"]).harmless(),
    denied("outside_file_has_no_size", &["stat {outside}/secret.txt"], &["stat @in/input.txt"]).harmless(),
    denied("outside_file_cannot_be_written", &["write {outside}/secret.txt gone"], OWN),
    denied(
        "outside_file_cannot_be_appended_to",
        &["append {outside}/secret.txt more"],
        &["write @out/a x", "append @out/a y"],
    ),
    denied(
        "outside_file_cannot_be_truncated",
        &["truncate {outside}/secret.txt"],
        &["write @out/a x", "truncate @out/a"],
    ),
    denied("outside_file_cannot_be_removed", &["remove {outside}/secret.txt"], &["write @out/a x", "remove @out/a"]),
    denied(
        "outside_file_cannot_be_moved_in",
        &["rename {outside}/secret.txt @out/a"],
        &["write @out/a x", "rename @out/a @out/b"],
    ),
    denied(
        "outside_file_cannot_be_hard_linked",
        &["hard-link {outside}/secret.txt @out/a", "read @out/a"],
        &["write @out/a x", "read @out/a"],
    ),
    denied(
        "outside_file_has_a_mode_of_its_own",
        &["mode {outside}/secret.txt 600"],
        &["write @out/a x", "mode @out/a 600"],
    ),
    denied("outside_file_has_times_of_its_own", &["times {outside}/secret.txt"], &["write @out/a x", "times @out/a"]),
    denied("outside_folder_cannot_be_listed", &["list {outside}"], &["list @in"]).harmless(),
    denied("outside_folder_takes_no_files", &["write {outside}/new x"], OWN),
    denied("outside_folder_takes_no_folders", &["mkdir {outside}/new"], &["mkdir @out/new"]),
    denied("outside_folder_cannot_be_removed", &["rmdir {outside}/sub"], &["mkdir @out/new", "rmdir @out/new"]),
    denied(
        "own_file_cannot_be_moved_out",
        &["write @out/a x", "rename @out/a {outside}/a"],
        &["write @out/a x", "rename @out/a @tmp/a", "rename @tmp/a @out/c"],
    ),
    denied("own_file_cannot_be_hard_linked_out", &["write @out/a x", "hard-link @out/a {outside}/a"], OWN),
    // By going up.
    denied(
        "dotdot_from_out_leads_nowhere",
        &["read @out/{up}/secret.txt"],
        &["mkdir @out/d", "write @out/a x", "read @out/d/../a"],
    )
    .harmless(),
    denied("dotdot_from_in_leads_nowhere", &["read @in/{up}/secret.txt"], &["read @in/nested/../input.txt"]).harmless(),
    denied("dotdot_from_the_current_folder_leads_nowhere", &["read {up}/secret.txt"], &["read @skill/data.txt"])
        .harmless(),
    denied("dotdot_write_leads_nowhere", &["write @out/{up}/new x"], OWN),
    // By links.
    denied(
        "symlink_out_is_denied",
        &["link {outside}/secret.txt @out/link", "read @out/link"],
        &["write @out/a x", "link a @out/link", "read @out/link"],
    ),
    denied(
        "symlink_up_is_denied",
        &["link {up}/secret.txt @out/link", "read @out/link"],
        &["mkdir @out/d", "write @out/a x", "link ../a @out/d/link", "read @out/d/link"],
    ),
    denied(
        "symlinked_folder_is_not_entered",
        &["link {outside} @out/link", "read @out/link/secret.txt"],
        &["mkdir @out/d", "write @out/d/a x", "link d @out/link", "read @out/link/a"],
    ),
    denied(
        "symlinked_folder_takes_no_files",
        &["link {outside} @out/link", "write @out/link/new x"],
        &["mkdir @out/d", "link d @out/link", "write @out/link/new x", "read @out/d/new"],
    ),
    denied(
        "symlinked_folder_is_not_listed",
        &["link {outside} @out/link", "list @out/link"],
        &["mkdir @out/d", "link d @out/link", "list @out/link"],
    ),
    denied(
        "dangling_symlink_makes_no_file",
        &["link {outside}/new @out/link", "write @out/link x"],
        &["link new @out/link", "write @out/link x", "read @out/new"],
    ),
    denied(
        "symlink_chain_is_denied",
        &["link {outside} @out/a", "link a @out/b", "link b/secret.txt @out/c", "read @out/c"],
        &["write @out/f x", "link f @out/a", "link a @out/b", "read @out/b"],
    ),
    denied("symlink_loop_ends", &["link loop @out/loop", "read @out/loop"], OWN),
    denied(
        "symlink_replaced_midway_is_denied",
        &["mkdir @out/d", "rmdir @out/d", "link {outside} @out/d", "read @out/d/secret.txt"],
        &["mkdir @out/d", "rmdir @out/d", "mkdir @out/d", "list @out/d"],
    ),
    // By what the system keeps about a process.
    denied("process_root_leads_nowhere", &["read /proc/self/root/{outside}/secret.txt"], &["read @in/input.txt"])
        .harmless(),
    denied("first_process_root_leads_nowhere", &["read /proc/1/root/{outside}/secret.txt"], &["read @in/input.txt"])
        .harmless(),
    denied("parent_root_leads_nowhere", &["read /proc/{pid}/root/{outside}/secret.txt"], &["read @in/input.txt"])
        .harmless(),
    denied("parent_folder_leads_nowhere", &["list /proc/{pid}/cwd"], &["list @in"]).harmless(),
    denied("process_folder_leads_nowhere", &["read /proc/self/cwd/{up}/secret.txt"], &["read @in/input.txt"])
        .harmless(),
    // Read-only parts.
    denied("skill_file_cannot_be_written", &["write @skill/data.txt gone"], OWN),
    denied(
        "skill_file_cannot_be_appended_to",
        &["append @skill/data.txt more"],
        &["write @out/a x", "append @out/a y"],
    ),
    denied("skill_file_cannot_be_truncated", &["truncate @skill/data.txt"], &["write @out/a x", "truncate @out/a"]),
    denied("skill_file_cannot_be_resized", &["resize @skill/data.txt 1"], &["write @out/a xy", "resize @out/a 1"]),
    denied("skill_file_cannot_be_removed", &["remove @skill/data.txt"], &["write @out/a x", "remove @out/a"]),
    denied(
        "skill_file_cannot_be_renamed",
        &["rename @skill/data.txt @skill/other.txt"],
        &["write @out/a x", "rename @out/a @out/b"],
    ),
    denied(
        "skill_file_cannot_be_moved_out",
        &["rename @skill/data.txt @out/data.txt"],
        &["write @tmp/a x", "rename @tmp/a @out/a"],
    ),
    denied(
        "skill_file_cannot_be_replaced",
        &["write @tmp/a gone", "rename @tmp/a @skill/data.txt"],
        &["write @tmp/a x", "write @out/a y", "rename @tmp/a @out/a"],
    ),
    denied("skill_folder_takes_no_files", &["create @skill/new"], &["create @out/new"]),
    denied("skill_folder_takes_no_folders", &["mkdir @skill/new"], &["mkdir @out/new"]),
    denied("skill_folder_takes_no_links", &["link data.txt @skill/new"], &["link data.txt @out/new"]),
    denied("skill_subfolder_takes_no_files", &["create @skill/sub/new"], &["mkdir @out/d", "create @out/d/new"]),
    denied(
        "skill_subfolder_cannot_be_moved",
        &["rename @skill/sub @out/sub"],
        &["mkdir @out/d", "rename @out/d @out/e"],
    ),
    denied("skill_mode_cannot_be_changed", &["mode @skill/data.txt 666"], &["write @out/a x", "mode @out/a 666"]),
    denied("skill_times_cannot_be_changed", &["times @skill/data.txt"], &["write @out/a x", "times @out/a"]),
    denied(
        "skill_hard_link_is_no_way_round",
        &["hard-link @skill/data.txt @out/a", "append @out/a more"],
        &["write @out/a x", "append @out/a y"],
    ),
    denied(
        "skill_symlink_is_no_way_round",
        &["link @skill/data.txt @out/a", "append @out/a more"],
        &["write @out/b x", "link b @out/a", "append @out/a y"],
    ),
    denied("skill_program_cannot_be_written", &["truncate @skill/probe"], &["write @out/a x", "truncate @out/a"]),
    denied("input_cannot_be_written", &["write @in/input.txt gone"], OWN),
    denied("input_cannot_be_appended_to", &["append @in/input.txt more"], &["write @out/a x", "append @out/a y"]),
    denied("input_cannot_be_truncated", &["truncate @in/input.txt"], &["write @out/a x", "truncate @out/a"]),
    denied("input_cannot_be_removed", &["remove @in/input.txt"], &["write @out/a x", "remove @out/a"]),
    denied("input_cannot_be_moved_out", &["rename @in/input.txt @out/a"], &["write @tmp/a x", "rename @tmp/a @out/a"]),
    denied(
        "input_cannot_be_replaced",
        &["write @tmp/a gone", "rename @tmp/a @in/input.txt"],
        &["write @tmp/a x", "write @out/a y", "rename @tmp/a @out/a"],
    ),
    denied("input_mode_cannot_be_changed", &["mode @in/input.txt 666"], &["write @out/a x", "mode @out/a 666"]),
    denied("input_times_cannot_be_changed", &["times @in/input.txt"], &["write @out/a x", "times @out/a"]),
    denied(
        "input_hard_link_is_no_way_round",
        &["hard-link @in/input.txt @out/a", "append @out/a more"],
        &["write @out/a x", "append @out/a y"],
    ),
    denied("input_folder_takes_no_files", &["create @in/new"], &["create @out/new"]),
    denied("input_nested_file_cannot_be_written", &["write @in/nested/leaf.txt gone"], OWN),
    denied("input_nested_folder_takes_no_files", &["create @in/nested/new"], &["mkdir @out/d", "create @out/d/new"]),
    denied("site_takes_no_files", &["create @site/new"], &["create @tmp/new"]),
    denied("workspace_takes_no_files", &["create @root/new"], &["create @tmp/new"]),
    denied("areas_cannot_be_renamed", &["rename @root/in @root/away"], &["mkdir @tmp/a", "rename @tmp/a @tmp/b"]),
    denied("areas_cannot_be_removed", &["rmdir @root/site"], &["mkdir @tmp/a", "rmdir @tmp/a"]),
    // What makes files of other kinds.
    denied("devices_cannot_be_made", &["device @out/zero"], OWN),
    denied("owners_cannot_be_changed", &["owner @in/input.txt"], OWN),
    denied("folders_cannot_be_mounted", &["mount @out"], OWN),
    denied("root_cannot_be_changed", &["root @out"], OWN),
    // What is allowed.
    works("inputs_can_be_read", &["read @in/input.txt"], Some("text of the input")),
    works("folders_of_inputs_can_be_read", &["list @in/nested", "read @in/nested/leaf.txt"], Some("leaf of the input")),
    works("the_skill_can_be_read", &["read @skill/data.txt", "read @skill/sub/leaf.txt"], Some("leaf of the skill")),
    works(
        "out_and_tmp_can_be_changed",
        &["write @out/a one", "append @out/a two", "rename @out/a @tmp/b", "read @tmp/b"],
        Some("onetwo"),
    ),
    works(
        "folders_can_be_made_and_removed",
        &[
            "mkdir @out/d",
            "mkdir @out/d/e",
            "create @out/d/e/f",
            "remove @out/d/e/f",
            "rmdir @out/d/e",
            "rmdir @out/d",
            "list @out",
        ],
        Some(""),
    ),
    works("a_longer_path_works", &["deep @out/d 20", "list @out/d/d/d/d/d/d/d/d/d/d"], Some("d")),
    Case::written(Group::Files, "the_host_sees_what_the_guest_wrote", written!(host_sees)),
    Case::written(Group::Files, "names_of_every_kind_stay_in_place", written!(odd_names)).claims(Dimension::Files),
    // Out without deleting.
    no_delete(
        "kept_file_cannot_be_removed",
        &["write @out/a x", "remove @out/a"],
        &["write @tmp/a x", "remove @tmp/a"],
    ),
    no_delete(
        "kept_file_cannot_be_moved_away",
        &["write @out/a x", "rename @out/a @tmp/a"],
        &["write @tmp/a x", "rename @tmp/a @tmp/b"],
    ),
    no_delete(
        "kept_file_cannot_be_renamed",
        &["write @out/a x", "rename @out/a @out/b"],
        &["write @out/a x", "append @out/a y"],
    ),
    no_delete(
        "kept_file_cannot_be_replaced",
        &["write @out/a x", "write @tmp/b y", "rename @tmp/b @out/a"],
        &["write @out/a x", "append @out/a y"],
    ),
    no_delete("kept_folder_cannot_be_removed", &["mkdir @out/d", "rmdir @out/d"], &["mkdir @tmp/d", "rmdir @tmp/d"]),
    no_delete(
        "kept_folder_cannot_be_moved",
        &["mkdir @out/d", "create @out/d/f", "rename @out/d @out/e"],
        &["mkdir @out/d", "create @out/d/f"],
    ),
];

async fn host_sees(world: &World<'_>) -> Verdict {
    world.must(&["write @out/result.txt forty-two"]).await?;
    if let Err(error) = world.runtime().sync_outputs(&world.handle).await {
        return broken(format!("the outputs could not be fetched: {error}"));
    }
    match world.workspace.area(Area::Out).read_to_string("result.txt") {
        Ok(text) if text == "forty-two" => Ok("the host finds it in /workspace/out".to_owned()),
        found => broken(format!("the host finds {found:?}")),
    }
}

/// File names that mean something to a shell, a terminal or a parser of paths must be names and nothing else.
async fn odd_names(world: &World<'_>) -> Verdict {
    for name in ["-rf", ";reboot", "$(id)", "a b", "ü\u{301}", "..\u{2025}", "*", "\u{202e}txt", "a\\..\\b", "%2e%2e"]
    {
        let place = format!("@out/{name}");
        let command = world.command_of(&["write", &place, "x", "::", "read", &place, "::", "list", "@out"])?;
        let ran = world.run(&command).await?;
        let listed = match ran.answers.as_slice() {
            [Answer::Done(_), Answer::Done(text), Answer::Done(listed)] if text == "x" => listed.clone(),
            // A runtime may refuse a name; it must not make another of it.
            [Answer::Refused(_), Answer::Refused(_), Answer::Done(listed)] if listed.is_empty() => continue,
            _ => return broken(format!("the name {name:?}: {}", ran.told())),
        };
        ensure(listed == name, || format!("the file {name:?} is listed as {listed:?}"))?;
        world.wipe().map_err(|error| Fault::Broken(error.to_string()))?;
    }
    Ok("each is a file of that name or refused".to_owned())
}
