//! In which tree gradients are summed, and how far that and the rule leave the exact gradient.

use super::{Placement, Plan, States};
use crate::{Exactness, spelled::spelled};

spelled! {
    /// In which tree the micro-batch gradients of a stage are summed; parameters that several stages
    /// use have a tree of their own ([`Plan::sum`]).
    pub enum Reduction: "reduction" {
        /// g_1 + g_2 + … + g_N, from left to right.
        Sequential = "sequential",
        /// In a ring of L devices: device by device (micro-batches i, i + L, …) from left to right,
        /// then the devices' sums in the order of the micro-batch that each took last; then the
        /// replicas.
        ByDevice = "by_device",
        /// Each replica's micro-batches from left to right, then the replicas' sums.
        ByReplica = "by_replica",
        /// The replicas' gradients of each micro-batch, then these sums from left to right.
        ByMicroBatch = "by_micro_batch",
        /// In each group of `shards` replicas by micro-batch, then the groups' sums.
        ByShard = "by_shard",
        /// Of two pipelines in opposite directions: the micro-batches that go down from left to
        /// right, then the sum of those that go up.
        ByDirection = "by_direction",
    }
}

impl Plan {
    /// The tree that goes with placement, states and replicas: a whole sum is kept by
    /// `replicated` and `zero1`; the others give each micro-batch's gradient away at once.
    pub fn own_reduction(&self) -> Reduction {
        let turns = self.placement == Placement::Shared && !self.rule.is_synchronous();
        // A micro-batch gives a gradient for each of its slices.
        let cell = self.cell_micro_batches().saturating_mul(self.slices);
        let members = self.members();
        let groups = match self.states {
            States::Replicated | States::Handoff | States::Zero1 => members,
            States::Zero2 | States::Zero3 => 1,
            States::Hsdp => members / self.shards.max(1),
        };
        match (turns, members, cell) {
            (false, 1, _) if self.is_mirrored() => Reduction::ByDirection,
            (true, ..) => Reduction::ByDevice,
            (false, 1, _) => Reduction::Sequential,
            (false, _, 1) if groups == 1 || groups == members => Reduction::Sequential,
            (false, ..) if groups == 1 => Reduction::ByMicroBatch,
            (false, ..) if self.states == States::Hsdp => Reduction::ByShard,
            (false, ..) => Reduction::ByReplica,
        }
    }

    /// The class of the gradients that this plan takes.
    pub fn exactness(&self) -> Exactness {
        let tree = match self.reduction {
            Reduction::Sequential => Exactness::Exact,
            Reduction::ByDevice
            | Reduction::ByReplica
            | Reduction::ByMicroBatch
            | Reduction::ByShard
            | Reduction::ByDirection => Exactness::Reordered,
        };
        let fresh = self.delays.max() == 0 && self.boundaries.is_empty();
        let rule = if fresh { Exactness::Exact } else { self.rule.exactness() };
        // Products of split tensors are summed part by part.
        let parts = match self.tensor.parts() {
            1 => Exactness::Exact,
            _ => Exactness::Reordered,
        };
        // So are gradients of slices, slice by slice.
        let slices = match self.slices {
            1 => Exactness::Exact,
            _ => Exactness::Reordered,
        };
        // So are those of parameters that several stages use, stage by stage.
        let ties = match self.ties.as_slice() {
            [] => Exactness::Exact,
            _ => Exactness::Reordered,
        };
        rule.max(tree).max(parts).max(slices).max(ties)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Order, Rule, Tensor};

    #[test]
    fn split_tensors_are_summed_in_another_order_in_either_direction() {
        let (placement, order) = (Placement::Accumulate, Order::Sequential);
        let plan =
            Plan::new(Rule::Sync, placement, order, States::Replicated, 2, Vec::new());
        let class = |tensor| plan.clone().with_tensor(tensor).exactness();
        assert_eq!(class(Tensor::WHOLE), Exactness::Exact);
        for tensor in [Tensor::grid(1, 2), Tensor::grid(2, 1), Tensor::grid(2, 2)] {
            assert_eq!(class(tensor), Exactness::Reordered, "{tensor:?}");
        }
    }
}
