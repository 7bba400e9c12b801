//! Why a plan cannot be lowered.

use crate::StageError;
use roundelay_schedule::{
    DeviceId, Listed, MapWay, PlanFault, Queues, Rewrite, Stuck, Tie,
};
use thiserror::Error;

/// Why a plan cannot be lowered.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum LowerError {
    /// Decisions that do not go together.
    #[error(transparent)]
    Plan(#[from] PlanFault),
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
    /// A cut point out of range.
    #[error(
        "cut {cut} is not between 1 and {last}, the nodes of the model where stages begin"
    )]
    Cut {
        /// The node.
        cut: u32,
        /// The last one where a stage can begin.
        last: usize,
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
    /// Ties that are not those of the model.
    #[error(
        "the `ties` of the plan are {}, but with its cuts the stages that use the same parameters are \
         {}: write these",
        shown(.found), shown(.expected)
    )]
    Ties {
        /// Those of the plan.
        found: Vec<Tie>,
        /// Those of the model.
        expected: Vec<Tie>,
    },
    /// Units that are not those of the model.
    #[error("the units of the plan do not fit: {0}")]
    Units(String),
    /// A list that takes the gradients of a stage in another order than that of their sum.
    #[error(
        "the list has {0} behind a later micro-batch of its stage, but gradients are summed \
         in ascending order: list backward passes of a stage in the order of micro-batches"
    )]
    Descending(Listed),
    /// More queues than the checker follows.
    #[error(
        "the plan takes {0} queues, for what the lanes of its devices compute, for what arrives \
         there and for what the host does there; at most {most} are possible: let it take fewer \
         devices",
        most = Queues::MOST
    )]
    Queues(usize),
    /// Devices that wait for each other.
    #[error("the order never finishes: {0}")]
    Stuck(Stuck),
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

impl LowerError {
    /// The decision of a plan that it is about, where it is about one.
    pub fn decision(&self) -> Option<&'static str> {
        match self {
            LowerError::Plan(fault) => Some(fault.decision()),
            LowerError::Stage(error) => error.decision(),
            LowerError::Batch { .. } => Some("micro_batches"),
            LowerError::Cut { .. } => Some("cuts"),
            LowerError::Rewrite { .. } => Some("rewrites"),
            LowerError::Maps { .. } => Some("maps"),
            LowerError::Ties { .. } => Some("ties"),
            LowerError::Units(_) => Some("boundaries"),
            LowerError::Descending(_) => Some("lists"),
            LowerError::Queues(_) => Some("placement"),
            LowerError::Stuck(_) => Some("order"),
            LowerError::NoLink(..) | LowerError::MixedLinks(..) => Some("devices"),
            LowerError::NoLinks => None,
        }
    }
}

/// Ties as a plan file has them.
fn shown(ties: &[Tie]) -> String {
    let each: Vec<String> = ties.iter().map(|Tie(users)| format!("{users:?}")).collect();
    format!("[{}]", each.join(", "))
}
