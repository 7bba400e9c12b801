//! Kernels of images on CUDA devices, run by the emulation, where shapes decide how: tiles that are
//! full and that are not, groups, channels that fill 16 bytes and that do not.

mod common;
mod emulation;

use common::{
    Build, CONTEXT, call,
    sample::{Draw, contents},
};
use emulation::{
    can_compile,
    compare::{compare, tolerance},
    stored::Placement,
};
use roundelay_kernels::cuda::Step;
use roundelay_schedule::{Call, Element, Float, GradientSums};

const BF16: Float = Float::Bf16(GradientSums::F32);
const F16: Float = Float::F16(GradientSums::Same);

/// Batch, height, width, channels, filters, window, stride, padding, groups.
type Shape = [u64; 9];

/// One call of each of the three passes.
fn convolutions(shape: Shape, accumulate: bool) -> [Call; 3] {
    let [batch, height, width, channels, filters, window, stride, padding, groups] =
        shape;
    let places = |extent| (extent + 2 * padding - window) / stride + 1;
    let x: &[u64] = &[batch, height, width, channels];
    let y: &[u64] = &[batch, places(height), places(width), filters];
    let weight: &[u64] = &[filters, window, window, channels / groups];
    let build = |name| {
        let call = call(name).integer("stride", stride as i64);
        call.integer("padding", padding as i64).integer("groups", groups as i64)
    };
    let adding = |name| build(name).flag("accumulate", accumulate);
    [
        build("conv2d").reals(&[x, weight, y]),
        adding("conv2d_backward").reals(&[y, weight, x]),
        adding("conv2d_weights").reals(&[x, y, weight]),
    ]
}

fn compare_convolutions(shape: Shape, dtype: Float, seed: u64) {
    let draw = &mut Draw::new(seed);
    for mut call in convolutions(shape, seed % 2 == 1) {
        if call.kernel == "conv2d_weights" && dtype == BF16 {
            call.operands[2].element = Element::Wide;
        }
        let start = contents::<f64>(&call, draw);
        compare(&call, &start, (dtype, Placement::Aligned), &CONTEXT, tolerance(dtype));
    }
}

#[test]
fn convolutions_in_tiles() {
    if !can_compile() {
        return;
    }
    let shapes: [Shape; 7] = [
        [2, 9, 8, 16, 24, 3, 1, 1, 1],
        [1, 13, 11, 8, 136, 3, 2, 1, 1],
        [2, 17, 18, 3, 20, 7, 2, 3, 1],
        [1, 10, 9, 13, 7, 4, 3, 0, 1],
        [2, 6, 7, 40, 16, 1, 2, 0, 1],
        [1, 7, 8, 48, 32, 3, 1, 1, 2],
        [3, 1, 9, 32, 8, 1, 1, 1, 1],
    ];
    for (seed, shape) in (0..).zip(shapes) {
        for dtype in [BF16, F16, Float::F32] {
            compare_convolutions(shape, dtype, seed);
        }
    }
}

#[test]
fn convolutions_of_groups() {
    if !can_compile() {
        return;
    }
    let shapes: [Shape; 5] = [
        [2, 9, 8, 16, 16, 3, 1, 1, 16],
        [2, 9, 9, 24, 24, 3, 2, 1, 24],
        [1, 12, 7, 5, 5, 5, 3, 2, 5],
        [1, 7, 7, 6, 15, 3, 1, 1, 3],
        [2, 5, 6, 12, 8, 1, 1, 0, 4],
    ];
    for (seed, shape) in (0..).zip(shapes) {
        for dtype in [BF16, F16, Float::F32, Float::F64] {
            compare_convolutions(shape, dtype, seed);
        }
    }
}

/// Sums over so many places are cut into segments.
#[test]
fn gradients_of_weights_over_many_places() {
    if !can_compile() {
        return;
    }
    let tiles = [2, 20, 21, 8, 16, 3, 1, 1, 1];
    let groups = [3, 21, 20, 9, 9, 3, 1, 1, 9];
    for (shape, dtype) in [(tiles, BF16), (tiles, Float::F32), (groups, BF16)] {
        compare_convolutions(shape, dtype, 5);
    }
}

/// Products may go to a library, so nothing else is launched where a product is all there is.
#[test]
fn filters_of_one_pixel_are_products() {
    for call in convolutions([2, 6, 7, 40, 16, 1, 1, 0, 1], true) {
        let steps = emulation::compare::steps(&call, BF16).steps;
        assert!(matches!(steps[..], [Step::Product(_)]), "{}", call.kernel);
    }
}
