//! What holds of normalisations besides their derivatives: evaluation, fusion, precision.

mod common;

use common::{Array, Body, Build, CONTEXT, call, run, sample::Draw};
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

/// y = max(batch_norm(x) + residual, 0) in one kernel and in three, forward and back.
#[test]
fn fused_batch_norm_is_the_sequence_of_its_parts() {
    for (rows, columns) in [(2, 3), (700, 70), (40_000, 8)] {
        for residual in [false, true] {
            for body in BODIES {
                let apart = Apart::run(rows, columns, residual, body);
                let fused = fused(&apart, rows, columns, residual, body);
                for (index, (fused, apart)) in fused.iter().zip(&apart.made).enumerate() {
                    let same = fused.values().iter().zip(apart.values());
                    let same = same.map(|(a, b)| a.to_bits() == b.to_bits());
                    assert!(same.into_iter().all(|same| same), "{body:?} result {index}");
                }
            }
        }
    }
}

/// The operations one after another, with what goes in and what comes out.
struct Apart {
    x: Array<f32>,
    gain: Array<f32>,
    bias: Array<f32>,
    residual: Array<f32>,
    dy: Array<f32>,
    /// y, mean, variance, dx, dgain, dbias, dresidual.
    made: Vec<Array<f32>>,
}

impl Apart {
    fn run(rows: u64, columns: u64, residual: bool, body: Body) -> Self {
        let draw = &mut Draw::new(rows);
        let (size, width) = ((rows * columns) as usize, columns as usize);
        let [x, added, dy] = [(); 3].map(|()| Array::Real(draw.normals(size)));
        let [gain, bias] = [(); 2].map(|()| Array::Real(draw.normals(width)));
        let (array, row): (&[u64], &[u64]) = (&[rows, columns], &[columns]);
        let given = [x.clone(), gain.clone(), bias.clone()];
        let mut norm: Vec<_> = given.into_iter().chain([width; 2].map(zeros)).collect();
        norm.extend([size, width, width].map(zeros));
        run(&batch_norm(rows, columns), &mut norm, body, &CONTEXT);
        let mut sum = vec![norm[5].clone(), added.clone(), zeros(size)];
        run(&call("add").reals(&[array; 3]), &mut sum, body, &CONTEXT);
        let before = if residual { sum[2].clone() } else { norm[5].clone() };
        let mut y = vec![before, zeros(size)];
        run(&call("relu").reals(&[array; 2]), &mut y, body, &CONTEXT);
        let mut open = vec![y[1].clone(), dy.clone(), zeros(size)];
        run(&call("relu_backward").reals(&[array; 3]), &mut open, body, &CONTEXT);
        let back = call("batch_norm_backward")
            .reals(&[array, row, row, row, array, array, row, row]);
        let mut parts = vec![x.clone(), gain.clone(), norm[6].clone(), norm[7].clone()];
        parts.push(open[2].clone());
        parts.extend([size, width, width].map(zeros));
        run(&back, &mut parts, body, &CONTEXT);
        let made = [&y[1], &norm[6], &norm[7], &parts[5], &parts[6], &parts[7], &open[2]];
        let made = made.map(Clone::clone).to_vec();
        Self { x, gain, bias, residual: added, dy, made }
    }
}

fn fused(
    apart: &Apart,
    rows: u64,
    columns: u64,
    residual: bool,
    body: Body,
) -> Vec<Array<f32>> {
    let (size, width) = ((rows * columns) as usize, columns as usize);
    let (array, row): (&[u64], &[u64]) = (&[rows, columns], &[columns]);
    let build = |name| call(name).flag("relu", true).flag("residual", residual);
    let extra = &[array][..usize::from(residual)];
    let forward = build("batch_norm").reals(&[array, row, row, row, row]);
    let forward = forward.reals(extra).reals(&[array, row, row]);
    let mut arrays = vec![apart.x.clone(), apart.gain.clone(), apart.bias.clone()];
    arrays.extend([width; 2].map(zeros));
    arrays.extend(residual.then(|| apart.residual.clone()));
    arrays.extend([size, width, width].map(zeros));
    run(&forward, &mut arrays, body, &CONTEXT);
    let made = arrays[5 + extra.len()..].to_vec();
    let backward = build("batch_norm_backward").reals(&[array, row, row, row, array]);
    let backward = backward.reals(&[array, array, row, row]).reals(extra);
    let mut arrays = vec![apart.x.clone(), apart.gain.clone()];
    arrays.extend([made[1].clone(), made[2].clone(), made[0].clone(), apart.dy.clone()]);
    arrays.extend([size, width, width].map(zeros));
    arrays.extend(residual.then(|| zeros(size)));
    run(&backward, &mut arrays, body, &CONTEXT);
    made.into_iter().chain(arrays.split_off(6)).collect()
}
