//! A replay on the CPU equals the plain recursion bit for bit: every rule, placement and way to
//! keep states, wherever the run is cut and however its devices are timed.

#[allow(dead_code, reason = "each test file uses its part")]
mod support;

use roundelay_runtime::Timing;
use support::{
    models::{Layered, gpt, mlp},
    plans::plans,
    runs::{compile, machine, recursion, replayed},
};

const STEPS: u64 = 6;

fn every_plan_equals_the_recursion(layered: &Layered, sizes: &[(u32, u32)]) {
    let mut wrong = Vec::new();
    for size in sizes {
        for plan in plans(layered, *size) {
            let schedule = compile(layered, &plan, 12);
            let expected = recursion(&schedule, STEPS);
            for (rests, timing) in [
                (&[STEPS][..], Timing::Natural),
                (&[1, 3, STEPS], Timing::Natural),
                (&[2, 2, 5, STEPS], Timing::Jittered(u64::from(size.0))),
            ] {
                let found = replayed(&mut machine(&schedule, timing), rests);
                if found != expected {
                    wrong.push(format!("{plan:?} {rests:?} {timing:?}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn an_mlp_trains_like_the_recursion() {
    let sizes = [(1, 1), (2, 2), (3, 3), (4, 4), (3, 2), (2, 4)];
    every_plan_equals_the_recursion(&mlp(), &sizes);
}

#[test]
fn a_gpt_trains_like_the_recursion() {
    let sizes = [(1, 1), (2, 2), (3, 3), (4, 4), (3, 2), (2, 4)];
    every_plan_equals_the_recursion(&gpt(), &sizes);
}
