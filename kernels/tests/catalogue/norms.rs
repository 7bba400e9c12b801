//! What holds of normalisations besides their derivatives: evaluation, fusion, precision.

use crate::common::{Array, Body, Build, CONTEXT, call, run, sample::Draw};
use roundelay_kernels::{Context, Kernel, Mode};
use roundelay_schedule::Call;

const BODIES: [Body; 2] = [Body::Fast, Body::Plain];

fn zeros(length: usize) -> Array<f32> {
    Array::Real(vec![0.0; length])
}

fn batch_norm(rows: u64, columns: u64) -> Call {
    let (x, row): (&[u64], &[u64]) = (&[rows, columns], &[columns]);
    call("batch_norm").reals(&[x, row, row, row, row, x, row, row])
}

#[test]
fn evaluation_normalises_with_the_running_statistics() {
    let context = Context { mode: Mode::Evaluation, ..CONTEXT };
    let inputs = [vec![4.0, 1.0, 0.0, 1.0], vec![3.0, 1.0], vec![0.5, 0.0]];
    let statistics = [vec![2.0, 1.0], vec![4.0 - 1e-5, 1.0]];
    for body in BODIES {
        let given = inputs.iter().chain(&statistics).cloned().map(Array::Real);
        let mut arrays: Vec<Array<f32>> = given.chain([4, 2, 2].map(zeros)).collect();
        run(&batch_norm(2, 2), &mut arrays, body, &context);
        assert_eq!(arrays[5].values(), [3.5, 0.0, -2.5, 0.0]);
        assert_eq!(arrays[6..], statistics.clone().map(Array::Real));
    }
}

/// In f32, around a mean that is a thousand deviations away: the variance keeps four digits.
#[test]
fn variance_survives_a_large_mean() {
    let (rows, columns) = (20_000, 24);
    let draw = &mut Draw::new(1);
    let mut x: Vec<f32> = draw.normals(rows * columns);
    x.iter_mut().for_each(|x| *x += 1000.0);
    // The first row, around which sums begin, lies far off.
    x[..columns].fill(0.0);
    let column = |j: usize| x.iter().skip(j).step_by(columns).map(|x| f64::from(*x));
    let call = batch_norm(rows as u64, columns as u64);
    let row = || zeros(columns);
    let mut arrays = vec![Array::Real(x.clone()), row(), row(), row(), row()];
    arrays.extend([zeros(rows * columns), row(), row()]);
    run(&call, &mut arrays, Body::Fast, &CONTEXT);
    for j in 0..columns {
        let mean = column(j).sum::<f64>() / rows as f64;
        let variance = column(j).map(|x| (x - mean).powi(2)).sum::<f64>() / rows as f64;
        let error = (f64::from(arrays[7].values()[j]) - variance).abs() / variance;
        assert!(error < 1e-4, "channel {j} is off by {error}");
    }
}

#[test]
fn one_value_has_no_variance() {
    let mistake = Kernel::parse(&batch_norm(1, 5)).unwrap_err();
    assert!(mistake.contains("more examples per micro-batch"), "{mistake}");
}

/// What follows a norm in the same kernel.
#[derive(Clone, Copy, Debug)]
struct Tail {
    residual: bool,
    relu: bool,
}

const TAILS: [Tail; 4] = [
    Tail { residual: false, relu: false },
    Tail { residual: false, relu: true },
    Tail { residual: true, relu: false },
    Tail { residual: true, relu: true },
];

/// y = max(batch_norm(x) + residual, 0), or a part of it, in one kernel and in up to three;
/// and back, where two kernels may be one.
#[test]
fn fused_batch_norm_is_the_sequence_of_its_parts() {
    for (rows, columns) in [(2, 3), (700, 70), (6, 9000), (40_000, 8)] {
        for tail in TAILS {
            for body in BODIES {
                let apart = Apart::run(rows, columns, tail, body);
                let fused = fused(&apart, rows, columns, tail, body);
                assert_eq!(fused.len(), apart.made.len());
                for (index, (fused, apart)) in fused.iter().zip(&apart.made).enumerate() {
                    let same = fused.values().iter().zip(apart.values());
                    let mut same = same.map(|(a, b)| a.to_bits() == b.to_bits());
                    assert!(same.all(|same| same), "{tail:?} {body:?} result {index}");
                }
                if tail.relu && !tail.residual {
                    let again = again(&apart, rows, columns, body);
                    assert_eq!(bits(&again), bits(&apart.made[3..]), "{body:?}");
                }
            }
        }
    }
}

fn bits(all: &[Array<f32>]) -> Vec<u32> {
    all.iter().flat_map(Array::values).map(|value| value.to_bits()).collect()
}

/// y of a batch norm of these operands from the statistics that it has made.
fn norm_again(
    forward: &Call,
    (read, statistics): (&[Array<f32>], &[Array<f32>]),
    body: Body,
) -> Array<f32> {
    let y = read.len();
    let operands = forward.operands[..=y].to_vec();
    let call = Call { kernel: "batch_norm_again".into(), operands, ..forward.clone() };
    let mut arrays = [&read[..3], statistics, &read[5..]].concat();
    arrays.push(zeros(read[0].values().len()));
    run(&call, &mut arrays, body, &CONTEXT);
    arrays.remove(y)
}

/// What a kernel without attributes makes of arrays that are as long as its result.
fn apply(name: &str, inputs: &[&Array<f32>], body: Body) -> Array<f32> {
    let mut arrays: Vec<_> = inputs.iter().copied().cloned().collect();
    let length = inputs[0].values().len();
    arrays.push(zeros(length));
    let call = arrays.iter().fold(call(name), |call, _| call.real(&[length as u64]));
    run(&call, &mut arrays, body, &CONTEXT);
    arrays.remove(inputs.len())
}

/// The operations one after another, with what goes in and what comes out.
struct Apart {
    x: Array<f32>,
    gain: Array<f32>,
    bias: Array<f32>,
    residual: Array<f32>,
    dy: Array<f32>,
    /// y, mean, variance, dx, dgain, dbias, dmean, dvariance.
    made: Vec<Array<f32>>,
}

impl Apart {
    fn run(rows: u64, columns: u64, tail: Tail, body: Body) -> Self {
        let draw = &mut Draw::new(rows);
        let (size, width) = ((rows * columns) as usize, columns as usize);
        let [x, residual, dy] = [(); 3].map(|()| Array::Real(draw.normals(size)));
        let [gain, bias] = [(); 2].map(|()| Array::Real(draw.normals(width)));
        let (array, row): (&[u64], &[u64]) = (&[rows, columns], &[columns]);
        let given = [x.clone(), gain.clone(), bias.clone()];
        let mut norm: Vec<_> = given.into_iter().chain([width; 2].map(zeros)).collect();
        norm.extend([size, width, width].map(zeros));
        run(&batch_norm(rows, columns), &mut norm, body, &CONTEXT);
        let [mut y, mean, variance] = [5, 6, 7].map(|index: usize| norm[index].clone());
        if tail.residual {
            y = apply("add", &[&y, &residual], body);
        }
        let mut open = dy.clone();
        if tail.relu {
            y = apply("relu", &[&y], body);
            open = apply("relu_backward", &[&y, &dy], body);
        }
        let back = call("batch_norm_backward")
            .reals(&[array, row, row, row, array, array, row, row, row, row]);
        let mut parts = vec![x.clone(), gain.clone(), mean.clone(), variance.clone()];
        parts.push(open);
        parts.extend([size, width, width, width, width].map(zeros));
        run(&back, &mut parts, body, &CONTEXT);
        let made = [y, mean, variance].into_iter().chain(parts.split_off(5));
        Self { x, gain, bias, residual, dy, made: made.collect() }
    }
}

fn fused(
    apart: &Apart,
    rows: u64,
    columns: u64,
    tail: Tail,
    body: Body,
) -> Vec<Array<f32>> {
    let (size, width) = ((rows * columns) as usize, columns as usize);
    let (array, row): (&[u64], &[u64]) = (&[rows, columns], &[columns]);
    let one = [array];
    let some = |wanted: bool| &one[..usize::from(wanted)];
    let forward = call("batch_norm").flag("relu", tail.relu);
    let forward = forward.flag("residual", tail.residual);
    let forward = forward.reals(&[array, row, row, row, row]);
    let forward = forward.reals(some(tail.residual)).reals(&[array, row, row]);
    let mut arrays = vec![apart.x.clone(), apart.gain.clone(), apart.bias.clone()];
    arrays.extend([width; 2].map(zeros));
    arrays.extend(tail.residual.then(|| apart.residual.clone()));
    let read = arrays.len();
    arrays.extend([size, width, width].map(zeros));
    run(&forward, &mut arrays, body, &CONTEXT);
    let made = arrays.split_off(read);
    let y = norm_again(&forward, (&arrays, &made[1..]), body);
    assert_eq!(bits(&[y]), bits(&made[..1]), "{tail:?} {body:?}");
    let backward = call("batch_norm_backward").flag("relu", tail.relu);
    let backward = backward.reals(&[array, row, row, row]).reals(some(tail.relu));
    let backward = backward.reals(&[array, array, row, row, row, row]);
    let mut arrays = vec![apart.x.clone(), apart.gain.clone()];
    arrays.extend([made[1].clone(), made[2].clone()]);
    arrays.extend(tail.relu.then(|| made[0].clone()));
    arrays.push(apart.dy.clone());
    let read = arrays.len();
    arrays.extend([size, width, width, width, width].map(zeros));
    run(&backward, &mut arrays, body, &CONTEXT);
    made.into_iter().chain(arrays.split_off(read)).collect()
}

/// What backward makes where the norm says what of dy counts, which is made again.
fn again(apart: &Apart, rows: u64, columns: u64, body: Body) -> Vec<Array<f32>> {
    let (array, row): (&[u64], &[u64]) = (&[rows, columns], &[columns]);
    let call = call("batch_norm_backward").flag("relu", true).flag("again", true);
    let call = call.reals(&[array, row, row, row, row, array, array]).reals(&[row; 4]);
    let Apart { x, gain, bias, dy, made, .. } = apart;
    let [mean, variance] = [&made[1], &made[2]];
    let mut arrays = [x, gain, mean, variance, bias, dy].map(Clone::clone).to_vec();
    arrays.push(zeros((rows * columns) as usize));
    arrays.extend([columns as usize; 4].map(zeros));
    run(&call, &mut arrays, body, &CONTEXT);
    arrays.split_off(6)
}
