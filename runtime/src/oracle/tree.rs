//! How the gradients of a step become one sum.
//!
//! A backward pass can add to what stands in its gradient, term by term; that is not the same
//! as adding a whole gradient. It does so along a run: a list of micro-batches of one coordinate.
//! Everything else is whole sums added to each other.

use roundelay_schedule::{Access, Id, Sum};
use std::collections::BTreeMap;

/// A tree of sums over runs.
pub(super) struct GradientTree {
    root: Node,
    /// By micro-batch: its run, and what it does to the run's sum.
    places: BTreeMap<usize, (usize, Access)>,
    runs: usize,
}

/// A sum of whole gradients.
enum Node {
    Run(usize),
    /// From left to right; there is a first.
    All(Vec<Node>),
}

impl GradientTree {
    /// The tree of a plan's sum, whose coordinates take `cell` micro-batches each.
    pub(super) fn new(sum: &Sum, cell: usize) -> Self {
        let mut tree = Self { root: Node::Run(0), places: BTreeMap::new(), runs: 0 };
        tree.root = tree.node(sum, cell);
        tree
    }

    fn node(&mut self, sum: &Sum, cell: usize) -> Node {
        match sum {
            Sum::One(i) => self.run(&[i.index()]),
            Sum::Run(_) | Sum::All(_) => {
                let all: Vec<usize> = sum.micro_batches().map(Id::index).collect();
                let parts = sum.parts();
                let flat = parts.iter().all(|part| matches!(part, Sum::One(_)));
                let together = all.iter().all(|i| i / cell == all[0] / cell);
                match flat && together {
                    true => self.run(&all),
                    false => {
                        Node::All(parts.iter().map(|p| self.node(p, cell)).collect())
                    }
                }
            }
        }
    }

    fn run(&mut self, members: &[usize]) -> Node {
        for (place, i) in members.iter().enumerate() {
            let access = if place == 0 { Access::Write } else { Access::Update };
            self.places.insert(*i, (self.runs, access));
        }
        self.runs += 1;
        Node::Run(self.runs - 1)
    }

    /// Number of runs.
    pub(super) fn runs(&self) -> usize {
        self.runs
    }

    /// The run of a micro-batch, and whether it begins it.
    pub(super) fn place(&self, i: usize) -> (usize, Access) {
        self.places[&i]
    }

    /// Adds everything up through `add(to, from)` over runs; returns the run that holds the whole.
    pub(super) fn fold(&self, add: &mut impl FnMut(usize, usize)) -> usize {
        fold(&self.root, add)
    }
}

fn fold(node: &Node, add: &mut impl FnMut(usize, usize)) -> usize {
    match node {
        Node::Run(run) => *run,
        Node::All(parts) => {
            let (first, others) = parts.split_first().expect("a sum is not empty");
            let to = fold(first, add);
            for part in others {
                let from = fold(part, add);
                add(to, from);
            }
            to
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roundelay_schedule::MicroBatch;

    fn list(members: &[usize]) -> Sum {
        Sum::list(members.iter().copied().map(MicroBatch::new))
    }

    #[test]
    fn only_lists_on_one_coordinate_are_runs() {
        let tree = GradientTree::new(&Sum::all(vec![list(&[0, 1]), list(&[2, 3])]), 2);
        assert_eq!(tree.runs(), 2);
        assert_eq!(
            [1, 2].map(|i| tree.place(i)),
            [(0, Access::Update), (1, Access::Write)]
        );
        let tree = GradientTree::new(&Sum::all(vec![list(&[0, 2]), list(&[1, 3])]), 2);
        let mut added = Vec::new();
        let whole = tree.fold(&mut |to, from| added.push((to, from)));
        assert_eq!((tree.runs(), whole), (4, 0));
        assert_eq!(added, [(0, 1), (2, 3), (0, 2)]);
    }
}
