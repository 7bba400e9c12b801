//! Where the data of a program lies: seen from its own folder, and from that of a schedule.

use crate::support::{PROGRAM, Scratch, printed, refused, roundelay};
use roundelay::{OutputFile, RunOptions, SearchOptions, SourceFile};
use std::{
    ffi::OsStr,
    fs,
    os::unix::{ffi::OsStrExt, fs::symlink},
    path::{Path, PathBuf},
};

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

/// Paths that a text names are text.
#[test]
fn folders_that_no_text_can_name_are_refused() {
    let scratch = Scratch::new("latin-1");
    let program = letters(&scratch, "plain");
    let folder = scratch.path("").join(OsStr::from_bytes(b"d\xe9"));
    fs::rename(program.parent().expect("it has a folder"), &folder)
        .expect("it can be renamed");
    let words = ["can name this folder", "not UTF-8", "hint: rename it"];
    for command in ["plan", "run --steps 1"] {
        refused(roundelay(command).arg(folder.join("letters.rdl")), 1, &words);
    }
    let inside = |words: &str| {
        let mut command = roundelay(words);
        command.current_dir(&folder);
        command
    };
    printed(&mut inside("run --steps 1 letters.rdl"));
    printed(&mut inside("compile letters.rdl -o a.schedule"));
    printed(&mut inside("run --steps 1 a.schedule"));
    refused(&mut inside("compile letters.rdl -o ../a.schedule"), 1, &words);
    refused(roundelay("run --steps 1").arg(folder.join("a.schedule")), 1, &words);
}

/// Files of the library name data as those of the command do.
#[test]
fn a_schedule_that_the_library_writes_finds_its_data_from_its_own_folder() {
    let scratch = Scratch::new("library-roots");
    let program = letters(&scratch, "project");
    let text = fs::read_to_string(&program).expect("it was written");
    let source = SourceFile::new(program.display().to_string(), text);
    let program = roundelay::parse(&source).expect("it is right");
    let ranking =
        roundelay::plan(&program, &SearchOptions::default()).expect("plans fit");
    let made = roundelay::compile(&program, ranking.best()).expect("the plan is sound");
    let path = scratch.file("out/a.schedule", "");
    let output = OutputFile::new(&path).expect("the scratch folder can be written");
    roundelay::write_file(&made, &output).expect("the scratch folder can be written");
    let text = fs::read_to_string(&path).expect("it was written");
    assert!(text.contains("../project"), "{text}");
    let read = roundelay::read_file(&path).expect("it holds");
    let options = RunOptions { steps: Some(1), ..RunOptions::default() };
    roundelay::run(&read, &options, |_| {}).expect("the data is found");
    let bare = roundelay::read_as(Path::new("elsewhere/bare.schedule"), &text)
        .expect("it holds");
    roundelay::run(&bare, &options, |_| {}).expect_err("no data is there");
}

/// Errors of the library name the file and the line when they are printed.
#[test]
fn what_is_wrong_with_a_file_is_printed_with_its_place() {
    let scratch = Scratch::new("library-places");
    let schedule = scratch.path("a.schedule");
    printed(
        roundelay("compile").arg(letters(&scratch, "project")).arg("-o").arg(&schedule),
    );
    let text = fs::read_to_string(&schedule).expect("it was written");
    let said = |text: &str| {
        let path = Path::new("folder/a.schedule");
        let refused = roundelay::read_as(path, text).expect_err("it is wrong");
        refused.to_string()
    };
    let (before, after) = text.split_once("  after ").expect("actions wait");
    let (_, after) = after.split_once('\n').expect("it is a line");
    let lost = roundelay::seal(&format!("{before}\n{after}")).expect("it is a schedule");
    let found = said(&lost);
    assert!(found.starts_with("`folder/a.schedule` breaks rules:\nline "), "{found}");
    let found = said("format: 1\n");
    assert!(found.starts_with("`folder/a.schedule` is not a schedule:\n"), "{found}");
}
