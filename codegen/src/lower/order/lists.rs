//! The list of each device of a pipeline, one builder per order.
//!
//! | order | source |
//! | --- | --- |
//! | `gpipe` | arXiv 1811.06965 |
//! | `1f1b` | PipeDream-Flush, arXiv 2006.09503; DAPPLE, arXiv 2007.01045 |
//! | `eager_1f1b` | arXiv 2211.05322 |
//! | `interleaved` | arXiv 2104.04473 |
//! | `breadth_first` | arXiv 2211.05953 |
//! | `zb_h1`, `zb_h2` | arXiv 2401.10241 |
//! | `zb_v`, `v_half`, `v_min` | arXiv 2405.15362; see [`super::vee`] |
//! | `wave` | Hanayo, arXiv 2308.15762; see [`super::wave`] |
//! | `chimera` | arXiv 2107.06925; see [`super::chimera`] |
//! | `dualpipe`, `dualpipe_paired` | arXiv 2412.19437; see [`super::dual_pipe`] |
//! | `seq1f1b` | arXiv 2406.03488 |
//! | `terapipe` | arXiv 2102.07988 |
//!
//! Rank r of p devices counts from zero; m micro-batches; v chunks. Every stage takes its
//! micro-batches in ascending order, so that gradients are summed from left to right. Slice q of
//! stage j, of k slices, is stage j · k + q of the lists.

use super::{chimera, dual_pipe, vee, wave};
use roundelay_schedule::{DeviceList, Item, Listed, Order, Pass, Plan, Units, listed_in};
use std::collections::BTreeMap;

/// The numbers of a pipeline.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pipeline {
    /// p.
    pub(super) devices: u32,
    /// v.
    pub(super) chunks: u32,
    /// m.
    pub(super) micro_batches: u32,
    /// k.
    pub(super) slices: u32,
}

/// What each device of a pipeline does, in order; the plan's numbers fit its order.
pub fn device_lists(plan: &Plan) -> Vec<DeviceList> {
    let pipeline = Pipeline {
        devices: plan.stages / plan.chunks,
        chunks: plan.chunks,
        micro_batches: plan.micro_batches,
        slices: plan.slices,
    };
    let each =
        |list: &dyn Fn(u32) -> DeviceList| (0..pipeline.devices).map(list).collect();
    match plan.order {
        Order::Gpipe | Order::BreadthFirst => each(&|r| pipeline.breadth_first(r)),
        Order::OneForwardOneBackward => {
            let units = Units::of(plan);
            each(&|r| pipeline.one_by_one(r, 1, &units))
        }
        Order::Eager => {
            let units = Units::one(plan.stages);
            each(&|r| pipeline.one_by_one(r, 2, &units))
        }
        Order::Interleaved => each(&|r| pipeline.interleaved(r)),
        Order::SlicesOneForwardOneBackward => {
            each(&|r| pipeline.in_slices(r, pipeline.devices - r - 1))
        }
        Order::TeraPipe => each(&|r| pipeline.in_slices(r, u32::MAX)),
        Order::ZeroBubbleH1 => each(&|r| pipeline.zero_bubble(r, 1)),
        Order::ZeroBubbleH2 => each(&|r| pipeline.zero_bubble(r, 2)),
        Order::ZeroBubbleV => each(&|r| vee::zero_bubble(pipeline, r)),
        Order::HalfV => vee::half(pipeline),
        Order::MinimalV => vee::minimal(pipeline),
        Order::Wave => wave::waves(pipeline),
        Order::Chimera => chimera::chimera(pipeline),
        Order::DualPipe => each(&|r| dual_pipe::serial(pipeline, r)),
        Order::DualPipePaired => each(&|r| dual_pipe::paired(pipeline, r)),
        Order::ZeroBubbleOneP
        | Order::ZeroBubbleTwoP
        | Order::ZeroBubbleAuto
        | Order::Listed => plan.lists.clone(),
        Order::Sequential | Order::Parallel | Order::Cyclic => {
            unreachable!("these orders are no pipelines with a flush")
        }
    }
}

impl Pipeline {
    fn breadth_first(self, rank: u32) -> DeviceList {
        let forward = (0..self.chunks).map(|chunk| (Pass::Forward, chunk));
        let backward = (0..self.chunks).rev().map(|chunk| (Pass::Backward, chunk));
        let all = |(pass, chunk)| {
            let stage = chunk * self.devices + rank;
            (0..self.micro_batches).map(move |i| Item::new(pass, stage, i))
        };
        forward.chain(backward).flat_map(all).collect()
    }

    /// Warm-up of `depth` micro-batches per device below in the same unit, at most; then one forward
    /// and one backward pass in turn.
    fn one_by_one(self, rank: u32, depth: u32, units: &Units) -> DeviceList {
        if units.is_hopping() {
            return self.hopping(rank, units);
        }
        let below = units.unit(rank).end - rank - 1;
        let forward = |i| Item::new(Pass::Forward, rank, i);
        let backward = |i| Item::new(Pass::Backward, rank, i);
        alternate(self.micro_batches, depth * below, forward, backward)
    }

    /// Slice after slice of each micro-batch, backward from the last slice to the first: a warm-up of
    /// all slices of a micro-batch but one, and `below` more; then one forward and one backward
    /// pass in turn.
    fn in_slices(self, rank: u32, below: u32) -> DeviceList {
        let slices = self.slices;
        let item = |pass, unit: u32, slice: u32| {
            Item::new(pass, rank * slices + slice, unit / slices)
        };
        let forward = |u: u32| item(Pass::Forward, u, u % slices);
        let backward = |u: u32| item(Pass::Backward, u, slices - 1 - u % slices);
        let warm = below.saturating_add(slices - 1);
        alternate(self.micro_batches * slices, warm, forward, backward)
    }

    /// What a unit hands back it makes at once. Its weights wait for what hops back, which comes
    /// while the next forward pass runs: so they come behind that, but in the last unit.
    fn hopping(self, rank: u32, units: &Units) -> DeviceList {
        let delay = u32::from(units.hop_from(rank).is_some());
        let row = |i: u32| {
            let turns =
                [Pass::Forward, Pass::InputGradient].map(move |pass| (pass, Some(i)));
            let weight = (Pass::WeightGradient, i.checked_sub(delay));
            turns.into_iter().chain([weight]).filter_map(move |(pass, micro_batch)| {
                let known = micro_batch.filter(|i| *i < self.micro_batches)?;
                Some(Item::new(pass, rank, known))
            })
        };
        (0..self.micro_batches + delay).flat_map(row).collect()
    }

    fn interleaved(self, rank: u32) -> DeviceList {
        let Self { devices, chunks, micro_batches, .. } = self;
        let round = devices * chunks;
        let unit = |pass, u: u32, chunk: u32| {
            let micro_batch = u / round * devices + u % devices;
            Item::new(pass, chunk * devices + rank, micro_batch)
        };
        let chunk = |u: u32| u % round / devices;
        let warm = match micro_batches == devices {
            true => micro_batches * chunks,
            false => 2 * (devices - rank - 1) + (chunks - 1) * devices,
        };
        let forward = |u| unit(Pass::Forward, u, chunk(u));
        let backward = |u| unit(Pass::Backward, u, chunks - 1 - chunk(u));
        alternate(micro_batches * chunks, warm, forward, backward)
    }

    /// Weight gradients fill what the warm-up left open; `depth` 1 keeps p micro-batches on each
    /// device, 2 keeps 2p − 1.
    fn zero_bubble(self, rank: u32, depth: u32) -> DeviceList {
        let delay = depth * (self.devices - 1);
        let row = |x: u32| {
            let passes = [
                (Pass::Forward, 0),
                (Pass::InputGradient, delay - depth * rank),
                (Pass::WeightGradient, delay),
            ];
            passes.into_iter().filter_map(move |(pass, late)| {
                let micro_batch = x.checked_sub(late)?;
                (micro_batch < self.micro_batches)
                    .then(|| Item::new(pass, rank, micro_batch))
            })
        };
        (0..self.micro_batches + delay).flat_map(row).collect()
    }
}

/// `warm` forward units, then forward and backward in turn, then the backward units that are
/// left.
fn alternate(
    units: u32,
    warm: u32,
    forward: impl Fn(u32) -> Item,
    backward: impl Fn(u32) -> Item,
) -> DeviceList {
    let warm = warm.min(units);
    let turns = (warm..units).flat_map(|u| [forward(u), backward(u - warm)]);
    let first = (0..warm).map(&forward);
    let last = (units - warm..units).map(&backward);
    first.chain(turns).chain(last).collect()
}

/// The first pass that adds a gradient behind one of a later micro-batch of its stage.
pub(crate) fn descending(lists: &[DeviceList]) -> Option<Listed> {
    let mut last = BTreeMap::new();
    let adds =
        |listed: &Listed| matches!(listed.pass, Pass::Backward | Pass::WeightGradient);
    lists.iter().flat_map(|list| listed_in(list)).filter(adds).find(|listed| {
        let before = last.insert(listed.stage, listed.micro_batch);
        before > Some(listed.micro_batch)
    })
}
