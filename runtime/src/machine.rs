//! What all machines share: where rows are, who queues where, who meets in a collective, what is
//! counted.

mod batches;
mod bind;
mod course;
mod group;
mod host;
mod limits;
mod meter;
mod queues;
mod record;
mod span;
mod touched;
mod work;

pub use course::Unready;
pub use host::HostMemory;
pub use limits::MemoryBound;
pub use meter::{AttentionCounts, Makers, Measured, OnGpus};
pub use record::{Ran, Record};
pub use touched::Touched;

pub(crate) use batches::Batches;
pub(crate) use bind::{input_of, slice_offset};
pub(crate) use course::Course;
pub(crate) use group::{Member, Members, members, part, placed};
pub(crate) use limits::Room;
pub(crate) use meter::Meter;
pub(crate) use queues::{Queues, describe};
pub(crate) use span::{Span, arena_sizes};
pub(crate) use touched::{POISON, append, scan, touched};
pub(crate) use work::{Joint, Launched};

/// What arenas hold before the first use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// Zeros.
    Zero,
    /// A pattern that is not a number, so that reads of what was not written are seen in the
    /// results, and a scan tells what was used.
    Poison,
}

/// The loss of one micro-batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Loss {
    /// The training step.
    pub step: u64,
    /// The micro-batch, counted over all coordinates that take some of their own: rows of split
    /// tensors share theirs.
    pub micro_batch: u64,
    /// Its loss.
    pub loss: f64,
}
