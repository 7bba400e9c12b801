//! The layers of a model, found in its graph.
//!
//! Where only one value goes on, the nodes fall apart into pieces. A layer is the shortest run of
//! pieces that repeats best: for the distance at which most pieces do the same operations as the
//! one that follows there, from the first such piece to the last. What stands before and behind
//! (embeddings, heads, losses) belongs to no layer. If nothing repeats, all is one layer.

use super::graph::Graph;
use roundelay_dsl::{NodeId, Operation, Source};
use std::{collections::BTreeMap, mem, ops::Range};

/// The layer of every node that has one; it does not depend on cuts.
pub(crate) fn of(graph: &Graph<'_>) -> BTreeMap<NodeId, u32> {
    let nodes: Vec<NodeId> =
        graph.computed().filter(|node| graph.is_of_trunk(*node)).collect();
    let pieces = pieces(graph, &nodes);
    let kinds: Vec<Kinds> =
        pieces.iter().map(|piece| kinds(graph, &nodes[piece.clone()])).collect();
    let (first, last, length) = match repeated(&kinds) {
        Some(Repeated { pieces, length }) => (pieces.start, pieces.end, length),
        None => (0, pieces.len(), pieces.len().max(1)),
    };
    let run = pieces[first..last].iter().enumerate();
    run.flat_map(|(index, piece)| {
        let layer = u32::try_from(index / length).expect("layers are few");
        nodes[piece.clone()].iter().map(move |node| (*node, layer))
    })
    .collect()
}

/// What a piece does, node by node.
type Kinds = Vec<mem::Discriminant<Operation>>;

fn kinds(graph: &Graph<'_>, nodes: &[NodeId]) -> Kinds {
    nodes
        .iter()
        .map(|node| mem::discriminant(&graph.model.nodes[*node].operation))
        .collect()
}

/// Ranges of nodes that hand one value to the next.
fn pieces(graph: &Graph<'_>, nodes: &[NodeId]) -> Vec<Range<usize>> {
    let mut last: BTreeMap<NodeId, usize> = BTreeMap::new();
    for (index, node) in nodes.iter().enumerate() {
        for operand in &graph.model.nodes[*node].operands {
            if let Source::Node(value) = graph.root(*operand) {
                last.insert(value, index);
            }
        }
    }
    let mut ending = vec![0; nodes.len()];
    last.values().for_each(|reader| ending[*reader] += 1);
    let (mut pieces, mut start, mut live) = (Vec::new(), 0, 0);
    for (index, node) in nodes.iter().enumerate() {
        live = live + usize::from(last.contains_key(node)) - ending[index];
        if index + 1 == nodes.len() || live == 1 {
            pieces.push(start..index + 1);
            start = index + 1;
        }
    }
    pieces
}

/// A run of pieces that repeats.
struct Repeated {
    pieces: Range<usize>,
    /// Pieces of one layer.
    length: usize,
}

fn repeated(kinds: &[Kinds]) -> Option<Repeated> {
    let equal = |length: usize| {
        (0..kinds.len() - length).filter(move |at| kinds[*at] == kinds[at + length])
    };
    let lengths = 1..=kinds.len() / 2;
    let best = lengths.rev().max_by_key(|length| equal(*length).count())?;
    let (first, last) = (equal(best).next()?, equal(best).next_back()?);
    Some(Repeated { pieces: first..last + best + 1, length: best })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(text: &str) -> Option<(Range<usize>, usize)> {
        let kind = |letter: char| match letter {
            'A' => Operation::Add,
            'B' => Operation::Relu,
            'C' => Operation::Gelu,
            _ => Operation::Linear,
        };
        let kinds: Vec<Kinds> =
            text.chars().map(|letter| vec![mem::discriminant(&kind(letter))]).collect();
        repeated(&kinds).map(|found| (found.pieces, found.length))
    }

    #[test]
    fn a_layer_is_the_shortest_run_that_repeats_best() {
        assert_eq!(runs("CABABABD"), Some((1..7, 2)));
        assert_eq!(runs("BBABABAB"), Some((1..8, 2)));
        assert_eq!(runs("ABBBBBAB"), Some((1..6, 1)));
        assert_eq!(runs("AAAA"), Some((0..4, 1)));
        assert_eq!(runs("ABCD"), None);
        assert_eq!(runs("A"), None);
    }
}
