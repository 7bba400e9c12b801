//! Running statistics under every rule and placement: they follow a recursion that can be written
//! by hand, nothing else of an update sees them, and only evaluation reads them.

use crate::{
    models::program,
    plans::kinds,
    support::{compiled, plan, saved},
};
use roundelay::{
    Checked, Program,
    parts::{
        kernels::Kernels,
        runtime::{
            Checkpoints, Cpu, CpuOptions, Dataset, Evaluator, Feed, Fill, Oracle,
            Provenance, Resumption, State,
        },
        schedule::{Attribute, Id, InputId, Job, Treatment, check, read, write},
    },
};
use std::{env, fs, process};

const STEPS: u64 = 5;
const WIDTH: usize = 6;
const ROWS: usize = 3;
const MOMENTUM: f64 = 0.3;

/// The first norm stands before every weight, so its statistics follow from the data alone.
fn normalised(batch: u32, optimizer: &str) -> Program {
    program(&format!(
        "model normalised {{
            input features: real[batch, {ROWS}, {WIDTH}]
            input wanted: real[batch, {ROWS}, {WIDTH}]
            x = batch_norm(features, momentum = {MOMENTUM})
            x = linear(x, {WIDTH})
            skip = x
            x = relu(batch_norm(linear(x, {WIDTH}, bias = false), momentum = {MOMENTUM}))
            x = relu(batch_norm(linear(x, {WIDTH}), momentum = {MOMENTUM}) + skip)
            x = rms_norm(group_norm(linear(x, {WIDTH}), 2))
            loss mse(linear(x, {WIDTH}), wanted)
        }}
        device core {{ memory 1 GB, compute 1 GFLOP/s, bandwidth 1 GB/s }}
        link bus {{ bandwidth 1 GB/s, latency 1 us }}
        cluster many {{ 64 x core joined by bus }}
        train {{ data synthetic, batch {batch}, optimizer {optimizer}, steps 5, seed 11 }}"
    ))
}

fn adamw(batch: u32) -> Program {
    normalised(batch, "adamw(lr = 1e-2, weight_decay = 0.1)")
}

fn replayed(schedule: &Checked, rests: &[u64]) -> State {
    let data = Dataset::open(&schedule.job, None).unwrap();
    let options = CpuOptions { fill: Fill::Poison, ..CpuOptions::default() };
    let mut cpu = Cpu::new(schedule, Box::new(data), options).unwrap();
    cpu.load(&State::initial(&schedule.job)).unwrap();
    for rest in rests {
        cpu.replay(*rest, &mut |_| {}).unwrap();
    }
    saved(&mut cpu)
}

fn numbers(bytes: &[u8]) -> Vec<f64> {
    let (words, _) = bytes.as_chunks::<4>();
    words.iter().map(|word| f64::from(f32::from_ne_bytes(*word))).collect()
}

/// The newest version of a parameter.
fn values(state: &State, name: &str) -> Vec<f64> {
    numbers(&state.tensors[name].versions[0])
}

/// Mean and unbiased variance of every channel of one micro-batch of features.
fn statistics(
    job: &Job,
    data: &mut Dataset,
    step: u64,
    micro_batch: u64,
) -> [Vec<f64>; 2] {
    let elements: u64 = job.inputs[InputId::new(0)].shape.iter().product();
    let mut bytes = vec![0; 4 * elements as usize];
    data.fill(InputId::new(0), step, micro_batch, &mut bytes);
    let x = numbers(&bytes);
    let channel = |j: usize| x.iter().skip(j).step_by(WIDTH);
    let count = (x.len() / WIDTH) as f64;
    let mean: Vec<f64> = (0..WIDTH).map(|j| channel(j).sum::<f64>() / count).collect();
    let spread = |j: usize| channel(j).map(|x| (x - mean[j]).powi(2)).sum::<f64>();
    let variance = (0..WIDTH).map(|j| spread(j) / (count - 1.0)).collect();
    [mean, variance]
}

/// next = (1 − momentum) · r + momentum · mean over micro-batches, once per step.
fn by_hand(schedule: &Checked) -> [Vec<f64>; 2] {
    let mut data = Dataset::open(&schedule.job, None).unwrap();
    let n = u64::from(schedule.plan.micro_batches);
    let mut running = [vec![0.0; WIDTH], vec![1.0; WIDTH]];
    for step in 0..STEPS {
        let all: Vec<_> =
            (0..n).map(|i| statistics(&schedule.job, &mut data, step, i)).collect();
        for (kind, running) in running.iter_mut().enumerate() {
            for (j, running) in running.iter_mut().enumerate() {
                let sum: f64 = all.iter().map(|own| own[kind][j]).sum();
                *running = (1.0 - MOMENTUM) * *running + MOMENTUM * sum / n as f64;
            }
        }
    }
    running
}

fn assert_by_hand(schedule: &Checked, state: &State, name: &str) {
    let roles = ["running_mean", "running_variance"];
    for (role, expected) in roles.into_iter().zip(by_hand(schedule)) {
        let found = values(state, &format!("batch_norm.{role}"));
        for (found, expected) in found.iter().zip(&expected) {
            let error = (found - expected).abs();
            assert!(error < 1e-5, "{name}, {role}: {found} for {expected}");
        }
    }
}

#[test]
fn every_rule_and_placement_follows_the_recursion_and_the_oracle() {
    for (n, s) in [(2, 2), (3, 3), (4, 2)] {
        let program = adamw(2 * n);
        for kind in kinds(n, s) {
            let schedule = compiled(&program, &plan(&program, kind, n, s));
            let name = format!("{kind:?}, N = {n}, S = {s}");
            let found = replayed(&schedule, &[2, STEPS]);
            assert_by_hand(&schedule, &found, &name);
            let mut data = Dataset::open(&schedule.job, None).unwrap();
            let start = State::initial(&schedule.job);
            let mut oracle = Oracle::new(&schedule, &start).unwrap();
            (0..STEPS).for_each(|_| drop(oracle.advance(&mut data)));
            assert!(found == oracle.state(), "state of {name}");
        }
    }
}

fn simple(program: &Program) -> Checked {
    compiled(program, &plan(program, kinds(2, 2)[0], 2, 2))
}

#[test]
fn optimizers_and_clipping_ignore_averages() {
    for optimizer in [
        "sgd(0.1, momentum = 0.9, weight_decay = 0.1, clip = 1e-3)",
        "adamw(lr = 0.1, weight_decay = 0.1, clip = 1e-3)",
    ] {
        let schedule = simple(&normalised(4, optimizer));
        let state = replayed(&schedule, &[STEPS]);
        assert_by_hand(&schedule, &state, optimizer);
        for parameter in &schedule.job.parameters {
            let moved = state.tensors[&parameter.name]
                .optimizer
                .iter()
                .any(|array| array.iter().any(|byte| *byte != 0));
            let average = parameter.treatment.momentum().is_some();
            assert_eq!(moved, !average, "{optimizer}: states of {}", parameter.name);
        }
    }
}

/// Gradients of the weights do not change when the statistics grow a thousandfold, so if
/// clipping saw these, the weights would move less.
#[test]
fn clipping_does_not_see_the_size_of_averages() {
    let weights = |offset: f64| {
        let program = program(&format!(
            "model m {{
                input features: real[batch, {ROWS}, {WIDTH}]
                input wanted: real[batch, {ROWS}, {WIDTH}]
                param far: [{WIDTH}] = constant({offset})
                x = batch_norm(features + far)
                loss mse(linear(x, {WIDTH}), wanted)
            }}
            train {{ data synthetic, batch 4, optimizer sgd(0.1, clip = 0.01), steps 5 }}"
        ));
        let state =
            replayed(&compiled(&program, &plan(&program, kinds(2, 1)[0], 2, 1)), &[1]);
        values(&state, "linear.weight")
    };
    let pairs = weights(0.0).into_iter().zip(weights(1000.0)).collect::<Vec<_>>();
    assert!(pairs.iter().all(|(near, far)| (near - far).abs() < 1e-5), "{pairs:?}");
}

#[test]
fn evaluation_normalises_with_the_running_statistics() {
    let schedule = simple(&adamw(4));
    let mut held_out = Dataset::open(&schedule.job, None).unwrap().held_out(8).unwrap();
    let mut evaluator = Evaluator::new(&schedule).unwrap();
    let count = held_out.micro_batches();
    let mut loss =
        |state: &State| evaluator.measure(state, &mut held_out, count).unwrap().loss;
    let mut state = State::initial(&schedule.job);
    let before = loss(&state);
    let variance = state.tensors.get_mut("batch_norm.running_variance").unwrap();
    let wide: Vec<u8> = [9.0f32; WIDTH].into_iter().flat_map(f32::to_ne_bytes).collect();
    variance.versions[0].clone_from(&wide);
    assert_ne!(before, loss(&state), "evaluation must read the running variance");
    let mut data = Dataset::open(&schedule.job, None).unwrap();
    let mut first =
        |state: &State| Oracle::new(&schedule, state).unwrap().advance(&mut data);
    let trained = first(&State::initial(&schedule.job));
    assert_eq!(trained, first(&state), "training must not read it");
}

#[test]
fn checkpoints_keep_them() {
    let schedule = simple(&adamw(4));
    let data = Dataset::open(&schedule.job, None).unwrap();
    let folder = env::temp_dir().join(format!("roundelay-averages-{}", process::id()));
    let run = Provenance::new(&schedule, &data);
    let state = replayed(&schedule, &[3]);
    Checkpoints::start(&folder, run.clone()).unwrap().save(&state).unwrap();
    let resumed = Resumption::of(&folder, &schedule, &run).unwrap().state.held().unwrap();
    fs::remove_dir_all(&folder).unwrap();
    assert!(resumed == state);
    let mut oracle = Oracle::new(&schedule, &resumed).unwrap();
    (3..STEPS).for_each(|_| drop(oracle.advance(&mut data.clone())));
    assert!(oracle.state() == replayed(&schedule, &[STEPS]));
}

#[test]
fn a_file_keeps_treatments_and_updates_follow_them() {
    let schedule = simple(&adamw(4));
    let text = write(&schedule);
    assert!(text.contains("treatment: {averaged: {momentum: 0.3}}"), "{text}");
    let mut changed = read(&text).unwrap();
    assert_eq!(changed, *schedule);
    for (_, routine) in changed.routines.iter_mut() {
        for call in routine.calls.iter_mut() {
            if call.attributes.contains_key("averaged") {
                let none = Attribute::Integers(Vec::new());
                call.attributes.insert("averaged".into(), none);
            }
        }
    }
    let faults = check(changed, &Kernels).unwrap_err().to_string();
    assert!(faults.contains("average"), "{faults}");
    let mut changed = read(&text).unwrap();
    changed.job.parameters[0].treatment = Treatment::Decayed;
    let faults = check(changed, &Kernels).unwrap_err().to_string();
    assert!(faults.contains("as the job says"), "{faults}");
}

#[test]
fn a_micro_batch_with_one_value_per_channel_is_refused_by_name() {
    let text = "model m { input x: real[batch, 4], loss mse(batch_norm(x), x) }
        train { data synthetic, batch 4, optimizer sgd(0.1) }
        plan { placement accumulate, micro_batches 4 }";
    let program = program(text);
    let refused = roundelay::plan(&program, &roundelay::SearchOptions::default());
    let message = refused.unwrap_err().to_string();
    assert!(message.contains("more examples per micro-batch"), "{message}");
}
