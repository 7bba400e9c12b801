//! What documents say where not all is well: nothing that standard error has is missing in them.

use crate::support::{PROGRAM, Scratch, diagnostics, roundelay};

#[test]
fn what_a_launcher_says_wrong_is_no_matter_of_gpus() {
    let scratch = Scratch::new("launched");
    let program = scratch.file("line.rdl", PROGRAM);
    let mut run = roundelay("run --device cpu");
    let told = diagnostics(run.arg(program).env("RANK", "x").env("WORLD_SIZE", "2"), 3);
    assert_eq!(told[0]["code"], "ranks");
}
