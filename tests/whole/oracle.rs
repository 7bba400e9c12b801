//! Every rule, placement and states replays bit for bit like the plain recursion, wherever a run
//! is cut and however long its actions take.

use crate::{
    models::{self, gpt, mlp},
    networks,
    plans::{kinds, pipelines},
    support::{compiled, plan, saved},
};
use roundelay::{
    Checked, Plan, Program,
    parts::{
        planner::with_found_lists,
        runtime::{
            Cpu, CpuOptions, Dataset, Evaluator, Fill, HeldOut, Oracle, State, Timing,
        },
    },
};
use roundelay_schedule::{Bytes, Order, Placement, Recompute, Rule, States};

pub(crate) const STEPS: u64 = 6;

/// Losses by step and micro-batch, and the state after the last step.
#[derive(PartialEq)]
pub(crate) struct Outcome {
    pub(crate) losses: Vec<Vec<f64>>,
    pub(crate) state: State,
}

pub(crate) fn recursion(schedule: &Checked, data: &Dataset, state: &State) -> Outcome {
    let mut oracle = Oracle::new(schedule, state).unwrap();
    let losses = (0..STEPS).map(|_| oracle.advance(&mut data.clone())).collect();
    Outcome { losses, state: oracle.state() }
}

/// Replays with rests before the given steps, and looks at held-out data at every rest.
pub(crate) fn replay(
    schedule: &Checked,
    data: &Dataset,
    state: &State,
    rests: &[u64],
) -> Outcome {
    let seed = rests.len() as u64;
    let timing = if rests.len() > 1 { Timing::Jittered(seed) } else { Timing::Natural };
    let options = CpuOptions { fill: Fill::Poison, timing, ..CpuOptions::default() };
    let mut cpu = Cpu::new(schedule, Box::new(data.clone()), options).unwrap();
    cpu.load(state).unwrap();
    let mut evaluator = Evaluator::new(schedule).unwrap();
    let mut held_out = data.held_out(HeldOut::EXAMPLES.min(8)).unwrap();
    let micro_batches = schedule.plan.all_micro_batches() as usize;
    let mut losses = vec![vec![0.0; micro_batches]; STEPS as usize];
    for end in rests {
        cpu.replay(*end, &mut |loss| {
            losses[loss.step as usize][loss.micro_batch as usize] = loss.loss;
        })
        .unwrap();
        let (state, count) = (saved(&mut cpu), held_out.micro_batches());
        let measures = evaluator.measure(&state, &mut held_out, count).unwrap();
        assert!(measures.loss.is_finite());
    }
    Outcome { losses, state: saved(&mut cpu) }
}

/// Rests at which a replay is cut: none, all, some.
pub(crate) const RESTS: [&[u64]; 3] = [&[STEPS], &[1, 2, 3, 4, 5, STEPS], &[2, 5, STEPS]];

fn compare(program: &Program, n: u32, s: u32, rests: &[&[u64]]) {
    for kind in kinds(n, s) {
        compare_one(program, &plan(program, kind, n, s), rests);
    }
}

pub(crate) fn compare_one(program: &Program, plan: &Plan, rests: &[&[u64]]) {
    let schedule = compiled(program, plan);
    let data = Dataset::open(&schedule.job, None).unwrap();
    let state = State::initial(&schedule.job);
    let expected = recursion(&schedule, &data, &state);
    for rests in rests {
        let found = replay(&schedule, &data, &state, rests);
        assert_eq!(found.losses, expected.losses, "losses, rests {rests:?}: {plan:?}");
        assert!(found.state == expected.state, "state, rests {rests:?}: {plan:?}");
    }
}

/// Looped, folded and opposite pipelines, split backward passes, odd and even numbers.
#[test]
fn pipeline_orders_replay_like_the_recursion() {
    for (n, s) in [(1, 2), (4, 2), (5, 4), (8, 4), (6, 6)] {
        let program = mlp(6, n);
        let plans = pipelines(n, &plan(&program, kinds(n, s)[0], n, s).cuts);
        assert!(plans.len() >= 7, "N = {n}, S = {s}: {} plans", plans.len());
        plans.iter().for_each(|plan| compare_one(&program, plan, &RESTS[2..]));
    }
    let program = gpt(2, 8);
    for plan in pipelines(8, &plan(&program, kinds(8, 4)[0], 8, 4).cuts) {
        compare_one(&program, &plan, &RESTS[2..]);
    }
}

/// An input that stages read of which one device has several.
const AUTOENCODER: &str = "model autoencoder {
    input x: real[batch, 12]
    y = x
    repeat 4 as layer { y = tanh(linear(y, 12)) + x }
    loss mse(y, x)
}";

#[test]
fn inputs_that_several_stages_read_are_theirs_in_every_order() {
    let program = models::program(&format!("{AUTOENCODER}\n{}", models::job(8)));
    for s in [2, 4] {
        let cuts = plan(&program, kinds(s, s)[0], s, s).cuts;
        for plan in [s, 8].into_iter().flat_map(|n| pipelines(n, &cuts)) {
            compare_one(&program, &plan, &[&[STEPS]]);
        }
    }
}

/// Lists that the planner finds, with much and with little memory, by themselves and replicated.
#[test]
fn found_orders_replay_like_the_recursion() {
    let orders = [Order::ZeroBubbleOneP, Order::ZeroBubbleTwoP, Order::ZeroBubbleAuto];
    for (n, s) in [(1, 2), (5, 4), (8, 4), (3, 6)] {
        let mut program = mlp(6, 2 * n);
        for (order, memory) in orders.into_iter().zip([1 << 30, 1 << 30, 40_000]) {
            program.search.memory = Some(Bytes(memory));
            let cuts = plan(&program, kinds(n, s)[0], n, s).cuts;
            let (rule, placement) = (Rule::Sync, Placement::Pipeline);
            let bare = Plan::new(rule, placement, order, States::Replicated, n, cuts);
            for bare in [bare.clone(), bare.recomputing(Recompute::Full).replicated(2, 1)]
            {
                let found = with_found_lists(&program, &bare).unwrap();
                compare_one(&program, &found, &RESTS[2..]);
            }
        }
    }
}

/// What somebody wrote down: uneven devices, whole and split backward passes side by side.
#[test]
fn listed_orders_replay_like_the_recursion() {
    let program = mlp(6, 6);
    let cuts = plan(&program, kinds(3, 4)[0], 3, 4).cuts;
    let serial = [
        "0F0 0F1 2F0 2B0 0F2 2F1 2B1 0I0 2F2 2B2 0I1 0W0 0I2 0W1 0W2",
        "1F0 1F1 3F0 3B0 1B0 1F2 3F1 3B1 1B1 3F2 3B2 1B2",
    ];
    let paired = [
        "0F0 0F1 2F0 (0F2;2B0)OVERLAP_F_B 2F1 2B1 (2F2;0I0;0W0)OVERLAP_F_B 2B2 0I1 0I2 0W1 0W2",
        "1F0 1F1 3F0 3B0 (1F2;1B0)OVERLAP_F_B 3F1 3B1 (3F2;1B1)OVERLAP_F_B 3B2 1B2",
    ];
    let list = |text: &str| text.split(' ').map(|cell| cell.parse().unwrap()).collect();
    let plan = Plan::new(
        Rule::Sync,
        Placement::Pipeline,
        Order::Listed,
        States::Replicated,
        3,
        cuts,
    );
    for lists in [serial, paired] {
        let plan = plan.clone().with_lists(lists.map(list).into());
        compare_one(&program, &plan, &RESTS);
    }
}

#[test]
fn multilayer_perceptrons_replay_like_the_recursion() {
    for n in 1..=4 {
        compare(&mlp(6, 2 * n), n, n, &RESTS);
    }
}

#[test]
fn language_models_replay_like_the_recursion() {
    for n in 1..=4 {
        compare(&gpt(2, n), n, n, &RESTS);
    }
}

#[test]
fn other_numbers_of_stages_replay_like_the_recursion() {
    for (n, s) in [(3, 2), (2, 3), (5, 2), (2, 5)] {
        compare(&mlp(6, 2 * n), n, s, &RESTS);
    }
    for (n, s) in [(4, 3), (3, 4)] {
        compare(&gpt(2, n), n, s, &RESTS);
    }
}

/// Two rests and uneven delays: what every rest does, the small models above show.
fn network_compares(network: impl Fn(u32) -> Program) {
    for n in 1..=4 {
        compare(&network(2 * n), n, n, &RESTS[2..]);
    }
}

#[test]
fn residual_networks_replay_like_the_recursion() {
    network_compares(networks::resnet);
}

#[test]
fn grouped_convolutions_and_windows_replay_like_the_recursion() {
    network_compares(networks::hybrid);
}

#[test]
fn vision_transformers_replay_like_the_recursion() {
    network_compares(networks::vit);
}

#[test]
fn llamas_replay_like_the_recursion() {
    network_compares(networks::llama);
}

#[test]
fn a_gpt2_replays_like_the_recursion() {
    network_compares(networks::untied_gpt2);
    for n in 1..=4 {
        compare(&networks::gpt2(n), n, 1, &RESTS[2..]);
    }
}

#[test]
fn cuts_change_no_bit_of_synchronous_training() {
    for program in [mlp(6, 4), gpt(2, 4)] {
        let outcome = |s| {
            let kind = kinds(2, s)[0];
            let schedule = compiled(&program, &plan(&program, kind, 2, s));
            let data = Dataset::open(&schedule.job, None).unwrap();
            recursion(&schedule, &data, &State::initial(&schedule.job))
        };
        let whole = outcome(1);
        assert!((2..=5).all(|s| outcome(s) == whole));
    }
}
