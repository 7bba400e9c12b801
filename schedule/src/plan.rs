//! Every decision about how a model is trained on a cluster, as plain data.

use crate::{
    Delays, DeviceId, DeviceList, Exactness, Fold, MicroBatch, Order, Rule, Timeline,
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
    /// Data replicas of the cell.
    pub replicas: u32,
    /// Number of stages, S.
    pub stages: u32,
    /// Stages on one device of a pipeline, v.
    pub chunks: u32,
    /// S − 1 ascending node numbers: stage j starts at node `cuts[j − 1]`.
    pub cuts: Vec<u32>,
    /// Micro-batches of one training step, N.
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
    /// What each device does, for the order `listed`; else empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lists: Vec<DeviceList>,
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
    /// Parameters too.
    Zero3,
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
    /// then the devices' sums in the order of the micro-batch that each took last.
    ByDevice,
    /// Of two pipelines in opposite directions: the micro-batches that go down from left to
    /// right, then the sum of those that go up.
    ByDirection,
}

/// A sum of micro-batch gradients: inner lists from left to right, then the lists from left to
/// right. Floating-point addition does not associate, so the shape matters.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sum(pub Vec<Vec<MicroBatch>>);

impl Placement {
    /// Ring length of a stage (counted from zero): how many devices turn under it. A cyclic
    /// worker holds stage j for 2(S − j) of the 2S time slots between its micro-batches, and
    /// workers start 2S/N slots apart: ⌈N(S − j)/S⌉ at a time, N − j for S = N.
    pub fn ring(self, rule: Rule, micro_batches: u32, stages: u32, stage: u32) -> u32 {
        match (self, rule) {
            (
                Placement::Shared,
                Rule::CyclicV1 | Rule::CyclicV2 | Rule::CyclicSlack(_),
            ) => (micro_batches * (stages - stage)).div_ceil(stages),
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

    /// The tree in which it sums gradients: device by device where rings of devices turn, by
    /// direction where pipelines meet.
    pub fn reduction(self, rule: Rule, order: Order) -> Reduction {
        match (self, rule) {
            (
                Placement::Shared,
                Rule::CyclicV1 | Rule::CyclicV2 | Rule::CyclicSlack(_),
            ) => Reduction::ByDevice,
            (Placement::Pipeline, _) if order.fold() == Fold::Mirror => {
                Reduction::ByDirection
            }
            (Placement::Shared, Rule::Sync)
            | (
                Placement::Accumulate
                | Placement::Concurrent
                | Placement::Data
                | Placement::Pipeline,
                _,
            ) => Reduction::Sequential,
        }
    }

    /// How many devices a plan takes whose pipeline, if it is one, has `pipeline` devices.
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
            (Placement::Shared, Rule::Sync) => micro_batches * stages,
            (Placement::Shared, _) => (0..stages)
                .map(|stage| self.ring(rule, micro_batches, stages, stage))
                .sum(),
            (Placement::Pipeline, _) => pipeline,
        }
    }
}

impl Plan {
    /// The plan that these decisions make on the first devices of a cluster; what follows from
    /// them is filled in. The stages start at the first node and at `cuts`.
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
            stages,
            chunks: 1,
            cuts,
            micro_batches,
            states,
            recompute: vec![Recompute::None; stages as usize],
            reduction: placement.reduction(rule, order),
            delays: rule.delays(placement.timeline(), micro_batches, stages),
            devices: Vec::new(),
            lists: Vec::new(),
        };
        plan.placed()
    }

    /// The same plan with `chunks` stages on each device of its pipeline.
    #[must_use]
    pub fn with_chunks(self, chunks: u32) -> Self {
        Self { chunks, ..self }.placed()
    }

    /// The same plan with a list of passes for each device of its pipeline.
    #[must_use]
    pub fn with_lists(self, lists: Vec<DeviceList>) -> Self {
        Self { lists, ..self }.placed()
    }

    fn placed(mut self) -> Self {
        self.devices = (0..self.needed_devices() as usize).map(crate::Id::new).collect();
        self
    }

    /// How many devices the plan takes.
    pub fn needed_devices(&self) -> u32 {
        let Self { placement, rule, micro_batches, stages, .. } = *self;
        placement.devices(rule, micro_batches, stages, self.pipeline_devices())
    }

    /// Devices of a pipeline, p.
    pub fn pipeline_devices(&self) -> u32 {
        match self.order.fold() {
            Fold::Lists => u32::try_from(self.lists.len()).unwrap_or(u32::MAX),
            Fold::Loop | Fold::Snake | Fold::Mirror => self.stages / self.chunks.max(1),
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
                    list.iter()
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
            Reduction::ByDevice | Reduction::ByDirection => Exactness::Reordered,
        };
        let rule =
            if self.delays.max() == 0 { Exactness::Exact } else { self.rule.exactness() };
        rule.max(tree)
    }

    /// The sum in which `stage` (counted from zero) adds its gradients.
    pub fn sum(&self, stage: u32) -> Sum {
        self.sum_of(stage, self.micro_batches)
    }

    /// The same for the `n` micro-batches that one cell takes itself.
    pub fn sum_of(&self, stage: u32, n: u32) -> Sum {
        match self.reduction {
            Reduction::Sequential => Sum::from_left(0..n),
            Reduction::ByDevice => {
                Sum::by_device(n, self.placement.ring(self.rule, n, self.stages, stage))
            }
            Reduction::ByDirection => {
                let up = |i: &u32| self.order.goes_up(*i, self.pipeline_devices(), n);
                let (up, down): (Vec<u32>, Vec<u32>) = (0..n).partition(up);
                Sum([down, up].map(listed).into())
            }
        }
    }
}

impl Sum {
    /// One list, from left to right.
    pub fn from_left(micro_batches: impl Iterator<Item = u32>) -> Self {
        Self(vec![listed(micro_batches)])
    }

    /// In a ring of `ring` devices: see [`Reduction::ByDevice`].
    fn by_device(micro_batches: u32, ring: u32) -> Self {
        let first = micro_batches.saturating_sub(ring);
        let group = |last: u32| {
            listed((0..micro_batches).filter(move |i| i % ring == last % ring))
        };
        Self((first..micro_batches).map(group).collect())
    }
}

fn listed(micro_batches: impl IntoIterator<Item = u32>) -> Vec<MicroBatch> {
    micro_batches.into_iter().map(|i| crate::Id::new(i as usize)).collect()
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
        ZeroBubbleV "zb_v", HalfV "v_half", MinimalV "v_min", Chimera "chimera",
        DualPipe "dualpipe", Listed "listed",
    }
    States, "states" {
        Replicated "replicated", Zero1 "zero1", Zero2 "zero2", Zero3 "zero3", Handoff "handoff",
    }
    Recompute, "recompute" { None "none", Selective "selective", Full "full", }
    Reduction, "reduction" {
        Sequential "sequential", ByDevice "by_device",
        ByDirection "by_direction",
    }
}
