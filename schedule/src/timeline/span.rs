//! What the pictures of a simulated run share: which spans it has, and what they are.

use crate::{
    Bytes, Collective, Entry, MicroBatch, Pass, Routine, RoutineId, Row, Schedule,
    Simulation, Work,
};
use std::collections::BTreeSet;

/// What a span is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    /// A routine.
    Launch,
    /// Something between devices.
    Message,
    /// Something between a device and the host.
    Host,
}

impl Sort {
    /// Its name in files.
    pub(super) fn name(self) -> &'static str {
        match self {
            Sort::Launch => "launch",
            Sort::Message => "message",
            Sort::Host => "host",
        }
    }
}

/// What a span says of itself.
pub(super) struct Told {
    pub(super) name: String,
    pub(super) sort: Sort,
    pub(super) micro_batch: Option<MicroBatch>,
    /// What it moves.
    pub(super) bytes: Option<Bytes>,
}

/// All instances that take time, in order of issue.
pub(super) fn spans<'a>(
    simulation: &'a Simulation<'_>,
) -> impl Iterator<Item = &'a Entry> {
    simulation.entries().iter().filter(|entry| entry.start < entry.end)
}

/// What an instance is.
pub(super) fn told(simulation: &Simulation<'_>, entry: &Entry) -> Told {
    let schedule = simulation.schedule();
    let size = |row: &Row| schedule.buffers[row.buffer].size;
    let host = |name: &str, micro_batch: &MicroBatch, row: &Row| Told {
        name: name.to_owned(),
        sort: Sort::Host,
        micro_batch: Some(*micro_batch),
        bytes: Some(size(row)),
    };
    let message = |name: &str, bytes: Bytes| Told {
        name: name.to_owned(),
        sort: Sort::Message,
        micro_batch: None,
        bytes: Some(bytes),
    };
    match &schedule.actions[entry.action].work {
        Work::Launch { routine, micro_batch, .. } => Told {
            name: launched(schedule, *routine),
            sort: Sort::Launch,
            micro_batch: *micro_batch,
            bytes: None,
        },
        Work::Transfer { from, .. } => message("transfer", size(&from.row)),
        Work::Collective { kind, from, to, .. } => {
            message(collective(*kind), size(from).max(size(to)))
        }
        Work::Feed { micro_batch, row, .. } => host("feed", micro_batch, row),
        Work::Report { micro_batch, row, .. } => host("report", micro_batch, row),
    }
}

/// The name of a routine; what belongs to a tie is called by it.
fn launched(schedule: &Schedule, routine: RoutineId) -> String {
    let Routine { name, pass, stage, .. } = &schedule.routines[routine];
    match schedule.plan.tie(*stage) {
        None => name.clone(),
        Some(_) => format!("{pass}{}", schedule.plan.state_label(*stage)),
    }
}

fn collective(kind: Collective) -> &'static str {
    match kind {
        Collective::AllReduce => "all-reduce",
        Collective::ReduceScatter => "reduce-scatter",
        Collective::AllGather => "all-gather",
    }
}

/// The passes that routines have, in their order.
pub(super) fn passes(simulation: &Simulation<'_>) -> BTreeSet<Pass> {
    simulation.schedule().routines.values().map(|routine| routine.pass).collect()
}

/// What a pass is called.
pub(super) fn pass_name(pass: Pass) -> &'static str {
    match pass {
        Pass::Forward => "forward",
        Pass::Backward => "backward",
        Pass::InputGradient => "input gradient",
        Pass::WeightGradient => "weight gradient",
        Pass::Combine => "combine",
        Pass::Norm => "norm",
        Pass::Update => "update",
    }
}
