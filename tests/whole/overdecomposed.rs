//! Grids that take the examples of a micro-batch in two halves: their replays equal the recursion bit
//! for bit and the run of one device but for rounding, however late a part is, and send the same.

use crate::{
    columns::{counted, divisible, each_trains_like_one_device, grids, losses},
    models::gpt,
    oracle::{RESTS, compare_one},
    plans::{kinds, pipelines},
    support::{compiled, plan},
};
use roundelay::parts::{
    runtime::Timing,
    schedule::{self, Float, Sequence, Tensor},
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

/// A model of images of so many channels.
fn images(channels: u32) -> String {
    format!(
        "model images {{
            input images: real[batch, 4, 4, 3]
            input wanted: real[batch, 2, 2, 3]
            x = max_pool(conv2d(images, {channels}, kernel = 1), 2)
            y = conv2d(silu(group_norm(x, {channels})), {channels}, kernel = 1)
            x = x + conv2d(dropout(relu(y), 0.2), {channels}, kernel = 1)
            loss mse(conv2d(x, 3, kernel = 1), wanted)
        }}"
    )
}

#[test]
fn every_grid_in_halves_trains_like_without_them() {
    let several = grids().filter(|tensor| tensor.parts() > 1).map(Tensor::in_halves);
    for model in [divisible, images] {
        for numbers in [(Float::F64, 1e-12), (Float::F32, 1e-5)] {
            each_trains_like_one_device((model, 4), several.clone(), numbers);
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
