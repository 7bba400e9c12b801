//! Which models have slices: what reads a sequence token by token, and causal attention whose
//! context stays in one stage.

use super::{Kind, Slicing};
use crate::stage::StageError;
use roundelay_dsl::{
    Extent, Masked, Model, Node, NodeId, Operation, Projections, Sight, Source,
};
use roundelay_schedule::Id;
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

/// Tokens of a sequence, by the first causal attention; slices divide them.
pub(super) fn sequence(model: &Model, slices: u64) -> Result<u64, StageError> {
    let refuse = |node: &str, problem: String| {
        Err(StageError::Unsliced { node: node.to_owned(), problem })
    };
    if !model.auxiliary.is_empty() {
        let problem = "slices of a sequence have no heads of local rules".to_owned();
        return refuse(&model.name, problem);
    }
    let attends = |node: &&Node| {
        matches!(
            node.operation,
            Operation::Attention { sight: Sight { causal: true, .. }, .. }
        )
    };
    let Some(first) = model.nodes.values().find(attends) else {
        let problem = "it has no causal attention, so nothing is gained by slices of a \
                       sequence: use more micro-batches";
        return refuse(&model.name, problem.to_owned());
    };
    let length = first.shape.get(1).map_or(1, |extent| extent.size);
    match length.is_multiple_of(slices) {
        true => Ok(length),
        false => refuse(
            &first.name,
            format!("{slices} slices do not divide its sequence of {length}"),
        ),
    }
}

/// What later slices read of earlier ones is read by one stage: else the gradients of later slices
/// would wait for those that another stage makes of earlier ones.
pub(super) fn one_reader(
    model: &Model,
    stages: &[Range<usize>],
) -> Result<(), StageError> {
    let root = |source: Source| {
        let mut source = source;
        while let Source::Node(id) = source {
            match model.nodes[id].operation {
                Operation::Reshape => source = model.nodes[id].operands[0],
                _ => break,
            }
        }
        source
    };
    let mut readers: BTreeMap<Source, BTreeSet<usize>> = BTreeMap::new();
    let mut joined = BTreeSet::new();
    for (stage, nodes) in stages.iter().enumerate() {
        for node in nodes.clone().map(|node| &model.nodes[NodeId::new(node)]) {
            for operand in node.operands.iter().filter(|_| !is_view(node.operation)) {
                readers.entry(root(*operand)).or_default().insert(stage);
            }
            if let Operation::Attention { .. } = node.operation {
                joined.extend(node.operands[1..].iter().map(|read| root(*read)));
            }
        }
    }
    let several =
        |source: &&Source| readers.get(source).is_some_and(|stages| stages.len() > 1);
    match joined.iter().find(several) {
        Some(Source::Node(node)) => Err(StageError::Unsliced {
            node: model.nodes[*node].name.clone(),
            problem:
                "later slices read it in attention, and several stages read it: cut \
                      elsewhere"
                    .to_owned(),
        }),
        _ => Ok(()),
    }
}

fn is_view(operation: Operation) -> bool {
    operation == Operation::Reshape
}

impl Slicing<'_> {
    /// What an operation on tokens makes, if it takes them one by one or is causal.
    pub(super) fn result(
        &self,
        operation: Operation,
        shape: &[Extent],
    ) -> Result<Kind, StageError> {
        match operation {
            Operation::CrossEntropy { masked: Masked::No }
            | Operation::LinearCrossEntropy { masked: Masked::No, .. }
            | Operation::MeanSquaredError
            | Operation::Accuracy { masked: Masked::No } => return Ok(Kind::Mean),
            Operation::CrossEntropy { masked: Masked::Yes }
            | Operation::LinearCrossEntropy { masked: Masked::Yes, .. }
            | Operation::Accuracy { masked: Masked::Yes } => {
                return self.refuse(
                    "it is a sum over the tokens that count, and slices are joined by their \
                     mean: slices need losses and metrics over all tokens",
                );
            }
            Operation::Attention { sight: Sight { causal: false, .. }, .. } => {
                return self.refuse("attention that is not causal reads later slices");
            }
            Operation::Attention { projections: Projections::Packed, .. } => {
                return self.refuse(
                    "later slices read its keys and values without its queries: leave out \
                     `packed`",
                );
            }
            Operation::Scores { .. } | Operation::Mix { .. } => {
                return self.refuse(
                    "attention with stored scores (dropout of weights) has no slices",
                );
            }
            _ => {}
        }
        // The last extent belongs to one token.
        match is_by_token(operation) && self.has_tokens(shape) && shape.len() > 2 {
            true => Ok(Kind::Tokens),
            false => self.refuse(
                "it mixes the tokens of a sequence, so there are no slices of one: set \
                 `slices 1`",
            ),
        }
    }

    pub(super) fn combined(&self, operation: Operation) -> Result<Kind, StageError> {
        match operation {
            Operation::Add | Operation::Scale { .. } | Operation::Reshape => {
                Ok(Kind::Mean)
            }
            _ => {
                self.refuse("slices take sums of losses and constants times losses only")
            }
        }
    }

    pub(super) fn common(&self, operation: Operation) -> Result<Kind, StageError> {
        match operation {
            Operation::Dropout { .. } => {
                self.refuse("dropout of what all tokens share has no slices")
            }
            Operation::BatchNorm => self.refuse(
                "it is made again for every slice, which would move its running statistics \
                 as often",
            ),
            _ => Ok(Kind::Common),
        }
    }
}

/// Whether a row of the result depends on the same row of the operands alone; on the rows before it
/// too in causal attention.
fn is_by_token(operation: Operation) -> bool {
    match operation {
        Operation::Linear
        | Operation::Rotary(_)
        | Operation::LayerNorm { .. }
        | Operation::RmsNorm { .. }
        | Operation::Relu
        | Operation::Gelu
        | Operation::GeluTanh
        | Operation::Silu
        | Operation::SoftCap { .. }
        | Operation::Softmax
        | Operation::Dropout { .. }
        | Operation::Add
        | Operation::Multiply
        | Operation::Scale { .. }
        | Operation::Reshape
        | Operation::Embedding
        | Operation::Attention { .. } => true,
        Operation::Scores { .. }
        | Operation::Mix { .. }
        | Operation::ClassToken
        | Operation::Select { .. }
        | Operation::Rows { .. }
        | Operation::Conv2d { .. }
        | Operation::MaxPool { .. }
        | Operation::AvgPool { .. }
        | Operation::GlobalPool
        | Operation::Upsample { .. }
        | Operation::BatchNorm
        | Operation::GroupNorm { .. }
        | Operation::Boundary(_)
        | Operation::CrossEntropy { .. }
        | Operation::LinearCrossEntropy { .. }
        | Operation::MeanSquaredError
        | Operation::Accuracy { .. }
        | Operation::Part { .. }
        | Operation::Sliced(_) => false,
    }
}
