//! What tests of norms share whose rows or images several parts have.

use crate::common::{Array, Body, Build, CONTEXT, run, sample::Draw};
use roundelay_schedule::Call;

/// x, gain, bias and dy of a norm, around a mean that is far away.
pub(crate) struct Case {
    pub(crate) x: Vec<f64>,
    pub(crate) gain: Vec<f64>,
    pub(crate) bias: Vec<f64>,
    pub(crate) dy: Vec<f64>,
}

impl Case {
    /// Of this many numbers, in rows of so many columns.
    pub(crate) fn new(seed: u64, numbers: usize, columns: usize) -> Self {
        let draw = &mut Draw::new(seed);
        let mut x: Vec<f64> = draw.normals(numbers);
        x.iter_mut().for_each(|x| *x += 3.0);
        let [gain, bias] = [(); 2].map(|()| draw.normals(columns));
        Self { x, gain, bias, dy: draw.normals(numbers) }
    }
}

/// The last arrays, of these sizes, that a call makes of those before; `shape` has what a call takes an array
/// of this many numbers for.
pub(crate) fn made(
    (call, body): (Call, Body),
    shape: impl Fn(usize) -> Vec<u64>,
    given: &[&[f64]],
    sizes: &[usize],
) -> Vec<Vec<f64>> {
    let unset = sizes.iter().map(|size| vec![f64::NAN; *size]);
    let arrays = given.iter().map(|array| array.to_vec()).chain(unset);
    let mut arrays: Vec<Array<f64>> = arrays.map(Array::Real).collect();
    let call = arrays.iter().fold(call, |call, array| {
        let shape = shape(array.values().len());
        call.real(&shape)
    });
    run(&call, &mut arrays, body, &CONTEXT);
    let made = arrays.split_off(given.len());
    made.iter().map(|array| array.values().to_vec()).collect()
}

/// What parts bring, added up.
pub(crate) fn total(parts: &[Vec<f64>]) -> Vec<f64> {
    let sum = |index: usize| parts.iter().map(|part| part[index]).sum();
    (0..parts[0].len()).map(sum).collect()
}

/// Numbers differ by rounding alone.
pub(crate) fn assert_near(found: &[f64], expected: &[f64], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (found, expected) in found.iter().zip(expected) {
        let near = (found - expected).abs() <= 1e-12 * (1.0 + expected.abs());
        assert!(near, "{what}: {found} for {expected}");
    }
}
