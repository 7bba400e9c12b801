//! Bytes that the machine counts equal the closed forms of cyclic data parallelism
//! (arXiv 2403.08837), written with the real stage sizes P_j.

use crate::{
    models::mlp,
    support::{compiled, plan},
};
use roundelay::{
    Checked,
    parts::{
        runtime::{Cpu, CpuOptions, Dataset, State},
        schedule::{Bytes, Content, Id, Order, Placement, Rule, States, Subject, Work},
    },
};

/// Bytes that a run of this many steps sends, over all devices.
fn sent(schedule: &Checked, rests: &[u64]) -> u64 {
    let data = Dataset::open(&schedule.job, None).unwrap();
    let mut cpu = Cpu::new(schedule, Box::new(data), CpuOptions::default()).unwrap();
    cpu.load(&State::initial(&schedule.job)).unwrap();
    rests.iter().for_each(|end| cpu.replay(*end, &mut |_| {}).unwrap());
    cpu.measured().unwrap().link_bytes.values().map(|bytes| bytes.0).sum()
}

/// Bytes of one training step over all devices, as the machine counts them. Only what reaches
/// into a segment from the step before it is sent again after a rest.
fn counted(schedule: &Checked) -> u64 {
    let facts: u64 = schedule.facts().link_bytes.values().map(|bytes| bytes.0).sum();
    assert_eq!(sent(schedule, &[9]) - sent(schedule, &[4]), 5 * facts);
    if schedule.span().1 == 0 {
        assert_eq!(sent(schedule, &[2, 3, 6]), 6 * facts, "a rest sends nothing twice");
    }
    facts
}

/// P_j: bytes of the flat parameters of each stage.
fn stages(schedule: &Checked) -> Vec<u64> {
    let size = schedule.job.dtype.size();
    schedule.job.elements.values().map(|elements| elements * size).collect()
}

/// Bytes of everything that crosses stage boundaries in one training step, both ways.
fn boundaries(schedule: &Checked) -> u64 {
    let moved = |work: &Work| match work {
        Work::Transfer { from, content, .. } => match content {
            Content::Value(..) | Content::ValueGradient(..) => {
                schedule.buffers[from.row.buffer].size.0
            }
            Content::Parameter(_)
            | Content::Gradient(..)
            | Content::Optimizer(_)
            | Content::Squares(..) => 0,
        },
        _ => 0,
    };
    schedule.actions.values().map(|action| moved(&action.work)).sum()
}

fn schedule(
    rule: Rule,
    placement: Placement,
    order: Order,
    states: States,
    n: u32,
) -> Checked {
    let program = mlp(2 * n, 2 * n);
    compiled(&program, &plan(&program, (rule, placement, order, states), n, n))
}

#[test]
fn synchronous_workers_send_what_their_collectives_must() {
    for n in 2..=5u32 {
        for (states, times) in [
            (States::Replicated, 2),
            (States::Zero1, 2),
            (States::Zero2, 2),
            (States::Zero3, 3),
        ] {
            let schedule =
                schedule(Rule::Sync, Placement::Data, Order::Parallel, states, n);
            let total: u64 = stages(&schedule).iter().sum();
            assert_eq!(counted(&schedule), times * u64::from(n - 1) * total, "{states}");
        }
    }
}

#[test]
fn cyclic_workers_send_as_much_as_an_all_reduce_but_to_neighbours() {
    for n in 2..=5u32 {
        let schedule = schedule(
            Rule::CyclicV2,
            Placement::Data,
            Order::Cyclic,
            States::Replicated,
            n,
        );
        let total: u64 = stages(&schedule).iter().sum();
        assert_eq!(counted(&schedule), 2 * u64::from(n - 1) * total, "N = {n}");
    }
}

#[test]
fn handoff_sends_as_much_as_zero3() {
    for n in 2..=5u32 {
        let schedule =
            schedule(Rule::CyclicV2, Placement::Data, Order::Cyclic, States::Handoff, n);
        let stages = stages(&schedule);
        let n = u64::from(n);
        // A stage j < N makes 2N − 2 hops and its gradient N; the last stage N − 1 and N: its
        // forward and backward follow each other on one worker. The first stage's whole sum
        // stays where it is.
        let hops: u64 = (0..n)
            .map(|j| {
                let parameters = if j == n - 1 { n - 1 } else { 2 * n - 2 };
                let sums = n - 1 + u64::from(j > 0);
                (parameters + sums) * stages[j as usize]
            })
            .sum();
        assert_eq!(counted(&schedule), hops, "N = {n}");
    }
}

#[test]
fn shared_devices_send_half_of_the_state_and_all_boundaries() {
    for n in 2..=4u32 {
        let schedule = schedule(
            Rule::CyclicV2,
            Placement::Shared,
            Order::Cyclic,
            States::Replicated,
            n,
        );
        let stages = stages(&schedule);
        let own = |j: usize| {
            let length = u64::from(n) - j as u64;
            let moves = if u64::from(n) % length == 0 { 0 } else { 2 };
            (2 * (length - 1) + moves) * stages[j]
        };
        let expected: u64 = (0..n as usize).map(own).sum();
        assert_eq!(counted(&schedule), expected + boundaries(&schedule), "N = {n}");
    }
}

#[test]
fn devices_of_pools_are_half_of_the_square() {
    for n in 2..=8u32 {
        let devices = |rule: Rule| Placement::Shared.devices(rule, n, n, n);
        assert_eq!(devices(Rule::CyclicV2), n * (n + 1) / 2);
        assert_eq!(devices(Rule::Sync), n * n);
    }
}

#[test]
fn rounds_do_not_grow_with_the_number_of_workers() {
    let rounds = |n, rule, placement, states| {
        let order = if rule == Rule::Sync { Order::Parallel } else { Order::Cyclic };
        schedule(rule, placement, order, states, n).facts().comm_rounds
    };
    for (placement, states) in [
        (Placement::Data, States::Replicated),
        (Placement::Data, States::Handoff),
        (Placement::Shared, States::Replicated),
        (Placement::Pipeline, States::Replicated),
    ] {
        let of = |n| rounds(n, Rule::CyclicV2, placement, states);
        let found: Vec<u32> = (2..=8).map(of).collect();
        assert_eq!(found, [1; 7], "{placement} {states}");
    }
}

#[test]
fn boundaries_are_counted_by_kind() {
    let schedule =
        schedule(Rule::Sync, Placement::Pipeline, Order::Gpipe, States::Replicated, 3);
    assert_eq!(counted(&schedule), boundaries(&schedule));
    let kept =
        schedule.buffers.values().filter(|b| matches!(b.subject, Subject::Value(_)));
    assert!(kept.map(|b| b.size).sum::<Bytes>() > Bytes(0));
    assert_eq!(Id::index(schedule.plan.devices[0]), 0);
}
