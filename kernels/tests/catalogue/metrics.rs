//! Metrics against their definition.

use crate::common::{Array, Body, Build, CONTEXT, call, run, sample::Draw};

fn accuracy(logits: &[f32], targets: &[i32], classes: u64) -> f32 {
    let rows = targets.len() as u64;
    let call = call("accuracy").real(&[rows, classes]).integers(&[rows]).real(&[1]);
    let mut arrays = [
        Array::Real(logits.to_vec()),
        Array::Integer(targets.to_vec()),
        Array::Real(vec![f32::NAN]),
    ];
    let mut share = [Body::Fast, Body::Plain].map(|body| {
        run(&call, &mut arrays, body, &CONTEXT);
        arrays[2].values()[0]
    });
    share.sort_by(f32::total_cmp);
    assert_eq!(share[0], share[1]);
    share[0]
}

/// The first index of the largest number, by the definition.
fn largest(row: &[f32]) -> usize {
    let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    row.iter().position(|x| *x == most).expect("a row has a largest number")
}

#[test]
fn accuracy_is_the_share_of_rows_whose_largest_logit_is_the_target() {
    for seed in 0..200 {
        let draw = &mut Draw::new(seed);
        let (rows, classes) = (1 + draw.below(20), 1 + draw.below(6));
        // Few different numbers, so that many rows have ties.
        let logits: Vec<f32> =
            (0..rows * classes).map(|_| draw.below(3) as f32 - 1.0).collect();
        let targets: Vec<i32> = (0..rows).map(|_| draw.below(classes) as i32).collect();
        let both = logits.chunks(classes as usize).zip(&targets);
        let right = both.filter(|(row, target)| largest(row) == **target as usize);
        let expected = (right.count() as f64 / rows as f64) as f32;
        assert_eq!(accuracy(&logits, &targets, classes), expected, "seed {seed}");
    }
}

#[test]
fn the_first_of_equal_logits_is_the_largest() {
    assert_eq!(accuracy(&[1.0, 1.0], &[0], 2), 1.0);
    assert_eq!(accuracy(&[1.0, 1.0], &[1], 2), 0.0);
    assert_eq!(accuracy(&[0.0, 2.0, 2.0, 7.0, 7.0, 1.0], &[1, 0], 3), 1.0);
}

#[test]
fn rows_with_something_that_is_no_number_do_not_count() {
    let nan = f32::NAN;
    for row in [[nan, 0.0, 1.0], [1.0, nan, 0.0], [0.0, 1.0, nan], [nan; 3]] {
        for target in 0..3 {
            assert_eq!(accuracy(&row, &[target], 3), 0.0, "{row:?} for {target}");
        }
    }
    assert_eq!(accuracy(&[f32::NEG_INFINITY; 2], &[0], 2), 1.0);
}

/// Rows whose target is the number of classes are neither right nor wrong, and others count as much as the
/// share of their example says.
#[test]
fn rows_that_do_not_count_are_left_out() {
    for seed in 0..50 {
        let draw = &mut Draw::new(seed);
        let (examples, rows, classes) =
            (1 + draw.below(3), 1 + draw.below(4), 1 + draw.below(5));
        let all = examples * rows;
        let logits: Vec<f32> = draw.normals((all * classes) as usize);
        let targets: Vec<i32> =
            (0..all).map(|_| draw.below(classes + 1) as i32).collect();
        let shares: Vec<f32> = (1..=examples).map(|share| share as f32 / 8.0).collect();
        let call = call("accuracy").flag("masked", true).real(&[examples, rows, classes]);
        let call = call.integers(&[examples, rows]).reals(&[&[examples], &[1]]);
        let each = logits.chunks(classes as usize).zip(&targets).enumerate();
        let right = each.filter(|(_, (row, target))| largest(row) == **target as usize);
        let right = right.map(|(i, _)| shares[i / rows as usize]);
        let expected: f32 = right.sum();
        for body in [Body::Fast, Body::Plain] {
            let mut arrays = [
                Array::Real(logits.clone()),
                Array::Integer(targets.clone()),
                Array::Real(shares.clone()),
                Array::Real(vec![f32::NAN]),
            ];
            run(&call, &mut arrays, body, &CONTEXT);
            assert_eq!(arrays[3].values(), [expected], "seed {seed}");
        }
    }
}
