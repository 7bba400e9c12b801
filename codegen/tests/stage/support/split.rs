//! Models whose tensors can be split, and what holds of their parts.

use crate::{
    models,
    support::{
        lockstep::Lockstep,
        machine::{Machine, context},
    },
};
use roundelay_codegen::{
    Everywhere, LoweringChoice, StageForm, Stages, Storage, stages_in,
};
use roundelay_dsl::Model;
use roundelay_schedule::{Float, Role, Tensor};

pub(crate) const EXAMPLES: u64 = 2;

/// Biases, dropout, learned positions, a table of 1,027 rows shared with the head.
pub(crate) const GPT: &str = "model gpt {
    input tokens:  i32[batch, 12]
    input targets: i32[batch, 12]
    param table: [1027, 24] = normal(0.02)
    x = dropout(embedding(tokens, table) + positions(12, 24), 0.1)
    repeat 2 as layer {
        x = x + dropout(attention(layer_norm(x), 12, causal = true), 0.2)
        h = dropout(gelu(linear(layer_norm(x), 48)), 0.3)
        x = x + linear(h, 24)
    }
    loss cross_entropy(linear(layer_norm(x), weight = table, bias = false), targets)
}";

/// Queries, keys and values in one array; in the second layer key heads are shared, heads turn, and
/// scores are capped.
pub(crate) const PACKED: &str = "model packed {
    input tokens:  i32[batch, 12]
    input targets: i32[batch, 12]
    x = embedding(tokens, 70, 24)
    x = x + attention(layer_norm(x), 12, causal = true, packed = true)
    x = x + attention(rms_norm(x), 12, key_heads = 6, packed = true, head_width = 4, cap = 2,
                      window = 5, bias = false, rotary = 9, turned = 2)
    loss cross_entropy(linear(layer_norm(x), 66), targets)
}";

/// Shared key heads, rotary positions, norms of heads, gates, a head and capped scores.
pub(crate) const LLAMA: &str = concat!(
    "model llama {\n",
    include_str!("../../../../tests/fixtures/models/llama.model"),
    "}"
);

/// Attention with stored scores, dropped in part; in the second layer key heads are shared.
pub(crate) const STORED: &str = concat!(
    "model stored {\n",
    include_str!("../../../../tests/fixtures/models/stored.model"),
    "}"
);

/// A table of 65 rows shared with the head, too small to be kept in parts.
pub(crate) const CHARACTERS: &str = "model characters {
    input tokens:  i32[batch, 12]
    input targets: i32[batch, 12]
    param table: [65, 16] = normal(0.02)
    x = embedding(tokens, table) + positions(12, 16)
    x = x + linear(gelu(linear(layer_norm(x), 24)), 16)
    loss cross_entropy(linear(x, weight = table, bias = false), targets)
}";

/// A table of 257 rows whose head adds up columns, so its users want different parts.
pub(crate) const DEEP_HEAD: &str = concat!(
    "model deep_head {\n",
    include_str!("../../../../tests/fixtures/models/deep_head.model"),
    "}"
);

/// Nothing but two maps; the loss is no cross-entropy.
pub(crate) const MAPS: &str = "model maps {
    input x: real[batch, 6, 10]
    input y: real[batch, 6, 5]
    loss mse(linear(relu(linear(x, 24)), 5), y)
}";

pub(crate) fn model(text: &str) -> Model {
    models::program(&format!("{text}\n{}", models::job(2))).model
}

pub(crate) fn stages(
    model: &Model,
    cuts: &[u32],
    tensor: Tensor,
    form: StageForm,
) -> Stages {
    let storage = Storage { dtype: Float::F64, padding: 16 };
    stages_in(model, (cuts, tensor), EXAMPLES, storage, |_| form, &Everywhere)
        .expect("it splits")
}

/// Two micro-batches, one after another, on whole tensors and on rows.
pub(crate) fn assert_same(model: &Model, cuts: &[u32], tensor: Tensor, form: StageForm) {
    assert_same_by(model, cuts, tensor, form, &Everywhere);
}

/// The same where calls become one, and maps are split, as somebody chooses.
pub(crate) fn assert_same_by(
    model: &Model,
    cuts: &[u32],
    tensor: Tensor,
    form: StageForm,
    choice: &dyn LoweringChoice,
) {
    let whole = stages(model, &[], Tensor::WHOLE, StageForm::default());
    let storage = Storage { dtype: Float::F64, padding: 16 };
    let made = stages_in(model, (cuts, tensor), EXAMPLES, storage, |_| form, choice);
    let parts = made.expect("it splits");
    let mut machine = Machine::new::<f64>(&whole, 0);
    let mut rows = Lockstep::new::<f64>(&parts, &machine, tensor.parts());
    for i in 0..2 {
        let at = context(3, i);
        machine.feed::<f64>(i);
        machine.forward::<f64>(&at);
        machine.backward::<f64>(&at);
        let (one, other) = (machine.loss::<f64>(), rows.pass::<f64>(&at, i));
        assert!((one - other).abs() < 1e-12, "{tensor:?}: {other} for {one}");
    }
    let whole = machine.named::<f64>(Role::Gradient);
    for (name, gradient) in rows.gradients::<f64>() {
        let expected = whole[&name].iter().map(|bits| f64::from_bits(*bits));
        assert_eq!(expected.len(), gradient.len());
        for (k, (one, other)) in expected.zip(gradient).enumerate() {
            let near = (one - other).abs() <= 1e-12 * (1.0 + one.abs());
            assert!(
                near,
                "{tensor:?} {form:?} {cuts:?}: {name}[{k}] is {other}, not {one}"
            );
        }
    }
}
