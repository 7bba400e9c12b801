//! The layers of a model, found in its graph.
//!
//! Where fewest values go on, the nodes fall apart into pieces. A layer is the shortest run of pieces
//! that repeats best: for the distance at which most pieces do the same operations as the one that
//! follows there, from the first such piece to the last. A large piece may have layers inside, where
//! some value passes them by, as what an encoder made does those of a decoder. What stands before
//! and behind (embeddings, heads, losses) belongs to no layer. If nothing repeats, all is one layer.

use super::graph::Graph;
use roundelay_dsl::{NodeId, Operation, Source};
use std::{collections::BTreeMap, mem, ops::Range};

/// Pieces that stand deeper in others are not looked into: a value that many nodes in a row wait beside,
/// as for a sum of all, is no sign of layers.
const DEPTH: usize = 32;

/// The layer of every node that has one; it does not depend on cuts.
pub(crate) fn of(graph: &Graph<'_>) -> BTreeMap<NodeId, u32> {
    let trunk = Trunk::new(graph);
    let number = (0..).zip(trunk.layers());
    let each = number.flat_map(|(layer, own)| {
        let nodes = trunk.nodes[own].iter();
        nodes.map(move |node| (*node, layer)).collect::<Vec<_>>()
    });
    each.collect()
}

/// The nodes that the loss depends on, in their order.
struct Trunk<'a> {
    graph: &'a Graph<'a>,
    nodes: Vec<NodeId>,
    /// How many values go on behind each node.
    live: Vec<usize>,
}

/// What a piece does, node by node.
type Kinds = Vec<mem::Discriminant<Operation>>;

impl<'a> Trunk<'a> {
    fn new(graph: &'a Graph<'a>) -> Self {
        let nodes: Vec<NodeId> =
            graph.computed().filter(|node| graph.is_of_trunk(*node)).collect();
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
        let live = nodes.iter().zip(ending).scan(0, |live, (node, ending)| {
            *live = *live + usize::from(last.contains_key(node)) - ending;
            Some(*live)
        });
        Self { graph, live: live.collect(), nodes }
    }

    /// The layers, each a range of nodes.
    fn layers(&self) -> Vec<Range<usize>> {
        let whole = 0..self.nodes.len();
        let pieces = self.pieces(&whole);
        if let Some(run) = repeated(&self.kinds(&pieces)) {
            return self.layers_beside(&pieces, &run, 0);
        }
        let found = self.inside_each(&pieces, 0);
        // Few layers say nothing of the rest.
        match 2 * size(&found) >= whole.len() {
            true => found,
            false => vec![whole],
        }
    }

    fn inside_each(&self, pieces: &[Range<usize>], depth: usize) -> Vec<Range<usize>> {
        pieces.iter().flat_map(|piece| self.inside(piece, depth)).collect()
    }

    /// The layers inside of a piece that stands so deep in others: of a run that is at least half of it, or
    /// inside of its own pieces.
    fn inside(&self, piece: &Range<usize>, depth: usize) -> Vec<Range<usize>> {
        let pieces = self.pieces(piece);
        if pieces.len() < 2 || depth >= DEPTH {
            return Vec::new();
        }
        let is_most =
            |run: &Repeated| 2 * size(&pieces[run.pieces.clone()]) >= piece.len();
        match repeated(&self.kinds(&pieces)).filter(is_most) {
            Some(run) => self.layers_beside(&pieces, &run, depth + 1),
            None => self.inside_each(&pieces, depth + 1),
        }
    }

    /// The layers of a run of some pieces, and those inside of pieces that are as large as two usual ones,
    /// wherever these stand: where the run seems to go on behind one, it may be by chance.
    fn layers_beside(
        &self,
        pieces: &[Range<usize>],
        run: &Repeated,
        depth: usize,
    ) -> Vec<Range<usize>> {
        let (before, rest) = pieces.split_at(run.pieces.start);
        let (own, behind) = rest.split_at(run.pieces.len());
        let own = own.chunks(run.length);
        let mut sizes: Vec<usize> = own.clone().map(size).collect();
        sizes.sort_unstable();
        let two = 2 * sizes[(sizes.len() - 1) / 2];
        let inside = |piece: &Range<usize>| match piece.len() >= two {
            true => self.inside(piece, depth),
            false => Vec::new(),
        };
        let others = |pieces: &[Range<usize>]| -> Vec<Range<usize>> {
            pieces.iter().flat_map(inside).collect()
        };
        let own = own.flat_map(|layer| parted(layer, inside)).collect();
        [others(before), own, others(behind)].concat()
    }

    /// The pieces of some nodes: each ends where fewest values go on.
    fn pieces(&self, nodes: &Range<usize>) -> Vec<Range<usize>> {
        let live = &self.live[nodes.clone()];
        let inner = &live[..live.len().saturating_sub(1)];
        let fewest = inner.iter().min();
        let ends = inner.iter().zip(nodes.start + 1..);
        let ends = ends.filter(|(live, _)| Some(*live) == fewest).map(|(_, end)| end);
        let ends: Vec<usize> = ends.chain([nodes.end]).collect();
        let starts = [nodes.start].into_iter().chain(ends.iter().copied());
        starts.zip(&ends).map(|(start, end)| start..*end).collect()
    }

    fn kinds(&self, pieces: &[Range<usize>]) -> Vec<Kinds> {
        let kind =
            |node: &NodeId| mem::discriminant(&self.graph.model.nodes[*node].operation);
        let own =
            |piece: &Range<usize>| self.nodes[piece.clone()].iter().map(kind).collect();
        pieces.iter().map(own).collect()
    }
}

fn size(ranges: &[Range<usize>]) -> usize {
    ranges.iter().map(Range::len).sum()
}

/// A layer of some pieces; where one of them has layers inside, these, and what is between them.
fn parted(
    layer: &[Range<usize>],
    inside: impl Fn(&Range<usize>) -> Vec<Range<usize>>,
) -> Vec<Range<usize>> {
    let mut parts = Vec::new();
    let mut start = layer[0].start;
    for piece in layer {
        let found = inside(piece);
        if !found.is_empty() {
            parts.push(start..piece.start);
            parts.extend(found);
            start = piece.end;
        }
    }
    parts.push(start..layer[layer.len() - 1].end);
    parts.retain(|part| !part.is_empty());
    parts
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
