//! What rows say about the action that names them.

use roundelay_schedule::{Id, InputId, Row, Schedule, Subject};

/// First element, in the stage's flat array, of the shard that a launch works on.
pub(crate) fn slice_offset(schedule: &Schedule, rows: &[Row], coordinate: &[u32]) -> u64 {
    let subjects = rows.iter().map(|row| schedule.buffers[row.buffer].subject);
    let shards = subjects.filter_map(Subject::shard).map(|(stage, axis)| {
        let part = schedule.job.elements[stage] / u64::from(schedule.axes[axis].extent);
        part * u64::from(coordinate[axis.index()])
    });
    shards.max().unwrap_or(0)
}

/// The input that a fed row holds.
pub(crate) fn input_of(schedule: &Schedule, row: Row) -> InputId {
    let input = schedule.buffers[row.buffer].subject.input();
    input.expect("a checked feed writes an input's row")
}
