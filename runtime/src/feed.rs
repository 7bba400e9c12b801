//! Where a machine gets its examples.

use roundelay_schedule::InputId;

/// Fills the inputs of micro-batches.
///
/// What micro-batch i of step t holds depends on the data, the seed, t and i alone, so that a run
/// does not depend on its plan and can be resumed anywhere.
pub trait Feed: Send {
    /// Writes `input`, one of those that data brings, of one micro-batch, dense, in the shape and
    /// element type that the job gives; reals in the job's type. `micro_batch` counts over all
    /// coordinates that take micro-batches of their own; rows of split tensors take the same ones, so
    /// each of them asks once. Called for each input on its own, in no promised order of t and
    /// micro-batches, and for targets of masked losses also when they are counted. Must not allocate.
    fn fill(&mut self, input: InputId, t: u64, micro_batch: u64, bytes: &mut [u8]);
}
