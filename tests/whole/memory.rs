//! Memory as the machine uses it: arenas are poisoned, and what was written is looked for.

use crate::{
    models::{mlp, program},
    plans::kinds,
    support::{compiled, plan},
};
use roundelay::{
    Checked,
    parts::{
        runtime::{Cpu, CpuOptions, Dataset, Fill, State, Touched},
        schedule::{Bytes, DeviceId, Id, Kind, Order, Placement, Rule, States},
    },
};
use std::collections::BTreeMap;

fn touched(schedule: &Checked) -> BTreeMap<(DeviceId, Kind), Touched> {
    let data = Dataset::open(&schedule.job, None).unwrap();
    let options = CpuOptions { fill: Fill::Poison, ..CpuOptions::default() };
    let mut cpu = Cpu::new(schedule, Box::new(data), options).unwrap();
    cpu.load(&State::initial(&schedule.job)).unwrap();
    cpu.replay(4, &mut |_| {}).unwrap();
    let arenas = cpu.measured().unwrap().arenas;
    for (device, arena) in &schedule.facts().device_arena {
        assert_eq!(arenas[device], *arena, "the arena is as large as predicted");
    }
    cpu.touched().unwrap()
}

/// Equal stages: each keeps its gelu's result, for the linear layer or for the loss.
fn equal_stages(n: u32) -> roundelay::Program {
    let body = vec!["x = linear(gelu(x), 32)"; n as usize - 1].join("\n");
    program(&format!(
        "model layers {{
            input features: real[batch, 32]
            input wanted: real[batch, 32]
            x = features
            {body}
            loss mse(gelu(x), wanted)
        }}
        device core {{ memory 1 GB, compute 1 GFLOP/s, bandwidth 1 GB/s }}
        cluster one {{ 1 x core }}
        train {{ data synthetic, batch {}, optimizer sgd(lr = 0.1), steps 4 }}",
        4 * n
    ))
}

/// Activation bytes of one device: laid out, and from the first to the last byte written.
fn activations(rule: Rule, placement: Placement, order: Order, n: u32) -> [u64; 2] {
    let program = equal_stages(n);
    let mut plan = plan(&program, (rule, placement, order, States::Replicated), n, n);
    plan.cuts = (1..n).map(|stage| 2 * stage).collect();
    let schedule = compiled(&program, &plan);
    let key = (DeviceId::new(0), Kind::Activation);
    let written = touched(&schedule)[&key];
    [schedule.facts().kinds[&key].0, written.span.0]
}

/// With N lanes at work all N(N + 1)/2 rows hold something at every time step, so the arena is as
/// large as the live peak.
#[test]
fn cyclic_lanes_keep_half_of_the_activations() {
    for n in [2, 3, 4, 5, 8] {
        let size = u64::from(n);
        let sync = activations(Rule::Sync, Placement::Concurrent, Order::Parallel, n);
        let cyclic = activations(Rule::CyclicV2, Placement::Concurrent, Order::Cyclic, n);
        let one = activations(Rule::Sync, Placement::Accumulate, Order::Sequential, n);
        let row = sync[0] / size / size;
        assert_eq!(sync, [row * size * size; 2], "N = {n}");
        assert_eq!(cyclic, [row * size * (size + 1) / 2; 2], "N = {n}");
        assert_eq!(one, [row * size; 2], "one after another needs 1/N, N = {n}");
    }
}

#[test]
fn nothing_is_written_outside_of_what_was_predicted() {
    let (n, s) = (3, 3);
    let program = mlp(6, 6);
    for kind in kinds(n, s) {
        let schedule = compiled(&program, &plan(&program, kind, n, s));
        for ((device, kind_of_memory), written) in touched(&schedule) {
            let cell = schedule.plan.devices.iter().position(|d| *d == device).unwrap();
            let twin = schedule.facts().device_arena.contains_key(&device);
            let key = if twin { device } else { twin_of(&schedule, cell) };
            let predicted = schedule.facts().kinds.get(&(key, kind_of_memory));
            let predicted = predicted.copied().unwrap_or(Bytes(0));
            assert!(written.count <= predicted, "{kind:?}: {kind_of_memory} on {device}");
        }
    }
}

/// The device of the cell that stands for one further along an axis.
fn twin_of(schedule: &Checked, position: usize) -> DeviceId {
    let cell = schedule.facts().device_arena.len();
    schedule.plan.devices[position % cell]
}
