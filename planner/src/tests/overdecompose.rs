//! Halves of micro-batches in a search: tried where a program names them, faster where exchanges and
//! calls take alike, and never faster or smaller than bounded.

use super::{
    all,
    brute_force::{cluster, within_bounds},
    refusal,
};
use crate::{appraise, sample, sample::Random};
use roundelay_dsl::{Choice, Numbers, Program};
use roundelay_schedule::{Bytes, BytesPerSecond, FlopsPerSecond, Nanos, Placement};

fn one(number: u64) -> Numbers {
    Numbers::Ranges(vec![(number, number)])
}

/// Some layers on some devices with room.
fn program(devices: usize, layers: u64) -> Program {
    let mut program = sample::program(devices, 8);
    program.model = sample::gpt(layers, 32, 16, false);
    sample::give_room(&mut program, Bytes(1 << 30));
    program.search.placement =
        Choice::OneOf(vec![Placement::Accumulate, Placement::Pipeline]);
    program.search.stages = Numbers::Ranges(vec![(1, 2)]);
    program
}

fn halves(program: &Program) -> Vec<u32> {
    let plans = all(program).plans;
    let mut tried: Vec<u32> =
        plans.iter().map(|candidate| candidate.plan.tensor.overdecompose).collect();
    tried.sort_unstable();
    tried.dedup();
    tried
}

#[test]
fn halves_are_tried_where_a_program_names_them() {
    let mut program = program(2, 1);
    assert_eq!(halves(&program), [1]);
    program.search.overdecompose = Numbers::Ranges(vec![(1, 2)]);
    assert_eq!(halves(&program), [1, 2]);
    program.search.overdecompose = one(2);
    assert_eq!(halves(&program), [2]);
    program.search.rows = one(1);
    program.search.columns = one(1);
    let refused = refusal(&program).to_string();
    assert!(refused.contains("let there be rows or columns"), "{refused}");
    program.search.rows = one(2);
    program.search.micro_batches = one(8);
    program.search.replicas = one(1);
    let refused = refusal(&program).to_string();
    assert!(refused.contains("micro-batches of 1 examples have no halves"), "{refused}");
}

/// Products for which a link needs as long as a device.
#[test]
fn halves_are_faster_where_exchanges_take_as_long_as_calls() {
    let mut program = program(2, 4);
    for (_, device) in program.target.devices.iter_mut() {
        device.compute = FlopsPerSecond(1_000_000_000);
        device.bandwidth = BytesPerSecond(1 << 40);
        (device.overhead, device.issue) = (Nanos(0), Nanos(0));
    }
    for (_, link) in program.target.links.iter_mut() {
        (link.bandwidth, link.latency) = (BytesPerSecond(60_000_000), Nanos(0));
    }
    program.search.rows = one(2);
    program.search.stages = one(1);
    program.search.micro_batches = one(1);
    program.search.overdecompose = one(1);
    let together = all(&program).plans[0].step_time;
    program.search.overdecompose = one(2);
    let in_turn = all(&program).plans[0].step_time;
    assert!(in_turn.0 * 20 < together.0 * 19, "{in_turn} for {together}");
}

#[test]
fn no_halves_beat_their_bounds_and_a_plan_costs_what_the_search_says() {
    let mut random = Random::new(47);
    for round in 0..4 {
        let mut program = program(4, 2);
        program.train.batch = 4;
        cluster(&mut random, &mut program);
        program.search.overdecompose = one(2);
        let plans = all(&program).plans;
        assert!(plans.len() > 10, "round {round}: {}", plans.len());
        plans.iter().for_each(within_bounds);
        for candidate in &plans[..2] {
            let alone = appraise(&program, &candidate.plan).unwrap();
            assert_eq!(alone.step_time, candidate.step_time);
        }
    }
}
