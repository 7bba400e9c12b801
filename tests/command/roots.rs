//! Where the data of a program lies: seen from its own folder, and from that of a schedule.

use crate::support::{PROGRAM, Scratch, printed, roundelay};
use std::{fs, os::unix::fs::symlink, path::PathBuf};

/// A program that reads tokens beside it, in a folder of the scratch folder.
fn letters(scratch: &Scratch, folder: &str) -> PathBuf {
    let model = "model letters {\n input tokens: i32[batch, 8]\n input targets: i32[batch, 8]\n \
                 loss cross_entropy(linear(embedding(tokens, 256, 8), 256), targets)\n}\n";
    let rest = &PROGRAM[PROGRAM.find("device core").expect("it has one")..];
    let rest = rest.replace("data synthetic", "data tokens(\"in.bin\", u8)");
    scratch.file(&format!("{folder}/in.bin"), &"some words ".repeat(400));
    scratch.file(&format!("{folder}/letters.rdl"), &format!("{model}{rest}"))
}

#[test]
fn a_name_without_a_folder_is_one_of_this_folder() {
    let scratch = Scratch::new("no-folder");
    let program = letters(&scratch, "project");
    let folder = program.parent().expect("it has a folder");
    scratch.file("project/out/note", "");
    scratch.file("apart/note", "");
    symlink("apart", scratch.path("link")).expect("a link can be made");
    for (program, schedule, root) in [
        ("letters.rdl", "out/a.schedule", ".."),
        ("project/letters.rdl", "b.schedule", "project"),
        ("letters.rdl", "c.schedule", ""),
        ("letters.rdl", "../d.schedule", "project"),
        ("letters.rdl", "../link/e.schedule", "../project"),
    ] {
        let here = if program.contains('/') { scratch.path("") } else { folder.into() };
        let mut compile = roundelay("compile");
        printed(compile.current_dir(&here).args([program, "-o", schedule]));
        let text = fs::read_to_string(here.join(schedule)).expect("it was written");
        let (_, found) = text.split_once("{root: ").expect("it has data");
        let found = found.split(',').next().map(|own| own.trim_matches('"'));
        assert_eq!(found, Some(root), "{program} {schedule}");
        printed(roundelay("run --steps 1").current_dir(&here).arg(schedule));
    }
}
