//! Means over what a graph makes piece by piece: halves of a micro-batch, slices of sequences.

use roundelay_dsl::{NodeId, Operation, Source};

/// The mean of pieces, of which there is one at least, by operations that `add` adds to a graph.
pub(crate) fn mean(
    pieces: &[Source],
    mut add: impl FnMut(Operation, Vec<Source>) -> NodeId,
) -> NodeId {
    let (first, others) = pieces.split_first().expect("there is a piece");
    let mut sum = *first;
    for piece in others {
        sum = Source::Node(add(Operation::Add, vec![sum, *piece]));
    }
    add(Operation::Scale { factor: 1.0 / pieces.len() as f64 }, vec![sum])
}
