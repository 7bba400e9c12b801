//! What actions say, for whoever does them.

use roundelay_schedule::{
    Collective, GroupId, LinkId, MicroBatch, Place, RoutineId, Row,
};

/// What a launch says, at all coordinates.
#[derive(Clone, Copy)]
pub(crate) struct Launched<'a> {
    pub(crate) at: Place,
    pub(crate) routine: RoutineId,
    /// None for passes that serve all micro-batches.
    pub(crate) micro_batch: Option<MicroBatch>,
    pub(crate) rows: &'a [Row],
}

/// A collective in a period.
#[derive(Clone, Copy)]
pub(crate) struct Joint {
    pub(crate) link: LinkId,
    pub(crate) kind: Collective,
    pub(crate) group: GroupId,
    pub(crate) from: Row,
    pub(crate) to: Row,
    pub(crate) period: i64,
}
