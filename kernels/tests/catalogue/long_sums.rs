//! Sums of losses over more numbers than a chain in the element type can count.

use crate::common::{Array, Body, Build, CONTEXT, call, run};

const COUNT: usize = 100_000;
/// Ones that are added to it in f32 are lost.
const LARGE: f32 = 16_777_216.0;

fn assert_near(found: f32, expected: f64) {
    let error = (f64::from(found) - expected).abs() / expected;
    assert!(error < 1e-4, "{found} for {expected}");
}

#[test]
fn squares_of_small_distances_count_beside_a_large_one() {
    let shape: &[u64] = &[COUNT as u64];
    let call = call("mse").reals(&[shape, shape, &[1]]);
    let mut a = vec![1.0f32; COUNT];
    a[0] = LARGE.sqrt();
    let expected = (f64::from(LARGE) + (COUNT - 1) as f64) / COUNT as f64;
    for body in [Body::Fast, Body::Plain] {
        let b = vec![0.0; COUNT];
        let mut arrays = [a.clone(), b, vec![f32::NAN]].map(Array::Real);
        run(&call, &mut arrays, body, &CONTEXT);
        assert_near(arrays[2].values()[0], expected);
    }
}

#[test]
fn small_losses_count_beside_a_large_one() {
    let (shape, rows): (&[u64], &[u64]) = (&[COUNT as u64, 2], &[COUNT as u64]);
    let call = call("cross_entropy").real(shape).integers(rows).reals(&[rows, &[1]]);
    let mut logits = vec![0.0f32; 2 * COUNT];
    logits[1] = LARGE;
    let small = (COUNT - 1) as f64 * std::f64::consts::LN_2;
    let expected = (f64::from(LARGE) + small) / COUNT as f64;
    for body in [Body::Fast, Body::Plain] {
        let mut arrays = [
            Array::Real(logits.clone()),
            Array::Integer(vec![0; COUNT]),
            Array::Real(vec![f32::NAN; COUNT]),
            Array::Real(vec![f32::NAN]),
        ];
        run(&call, &mut arrays, body, &CONTEXT);
        assert_near(arrays[3].values()[0], expected);
    }
}
