//! Attention with stored scores against attention that never has them: the same numbers to
//! rounding, the same parameters, and the memory that the law of stored scores says.

use crate::support::{
    blocks::{self, Extents},
    machine::{Machine, context},
};
use roundelay_codegen::{
    BackwardForm, Everywhere, StageForm, Stages, Storage, stages_in,
};
use roundelay_dsl::{Model, Operation};
use roundelay_schedule::{Float, GradientSums, Id, Recompute, Role, Stage, Tensor};
use std::collections::BTreeMap;

const EXAMPLES: u64 = 2;
const LENGTH: u64 = 12;
const WIDTH: u64 = 24;
const HEADS: u64 = 4;

/// Blocks whose attention is called with these further arguments.
fn model(layers: u32, attention: &str) -> Model {
    let extents =
        Extents { examples: EXAMPLES, length: LENGTH, width: WIDTH, heads: HEADS };
    blocks::gpt(extents, layers, attention)
}

fn stages(model: &Model, dtype: Float, form: StageForm) -> Stages {
    let storage = Storage { dtype, padding: 16 };
    stages_in(model, (&[], Tensor::WHOLE), EXAMPLES, storage, |_| form, &Everywhere)
        .expect("nothing is shared")
}

/// The loss and all gradients of one micro-batch.
fn trained(model: &Model) -> (f64, BTreeMap<String, Vec<u64>>) {
    let stages = stages(model, Float::F64, StageForm::default());
    let mut machine = Machine::new::<f64>(&stages, 0);
    machine.feed::<f64>(5);
    machine.forward::<f64>(&context(3, 0));
    machine.backward::<f64>(&context(3, 0));
    (machine.loss::<f64>(), machine.named::<f64>(Role::Gradient))
}

#[test]
fn stored_scores_change_nothing_but_the_rounding() {
    for attention in [
        "",
        ", causal = true",
        ", causal = true, window = 5, scale = 0.4",
        ", causal = true, key_heads = 2, rotary = true, head_norm = 1e-5",
        ", key_heads = 1, window = 3, bias = false",
    ] {
        let (loss, gradients) = trained(&model(2, attention));
        let stored = model(2, &format!("{attention}, stored_scores = true"));
        let (own_loss, own) = trained(&stored);
        assert!((loss - own_loss).abs() < 1e-12, "{attention}: {own_loss} for {loss}");
        assert!(own.keys().eq(gradients.keys()), "{attention}: parameters have names");
        for (name, expected) in gradients {
            for (one, other) in expected.iter().zip(&own[&name]) {
                let [one, other] = [one, other].map(|bits| f64::from_bits(*bits));
                let near = (one - other).abs() <= 1e-12 * (1.0 + one.abs());
                assert!(near, "{attention}: {name} is {other}, not {one}");
            }
        }
    }
}

/// A softmax that is dropped in part trains other numbers than one that is not.
#[test]
fn dropout_is_not_ignored() {
    let dropped = ", causal = true, stored_scores = true, dropout = 0.3";
    let whole = ", causal = true, stored_scores = true";
    assert_ne!(trained(&model(1, dropped)).0, trained(&model(1, whole)).0);
    let nodes = model(1, dropped).nodes;
    let rate = nodes.values().find_map(|node| match node.operation {
        Operation::Dropout { rate } => Some((node.name.clone(), rate)),
        _ => None,
    });
    assert_eq!(rate, Some(("layer.0.attention.dropout".to_owned(), 0.3)));
}

/// Bytes that forward keeps of one layer in 16 bits.
fn kept(attention: &str, recompute: Recompute) -> u64 {
    let all = |layers| {
        let form = StageForm { backward: BackwardForm::Whole, recompute };
        let dtype = Float::Bf16(GradientSums::Same);
        let stages = stages(&model(layers, attention), dtype, form);
        let kept = stages.stages[Stage::new(0)].forward.argument(Role::Activation);
        kept.map_or(0, |argument| argument.size.0)
    };
    all(4) - all(3)
}

/// Per layer, 2 bytes for each score of each array that backward reads (arXiv 2205.05198): the
/// softmax, and what dropout left of it. Instead, attention that has no scores keeps a statistic.
#[test]
fn a_layer_keeps_every_score_twice() {
    let scores = EXAMPLES * HEADS * LENGTH * LENGTH;
    let statistics = 4 * EXAMPLES * HEADS * LENGTH;
    let without = kept(", causal = true", Recompute::None) - statistics;
    let stored = ", causal = true, stored_scores = true";
    assert_eq!(kept(stored, Recompute::None), without + 2 * scores);
    let dropped = format!("{stored}, dropout = 0.1");
    assert_eq!(kept(&dropped, Recompute::None), without + 4 * scores);
    // Computed again is all of it: scores, softmax, dropout.
    let without = kept(", causal = true", Recompute::Selective) - statistics;
    assert_eq!(kept(&dropped, Recompute::Selective), without);
}
