//! Reading inputs and writing outputs on a real file system.

#![expect(clippy::unwrap_used, reason = "the helpers of tests are tests too")]

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::path::Path;

use skillcell_guest::Workspace;

/// A workspace in a folder that goes away with the value.
fn workspace() -> (tempfile::TempDir, Workspace) {
    let root = tempfile::tempdir().unwrap();
    for folder in ["in", "out"] {
        fs::create_dir(root.path().join(folder)).unwrap();
    }
    let base = root.path().to_path_buf();
    let workspace = Workspace::from_lookup(|name| match name {
        "WORKSPACE_IN" => Some(base.join("in").into()),
        "WORKSPACE_OUT" => Some(base.join("out").into()),
        _ => None,
    });
    (root, workspace)
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn inputs_are_listed_by_name_with_folders_and_sizes() {
    let (_root, workspace) = workspace();
    fs::create_dir(workspace.inputs_dir().join("b")).unwrap();
    fs::write(workspace.inputs_dir().join("b/x.csv"), "12345").unwrap();
    fs::write(workspace.inputs_dir().join("c.txt"), "").unwrap();
    fs::write(workspace.inputs_dir().join("a.txt"), "1").unwrap();
    let found: Vec<_> =
        workspace.inputs().unwrap().iter().map(|input| (input.name().to_owned(), input.size())).collect();
    assert_eq!(found, [("a.txt".to_owned(), 1), ("b/x.csv".to_owned(), 5), ("c.txt".to_owned(), 0)]);
}

#[cfg(unix)]
#[test]
fn a_link_to_its_own_folder_does_not_make_the_list_endless() {
    let (_root, workspace) = workspace();
    fs::write(workspace.inputs_dir().join("a.txt"), "1").unwrap();
    std::os::unix::fs::symlink(".", workspace.inputs_dir().join("loop")).unwrap();
    let found: Vec<_> = workspace.inputs().unwrap().iter().map(|input| input.name().to_owned()).collect();
    assert_eq!(found, ["a.txt"]);
}

#[test]
fn errors_name_the_file() {
    let (_root, workspace) = workspace();
    let error = workspace.open_input("missing.csv").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("missing.csv"), "{error}");
    assert_eq!(workspace.open_input("../out/x").unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(workspace.create_output("/etc/x").unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[test]
fn text_is_read_up_to_the_limit_and_not_beyond() {
    let (_root, workspace) = workspace();
    fs::write(workspace.inputs_dir().join("t"), "äb").unwrap();
    fs::write(workspace.inputs_dir().join("bad"), b"ab\xff").unwrap();
    assert_eq!(workspace.read_input_text("t", 3).unwrap(), "äb");
    assert_eq!(workspace.read_input_text("t", u64::MAX).unwrap(), "äb");
    assert_eq!(workspace.read_input_text("t", 2).unwrap_err().kind(), ErrorKind::InvalidData);
    let error = workspace.read_input_text("bad", 10).unwrap_err();
    assert!(error.to_string().ends_with("is no UTF-8 text (byte 2)"), "{error}");
}

#[test]
fn an_output_appears_only_when_it_is_complete() {
    let (_root, workspace) = workspace();
    let mut output = workspace.create_output("sub/report.md").unwrap();
    output.write_all(b"half").unwrap();
    assert!(!output.path().exists());
    let path = output.path().to_path_buf();
    output.write_all(b" whole").unwrap();
    output.commit().unwrap();
    assert_eq!(fs::read_to_string(path).unwrap(), "half whole");
    assert_eq!(names(&workspace.outputs_dir().join("sub")), ["report.md"]);
}

#[test]
fn an_output_that_is_given_up_leaves_the_earlier_one() {
    let (_root, workspace) = workspace();
    workspace.write_output("report.md", "first").unwrap();
    let mut output = workspace.create_output("report.md").unwrap();
    output.write_all(b"second").unwrap();
    drop(output);
    let mut text = String::new();
    fs::File::open(workspace.outputs_dir().join("report.md")).unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "first");
    assert_eq!(names(workspace.outputs_dir()), ["report.md"]);
    workspace.write_output("report.md", "third").unwrap();
    assert_eq!(fs::read_to_string(workspace.outputs_dir().join("report.md")).unwrap(), "third");
}

#[test]
fn a_folder_in_the_way_is_an_error_and_leaves_nothing() {
    let (_root, workspace) = workspace();
    fs::create_dir(workspace.outputs_dir().join("report.md")).unwrap();
    let error = workspace.write_output("report.md", "text").unwrap_err();
    assert!(error.to_string().contains("report.md"), "{error}");
    assert_eq!(names(workspace.outputs_dir()), ["report.md"]);
}

#[test]
fn two_writers_of_one_name_do_not_mix() {
    let (_root, workspace) = workspace();
    let mut one = workspace.create_output("x").unwrap();
    let mut other = workspace.create_output("x").unwrap();
    one.write_all(b"one").unwrap();
    other.write_all(b"other").unwrap();
    one.commit().unwrap();
    other.commit().unwrap();
    assert_eq!(fs::read_to_string(workspace.outputs_dir().join("x")).unwrap(), "other");
    assert_eq!(names(workspace.outputs_dir()), ["x"]);
}
