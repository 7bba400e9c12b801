//! Why a plan cannot be lowered.

use crate::StageError;
use roundelay_schedule::{
    DeviceId, ListFault, Listed, MapWay, Misfit, Placement, Reduction, Rewrite, Rule,
    States, Stuck,
};
use thiserror::Error;

/// Why a plan cannot be lowered.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum LowerError {
    /// The model cannot be cut like this.
    #[error(transparent)]
    Stage(#[from] StageError),
    /// Micro-batches of unequal size.
    #[error("a batch of {batch} does not split into {micro_batches} equal micro-batches")]
    Batch {
        /// Examples of a step.
        batch: u32,
        /// N.
        micro_batches: u32,
    },
    /// Cut points out of order, out of range, or of the wrong number.
    #[error("the cuts of the plan are not {stages} ascending stages of the model")]
    Cuts {
        /// S.
        stages: u32,
    },
    /// Not one value of `recompute` per stage.
    #[error("the plan has {stages} stages, but {found} values of recompute")]
    Recompute {
        /// S.
        stages: u32,
        /// Values in the plan.
        found: usize,
    },
    /// A rewrite of calls that are not there, or are no neighbours, or whose array between them
    /// is needed.
    #[error(
        "the plan rewrites o{site} by {rewrite}, which does not fit there: delete that \
         operation from `rewrites`, or all of `rewrites` to have them found"
    )]
    Rewrite {
        /// The rule.
        rewrite: Rewrite,
        /// The operation.
        site: u32,
    },
    /// Ways of maps in a plan that splits no tensors.
    #[error(
        "the plan's `maps` send o{site} by {way}, but it splits no tensors: delete `maps`, or \
         give `tensor` several rows or columns"
    )]
    Maps {
        /// The operation.
        site: u32,
        /// Its way.
        way: MapWay,
    },
    /// A version map that is not the rule's.
    #[error("the delays of the plan are not those of {0}")]
    Delays(Rule),
    /// Units that are not those of the rule, or not those of the model.
    #[error("the units of the plan do not fit: {0}")]
    Units(String),
    /// Slices that the plan's other decisions do not take.
    #[error("{0}")]
    Slices(String),
    /// Too few or unknown devices.
    #[error(
        "the placement takes {wanted} devices of the cluster, the plan names {found}"
    )]
    Devices {
        /// What the placement takes.
        wanted: u32,
        /// What the plan names.
        found: usize,
    },
    /// An order that is not defined for the plan's numbers.
    #[error("{0}")]
    Order(Misfit),
    /// Lists that are no training step.
    #[error("the lists are no training step: {0}")]
    Lists(ListFault),
    /// A list that takes the gradients of a stage in another order than that of their sum.
    #[error(
        "the list has {0} behind a later micro-batch of its stage, but gradients are summed \
         in ascending order: list backward passes of a stage in the order of micro-batches"
    )]
    Descending(Listed),
    /// Devices that wait for each other.
    #[error("the order cannot come to its end: {0}")]
    Stuck(Stuck),
    /// States that the placement cannot have.
    #[error("states {states} are not possible with placement {placement} under {rule}")]
    States {
        /// The placement.
        placement: Placement,
        /// The rule.
        rule: Rule,
        /// The states.
        states: States,
    },
    /// Replicas of a cell whose workers never meet.
    #[error(
        "placement {placement} under {rule} has no replicas: its workers update at \
         different times"
    )]
    Replicas {
        /// The placement.
        placement: Placement,
        /// The rule.
        rule: Rule,
    },
    /// Shards that do not divide the replicas, or that nothing asks for.
    #[error(
        "{members} replicas do not split into groups of {shards} shards under {states}"
    )]
    Shards {
        /// Coordinates that hold the same stages.
        members: u32,
        /// What the plan says.
        shards: u32,
        /// The states.
        states: States,
    },
    /// Replicas or parts of tensors elsewhere than side by side.
    #[error(
        "replicas and parts of tensors lie side by side: device {0} of the plan must be {1}"
    )]
    Scattered(usize, DeviceId),
    /// A tree that no collectives of this plan make.
    #[error("the plan sums {found}, its placement and states sum {expected}")]
    Reduction {
        /// The plan's.
        found: Reduction,
        /// What it should be.
        expected: Reduction,
    },
    /// Clipping by the norm of a gradient that no device has whole.
    #[error(
        "clipping needs a stage's whole gradient on one device, which states {0} splits up"
    )]
    ClippingNeedsWholeGradient(States),
    /// Clipping where no device has a stage's whole tensors.
    #[error(
        "clipping needs a stage's whole gradient on one device, which {0} parts of tensors split up"
    )]
    ClippingNeedsWholeTensors(u32),
    /// No part, or a sequence that one part splits.
    #[error(
        "tensors have at least one row and one column, and one part splits no sequence"
    )]
    Rows,
    /// Columns that gather, beside rows or shares of the tokens.
    #[error("columns that gather stand in one row, which leaves sequences whole")]
    Contraction,
    /// Images that are split among columns, or by one part.
    #[error(
        "several rows in one column split images, for channels that columns divide beside pixels are \
         not built: set `tensor {{ columns 1 }}` and rows, or `images whole`"
    )]
    Images,
    /// Parts of a micro-batch that nothing is gained by.
    #[error(
        "the examples of a micro-batch are taken together, or in two halves where tensors are \
         split among several devices, not in {0} parts: set `tensor {{ overdecompose 1 }}`, or 2 \
         beside rows or columns"
    )]
    Overdecomposed(u32),
    /// Devices that nothing joins.
    #[error("no link joins {0} and {1}")]
    NoLink(DeviceId, DeviceId),
    /// Devices that nothing joins.
    #[error("the cluster has no link")]
    NoLinks,
    /// A ring whose devices are joined by different levels.
    #[error(
        "{0} and {1} are joined by another link level than other devices that do the same"
    )]
    MixedLinks(DeviceId, DeviceId),
}
