//! Images whose rows of pixels tensor rows divide: replays equal the recursion bit for bit and one
//! device but for rounding, whatever the rule and the placement, and send what the formula says.

use crate::{
    columns::{counted, descending, trains_like_one_device},
    depth::{deep, losses},
    models::{job, program},
    oracle::{RESTS, compare_one},
    plans::{kinds, pipelines},
    support::{compiled, plan},
};
use roundelay::{
    Program,
    parts::{
        runtime::{Cpu, CpuOptions, Dataset, State},
        schedule::{Bytes, Float, Tensor},
    },
};

const ROWS: [u32; 3] = [2, 4, 8];

/// Windows of seven, three and one, in steps of one and two, batch norms, sums, masks.
const RESIDUAL: &str = "block residual(x, c, stride) {
    y = relu(batch_norm(conv2d(x, c, stride = stride, bias = false)))
    y = batch_norm(conv2d(y, c, bias = false))
    return relu(y + batch_norm(conv2d(x, c, kernel = 1, stride = stride)))
}
model residuals {
    input images:  real[batch, 64, 16, 3]
    input targets: i32[batch]
    x = relu(batch_norm(conv2d(images, 4, kernel = 7, stride = 2)))
    x = max_pool(x, 3, stride = 2, padding = 1)
    x = residual(x, 4, 1)
    x = dropout(residual(x, 6, 2), 0.2)
    loss cross_entropy(linear(relu(linear(global_pool(x), 16)), 5), targets)
}";

/// Down and up again, with what was there before beside it.
const UNET: &str = "model small_unet {
    input images: real[batch, 32, 4, 3]
    input wanted: real[batch, 32, 4, 2]
    a = silu(group_norm(conv2d(images, 4), 2))
    b = silu(group_norm(conv2d(a, 6, stride = 2), 2))
    c = silu(group_norm(conv2d(b, 8, stride = 2), 2))
    c = c + conv2d(silu(group_norm(c, 4)), 8)
    b = conv2d(upsample(c), 6, bias = false) + conv2d(b, 6, bias = false)
    b = dropout(silu(group_norm(b, 3)), 0.1)
    a = conv2d(upsample(b), 4, bias = false) + conv2d(a, 4, bias = false)
    loss mse(conv2d(silu(group_norm(a, 2)), 2), wanted)
}";

#[test]
fn images_of_pixels_train_like_one_device() {
    for (dtype, most) in [(Float::F64, 1e-12), (Float::F32, 1e-5)] {
        for text in [RESIDUAL, UNET] {
            let rows = ROWS.map(Tensor::pixels);
            trains_like_one_device(&descending(text, 4, "1e-1", dtype), rows, most);
        }
    }
}

/// In halves norms are of groups: a batch norm is over all examples at once.
#[test]
fn pixels_in_halves_train_like_one_device() {
    let rows = ROWS.map(|rows| Tensor::pixels(rows).in_halves());
    trains_like_one_device(&descending(UNET, 4, "1e-1", Float::F64), rows, 1e-12);
}

fn of(text: &str, batch: u32) -> Program {
    program(&format!("{text}\n{}", job(batch)))
}

#[test]
fn images_of_pixels_replay_like_the_recursion() {
    for text in [RESIDUAL, UNET] {
        let program = of(text, 8);
        for kind in kinds(2, 2) {
            let plan = plan(&program, kind, 2, 2).with_tensor(Tensor::pixels(2));
            compare_one(&program, &plan, &RESTS[2..]);
        }
    }
}

#[test]
fn pipelines_of_pixels_replay_like_the_recursion() {
    let program = of(UNET, 4);
    for plan in pipelines(4, &plan(&program, kinds(4, 2)[0], 4, 2).cuts) {
        compare_one(&program, &plan.with_tensor(Tensor::pixels(2)), &RESTS[2..]);
    }
}

/// Every part has all weights, which its replicas divide once more.
#[test]
fn pixels_with_depth_train_like_one_device() {
    // Masks are those of a micro-batch, and replicas have micro-batches of their own.
    let text =
        UNET.replace("dropout(silu(group_norm(b, 3)), 0.1)", "silu(group_norm(b, 3))");
    let program = descending(&text, 8, "1e-1", Float::F64);
    let expected = losses(&program, &deep(&program, Tensor::WHOLE, 1, 1));
    for (replicas, depth) in [(2, 1), (2, 2), (4, 2)] {
        let plan = deep(&program, Tensor::pixels(2), replicas, depth);
        for (found, expected) in losses(&program, &plan).iter().zip(&expected) {
            let error = (found - expected).abs() / expected.abs();
            assert!(error < 1e-12, "{plan:?}: {found} for {expected}");
        }
    }
}

/// What the machine counts is what the facts say: all bytes together, and those of the part that
/// sends most.
#[test]
fn what_pixels_move_is_what_the_facts_say() {
    let program = of(RESIDUAL, 8);
    let plan = plan(&program, kinds(2, 1)[0], 2, 1).with_tensor(Tensor::pixels(4));
    let schedule = compiled(&program, &plan);
    let data = Dataset::open(&schedule.job, None).unwrap();
    let mut cpu = Cpu::new(&schedule, Box::new(data), CpuOptions::default()).unwrap();
    cpu.load(&State::initial(&schedule.job)).unwrap();
    cpu.replay(3, &mut |_| {}).unwrap();
    let (measured, facts) = (cpu.measured().unwrap(), schedule.facts());
    assert_eq!(measured.messages, 3 * facts.messages);
    for (link, bytes) in &facts.link_bytes {
        assert_eq!(measured.link_bytes[link], *bytes * 3);
    }
    let all: Bytes = measured.sent.values().copied().sum();
    assert_eq!(all, facts.link_bytes.values().copied().sum::<Bytes>() * 3);
    let most = measured.sent.values().copied().max().unwrap();
    assert_eq!(vec![most], facts.sent.values().map(|sent| *sent * 3).collect::<Vec<_>>());
    let least = measured.sent.values().copied().min().unwrap();
    assert!(least < most, "parts at the edges send less");
}

/// A window of k rows in steps of s over images of w columns and c channels sends k − s rows over
/// each of the R − 1 edges between parts: forward, once more for the gradient of its weights, and
/// back. Gradients of weights are all-reduced for each micro-batch.
#[test]
fn windows_send_what_the_formula_says_to_the_byte() {
    let (batch, micro_batches, width, channels) = (2, 2, 8, 3);
    let of = |windows: &str, rows| {
        let text = format!(
            "model windows {{
                input images: real[batch, 32, {width}, {channels}]
                input wanted: real[batch, 32, {width}, {channels}]
                x = conv2d(images, {channels}, kernel = 1)
                {windows}
                loss mse(conv2d(x, {channels}, kernel = 1), wanted)
            }}"
        );
        let mut program = of(&text, batch);
        program.train.dtype = Float::F64;
        counted(&program, Tensor::pixels(rows))
    };
    for rows in ROWS {
        let without = of("", rows);
        for kernel in [1, 3, 5, 7] {
            let window =
                format!("x = conv2d(x, {channels}, kernel = {kernel}, bias = false)");
            let others = u64::from(rows) - 1;
            let halos = 3 * u64::from(batch) * (kernel - 1) * width * channels * others;
            let weights = kernel * kernel * channels * channels;
            let sums = 2 * micro_batches * weights * others;
            let found = of(&window, rows) - without;
            assert_eq!(found, 8 * (halos + sums), "{kernel} {rows}");
        }
    }
}
