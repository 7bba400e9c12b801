//! What rectifiers make of every kind of number, and which number of a window is the greatest: what is no
//! number stays none, in every body, on the CPU and on a device, in every element type.

use crate::{
    common::{Array, Body, Build, CONTEXT, call, run, sample::Draw},
    emulation::{
        Bound, can_compile,
        compare::steps,
        run_steps,
        stored::{Placement, Stored},
    },
};
use roundelay_kernels::{Context, Mode, Real};
use roundelay_schedule::{Call, Element, Float, GradientSums};

const TYPES: [Float; 4] = [
    Float::F32,
    Float::F64,
    Float::Bf16(GradientSums::Same),
    Float::F16(GradientSums::Same),
];

/// None, of either sign, both infinities and zeros, numbers near to zero in some type or in each, and others.
const NUMBERS: [f64; 16] = [
    f64::NAN,
    f64::INFINITY,
    f64::NEG_INFINITY,
    0.0,
    -0.0,
    1.0,
    -1.0,
    -f64::NAN,
    65504.0,
    -65504.0,
    6e-8,
    -6e-8,
    1e-40,
    -1e-40,
    0.375,
    -2.5,
];

/// As many of the numbers as an array has, in an order that is drawn.
fn drawn(draw: &mut Draw, count: usize) -> Vec<f64> {
    (0..count).map(|_| NUMBERS[draw.below(NUMBERS.len() as u64) as usize]).collect()
}

/// Runs calls on the same contents one way, and gives an operand of each as it is afterwards.
type Way<'a> = &'a dyn Fn(&Call, &[Vec<f64>], usize) -> Vec<f64>;

fn on_cpu<R: Real>(
    (body, context): (Body, &Context),
) -> impl Fn(&Call, &[Vec<f64>], usize) -> Vec<f64> {
    move |call, arrays, output| {
        let of = |array: &Vec<f64>| {
            Array::Real(array.iter().map(|x| R::of(*x)).collect::<Vec<R>>())
        };
        let mut arrays: Vec<Array<R>> = arrays.iter().map(of).collect();
        run(call, &mut arrays, body, context);
        arrays[output].values().iter().map(|x| x.widen()).collect()
    }
}

fn on_device(
    (dtype, placement): (Float, Placement),
    context: &Context,
) -> impl Fn(&Call, &[Vec<f64>], usize) -> Vec<f64> {
    move |call, arrays, output| {
        let store = |(array, operand): (&Vec<f64>, &roundelay_schedule::Operand)| {
            let array = Array::Real(array.clone());
            Stored::new(&array, operand.element, dtype).placed(placement)
        };
        let mut stored: Vec<Stored> =
            arrays.iter().zip(&call.operands).map(store).collect();
        let operands: Vec<*mut u8> = stored.iter_mut().map(Stored::pointer).collect();
        run_steps(&steps(call, dtype), &Bound { operands: &operands, context });
        stored[output].values()
    }
}

/// Every way to run a call.
fn each_way(context: &Context, hold: impl Fn(&str, Way<'_>)) {
    for body in [Body::Fast, Body::Plain] {
        hold(&format!("{body:?} f32"), &on_cpu::<f32>((body, context)));
        hold(&format!("{body:?} f64"), &on_cpu::<f64>((body, context)));
    }
    if !can_compile() {
        return;
    }
    for dtype in TYPES {
        for placement in [Placement::Aligned, Placement::Unaligned] {
            let way = on_device((dtype, placement), context);
            hold(&format!("{dtype:?} {placement:?}"), &way);
        }
    }
}

/// The number where it is above zero, +0 where it is not, none where it is none.
fn rectified(x: f64) -> f64 {
    if x.is_nan() || x > 0.0 { x } else { 0.0 }
}

/// The same bits, or none both.
fn same(a: f64, b: f64) -> bool {
    a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan()
}

fn assert_rectified(place: &str, before: &[f64], after: &[f64]) {
    for (x, y) in before.iter().zip(after) {
        assert!(same(*y, rectified(*x)), "{place}: {x:?} becomes {y:?}");
    }
    assert_eq!(before.len(), after.len());
}

/// Whether what goes into rectifiers has all that they treat apart.
fn assert_all_kinds(before: &[f64]) {
    let kinds: [fn(&f64) -> bool; 4] = [
        |x| x.is_nan(),
        |x| *x == f64::INFINITY,
        |x| *x < 0.0,
        |x| *x > 0.0 && x.is_finite(),
    ];
    for (kind, is) in kinds.iter().enumerate() {
        assert!(before.iter().any(is), "nothing is of kind {kind}");
    }
}

#[test]
fn a_rectifier_keeps_what_is_no_number() {
    let draw = &mut Draw::new(1);
    for count in [1, 3, 16, 71, 1030] {
        let x = match count {
            1 => vec![f64::NAN],
            _ => drawn(draw, count),
        };
        let shape: &[u64] = &[count as u64];
        let relu = call("relu").reals(&[shape; 2]);
        let given = [x, vec![1.0; count]];
        each_way(&CONTEXT, |place, way| {
            // What is stored of the numbers in the type.
            assert_rectified(place, &way(&relu, &given, 0), &way(&relu, &given, 1));
        });
    }
}

#[test]
fn a_rectifier_in_an_affine_map_makes_what_it_makes_behind_one() {
    let draw = &mut Draw::new(2);
    for [m, k, n] in [[40, 1, 70], [33, 2, 9], [3, 5, 130]] {
        let shapes: [&[u64]; 4] = [&[m, k], &[n, k], &[n], &[m, n]];
        let mut given: Vec<Vec<f64>> = shapes
            .iter()
            .map(|shape| draw.normals(shape.iter().product::<u64>() as usize))
            .collect();
        given[2] = drawn(draw, n as usize);
        given[2][0] = f64::INFINITY;
        given[0][0] = f64::NAN;
        let maps = ["affine", "affine_relu"].map(|name| call(name).reals(&shapes));
        each_way(&CONTEXT, |place, way| {
            let [before, after] = [0, 1].map(|map: usize| way(&maps[map], &given, 3));
            assert_all_kinds(&before);
            assert_rectified(place, &before, &after);
        });
    }
}

#[test]
fn a_rectifier_in_a_norm_makes_what_it_makes_behind_one() {
    let evaluation = Context { mode: Mode::Evaluation, ..CONTEXT };
    let draw = &mut Draw::new(3);
    // Of one segment of rows, of several on devices in every type, and in the end on the CPU too.
    for (rows, columns) in [(37, 8), (1100, 8), (530, 13), (9, 300), (600, 80)] {
        let (x, row): (&[u64], &[u64]) = (&[rows, columns], &[columns]);
        let (count, width) = ((rows * columns) as usize, columns as usize);
        for residual in [false, true] {
            let norm = |relu: bool| {
                let call = call("batch_norm").flag("relu", relu);
                let call = call.flag("residual", residual);
                let call = call.reals(&[x, row, row, row, row]);
                let call = if residual { call.real(x) } else { call };
                let call = call.real(x).operand(Element::Wide, row);
                call.operand(Element::Wide, row)
            };
            let mut given = vec![draw.normals(count), vec![1.0; width]];
            given.extend([vec![0.0; width], vec![0.0; width], vec![1.0; width]]);
            // In evaluation, each number by itself; in training, where there is none in a column, none of it
            // is left.
            given[0][1] = f64::NAN;
            given[2][0] = f64::INFINITY;
            if residual {
                given.push(drawn(draw, count));
            }
            let output = given.len();
            given.extend([vec![0.0; count], vec![0.0; width], vec![0.0; width]]);
            for context in [&CONTEXT, &evaluation] {
                each_way(context, |place, way| {
                    let [before, after] =
                        [false, true].map(|relu| way(&norm(relu), &given, output));
                    assert_all_kinds(&before);
                    assert_rectified(place, &before, &after);
                });
            }
        }
    }
}

/// Images with few unlike numbers, so that windows have equal ones, and some that are none.
fn images(draw: &mut Draw, count: usize) -> Vec<f64> {
    const FEW: [f64; 6] = [-0.5, 0.0, 2.0, f64::NEG_INFINITY, f64::INFINITY, 1.0];
    let one = |draw: &mut Draw| match draw.below(8) {
        0 => f64::NAN,
        _ => FEW[draw.below(FEW.len() as u64) as usize],
    };
    (0..count).map(|_| one(draw)).collect()
}

/// Batch, height, width, channels; size, stride, padding.
type Pooling = ([usize; 4], [usize; 3]);

/// For every element of the result the place of the first greatest number of its window, where none is
/// greater than all that are.
fn greatest(
    [_, height, width, channels]: [usize; 4],
    window: [usize; 3],
    x: &[f64],
) -> Vec<usize> {
    let [size, stride, padding] = window;
    let places = |extent: usize| (extent + 2 * padding - size) / stride + 1;
    let seen = |place: usize, tap: usize, extent: usize| {
        (place * stride + tap).checked_sub(padding).filter(|at| *at < extent)
    };
    let images = x.len() / (height * width * channels);
    let mut all = Vec::new();
    for at in 0..images * places(height) * places(width) * channels {
        let (place, c) = (at / channels, at % channels);
        let (line, j) = (place / places(width), place % places(width));
        let (image, i) = (line / places(height), line % places(height));
        let taps = (0..size * size).filter_map(|tap| {
            let row = seen(i, tap / size, height)?;
            let column = seen(j, tap % size, width)?;
            Some(((image * height + row) * width + column) * channels + c)
        });
        let taps: Vec<usize> = taps.collect();
        let none = taps.iter().find(|at| x[**at].is_nan());
        let most = taps.iter().map(|at| x[*at]).fold(f64::NEG_INFINITY, f64::max);
        let first = taps.iter().find(|at| x[**at] == most);
        all.push(*none.or(first).expect("a window sees something"));
    }
    all
}

#[test]
fn the_greatest_of_a_window_is_what_is_no_number() {
    let poolings: [Pooling; 8] = [
        ([2, 9, 8, 16], [3, 2, 1]),
        ([1, 7, 6, 19], [2, 2, 0]),
        ([2, 6, 5, 8], [3, 1, 1]),
        ([1, 9, 11, 5], [4, 2, 1]),
        ([1, 13, 10, 8], [7, 4, 3]),
        ([2, 8, 7, 8], [5, 1, 2]),
        ([2, 7, 6, 24], [1, 2, 0]),
        // Taps that have no room in 8 bits.
        ([1, 18, 19, 8], [17, 1, 0]),
    ];
    let draw = &mut Draw::new(4);
    for (extents @ [batch, height, width, channels], window) in poolings {
        let [size, stride, padding] = window;
        let places = |extent: usize| (extent + 2 * padding - size) / stride + 1;
        let image = extents.map(|extent| extent as u64);
        let result = [batch, places(height), places(width), channels].map(|x| x as u64);
        let count = result.iter().product::<u64>() as usize;
        let mut x = images(draw, image.iter().product::<u64>() as usize);
        if size > 4 {
            // Else hardly a window would be without any.
            x.iter_mut().filter(|x| x.is_nan()).skip(2).for_each(|x| *x = 1.0);
        }
        let dy: Vec<f64> = (0..count).map(|at| (1 + at % 3) as f64).collect();
        let pool = |name| {
            let call = call(name).integer("size", size as i64);
            let call = call.integer("stride", stride as i64);
            call.integer("padding", padding as i64)
        };
        let forward = pool("max_pool").reals(&[&image, &result]);
        let backward = pool("max_pool_backward").reals(&[&image, &result, &image]);
        let chosen = greatest(extents, window, &x);
        let nones = chosen.iter().filter(|at| x[**at].is_nan()).count();
        assert!(nones > 0 && nones < count, "{nones} of {count}");
        let mut slopes = vec![0.0; x.len()];
        chosen.iter().zip(&dy).for_each(|(at, dy)| slopes[*at] += dy);
        each_way(&CONTEXT, |place, way| {
            let y = way(&forward, &[x.clone(), vec![0.0; count]], 1);
            for (y, at) in y.iter().zip(&chosen) {
                let is_same = *y == x[*at] || same(*y, x[*at]);
                assert!(is_same, "{place}: {y:?} for {:?}", x[*at]);
            }
            let given = [x.clone(), dy.clone(), vec![0.0; x.len()]];
            assert_eq!(way(&backward, &given, 2), slopes, "{place}");
        });
    }
}
