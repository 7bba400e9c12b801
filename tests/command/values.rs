//! Values that an option does not take: what it takes is said, whatever the value looks like.

use crate::support::{PROGRAM, Scratch, diagnostics, roundelay};

#[test]
fn a_wrong_number_is_told_which_numbers_are_taken() {
    let scratch = Scratch::new("values");
    let program = scratch.file("line.rdl", PROGRAM);
    for (command, words) in [
        ("run --steps -1", "'-1' for '--steps <STEPS>': it must be a whole number of"),
        ("run --steps 1.5", "it must be a whole number of at least 0"),
        ("plan --top -1", "'-1' for '--top <TOP>': it must be a whole number of at"),
        ("run --deadline -0.5", "it must be a whole number from 1 to 31536000"),
        ("simulate --steps 0", "it must be a whole number of at least 1"),
        (
            "import --batch 4294967296 -o x",
            "it must be a whole number from 1 to 16777216",
        ),
    ] {
        let told = diagnostics(roundelay(command).arg(&program), 2);
        let message = told[0]["message"].as_str().unwrap_or_default();
        assert!(message.contains(words), "{command}: {message}");
    }
}
