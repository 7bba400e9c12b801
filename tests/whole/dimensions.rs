//! Products of matrices in one, two, two and a half and three dimensions: what a map moves on each
//! sub-mesh, counted by the machine, equals the table of arXiv 2110.14883 with exact volumes.

use crate::{
    models::{job, program},
    support::{compiled, plan},
};
use roundelay::{
    Checked, Plan, Program,
    parts::{
        runtime::{Cpu, CpuOptions, Dataset, State},
        schedule::{
            Contraction, Float, Order, Placement, Rule, Sequence, States, Tensor,
        },
    },
};

const EXAMPLES: u64 = 16;
const TOKENS: u64 = 4;
/// Enough for 64 parts: the weights of a layer then fill equal shards without padding.
const WIDTH: u64 = 32;

/// Elements of an operand or a result over all examples, and of a weight.
const X: u64 = EXAMPLES * TOKENS * WIDTH;
const W: u64 = WIDTH * WIDTH;

/// Maps one behind the other, and nothing else between an input and a loss.
fn maps(number: u32) -> Program {
    let mut program = program(&format!(
        "model maps {{
            input x: real[batch, {TOKENS}, {WIDTH}]
            input y: real[batch, {TOKENS}, {WIDTH}]
            h = x
            repeat {number} as layer {{
                h = linear(h, {WIDTH}, bias = false)
            }}
            loss mse(h, y)
        }}
        {}",
        job(EXAMPLES as u32)
    ));
    program.train.dtype = Float::F64;
    program
}

/// A sub-mesh, `replicas` times, whose states are in parts among `depth` of these.
fn mesh(program: &Program, tensor: Tensor, replicas: u32, states: (States, u32)) -> Plan {
    let (states, shards) = states;
    let kind = (Rule::Sync, Placement::Accumulate, Order::Sequential, states);
    let plan = plan(program, kind, 1, 2).replicated(replicas, shards);
    plan.with_tensor(tensor)
}

/// Elements that all devices together receive in this many steps, as the machine counts them.
fn received(schedule: &Checked, steps: u64) -> u64 {
    let data = Dataset::open(&schedule.job, None).unwrap();
    let mut cpu = Cpu::new(schedule, Box::new(data), CpuOptions::default()).unwrap();
    cpu.load(&State::initial(&schedule.job)).unwrap();
    cpu.replay(steps, &mut |_| {}).unwrap();
    let bytes: u64 = cpu.measured().unwrap().link_bytes.values().map(|own| own.0).sum();
    bytes / Float::F64.size()
}

/// What one map adds to that in a step.
fn moved(tensor: Tensor, replicas: u32, states: (States, u32)) -> u64 {
    let of = |number| {
        let program = maps(number);
        let schedule = compiled(&program, &mesh(&program, tensor, replicas, states));
        received(&schedule, 3) - received(&schedule, 2)
    };
    let two = of(6) - of(4);
    assert!(two.is_multiple_of(2));
    two / 2
}

const REPLICATED: (States, u32) = (States::Replicated, 1);

/// 2 (P − 1) / P · Y for each of P devices.
#[test]
fn one_dimension() {
    for p in [2, 4, 8, 16] {
        let found = moved(Tensor::grid(p, 1), 1, REPLICATED);
        assert_eq!(found, 2 * u64::from(p - 1) * X, "{p}");
    }
}

fn gather(columns: u32) -> Tensor {
    Tensor { contraction: Contraction::Gather, ..Tensor::grid(1, columns) }
}

/// 3 (q − 1) / q² · (X + W) for each of q² devices: operands are gathered over the columns, weights
/// over the depth.
#[test]
fn two_dimensions() {
    for q in [2, 4] {
        let found = moved(gather(q), q, (States::Zero3, 1));
        assert_eq!(found, 3 * u64::from(q - 1) * (X + W), "{q}");
    }
}

/// 3 (q − 1) / q² · (X / d + W) + 2 (d − 1) / d · W / q² for each of q² d devices.
#[test]
fn two_dimensions_and_a_half() {
    for (q, d) in [(2, 2), (2, 4), (4, 2), (4, 4)] {
        let found = moved(gather(q), q * d, (States::Hsdp, q));
        let [q, d] = [q, d].map(u64::from);
        let expected = 3 * (q - 1) * (X + d * W) + 2 * (d - 1) * W;
        assert_eq!(found, expected, "{q} {d}");
    }
}

/// 2 (q − 1) / q³ · (X + W + Y) for each of q³ devices, where forward leaves gathered what the next map
/// and backward read; where each device keeps its share of the tokens, backward gathers X once more.
/// With parameters in parts they are gathered once more as well.
#[test]
fn three_dimensions() {
    for q in [2, 4] {
        for (sequence, operands) in [(Sequence::Whole, 2), (Sequence::Split, 3)] {
            let tensor = Tensor { sequence, ..Tensor::grid(q, q) };
            for (states, weights) in
                [(States::Zero1, 2), (States::Zero2, 2), (States::Zero3, 3)]
            {
                let found = moved(tensor, q, (states, 1));
                let expected = u64::from(q - 1) * (operands * X + weights * W + 2 * X);
                assert_eq!(found, expected, "{q} {states} {sequence:?}");
            }
        }
    }
}
