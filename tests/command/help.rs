//! What `--help` says of each command holds for that command, and no option is left unused.

use crate::support::{Scratch, printed, refused, roundelay};

const PROGRAM: &str = "
model line {
    input x: real[batch, 4]
    input y: real[batch, 1]
    loss mse(linear(x, 1), y)
}
";

#[test]
fn every_command_names_the_files_that_it_takes() {
    for (command, file) in [
        ("compile", "The program file"),
        ("profile", "The program file"),
        ("run", "A program, or a schedule file"),
        ("evaluate", "A program, or a schedule file"),
        ("data", "A program, or a schedule file"),
        ("check", "A schedule file, or lists of passes (`.csv`)"),
    ] {
        let told = printed(&mut roundelay(&format!("{command} --help")));
        let line = told.lines().skip_while(|line| !line.starts_with("  <FILE>")).take(2);
        let line = line.collect::<String>();
        assert!(line.ends_with(file), "{command}: {line}");
    }
}

/// One word for devices means one thing, whatever is done on them.
#[test]
fn every_command_takes_the_same_devices() {
    for command in ["run", "evaluate", "profile"] {
        let told = printed(&mut roundelay(&format!("{command} --help")));
        assert!(told.contains("auto: A GPU if there is one that can do it"), "{told}");
    }
}

#[test]
fn outputs_have_a_long_name_too() {
    let scratch = Scratch::new("outputs");
    let program = scratch.file("line.rdl", PROGRAM);
    let plan = scratch.path("plan.yaml");
    printed(roundelay("plan --output").arg(&plan).arg(&program));
    assert!(plan.exists());
    for command in ["compile", "import", "profile", "data", "devices"] {
        let told = printed(&mut roundelay(&format!("{command} --help")));
        assert!(told.contains("-o, --output <"), "{command}: {told}");
    }
}

/// What only one kind of work of `devices` heeds is refused with every other.
#[test]
fn options_of_one_check_of_devices_are_none_of_another() {
    let works = ["", "-o never.rdl", "--compile", "--self-check", "--check-kernels"];
    let options = ["--only copy", "--seed 3", "--calls 9", "--own-products"];
    let owned = options.map(|option| (option, "--check-kernels"));
    for (option, own) in owned.into_iter().chain([("--largest 3", "--self-check")]) {
        for work in works.iter().filter(|work| **work != own) {
            refused(&mut roundelay(&format!("devices {work} {option}")), 2, &["--"]);
        }
    }
}
