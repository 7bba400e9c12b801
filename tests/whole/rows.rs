//! Tensor rows: their replays equal the recursion bit for bit, move what the facts say, and go on
//! as if they had never stopped.

use crate::{
    models::{gpt, mlp},
    oracle::{RESTS, STEPS, compare_one, recursion},
    plans::{kinds, pipelines},
    support::{compiled, plan, saved},
};
use roundelay::{
    Checked, Plan, Program,
    parts::{
        runtime::{Cpu, CpuOptions, Dataset, State},
        schedule::{Bytes, Id, Sequence, Tensor},
    },
};
use roundelay_schedule::{Order, Placement, Rule, States};

pub(crate) const ROWS: [Tensor; 2] =
    [Tensor::rows(2, Sequence::Whole), Tensor::rows(2, Sequence::Split)];

fn compare(program: &Program, n: u32, s: u32) {
    for kind in kinds(n, s) {
        for tensor in ROWS {
            let plan = plan(program, kind, n, s).with_tensor(tensor);
            compare_one(program, &plan, &RESTS[2..]);
        }
    }
}

#[test]
fn language_models_on_rows_replay_like_the_recursion() {
    for n in [1, 3] {
        compare(&gpt(2, n), n, n);
    }
    compare(&gpt(1, 2), 2, 1);
}

#[test]
fn perceptrons_on_rows_replay_like_the_recursion() {
    for rows in [2, 4] {
        let tensor = Tensor::rows(rows, Sequence::Whole);
        let program = mlp(4, 4);
        for kind in kinds(2, 2) {
            let plan = plan(&program, kind, 2, 2).with_tensor(tensor);
            compare_one(&program, &plan, &RESTS);
        }
    }
}

#[test]
fn pipelines_of_rows_replay_like_the_recursion() {
    let program = gpt(2, 4);
    for plan in pipelines(4, &plan(&program, kinds(4, 2)[0], 4, 2).cuts) {
        compare_one(&program, &plan.with_tensor(ROWS[1]), &RESTS[2..]);
    }
}

/// Replicas of rows, whole and in shards.
#[test]
fn replicas_of_rows_replay_like_the_recursion() {
    let program = gpt(2, 8);
    for (states, shards) in
        [(States::Replicated, 1), (States::Zero3, 1), (States::Hsdp, 2)]
    {
        let kind = (Rule::Sync, Placement::Data, Order::Parallel, states);
        let plan = plan(&program, kind, 2, 1).replicated(2, shards);
        compare_one(&program, &plan.with_tensor(ROWS[0]), &RESTS);
    }
}

pub(crate) fn sequential(program: &Program, tensor: Tensor) -> Checked {
    let whole = States::Replicated;
    let kind = (Rule::Sync, Placement::Accumulate, Order::Sequential, whole);
    compiled(program, &plan(program, kind, 2, 1).with_tensor(tensor))
}

#[test]
fn what_rows_move_is_what_the_facts_say() {
    let program = gpt(2, 4);
    for kind in kinds(2, 2) {
        for tensor in ROWS {
            let plan = plan(&program, kind, 2, 2).with_tensor(tensor);
            moves_what_facts_say(&compiled(&program, &plan), &plan);
        }
    }
}

pub(crate) fn moves_what_facts_say(schedule: &Checked, plan: &Plan) {
    const ROUND: u64 = 12;
    let data = Dataset::open(&schedule.job, None).unwrap();
    let mut cpu = Cpu::new(schedule, Box::new(data), CpuOptions::default()).unwrap();
    let mut measured = |steps| {
        cpu.load(&State::initial(&schedule.job)).unwrap();
        cpu.replay(steps, &mut |_| {}).unwrap();
        cpu.measured().unwrap()
    };
    let (few, many) = (measured(3), measured(3 + ROUND));
    let facts = schedule.facts();
    assert_eq!(many.messages - few.messages, ROUND * facts.messages, "{plan:?}");
    for (link, bytes) in &many.link_bytes {
        let expected = facts.link_bytes.get(link).copied().unwrap_or_default();
        assert_eq!(*bytes - few.link_bytes[link], expected * ROUND, "{plan:?}");
    }
    for (device, bytes) in &facts.sent {
        // Every row sends as much as the first.
        for row in 0..schedule.tensor_parts() as usize {
            let device = Id::new(Id::index(*device) + row);
            let found = many.sent[&device] - few.sent[&device];
            assert_eq!(Bytes(found.0.div_ceil(ROUND)), *bytes, "{device} {plan:?}");
        }
    }
}

/// Every parameter's parts come back as they went out, under every plan of rows.
#[test]
fn a_state_comes_back_from_rows_as_it_went_there() {
    let program = gpt(2, 4);
    let schedule = sequential(&program, Tensor::WHOLE);
    let data = Dataset::open(&schedule.job, None).unwrap();
    let trained = recursion(&schedule, &data, &State::initial(&schedule.job)).state;
    for kind in kinds(2, 2) {
        for tensor in ROWS {
            let plan = plan(&program, kind, 2, 2).with_tensor(tensor);
            let schedule = compiled(&program, &plan);
            let mut state = trained.clone();
            state.restart();
            let data = Box::new(data.clone());
            let mut cpu = Cpu::new(&schedule, data, CpuOptions::default()).unwrap();
            cpu.load(&state).unwrap();
            assert!(saved(&mut cpu) == state, "{plan:?}");
        }
    }
}

/// A run that stopped goes on bit for bit under the same plan, though its state was whole
/// meanwhile.
#[test]
fn a_run_on_rows_goes_on_as_if_it_had_never_stopped() {
    let program = gpt(2, 4);
    for kind in kinds(2, 2) {
        let schedule =
            compiled(&program, &plan(&program, kind, 2, 2).with_tensor(ROWS[1]));
        let data = Dataset::open(&schedule.job, None).unwrap();
        let run = |state: &State, end| {
            let data = Box::new(data.clone());
            let mut cpu = Cpu::new(&schedule, data, CpuOptions::default()).unwrap();
            cpu.load(state).unwrap();
            cpu.replay(end, &mut |_| {}).unwrap();
            saved(&mut cpu)
        };
        let start = State::initial(&schedule.job);
        assert!(run(&run(&start, 3), STEPS) == run(&start, STEPS), "{kind:?}");
    }
}
