//! Grids that take the examples of a micro-batch in two halves: their replays equal the recursion bit
//! for bit and the run of one device but for rounding, however late a part is, and send the same.

use crate::{
    columns::{counted, grids},
    models::{gpt, job, program},
    oracle::{RESTS, compare_one},
    plans::{kinds, pipelines},
    rows::sequential,
    support::{compiled, plan},
};
use roundelay::{
    Program,
    parts::{
        runtime::{Cpu, CpuOptions, Dataset, State, Timing},
        schedule::{self, Float, Sequence, Tensor},
    },
};

#[test]
fn language_models_in_halves_replay_like_the_recursion() {
    let split = Tensor::rows(2, Sequence::Split);
    for (n, tensor) in [(1, Tensor::grid(2, 2)), (3, Tensor::grid(2, 1)), (2, split)] {
        let program = gpt(2, 2 * n);
        for kind in kinds(n, n) {
            let plan = plan(&program, kind, n, n).with_tensor(tensor.in_halves());
            compare_one(&program, &plan, &RESTS[2..]);
        }
    }
}

#[test]
fn pipelines_in_halves_replay_like_the_recursion() {
    let program = gpt(2, 8);
    for plan in pipelines(4, &plan(&program, kinds(4, 2)[0], 4, 2).cuts) {
        compare_one(
            &program,
            &plan.with_tensor(Tensor::grid(2, 1).in_halves()),
            &RESTS[2..],
        );
    }
}

/// Widths and heads that every grid of at most eight devices divides; a large tied table, biases,
/// dropout, gates; images beside a language model.
fn divisible(dtype: Float) -> [Program; 2] {
    let adamw = "adamw(lr = step(1e-2, 0.1, 3), weight_decay = 0.1)";
    let plain = job(4).replace(adamw, "sgd(lr = 1e-2)");
    let texts = [
        "model divisible {
            input tokens:  i32[batch, 4]
            input targets: i32[batch, 4]
            param table: [1030, 840] = normal(0.02)
            x = embedding(tokens, table) + positions(4, 840)
            x = x + dropout(attention(layer_norm(x), 840, causal = true), 0.2)
            x = x + gated(rms_norm(x), 840)
            loss cross_entropy(linear(layer_norm(x), weight = table, bias = false), targets)
        }",
        "model images {
            input images: real[batch, 4, 4, 3]
            input wanted: real[batch, 2, 2, 3]
            x = max_pool(conv2d(images, 840, kernel = 1), 2)
            y = conv2d(silu(group_norm(x, 840)), 840, kernel = 1)
            x = x + conv2d(dropout(relu(y), 0.2), 840, kernel = 1)
            loss mse(conv2d(x, 3, kernel = 1), wanted)
        }",
    ];
    texts.map(|text| {
        let mut program = program(&format!("{text}\n{plain}"));
        program.train.dtype = dtype;
        program
    })
}

/// The losses of a few steps, of which the later ones show the gradients of the earlier.
fn losses(program: &Program, tensor: Tensor, timing: Timing) -> Vec<f64> {
    const STEPS: u64 = 3;
    let schedule = sequential(program, tensor);
    let data = Dataset::open(&schedule.job, None).unwrap();
    let options = CpuOptions { timing, ..CpuOptions::default() };
    let mut cpu = Cpu::new(&schedule, Box::new(data), options).unwrap();
    cpu.load(&State::initial(&schedule.job)).unwrap();
    let mut losses = Vec::new();
    cpu.replay(STEPS, &mut |loss| losses.push(loss.loss)).unwrap();
    losses
}

#[test]
fn every_grid_in_halves_trains_like_without_them() {
    for (dtype, most) in [(Float::F64, 1e-12), (Float::F32, 1e-5)] {
        for program in divisible(dtype) {
            let expected = losses(&program, Tensor::WHOLE, Timing::Natural);
            for tensor in grids().filter(|tensor| tensor.parts() > 1) {
                let found = losses(&program, tensor.in_halves(), Timing::Natural);
                for (one, other) in found.iter().zip(&expected) {
                    let error = (one - other).abs() / other.abs();
                    assert!(error < most, "{dtype} {tensor:?}: {one} for {other}");
                }
            }
        }
    }
}

/// However late a part comes to an exchange that others go on beside.
#[test]
fn late_parts_change_no_bit() {
    let program = gpt(2, 4);
    for tensor in [Tensor::grid(2, 2), Tensor::grid(4, 1)] {
        let expected = losses(&program, tensor.in_halves(), Timing::Natural);
        for seed in 0..8 {
            let found = losses(&program, tensor.in_halves(), Timing::Jittered(seed));
            assert_eq!(found, expected, "{tensor:?}");
        }
    }
}

#[test]
fn halves_send_what_they_send_together() {
    for tensor in [Tensor::grid(2, 2), Tensor::grid(4, 1), Tensor::grid(1, 4)] {
        let program = gpt(2, 4);
        assert_eq!(counted(&program, tensor.in_halves()), counted(&program, tensor));
    }
}

#[test]
fn a_schedule_in_halves_is_read_as_it_was_written() {
    let program = gpt(2, 4);
    let plan = plan(&program, kinds(2, 2)[0], 2, 2);
    let own = compiled(&program, &plan.with_tensor(Tensor::grid(2, 2).in_halves()));
    let text = schedule::write(&own);
    assert!(text.contains("overdecompose: 2") && text.contains("beside"), "{text}");
    assert!(schedule::read(&text).unwrap() == own.into_inner());
}
