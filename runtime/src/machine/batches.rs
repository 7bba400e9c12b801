//! How micro-batches are numbered over all coordinates.

use roundelay_schedule::{Id, MicroBatch, Schedule};

/// The numbers of micro-batches, the same on all parts of split tensors.
pub(crate) struct Batches {
    /// Micro-batches of a cell.
    cell: u64,
    /// The number of each coordinate among those that take micro-batches of their own.
    coordinates: Vec<u64>,
}

impl Batches {
    /// Those of a schedule.
    pub(crate) fn of(schedule: &Schedule) -> Self {
        let batch = |coordinate: &Vec<u32>| u64::from(schedule.batch_of(coordinate));
        Self {
            cell: u64::from(schedule.cell_micro_batches()),
            coordinates: schedule.coordinates().iter().map(batch).collect(),
        }
    }

    /// The number of a cell's micro-batch at a coordinate; zero for passes that serve them all.
    pub(crate) fn global(
        &self,
        coordinate: usize,
        micro_batch: Option<MicroBatch>,
    ) -> u64 {
        let batch = self.coordinates[coordinate];
        micro_batch.map_or(0, |own| batch * self.cell + own.index() as u64)
    }
}
