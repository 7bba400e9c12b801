//! Kernels of images on CUDA devices, run by the emulation, where shapes decide how: tiles that are
//! full and that are not, groups, channels that fill 16 bytes and that do not.

use crate::{
    common::{
        Array, Build, CONTEXT, call, evaluate,
        sample::{Draw, contents},
    },
    emulation::{
        can_compile,
        compare::{compare, steps, tolerance},
        stored::Placement,
    },
};
use roundelay_kernels::{
    Context, Kernel, Mode, Store,
    cuda::{self, CallPlace, Convolution, Convolved, Step},
};
use roundelay_schedule::{Bytes, Call, Element, Float, GradientSums};

const BF16: Float = Float::Bf16(GradientSums::F32);
const F16: Float = Float::F16(GradientSums::Same);

/// Some calls have operands at odd addresses.
fn placement(seed: u64) -> Placement {
    if seed % 3 == 2 { Placement::Unaligned } else { Placement::Aligned }
}

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
        compare(&call, &start, (dtype, placement(seed)), &CONTEXT, tolerance(dtype));
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

/// Tiles of 64 and of 128 filters or channels, stages of both numbers, strides whose residues have
/// unlike taps, or none, or are fewer than the stride.
#[test]
fn convolutions_with_strides() {
    if !can_compile() {
        return;
    }
    let shapes: [Shape; 10] = [
        [2, 9, 7, 32, 64, 3, 2, 1, 1],
        [1, 8, 11, 72, 65, 3, 2, 1, 1],
        [1, 11, 10, 64, 136, 3, 3, 2, 1],
        [2, 7, 8, 16, 24, 5, 3, 2, 1],
        [1, 10, 9, 24, 16, 2, 3, 0, 1],
        [2, 9, 11, 16, 8, 1, 2, 1, 1],
        [1, 3, 2, 16, 8, 2, 5, 3, 1],
        [1, 9, 11, 32, 64, 3, 2, 1, 2],
        [1, 10, 8, 144, 160, 3, 3, 2, 2],
        [3, 15, 13, 20, 40, 4, 2, 1, 1],
    ];
    for (seed, shape) in (0..).zip(shapes) {
        for dtype in [BF16, Float::F32] {
            compare_convolutions(shape, dtype, seed);
            compare_convolutions(shape, dtype, seed + 1);
        }
    }
}

/// Patches whose rows fill 16 bytes, with and without padding, and such that do not; windows that
/// overlap.
#[test]
fn convolutions_of_few_channels() {
    if !can_compile() {
        return;
    }
    let shapes: [Shape; 6] = [
        [2, 32, 48, 3, 40, 16, 16, 0, 1],
        [1, 16, 24, 3, 72, 8, 8, 8, 1],
        [2, 21, 14, 3, 16, 7, 7, 0, 1],
        [1, 17, 30, 3, 64, 7, 2, 3, 1],
        [1, 9, 16, 1, 24, 8, 8, 4, 1],
        [1, 12, 12, 4, 24, 4, 2, 2, 1],
    ];
    for (seed, shape) in (0..).zip(shapes) {
        for dtype in [BF16, F16, Float::F32] {
            compare_convolutions(shape, dtype, seed);
        }
        compare_convolutions(shape, BF16, seed + 1);
    }
}

/// All terms of a convolution as it is described: which elements of images, weights and results meet.
fn terms(of: &Convolution) -> Vec<[usize; 3]> {
    let ([height, width], [high, wide]) = (of.output, of.kernel);
    let (channels, filters) = (of.channels / of.groups, of.filters / of.groups);
    let mut terms = Vec::new();
    for place in 0..of.batch * height * width {
        let (b, i, j) = (place / (height * width), place / width % height, place % width);
        for tap in 0..high * wide {
            let seen = |place: usize, tap: usize, extent: usize| {
                let at = (place * of.stride + tap).checked_sub(of.padding)?;
                (at < extent).then_some(at)
            };
            let row = seen(i, tap / wide, of.input[0]);
            let Some((row, column)) = row.zip(seen(j, tap % wide, of.input[1])) else {
                continue;
            };
            let pixel = (b * of.input[0] + row) * of.input[1] + column;
            for n in 0..of.filters {
                let first = pixel * of.channels + n / filters * channels;
                let weight = (n * high * wide + tap) * channels;
                let y = place * of.filters + n;
                terms.extend((0..channels).map(|c| [first + c, weight + c, y]));
            }
        }
    }
    terms
}

/// A library knows of a call what its description says, and nothing else.
#[test]
fn descriptions_of_convolutions_have_the_same_terms() {
    let shapes: [Shape; 6] = [
        [2, 9, 8, 4, 6, 3, 1, 1, 1],
        [1, 11, 13, 3, 5, 7, 2, 3, 1],
        [2, 6, 7, 8, 4, 1, 2, 0, 1],
        [1, 7, 8, 12, 8, 3, 2, 1, 4],
        [2, 5, 6, 6, 6, 3, 1, 0, 6],
        [1, 10, 9, 32, 32, 4, 3, 0, 2],
    ];
    for (seed, shape) in (0..).zip(shapes) {
        for call in convolutions(shape, seed % 2 == 1) {
            let steps = crate::emulation::compare::steps(&call, Float::F64).steps;
            let [Step::Convolution(of)] = &steps[..] else {
                panic!("{} is one convolution: {steps:?}", call.kernel);
            };
            let start = contents::<f64>(&call, &mut Draw::new(seed));
            let operand = |array: &cuda::Array| match array.place {
                CallPlace::Operand(operand, Bytes(0)) => operand,
                other => panic!("an operand stands at its beginning: {other:?}"),
            };
            let operands = [&of.x, &of.weight, &of.y].map(operand);
            let made = match of.pass {
                Convolved::Images => 0,
                Convolved::Filters => 1,
                Convolved::Results => 2,
            };
            let mut found = start[operands[made]].values().to_vec();
            if of.store == Store::Write {
                found.fill(0.0);
            }
            let value =
                |which: usize, place: usize| start[operands[which]].values()[place];
            for term in terms(of) {
                let [a, b] = [(made + 1) % 3, (made + 2) % 3];
                found[term[made]] += value(a, term[a]) * value(b, term[b]);
            }
            let expected = evaluate(&call, start.clone());
            let expected = expected[operands[made]].values();
            let near = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-10 * b.abs().max(1.0);
            assert!(found.iter().zip(expected).all(near), "{}", call.kernel);
        }
    }
}

/// What kernels cannot count is said.
#[test]
fn rows_of_too_many_numbers_are_refused() {
    let [forward, ..] = convolutions([1, 3, 1 << 24, 128, 8, 3, 1, 1, 1], false);
    let kernel = Kernel::parse(&forward).expect("the call is well formed");
    let refusal = kernel.cuda(BF16).expect_err("a row has 2³¹ numbers");
    assert!(refusal.to_string().contains("a row of images has"), "{refusal}");
}

/// A grid has at most 65535 blocks along y and z, which a launch would find out too late.
#[test]
fn grids_of_too_many_blocks_are_refused() {
    let steps =
        |call: &Call| Kernel::parse(call).expect("the call is well formed").cuda(BF16);
    let product = |n: u64| call("matmul").reals(&[&[8, 16], &[16, n], &[8, n]]);
    assert!(steps(&product(65535 * 128)).is_ok());
    let refusal = steps(&product(65535 * 128 + 1)).expect_err("65536 tiles along y");
    assert!(refusal.contains("65536 blocks or more along y"), "{refusal}");
    assert!(refusal.contains("at most 65535"), "{refusal}");
    let groups = |groups: u64| {
        let channels = groups * 16;
        let shape = [1, 3, 3, channels, channels, 3, 1, 1, groups];
        let [forward, ..] = convolutions(shape, false);
        steps(&forward)
    };
    assert!(groups(65535).is_ok());
    let refusal = groups(65536).expect_err("65536 groups along z");
    assert!(refusal.contains("65536 blocks or more along z"), "{refusal}");
}

/// Sums over this many places are cut into segments.
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
fn filters_of_one_pixel_and_affine_maps_that_add_are_products() {
    let matrix: &[u64] = &[6, 24];
    let affine = call("affine_add").reals(&[&[6, 40], &[24, 40], &[24], matrix, matrix]);
    let filters = convolutions([2, 6, 7, 40, 16, 1, 1, 0, 1], true);
    for call in filters.into_iter().chain([affine]) {
        let steps = crate::emulation::compare::steps(&call, BF16).steps;
        assert!(matches!(steps[..], [Step::Product(_)]), "{}", call.kernel);
    }
}

/// A call of batch normalisation over this many rows and columns.
fn batch_norms(rows: u64, columns: u64, fused: bool) -> [Call; 2] {
    let (x, row): (&[u64], &[u64]) = (&[rows, columns], &[columns]);
    let some = |shape| if fused { vec![shape] } else { vec![] };
    let statistics =
        |call: Call| call.operand(Element::Wide, row).operand(Element::Wide, row);
    let forward = call("batch_norm").flag("relu", fused).flag("residual", fused);
    let forward = forward.reals(&[x, row, row, row, row]).reals(&some(x)).real(x);
    let backward = call("batch_norm_backward").flag("relu", fused);
    let backward = statistics(backward.reals(&[x, row])).reals(&some(x));
    [statistics(forward), backward.reals(&[x, x, row, row, row, row])]
}

#[test]
fn batch_norms_of_all_widths() {
    if !can_compile() {
        return;
    }
    for (seed, columns) in (0..).zip([1, 7, 8, 64, 100, 256, 300]) {
        let draw = &mut Draw::new(seed);
        let rows = 2 + draw.below(60) * 300 / columns;
        for (mode, dtype) in [
            (Mode::Training, BF16),
            (Mode::Training, Float::F32),
            (Mode::Evaluation, F16),
        ] {
            for call in batch_norms(rows, columns, seed % 2 == 0) {
                let start = contents::<f64>(&call, draw);
                let context = Context { mode, ..CONTEXT };
                compare(
                    &call,
                    &start,
                    (dtype, placement(seed)),
                    &context,
                    tolerance(dtype),
                );
            }
        }
    }
}

/// A variance that is small against the square of the mean keeps its digits, over many segments, and
/// where the rows of the first ones are far from all others.
#[test]
fn variances_far_from_zero() {
    if !can_compile() {
        return;
    }
    let draw = &mut Draw::new(3);
    for (columns, first) in [(3, 3000.0), (4, 3000.0), (4, 3100.0)] {
        let [call, _] = batch_norms(20_000, columns, false);
        let mut start = contents::<f64>(&call, draw);
        if let Array::Real(x) = &mut start[0] {
            let (outer, others) = x.split_at_mut(500 * columns as usize);
            outer.iter_mut().for_each(|x| *x += first);
            others.iter_mut().for_each(|x| *x += 3000.0);
        }
        let way = (Float::F32, Placement::Aligned);
        compare(&call, &start, way, &CONTEXT, tolerance(Float::F32));
    }
}

/// All pools of images (batch, height, width, channels) by such windows.
fn pools(
    image: [u64; 4],
    [size, stride, padding]: [u64; 3],
    accumulate: bool,
) -> [Call; 6] {
    let [batch, height, width, channels] = image;
    let places = |extent| (extent + 2 * padding - size) / stride + 1;
    let (x, mean): (&[u64], &[u64]) = (&image, &[batch, channels]);
    let y: &[u64] = &[batch, places(height), places(width), channels];
    let window = |name| {
        let call = call(name).integer("size", size as i64);
        call.integer("stride", stride as i64).integer("padding", padding as i64)
    };
    let adding = |call: Call| call.flag("accumulate", accumulate);
    [
        window("max_pool").reals(&[x, y]),
        adding(window("max_pool_backward")).reals(&[x, y, x]),
        window("avg_pool").reals(&[x, y]),
        adding(window("avg_pool_backward")).reals(&[y, x]),
        call("global_pool").reals(&[x, mean]),
        adding(call("global_pool_backward")).reals(&[mean, x]),
    ]
}

#[test]
fn pools_of_all_widths() {
    if !can_compile() {
        return;
    }
    let shapes = [
        ([2, 9, 8, 64], [3, 2, 1]),
        ([1, 7, 11, 24], [2, 2, 0]),
        ([3, 6, 5, 13], [3, 1, 1]),
        ([1, 12, 9, 8], [5, 3, 2]),
        ([1, 40, 30, 300], [2, 3, 0]),
        ([2, 3, 3, 1], [3, 1, 0]),
        // Pixels that no window sees, and those whose windows overlap by all but a stride.
        ([2, 7, 6, 24], [1, 2, 0]),
        ([1, 9, 6, 16], [2, 1, 1]),
        ([1, 11, 9, 24], [4, 2, 1]),
        ([1, 13, 10, 8], [7, 4, 3]),
        ([2, 8, 7, 8], [5, 1, 2]),
        ([1, 13, 14, 16], [9, 5, 4]),
        // Taps that have no room in 8 bits, and as many as just have.
        ([1, 18, 19, 8], [17, 1, 0]),
        ([1, 17, 16, 8], [15, 2, 0]),
    ];
    for (seed, (image, window)) in (0..).zip(shapes) {
        let draw = &mut Draw::new(seed);
        for dtype in [BF16, Float::F32, Float::F64] {
            for mut call in pools(image, window, seed % 2 == 0) {
                let mut start = contents::<f64>(&call, draw);
                if let Array::Real(x) = &mut start[0] {
                    // Equal numbers in one window, of which the first counts.
                    x.iter_mut().for_each(|x| *x = (4.0 * *x).round());
                }
                let last = call.operands.len() - 1;
                if call.kernel.ends_with("backward") && seed == 1 {
                    call.operands[last].element = Element::Wide;
                }
                compare(
                    &call,
                    &start,
                    (dtype, placement(seed)),
                    &CONTEXT,
                    tolerance(dtype),
                );
            }
        }
    }
}

/// Few groups of few examples keep a device busy too: what goes through an image has blocks for its pixels.
#[test]
fn group_norms_of_few_groups_have_many_blocks() {
    let (x, row): (&[u64], &[u64]) = (&[2, 4096, 128], &[128]);
    let build = |name| call(name).integer("groups", 32);
    let statistics =
        |call: Call| (0..2).fold(call, |call, _| call.operand(Element::Wide, &[2, 32]));
    let forward = statistics(build("group_norm").reals(&[x, row, row, x]));
    let backward = statistics(build("group_norm_backward").reals(&[x, row]));
    for call in [forward, backward.reals(&[x, x, row, row])] {
        let launches = steps(&call, BF16).steps.into_iter().flat_map(Step::launches);
        let through =
            launches.filter(|launch| !launch.function.symbol.starts_with("join"));
        let blocks: Vec<u32> = through
            .map(|launch| launch.grid.iter().product())
            .filter(|blocks| *blocks > 64)
            .collect();
        assert_eq!(blocks.len(), 2, "{blocks:?} of {}", call.kernel);
    }
}

#[test]
fn group_norms_of_all_widths() {
    if !can_compile() {
        return;
    }
    let shapes = [[2, 50, 32, 4], [1, 9, 24, 8], [3, 7, 10, 2], [2, 400, 16, 1]];
    for (seed, [batch, positions, columns, groups]) in (0..).zip(shapes) {
        let draw = &mut Draw::new(seed);
        let (x, row): (&[u64], &[u64]) = (&[batch, positions, columns], &[columns]);
        let each: &[u64] = &[batch, groups];
        let build = |name| call(name).integer("groups", groups as i64);
        let statistics =
            |call: Call| call.operand(Element::Wide, each).operand(Element::Wide, each);
        let forward = statistics(build("group_norm").reals(&[x, row, row, x]));
        let backward = statistics(build("group_norm_backward").reals(&[x, row]));
        for call in [forward, backward.reals(&[x, x, row, row])] {
            let start = contents::<f64>(&call, draw);
            for dtype in [BF16, Float::F32, Float::F64] {
                compare(
                    &call,
                    &start,
                    (dtype, placement(seed)),
                    &CONTEXT,
                    2.0 * tolerance(dtype),
                );
            }
        }
    }
}

/// So long that threads have a pair at several positions, of which the last ones have fewer.
#[test]
fn rotary_positions_of_a_long_text() {
    if !can_compile() {
        return;
    }
    let shape: &[u64] = &[1, 1500, 96];
    let call = call("rotary").integer("heads", 1).number("base", 1e4);
    let call = call.integer("turned", 96).reals(&[shape; 2]);
    let start = contents::<f64>(&call, &mut Draw::new(3));
    let way = (Float::F32, Placement::Aligned);
    compare(&call, &start, way, &CONTEXT, tolerance(Float::F32));
}

#[test]
fn rotary_positions_of_all_depths() {
    if !can_compile() {
        return;
    }
    for (seed, (depth, turned)) in (0..).zip([(64, 64), (80, 32), (48, 16), (20, 6)]) {
        let draw = &mut Draw::new(seed);
        let shape: &[u64] = &[2, 33, 3 * depth];
        let call = call("rotary").integer("heads", 3).number("base", 1e4);
        let call = call.integer("turned", turned).flag("inverse", seed % 2 == 1);
        let call = call.flag("accumulate", seed > 1).reals(&[shape; 2]);
        let start = contents::<f64>(&call, draw);
        for dtype in [BF16, F16, Float::F32, Float::F64] {
            compare(&call, &start, (dtype, placement(seed)), &CONTEXT, tolerance(dtype));
        }
    }
}
