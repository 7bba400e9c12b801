//! Regions of a model: operations between values whose layout is fixed. In each the ways of the
//! maps are chosen for themselves, and equal regions are one.

use super::{fences, kinds::kind};
use roundelay_codegen::{Divided, Lie, Needs, needs};
use roundelay_dsl::{Heads, Node, NodeId, Operation, Projections, Source};
use roundelay_schedule::{Contraction, Direction, Id, MapWay};
use std::collections::{BTreeMap, BTreeSet};

/// What lies between fixed values, by all that the ways of its maps depend on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Region {
    pub(super) grid: Grid,
    /// Fixed values that it reads.
    pub(super) given: Vec<Given>,
    /// Its operations; operands come before their users.
    pub(super) operations: Vec<Part>,
    /// What others read of it, and how that lies.
    pub(super) needed: Vec<(usize, Lie)>,
}

/// A grid, and whether its maps choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Grid {
    pub(super) rows: u64,
    pub(super) columns: u64,
    pub(super) contraction: Contraction,
    /// The direction that has nothing to move.
    pub(super) idle: Option<Direction>,
}

/// A value that is fixed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Given {
    pub(super) lie: Lie,
    pub(super) size: Size,
    /// Whether its gradient is wanted.
    pub(super) gradient: bool,
}

/// How large a value is for one example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Size {
    pub(super) elements: u64,
    /// Features of each of its tokens.
    pub(super) width: u64,
    /// The number of the extent that counts them.
    pub(super) last: u32,
}

/// An operation of a region.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Part {
    pub(super) kind: Kind,
    pub(super) operands: Vec<Operand>,
    pub(super) size: Size,
    /// Whether the gradient of what it makes is wanted.
    pub(super) gradient: bool,
    /// Which of its operands the backward pass reads.
    pub(super) reads: Vec<bool>,
}

/// What an operation reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Operand {
    Given(usize),
    Made(usize),
}

/// The operations that rules know.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// An affine map of this many numbers for each that it makes, those of a window of pixels for a
    /// convolution; with the ways that it may go and the one it went by itself. None is that every
    /// part does all of it.
    Map { read: u64, open: Vec<Option<MapWay>>, alone: Option<MapWay> },
    /// Element by element.
    Each,
    /// Of two values, element by element.
    Pair,
    /// The sum of two convolutions, which are added up before they meet if both go one way.
    Join,
    /// Of channels in groups: a norm, a pool of windows, larger images, or a convolution with
    /// filters of its own for each group, of this many products for each number that it makes.
    Channels { groups: u64, products: u64 },
    /// The mean of each of this many channels over all pixels.
    Pool { channels: u64 },
    /// Over the last extent, by this many sums for each token; softmax is not made of sums.
    Norm { sums: Option<u64> },
    /// Of queries, keys and values head by head.
    Attend { heads: Heads },
    /// Of one value that has all three.
    AttendPacked { heads: Heads },
    /// Scores of queries and keys.
    Scores { heads: Heads },
    /// Values weighed by scores.
    Mix { heads: Heads },
    /// Positions turned head by head.
    Rotary { heads: u64 },
    /// A loss over classes.
    Loss,
    /// What every part makes of all that it reads.
    Whole,
}

/// A region, and the number of each of its operations in the model.
pub(super) struct Found {
    pub(super) region: Region,
    pub(super) sites: Vec<NodeId>,
}

/// The regions of a model; none where it has no derivatives, for then nothing is lowered.
pub(super) fn regions(divided: &Divided<'_>) -> Vec<Found> {
    let Ok(needs) = needs(divided.model) else { return Vec::new() };
    let outline = Outline::new(divided, needs);
    let mut groups: BTreeMap<usize, Vec<NodeId>> = BTreeMap::new();
    for id in outline.known.keys() {
        groups.entry(outline.group(id.index())).or_default().push(*id);
    }
    let groups = groups.into_values();
    groups.filter_map(|sites| outline.region(sites)).collect()
}

impl Region {
    /// Whether there is something to choose.
    pub(super) fn has_maps(&self) -> bool {
        self.operations.iter().any(|part| matches!(part.kind, Kind::Map { .. }))
    }
}

/// Which values are fixed, and which operations belong together.
struct Outline<'a> {
    divided: &'a Divided<'a>,
    known: BTreeMap<NodeId, Kind>,
    /// Values that others than the next operations of a region count on.
    fixed: BTreeSet<NodeId>,
    /// What backward needs of each operation.
    needs: Vec<Needs>,
    /// For each operation one further up that it belongs with, or itself.
    with: Vec<usize>,
}

impl<'a> Outline<'a> {
    fn new(divided: &'a Divided<'a>, needs: Vec<Needs>) -> Self {
        let nodes = &divided.model.nodes;
        let inside = divided.model.cuttable();
        let known: BTreeMap<NodeId, Kind> = nodes
            .iter()
            .take(inside)
            .filter_map(|(id, node)| Some((id, kind(divided, id, node)?)))
            .collect();
        let with = (0..nodes.len()).collect();
        let fixed = BTreeSet::new();
        let mut outline = Self { divided, known, fixed, needs, with };
        outline.fixed = fences::fixed(divided.model, &outline.known);
        outline.join();
        outline
    }

    /// Joins operations over values that are not fixed.
    fn join(&mut self) {
        for id in self.known.keys() {
            for operand in &self.divided.model.nodes[*id].operands {
                if let Source::Node(operand) = operand
                    && self.known.contains_key(operand)
                    && !self.fixed.contains(operand)
                {
                    let (one, other) =
                        (self.group(id.index()), self.group(operand.index()));
                    self.with[one.max(other)] = one.min(other);
                }
            }
        }
    }

    fn group(&self, mut node: usize) -> usize {
        while self.with[node] != node {
            node = self.with[node];
        }
        node
    }

    /// None where a fixed value lies in a way that rules do not know.
    fn region(&self, sites: Vec<NodeId>) -> Option<Found> {
        let tensor = self.divided.tensor;
        let (rows, columns) = (u64::from(tensor.rows), u64::from(tensor.columns));
        let contraction = tensor.contraction;
        let grid = Grid { rows, columns, contraction, idle: tensor.idle() };
        let (given, operations, needed) = (Vec::new(), Vec::new(), Vec::new());
        let mut region = Region { grid, given, operations, needed };
        let place: BTreeMap<NodeId, usize> =
            sites.iter().enumerate().map(|(place, id)| (*id, place)).collect();
        let mut sources: Vec<Source> = Vec::new();
        for id in &sites {
            let node = &self.divided.model.nodes[*id];
            let mut operands = Vec::new();
            for source in self.values(node) {
                operands.push(match source {
                    Source::Node(own)
                        if place.contains_key(&own) && !self.fixed.contains(&own) =>
                    {
                        Operand::Made(place[&own])
                    }
                    _ => {
                        let known = sources.iter().position(|known| *known == source);
                        let number = known.unwrap_or(sources.len());
                        if known.is_none() {
                            sources.push(source);
                            region.given.push(self.given(source)?);
                        }
                        Operand::Given(number)
                    }
                });
            }
            let (kind, size) = (self.known[id].clone(), self.size(Source::Node(*id)));
            let Needs { gradient, mut reads } = self.needs[id.index()].clone();
            reads.truncate(operands.len());
            region.operations.push(Part { kind, operands, size, gradient, reads });
            let is_loss = self.divided.model.loss == Some(*id);
            if self.fixed.contains(id) || is_loss {
                let lie = self.divided.lies[id.index()];
                if lie == Lie::Otherwise {
                    return None;
                }
                region.needed.push((place[id], lie));
            }
        }
        Some(Found { region, sites })
    }

    /// The values among the operands that lie somehow: parameters are kept as they are read.
    fn values(&self, node: &Node) -> Vec<Source> {
        let count = match node.operation {
            Operation::Attention { projections: Projections::Apart, .. } => 3,
            Operation::Scores { .. }
            | Operation::Mix { .. }
            | Operation::MeanSquaredError => 2,
            Operation::Add | Operation::Multiply
                if matches!(node.operands[1], Source::Node(_)) =>
            {
                2
            }
            _ => 1,
        };
        node.operands.iter().copied().take(count).collect()
    }

    fn given(&self, source: Source) -> Option<Given> {
        let (lie, gradient) = match source {
            Source::Node(id) => {
                (self.divided.lies[id.index()], self.needs[id.index()].gradient)
            }
            Source::Parameter(_) | Source::Input(_) => (Lie::Whole, false),
        };
        let size = self.size(source);
        (lie != Lie::Otherwise).then_some(Given { lie, size, gradient })
    }

    fn size(&self, source: Source) -> Size {
        let shape = self.divided.model.shape(source);
        let elements = shape.iter().map(|extent| extent.size).product();
        let width = shape.last().map_or(1, |extent| extent.size);
        let last = u32::try_from(shape.len().saturating_sub(1)).unwrap_or(u32::MAX);
        Size { elements, width, last }
    }
}
