//! Every backward kernel against central differences of its forward kernel, in f64.

use crate::common::{Array, Body, Build, CONTEXT, call, evaluate, run, sample::Draw};
use roundelay_schedule::Call;

/// Largest allowed error, relative to the largest derivative.
const TOLERANCE: f64 = 1e-6;

/// d f / d x by central differences.
fn differences(x: &[f64], f: impl Fn(&[f64]) -> f64) -> Vec<f64> {
    let slope = |i: usize| {
        let width = 1e-5;
        let at = |shift: f64| {
            let mut moved = x.to_vec();
            moved[i] += shift;
            f(&moved)
        };
        (at(width) - at(-width)) / (2.0 * width)
    };
    (0..x.len()).map(slope).collect()
}

fn assert_close(found: &[f64], expected: &[f64], what: &str) {
    assert_eq!(found.len(), expected.len());
    let scale = expected.iter().fold(1e-3f64, |most, value| most.max(value.abs()));
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        let error = (found - expected).abs() / scale;
        assert!(error <= TOLERANCE, "{what}[{i}]: {found} for {expected}");
    }
}

fn dot(left: &[f64], right: &[f64]) -> f64 {
    left.iter().zip(right).map(|(left, right)| left * right).sum()
}

/// A forward call with its inputs; `output` is the operand whose weighted sum is the loss.
struct Forward {
    call: Call,
    arrays: Vec<Array<f64>>,
    output: usize,
    weights: Vec<f64>,
}

impl Forward {
    fn new(call: Call, output: usize, draw: &mut Draw) -> Self {
        let arrays: Vec<Array<f64>> = crate::common::sample::contents(&call, draw);
        let weights = draw.normals(arrays[output].values().len());
        Self { call, arrays, output, weights }
    }
    fn run(&self) -> Vec<Array<f64>> {
        evaluate(&self.call, self.arrays.clone())
    }
    fn slopes(&self, input: usize) -> Vec<f64> {
        differences(self.arrays[input].values(), |x| {
            let mut arrays = self.arrays.clone();
            arrays[input] = Array::Real(x.to_vec());
            dot(evaluate(&self.call, arrays)[self.output].values(), &self.weights)
        })
    }
    fn weights(&self) -> Array<f64> {
        Array::Real(self.weights.clone())
    }
}

fn unwritten(length: usize) -> Array<f64> {
    Array::Real(vec![f64::NAN; length])
}

#[test]
fn activations() {
    let shape: &[u64] = &[3, 5];
    for (name, kept) in
        [("relu", 1), ("gelu", 0), ("gelu_tanh", 0), ("silu", 0), ("softmax", 1)]
    {
        let forward = Forward::new(
            call(name).reals(&[shape; 2]),
            1,
            &mut Draw::new(name.len() as u64),
        );
        let backward = call(&format!("{name}_backward")).reals(&[shape; 3]);
        let inputs = vec![forward.run()[kept].clone(), forward.weights(), unwritten(15)];
        let found = evaluate(&backward, inputs);
        assert_close(found[2].values(), &forward.slopes(0), name);
    }
}

#[test]
fn dropout() {
    let shape: &[u64] = &[4, 50];
    let build =
        |name| call(name).number("rate", 0.4).integer("operator", 2).reals(&[shape; 2]);
    let forward = Forward::new(build("dropout"), 1, &mut Draw::new(4));
    let found =
        evaluate(&build("dropout_backward"), vec![forward.weights(), unwritten(200)]);
    assert_close(found[1].values(), &forward.slopes(0), "dropout");
}

#[test]
fn layer_norm() {
    let (x, row, rows): (&[u64], &[u64], &[u64]) = (&[4, 6], &[6], &[4]);
    let call_forward = call("layer_norm").number("epsilon", 0.5);
    let call_forward = call_forward.reals(&[x, row, row, x, rows, rows]);
    let forward = Forward::new(call_forward, 3, &mut Draw::new(5));
    let after = forward.run();
    let kept = |index: usize| after[index].clone();

    let backward = call("layer_norm_backward");
    let backward = backward.reals(&[x, row, rows, rows, x, x, row, row]);
    let inputs = vec![kept(0), kept(1), kept(4), kept(5), forward.weights()];
    hold_norm(&forward, backward, inputs);

    let parameters = call("layer_norm_parameters").reals(&[x, rows, rows, x, row, row]);
    let inputs =
        vec![kept(0), kept(4), kept(5), forward.weights(), unwritten(6), unwritten(6)];
    let found = evaluate(&parameters, inputs);
    assert_close(found[4].values(), &forward.slopes(1), "dgain");
    assert_close(found[5].values(), &forward.slopes(2), "dbias");
}

/// A forward norm and what its backward kernel reads and makes: the gradients of operands 0, 1
/// and, where there are three, 2. What it makes besides.
fn hold_norm(
    forward: &Forward,
    backward: Call,
    kept: Vec<Array<f64>>,
) -> Vec<Array<f64>> {
    let read = kept.len();
    let lengths = backward.operands[read..].iter();
    let lengths = lengths.map(|operand| operand.elements().unwrap_or(0) as usize);
    let inputs = kept.into_iter().chain(lengths.map(unwritten)).collect();
    let mut found = evaluate(&backward, inputs);
    let differentiated = found[read..].iter().enumerate().take(3);
    for (input, found) in differentiated {
        let name = format!("{} operand {input}", backward.kernel);
        assert_close(found.values(), &forward.slopes(input), &name);
    }
    found.split_off(found.len().min(read + 3))
}

#[test]
fn batch_norm() {
    let (x, row): (&[u64], &[u64]) = (&[2, 4, 3], &[3]);
    // What says where it is open: nothing, y, or the bias.
    for said in [None, Some((x, 5)), Some((row, 2))] {
        let build = |name| call(name).flag("relu", said.is_some());
        let forward = build("batch_norm").reals(&[x, row, row, row, row, x, row, row]);
        let forward = Forward::new(forward, 5, &mut Draw::new(31));
        let after = forward.run();
        let again = said.is_some_and(|(_, operand)| operand == 2);
        let backward = build("batch_norm_backward").flag("again", again);
        let backward = backward.reals(&[x, row, row, row]);
        let backward = said.iter().fold(backward, |call, (shape, _)| call.real(shape));
        let backward = backward.reals(&[x, x, row, row, row, row]);
        let kept = [0, 1, 6, 7].into_iter().chain(said.map(|(_, operand)| operand));
        let kept = kept.map(|index: usize| after[index].clone());
        let inputs = kept.chain([forward.weights()]).collect();
        let rest = hold_norm(&forward, backward, inputs);
        let [mean, variance] = [6, 7].map(|index: usize| after[index].values());
        let unbiased: Vec<f64> = variance.iter().map(|v| v * 8.0 / 7.0).collect();
        assert_close(rest[0].values(), mean, "mean");
        assert_close(rest[1].values(), &unbiased, "variance");
    }
}

#[test]
fn group_norm() {
    let (x, row): (&[u64], &[u64]) = (&[2, 4, 6], &[6]);
    for groups in [1, 2, 6] {
        let statistics: &[u64] = &[2, groups];
        let build = |name| call(name).integer("groups", groups as i64);
        let forward =
            build("group_norm").reals(&[x, row, row, x, statistics, statistics]);
        let forward = Forward::new(forward, 3, &mut Draw::new(32));
        let after = forward.run();
        let backward = build("group_norm_backward")
            .reals(&[x, row, statistics, statistics, x, x, row, row]);
        let kept = [0, 1, 4, 5].map(|index| after[index].clone());
        let inputs = kept.into_iter().chain([forward.weights()]).collect();
        hold_norm(&forward, backward, inputs);
    }
}

#[test]
fn rms_norm() {
    let (x, row, rows): (&[u64], &[u64], &[u64]) = (&[4, 6], &[6], &[4]);
    let forward = call("rms_norm").number("epsilon", 0.5).reals(&[x, row, x, rows]);
    let forward = Forward::new(forward, 2, &mut Draw::new(33));
    let after = forward.run();
    let backward = call("rms_norm_backward").reals(&[x, row, rows, x, x, row]);
    let kept = [0, 1, 3].map(|index| after[index].clone());
    let inputs = kept.into_iter().chain([forward.weights()]).collect();
    hold_norm(&forward, backward, inputs);
}

#[test]
fn embedding() {
    let tokens = call("embedding").integers(&[7]).reals(&[&[4, 3], &[7, 3]]);
    let forward = Forward::new(tokens, 2, &mut Draw::new(6));
    let backward = call("embedding_backward").integers(&[7]).reals(&[&[7, 3], &[4, 3]]);
    let inputs = vec![forward.arrays[0].clone(), forward.weights(), unwritten(12)];
    let found = evaluate(&backward, inputs);
    assert_close(found[2].values(), &forward.slopes(1), "dtable");
}

#[test]
fn attention() {
    for (key_heads, causal, window, scale, cap) in [
        (4, false, 9, 1.0, 100.0),
        (4, true, 9, 0.7, 0.5),
        (2, true, 9, 2.0, 2.0),
        (1, true, 2, 0.7, 1.0),
        (2, false, 2, 1.5, 0.3),
    ] {
        let (x, lse): (&[u64], &[u64]) = (&[2, 5, 8], &[2, 4, 5]);
        let keys: &[u64] = &[2, 5, 2 * key_heads];
        let build = |name| {
            let call = call(name).integer("heads", 4).integer("window", window);
            let call = call.integer("key_heads", key_heads as i64);
            let call = call.number("scale", scale).number("cap", cap);
            call.flag("causal", causal).reals(&[x, keys, keys, x, lse])
        };
        let forward = Forward::new(build("attention"), 3, &mut Draw::new(7));
        let backward = build("attention_backward").reals(&[x, x, keys, keys]);
        let mut inputs = forward.run();
        let unwritten = |shape: &[u64]| unwritten(shape.iter().product::<u64>() as usize);
        inputs.extend([
            forward.weights(),
            unwritten(x),
            unwritten(keys),
            unwritten(keys),
        ]);
        let found = evaluate(&backward, inputs);
        for (input, name) in ["dq", "dk", "dv"].into_iter().enumerate() {
            assert_close(found[6 + input].values(), &forward.slopes(input), name);
        }
    }
}

#[test]
fn soft_cap() {
    let shape: &[u64] = &[3, 5];
    for cap in [0.5, 3.0] {
        let build = |name| call(name).number("cap", cap);
        let forward = build("soft_cap").reals(&[shape; 2]);
        let forward = Forward::new(forward, 1, &mut Draw::new(14));
        let y = forward.run()[1].clone();
        assert!(y.values().iter().all(|y| y.abs() < cap));
        let inputs = vec![y, forward.weights(), unwritten(15)];
        let found = evaluate(&build("soft_cap_backward").reals(&[shape; 3]), inputs);
        assert_close(found[2].values(), &forward.slopes(0), "soft_cap");
    }
}

/// Each of the three products of stored scores is the derivative of the others.
#[test]
fn stored_scores() {
    let (heads, key_heads, scale) = (4, 2, 0.7);
    let (x, keys, grid): (&[u64], &[u64], &[u64]) =
        (&[2, 3, 8], &[2, 3, 4], &[2, 4, 3, 3]);
    let build = |name, operands: [&[u64]; 3]| {
        let call = call(name).integer("heads", heads).integer("key_heads", key_heads);
        call.number("scale", scale).reals(&operands)
    };
    let hold = |forward: &Forward, backward: Call, kept: usize, input: usize| {
        let length = forward.arrays[input].values().len();
        let slopes = match &*backward.kernel {
            "scores" => [forward.weights(), forward.arrays[kept].clone()],
            _ if forward.call.kernel == "scores" => {
                [forward.weights(), forward.arrays[kept].clone()]
            }
            _ => [forward.arrays[kept].clone(), forward.weights()],
        };
        let found = evaluate(&backward, [&slopes[..], &[unwritten(length)]].concat());
        let name = format!("{} of {}", backward.kernel, forward.call.kernel);
        assert_close(found[2].values(), &forward.slopes(input), &name);
    };
    let forward = Forward::new(build("scores", [x, keys, grid]), 2, &mut Draw::new(8));
    hold(&forward, build("mix", [grid, keys, x]), 1, 0);
    hold(&forward, build("mix_backward", [grid, x, keys]), 0, 1);
    let forward = Forward::new(build("mix", [grid, keys, x]), 2, &mut Draw::new(9));
    hold(&forward, build("scores", [x, keys, grid]), 1, 0);
    hold(&forward, build("mix_backward", [grid, x, keys]), 0, 1);
}

#[test]
fn rotary() {
    for turned in [4, 2] {
        let call = call("rotary").integer("heads", 2).number("base", 50.0);
        let call = call.integer("turned", turned);
        hold_rotary(turned, &call);
        let divided = call.number("factor", 3.0);
        hold_rotary(turned, &divided);
        let long = divided.integer("original", 5).number("low", 0.5).number("high", 2.0);
        hold_rotary(turned, &long);
    }
}

fn hold_rotary(turned: i64, call: &Call) {
    let shape: &[u64] = &[2, 3, 8];
    let build = |inverse| {
        let call = call.clone();
        call.flag("inverse", inverse).reals(&[shape; 2])
    };
    let forward = Forward::new(build(false), 1, &mut Draw::new(10));
    let found = evaluate(&build(true), vec![forward.weights(), unwritten(48)]);
    assert_close(found[1].values(), &forward.slopes(0), "dx");
    let lengths = |values: &[f64]| -> Vec<f64> {
        values.chunks(8).map(|row| dot(row, row)).collect()
    };
    let after = forward.run();
    let [x, y] = [0, 1].map(|index| after[index].values());
    assert_close(&lengths(y), &lengths(x), "turning keeps lengths");
    for (x, y) in x.chunks(4).zip(y.chunks(4)) {
        assert_eq!(x[turned as usize..], y[turned as usize..]);
    }
}

#[test]
fn slice() {
    let (x, part): (&[u64], &[u64]) = (&[2, 5, 3], &[2, 2, 3]);
    let forward = call("slice").integer("first", 2).reals(&[x, part]);
    let forward = Forward::new(forward, 1, &mut Draw::new(11));
    let backward = call("slice_backward").integer("first", 2).reals(&[part, x]);
    let found = evaluate(&backward, vec![forward.weights(), unwritten(30)]);
    assert_close(found[1].values(), &forward.slopes(0), "dx");
}

#[test]
fn convolution() {
    let (x, weight, y): (&[u64], &[u64], &[u64]) =
        (&[2, 5, 4, 4], &[6, 3, 2, 2], &[2, 3, 3, 6]);
    let build =
        |name| call(name).integer("stride", 2).integer("padding", 1).integer("groups", 2);
    let conv = build("conv2d").reals(&[x, weight, y]);
    let forward = Forward::new(conv, 2, &mut Draw::new(12));
    let (input, weights) = (forward.arrays[0].clone(), forward.arrays[1].clone());
    let backward = build("conv2d_backward").reals(&[y, weight, x]);
    let found = evaluate(&backward, vec![forward.weights(), weights, unwritten(160)]);
    assert_close(found[2].values(), &forward.slopes(0), "dx");
    let backward = build("conv2d_weights").reals(&[x, y, weight]);
    let found = evaluate(&backward, vec![input, forward.weights(), unwritten(72)]);
    assert_close(found[2].values(), &forward.slopes(1), "dweight");
}

#[test]
fn pooling() {
    let (x, y): (&[u64], &[u64]) = (&[2, 5, 4, 3], &[2, 3, 2, 3]);
    let build =
        |name| call(name).integer("size", 3).integer("stride", 2).integer("padding", 1);
    let max = build("max_pool").reals(&[x, y]);
    let forward = Forward::new(max, 1, &mut Draw::new(13));
    let inputs = vec![forward.arrays[0].clone(), forward.weights(), unwritten(120)];
    let found = evaluate(&build("max_pool_backward").reals(&[x, y, x]), inputs);
    assert_close(found[2].values(), &forward.slopes(0), "max");
    let average = build("avg_pool").reals(&[x, y]);
    let forward = Forward::new(average, 1, &mut Draw::new(14));
    let inputs = vec![forward.weights(), unwritten(120)];
    let found = evaluate(&build("avg_pool_backward").reals(&[y, x]), inputs);
    assert_close(found[1].values(), &forward.slopes(0), "average");
    let global = call("global_pool").reals(&[x, &[2, 3]]);
    let forward = Forward::new(global, 1, &mut Draw::new(15));
    let inputs = vec![forward.weights(), unwritten(120)];
    let found = evaluate(&call("global_pool_backward").reals(&[&[2, 3], x]), inputs);
    assert_close(found[1].values(), &forward.slopes(0), "global");
}

#[test]
fn the_first_of_equals_takes_the_gradient() {
    let (x, y): (&[u64], &[u64]) = (&[1, 2, 2, 17], &[1, 1, 1, 17]);
    let call = call("max_pool_backward")
        .integer("size", 2)
        .integer("stride", 2)
        .integer("padding", 0)
        .reals(&[x, y, x]);
    let inputs = || vec![Array::Real(vec![1.0; 68]), Array::Real(vec![3.0; 17])];
    let expected: Vec<f64> = [vec![3.0; 17], vec![0.0; 51]].concat();
    for body in [Body::Fast, Body::Plain] {
        let mut arrays = [inputs(), vec![unwritten(68)]].concat();
        run(&call, &mut arrays, body, &CONTEXT);
        assert_eq!(arrays[2].values(), expected);
    }
}

#[test]
fn losses() {
    let entropy = call("cross_entropy").real(&[4, 5]).integers(&[4]);
    let mut forward = Forward::new(entropy.reals(&[&[4], &[1]]), 3, &mut Draw::new(8));
    forward.weights = vec![1.0];
    let after = forward.run();
    let backward = call("cross_entropy_backward").real(&[4, 5]).integers(&[4]);
    let inputs =
        vec![after[0].clone(), after[1].clone(), after[2].clone(), unwritten(20)];
    let found = evaluate(&backward.reals(&[&[4], &[4, 5]]), inputs);
    assert_close(found[3].values(), &forward.slopes(0), "dlogits");

    let mse = call("mse").reals(&[&[4, 5], &[4, 5], &[1]]);
    let mut forward = Forward::new(mse, 2, &mut Draw::new(9));
    forward.weights = vec![1.0];
    let shape: &[u64] = &[20];
    for (input, sign) in [(0, 1), (1, -1)] {
        let backward = call("mse_backward").integer("sign", sign).reals(&[shape; 3]);
        let inputs =
            vec![forward.arrays[0].clone(), forward.arrays[1].clone(), unwritten(20)];
        let found = evaluate(&backward, inputs);
        assert_close(found[2].values(), &forward.slopes(input), "mse");
    }
}

/// Rows whose target is the number of classes do not count, others as much as the share of their
/// example says; without others nothing is learned.
#[test]
fn masked_losses() {
    for targets in [[3, 5, 0, 5], [1, 2, 3, 4], [5; 4]] {
        let build = |name| call(name).real(&[4, 5]).integers(&[4]);
        let forward = build("masked_cross_entropy").reals(&[&[2], &[4], &[1]]);
        let mut forward = Forward::new(forward, 4, &mut Draw::new(8));
        forward.arrays[2] = Array::Real(vec![0.25, 1.5]);
        (forward.arrays[1], forward.weights) =
            (Array::Integer(targets.to_vec()), vec![1.0]);
        let after = forward.run();
        let logits = after[0].values().chunks(5);
        let rows = targets.iter().zip(logits).zip([0.25, 0.25, 1.5, 1.5]);
        let losses = rows.filter(|((target, _), _)| **target < 5);
        let losses = losses.map(|((target, row), share)| {
            let sum: f64 = row.iter().map(|x| x.exp()).sum();
            share * (sum.ln() - row[*target as usize])
        });
        let expected: f64 = losses.sum();
        assert!((after[4].values()[0] - expected).abs() < 1e-12, "{targets:?}");
        let backward = build("masked_cross_entropy_backward");
        let backward = backward.reals(&[&[2], &[4], &[4, 5]]);
        let inputs = [&after[..4], &[unwritten(20)]].concat();
        let found = evaluate(&backward, inputs);
        assert_close(found[4].values(), &forward.slopes(0), "dlogits");
    }
}

#[test]
fn an_affine_map_has_the_gradients_of_its_weight_and_bias() {
    let draw = &mut Draw::new(12);
    let map = call("affine").reals(&[&[4, 3], &[5, 3], &[5], &[4, 5]]);
    let forward = Forward::new(map, 3, draw);
    let gradients =
        call("affine_gradients").reals(&[&[4, 5], &[4, 3], &[5, 3]]).real(&[5]);
    let x = forward.arrays[0].clone();
    let arrays = vec![forward.weights(), x, unwritten(15), unwritten(5)];
    let found = evaluate(&gradients, arrays);
    assert_close(found[2].values(), &forward.slopes(1), "dweight");
    assert_close(found[3].values(), &forward.slopes(2), "dbias");
}

#[test]
fn products_and_sums_are_their_own_transposes() {
    let draw = &mut Draw::new(10);
    let forward =
        Forward::new(call("matmul").reals(&[&[4, 3], &[3, 5], &[4, 5]]), 2, draw);
    let (a, b) = (forward.arrays[0].clone(), forward.arrays[1].clone());
    let to_a =
        call("matmul").flag("transpose_b", true).reals(&[&[4, 5], &[3, 5], &[4, 3]]);
    let found = evaluate(&to_a, vec![forward.weights(), b, unwritten(12)]);
    assert_close(found[2].values(), &forward.slopes(0), "da");
    let to_b =
        call("matmul").flag("transpose_a", true).reals(&[&[4, 3], &[4, 5], &[3, 5]]);
    let found = evaluate(&to_b, vec![a, forward.weights(), unwritten(15)]);
    assert_close(found[2].values(), &forward.slopes(1), "db");

    let forward = Forward::new(call("add").reals(&[&[4, 3], &[3], &[4, 3]]), 2, draw);
    let found = evaluate(
        &call("sum_rows").reals(&[&[4, 3], &[3]]),
        vec![forward.weights(), unwritten(3)],
    );
    assert_close(found[1].values(), &forward.slopes(1), "db of a sum");

    let forward =
        Forward::new(call("multiply").reals(&[&[4, 3], &[3], &[4, 3]]), 2, draw);
    let (a, b) = (forward.arrays[0].clone(), forward.arrays[1].clone());
    let found = evaluate(
        &call("multiply_sum_rows").reals(&[&[4, 3], &[4, 3], &[3]]),
        vec![a, forward.weights(), unwritten(3)],
    );
    assert_close(found[2].values(), &forward.slopes(1), "db of a product");
    let found = evaluate(
        &call("multiply").reals(&[&[4, 3], &[3], &[4, 3]]),
        vec![forward.weights(), b, unwritten(12)],
    );
    assert_close(found[2].values(), &forward.slopes(0), "da of a product");
}
