//! Gradient sums, each kept once, so that two can be compared by number.
//!
//! A sum is a tree of additions: (a + b) + c is the same whether it is written as one list or as
//! lists of one.

use crate::{Id, MicroBatch, Run, Sum};
use std::{collections::BTreeMap, num::NonZeroU32};

/// A sum in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SumId(u32);

/// How a sum is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Node {
    /// The gradient of one micro-batch.
    First(MicroBatch),
    /// Two sums.
    Add(SumId, SumId),
}

/// All sums seen so far.
#[derive(Debug, Default)]
pub(super) struct Sums {
    nodes: Vec<Node>,
    ids: BTreeMap<Node, SumId>,
    moved: BTreeMap<(SumId, usize), SumId>,
    /// By the first micro-batch and the step of a run: the sums that begin it.
    runs: BTreeMap<(MicroBatch, NonZeroU32), Vec<SumId>>,
}

impl Sums {
    fn intern(&mut self, node: Node) -> SumId {
        let count = u32::try_from(self.nodes.len());
        let fresh = SumId(count.expect("limits keep sums below 2^32"));
        let id = *self.ids.entry(node).or_insert(fresh);
        if id == fresh {
            self.nodes.push(node);
        }
        id
    }

    fn node(&self, sum: SumId) -> Node {
        self.nodes[sum.0 as usize]
    }

    /// The gradient of one micro-batch.
    pub(super) fn first(&mut self, i: MicroBatch) -> SumId {
        self.intern(Node::First(i))
    }

    /// `sum` + the gradient of one more micro-batch.
    pub(super) fn add(&mut self, sum: SumId, i: MicroBatch) -> SumId {
        let last = self.first(i);
        self.join(sum, last)
    }

    /// `sum` + `other`.
    pub(super) fn join(&mut self, sum: SumId, other: SumId) -> SumId {
        self.intern(Node::Add(sum, other))
    }

    /// `other` alone when there is no sum yet, else [`Sums::join`].
    pub(super) fn append(&mut self, sum: Option<SumId>, other: SumId) -> SumId {
        match sum {
            None => other,
            Some(sum) => self.join(sum, other),
        }
    }

    /// The number of a sum; none when some part of it is empty.
    pub(super) fn of(&mut self, sum: &Sum) -> Option<SumId> {
        match sum {
            Sum::One(i) => Some(self.first(*i)),
            Sum::Run(run) => Some(self.run(*run)),
            Sum::All(parts) => {
                let mut all = None;
                for part in parts.iter() {
                    let part = self.of(part)?;
                    all = Some(self.append(all, part));
                }
                all
            }
        }
    }

    /// The sum of a run. Runs that go on from shorter ones, as along cyclic workers, cost what they
    /// are longer; [`super::limit::TERMS`] bounds them all.
    fn run(&mut self, run: Run) -> SumId {
        let key = (run.first(), run.step());
        let mut begun = self.runs.remove(&key).unwrap_or_default();
        for number in run.numbers().skip(begun.len()) {
            let gradient = self.first(MicroBatch::numbered(number));
            begun.push(self.append(begun.last().copied(), gradient));
        }
        let sum = begun[run.count() as usize - 1];
        self.runs.insert(key, begun);
        sum
    }

    /// The sum over the micro-batches of another coordinate, `by` further.
    pub(super) fn shifted(&mut self, sum: SumId, by: usize) -> SumId {
        if by == 0 {
            return sum;
        }
        if let Some(moved) = self.moved.get(&(sum, by)) {
            return *moved;
        }
        let mut parts = Vec::new();
        let mut rest = sum;
        while let Node::Add(before, last) = self.node(rest) {
            parts.push(last);
            rest = before;
        }
        let mut moved = match self.node(rest) {
            Node::First(i) => self.first(MicroBatch::new(i.index() + by)),
            Node::Add(..) => unreachable!("the loop ends at the first gradient"),
        };
        for part in parts.into_iter().rev() {
            let part = self.shifted(part, by);
            moved = self.join(moved, part);
        }
        self.moved.insert((sum, by), moved);
        moved
    }

    /// The sum written out.
    pub(super) fn spell(&self, sum: SumId) -> Sum {
        let (mut parts, mut rest) = (Vec::new(), sum);
        while let Node::Add(before, last) = self.node(rest) {
            parts.push(self.spell_part(last));
            rest = before;
        }
        parts.push(self.spell_part(rest));
        parts.reverse();
        Sum::all(parts)
    }

    fn spell_part(&self, sum: SumId) -> Sum {
        match self.node(sum) {
            Node::First(i) => Sum::One(i),
            Node::Add(..) => self.spell(sum),
        }
    }
}

/// Gradients of the longest run of each beginning and step: so many sums the store keeps of runs.
pub(super) fn terms_of_runs<'a>(sums: impl Iterator<Item = &'a Sum>) -> u64 {
    let mut longest = BTreeMap::new();
    for run in sums.flat_map(Sum::runs) {
        let count = longest.entry((run.first(), run.step())).or_insert(0);
        *count = run.count().max(*count);
    }
    longest.values().sum()
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
    /// The tree of a sum; none when some part of it is empty.
    pub(super) fn new(sums: &mut Sums, sum: &Sum) -> Option<Self> {
        let (steps, parts) = (BTreeMap::new(), Vec::new());
        let mut tree = Self { whole: SumId(0), steps, parts };
        tree.whole = tree.walk(sums, sum)?;
        tree.parts.sort_unstable();
        Some(tree)
    }

    /// Every list is made from left to right: what begins it, and all that it comes to.
    fn walk(&mut self, sums: &mut Sums, sum: &Sum) -> Option<SumId> {
        let mut before = None;
        for part in sum.parts() {
            let own = match &part {
                Sum::One(i) => sums.first(*i),
                Sum::Run(_) | Sum::All(_) => self.walk(sums, &part)?,
            };
            let next = sums.append(before, own);
            if let Sum::One(i) = part {
                self.steps.insert(i, (before, next));
            }
            self.parts.push(next);
            before = Some(next);
        }
        before
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
        let list = |list: &&[usize]| Sum::list(list.iter().copied().map(MicroBatch::new));
        Sum::all(lists.iter().map(list).collect())
    }

    #[test]
    fn lists_of_one_continue_the_first_list() {
        let mut sums = Sums::default();
        assert_eq!(sums.of(&sum(&[&[0], &[1], &[2]])), sums.of(&sum(&[&[0, 1, 2]])));
        assert_eq!(sums.of(&sum(&[&[0, 1], &[2]])), sums.of(&sum(&[&[0, 1, 2]])));
        assert_ne!(sums.of(&sum(&[&[0], &[1, 2]])), sums.of(&sum(&[&[0, 1, 2]])));
        assert_ne!(sums.of(&sum(&[&[1, 0]])), sums.of(&sum(&[&[0, 1]])));
        let deep = sums.of(&sum(&[&[0, 3], &[1, 4], &[2]])).unwrap();
        let spelled = sums.spell(deep);
        assert_eq!(sums.of(&spelled), Some(deep));
        assert_eq!(sums.of(&sum(&[&[0, 3], &[], &[2]])), None);
        let moved = sums.shifted(deep, 5);
        assert_eq!(sums.of(&sum(&[&[5, 8], &[6, 9], &[7]])), Some(moved));
    }

    #[test]
    fn runs_are_the_lists_that_they_stand_for() {
        let mut sums = Sums::default();
        for count in [3, 6, 2] {
            let list: Vec<usize> = (0..count).map(|k| 1 + 4 * k).collect();
            let run = Sum::list(list.iter().copied().map(MicroBatch::new));
            assert!(matches!(run, Sum::Run(_)));
            let mut one_by_one = sums.first(MicroBatch::new(list[0]));
            for i in &list[1..] {
                one_by_one = sums.add(one_by_one, MicroBatch::new(*i));
            }
            assert_eq!((sums.of(&run), sums.spell(one_by_one)), (Some(one_by_one), run));
        }
    }

    #[test]
    fn runs_that_begin_others_add_nothing_to_what_is_kept() {
        let run = |first: usize, count: usize| {
            Sum::list((first..first + count).map(MicroBatch::new))
        };
        let all = [run(0, 2), run(0, 5), run(0, 3), sum(&[&[0, 2, 4], &[7]]), run(3, 4)];
        assert_eq!(terms_of_runs(all.iter()), 5 + 3 + 4);
        let mut sums = Sums::default();
        let count = |sums: &mut Sums, sum: &Sum| {
            sums.of(sum);
            sums.runs.values().map(Vec::len).sum::<usize>()
        };
        assert_eq!(all.map(|sum| count(&mut sums, &sum)), [2, 5, 5, 8, 12]);
    }

    #[test]
    fn sums_of_sums_keep_their_shape() {
        let mut sums = Sums::default();
        let group = |start: usize| sum(&[&[start, start + 2], &[start + 1, start + 3]]);
        let whole = Sum::all(vec![group(0), group(4)]);
        let id = sums.of(&whole).unwrap();
        let first = sums.of(&group(0)).unwrap();
        let second = sums.shifted(first, 4);
        assert_eq!(sums.join(first, second), id);
        let tree = Tree::new(&mut sums, &whole).unwrap();
        assert!(tree.has(second) && tree.has(first));
        let flat = sums.of(&sum(&[&[0, 2, 1, 3, 4, 6, 5, 7]])).unwrap();
        assert!(!tree.has(flat));
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
