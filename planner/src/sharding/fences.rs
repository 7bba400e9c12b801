//! Which values of a model are fixed, so that regions lie between them.

use super::region::Kind;
use roundelay_dsl::{Model, Node, NodeId, Operation, Source};
use roundelay_schedule::Id;
use std::collections::{BTreeMap, BTreeSet};

/// Maps of a chain after which a value is fixed, wherever it may be.
const MAPS_MAX: usize = 8;

/// The same of operations of any kind, so that no chain makes a graph that grows beyond its limits.
const OPERATIONS_MAX: usize = 32;

/// Maps behind which a value that is read over their heads is fixed: a skip.
const SKIPPED_MAX: usize = 6;

/// What operations that no rule knows make and read, skips over many maps, where branches meet again,
/// and values on long chains.
pub(super) fn fixed(model: &Model, known: &BTreeMap<NodeId, Kind>) -> BTreeSet<NodeId> {
    let fences = Fences { model, known, last: last_readers(model) };
    let mut fixed = fences.unknown();
    fixed.extend(fences.skips());
    fences.meetings(fixed)
}

struct Fences<'a> {
    model: &'a Model,
    known: &'a BTreeMap<NodeId, Kind>,
    /// The last operation that reads each value.
    last: Vec<usize>,
}

fn values(node: &Node) -> impl Iterator<Item = NodeId> {
    node.operands.iter().filter_map(|operand| match operand {
        Source::Node(id) => Some(*id),
        Source::Parameter(_) | Source::Input(_) => None,
    })
}

/// The operations that cuts may stand between.
fn inside(model: &Model) -> impl Iterator<Item = (NodeId, &Node)> {
    model.nodes.iter().take(model.cuttable())
}

fn last_readers(model: &Model) -> Vec<usize> {
    let mut last = vec![0; model.nodes.len()];
    for (id, node) in inside(model) {
        values(node).for_each(|operand| last[operand.index()] = id.index());
    }
    last
}

impl Fences<'_> {
    fn is_map(&self, id: NodeId) -> bool {
        matches!(self.known.get(&id), Some(Kind::Map { .. }))
    }

    /// What operations that no rule knows make and read.
    fn unknown(&self) -> BTreeSet<NodeId> {
        let mut fixed = BTreeSet::new();
        for (id, node) in inside(self.model) {
            if !self.known.contains_key(&id) {
                fixed.insert(id);
                fixed.extend(values(node));
            }
        }
        fixed
    }

    /// Values that are read behind many other maps.
    fn skips(&self) -> Vec<NodeId> {
        let mut maps = 0;
        let mut before = Vec::with_capacity(self.model.nodes.len());
        for id in self.model.nodes.ids() {
            before.push(maps);
            maps += usize::from(self.is_map(id));
        }
        let skips = |id: &NodeId| {
            let own = before[id.index()] + usize::from(self.is_map(*id));
            before[self.last[id.index()]] > own + SKIPPED_MAX
        };
        self.known.keys().copied().filter(skips).collect()
    }

    /// Besides those that are fixed, what branches make where they meet again, and values on long
    /// chains. A value is narrow that is all that goes on from what stands above: no operation
    /// behind it reads what stands before it, but for what is fixed.
    fn meetings(&self, mut fixed: BTreeSet<NodeId>) -> BTreeSet<NodeId> {
        let mut narrow = BTreeSet::new();
        let (mut reach, mut maps, mut operations) = (0, 0, 0);
        for (id, node) in inside(self.model) {
            maps += usize::from(self.is_map(id));
            operations += 1;
            let is_narrow = reach <= id.index();
            if is_narrow {
                narrow.insert(id);
            }
            let skips = || values(node).any(|own| narrow.contains(&own));
            let meets = || match self.known.get(&id) {
                Some(Kind::Pair) => node.operation == Operation::Add || skips(),
                Some(Kind::Join) => skips(),
                _ => false,
            };
            let is_long = || maps >= MAPS_MAX || operations >= OPERATIONS_MAX;
            if is_narrow && self.known.contains_key(&id) && (is_long() || meets()) {
                fixed.insert(id);
            }
            if fixed.contains(&id) {
                (maps, operations) = (0, 0);
            } else {
                reach = reach.max(self.last[id.index()]);
            }
        }
        fixed
    }
}
