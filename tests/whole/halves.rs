//! Backward passes in halves, and those that compute again what forward lost, replay bit for bit
//! like the recursion of whole ones that find all they read.

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
        schedule::{Pass, Plan, Recompute, check},
    },
};

/// Rests at which a replay is cut.
const RESTS: &[u64] = &[1, 4, STEPS];

fn halved(program: &Program, plan: &Plan) -> Checked {
    let schedule =
        lower_halved(program, plan).unwrap_or_else(|e| panic!("{plan:?}: {e}"));
    check(schedule, &Kernels).unwrap_or_else(|wrong| panic!("{plan:?}: {wrong}"))
}

fn compare(program: &Program, n: u32, s: u32, every: usize) {
    for kind in kinds(n, s).into_iter().step_by(every) {
        let plan = plan(program, kind, n, s);
        let whole = compiled(program, &plan);
        let data = Dataset::open(&whole.job, None).unwrap();
        let state = State::initial(&whole.job);
        let expected = recursion(&whole, &data, &state);
        let full = plan.clone().recomputing(Recompute::Full);
        let selective = plan.clone().recomputing(Recompute::Selective);
        let forms = [
            ("halves", halved(program, &plan)),
            ("halves, full", halved(program, &full)),
            ("selective", compiled(program, &selective)),
        ];
        for (form, schedule) in forms {
            let name = format!("{form} of {kind:?}, N = {n}, S = {s}");
            let halves = form.starts_with("halves");
            assert_eq!(halves, runs(&schedule, Pass::WeightGradient), "{name}");
            assert_eq!(halves, !runs(&schedule, Pass::Backward), "{name}");
            let oracle = recursion(&schedule, &data, &state);
            assert!(oracle == expected, "the recursion of {name}");
            let found = replay(&schedule, &data, &state, RESTS);
            assert!(found == expected, "the replay of {name}");
        }
    }
}

fn runs(schedule: &Checked, pass: Pass) -> bool {
    schedule.routines.values().any(|routine| routine.pass == pass)
}

#[test]
fn small_models_in_halves_train_like_whole_ones() {
    for (n, s) in [(1, 1), (3, 3), (3, 2), (2, 3)] {
        compare(&mlp(6, 2 * n), n, s, 1);
        compare(&gpt(2, n), n, s, 2);
    }
}

#[test]
fn networks_in_halves_train_like_whole_ones() {
    for network in [networks::resnet, networks::hybrid, networks::vit, networks::llama] {
        compare(&network(6), 3, 3, 5);
    }
}
