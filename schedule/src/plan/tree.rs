//! The tree in which each state of a plan adds its gradients.

use super::{Plan, Reduction};
use crate::{Id, MicroBatch, Stage, Sum, Tie};

impl Plan {
    /// The sum in which a state adds its gradients: that of `stage`, counted from zero and without
    /// slices, or of a tie, counted on.
    pub fn sum(&self, stage: u32) -> Sum {
        let state = Stage::numbered(stage);
        if let Some(tie) = self.tie(state) {
            return self.by_user(tie);
        }
        let (members, cell) = (self.members(), self.cell_additions(state));
        let one =
            |member: u32, i: u32| Sum::One(MicroBatch::new((member * cell + i) as usize));
        let by_micro_batch = |group: std::ops::Range<u32>| {
            let across =
                |i| Sum::all(group.clone().map(|member| one(member, i)).collect());
            Sum::all((0..cell).map(across).collect())
        };
        match self.reduction {
            Reduction::Sequential => {
                Sum::list((0..members * cell).map(MicroBatch::numbered))
            }
            Reduction::ByDevice => self.by_device(stage),
            Reduction::ByReplica => {
                let own = |member| Sum::all((0..cell).map(|i| one(member, i)).collect());
                Sum::all((0..members).map(own).collect())
            }
            Reduction::ByMicroBatch => by_micro_batch(0..members),
            Reduction::ByDirection => {
                let p = self.pipeline_devices();
                let up = |i: &u32| self.order.goes_up(*i, p, cell);
                let (up, down): (Vec<u32>, Vec<u32>) = (0..cell).partition(up);
                let sum = |list: Vec<u32>| {
                    Sum::list(list.into_iter().map(MicroBatch::numbered))
                };
                Sum::all([down, up].map(sum).into())
            }
            Reduction::ByShard => {
                let shards = self.shards.max(1);
                let starts = (0..members).step_by(shards as usize);
                Sum::all(
                    starts.map(|start| by_micro_batch(start..start + shards)).collect(),
                )
            }
        }
    }

    /// In each replica the micro-batches of each stage of a tie, then the stages' sums; then the
    /// replicas'.
    fn by_user(&self, tie: &Tie) -> Sum {
        let (members, each) =
            (self.members() as usize, self.cell_micro_batches() as usize);
        let users = tie.sums() as usize;
        let user = |number: usize| {
            Sum::list((number * each..(number + 1) * each).map(MicroBatch::new))
        };
        let member = |number: usize| {
            Sum::all((number * users..(number + 1) * users).map(user).collect())
        };
        match members {
            1 => member(0),
            _ => Sum::all((0..members).map(member).collect()),
        }
    }

    fn by_device(&self, stage: u32) -> Sum {
        let Self { placement, rule, micro_batches, stages, .. } = *self;
        let ring = placement.ring(rule, micro_batches, stages, stage);
        let (members, cell) = (self.members(), self.cell_micro_batches());
        let of = |member: u32| -> Vec<Sum> {
            let group = |last: u32| {
                let own = (last % ring..cell).step_by(ring as usize);
                Sum::list(own.map(|i| MicroBatch::new((member * cell + i) as usize)))
            };
            (cell.saturating_sub(ring)..cell).map(group).collect()
        };
        match members {
            1 => Sum::all(of(0)),
            _ => Sum::all((0..members).map(|member| Sum::all(of(member))).collect()),
        }
    }
}
