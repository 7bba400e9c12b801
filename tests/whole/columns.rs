//! Grids of tensor rows and columns: their replays equal the recursion bit for bit and the run of
//! one device but for rounding, move what the facts and the formulas say, and go on elsewhere.

use crate::{
    models::{gpt, job, program},
    oracle::{RESTS, STEPS, compare_one, recursion, replay},
    plans::{kinds, pipelines},
    rows::{ROWS, moves_what_facts_say, sequential},
    support::{compiled, plan, saved},
};
use roundelay::{
    Checked, Program,
    parts::{
        runtime::{Cpu, CpuOptions, Dataset, State, Timing},
        schedule::{self, Bytes, Contraction, Float, LinkId, Sequence, Tensor},
    },
};
use roundelay_schedule::Id;
use std::collections::BTreeMap;

/// Every grid of at most eight devices.
pub(crate) fn grids() -> impl Iterator<Item = Tensor> + Clone {
    let sides = [1, 2, 3, 4, 5, 6, 7, 8];
    let all = sides
        .into_iter()
        .flat_map(move |rows| sides.map(|columns| Tensor::grid(rows, columns)));
    all.filter(|tensor| tensor.parts() <= 8)
}

#[test]
fn language_models_on_grids_replay_like_the_recursion() {
    for (n, tensor) in [(1, Tensor::grid(2, 2)), (3, Tensor::grid(1, 2))] {
        let program = gpt(2, n);
        for kind in kinds(n, n) {
            let plan = plan(&program, kind, n, n).with_tensor(tensor);
            compare_one(&program, &plan, &RESTS[2..]);
        }
    }
}

#[test]
fn pipelines_of_grids_replay_like_the_recursion() {
    let program = gpt(2, 4);
    for plan in pipelines(4, &plan(&program, kinds(4, 2)[0], 4, 2).cuts) {
        compare_one(&program, &plan.with_tensor(Tensor::grid(2, 2)), &RESTS[2..]);
    }
}

/// A model of so many features and heads: a tied table whose classes most grids do not divide,
/// positions that are trained, biases, dropout and gates.
pub(crate) fn divisible(width: u32) -> String {
    let classes = width + 2;
    format!(
        "model divisible {{
            input tokens:  i32[batch, 4]
            input targets: i32[batch, 4]
            param table: [{classes}, {width}] = normal(0.02)
            x = embedding(tokens, table) + positions(4, {width})
            x = x + dropout(attention(layer_norm(x), {width}, causal = true), 0.2)
            x = x + gated(rms_norm(x), {width})
            loss cross_entropy(linear(layer_norm(x), weight = table, bias = false), targets)
        }}"
    )
}

/// Of these each grid of at most eight devices divides one. The least that all divide is 840, whose
/// products are hundreds of times as large.
const WIDTHS: [u32; 2] = [24, 35];

/// The one that all parts of a grid divide.
fn width_of(tensor: Tensor) -> u32 {
    let is_divided = |width: &u32| width.is_multiple_of(tensor.parts());
    WIDTHS.into_iter().find(is_divided).expect("there is one for at most eight devices")
}

/// A model that is trained by plain descent, so that rounding stays rounding.
pub(crate) fn descending(text: &str, batch: u32, rate: &str, dtype: Float) -> Program {
    let adamw = "adamw(lr = step(1e-2, 0.1, 3), weight_decay = 0.1)";
    let plain = job(batch).replace(adamw, &format!("sgd(lr = {rate})"));
    let mut program = program(&format!("{text}\n{plain}"));
    program.train.dtype = dtype;
    program
}

/// Models by what attention and losses have besides, of which four rows or columns divide all.
const UNUSUAL: &str = "model unusual {
    input images:  real[batch, 8, 8, 3]
    input targets: i32[batch, 4]
    x = patches(images, 4, 24) + positions(4, 24)
    x = x + attention(rms_norm(x), 8, causal = true, head_width = 6, window = 3, scale = 0.3,
                      cap = 2.0)
    x = x + attention(layer_norm(x), 8, key_heads = 4, packed = true, window = 3,
                      head_width = 6, rotary = 20, turned = 4)
    x = x + linear(gelu_tanh(linear(layer_norm(x), 48)), 24)
    loss cross_entropy(soft_cap(linear(layer_norm(x), 40), 30), targets, masked = true)
}";

/// The losses of a few steps, of which the later ones show the gradients of the earlier.
pub(crate) fn losses(program: &Program, tensor: Tensor, timing: Timing) -> Vec<f64> {
    let schedule = sequential(program, tensor);
    trained(&schedule, &State::initial(&schedule.job), timing).0
}

/// The losses of a few steps from a state, and what the machine has then.
fn trained(schedule: &Checked, start: &State, timing: Timing) -> (Vec<f64>, State) {
    const STEPS: u64 = 3;
    let data = Dataset::open(&schedule.job, None).unwrap();
    let options = CpuOptions { timing, ..CpuOptions::default() };
    let mut cpu = Cpu::new(schedule, Box::new(data), options).unwrap();
    cpu.load(start).unwrap();
    let mut losses = Vec::new();
    cpu.replay(STEPS, &mut |loss| losses.push(loss.loss)).unwrap();
    (losses, saved(&mut cpu))
}

/// The newest numbers of every parameter, by name.
pub(crate) fn parameters(state: &State) -> BTreeMap<&str, Vec<f64>> {
    let numbers = |bytes: &[u8]| -> Vec<f64> {
        match state.dtype {
            Float::F64 => {
                bytes.as_chunks().0.iter().map(|word| f64::from_ne_bytes(*word)).collect()
            }
            Float::F32 => bytes
                .as_chunks()
                .0
                .iter()
                .map(|word| f64::from(f32::from_ne_bytes(*word)))
                .collect(),
            other => panic!("no test trains {other:?}"),
        }
    };
    let tensors = state.tensors.iter();
    tensors.map(|(name, own)| (name.as_str(), numbers(&own.versions[0]))).collect()
}

/// Losses are those of one device, but for so much of them, and so are the parameters after them,
/// but for ten times as much, since norms of few numbers enlarge rounding; of parameters that are
/// small, of a hundredth.
pub(crate) fn trains_like_one_device(
    program: &Program,
    tensors: impl IntoIterator<Item = Tensor>,
    most: f64,
) {
    let whole = sequential(program, Tensor::WHOLE);
    let start = State::initial(&whole.job);
    let (expected, last) = trained(&whole, &start, Timing::Natural);
    let last = parameters(&last);
    let size =
        |last: &[f64]| last.iter().fold(0.01, |most: f64, one| most.max(one.abs()));
    let sizes: Vec<f64> = last.values().map(|last| size(last)).collect();
    for tensor in tensors {
        let schedule = sequential(program, tensor);
        assert!(State::initial(&schedule.job) == start, "{tensor:?} starts elsewhere");
        let (found, own) = trained(&schedule, &start, Timing::Natural);
        assert_eq!(found.len(), expected.len(), "{tensor:?}");
        for (one, other) in found.iter().zip(&expected) {
            let error = (one - other).abs() / other.abs();
            assert!(error < most, "{tensor:?}: {one} for {other}");
        }
        let own = parameters(&own);
        assert!(own.keys().eq(last.keys()), "{tensor:?}");
        for (((name, own), last), size) in own.iter().zip(last.values()).zip(&sizes) {
            assert_eq!(own.len(), last.len(), "{tensor:?}: {name}");
            for (one, other) in own.iter().zip(last) {
                let error = (one - other).abs() / size;
                assert!(error < 10.0 * most, "{tensor:?}: {one} for {other} in {name}");
            }
        }
    }
}

/// The same of a model of any width, which is for each grid one that its parts divide.
pub(crate) fn each_trains_like_one_device(
    (model, batch): (fn(u32) -> String, u32),
    tensors: impl Iterator<Item = Tensor> + Clone,
    (dtype, most): (Float, f64),
) {
    for width in WIDTHS {
        let program = descending(&model(width), batch, "1e-2", dtype);
        let own = tensors.clone().filter(|tensor| width_of(*tensor) == width);
        trains_like_one_device(&program, own, most);
    }
}

#[test]
fn every_grid_trains_like_one_device() {
    let gathered = Tensor { contraction: Contraction::Gather, ..Tensor::grid(1, 4) };
    let chosen = Tensor {
        contraction: Contraction::Each,
        sequence: Sequence::Split,
        ..Tensor::grid(4, 2)
    };
    let others = [gathered, chosen].into_iter().filter(Tensor::can_contract);
    let model: (fn(u32) -> String, u32) = (divisible, 2);
    each_trains_like_one_device(model, grids().chain(others), (Float::F32, 1e-5));
    let split = |tensor| Tensor { sequence: Sequence::Split, ..tensor };
    let shared = grids().filter(|tensor| tensor.parts() > 1).map(split);
    let gather = |tensor| Tensor { contraction: Contraction::Gather, ..tensor };
    let gathered = grids().map(gather).filter(Tensor::can_contract);
    let each = |tensor| Tensor { contraction: Contraction::Each, ..tensor };
    let chosen = grids().chain(grids().filter(|own| own.parts() > 1).map(split));
    let chosen = chosen.map(each).filter(Tensor::can_contract);
    let all = grids().chain(shared).chain(gathered).chain(chosen);
    each_trains_like_one_device(model, all, (Float::F64, 1e-12));
}

/// Maps of so few features that no columns divide them, alone, in a residual, and between channels.
const NARROW: &str = "model narrow {
    input images: real[batch, 4, 4, 3]
    input wanted: real[batch, 2, 2, 12]
    x = linear(images, 3)
    x = x + linear(tanh(linear(x, 5)), 3)
    x = max_pool(conv2d(x, 12), 2)
    loss mse(linear(relu(linear(x, 24)), 12), wanted)
}";

#[test]
fn every_part_does_all_of_what_nothing_divides_where_each_map_goes_its_own_way() {
    for (dtype, most) in [(Float::F64, 1e-12), (Float::F32, 1e-5)] {
        let program = descending(NARROW, 4, "1e-1", dtype);
        let grids = [(1, 2), (1, 4), (2, 2), (4, 2)];
        let grids = grids.map(|(rows, columns)| Tensor::grid(rows, columns));
        let each = grids.map(|own| Tensor { contraction: Contraction::Each, ..own });
        trains_like_one_device(&program, each, most);
    }
}

#[test]
fn what_attention_and_losses_have_besides_trains_like_on_one_device() {
    for (dtype, most) in [(Float::F64, 1e-12), (Float::F32, 1e-5)] {
        let program = descending(UNUSUAL, 4, "1e-1", dtype);
        let grids = [(2, 1), (4, 1), (1, 2), (1, 4), (2, 2), (4, 2), (2, 4)];
        let grids = grids.map(|(rows, columns)| Tensor::grid(rows, columns));
        let split = grids.map(|own| Tensor { sequence: Sequence::Split, ..own });
        trains_like_one_device(&program, grids.into_iter().chain(split), most);
    }
}

#[test]
fn what_grids_move_is_what_the_facts_say() {
    let program = gpt(2, 4);
    for kind in kinds(2, 2) {
        let plan = plan(&program, kind, 2, 2).with_tensor(Tensor::grid(2, 2));
        moves_what_facts_say(&compiled(&program, &plan), &plan);
    }
}

/// Bytes that the machine counts on the link in one training step.
pub(crate) fn counted(program: &Program, tensor: Tensor) -> u64 {
    counted_of(&sequential(program, tensor))
}

/// The same of a schedule.
pub(crate) fn counted_of(schedule: &Checked) -> u64 {
    let data = Dataset::open(&schedule.job, None).unwrap();
    let mut cpu = Cpu::new(schedule, Box::new(data), CpuOptions::default()).unwrap();
    cpu.load(&State::initial(&schedule.job)).unwrap();
    cpu.replay(1, &mut |_| {}).unwrap();
    let Bytes(bytes) = cpu.measured().unwrap().link_bytes[&LinkId::new(0)];
    bytes
}

/// Each layer of these models: A and B of its features, and how many numbers its two norms sum for
/// a token in both passes together.
#[test]
fn what_layers_move_is_what_the_formulas_say_to_the_byte() {
    let gpt = "x = x + attention(layer_norm(x), 8, causal = true)
               x = x + linear(gelu(linear(layer_norm(x), 4 * 48)), 48)";
    let llama = "x = x + attention(rms_norm(x), 8, key_heads = 2, rotary = 100.0,
                                   bias = false, causal = true)
                 x = x + gated(rms_norm(x), 168)";
    let tokens = 2 * 6;
    for (layer, [a, b], sums, most) in
        [(gpt, [12 * 48, 4 * 48], 8, 8), (llama, [13 * 48, 4 * 48], 4, 2)]
    {
        let of = |layers: u32, tensor| {
            let mut program = program(&format!(
                "model layers {{
                    input tokens:  i32[batch, 6]
                    input targets: i32[batch, 6]
                    x = embedding(tokens, 64, 48)
                    repeat {layers} as layer {{
                        {layer}
                    }}
                    loss cross_entropy(linear(layer_norm(x), 64), targets)
                }}
                {}",
                job(2)
            ));
            program.train.dtype = Float::F64;
            counted(&program, tensor)
        };
        let powers = |tensor: &Tensor| {
            let [rows, columns] = [tensor.rows, tensor.columns];
            let powers = rows.is_power_of_two() && columns.is_power_of_two();
            powers && rows <= most && tensor.parts() > 1
        };
        for tensor in grids().filter(powers) {
            let found = of(3, tensor) - of(2, tensor);
            let [rows, columns] = [tensor.rows, tensor.columns].map(u64::from);
            // All devices together send 2 m [A (columns − 1) + B (rows − 1)].
            let features = 2 * tokens * (a * (columns - 1) + b * (rows - 1));
            let norms = 2 * tokens * sums * (columns - 1) * rows;
            assert_eq!(found, 8 * (features + norms), "{tensor:?}");
        }
    }
}

/// What a grid left, one device goes on with; only rounding differs.
#[test]
fn a_state_comes_back_from_a_grid_as_it_went_there_and_goes_on_elsewhere() {
    let program = gpt(2, 4);
    let whole = sequential(&program, Tensor::WHOLE);
    let data = Dataset::open(&whole.job, None).unwrap();
    let start = State::initial(&whole.job);
    let expected = recursion(&whole, &data, &start);
    let grids =
        [(2, 2), (1, 4), (2, 4)].map(|(rows, columns)| Tensor::grid(rows, columns));
    for tensor in ROWS.into_iter().chain(grids) {
        let grid = sequential(&program, tensor);
        assert!(State::initial(&grid.job) == start, "{tensor:?}");
        let mut cpu =
            Cpu::new(&grid, Box::new(data.clone()), CpuOptions::default()).unwrap();
        let mut trained = expected.state.clone();
        trained.restart();
        cpu.load(&trained).unwrap();
        assert!(saved(&mut cpu) == trained, "{tensor:?}");
        let found = replay(&grid, &data, &start, RESTS[0]);
        for (one, other) in found.losses.iter().zip(&expected.losses) {
            for (one, other) in one.iter().zip(other) {
                assert!((one - other).abs() < 1e-3, "{one} {other}");
            }
        }
        let mut cpu =
            Cpu::new(&whole, Box::new(data.clone()), CpuOptions::default()).unwrap();
        cpu.load(&found.state).unwrap();
        assert!(saved(&mut cpu) == found.state, "{tensor:?}");
        cpu.replay(STEPS + 2, &mut |loss| assert!(loss.loss.is_finite())).unwrap();
    }
}

#[test]
fn a_schedule_of_a_grid_is_read_as_it_was_written() {
    let program = gpt(2, 4);
    for tensor in [Tensor::grid(2, 2), Tensor::grid(1, 4)] {
        let schedule = sequential(&program, tensor);
        let own = schedule.into_inner();
        let text = schedule::write(&own);
        assert!(text.contains("columns: "), "{text}");
        assert!(schedule::read(&text).unwrap() == own, "{tensor:?}");
    }
}

/// A job and a search in which only what is sent takes time, over every grid in powers of two.
pub(crate) fn volume_alone(devices: u32) -> String {
    let powers = (0..).map(|power| 1 << power).take_while(|parts| *parts <= devices);
    let powers: Vec<String> = powers.map(|parts: u32| parts.to_string()).collect();
    let powers = powers.join(" | ");
    format!(
        "device core {{ memory 1000 GB, compute 1000000 TFLOP/s, bandwidth 1000000 GB/s }}
        link bus {{ bandwidth 1 GB/s, latency 0 us }}
        cluster many {{ {devices} x core joined by bus }}
        train {{ data synthetic, batch 2, optimizer sgd(lr = 1e-2), steps 1, seed 1 }}
        plan {{
            minimize step_time
            placement accumulate, states replicated, recompute none, sequence whole
            devices {devices}, replicas 1, micro_batches 1, stages 1
            tensor {{ rows {powers}, columns {powers} }}
        }}"
    )
}

/// The grid of the best plan.
pub(crate) fn best_grid(program: &Program) -> Tensor {
    let search = roundelay::SearchOptions::default();
    let ranking = roundelay::plan(program, &search).expect("there is a grid");
    let Tensor { rows, columns, .. } = ranking.best().tensor;
    Tensor::grid(rows, columns)
}

/// For a GPT it has three times as many rows as columns, in powers of two.
#[test]
fn the_planner_takes_the_grid_that_sends_least() {
    for (devices, rows, columns) in
        [(4, 4, 1), (8, 4, 2), (16, 8, 2), (32, 8, 4), (64, 16, 4)]
    {
        let program = program(&format!(
            "model gpt {{
                input x: real[batch, 2, 256]
                input y: real[batch, 2, 256]
                h = x
                repeat 12 as layer {{
                    h = h + attention(layer_norm(h), 64, causal = true)
                    h = h + linear(gelu(linear(layer_norm(h), 4 * 256)), 256)
                }}
                loss mse(h, y)
            }}
            {}",
            volume_alone(devices)
        ));
        assert_eq!(best_grid(&program), Tensor::grid(rows, columns), "{devices}");
    }
}
