//! Every decision about how a model is trained on a cluster, as plain data.

mod fault;
mod faults;
mod placement;
mod recompute;
mod states;
mod sum;
mod tree;

pub use fault::PlanFault;
pub use placement::Placement;
pub use recompute::{Recompute, Share};
pub use states::{States, StatesFault};
pub use sum::Reduction;

use crate::{
    Delays, DeviceId, DeviceList, Fold, Id, Item, MapWays, Order, Rewrites, Rule, Tensor,
    Tie, listed_in,
};
use serde::{Deserialize, Serialize};

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
    /// Which stages use the same parameters, once for all that the same stages use, in order of first use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ties: Vec<Tie>,
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

fn one() -> u32 {
    1
}

fn is_one(number: &u32) -> bool {
    *number == 1
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
            ties: Vec::new(),
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

    /// The same with this many replicas of the cell side by side, whose states are split into so
    /// many shards under `hsdp`.
    #[must_use]
    pub fn replicated(self, replicas: u32, shards: u32) -> Self {
        Self { replicas, shards, ..self }.placed()
    }

    /// The same with every device's work split like this among this many more.
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

    /// The same on as many devices that follow each other, from this one on.
    #[must_use]
    pub fn starting_at(self, first: u32) -> Self {
        Self { devices: vec![DeviceId::numbered(first)], ..self }.placed()
    }

    /// The first of its devices: the others follow it in the order of the cluster, unless somebody
    /// put them in another one.
    pub fn first_device(&self) -> u32 {
        self.devices.first().map_or(0, |device| device.number())
    }

    /// The same with a list of passes for each device of its pipeline.
    #[must_use]
    pub fn with_lists(self, lists: Vec<DeviceList>) -> Self {
        Self { lists, ..self }.placed()
    }

    /// With what follows from replicas, chunks and lists.
    pub(crate) fn placed(mut self) -> Self {
        self.reduction = self.own_reduction();
        let first = self.first_device();
        self.devices =
            (first..first + self.device_count()).map(DeviceId::numbered).collect();
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

    /// Whether two pipelines run in opposite directions, so that two devices hold each stage.
    pub fn is_mirrored(&self) -> bool {
        self.placement == Placement::Pipeline && self.order.fold() == Fold::Mirror
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

    /// Devices of a pipeline, p.
    pub fn pipeline_devices(&self) -> u32 {
        match self.order.fold() {
            Fold::Lists => u32::try_from(self.lists.len()).unwrap_or(u32::MAX),
            Fold::Loop | Fold::Snake | Fold::Mirror => self.stages / self.chunks.max(1),
        }
    }

    /// Whether its lists are what the devices of a pipeline do.
    pub fn takes_lists(&self) -> bool {
        let listed = self.order == Order::Listed || self.order.is_found();
        self.placement == Placement::Pipeline && listed
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
                    listed_in(list).any(|listed| listed.stage.number() == stage)
                };
                let found = self.lists.iter().position(names)?;
                u32::try_from(found).ok()
            }
        }
    }

    /// The same plan that computes again as much in every stage: what tests compare plans with.
    #[doc(hidden)]
    pub fn recomputing(self, recompute: Recompute) -> Self {
        Self { recompute: vec![recompute; self.stages as usize], ..self }
    }
}
