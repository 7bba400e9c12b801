//! The depth of a grid: it is states in parts, said otherwise, so its schedules are theirs; and
//! grids with depth train like one device but for rounding.

use crate::{
    models::{job, program},
    support::{compiled, plan},
};
use roundelay::{
    Plan, Program, SearchOptions,
    parts::{
        runtime::{Cpu, CpuOptions, Dataset, State},
        schedule::{self, Float, Order, Placement, Rule, States, Tensor},
    },
};

/// Widths and heads that every grid of at most four devices divides, and a batch that every depth
/// up to eight divides.
pub(crate) fn divisible(batch: u32, dtype: Float) -> Program {
    let adamw = "adamw(lr = step(1e-2, 0.1, 3), weight_decay = 0.1)";
    let plain = job(batch).replace(adamw, "sgd(lr = 1e-1)");
    let mut program = program(&format!(
        "model divisible {{
            input tokens:  i32[batch, 2]
            input targets: i32[batch, 2]
            x = embedding(tokens, 24, 12)
            x = x + attention(layer_norm(x), 12, causal = true)
            x = x + gated(rms_norm(x), 24)
            loss cross_entropy(linear(layer_norm(x), 24), targets)
        }}
        {plain}"
    ));
    program.train.dtype = dtype;
    program
}

/// So many replicas of a grid, in groups of `depth` that divide their parameters.
pub(crate) fn deep(program: &Program, tensor: Tensor, replicas: u32, depth: u32) -> Plan {
    let (states, shards) = match depth {
        1 => (States::Replicated, 1),
        all if all == replicas => (States::Zero3, 1),
        some => (States::Hsdp, some),
    };
    let kind = (Rule::Sync, Placement::Accumulate, Order::Sequential, states);
    let found = plan(program, kind, 1, 1).replicated(replicas, shards);
    found.with_tensor(tensor)
}

/// The mean losses of a few steps, of which the later ones show the gradients of the earlier.
pub(crate) fn losses(program: &Program, plan: &Plan) -> [f64; 3] {
    let schedule = compiled(program, plan);
    let data = Dataset::open(&schedule.job, None).unwrap();
    let mut cpu = Cpu::new(&schedule, Box::new(data), CpuOptions::default()).unwrap();
    cpu.load(&State::initial(&schedule.job)).unwrap();
    let (mut sums, count) = ([0.0; 3], f64::from(plan.all_micro_batches()));
    cpu.replay(3, &mut |loss| sums[loss.step as usize] += loss.loss / count).unwrap();
    sums
}

#[test]
fn every_grid_with_depth_trains_like_one_device() {
    for (dtype, most) in [(Float::F64, 1e-12), (Float::F32, 1e-5)] {
        let program = divisible(840, dtype);
        let expected = losses(&program, &deep(&program, Tensor::WHOLE, 1, 1));
        assert!(expected[2] < expected[0] - 1e-3, "{expected:?}");
        let grids = (1..=4).flat_map(|rows| (1..=4).map(move |columns| (rows, columns)));
        let deeps = grids.flat_map(|grid| (2..=8).map(move |depth| (grid, depth)));
        let mut count = 0;
        for ((rows, columns), depth) in deeps {
            let tensor = Tensor::grid(rows, columns);
            if tensor.parts() * depth > 8 {
                continue;
            }
            let twice = 2 * tensor.parts() * depth <= 8;
            for replicas in [depth, 2 * depth].into_iter().take(1 + usize::from(twice)) {
                let plan = deep(&program, tensor, replicas, depth);
                assert_eq!(plan.depth(), depth);
                for (one, other) in losses(&program, &plan).iter().zip(expected) {
                    let error = (one - other).abs() / other.abs();
                    assert!(error < most, "{dtype} {tensor:?} x {depth}: {one} {other}");
                }
                count += 1;
            }
        }
        assert!(count > 20, "{count}");
    }
}

/// The schedules of all plans that a program's search has with these lines.
fn schedules(program: &Program, lines: &[&str]) -> Vec<String> {
    let mut program = program.clone();
    let pinned = [
        "minimize memory",
        "stages 1",
        "placement accumulate",
        "recompute none",
        "micro_batches 1",
    ];
    program.set_all(&[&pinned, lines].concat()).unwrap_or_else(|wrong| panic!("{wrong}"));
    let every = SearchOptions {
        top: usize::MAX,
        clocked_max: usize::MAX,
        ..SearchOptions::default()
    };
    let ranking = roundelay::plan(&program, &every).unwrap_or_else(|no| panic!("{no}"));
    let text = |found: &roundelay::parts::planner::Candidate| {
        schedule::write(&compiled(&program, &found.plan).into_inner())
    };
    let mut all: Vec<String> = ranking.plans.iter().map(text).collect();
    all.sort_unstable();
    all
}

/// ZeRO-3, HSDP and Megatron, each by its name and as a grid.
#[test]
fn special_cases_of_a_grid_with_depth_are_the_same_schedules() {
    let program = divisible(8, Float::F32);
    for (replicas, tensor, depth, states) in [
        (4, "rows 1, columns 1", "depth 4", &["states zero3"][..]),
        (4, "rows 1, columns 1", "depth 2", &["states hsdp", "shards 2"]),
        (1, "rows 2 | 4, columns 1", "depth 1", &["states replicated"]),
        (2, "rows 2, columns 2", "depth 2", &["states zero3"]),
        (4, "rows 2, columns 2", "depth 2", &["states hsdp", "shards 2"]),
    ] {
        let replicas = format!("replicas {replicas}");
        let plain = format!("tensor {{ {tensor} }}");
        let grid = format!("tensor {{ {tensor}, {depth} }}");
        let said = [&[replicas.as_str(), plain.as_str()], states].concat();
        let found = schedules(&program, &[&replicas, &grid]);
        assert!(!found.is_empty(), "{grid}");
        assert!(found == schedules(&program, &said), "{grid} is {states:?}");
    }
}
