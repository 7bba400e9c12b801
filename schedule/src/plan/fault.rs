//! What keeps decisions from going together, whatever the model: the one list for all who search,
//! read, check or lower plans, but for what states need (`states.rs`). Each check is a method of
//! what it needs to know, so that everybody asks for as much as he relies on.

use super::{Placement, Plan, Reduction, States};
use crate::{
    DeviceId, Id, ListFault, Misfit, Order, Rule, Sequence, Target, Tensor, plan_faults,
};
use thiserror::Error;

/// Decisions of a plan that do not go together.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PlanFault {
    /// Cut points out of order, or not one less than stages.
    #[error("{stages} stages need one ascending cut less, found {cuts:?}")]
    Cuts {
        /// S.
        stages: u32,
        /// The plan's.
        cuts: Vec<u32>,
    },
    /// Not one value of `recompute` per stage.
    #[error("recompute has {found} values for {stages} stages")]
    Recompute {
        /// S.
        stages: u32,
        /// Values in the plan.
        found: usize,
    },
    /// A version map that is not the rule's.
    #[error("the delays are not those of {rule} for {placement}: {apart}")]
    Delays {
        /// The rule.
        rule: Rule,
        /// The placement.
        placement: Placement,
        /// What the map says, and what the rule does.
        apart: String,
    },
    /// Units that are not those of the rule.
    #[error("the units of the plan do not fit: {0}")]
    Units(String),
    /// Slices that the plan's other decisions do not take.
    #[error("{0}")]
    Slices(String),
    /// An order that is not defined for the plan's numbers.
    #[error("order {order}: {misfit}")]
    Order {
        /// The order.
        order: Order,
        /// What would have to be otherwise.
        misfit: Misfit,
    },
    /// Lists that are no training step.
    #[error("the lists are no training step: {0}")]
    Lists(ListFault),
    /// Replicas of a cell whose workers never meet.
    #[error(
        "placement {placement} has no replicas under {rule}, whose workers never meet: use rule \
         sync, or placement pipeline"
    )]
    Replicas {
        /// The placement.
        placement: Placement,
        /// The rule.
        rule: Rule,
    },
    /// Shards that nothing asks for.
    #[error("{shards} shards are for states hsdp, not for {states}")]
    NeedlessShards {
        /// What the plan says.
        shards: u32,
        /// The states.
        states: States,
    },
    /// Shards that do not divide the replicas.
    #[error("{members} replicas do not split into equal groups of {shards} shards")]
    UnevenShards {
        /// Coordinates that hold the same stages.
        members: u32,
        /// What the plan says.
        shards: u32,
    },
    /// A tree that no collectives of this plan make.
    #[error("the plan sums {found}, its replicas, placement and states sum {expected}")]
    Reduction {
        /// The plan's.
        found: Reduction,
        /// What it should be.
        expected: Reduction,
    },
    /// No part, or a sequence that one part splits.
    #[error(
        "tensors have at least one row and one column, and one part alone splits no sequence"
    )]
    NoParts,
    /// Columns that cannot multiply as they are to.
    #[error(
        "contraction {} is not for a grid of {} x {} with sequences {}: `gather` is of several \
         columns in one row, which leaves sequences whole, `each` of several columns",
        .0.contraction, .0.rows, .0.columns, .0.sequence
    )]
    Contraction(Tensor),
    /// Slices of sequences on devices that split tensors.
    #[error(
        "slices of sequences are not made of tensors that are split among {}: set `slices 1`, or \
         `tensor {{ rows 1, columns 1 }}`",
        .0.shown()
    )]
    SlicedTensor(Tensor),
    /// Images that are split among columns, or by one part.
    #[error(
        "the plan has {}; several rows in one column split images, for channels that columns \
         divide beside pixels are not built: set `tensor {{ columns 1 }}` and rows, or `images \
         whole`",
        .0.shown()
    )]
    Images(Tensor),
    /// Parts of a micro-batch that nothing is gained by.
    #[error(
        "the examples of a micro-batch are taken together, or in two halves where rows or columns \
         split tensors, not in {0} parts here: let there be rows or columns for two, or set \
         `tensor {{ overdecompose 1 }}`"
    )]
    Overdecomposed(u32),
    /// A device that the cluster does not have.
    #[error("there is no device {device}, the cluster has {count}")]
    UnknownDevice {
        /// What the plan names.
        device: DeviceId,
        /// How many there are.
        count: usize,
    },
    /// Too few devices, or too many.
    #[error("the placement takes {wanted} devices, the plan names {found}")]
    Devices {
        /// What the placement takes.
        wanted: u32,
        /// What the plan names.
        found: usize,
    },
    /// Replicas or parts of tensors elsewhere than side by side.
    #[error(
        "replicas and parts of tensors lie side by side: device {number} of the plan must be \
         {expected}, not {found}"
    )]
    Scattered {
        /// Which one, counted from zero.
        number: usize,
        /// What it is.
        found: DeviceId,
        /// What it should be.
        expected: DeviceId,
    },
}

impl PlanFault {
    /// Its name in documents.
    pub fn name(&self) -> &'static str {
        match self {
            PlanFault::Cuts { .. } => "wrong_cuts",
            PlanFault::Recompute { .. } => "wrong_recompute",
            PlanFault::Delays { .. } => "wrong_delays",
            PlanFault::Units(_) => "wrong_units",
            PlanFault::Slices(_) => "wrong_slices",
            PlanFault::SlicedTensor(_) => "slices_need_whole_tensors",
            PlanFault::Order { .. } => "order_not_defined",
            PlanFault::Lists(_) => "wrong_lists",
            PlanFault::Replicas { .. } => "replicas_need_sync",
            PlanFault::NeedlessShards { .. } => "shards_need_hsdp",
            PlanFault::UnevenShards { .. } => "uneven_shards",
            PlanFault::Reduction { .. } => "wrong_reduction",
            PlanFault::NoParts => "no_rows",
            PlanFault::Contraction(_) => "contraction_not_defined",
            PlanFault::Images(_) => "pixels_in_columns",
            PlanFault::Overdecomposed(_) => "nothing_to_hide",
            PlanFault::UnknownDevice { .. } => "unknown_device",
            PlanFault::Devices { .. } => "wrong_devices",
            PlanFault::Scattered { .. } => "scattered_devices",
        }
    }

    /// The decision that would have to be otherwise, as plan files name it.
    pub fn decision(&self) -> &'static str {
        match self {
            PlanFault::Cuts { .. } => "cuts",
            PlanFault::Recompute { .. } => "recompute",
            PlanFault::Delays { .. } => "delays",
            PlanFault::Units(_) => "boundaries",
            PlanFault::Slices(_) | PlanFault::SlicedTensor(_) => "slices",
            PlanFault::Order { .. } => "order",
            PlanFault::Lists(_) => "lists",
            PlanFault::Replicas { .. } => "replicas",
            PlanFault::NeedlessShards { .. } | PlanFault::UnevenShards { .. } => "shards",
            PlanFault::Reduction { .. } => "reduction",
            PlanFault::NoParts
            | PlanFault::Contraction(_)
            | PlanFault::Images(_)
            | PlanFault::Overdecomposed(_) => "tensor",
            PlanFault::UnknownDevice { .. }
            | PlanFault::Devices { .. }
            | PlanFault::Scattered { .. } => "devices",
        }
    }
}

/// # Errors
/// Each check says what keeps the plan from being one.
impl Plan {
    /// S stages have S − 1 ascending cuts.
    pub fn check_cuts(&self) -> Result<(), PlanFault> {
        let Self { cuts, stages, .. } = self;
        let ascending = cuts.windows(2).all(|pair| pair[0] < pair[1]);
        match cuts.len() as u64 + 1 == u64::from(*stages) && ascending {
            true => Ok(()),
            false => Err(PlanFault::Cuts { stages: *stages, cuts: cuts.clone() }),
        }
    }

    /// Every stage has a value of `recompute`.
    pub fn check_recompute(&self) -> Result<(), PlanFault> {
        let (stages, found) = (self.stages, self.recompute.len());
        match found as u64 == u64::from(stages) {
            true => Ok(()),
            false => Err(PlanFault::Recompute { stages, found }),
        }
    }

    /// The version map is the rule's. It is made anew, so N and S must be numbers that a computer
    /// can count to.
    pub fn check_delays(&self) -> Result<(), PlanFault> {
        let Self { rule, placement, micro_batches, stages, .. } = *self;
        let expected = rule.delays(placement.timeline(), micro_batches, stages);
        match self.delays.apart(&expected) {
            None => Ok(()),
            Some(apart) => Err(PlanFault::Delays { rule, placement, apart }),
        }
    }

    /// A pipeline's order is defined for its numbers.
    pub fn check_order(&self) -> Result<(), PlanFault> {
        let Self { placement, order, chunks, stages, micro_batches, .. } = *self;
        if placement != Placement::Pipeline || order == Order::Cyclic {
            return Ok(());
        }
        let fits = order.fits(chunks, stages, micro_batches);
        fits.map_err(|misfit| PlanFault::Order { order, misfit })
    }

    /// Lists of passes, where it takes some, are one training step.
    pub fn check_lists(&self) -> Result<(), PlanFault> {
        let faults = if self.takes_lists() { plan_faults(self) } else { Vec::new() };
        faults.into_iter().next().map_or(Ok(()), |fault| Err(PlanFault::Lists(fault)))
    }

    /// Only workers that update together have replicas.
    pub fn check_replicas(&self) -> Result<(), PlanFault> {
        self.placement.check_replicas(self.rule, self.replicas)
    }

    /// Shards divide those that hold a stage, where states are split in groups.
    pub fn check_shards(&self) -> Result<(), PlanFault> {
        self.states.check_shards(self.shards, self.members())
    }

    /// Gradients are summed as the collectives of this plan do it.
    pub fn check_reduction(&self) -> Result<(), PlanFault> {
        let (found, expected) = (self.reduction, self.own_reduction());
        match found == expected {
            true => Ok(()),
            false => Err(PlanFault::Reduction { found, expected }),
        }
    }

    /// The devices are there, and as many as the placement takes.
    pub fn check_devices(&self, target: &Target) -> Result<(), PlanFault> {
        let count = target.devices.len();
        let unknown = self.devices.iter().find(|id| target.devices.get(**id).is_none());
        if let Some(&device) = unknown {
            return Err(PlanFault::UnknownDevice { device, count });
        }
        let (wanted, found) = (self.device_count(), self.devices.len());
        match found as u64 == u64::from(wanted) {
            true => Ok(()),
            false => Err(PlanFault::Devices { wanted, found }),
        }
    }

    /// Replicas lie side by side, and so do parts of tensors; of devices that [`Plan::check_devices`]
    /// found in a cluster.
    pub fn check_neighbours(&self) -> Result<(), PlanFault> {
        let cell = (self.device_count() / self.members().max(1)).max(1) as usize;
        let copies = |number| (number % cell, number / cell * cell);
        let parts = self.tensor.parts().max(1) as usize;
        let pieces = |number| (number / parts * parts, number % parts);
        self.in_line(copies)?;
        self.in_line(pieces)
    }

    /// Each device lies so far behind an earlier one of the plan, as `line` says: which, how far.
    fn in_line(&self, line: impl Fn(usize) -> (usize, usize)) -> Result<(), PlanFault> {
        for (number, &found) in self.devices.iter().enumerate() {
            let (first, behind) = line(number);
            let expected = self.devices[first].index() + behind;
            if found.index() != expected {
                let expected = DeviceId::new(expected);
                return Err(PlanFault::Scattered { number, found, expected });
            }
        }
        Ok(())
    }
}

impl Placement {
    /// Only workers that update together have replicas.
    ///
    /// # Errors
    /// Those of workers that never meet.
    pub fn check_replicas(self, rule: Rule, replicas: u32) -> Result<(), PlanFault> {
        let alone = matches!(self, Placement::Data | Placement::Shared);
        match replicas > 1 && alone && !rule.is_synchronous() {
            true => Err(PlanFault::Replicas { placement: self, rule }),
            false => Ok(()),
        }
    }
}

impl States {
    /// Shards divide so many members that hold a stage, where states are split in groups.
    ///
    /// # Errors
    /// Other states, or shards that divide no members.
    pub fn check_shards(self, shards: u32, members: u32) -> Result<(), PlanFault> {
        if shards > 1 && self != States::Hsdp {
            return Err(PlanFault::NeedlessShards { shards, states: self });
        }
        match shards >= 1 && members.is_multiple_of(shards) {
            true => Ok(()),
            false => Err(PlanFault::UnevenShards { members, shards }),
        }
    }
}

/// # Errors
/// Each check says what keeps tensors from being split so.
impl Tensor {
    /// There are parts, and several where they split a sequence.
    pub fn check_parts(&self) -> Result<(), PlanFault> {
        match self.parts() {
            0 => Err(PlanFault::NoParts),
            1 if self.sequence == Sequence::Split => Err(PlanFault::NoParts),
            _ => Ok(()),
        }
    }

    /// Tensors are whole where sequences are in slices.
    pub fn check_slices(&self, slices: u32) -> Result<(), PlanFault> {
        match slices > 1 && self.parts() > 1 {
            true => Err(PlanFault::SlicedTensor(*self)),
            false => Ok(()),
        }
    }

    /// Micro-batches are whole, or in halves where there are several parts.
    pub fn check_halves(&self) -> Result<(), PlanFault> {
        match (self.overdecompose, self.parts()) {
            (1, _) | (2, 2..) => Ok(()),
            (halves, _) => Err(PlanFault::Overdecomposed(halves)),
        }
    }

    /// Columns multiply as they can.
    pub fn check_contraction(&self) -> Result<(), PlanFault> {
        self.can_contract().then_some(()).ok_or(PlanFault::Contraction(*self))
    }

    /// Images lie as they can.
    pub fn check_images(&self) -> Result<(), PlanFault> {
        self.can_lie().then_some(()).ok_or(PlanFault::Images(*self))
    }
}
