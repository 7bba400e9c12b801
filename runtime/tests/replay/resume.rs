//! Training goes on from a state at rest as if it had never stopped, also under another plan.

use crate::support::{
    Examples,
    models::{gpt, mlp},
    runs::{
        Outcome, all_plans, compile, machine, plan, recursion, recursion_from, replayed,
        saved,
    },
};
use roundelay_dsl::Program;
use roundelay_runtime::{Oracle, State, StateError, Timing};
use roundelay_schedule::{Float, Method, Order, Placement, Plan, Rate, Rule, States};

fn cyclic(program: &Program, placement: Placement) -> Plan {
    let kind = (Rule::CyclicV2, placement, Order::Cyclic, States::Replicated);
    plan(program, kind, (3, 3))
}

#[test]
fn another_placement_of_the_same_rule_goes_on_bit_for_bit() {
    let program = gpt(2, 12);
    let data = compile(&program, &cyclic(&program, Placement::Data));
    let pipeline = compile(&program, &cyclic(&program, Placement::Pipeline));
    let whole = recursion(&data, 6);
    let half = replayed(&mut machine(&data, Timing::Natural), &[3]);
    let mut cpu = machine(&pipeline, Timing::Natural);
    cpu.load(&half.state).unwrap();
    let rest = replayed(&mut cpu, &[6]);
    assert_eq!(rest.losses, whole.losses[3..]);
    assert_eq!(rest.state, whole.state);
}

#[test]
fn another_cut_of_the_model_goes_on_from_the_newest_parameters() {
    let program = mlp(4, 12);
    let mut other = cyclic(&program, Placement::Pipeline);
    let first = compile(&program, &other);
    other.cuts[1] += 1;
    let second = compile(&program, &other);
    let mut state: State = replayed(&mut machine(&first, Timing::Natural), &[3]).state;
    state.restart();
    let mut cpu = machine(&second, Timing::Natural);
    cpu.load(&state).unwrap();
    let found: Outcome = replayed(&mut cpu, &[4, 7]);
    assert_eq!(found, recursion_from(&second, &state, 7));
    assert_eq!(found.state.origin, 3);
}

#[test]
fn versions_that_the_rule_reads_must_be_there() {
    let program = mlp(4, 12);
    let lazy = plan(
        &program,
        (Rule::CyclicV1, Placement::Concurrent, Order::Cyclic, States::Replicated),
        (2, 2),
    );
    let fresh = plan(
        &program,
        (Rule::Sync, Placement::Concurrent, Order::Parallel, States::Replicated),
        (2, 2),
    );
    let (lazy, fresh) = (compile(&program, &lazy), compile(&program, &fresh));
    let state = replayed(&mut machine(&fresh, Timing::Natural), &[2]).state;
    let error = Oracle::new(&lazy, &state).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("version 1 of"), "{error}");
    assert!(machine(&lazy, Timing::Natural).load(&state).is_err());
    let mut other = State::initial(&lazy.job);
    other.tensors.pop_last();
    assert!(matches!(other.fits(&lazy.job), Err(StateError::Missing { .. })));
}

#[test]
fn doubles_and_other_optimizers_train_like_the_recursion() {
    let mut doubles = mlp(4, 12);
    doubles.train.dtype = Float::F64;
    doubles.train.optimizer.method = Method::Sgd { momentum: 0.9, nesterov: true };
    doubles.train.optimizer.clip = 0.05;
    let mut plain = mlp(4, 12);
    plain.train.optimizer.method = Method::Sgd { momentum: 0.0, nesterov: false };
    let plans = all_plans(&plain, (2, 2));
    for plan in plans.into_iter().filter(|plan| plan.states == States::Replicated) {
        let schedule = compile(&doubles, &plan);
        let found = replayed(&mut machine(&schedule, Timing::Natural), &[2, 5]);
        assert_eq!(found, recursion(&schedule, 5), "{plan:?}");
        let schedule = compile(&plain, &plan);
        let found = replayed(&mut machine(&schedule, Timing::Natural), &[4]);
        assert_eq!(found, recursion(&schedule, 4), "{plan:?}");
    }
}

#[test]
fn training_lowers_the_loss_of_what_is_seen_again() {
    let program = mlp(4, 12);
    let schedule = compile(&program, &cyclic(&program, Placement::Shared));
    let mut evaluator = roundelay_runtime::Evaluator::new(&schedule).unwrap();
    let mut feed = Examples::of(&schedule.job);
    let mut cpu = machine(&schedule, Timing::Natural);
    let mut loss = |state: &State| evaluator.measure(state, &mut feed, 3).unwrap().loss;
    let before = loss(&saved(&mut cpu));
    cpu.replay(60, &mut |_| {}).unwrap();
    let after = loss(&saved(&mut cpu));
    assert!(after < before, "{before} to {after}");
}

/// Means of few updates are corrected by how few they are, whatever was trained before them.
#[test]
fn optimizer_state_that_begins_anew_counts_its_updates_from_there() {
    const RATE: f64 = 1e-3;
    let mut program = mlp(4, 12);
    program.train.dtype = Float::F64;
    let optimizer = &mut program.train.optimizer;
    optimizer.method = Method::Adamw { beta1: 0.9, beta2: 0.999, epsilon: 1e-12 };
    (optimizer.rate, optimizer.weight_decay) = (Rate::Constant(RATE), 0.0);
    let schedule = compile(&program, &cyclic(&program, Placement::Pipeline));
    let mut state = State::initial(&schedule.job);
    let begun = 3000;
    (state.step, state.origin, state.optimizer_origin) = (begun, begun, begun);
    let mut cpu = machine(&schedule, Timing::Natural);
    cpu.load(&state).unwrap();
    let found = replayed(&mut cpu, &[begun + 1, begun + 3]);
    assert_eq!(found, recursion_from(&schedule, &state, begun + 3));
    assert_eq!(found.state.optimizer_origin, begun);
    let first = recursion_from(&schedule, &state, begun + 1).state;
    let numbers = |state: &State| -> Vec<f64> {
        let newest = state.tensors.values().map(|tensor| &tensor.versions[0]);
        let words = newest.flat_map(|bytes| bytes.as_chunks::<8>().0);
        words.map(|word| f64::from_ne_bytes(*word)).collect()
    };
    let moved = numbers(&state).into_iter().zip(numbers(&first));
    let largest = moved.map(|(old, new)| (new - old).abs()).fold(0.0, f64::max);
    assert!((largest / RATE - 1.0).abs() < 1e-3, "{largest}");
}
