//! What can be wrong with a schedule: one variant per kind of fault, each with a repair.

use super::held::{Apart, Held, Parting, Spelled};
use crate::{
    Access, ActionId, AxisId, BufferId, Bytes, GroupId, MicroBatch, Place, RingId,
    RoutineId, Row, Stage, Sum, Task,
};
use std::fmt;

/// A fault of a schedule.
#[derive(Clone, Debug, PartialEq)]
pub enum Violation {
    /// Something is not well formed: a handle, a size, a signature, a number out of range.
    Malformed {
        /// What it is about.
        culprit: Culprit,
        /// What is wrong and what would be right.
        problem: String,
    },
    /// Something is beyond what files and machines take: too large, too many, or a number or a name that
    /// they cannot have.
    Beyond {
        /// What it is about.
        culprit: Culprit,
        /// What is beyond which limit.
        problem: String,
    },
    /// More memory is laid out than there is.
    Overfull {
        /// The device or pool.
        memory: String,
        /// The buffer that ends last there.
        buffer: BufferId,
        /// Bytes that the layout takes.
        needed: Bytes,
        /// Bytes that the target gives it.
        capacity: Bytes,
    },
    /// No line does what must be done once.
    Missing {
        /// The pass or report that a training step needs once.
        duty: Duty,
    },
    /// Two lines do what must be done once.
    Repeated {
        /// The later line.
        action: ActionId,
        /// The earlier one.
        first: ActionId,
        /// The pass or report that a training step needs once.
        duty: Duty,
    },
    /// A stage takes whole backward passes and halves of them.
    Mixed {
        /// The later line.
        action: ActionId,
        /// The pass that the later line makes.
        task: Task,
        /// The earlier line.
        first: ActionId,
        /// The pass that the earlier line makes.
        other: Task,
    },
    /// One action writes memory that it also touches as something else.
    Alias {
        /// The line.
        action: ActionId,
        /// The place of the ring that has the row.
        at: Place,
        /// The row that is written.
        row: Row,
        /// The buffer that the other touch is of.
        other: BufferId,
    },
    /// Two touches of the same memory, one not a read, that nothing orders.
    Race {
        /// The later line in list order.
        action: ActionId,
        /// The place of the ring that has the row.
        at: Place,
        /// The row that the later line touches.
        row: Row,
        /// Whether the later line reads, writes or updates it.
        access: Access,
        /// The earlier line.
        earlier: ActionId,
        /// How many periods earlier.
        distance: u32,
        /// The buffer that the earlier one touches.
        buffer: BufferId,
    },
    /// Two collectives of groups that share two devices, and nothing orders them.
    Crossing {
        /// The later line in list order.
        action: ActionId,
        /// The earlier line.
        earlier: ActionId,
        /// How many periods earlier.
        distance: u32,
    },
    /// A row does not hold what an action expects there.
    Content {
        /// The line that reads.
        action: ActionId,
        /// The place of the ring that has the row.
        at: Place,
        /// What it reads.
        row: Row,
        /// What it needs.
        expected: Held,
        /// What is there.
        found: Held,
        /// Who wrote that; nobody when it is from the rest before.
        writer: Option<ActionId>,
    },
    /// A gradient sum that is no part of the plan's.
    Tree {
        /// The line that makes it.
        action: ActionId,
        /// The stage whose gradients are summed.
        stage: Stage,
        /// The place of the ring that has the row.
        at: Place,
        /// The row that has the sum.
        row: Row,
        /// What it makes.
        made: Sum,
        /// What the plan says.
        plan: Sum,
    },
    /// A carried row does not hold, after a segment, what the next one starts from.
    Rest {
        /// Where, as in the period after the segment.
        at: Place,
        /// Which row, as in that period.
        row: Row,
        /// What is declared; steps count from the end of the segment.
        expected: Held,
        /// What is there.
        found: Held,
        /// Who wrote that.
        writer: Option<ActionId>,
        /// Training steps of the segment.
        steps: u64,
    },
    /// No carried row keeps the newest version of something between segments.
    Lost {
        /// What is needed; steps count from the end of a segment.
        needed: Held,
    },
}

/// What a malformed thing is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Culprit {
    /// A key of the header: target, plan, job.
    Header(&'static str),
    /// An axis.
    Axis(AxisId),
    /// A ring.
    Ring(RingId),
    /// A group.
    Group(GroupId),
    /// A routine.
    Routine(RoutineId),
    /// A call of a routine, counted from zero.
    Call(RoutineId, usize),
    /// A buffer.
    Buffer(BufferId),
    /// A line.
    Action(ActionId),
}

/// What must be done exactly once in a training step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Duty {
    /// A pass of a stage.
    Task(Task),
    /// Reading the loss of a micro-batch.
    Report(MicroBatch),
}

impl Violation {
    /// The line at fault; none when it is the header, a table, or a line that is not there.
    pub fn action(&self) -> Option<ActionId> {
        match self.culprit()? {
            Culprit::Action(action) => Some(action),
            Culprit::Header(_)
            | Culprit::Axis(_)
            | Culprit::Ring(_)
            | Culprit::Group(_)
            | Culprit::Routine(_)
            | Culprit::Call(..)
            | Culprit::Buffer(_) => None,
        }
    }

    /// What is at fault; nothing when it is a line that is not there.
    pub fn culprit(&self) -> Option<Culprit> {
        match self {
            Violation::Malformed { culprit, problem: _ }
            | Violation::Beyond { culprit, problem: _ } => Some(*culprit),
            Violation::Overfull { buffer, .. } => Some(Culprit::Buffer(*buffer)),
            Violation::Missing { .. } => None,
            Violation::Lost { .. } => Some(Culprit::Header("buffers")),
            Violation::Repeated { action, .. }
            | Violation::Mixed { action, .. }
            | Violation::Alias { action, .. }
            | Violation::Race { action, .. }
            | Violation::Crossing { action, .. }
            | Violation::Content { action, .. }
            | Violation::Tree { action, .. } => Some(Culprit::Action(*action)),
            Violation::Rest { row, writer, .. } => {
                Some(writer.map_or(Culprit::Buffer(row.buffer), Culprit::Action))
            }
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Violation::Malformed { culprit, problem }
            | Violation::Beyond { culprit, problem } => {
                write!(f, "{culprit}: {problem}")
            }
            Violation::Overfull { memory, buffer, needed, capacity } => {
                overfull(f, memory, *buffer, [*needed, *capacity])
            }
            Violation::Missing { duty } => {
                write!(f, "no action does {duty}: add one to the period")
            }
            Violation::Repeated { action, first, duty } => {
                write!(f, "{action} does {duty}, which {first} does already: remove one")
            }
            Violation::Mixed { action, task, first, other } => {
                mixed(f, [(*action, *task), (*first, *other)])
            }
            Violation::Alias { action, at, row, other } => write!(
                f,
                "{action} writes {row} on {at}, which lies over {other} that it also touches: \
                 give one of them another row or offset"
            ),
            Violation::Race { action, at, row, access, earlier, distance, buffer } => {
                write!(
                    f,
                    "{action} {} {row} on {at}, while {earlier} may still be at work there \
                     through {buffer}{}: let {action} wait for {earlier} at distance \
                     {distance}, or give them different memory",
                    does(*access),
                    Earlier(*distance)
                )
            }
            Violation::Crossing { action, earlier, distance } => write!(
                f,
                "{action} and {earlier}{} are collectives of groups that share two devices, \
                 and nothing orders them: let {action} wait for {earlier} at distance \
                 {distance}",
                Earlier(*distance)
            ),
            Violation::Content { action, at, row, expected, found, writer } => write!(
                f,
                "{action} reads {row} on {at}, which holds {found}{}{}; expected {expected}: \
                 move its slot, or add the action that puts it there",
                Apart(found, expected),
                Writer(found, *writer)
            ),
            Violation::Tree { action, stage, at, row, made, plan } => write!(
                f,
                "{action} makes the gradient sum {}{} of {stage} in {row} on {at}; the plan \
                 adds {}: take the micro-batches in the plan's order",
                Spelled(made),
                Parting([made, plan]),
                Spelled(plan)
            ),
            Violation::Rest { at, row, expected, found, writer, steps } => write!(
                f,
                "{row} on {at} holds {found}{} after a segment of {steps} steps that ends \
                 at t; it is declared to hold {expected}: change its age, or write it",
                Writer(found, *writer)
            ),
            Violation::Lost { needed } => write!(
                f,
                "no carried row holds {needed} at rest: declare the row that does as carried \
                 with age 0"
            ),
        }
    }
}

fn mixed(
    f: &mut fmt::Formatter<'_>,
    [(action, task), (first, other)]: [(ActionId, Task); 2],
) -> fmt::Result {
    write!(
        f,
        "{action} does {}, but {first} does {}: a stage takes either B or both I and W of every \
         micro-batch",
        Duty::Task(task),
        Duty::Task(other)
    )
}

fn overfull(
    f: &mut fmt::Formatter<'_>,
    memory: &str,
    buffer: BufferId,
    [needed, capacity]: [Bytes; 2],
) -> fmt::Result {
    write!(
        f,
        "{memory} has {} bytes, but the layout takes {}, with {buffer} last: take fewer slots, \
         more devices, or let lives share addresses",
        capacity.0, needed.0
    )
}

fn does(access: Access) -> &'static str {
    match access {
        Access::Read => "reads",
        Access::Write => "writes",
        Access::Update => "updates",
    }
}

struct Earlier(u32);

impl fmt::Display for Earlier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => Ok(()),
            1 => f.write_str(" one period earlier"),
            periods => write!(f, " {periods} periods earlier"),
        }
    }
}

struct Writer<'a>(&'a Held, Option<ActionId>);

impl fmt::Display for Writer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Writer(Held::Nothing, None) => Ok(()),
            Writer(Held::Nothing, Some(action)) => {
                write!(f, ", since {action} wrote there")
            }
            Writer(_, None) => f.write_str(" from the rest before"),
            Writer(_, Some(action)) => write!(f, " written by {action}"),
        }
    }
}

impl fmt::Display for Culprit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Culprit::Header(key) => f.write_str(key),
            Culprit::Axis(id) => id.fmt(f),
            Culprit::Ring(id) => id.fmt(f),
            Culprit::Group(id) => id.fmt(f),
            Culprit::Routine(id) => id.fmt(f),
            Culprit::Call(id, number) => write!(f, "call {number} of {id}"),
            Culprit::Buffer(id) => id.fmt(f),
            Culprit::Action(id) => id.fmt(f),
        }
    }
}

impl fmt::Display for Duty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Duty::Task(Task { pass, stage, micro_batch: Some(i) }) => {
                write!(f, "{pass} of {stage} on {i}")
            }
            Duty::Task(Task { pass, stage, micro_batch: None }) => {
                write!(f, "{pass} of {stage}")
            }
            Duty::Report(i) => write!(f, "the report of the loss of {i}"),
        }
    }
}
