//! Every decision about how a model is trained on a cluster, as plain data.

use crate::{Delays, DeviceId, Exactness, MicroBatch, Rule, Timeline};
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
    /// S − 1 ascending node numbers: stage j starts at node `cuts[j − 1]`.
    pub cuts: Vec<u32>,
    /// Micro-batches of one training step, N.
    pub micro_batches: u32,
    /// Who holds parameters, gradients and optimizer state.
    pub states: States,
    /// In which tree micro-batch gradients are summed.
    pub reduction: Reduction,
    /// The version map that `rule` gives for this placement.
    pub delays: Delays,
    /// The devices in use, in the order in which the placement counts them.
    pub devices: Vec<DeviceId>,
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

/// In which order each device takes its tasks.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// One micro-batch after another, forward then backward.
    Sequential,
    /// All workers in step: forward of all stages, then backward.
    Parallel,
    /// Micro-batches start evenly spread over the period; also flush-free pipelines.
    Cyclic,
    /// All forward passes of a device, then all backward passes.
    Gpipe,
    /// Warm-up, then one forward and one backward in turn.
    #[serde(rename = "1f1b")]
    OneForwardOneBackward,
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
}

/// A sum of micro-batch gradients: inner lists from left to right, then the lists from left to
/// right. Floating-point addition does not associate, so the shape matters.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sum(pub Vec<Vec<MicroBatch>>);

impl Reduction {
    /// The whole sum over `micro_batches` N for a stage whose ring has `ring` L places.
    pub fn sum(self, micro_batches: u32, ring: u32) -> Sum {
        let all = || (0..micro_batches as usize).map(crate::Id::new);
        match self {
            Reduction::Sequential => Sum(vec![all().collect()]),
            Reduction::ByDevice => {
                let first = micro_batches.saturating_sub(ring);
                let place = |i: MicroBatch| crate::Id::index(i) % ring as usize;
                let group = |last: u32| -> Vec<MicroBatch> {
                    all().filter(|i| place(*i) == (last % ring) as usize).collect()
                };
                Sum((first..micro_batches).map(group).collect())
            }
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

    /// The tree in which it sums gradients: device by device where rings of devices turn.
    pub fn reduction(self, rule: Rule) -> Reduction {
        match (self, rule) {
            (
                Placement::Shared,
                Rule::CyclicV1 | Rule::CyclicV2 | Rule::CyclicSlack(_),
            ) => Reduction::ByDevice,
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

    /// How many devices a plan takes.
    pub fn devices(self, rule: Rule, micro_batches: u32, stages: u32) -> u32 {
        match (self, rule) {
            (Placement::Accumulate | Placement::Concurrent, _) => 1,
            (Placement::Data, _) => micro_batches,
            (Placement::Shared, Rule::Sync) => micro_batches * stages,
            (Placement::Shared, _) => (0..stages)
                .map(|stage| self.ring(rule, micro_batches, stages, stage))
                .sum(),
            (Placement::Pipeline, _) => stages,
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
        Self {
            rule,
            placement,
            order,
            replicas: 1,
            stages,
            cuts,
            micro_batches,
            states,
            reduction: placement.reduction(rule),
            delays: rule.delays(placement.timeline(), micro_batches, stages),
            devices: (0..placement.devices(rule, micro_batches, stages) as usize)
                .map(crate::Id::new)
                .collect(),
        }
    }

    /// The class of the gradients that this plan takes.
    pub fn exactness(&self) -> Exactness {
        let tree = match self.reduction {
            Reduction::Sequential => Exactness::Exact,
            Reduction::ByDevice => Exactness::Reordered,
        };
        let rule =
            if self.delays.max() == 0 { Exactness::Exact } else { self.rule.exactness() };
        rule.max(tree)
    }

    /// The sum in which `stage` (counted from zero) adds its gradients.
    pub fn sum(&self, stage: u32) -> Sum {
        let ring = self.placement.ring(self.rule, self.micro_batches, self.stages, stage);
        self.reduction.sum(self.micro_batches, ring)
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
        OneForwardOneBackward "1f1b",
    }
    States, "states" {
        Replicated "replicated", Zero1 "zero1", Zero2 "zero2", Zero3 "zero3", Handoff "handoff",
    }
    Reduction, "reduction" { Sequential "sequential", ByDevice "by_device", }
}
