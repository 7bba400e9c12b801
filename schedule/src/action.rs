//! The lines of a schedule: one period of the steady state, in an order in which they could
//! legally run one by one.

use crate::{
    ActionId, GroupId, LinkId, MicroBatch, Pass, Place, RoutineId, Row, Stage, Sum,
    ValueId, Waits,
};
use serde::{Deserialize, Serialize};
use std::fmt;

/// One line of a schedule.
///
/// In period p the action serves step t = p − `lag`. It executes when one of the steps
/// t ..= t + `reach` lies in the segment; else it touches nothing, but keeps its place in its
/// queue and its waits. Only moves of parameters have a reach: it counts the later steps that
/// still read what they move.
#[derive(Clone, Debug, PartialEq)]
pub struct Action {
    /// Periods between the step that it serves and the period that it stands in.
    pub lag: u32,
    /// Later steps that also need it.
    pub reach: u32,
    /// What must be done before.
    pub after: Waits,
    /// What is done.
    pub work: Work,
}

/// Schedules have millions of actions.
const _: () = assert!(size_of::<Action>() == 88);

/// Waits for an action's instance `distance` periods earlier; with distance 0 it stands above.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Wait {
    /// The action waited for.
    pub action: ActionId,
    /// Periods back.
    pub distance: u32,
}

/// What an action does. No receive, event, allocation, free or barrier.
#[derive(Clone, Debug, PartialEq)]
pub enum Work {
    /// Runs a routine on a lane.
    Launch {
        /// The place, of a ring of devices, whose device does it.
        at: Place,
        /// The lane of the device.
        lane: u32,
        /// The routine that runs there.
        routine: RoutineId,
        /// For which micro-batch, unless the pass serves them all.
        micro_batch: Option<MicroBatch>,
        /// One row per argument of the routine.
        rows: Box<[Row]>,
        /// The forward pass of the pair that this backward pass is part of: on another lane, they
        /// start together.
        beside: Option<ActionId>,
    },
    /// Copies a row from one device to another, or within one.
    Transfer {
        /// The level that joins them.
        link: LinkId,
        /// The row that is read.
        from: Spot,
        /// The row that is written.
        to: Spot,
        /// What is moved, at the step that the action serves.
        content: Content,
    },
    /// One action of a whole group.
    Collective {
        /// The level that joins the members.
        link: LinkId,
        /// What members get of what all give.
        kind: Collective,
        /// The members, in the order of their sums.
        group: GroupId,
        /// Source row of every member.
        from: Row,
        /// Destination row of every member; may be the source.
        to: Row,
        /// What is moved, at the step that the action serves.
        content: Content,
    },
    /// The host writes an input of one micro-batch.
    Feed {
        /// The place, of a ring of devices, whose device does it.
        at: Place,
        /// The micro-batch of the cell, counted from zero.
        micro_batch: MicroBatch,
        /// The input's row.
        row: Row,
    },
    /// The host reads the loss of one micro-batch.
    Report {
        /// The place, of a ring of devices, whose device does it.
        at: Place,
        /// The micro-batch of the cell, counted from zero.
        micro_batch: MicroBatch,
        /// The metric's row.
        row: Row,
    },
}

/// A row on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Spot {
    /// The device.
    pub at: Place,
    /// The row.
    pub row: Row,
}

/// Collectives over a group; sums go in group order.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Collective {
    /// Everyone gets the sum.
    AllReduce,
    /// Member k gets part k of the sum.
    ReduceScatter,
    /// Everyone gets all parts.
    AllGather,
}

impl Collective {
    /// What moves gradients back where this moves values: ⟨F x, y⟩ = ⟨x, F* y⟩, summed over the
    /// rows of all members (arXiv 2006.03108).
    pub const fn adjoint(self) -> Self {
        match self {
            Collective::AllReduce => Collective::AllReduce,
            Collective::ReduceScatter => Collective::AllGather,
            Collective::AllGather => Collective::ReduceScatter,
        }
    }

    /// How often every member sees the whole array.
    pub const fn rounds(self) -> u64 {
        match self {
            Collective::AllReduce => 2,
            Collective::ReduceScatter | Collective::AllGather => 1,
        }
    }
}

/// What a move carries; t is the step that the move serves.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Content {
    /// θ_t of a stage.
    Parameter(Stage),
    /// Optimizer state of a stage before the update of t.
    Optimizer(Stage),
    /// A partial gradient sum of a stage in step t.
    Gradient(Stage, Box<Sum>),
    /// The square of the norm of the gradients in step t of all stages from one to another one.
    Squares(Stage, Stage),
    /// A value of a micro-batch in step t.
    Value(ValueId, MicroBatch),
    /// The gradient of such a value.
    ValueGradient(ValueId, MicroBatch),
}

impl fmt::Display for Collective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Collective::AllReduce => "all_reduce",
            Collective::ReduceScatter => "reduce_scatter",
            Collective::AllGather => "all_gather",
        })
    }
}

impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Content::Parameter(stage) => write!(f, "parameter({stage})"),
            Content::Optimizer(stage) => write!(f, "optimizer({stage})"),
            Content::Gradient(stage, sum) => {
                write!(f, "gradient({stage}, ")?;
                write_sum(f, sum)?;
                f.write_str(")")
            }
            Content::Squares(first, last) if first == last => {
                write!(f, "squares({first})")
            }
            Content::Squares(first, last) => write!(f, "squares({first}, {last})"),
            Content::Value(value, i) => write!(f, "value({value}, {i})"),
            Content::ValueGradient(value, i) => write!(f, "value_gradient({value}, {i})"),
        }
    }
}

/// Most evenly spaced gradients that are written one by one.
const LISTED: u64 = 4;

fn write_sum(f: &mut fmt::Formatter<'_>, sum: &Sum) -> fmt::Result {
    match sum {
        Sum::One(i) => return write!(f, "{i}"),
        Sum::Run(run) if run.count() > LISTED => return write!(f, "[{run}]"),
        Sum::Run(_) | Sum::All(_) => {}
    }
    f.write_str("[")?;
    for (k, part) in sum.parts().iter().enumerate() {
        f.write_str(if k > 0 { ", " } else { "" })?;
        write_sum(f, part)?;
    }
    f.write_str("]")
}

/// Where an action queues. Derived, so that it cannot disagree with the action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Queue {
    /// A lane of the device at a place.
    Lane(Place, u32),
    /// What arrives at the device at a place.
    Arrival(Place),
    /// A group's collectives.
    Group(GroupId),
    /// What the host brings to the device at a place, and takes from it.
    Host(Place),
}

impl Action {
    /// The in-order queue it stands in.
    #[inline]
    pub fn queue(&self) -> Queue {
        match &self.work {
            Work::Launch { at, lane, .. } => Queue::Lane(*at, *lane),
            Work::Transfer { to, .. } => Queue::Arrival(to.at),
            Work::Collective { group, .. } => Queue::Group(*group),
            Work::Feed { at, .. } | Work::Report { at, .. } => Queue::Host(*at),
        }
    }
}

impl Work {
    /// The launch that this one starts together with.
    pub fn beside(&self) -> Option<ActionId> {
        match self {
            Work::Launch { beside, .. } => *beside,
            Work::Transfer { .. }
            | Work::Collective { .. }
            | Work::Feed { .. }
            | Work::Report { .. } => None,
        }
    }

    /// What a launch launches, and for which micro-batch.
    pub fn routine(&self) -> Option<(RoutineId, Option<MicroBatch>)> {
        match self {
            Work::Launch { routine, micro_batch, .. } => Some((*routine, *micro_batch)),
            Work::Transfer { .. }
            | Work::Collective { .. }
            | Work::Feed { .. }
            | Work::Report { .. } => None,
        }
    }
}

/// A task, for messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Task {
    /// What is done.
    pub pass: Pass,
    /// With which stage.
    pub stage: Stage,
    /// For which micro-batch, unless for all.
    pub micro_batch: Option<MicroBatch>,
}
