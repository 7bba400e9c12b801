//! Gradient sums, each kept once, so that two can be compared by number.
//!
//! (a + b) + c is the same sum whether it is written as one list or as lists of one; sums are
//! kept in the form with the longest first list.

use crate::{Id, MicroBatch, Sum};
use std::collections::BTreeMap;

/// A sum in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SumId(u32);

/// How a sum is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Node {
    /// The gradient of one micro-batch.
    First(MicroBatch),
    /// A single list and one more micro-batch.
    Push(SumId, MicroBatch),
    /// A sum and a single list.
    Join(SumId, SumId),
}

/// All sums seen so far.
#[derive(Debug, Default)]
pub(super) struct Sums {
    nodes: Vec<Node>,
    ids: BTreeMap<Node, SumId>,
}

impl Sums {
    fn intern(&mut self, node: Node) -> SumId {
        let fresh = SumId(self.nodes.len() as u32);
        let id = *self.ids.entry(node).or_insert(fresh);
        if id == fresh {
            self.nodes.push(node);
        }
        id
    }

    fn node(&self, sum: SumId) -> Node {
        self.nodes[sum.0 as usize]
    }

    fn is_single(&self, sum: SumId) -> bool {
        !matches!(self.node(sum), Node::Join(..))
    }

    /// The gradient of one micro-batch.
    pub(super) fn first(&mut self, i: MicroBatch) -> SumId {
        self.intern(Node::First(i))
    }

    /// `sum` + the gradient of one more micro-batch.
    pub(super) fn add(&mut self, sum: SumId, i: MicroBatch) -> SumId {
        if self.is_single(sum) {
            return self.intern(Node::Push(sum, i));
        }
        let last = self.first(i);
        self.intern(Node::Join(sum, last))
    }

    /// `sum` + (`list`), if the latter is no sum of sums.
    pub(super) fn join(&mut self, sum: SumId, list: SumId) -> Option<SumId> {
        match self.node(list) {
            Node::First(i) => Some(self.add(sum, i)),
            Node::Push(..) => Some(self.intern(Node::Join(sum, list))),
            Node::Join(..) => None,
        }
    }

    /// The sum of an empty one and `list`, else [`Sums::join`].
    pub(super) fn append(&mut self, sum: Option<SumId>, list: SumId) -> Option<SumId> {
        match sum {
            None => Some(list),
            Some(sum) => self.join(sum, list),
        }
    }

    /// The number of a sum; none when it is empty.
    pub(super) fn of(&mut self, sum: &Sum) -> Option<SumId> {
        let mut all = None;
        for list in &sum.0 {
            let list = list.iter().fold(None, |sum, i| Some(self.extend(sum, *i)))?;
            all = self.append(all, list);
        }
        all
    }

    fn extend(&mut self, sum: Option<SumId>, i: MicroBatch) -> SumId {
        match sum {
            None => self.first(i),
            Some(sum) => self.add(sum, i),
        }
    }

    /// The sum over the micro-batches of another coordinate, `by` further.
    pub(super) fn shifted(&mut self, sum: SumId, by: usize) -> SumId {
        if by == 0 {
            return sum;
        }
        let mut moved = self.spell(sum);
        for i in moved.0.iter_mut().flatten() {
            *i = MicroBatch::new(i.index() + by);
        }
        self.of(&moved).unwrap_or(sum)
    }

    /// The sum written out.
    pub(super) fn spell(&self, sum: SumId) -> Sum {
        let (mut lists, mut rest) = (Vec::new(), Some(sum));
        while let Some(sum) = rest {
            let (list, before) = match self.node(sum) {
                Node::Join(before, list) => (list, Some(before)),
                Node::First(_) | Node::Push(..) => (sum, None),
            };
            lists.push(self.list(list));
            rest = before;
        }
        lists.reverse();
        Sum(lists)
    }

    fn list(&self, mut sum: SumId) -> Vec<MicroBatch> {
        let mut list = Vec::new();
        loop {
            match self.node(sum) {
                Node::First(i) => {
                    list.push(i);
                    list.reverse();
                    return list;
                }
                Node::Push(before, i) => {
                    list.push(i);
                    sum = before;
                }
                Node::Join(_, last) => sum = last,
            }
        }
    }
}

/// The sum of one stage that the plan demands, and every sum on the way to it.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    /// The whole.
    pub(super) whole: SumId,
    /// By micro-batch: the part that ends before it, and the part that ends with it.
    steps: BTreeMap<MicroBatch, (Option<SumId>, SumId)>,
    parts: Vec<SumId>,
}

impl Tree {
    /// The tree of a sum; none when the sum is empty.
    pub(super) fn new(sums: &mut Sums, sum: &Sum) -> Option<Self> {
        let whole = sums.of(sum)?;
        let (mut steps, mut parts, mut before) = (BTreeMap::new(), Vec::new(), None);
        for list in &sum.0 {
            let mut own = None;
            for i in list {
                let next = sums.extend(own, *i);
                steps.insert(*i, (own, next));
                parts.push(next);
                parts.extend(sums.append(before, next));
                own = Some(next);
            }
            before = sums.append(before, own?);
        }
        parts.sort_unstable();
        Some(Self { whole, steps, parts })
    }

    /// Whether a sum is on the way to the whole.
    pub(super) fn has(&self, part: SumId) -> bool {
        self.parts.binary_search(&part).is_ok()
    }

    /// The part that ends with a micro-batch, or the whole where there is none.
    pub(super) fn with(&self, i: MicroBatch) -> SumId {
        self.steps.get(&i).map_or(self.whole, |(_, with)| *with)
    }

    /// The part that ends before a micro-batch, or the whole where there is none.
    pub(super) fn before(&self, i: MicroBatch) -> SumId {
        self.steps.get(&i).and_then(|(before, _)| *before).unwrap_or(self.whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(lists: &[&[usize]]) -> Sum {
        Sum(lists
            .iter()
            .map(|list| list.iter().copied().map(MicroBatch::new).collect())
            .collect())
    }

    #[test]
    fn lists_of_one_continue_the_first_list() {
        let mut sums = Sums::default();
        assert_eq!(sums.of(&sum(&[&[0], &[1], &[2]])), sums.of(&sum(&[&[0, 1, 2]])));
        assert_eq!(sums.of(&sum(&[&[0, 1], &[2]])), sums.of(&sum(&[&[0, 1, 2]])));
        assert_ne!(sums.of(&sum(&[&[0], &[1, 2]])), sums.of(&sum(&[&[0, 1, 2]])));
        assert_ne!(sums.of(&sum(&[&[1, 0]])), sums.of(&sum(&[&[0, 1]])));
        let deep = sums.of(&sum(&[&[0, 3], &[1, 4], &[2]])).unwrap();
        assert_eq!(sums.spell(deep), sum(&[&[0, 3], &[1, 4], &[2]]));
        let moved = sums.shifted(deep, 5);
        assert_eq!(sums.spell(moved), sum(&[&[5, 8], &[6, 9], &[7]]));
    }

    #[test]
    fn parts_of_a_tree_are_its_prefixes() {
        let mut sums = Sums::default();
        let tree = Tree::new(&mut sums, &sum(&[&[0, 3], &[1, 4]])).unwrap();
        for part in
            [&[&[0][..]][..], &[&[0, 3]], &[&[1]], &[&[1, 4]], &[&[0, 3], &[1, 4]]]
        {
            let part = sums.of(&sum(part)).unwrap();
            assert!(tree.has(part));
        }
        for other in [&[&[3][..]][..], &[&[0, 1]], &[&[4]], &[&[1, 4], &[0, 3]]] {
            let other = sums.of(&sum(other)).unwrap();
            assert!(!tree.has(other));
        }
    }
}
