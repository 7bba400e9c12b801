//! What keeps decisions from going together, whatever the model: its words, and the decision that it
//! is about. Who finds them: `faults.rs`.

use super::{Placement, Reduction, States, StatesFault};
use crate::{DeviceId, ListFault, Misfit, Order, Rule, Tensor, counted};
use thiserror::Error;

/// Decisions of a plan that do not go together.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "the message names its fields")]
pub enum PlanFault {
    /// No replica, stage or whatever else there is one of at least.
    #[error("`{0}` is 0, and the least is 1")]
    Zero(&'static str),
    /// Cut points out of order, or not one less than stages.
    #[error(
        "there must be {} for {}, found {cuts:?}",
        counted(stages.saturating_sub(1).into(), "ascending cut"),
        counted((*stages).into(), "stage")
    )]
    Cuts { stages: u32, cuts: Vec<u32> },
    /// Not one value of `recompute` per stage.
    #[error(
        "recompute has {} for {}",
        counted(*found as u64, "value"),
        counted((*stages).into(), "stage")
    )]
    Recompute { stages: u32, found: usize },
    /// A version map that is not the rule's.
    #[error("the delays are not those of {rule} for {placement}: {apart}")]
    Delays {
        rule: Rule,
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
    /// Parameters of several stages that the plan's other decisions do not take.
    #[error("{0}")]
    Ties(String),
    /// An order that is not defined for the plan's numbers.
    #[error("order {order}: {misfit}")]
    Order {
        order: Order,
        /// What would have to be otherwise.
        misfit: Misfit,
    },
    /// An order of another rule or placement.
    #[error(
        "order {order} does not belong to {rule} in placement {placement}: use {fits}"
    )]
    WrongOrder {
        order: Order,
        rule: Rule,
        placement: Placement,
        /// The order, or the first of the orders, that belongs here.
        fits: Order,
    },
    /// States that rule, placement and order cannot have.
    #[error("{0}")]
    States(StatesFault),
    /// States that several split, where one alone holds each stage.
    #[error("with one replica nothing is split: use states replicated, not {0}")]
    OneReplica(States),
    /// Lists that are no training step.
    #[error("the lists are not a training step: {0}")]
    Lists(ListFault),
    /// Replicas of a cell whose workers never meet.
    #[error(
        "placement {placement} has no replicas under {rule}, whose workers never meet: use rule \
         sync, or placement pipeline"
    )]
    Replicas { placement: Placement, rule: Rule },
    /// Replicas of two pipelines in opposite directions.
    #[error("two pipelines in opposite directions have no replicas")]
    MirroredReplicas,
    /// Shards that nothing asks for.
    #[error("{shards} shards are for states hsdp, not for {states}")]
    NeedlessShards { shards: u32, states: States },
    /// Shards that do not divide the replicas.
    #[error("{members} replicas do not split into equal groups of {shards} shards")]
    UnevenShards {
        /// Coordinates that hold the same stages.
        members: u32,
        shards: u32,
    },
    /// A tree that no collectives of this plan make.
    #[error("the plan sums {found}, its replicas, placement and states sum {expected}")]
    Reduction { found: Reduction, expected: Reduction },
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
    UnknownDevice { device: DeviceId, count: usize },
    /// One device in two places.
    #[error("{0} stands twice among the devices")]
    Repeated(DeviceId),
    /// Too few devices, or too many.
    #[error(
        "the placement takes {}, the plan names {found}",
        counted((*wanted).into(), "device")
    )]
    Devices { wanted: u32, found: usize },
    /// Replicas or parts of tensors elsewhere than side by side.
    #[error(
        "replicas and parts of tensors lie side by side: device {number} of the plan must be \
         {expected}, not {found}"
    )]
    Scattered {
        /// Which one, counted from zero.
        number: usize,
        found: DeviceId,
        expected: DeviceId,
    },
}

impl PlanFault {
    /// Its name in documents.
    pub fn name(&self) -> &'static str {
        match self {
            PlanFault::Zero(_) => "zero",
            PlanFault::Cuts { .. } => "wrong_cuts",
            PlanFault::Recompute { .. } => "wrong_recompute",
            PlanFault::Delays { .. } => "wrong_delays",
            PlanFault::Units(_) => "wrong_units",
            PlanFault::Slices(_) => "wrong_slices",
            PlanFault::Ties(_) => "wrong_ties",
            PlanFault::SlicedTensor(_) => "slices_need_whole_tensors",
            PlanFault::Order { .. } => "order_not_defined",
            PlanFault::WrongOrder { .. } => "wrong_order",
            PlanFault::States(_) => "wrong_states",
            PlanFault::OneReplica(_) => "one_replica",
            PlanFault::Lists(_) => "wrong_lists",
            PlanFault::Replicas { .. } => "replicas_need_sync",
            PlanFault::MirroredReplicas => "mirrored_replicas",
            PlanFault::NeedlessShards { .. } => "shards_need_hsdp",
            PlanFault::UnevenShards { .. } => "uneven_shards",
            PlanFault::Reduction { .. } => "wrong_reduction",
            PlanFault::NoParts => "no_rows",
            PlanFault::Contraction(_) => "contraction_not_defined",
            PlanFault::Images(_) => "pixels_in_columns",
            PlanFault::Overdecomposed(_) => "nothing_to_hide",
            PlanFault::UnknownDevice { .. } => "unknown_device",
            PlanFault::Repeated(_) => "repeated_device",
            PlanFault::Devices { .. } => "wrong_devices",
            PlanFault::Scattered { .. } => "scattered_devices",
        }
    }

    /// The decision that would have to be otherwise, as plan files name it.
    pub fn decision(&self) -> &'static str {
        match self {
            PlanFault::Zero(decision) => decision,
            PlanFault::Cuts { .. } => "cuts",
            PlanFault::Recompute { .. } => "recompute",
            PlanFault::Delays { .. } => "delays",
            PlanFault::Units(_) => "boundaries",
            PlanFault::Slices(_) | PlanFault::SlicedTensor(_) => "slices",
            PlanFault::Ties(_) => "ties",
            PlanFault::Order { .. } | PlanFault::WrongOrder { .. } => "order",
            PlanFault::States(_) | PlanFault::OneReplica(_) => "states",
            PlanFault::Lists(_) => "lists",
            PlanFault::Replicas { .. } | PlanFault::MirroredReplicas => "replicas",
            PlanFault::NeedlessShards { .. } | PlanFault::UnevenShards { .. } => "shards",
            PlanFault::Reduction { .. } => "reduction",
            PlanFault::NoParts
            | PlanFault::Contraction(_)
            | PlanFault::Images(_)
            | PlanFault::Overdecomposed(_) => "tensor",
            PlanFault::UnknownDevice { .. }
            | PlanFault::Repeated(_)
            | PlanFault::Devices { .. }
            | PlanFault::Scattered { .. } => "devices",
        }
    }
}
