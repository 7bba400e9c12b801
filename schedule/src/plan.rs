//! Every decision about how a model is trained on a cluster, as plain data.

use crate::{
    Contraction, Delays, DeviceId, DeviceList, Exactness, Fold, Images, Item, MapWay,
    MapWays, Order, Rewrite, Rewrites, Rule, Sequence, Tensor, Timeline, listed_in,
};
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// One complete answer of the planner. Lowering it takes no further decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Which version each (stage, micro-batch) uses.
    pub rule: Rule,
    /// How tasks meet devices.
    pub placement: Placement,
    /// In which order each device takes its tasks.
    pub order: Order,
    /// Data replicas of the cell, R; each takes micro-batches of its own.
    pub replicas: u32,
    /// Replicas that split the states of a stage among them under `hsdp`; one otherwise.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub shards: u32,
    /// How operations are split among devices.
    #[serde(default, skip_serializing_if = "Tensor::is_whole")]
    pub tensor: Tensor,
    /// Number of stages, S.
    pub stages: u32,
    /// Stages on one device of a pipeline, v.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub chunks: u32,
    /// Slices of each sequence that flow one after another, k. Every slice of a stage has passes of
    /// its own: in lists, routines and actions slice q of stage j is stage j · k + q.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub slices: u32,
    /// S − 1 ascending node numbers: stage j starts at node `cuts[j − 1]`.
    pub cuts: Vec<u32>,
    /// The cuts between units of a local rule, ascending: gradients stop there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub boundaries: Vec<u32>,
    /// Micro-batches that one replica takes in a training step, N.
    pub micro_batches: u32,
    /// Who holds parameters, gradients and optimizer state.
    pub states: States,
    /// Per stage, what its backward pass computes again instead of keeping it.
    pub recompute: Vec<Recompute>,
    /// In which tree micro-batch gradients are summed.
    pub reduction: Reduction,
    /// The version map that `rule` gives for this placement.
    pub delays: Delays,
    /// The devices in use, in the order in which the placement counts them.
    pub devices: Vec<DeviceId>,
    /// What each device does, for `listed` and for orders that are found; else empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lists: Vec<DeviceList>,
    /// Which neighbouring calls are one, by rule, and no others; where a plan lists none at all,
    /// whoever compiles it finds them.
    #[serde(default, skip_serializing_if = "Rewrites::is_empty")]
    pub rewrites: Rewrites,
    /// How each affine map is split where tensors are; where a plan lists none at all, whoever
    /// compiles it finds them.
    #[serde(default, skip_serializing_if = "MapWays::is_empty")]
    pub maps: MapWays,
}

/// How tasks meet devices.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Placement {
    /// One device, one micro-batch after another.
    Accumulate,
    /// One device, N lanes.
    Concurrent,
    /// A device per worker.
    Data,
    /// A ring of devices per stage: N − j + 1 under a cyclic rule, N under sync.
    Shared,
    /// A device per stage.
    Pipeline,
}

/// Who holds parameters, gradients and optimizer state.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum States {
    /// Whoever computes with a stage has all of it.
    Replicated,
    /// Optimizer state is split over the workers.
    Zero1,
    /// Gradients too.
    Zero2,
    /// Parameters too: each pass of a stage gathers them, and drops them again.
    Zero3,
    /// As `zero3` inside groups of `shards` replicas; the groups are replicas of each other.
    Hsdp,
    /// Cyclic point-to-point ZeRO: a stage travels from its user to its next user.
    Handoff,
}

/// What the backward pass of a stage computes again; it changes no bit.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Recompute {
    /// Nothing: forward keeps all that backward reads.
    None,
    /// What is cheap: forward keeps results of products, convolutions and attention.
    Selective,
    /// Whole layers: forward keeps what goes into each.
    Full,
}

/// In which tree the micro-batch gradients of a stage are summed.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Reduction {
    /// g_1 + g_2 + … + g_N, from left to right.
    Sequential,
    /// In a ring of L devices: device by device (micro-batches i, i + L, …) from left to right,
    /// then the devices' sums in the order of the micro-batch that each took last; then the
    /// replicas.
    ByDevice,
    /// Each replica's micro-batches from left to right, then the replicas' sums.
    ByReplica,
    /// The replicas' gradients of each micro-batch, then these sums from left to right.
    ByMicroBatch,
    /// In each group of `shards` replicas by micro-batch, then the groups' sums.
    ByShard,
    /// Of two pipelines in opposite directions: the micro-batches that go down from left to
    /// right, then the sum of those that go up.
    ByDirection,
}

fn one() -> u32 {
    1
}

fn is_one(number: &u32) -> bool {
    *number == 1
}

/// The greatest common divisor.
fn common(one: u64, other: u64) -> u64 {
    if other == 0 { one } else { common(other, one % other) }
}

impl States {
    /// Among how many of the members that hold a stage its parameters are divided, in groups of
    /// `shards` under `hsdp`.
    pub fn depth(self, members: u32, shards: u32) -> u32 {
        match self {
            States::Replicated | States::Zero1 | States::Zero2 | States::Handoff => 1,
            States::Zero3 => members,
            States::Hsdp => shards,
        }
    }
}

impl Placement {
    /// Ring length of a stage (counted from zero): how many devices turn under it. A cyclic
    /// worker holds stage j for 2(S − j) of the 2S time slots between its micro-batches, and
    /// workers start 2S/N slots apart: ⌈N(S − j)/S⌉ at a time, N − j for S = N.
    pub fn ring(self, rule: Rule, micro_batches: u32, stages: u32, stage: u32) -> u32 {
        match (self, rule) {
            (
                Placement::Shared,
                Rule::CyclicV1 | Rule::CyclicV2 | Rule::CyclicSlack(_),
            ) => {
                let [n, s, left] = [micro_batches, stages, stages - stage].map(u64::from);
                u32::try_from((n * left).div_ceil(s)).unwrap_or(u32::MAX)
            }
            _ => 1,
        }
    }

    /// Which timeline its version map belongs to.
    pub fn timeline(self) -> Timeline {
        match self {
            Placement::Pipeline => Timeline::FlushFree,
            Placement::Accumulate
            | Placement::Concurrent
            | Placement::Data
            | Placement::Shared => Timeline::Workers,
        }
    }

    /// How many devices one cell takes whose pipeline, if it is one, has `pipeline` devices; the
    /// largest number there is where it is more. Rings of all stages are
    /// Σ ⌈N k / S⌉ = (N S + N + S − gcd(N, S)) / 2 over k = 1 … S.
    pub fn devices(
        self,
        rule: Rule,
        micro_batches: u32,
        stages: u32,
        pipeline: u32,
    ) -> u32 {
        match (self, rule) {
            (Placement::Accumulate | Placement::Concurrent, _) => 1,
            (Placement::Data, _) => micro_batches,
            (Placement::Shared, rule) if rule.is_synchronous() => {
                micro_batches.saturating_mul(stages)
            }
            (Placement::Shared, _) => {
                let [n, s] = [micro_batches, stages].map(u64::from);
                let twice = u128::from(n) * u128::from(s) + u128::from(n + s);
                let twice = twice - u128::from(common(n, s));
                u32::try_from(twice / 2).unwrap_or(u32::MAX)
            }
            (Placement::Pipeline, _) => pipeline,
        }
    }
}

impl Plan {
    /// The plan of one cell that these decisions make on the first devices of a cluster; what
    /// follows from them is filled in. The stages start at the first node and at `cuts`.
    pub fn new(
        rule: Rule,
        placement: Placement,
        order: Order,
        states: States,
        micro_batches: u32,
        cuts: Vec<u32>,
    ) -> Self {
        let stages = u32::try_from(cuts.len() + 1).expect("cuts are 32-bit node numbers");
        let plan = Self {
            rule,
            placement,
            order,
            replicas: 1,
            shards: 1,
            tensor: Tensor::WHOLE,
            stages,
            chunks: 1,
            slices: 1,
            cuts,
            boundaries: Vec::new(),
            micro_batches,
            states,
            recompute: vec![Recompute::None; stages as usize],
            reduction: Reduction::Sequential,
            delays: rule.delays(placement.timeline(), micro_batches, stages),
            devices: Vec::new(),
            lists: Vec::new(),
            rewrites: Rewrites::default(),
            maps: MapWays::default(),
        };
        plan.replicated(1, 1)
    }

    /// The same with so many replicas of the cell side by side, whose states are split into so
    /// many shards under `hsdp`.
    #[must_use]
    pub fn replicated(self, replicas: u32, shards: u32) -> Self {
        Self { replicas, shards, ..self }.placed()
    }

    /// The same with every device's work split like this among so many more.
    #[must_use]
    pub fn with_tensor(self, tensor: Tensor) -> Self {
        Self { tensor, ..self }.placed()
    }

    /// The same with units that begin at these cuts.
    #[must_use]
    pub fn with_boundaries(self, boundaries: Vec<u32>) -> Self {
        Self { boundaries, ..self }
    }

    /// The same with `chunks` stages on each device of its pipeline.
    #[must_use]
    pub fn with_chunks(self, chunks: u32) -> Self {
        Self { chunks, ..self }.placed()
    }

    /// The same with a list of passes for each device of its pipeline.
    #[must_use]
    pub fn with_lists(self, lists: Vec<DeviceList>) -> Self {
        Self { lists, ..self }.placed()
    }

    /// With what follows from replicas, chunks and lists.
    pub(crate) fn placed(mut self) -> Self {
        self.reduction = self.own_reduction();
        self.devices = (0..self.device_count() as usize).map(crate::Id::new).collect();
        self
    }

    /// The devices of the cell at coordinate zero: with split tensors each stands for as many as
    /// there are parts, itself and those behind it.
    pub fn cell_devices(&self) -> impl Iterator<Item = DeviceId> + '_ {
        let cell =
            self.device_count() / self.members().max(1) / self.tensor.parts().max(1);
        let parts = self.tensor.parts().max(1) as usize;
        self.devices.iter().copied().step_by(parts).take(cell as usize)
    }

    /// How many devices it takes.
    pub fn device_count(&self) -> u32 {
        let Self { placement, rule, micro_batches, stages, .. } = *self;
        let pipeline = self.pipeline_devices();
        let cell = placement.devices(rule, micro_batches, stages, pipeline);
        cell.saturating_mul(self.replicas).saturating_mul(self.tensor.parts())
    }

    /// Micro-batches of one training step, R · N. Replica r takes those from r · N on.
    pub fn all_micro_batches(&self) -> u32 {
        self.replicas.saturating_mul(self.micro_batches)
    }

    /// Micro-batches that the devices of one coordinate take: synchronous workers are
    /// coordinates of an axis.
    pub fn cell_micro_batches(&self) -> u32 {
        match (self.placement, self.rule.is_synchronous()) {
            (Placement::Data | Placement::Shared, true) => 1,
            (
                Placement::Accumulate
                | Placement::Concurrent
                | Placement::Data
                | Placement::Shared
                | Placement::Pipeline,
                _,
            ) => self.micro_batches,
        }
    }

    /// Coordinates that hold the same stages: replicas, and synchronous workers of each.
    pub fn members(&self) -> u32 {
        self.all_micro_batches() / self.cell_micro_batches().max(1)
    }

    /// Into how many equal parts the states of a stage are split.
    pub fn parts(&self) -> u32 {
        match self.states {
            States::Replicated | States::Handoff => 1,
            States::Zero1 | States::Zero2 | States::Zero3 => self.members(),
            States::Hsdp => self.shards,
        }
    }

    /// How many members divide the parameters of a stage, each with examples of its own: the depth
    /// of the grid that splits tensors (arXiv 2305.13525).
    pub fn depth(&self) -> u32 {
        self.states.depth(self.members(), self.shards)
    }

    /// The tree that goes with placement, states and replicas: a whole sum is kept by
    /// `replicated` and `zero1`; the others give each micro-batch's gradient away at once.
    pub fn own_reduction(&self) -> Reduction {
        let turns = self.placement == Placement::Shared && !self.rule.is_synchronous();
        let (members, cell) = (self.members(), self.cell_micro_batches());
        let groups = match self.states {
            States::Replicated | States::Handoff | States::Zero1 => members,
            States::Zero2 | States::Zero3 => 1,
            States::Hsdp => members / self.shards.max(1),
        };
        let mirrored =
            self.placement == Placement::Pipeline && self.order.fold() == Fold::Mirror;
        match (turns, members, cell) {
            (false, 1, _) if mirrored => Reduction::ByDirection,
            (true, ..) => Reduction::ByDevice,
            (false, 1, _) => Reduction::Sequential,
            (false, _, 1) if groups == 1 || groups == members => Reduction::Sequential,
            (false, ..) if groups == 1 => Reduction::ByMicroBatch,
            (false, ..) if self.states == States::Hsdp => Reduction::ByShard,
            (false, ..) => Reduction::ByReplica,
        }
    }

    /// Devices of a pipeline, p.
    pub fn pipeline_devices(&self) -> u32 {
        match self.order.fold() {
            Fold::Lists => u32::try_from(self.lists.len()).unwrap_or(u32::MAX),
            Fold::Loop | Fold::Snake | Fold::Mirror => self.stages / self.chunks.max(1),
        }
    }

    /// Whether devices do some of their passes in pairs.
    pub fn has_pairs(&self) -> bool {
        match self.order {
            Order::DualPipePaired => true,
            Order::Listed => self.lists.iter().flatten().any(Item::is_pair),
            _ => false,
        }
    }

    /// Which of the p devices of its pipeline has a stage; under [`Fold::Mirror`] the one for
    /// micro-batches that go down. None when no list names the stage.
    pub fn seat(&self, stage: u32) -> Option<u32> {
        let p = self.pipeline_devices().max(1);
        let (chunk, rank) = (stage / p, stage % p);
        match self.order.fold() {
            Fold::Loop | Fold::Mirror => Some(rank),
            Fold::Snake if chunk.is_multiple_of(2) => Some(rank),
            Fold::Snake => Some(p - 1 - rank),
            Fold::Lists => {
                let names = |list: &DeviceList| {
                    listed_in(list)
                        .any(|listed| crate::Id::index(listed.stage) == stage as usize)
                };
                let found = self.lists.iter().position(names)?;
                u32::try_from(found).ok()
            }
        }
    }

    /// The same plan that computes again as much in every stage.
    pub fn recomputing(self, recompute: Recompute) -> Self {
        Self { recompute: vec![recompute; self.stages as usize], ..self }
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
        rule.max(tree).max(parts).max(slices)
    }
}

macro_rules! spelled {
    ($($name:ident, $what:literal { $($variant:ident $text:literal,)* })*) => {$(
        impl $name {
            /// All values, in the order in which a search tries them.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(match self { $(Self::$variant => $text,)* })
            }
        }
        impl FromStr for $name {
            type Err = String;
            fn from_str(text: &str) -> Result<Self, String> {
                match text {
                    $($text => Ok(Self::$variant),)*
                    _ => Err(format!(
                        concat!("unknown ", $what, " `{}`; known are {}"),
                        text,
                        [$($text),*].join(", "),
                    )),
                }
            }
        }
    )*};
}

spelled! {
    Placement, "placement" {
        Accumulate "accumulate", Concurrent "concurrent", Data "data", Shared "shared",
        Pipeline "pipeline",
    }
    Order, "order" {
        Sequential "sequential", Parallel "parallel", Cyclic "cyclic", Gpipe "gpipe",
        OneForwardOneBackward "1f1b", Eager "eager_1f1b", Interleaved "interleaved",
        BreadthFirst "breadth_first", ZeroBubbleH1 "zb_h1", ZeroBubbleH2 "zb_h2",
        ZeroBubbleOneP "zb_1p", ZeroBubbleTwoP "zb_2p", ZeroBubbleAuto "zb_auto",
        ZeroBubbleV "zb_v", HalfV "v_half", MinimalV "v_min", Wave "wave",
        Chimera "chimera", DualPipe "dualpipe", DualPipePaired "dualpipe_paired",
        SlicesOneForwardOneBackward "seq1f1b", TeraPipe "terapipe", Listed "listed",
    }
    States, "states" {
        Replicated "replicated", Zero1 "zero1", Zero2 "zero2", Zero3 "zero3", Hsdp "hsdp",
        Handoff "handoff",
    }
    Reduction, "reduction" {
        Sequential "sequential", ByDevice "by_device", ByReplica "by_replica",
        ByMicroBatch "by_micro_batch", ByShard "by_shard", ByDirection "by_direction",
    }
    Sequence, "sequence" { Whole "whole", Split "split", }
    Images, "images" { Whole "whole", Split "split", }
    Contraction, "contraction" { Alternate "alternate", Gather "gather", Each "each", }
    MapWay, "way of a map" {
        ColumnsToRows "columns_to_rows", RowsToColumns "rows_to_columns",
        WholeToColumns "whole_to_columns", ColumnsToColumns "columns_to_columns",
        ColumnsToWhole "columns_to_whole", RowsToWhole "rows_to_whole",
        WholeToAll "whole_to_all",
    }
    Recompute, "recompute" { None "none", Selective "selective", Full "full", }
    Rewrite, "rewrite" {
        Affine "affine", AffineRelu "affine_relu", AffineGelu "affine_gelu",
        AffineAdd "affine_add", BatchNormAdd "batch_norm_add",
        BatchNormRelu "batch_norm_relu",
        BatchNormBackwardRelu "batch_norm_backward_relu",
        GatherOfScatter "gather_of_scatter", GatherOfPart "gather_of_part",
        PartOfSum "part_of_sum",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_has_the_devices_of_its_rings() {
        let shared = Placement::Shared;
        for rule in [Rule::CyclicV1, Rule::CyclicV2, Rule::CyclicSlack(3)] {
            for (n, s) in (1..30).flat_map(|n| (1..30).map(move |s| (n, s))) {
                let rings = (0..s).map(|stage| shared.ring(rule, n, s, stage));
                assert_eq!(shared.devices(rule, n, s, 0), rings.sum(), "{n}, {s}");
            }
        }
    }

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

    #[test]
    fn more_devices_than_can_be_counted_are_as_many_as_can_be() {
        let devices = |rule, n, s| Placement::Shared.devices(rule, n, s, 0);
        assert_eq!(devices(Rule::Sync, 8192, 1 << 20), u32::MAX);
        assert_eq!(devices(Rule::CyclicV2, 8192, 1 << 20), u32::MAX);
        assert_eq!(devices(Rule::CyclicV2, u32::MAX, u32::MAX), u32::MAX);
        assert_eq!(devices(Rule::CyclicV2, 1, u32::MAX), u32::MAX);
        let ring = Placement::Shared.ring(Rule::CyclicV2, u32::MAX, u32::MAX, 0);
        assert_eq!(ring, u32::MAX);
    }
}
