//! Training goes on from a state at rest as if it had never stopped, also under another plan.

use crate::support::{
    Examples,
    models::{gpt, mlp},
    runs::{
        Outcome, all_plans, compile, machine, plan, recursion, recursion_from, replayed,
    },
};
use roundelay_dsl::Program;
use roundelay_runtime::{Oracle, State, StateError, Timing};
use roundelay_schedule::{Float, Method, Order, Placement, Plan, Rule, States};

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
    let before = loss(&cpu.save().unwrap());
    cpu.replay(60, &mut |_| {}).unwrap();
    let after = loss(&cpu.save().unwrap());
    assert!(after < before, "{before} to {after}");
}
