//! What a file is, is known by how it begins, whatever its name.

use crate::support::{PROGRAM, Scratch, compiled, printed, refused, roundelay};
use std::{fs, path::Path};

#[test]
fn programs_and_schedules_run_under_any_name() {
    let scratch = Scratch::new("any-name");
    let commented = format!("# a line\n\n  # and another\n{PROGRAM}");
    let program = scratch.file("line.txt", &commented);
    printed(roundelay("run --steps 1").arg(&program));
    let schedule = compiled(&scratch, &program, "line.schedule");
    let text = fs::read_to_string(&schedule).expect("it was written");
    for (name, text) in
        [("renamed.rdl", text.clone()), ("marked", format!("\u{feff}{text}"))]
    {
        let schedule = scratch.file(name, &text);
        printed(roundelay("run --steps 1").arg(&schedule));
        printed(roundelay("check").arg(&schedule));
        let mut set = roundelay("run --set rule=sync");
        refused(set.arg(&schedule), 2, &["`--set` needs a program"]);
    }
}

#[test]
fn a_file_of_another_kind_is_said_to_be_one() {
    let scratch = Scratch::new("another-kind");
    let program = scratch.file("line.rdl", PROGRAM);
    let schedule = compiled(&scratch, &program, "line.schedule");
    for command in ["check", "simulate", "show"] {
        let words = [
            "this is a program, not a schedule file",
            "roundelay compile",
            "line.rdl:1:1",
        ];
        refused(roundelay(command).arg(&program), 1, &words);
    }
    for command in ["plan", "compile -o never", "profile -o never", "fmt"] {
        let words = [
            "this is a schedule file, not a program",
            "`run`, `evaluate` and `data` take it",
            "line.schedule:1:1",
        ];
        refused(roundelay(command).arg(&schedule), 1, &words);
    }
}

#[test]
fn what_is_no_plan_file_is_said_to_be_none() {
    let scratch = Scratch::new("no-plan");
    let program = scratch.file("line.rdl", PROGRAM);
    let schedule = compiled(&scratch, &program, "line.schedule");
    let kinds = [(&program, "a program"), (&schedule, "a schedule file")];
    for (file, kind) in kinds {
        let said = format!("this is {kind}, not a plan file");
        let words = [&*said, "`roundelay plan PROGRAM -o PLAN`"];
        let mut compile = roundelay("compile -o never --plan");
        refused(compile.arg(file).arg(&program), 1, &words);
        refused(roundelay("plan --diff").args([file, file]), 1, &words);
    }
}

/// A name is all there is to go by where the text begins as neither.
#[test]
fn what_begins_as_neither_is_what_it_is_called() {
    let scratch = Scratch::new("neither");
    let yaml = "plan: none\n";
    let words = [
        "neither a program nor a schedule",
        "`model`",
        "`roundelay schedule`",
        "p.yaml:1:1",
    ];
    for command in ["run", "evaluate --weights w", "data -o never"] {
        refused(roundelay(command).arg(scratch.file("p.yaml", yaml)), 1, &words);
    }
    let words = ["expected import, model, block", "p.rdl:1:1"];
    refused(roundelay("run").arg(scratch.file("p.rdl", "modle x\n")), 1, &words);
}

/// Editors show such a byte as anything.
#[test]
fn the_first_byte_that_is_no_text_is_shown() {
    let scratch = Scratch::new("no-text");
    let program = scratch.file("line.rdl", PROGRAM);
    let schedule = compiled(&scratch, &program, "line.schedule");
    let spoil = |file: &Path| {
        let mut bytes = fs::read(file).expect("it is there");
        bytes.extend(b"# caf\xe9\n");
        fs::write(file, &bytes).expect("it can be written");
        bytes.iter().filter(|byte| **byte == b'\n').count()
    };
    for (command, file) in [("plan", &program), ("check", &schedule)] {
        let place = format!("{}:{}:6", file.display(), spoil(file));
        let words = ["not part of UTF-8 text", &place, "hint: save the file as UTF-8"];
        refused(roundelay(command).arg(file), 1, &words);
    }
    let importing = scratch.file("importing.rdl", "import \"line.rdl\"\n");
    let words = ["importing.rdl:1:", "not UTF-8 text", "column 6", "save it as UTF-8"];
    refused(roundelay("plan").arg(importing), 1, &words);
}
