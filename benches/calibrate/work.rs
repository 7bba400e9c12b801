//! What a GPT computes, as footprints of our own kernels: one layer, and what stands around the
//! layers.
//!
//! A layer is the difference between models of three and of two layers. Some of what was measured
//! kept all scores of attention in memory, and had dropout; its program says so.

use roundelay::{
    SourceFile,
    parts::{
        codegen::{LoweringChoice, Neighbour, NodeCost, PassCost, node_costs},
        kernels::Kernel,
        planner::roofline,
        schedule::{
            Bytes, Call, Device, Float, Flops, Footprint, GradientSums, Rewrite,
            Rewrites, Tensor, Thousandths, Unit,
        },
    },
};
use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error,
};

/// The type that all rows train in; fp16 costs the same.
const DTYPE: Float = Float::Bf16(GradientSums::Same);

/// The shape of a model and of its micro-batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Shape {
    pub(crate) layers: u64,
    pub(crate) hidden: u64,
    pub(crate) heads: u64,
    pub(crate) sequence: u64,
    pub(crate) vocabulary: u64,
    pub(crate) examples: u64,
}

/// Where the scores of the measured attention are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scores {
    /// On the chip, and nothing is dropped: what came after FlashAttention.
    Chip,
    /// In memory, with the dropouts of Megatron: of the softmax and of both results of a layer.
    Memory,
}

/// Where the head of a measured model has its matrix from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Head {
    /// Its own: where a pipeline parts it from the embedding.
    Own,
    /// The table of the embedding: GPT-2 and what came after it, where both are on one device.
    Tied,
}

/// Which neighbouring calls of a measured model were one kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Made {
    /// A product and its bias, and nothing else: PyTorch without a compiler, where GELU and sums
    /// pass over memory on their own.
    Eagerly,
    /// Whatever our own kernels make as one, but for the gradients of a weight and of its bias,
    /// which are a product and a sum, and for the loss, which passes over logits of 32 bits one
    /// operation after the other: Megatron.
    Fused,
    /// The loss as well: kernels written by hand, or a compiler.
    Whole,
}

impl Made {
    /// How the models of a set of rows were made: those of llm-foundry were not compiled.
    pub(crate) fn of(set: &str) -> Self {
        match set {
            "vtrain_single" => Self::Fused,
            _ if set.starts_with("mpt_") => Self::Eagerly,
            _ => Self::Whole,
        }
    }

    /// A device as these models find it.
    pub(crate) fn on(self, device: &Device) -> Device {
        let losses = match self {
            Self::Whole => Thousandths::ALL,
            Self::Eagerly | Self::Fused => device.losses,
        };
        Device { losses, ..device.clone() }
    }

    fn joins(self, rewrite: Rewrite) -> bool {
        match self {
            Self::Eagerly => rewrite == Rewrite::Affine,
            Self::Fused | Self::Whole => rewrite != Rewrite::AffineGradients,
        }
    }

    /// Those of some rewrites that were made.
    pub(crate) fn among(self, rewrites: &Rewrites) -> Rewrites {
        let mut made = Rewrites::default();
        for (rewrite, sites) in rewrites.iter().filter(|(one, _)| self.joins(*one)) {
            sites.iter().for_each(|site| made.insert(rewrite, site));
        }
        made
    }
}

impl LoweringChoice for Made {
    fn choose(&self, neighbours: &[Neighbour<'_>]) -> BTreeSet<(usize, Rewrite)> {
        let joined = Rewrite::ALL.iter().filter(|rewrite| self.joins(**rewrite));
        let places = |rewrite: &Rewrite| {
            let rewrite = *rewrite;
            (1..neighbours.len()).map(move |place| (place, rewrite))
        };
        joined.flat_map(places).collect()
    }
}

/// The program of a model, but for where and how it is trained.
pub(crate) fn model(shape: Shape, scores: Scores, head: Head) -> String {
    let Shape { layers, hidden, heads, sequence, vocabulary, .. } = shape;
    let mlp = format!("linear(gelu(linear(layer_norm(x), 4 * {hidden})), {hidden})");
    let (attention, mlp) = match scores {
        Scores::Chip => {
            (format!("attention(layer_norm(x), {heads}, causal = true)"), mlp)
        }
        Scores::Memory => (
            format!(
                "dropout(attention(layer_norm(x), {heads}, causal = true, \
                 stored_scores = true, dropout = 0.1), 0.1)"
            ),
            format!("dropout({mlp}, 0.1)"),
        ),
    };
    let (table, embedding, head) = match head {
        Head::Own => {
            (String::new(), format!("{vocabulary}, {hidden}"), vocabulary.to_string())
        }
        Head::Tied => (
            format!("param table: [{vocabulary}, {hidden}] = normal(0.02)"),
            "table".to_owned(),
            "weight = table, bias = false".to_owned(),
        ),
    };
    format!(
        "model gpt {{
            input tokens: i32[batch, {sequence}]
            input targets: i32[batch, {sequence}]
            {table}
            x = embedding(tokens, {embedding}) + positions({sequence}, {hidden})
            repeat {layers} as layer {{
                x = x + {attention}
                x = x + {mlp}
            }}
            loss cross_entropy(linear(layer_norm(x), {head}), targets)
        }}"
    )
}

/// Footprints of some calls, with how often each is made.
pub(crate) type Calls = BTreeMap<(u64, u64, Unit), i64>;

/// Forward and backward calls.
#[derive(Clone, Debug, Default)]
pub(crate) struct Passes {
    pub(crate) forward: Calls,
    pub(crate) backward: Calls,
}

/// The calls of one layer, and of what stands around all layers.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    pub(crate) layer: Passes,
    pub(crate) around: Passes,
}

/// Nanoseconds of some calls on a device: of each its own, or what issuing it takes.
pub(crate) fn time(calls: &Calls, device: &Device) -> f64 {
    let one = |(&(flops, bytes, unit), count): (&(u64, u64, Unit), &i64)| {
        let footprint = Footprint { flops: Flops(flops), bytes: Bytes(bytes), unit };
        roofline(footprint, device).max(device.issue).0 as f64 * *count as f64
    };
    calls.iter().map(one).sum()
}

impl Work {
    /// What a model of this shape computes.
    ///
    /// # Errors
    /// When the program of the model is refused.
    pub(crate) fn of(
        shape: Shape,
        (scores, head): (Scores, Head),
        made: Made,
    ) -> Result<Self, Box<dyn Error>> {
        let passes = |layers| {
            let model = model(Shape { layers, ..shape }, scores, head);
            passes(&model, shape.examples, made)
        };
        let [two, three] = [passes(2)?, passes(3)?];
        let layer = minus(&three, &two, 1);
        let around = minus(&two, &layer, 2);
        Ok(Self { layer, around })
    }
}

/// The calls of a head: the product that makes logits, its loss, and both gradients of the product.
///
/// # Errors
/// When the program of the head is refused.
pub(crate) fn head(shape: Shape) -> Result<Passes, Box<dyn Error>> {
    let Shape { hidden, sequence, vocabulary, examples, .. } = shape;
    let model = format!(
        "model head {{
            input x: real[batch, {sequence}, {hidden}]
            input targets: i32[batch, {sequence}]
            loss cross_entropy(linear(layer_norm(x), {vocabulary}, bias = false), targets)
        }}"
    );
    let costs = costs(&model, examples, Made::Fused)?;
    // What is normed wants a gradient; the norm itself is none of the head.
    summed(&costs[1..])
}

/// All calls of a model.
fn passes(model: &str, examples: u64, made: Made) -> Result<Passes, Box<dyn Error>> {
    summed(&costs(model, examples, made)?)
}

/// The calls of each node of a model.
fn costs(
    model: &str,
    examples: u64,
    made: Made,
) -> Result<Vec<NodeCost>, Box<dyn Error>> {
    let text = format!("{model}\ntrain {{ data synthetic, batch {examples} }}");
    let source = SourceFile::new("gpt.rdl".to_owned(), text);
    let program = roundelay::parse(&source)?;
    Ok(node_costs(&program.model, (examples, Tensor::WHOLE), DTYPE, &made)?)
}

fn summed(costs: &[NodeCost]) -> Result<Passes, Box<dyn Error>> {
    Ok(Passes {
        forward: calls(costs, |cost| &cost.forward)?,
        backward: calls(costs, |cost| &cost.backward)?,
    })
}

/// The calls of one pass; what another call contains is not made.
fn calls(
    costs: &[NodeCost],
    pass: fn(&NodeCost) -> &PassCost,
) -> Result<Calls, Box<dyn Error>> {
    let mut all = Calls::new();
    for cost in costs.iter().map(pass) {
        for (call, count) in signed(&cost.calls, 1).chain(signed(&cost.contained, -1)) {
            let Footprint { flops, bytes, unit } = Kernel::parse(call)?.footprint(DTYPE);
            *all.entry((flops.0, bytes.0, unit)).or_default() += count;
        }
    }
    Ok(all)
}

fn signed(calls: &[Call], count: i64) -> impl Iterator<Item = (&Call, i64)> {
    calls.iter().map(move |call| (call, count))
}

/// One without this many of another.
fn minus(one: &Passes, other: &Passes, times: i64) -> Passes {
    let without = |one: &Calls, other: &Calls| {
        let mut rest = one.clone();
        for (call, count) in other {
            *rest.entry(*call).or_default() -= times * count;
        }
        rest.retain(|_, count| *count != 0);
        rest
    };
    Passes {
        forward: without(&one.forward, &other.forward),
        backward: without(&one.backward, &other.backward),
    }
}
