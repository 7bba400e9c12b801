//! The loss of a linear classifier: its gradients are those of its loss, and however few rows are
//! together, the bits are those of a product, its loss and their gradients.

use crate::common::{
    Array, Body, Build, CONTEXT, call, evaluate, run,
    sample::{Draw, contents},
};
use roundelay_kernels::{Context, Kernel, leave_out_gradients};
use roundelay_schedule::{Bytes, Call, Float};

const NAME: &str = "linear_cross_entropy";
const ROWS: u64 = 7;
const CLASSES: u64 = 5;
const DEPTH: u64 = 3;

/// The call with this many rows together, and its gradients.
fn classifier(together: u64) -> Call {
    roomy(together, CLASSES)
}

/// The same with room for this many elements in each of these rows.
fn roomy(together: u64, room: u64) -> Call {
    let (x, weight): (&[u64], &[u64]) = (&[ROWS, DEPTH], &[CLASSES, DEPTH]);
    let call = call(NAME).flag("gradients", true).reals(&[x, weight]);
    let call = call.integers(&[ROWS]).reals(&[&[together, room], &[ROWS], &[1]]);
    call.reals(&[x, weight])
}

#[test]
fn gradients_are_those_of_the_loss() {
    for masked in [false, true] {
        let mut call = classifier(2);
        let mut arrays = contents::<f64>(&call, &mut Draw::new(4));
        let behind = usize::from(masked);
        if masked {
            call = call.flag("masked", true).real(&[ROWS]);
            let shares = call.operands.pop().expect("it was added");
            call.operands.insert(3, shares);
            arrays[2] = Array::Integer(vec![0, 5, 4, 5, 5, 2, 1]);
            let shares = (1..=ROWS).map(|row| row as f64 / 7.0).collect();
            arrays.insert(3, Array::Real(shares));
        }
        let after = evaluate(&call, arrays.clone());
        for (input, gradient) in [(0, 6 + behind), (1, 7 + behind)] {
            let found = after[gradient].values();
            for (i, found) in found.iter().enumerate() {
                let loss = |shift: f64| {
                    let mut arrays = arrays.clone();
                    let mut moved = arrays[input].values().to_vec();
                    moved[i] += shift;
                    arrays[input] = Array::Real(moved);
                    evaluate(&call, arrays)[5 + behind].values()[0]
                };
                let expected = (loss(1e-5) - loss(-1e-5)) / 2e-5;
                assert!((found - expected).abs() < 1e-9, "{found} for {expected}");
            }
        }
    }
}

/// A call on a choice of arrays.
fn apply(call: &Call, places: &[usize], arrays: &mut [Array<f32>], context: &Context) {
    let mut own: Vec<Array<f32>> = places.iter().map(|at| arrays[*at].clone()).collect();
    run(call, &mut own, Body::Fast, context);
    for (place, array) in places.iter().zip(own) {
        arrays[*place] = array;
    }
}

/// All rows at once, by the kernels that it stands for.
fn one_by_one(arrays: &mut [Array<f32>], context: &Context) {
    let (x, weight): (&[u64], &[u64]) = (&[ROWS, DEPTH], &[CLASSES, DEPTH]);
    let logits: &[u64] = &[ROWS, CLASSES];
    arrays[3] = Array::Real(vec![f32::NAN; (ROWS * CLASSES) as usize]);
    let product = call("matmul").flag("transpose_b", true).reals(&[x, weight, logits]);
    apply(&product, &[0, 1, 3], arrays, context);
    let loss = call("cross_entropy").real(logits).integers(&[ROWS]);
    apply(&loss.reals(&[&[ROWS], &[1]]), &[3, 2, 4, 5], arrays, context);
    let slopes = call("cross_entropy_backward").real(logits).integers(&[ROWS]);
    apply(&slopes.reals(&[&[ROWS], logits]), &[3, 2, 4, 3], arrays, context);
    let to_x = call("matmul").reals(&[logits, weight, x]);
    apply(&to_x, &[3, 1, 6], arrays, context);
    let to_weight = call("matmul").flag("transpose_a", true).reals(&[logits, x, weight]);
    apply(&to_weight, &[3, 0, 7], arrays, context);
}

fn bits(array: &Array<f32>) -> Vec<u32> {
    array.values().iter().map(|value| value.to_bits()).collect()
}

/// Nobody reads what is in the room of logits before, and no result depends on how much there is.
#[test]
fn room_behind_logits_changes_no_bit() {
    for (body, together) in [(Body::Fast, 3), (Body::Plain, 3), (Body::Fast, ROWS)] {
        let start = contents::<f32>(&classifier(together), &mut Draw::new(6));
        let results = |room: u64| {
            let mut arrays = start.clone();
            arrays[3] = Array::Real(vec![f32::NAN; (together * room) as usize]);
            run(&roomy(together, room), &mut arrays, body, &CONTEXT);
            [4, 5, 6, 7].map(|operand| bits(&arrays[operand]))
        };
        let dense = results(CLASSES);
        assert!(dense.iter().flatten().all(|bits| !f32::from_bits(*bits).is_nan()));
        for room in [CLASSES + 1, 8, 64] {
            assert_eq!(results(room), dense, "{body:?}: {together} rows of {room}");
        }
    }
}

#[test]
fn a_row_without_room_for_all_classes_is_refused() {
    let message = Kernel::parse(&roomy(2, CLASSES - 1)).unwrap_err();
    assert!(message.contains("`logits` has 4 elements, but must have room for 5"));
    assert!(Kernel::parse(&roomy(ROWS + 1, CLASSES + 3)).is_err(), "rows of x are fewer");
    for room in [CLASSES, CLASSES + 1, 64] {
        let kernel = Kernel::parse(&roomy(2, room)).expect("there is room");
        let sizes: Vec<_> = kernel.sizes(Float::F32).collect();
        assert_eq!(sizes[3], Bytes(2 * room * 4));
    }
}

#[test]
fn bits_are_those_of_the_kernels_one_by_one() {
    for (together, threads) in [(1, 1), (2, 3), (3, 1), (4, 2), (7, 1)] {
        let call = classifier(together);
        let context = Context { threads, ..CONTEXT };
        let start = contents::<f32>(&call, &mut Draw::new(together));
        let (mut chunks, mut whole) = (start.clone(), start);
        run(&call, &mut chunks, Body::Fast, &context);
        one_by_one(&mut whole, &context);
        for (operand, what) in [(4, "lse"), (5, "loss"), (6, "dx"), (7, "dweight")] {
            let [chunks, whole] = [&chunks, &whole].map(|arrays| bits(&arrays[operand]));
            assert_eq!(chunks, whole, "{what} of {together} rows together");
        }
    }
}

/// What is looked at out of training costs no gradients.
#[test]
fn the_loss_is_the_same_without_gradients() {
    let call = classifier(3);
    let mut alone = call.clone();
    leave_out_gradients(&mut alone);
    let start = contents::<f32>(&call, &mut Draw::new(9));
    for body in [Body::Fast, Body::Plain] {
        let (mut whole, mut loss) = (start.clone(), start[..6].to_vec());
        run(&call, &mut whole, body, &CONTEXT);
        run(&alone, &mut loss, body, &CONTEXT);
        assert_eq!(loss[..3], start[..3], "it reads these alone");
        assert_eq!(loss[4..], whole[4..6]);
        assert_ne!(loss[5], start[5]);
    }
    let left = alone.clone();
    leave_out_gradients(&mut alone);
    assert_eq!(alone, left, "it makes none");
}
