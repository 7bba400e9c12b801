//! Every operation's backward against central differences in f64, through the routines of
//! stages, with the plain kernels.

mod attention;
mod coverage;
mod halves;
mod rectified;
mod skips;

use crate::support::{
    build::{Build, Numbers, fixed, per_example},
    machine::{Machine, context},
    random::{STRETCHES, random_model},
};
use attention::{
    attention_of_one_tensor, attention_with_and_without_mask,
    attention_with_scaled_and_capped_scores, attention_with_shared_key_heads_and_windows,
    open_attention, products_of_stored_scores, rotary_positions,
    stored_scores_with_and_without_mask,
};
use roundelay_codegen::{Stages, stages};
use roundelay_dsl::{
    Chunks, Extent, Masked, Model, Operation, Sliced, Source, Still, Turning,
};
use roundelay_schedule::{Float, Id, Parameter, Role, Stage, Treatment};

const EXAMPLES: u64 = 2;
const STEP: f64 = 1e-5;
const TOLERANCE: f64 = 1e-6;

/// The loss at perturbed parameters.
fn loss_at(stages: &Stages, (index, element): (usize, u64), delta: f64) -> f64 {
    let mut machine = Machine::new::<f64>(stages, 0);
    let parameter = &stages.parameters[index];
    let place = parameter.offset + element;
    let old = machine.get::<f64>(parameter.stage, Role::Parameter, place);
    machine.set::<f64>(parameter.stage, place, old + delta);
    machine.feed::<f64>(11);
    machine.forward::<f64>(&context(3, 0));
    machine.loss::<f64>()
}

/// Compares every element of every parameter's gradient with a difference of losses.
fn hold_gradients(name: &str, stages: &Stages) {
    let mut machine = Machine::new::<f64>(stages, 0);
    machine.feed::<f64>(11);
    machine.forward::<f64>(&context(3, 0));
    machine.backward::<f64>(&context(3, 0));
    assert!(!stages.parameters.is_empty(), "{name}");
    let trained = |parameter: &Parameter| parameter.treatment.momentum().is_none();
    let parameters = stages.parameters.iter().enumerate();
    for (index, parameter) in parameters.filter(|(_, parameter)| trained(parameter)) {
        for element in 0..parameter.elements() {
            let place = parameter.offset + element;
            let found = machine.get::<f64>(parameter.stage, Role::Gradient, place);
            let [above, below] =
                [STEP, -STEP].map(|delta| loss_at(stages, (index, element), delta));
            let expected = (above - below) / (2.0 * STEP);
            assert!(
                (found - expected).abs() <= TOLERANCE,
                "{name}: {}[{element}]: {found} but differences say {expected}",
                parameter.name
            );
        }
    }
}

/// Uncut, at every single cut, and with a stage per node.
fn hold(name: &str, model: &Model) {
    if coverage::gathers(model) {
        return;
    }
    let end = model.cuttable() as u32;
    let single = (1..end).map(|cut| vec![cut]);
    let cuts = [vec![], (1..end).collect()].into_iter().chain(single);
    for cuts in cuts {
        match stages(model, &cuts, EXAMPLES, Float::F64, 16) {
            Ok(stages) => {
                let name = format!("{name} at {cuts:?}");
                hold_gradients(&name, &stages);
                halves::hold::<f64>(&name, model, &cuts, EXAMPLES);
                halves::hold::<f32>(&name, model, &cuts, EXAMPLES);
            }
            Err(error) => panic!("{name} at {cuts:?}: {error}"),
        }
    }
}

fn extents(shape: &[u64]) -> Vec<Extent> {
    shape.iter().map(|size| fixed(*size)).collect()
}

/// An operation over parameters of the given shapes, each made a node by a factor first so
/// that its gradient crosses cuts too.
fn hold_operation(operation: Operation, operands: &[&[u64]], result: &[u64]) {
    let mut build = Build::default();
    let factor = Operation::Scale { factor: 1.25 };
    let scaled = |build: &mut Build, shape: &&[u64]| {
        let parameter = build.parameter(shape);
        build.node(factor, &[parameter], &extents(shape))
    };
    let made: Vec<Source> = operands.iter().map(|s| scaled(&mut build, s)).collect();
    let y = build.node(operation, &made, &extents(result));
    hold(&format!("{operation:?}"), &build.mean_squared_error(y, &extents(result)));
    let mut build = Build::default();
    let plain: Vec<Source> = operands.iter().map(|s| build.parameter(s)).collect();
    let y = build.node(operation, &plain, &extents(result));
    let model = build.mean_squared_error(y, &extents(result));
    hold(&format!("{operation:?} of parameters"), &model);
}

#[test]
fn elementwise_operations() {
    let shape: &[u64] = &[2, 3, 4];
    for operation in [
        Operation::Relu,
        Operation::Gelu,
        Operation::GeluTanh,
        Operation::Silu,
        Operation::SoftCap { cap: 0.8 },
        Operation::SoftCap { cap: 30.0 },
        Operation::Softmax,
        Operation::Dropout { rate: 0.4 },
        Operation::Dropout { rate: 0.1 },
        Operation::Scale { factor: -0.7 },
    ] {
        hold_operation(operation, &[shape], shape);
    }
    hold_operation(Operation::Reshape, &[shape], &[4, 6]);
}

#[test]
fn binary_operations_with_and_without_repetition() {
    let shape: &[u64] = &[2, 3, 4];
    for operation in [Operation::Add, Operation::Multiply] {
        for repeated in [shape, &[3, 4], &[4], &[]] {
            hold_operation(operation, &[shape, repeated], shape);
        }
    }
}

#[test]
fn linear_with_and_without_bias() {
    hold_operation(Operation::Linear, &[&[2, 3, 4], &[5, 4]], &[2, 3, 5]);
    hold_operation(Operation::Linear, &[&[2, 3, 4], &[5, 4], &[5]], &[2, 3, 5]);
    hold_operation(Operation::Linear, &[&[4], &[5, 4], &[5]], &[5]);
}

#[test]
fn slices_of_sequences() {
    let shape: &[u64] = &[2, 3, 8];
    let (heads, base, turned) = (2, 7.0, 4);
    let stills = [Still::None, Still::LastOf(2), Still::None];
    for ((first, stretch), still) in [0, 5, 7].into_iter().zip(STRETCHES).zip(stills) {
        let turning = Turning { heads, base, turned, still, stretch };
        let rotary = Sliced::Rotary { turning, first };
        hold_operation(Operation::Sliced(rotary), &[shape], shape);
    }
    for own in [0, 1] {
        let dropout = Sliced::Dropout { rate: 0.4, operator: 3, own, slices: 2 };
        hold_operation(Operation::Sliced(dropout), &[shape], shape);
    }
    let pieces: [&[u64]; 3] = [shape, &[2, 2, 8], &[2, 1, 8]];
    hold_operation(Operation::Sliced(Sliced::Join), &pieces[..1], shape);
    hold_operation(Operation::Sliced(Sliced::Join), &pieces, &[2, 6, 8]);
}

#[test]
fn a_class_token_in_front_and_one_row_alone() {
    let shape: &[u64] = &[2, 3, 4];
    hold_operation(Operation::ClassToken, &[shape, &[4]], &[2, 4, 4]);
    for index in 0..3 {
        hold_operation(Operation::Select { index }, &[shape], &[2, 4]);
    }
    for first in 0..2 {
        hold_operation(Operation::Rows { first }, &[&[4, 3]], &[2, 3]);
    }
}

#[test]
fn layer_norm_over_the_last_extent() {
    for epsilon in [1e-5, 0.3] {
        let operation = Operation::LayerNorm { epsilon };
        hold_operation(operation, &[&[2, 3, 4], &[4], &[4]], &[2, 3, 4]);
    }
}

#[test]
fn convolution_with_strides_paddings_and_groups() {
    let x: &[u64] = &[2, 5, 4, 4];
    for (weight, stride, padding, groups, height, width) in [
        ([2, 3, 3, 4], 1, 1, 1, 5, 4),
        ([4, 3, 2, 2], 2, 1, 2, 3, 3),
        ([4, 3, 3, 1], 1, 0, 4, 3, 2),
        ([3, 1, 1, 4], 2, 0, 1, 3, 2),
    ] {
        let operation = Operation::Conv2d { stride, padding, groups };
        let y = [2, height, width, weight[0]];
        hold_operation(operation, &[x, &weight], &y);
        hold_operation(operation, &[x, &weight, &weight[..1]], &y);
    }
}

#[test]
fn pooling_of_windows_and_images() {
    let x: &[u64] = &[2, 5, 4, 3];
    for (size, stride, padding, height, width) in
        [(2, 2, 0, 2, 2), (3, 2, 1, 3, 2), (3, 1, 0, 3, 2)]
    {
        let result = &[2, height, width, 3];
        hold_operation(Operation::MaxPool { size, stride, padding }, &[x], result);
        hold_operation(Operation::AvgPool { size, stride, padding }, &[x], result);
    }
    hold_operation(Operation::GlobalPool, &[x], &[2, 3]);
    for (factor, height, width) in [(1, 5, 4), (2, 10, 8), (3, 15, 12)] {
        hold_operation(Operation::Upsample { factor }, &[x], &[2, height, width, 3]);
    }
}

#[test]
fn norms_over_groups_and_root_mean_square() {
    for groups in [1, 2, 4] {
        let operation = Operation::GroupNorm { groups };
        for x in [&[2, 3, 4][..], &[2, 2, 2, 4]] {
            hold_operation(operation, &[x, &[4], &[4]], x);
        }
    }
    let wide: &[u64] = &[3, 6];
    hold_operation(Operation::GroupNorm { groups: 2 }, &[wide, &[6], &[6]], wide);
    for epsilon in [1e-5, 0.3] {
        let operation = Operation::RmsNorm { epsilon };
        hold_operation(operation, &[&[2, 3, 4], &[4]], &[2, 3, 4]);
    }
}

/// Batch normalisation of a value with running statistics, and perhaps relu and a skip.
fn batch_normalised(tail: &[Operation]) -> Model {
    let shape: &[u64] = &[2, 3, 4];
    let mut build = Build::default();
    let made: Vec<Source> =
        [shape, &[4], &[4]].iter().map(|shape| build.parameter(shape)).collect();
    let x = build.node(Operation::Scale { factor: 1.5 }, &[made[0]], &extents(shape));
    let skip = build.node(Operation::Gelu, &[made[0]], &extents(shape));
    let [mean, variance] = [(); 2].map(|()| build.average(&[4]));
    let operands = [x, made[1], made[2], mean, variance];
    let mut y = build.node(Operation::BatchNorm, &operands, &extents(shape));
    for operation in tail {
        let operands = [y, skip];
        let count = if *operation == Operation::Add { 2 } else { 1 };
        y = build.node(*operation, &operands[..count], &extents(shape));
    }
    build.mean_squared_error(y, &extents(shape))
}

#[test]
fn norm_over_a_batch() {
    hold("batch_norm", &batch_normalised(&[]));
    hold("batch_norm, relu", &batch_normalised(&[Operation::Relu]));
    hold("batch_norm, residual", &batch_normalised(&[Operation::Add]));
    let tail = [Operation::Add, Operation::Relu];
    hold("batch_norm, residual, relu", &batch_normalised(&tail));
}

#[test]
fn running_statistics_gather_mean_and_unbiased_variance() {
    let stages = stages(&batch_normalised(&[]), &[], EXAMPLES, Float::F64, 16)
        .expect("an uncut model has no ties");
    let mut machine = Machine::new::<f64>(&stages, 0);
    let find = |kind: usize| &stages.parameters[kind];
    let x = find(0);
    let values: Vec<f64> = (0..x.elements())
        .map(|k| 1.5 * machine.get::<f64>(x.stage, Role::Parameter, x.offset + k))
        .collect();
    for micro_batch in 0..3 {
        machine.feed::<f64>(micro_batch);
        machine.forward::<f64>(&context(0, micro_batch));
        machine.backward::<f64>(&context(0, micro_batch));
    }
    for channel in 0..4 {
        let rows = values.iter().skip(channel).step_by(4);
        let mean = rows.clone().sum::<f64>() / 6.0;
        let variance = rows.map(|x| (x - mean).powi(2)).sum::<f64>() / 5.0;
        for (parameter, expected) in [(find(3), mean), (find(4), variance)] {
            let place = parameter.offset + channel as u64;
            let sum = machine.get::<f64>(Stage::new(0), Role::Gradient, place);
            assert!((sum - 3.0 * expected).abs() < 1e-12, "{}: {sum}", parameter.name);
        }
    }
}

#[test]
fn averages_are_operands_of_batch_norm_alone() {
    let refused = |model: &Model| {
        stages(model, &[], EXAMPLES, Float::F64, 16).expect_err("it is wrong").to_string()
    };
    let shape = [per_example(1), fixed(4)];
    let mut build = Build::default();
    let x = build.input("x", &shape);
    let weight = build.average(&[4, 4]);
    let y = build.node(Operation::Linear, &[x, weight], &shape);
    let message = refused(&build.mean_squared_error(y, &shape));
    assert!(message.contains("operands 3 and 4 of batch normalisation"), "{message}");
    let mut two = batch_normalised(&[]);
    let other = Treatment::Averaged { momentum: 0.2 };
    two.parameters.iter_mut().for_each(|(_, parameter)| match parameter.treatment {
        Treatment::Averaged { .. } if parameter.name == "p4" => {
            parameter.treatment = other;
        }
        _ => {}
    });
    assert!(refused(&two).contains("one momentum"));
    let mut build = Build::default();
    let x = build.input("x", &[fixed(1), fixed(4)]);
    let [gain, bias] = [(); 2].map(|()| build.parameter(&[4]));
    let [mean, variance] = [(); 2].map(|()| build.average(&[4]));
    let operands = [x, gain, bias, mean, variance];
    let y = build.node(Operation::BatchNorm, &operands, &[fixed(1), fixed(4)]);
    let message = refused(&build.mean_squared_error(y, &[fixed(1), fixed(4)]));
    assert!(message.contains("more examples per micro-batch"), "{message}");
}

#[test]
fn embedding_adds_rows_of_equal_tokens() {
    let mut build = Build::default();
    let tokens = build.tokens("tokens", &[per_example(1), fixed(5)], 4);
    let table = build.parameter(&[4, 3]);
    let shape = [per_example(1), fixed(5), fixed(3)];
    let y = build.node(Operation::Embedding, &[tokens, table], &shape);
    hold("embedding", &build.mean_squared_error(y, &shape));
}

fn losses(build: &mut Build) -> [Source; 3] {
    let logits = build.parameter(&[3, 5]);
    let classes = build.tokens("classes", &[fixed(3)], 5);
    let loss = build.cross_entropy(logits, classes);
    let [a, b] = [(); 2].map(|()| build.parameter(&[3, 2]));
    let both = build.node(Operation::MeanSquaredError, &[a, b], &[]);
    [loss, both, logits]
}

#[test]
fn losses_alone_and_as_weighted_sums() {
    let mut build = Build::default();
    let [entropy, _, _] = losses(&mut build);
    hold("cross entropy", &build.end(entropy));
    let mut build = Build::default();
    let [_, both, _] = losses(&mut build);
    hold("mse of two parameters", &build.end(both));
    let mut build = Build::default();
    let [entropy, both, _] = losses(&mut build);
    let scaled = build.node(Operation::Scale { factor: 0.3 }, &[both], &[]);
    let sum = build.node(Operation::Add, &[entropy, scaled], &[]);
    let view = build.node(Operation::Reshape, &[sum], &[fixed(1)]);
    let twice = build.node(Operation::Scale { factor: 2.0 }, &[view], &[fixed(1)]);
    hold("a weighted sum of losses", &build.end(twice));
}

/// Targets below six of which five are classes: some rows do not count.
#[test]
fn a_masked_loss_alone_and_as_weighted_sum() {
    for weight in [1.0, 0.3] {
        let mut build = Build::default();
        let logits = build.parameter(&[7, 5]);
        let classes = build.tokens("classes", &[fixed(7)], 6);
        let operation = Operation::CrossEntropy { masked: Masked::Yes };
        let shares = build.shares(7);
        let loss = build.node(operation, &[logits, classes, shares], &[]);
        let scaled = build.node(Operation::Scale { factor: weight }, &[loss], &[]);
        hold("masked cross entropy", &build.end(scaled));
    }
}

/// Logits of two rows at a time, and of one; x is made, so that its gradient crosses cuts.
#[test]
fn a_loss_that_makes_its_logits() {
    let cases = [(4, Masked::No, 1.0), (7, Masked::Yes, 0.3), (1, Masked::No, 0.3)];
    for (chunks, masked, weight) in cases {
        let mut build = Build::default();
        let [x, table] = [&[7, 3], &[5, 3]].map(|shape| build.parameter(shape));
        let x = build.node(Operation::Gelu, &[x], &extents(&[7, 3]));
        let classes =
            build.tokens("classes", &[fixed(7)], 5 + u64::from(masked == Masked::Yes));
        let operation =
            Operation::LinearCrossEntropy { chunks: Chunks::Number(chunks), masked };
        let mut operands = vec![x, table, classes];
        if masked == Masked::Yes {
            operands.push(build.shares(7));
        }
        let loss = build.node(operation, &operands, &[]);
        let scaled = build.node(Operation::Scale { factor: weight }, &[loss], &[]);
        hold("linear cross entropy", &build.end(scaled));
    }
}

#[test]
fn operands_that_are_one_value() {
    let shape: &[u64] = &[2, 3, 4];
    let attention = open_attention(2, true);
    let cases = [
        (Operation::Add, 2),
        (Operation::Multiply, 2),
        (attention, 3),
        (Operation::MeanSquaredError, 2),
    ];
    for (operation, count) in cases {
        let mut build = Build::default();
        let parameter = build.parameter(shape);
        let x = build.node(Operation::Gelu, &[parameter], &extents(shape));
        if operation == Operation::MeanSquaredError {
            let loss = build.node(operation, &[x, parameter], &[]);
            hold("a value against its own source", &build.end(loss));
            continue;
        }
        let y = build.node(operation, &vec![x; count], &extents(shape));
        let y = build.node(Operation::Add, &[y, x], &extents(shape));
        let name = format!("{operation:?} of one value");
        hold(&name, &build.mean_squared_error(y, &extents(shape)));
    }
}

#[test]
fn some_operands_are_fresh_and_some_are_not() {
    let shape: &[u64] = &[2, 3, 4];
    let mut build = Build::default();
    let [q, k, gain] = [shape, shape, &[4]].map(|shape| build.parameter(shape));
    let value = build.input("value", &extents(shape));
    let attention = open_attention(2, false);
    let y = build.node(attention, &[q, k, value], &extents(shape));
    let z = build.node(attention, &[y, q, y], &extents(shape));
    let offset = build.input("offset", &extents(&[4]));
    let norm = Operation::LayerNorm { epsilon: 1e-5 };
    let normal = build.node(norm, &[z, gain, offset], &extents(shape));
    let more = build.node(Operation::Multiply, &[normal, gain], &extents(shape));
    let again = build.node(norm, &[more, gain, gain], &extents(shape));
    hold("mixed contributions", &build.mean_squared_error(again, &extents(shape)));
}

#[test]
fn a_tied_weight_and_a_skip_over_two_cuts() {
    let rows = [per_example(1), fixed(4)];
    let mut build = Build::default();
    let x = build.input("x", &rows);
    let [tied, bias, last] =
        [&[4, 4][..], &[4], &[4, 4]].map(|shape| build.parameter(shape));
    let a = build.node(Operation::Linear, &[x, tied, bias], &rows);
    let b = build.node(Operation::Gelu, &[a], &rows);
    let c = build.node(Operation::Linear, &[b, tied], &rows);
    let d = build.node(Operation::Linear, &[c, last], &rows);
    let skip = build.node(Operation::Add, &[d, a], &rows);
    let flat = build.node(Operation::Reshape, &[skip], &[per_example(4)]);
    let unused = build.node(Operation::Relu, &[flat], &[per_example(4)]);
    assert_ne!(unused, flat);
    hold("tied, skip, unused", &build.mean_squared_error(flat, &[per_example(4)]));
}

/// The table of an embedding that is also the matrix of the last affine map, and a factor.
#[test]
fn a_tied_head() {
    let mut build = Build::default();
    let tokens = build.tokens("tokens", &[per_example(1), fixed(3)], 5);
    let table = build.parameter(&[5, 4]);
    let shape = [per_example(1), fixed(3), fixed(4)];
    let x = build.node(Operation::Embedding, &[tokens, table], &shape);
    let y = build.node(Operation::Gelu, &[x], &shape);
    let logits = [per_example(1), fixed(3), fixed(5)];
    let z = build.node(Operation::Linear, &[y, table], &logits);
    let classes = build.tokens("classes", &[per_example(1), fixed(3)], 5);
    let loss = build.cross_entropy(z, classes);
    let model = build.end(loss);
    hold("a tied head", &model);
}

#[test]
fn random_models() {
    for seed in 0..12 {
        let model = random_model(&mut Numbers(seed), 5);
        hold(&format!("random model {seed}"), &model);
    }
}

#[test]
fn every_operation_and_attribute_is_held() {
    coverage::hold_all(&[
        elementwise_operations,
        binary_operations_with_and_without_repetition,
        linear_with_and_without_bias,
        attention_with_and_without_mask,
        attention_with_shared_key_heads_and_windows,
        attention_with_scaled_and_capped_scores,
        attention_of_one_tensor,
        stored_scores_with_and_without_mask,
        products_of_stored_scores,
        rotary_positions,
        a_class_token_in_front_and_one_row_alone,
        layer_norm_over_the_last_extent,
        convolution_with_strides_paddings_and_groups,
        pooling_of_windows_and_images,
        norms_over_groups_and_root_mean_square,
        norm_over_a_batch,
        embedding_adds_rows_of_equal_tokens,
        losses_alone_and_as_weighted_sums,
        a_masked_loss_alone_and_as_weighted_sum,
        a_loss_that_makes_its_logits,
    ]);
}
