//! What the machine counts and uses is what the checker says: bytes per link and sender, messages,
//! arenas to the byte, and no memory beyond what is declared.

use crate::support::{
    models::mlp,
    runs::{all_plans, compile, machine, plan},
};
use roundelay_runtime::{AnyMachine, Cpu, Measured, State, Timing};
use roundelay_schedule::{
    Bytes, Checked, DeviceId, Id, Kind, Order, Placement, Rule, States, Subject,
};
use std::collections::BTreeMap;

const N: u32 = 4;

/// Every turning ring has come round after this many steps.
const ROUND: u64 = 12;

fn measured(cpu: &mut Cpu, steps: u64) -> Measured {
    cpu.load(&State::initial(&cpu.schedule().job)).expect("a new state fits");
    cpu.replay(steps, &mut |_| {}).expect("nothing fails");
    cpu.measured().expect("there are no other ranks")
}

fn compiled() -> impl Iterator<Item = Checked> {
    let program = mlp(4, 16);
    let plans = all_plans(&program, (N, N));
    plans.into_iter().map(move |plan| compile(&program, &plan))
}

#[test]
fn bytes_and_messages_of_a_training_step_are_those_of_the_facts() {
    for schedule in compiled() {
        let mut cpu = machine(&schedule, Timing::Natural);
        let (few, many) = (measured(&mut cpu, 3), measured(&mut cpu, 3 + ROUND));
        let facts = schedule.facts();
        assert_eq!(many.messages - few.messages, ROUND * facts.messages);
        for (link, bytes) in &many.link_bytes {
            let expected = facts.link_bytes.get(link).copied().unwrap_or_default();
            let found = *bytes - few.link_bytes[link];
            assert_eq!(found, expected * ROUND, "{:?}", schedule.plan);
        }
        for (device, bytes) in &facts.sent {
            let found = many.sent[device] - few.sent[device];
            let exact = found.0.div_ceil(ROUND);
            assert_eq!(Bytes(exact), *bytes, "{device} {:?}", schedule.plan);
        }
    }
}

/// Calls are timed by a clock that costs next to nothing, so no step is replayed to find out what it costs.
#[test]
fn a_pace_is_no_work_of_a_cpu() {
    let schedule = compiled().next().expect("there are plans");
    let mut machine: AnyMachine = machine(&schedule, Timing::Natural).into();
    machine.load(&State::initial(&schedule.job)).expect("a new state fits");
    assert_eq!(machine.pace(ROUND), Ok(None));
    assert_eq!(machine.step(), 0, "nothing was replayed");
}

#[test]
fn arenas_are_as_large_as_predicted_and_no_more_is_touched() {
    for schedule in compiled() {
        let mut cpu = machine(&schedule, Timing::Natural);
        let measured = measured(&mut cpu, ROUND);
        for (device, bytes) in &schedule.facts().device_arena {
            assert_eq!(measured.arenas[device], *bytes);
        }
        let touched = cpu.touched().unwrap();
        for (key, declared) in &schedule.facts().kinds {
            let found = touched.get(key).copied().unwrap_or_default();
            assert!(found.count <= found.span && found.count <= *declared, "{key:?}");
        }
    }
}

/// Sum of w(j) A_j over stages j, where A_j is what a stage keeps for one micro-batch.
fn activations(schedule: &Checked, weight: impl Fn(u64) -> u64) -> u64 {
    let stage = |subject| match subject {
        Subject::Activation(stage) => Some(stage.index() as u64),
        _ => None,
    };
    let sizes = schedule.buffers.values().filter_map(|buffer| {
        let stage = stage(buffer.subject)?;
        Some((stage, buffer.size.0))
    });
    let sizes: BTreeMap<u64, u64> = sizes.collect();
    sizes.iter().map(|(stage, size)| weight(*stage) * size).sum()
}

#[test]
fn workers_of_one_device_keep_n_minus_j_stages_under_a_cyclic_rule_and_one_when_in_turn()
{
    let program = mlp(4, 16 * N);
    let all = |_| u64::from(N);
    let fewer = |stage| u64::from(N) - stage;
    let one = |_| 1;
    let cases: [(_, &dyn Fn(u64) -> u64); 3] = [
        ((Rule::Sync, Placement::Concurrent, Order::Parallel), &all),
        ((Rule::CyclicV2, Placement::Concurrent, Order::Cyclic), &fewer),
        ((Rule::Sync, Placement::Accumulate, Order::Sequential), &one),
    ];
    for ((rule, placement, order), weight) in cases {
        let kind = (rule, placement, order, States::Replicated);
        let schedule = compile(&program, &plan(&program, kind, (N, N)));
        let mut cpu = machine(&schedule, Timing::Natural);
        measured(&mut cpu, ROUND);
        let touched = cpu.touched().unwrap()[&(DeviceId::new(0), Kind::Activation)];
        let expected = activations(&schedule, weight) as f64;
        let share = touched.span.0 as f64 / expected;
        assert!((0.98..=1.0).contains(&share), "{kind:?}: {touched:?} of {expected}");
    }
}
