//! Backward passes in halves replay bit for bit like the recursion of whole ones.

use crate::{
    models::{gpt, mlp},
    networks,
    oracle::{STEPS, recursion, replay},
    plans::kinds,
    support::{compiled, plan},
};
use roundelay::{
    Checked, Program,
    parts::{
        codegen::lower_halved,
        kernels::Kernels,
        runtime::{Dataset, State},
        schedule::{Pass, Plan, check},
    },
};

/// Rests at which a replay is cut.
const RESTS: &[u64] = &[1, 4, STEPS];

fn halved(program: &Program, plan: &Plan) -> Checked {
    let schedule =
        lower_halved(program, plan).unwrap_or_else(|e| panic!("{plan:?}: {e}"));
    check(schedule, &Kernels).unwrap_or_else(|wrong| panic!("{plan:?}: {wrong}"))
}

fn compare(program: &Program, n: u32, s: u32) {
    for kind in kinds(n, s) {
        let plan = plan(program, kind, n, s);
        let (whole, halves) = (compiled(program, &plan), halved(program, &plan));
        let passes = |schedule: &Checked, pass| {
            let mut routines = schedule.routines.values();
            routines.any(|routine| routine.pass == pass)
        };
        assert!(passes(&whole, Pass::Backward) && !passes(&halves, Pass::Backward));
        assert!(passes(&halves, Pass::WeightGradient));
        let data = Dataset::open(&whole.job, None).unwrap();
        let state = State::initial(&whole.job);
        let expected = recursion(&whole, &data, &state);
        let name = format!("{kind:?}, N = {n}, S = {s}");
        let oracle = recursion(&halves, &data, &state);
        assert!(oracle == expected, "the recursion of halves of {name}");
        let found = replay(&halves, &data, &state, RESTS);
        assert!(found == expected, "the replay of halves of {name}");
    }
}

#[test]
fn small_models_in_halves_train_like_whole_ones() {
    for (n, s) in [(1, 1), (2, 2), (3, 3), (3, 2), (2, 3)] {
        compare(&mlp(6, 2 * n), n, s);
        compare(&gpt(2, n), n, s);
    }
}

#[test]
fn networks_in_halves_train_like_whole_ones() {
    for network in [networks::resnet, networks::hybrid, networks::vit, networks::llama] {
        compare(&network(6), 3, 3);
    }
}
