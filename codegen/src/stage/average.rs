//! Running averages are read by batch normalisation alone, and have one momentum: what stands in
//! their gradient is no gradient.

use super::StageError;
use roundelay_dsl::{Model, Node, Operation, Part, Source};

/// The operands of batch normalisation that are running averages.
const AVERAGES: std::ops::Range<usize> = 3..5;

/// Checks every use of a running average, and that all have one momentum.
pub(crate) fn check(model: &Model) -> Result<(), StageError> {
    for node in model.nodes.values() {
        let running =
            |operand: usize| is_batch_norm(node.operation) && AVERAGES.contains(&operand);
        for (operand, source) in node.operands.iter().enumerate() {
            if running(operand) != momentum(model, *source).is_some() {
                return malformed(
                    node,
                    "running averages, and nothing else, are operands \
                                        3 and 4 of batch normalisation",
                );
            }
        }
    }
    let uses = model.nodes.values().flat_map(|node| {
        let momenta = node.operands.iter().filter_map(|source| momentum(model, *source));
        momenta.map(move |momentum| (node, momentum))
    });
    let mut first = None;
    for (node, momentum) in uses {
        let share = (0.0..=1.0).contains(&momentum);
        if !share || *first.get_or_insert(momentum) != momentum {
            return malformed(
                node,
                "all running averages of a model have one momentum, \
                                    which lies from 0 to 1",
            );
        }
    }
    Ok(())
}

fn is_batch_norm(operation: Operation) -> bool {
    matches!(
        operation,
        Operation::BatchNorm | Operation::Part { part: Part::BatchNorm, .. }
    )
}

fn momentum(model: &Model, source: Source) -> Option<f64> {
    match source {
        Source::Parameter(id) => model.parameters[id].treatment.momentum(),
        Source::Node(_) | Source::Input(_) => None,
    }
}

fn malformed(node: &Node, problem: &str) -> Result<(), StageError> {
    Err(StageError::Malformed { node: node.name.clone(), problem: problem.to_owned() })
}
