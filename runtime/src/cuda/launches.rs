//! Launches of routines as graphs, where whole periods are none.
//!
//! A launch that binds what an earlier one bound gives the same functions with the same parameters in
//! the same order: what is recorded of the one is launched for the other, so no bit depends on it. The
//! first of them is given, so that whatever happens at a first use has happened; the second is recorded,
//! on its own stream, because few come back a second time but not a third. Waits and ends of actions
//! stay outside. So the host's time for a step does not grow with its functions.
//!
//! What is kept is bounded: a launch that finds no room is given as ever.

use super::{
    driver::{DriverError, Graph, Stream},
    issue::Bound,
    periods::Mode,
    ready::{Ready, Work},
};
use roundelay_schedule::RoutineId;
use std::collections::{BTreeMap, btree_map::Entry};

/// Fewer functions of a launch are given as fast as a graph is launched.
const FEWEST: u64 = 4;

/// The most functions of all graphs together: the driver keeps the parameters of each.
const MOST: u64 = 100_000;

/// Whether launches are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// They are.
    Recorded,
    /// They are given, or their periods are recorded with all that is in them.
    Given,
}

/// The launches that came by.
pub(super) struct Launches {
    wanted: Wanted,
    seen: BTreeMap<(RoutineId, Bound), Option<Graph>>,
    /// Functions that graphs may still have.
    room: u64,
}

impl Launches {
    /// None yet.
    pub(super) fn new(wanted: Wanted) -> Self {
        Self { wanted, seen: BTreeMap::new(), room: MOST }
    }

    /// Graphs that are kept.
    pub(super) fn graphs(&self) -> usize {
        self.seen.values().flatten().count()
    }

    /// Begins a launch on its stream, and says how it gets there: one that is kept is launched; of one to
    /// record the calls are given next, and [`Launches::end`] follows. Several rows find call by call what
    /// the others bring.
    ///
    /// # Errors
    /// When the device refuses.
    pub(super) fn begin(
        &mut self,
        (id, code): (RoutineId, &Ready),
        rows: &[Bound],
        stream: &Stream,
    ) -> Result<Mode, DriverError> {
        let ([bound], Wanted::Recorded, Some(functions)) =
            (rows, self.wanted, functions(code))
        else {
            return Ok(Mode::Given);
        };
        match self.seen.entry((id, bound.clone())) {
            Entry::Occupied(seen) => match seen.get() {
                Some(graph) => stream.launch_graph(graph).map(|()| Mode::Launched),
                None => stream.begin_capture().map(|()| Mode::Recorded),
            },
            Entry::Vacant(new) => {
                if self.room >= functions {
                    self.room -= functions;
                    new.insert(None);
                }
                Ok(Mode::Given)
            }
        }
    }

    /// Keeps what was recorded of a launch, and launches it.
    ///
    /// # Errors
    /// When something was called that cannot be recorded, or the device refuses.
    pub(super) fn end(
        &mut self,
        (id, bound): (RoutineId, &Bound),
        stream: &Stream,
    ) -> Result<(), DriverError> {
        let graph = stream.end_capture()?;
        stream.launch_graph(&graph)?;
        self.seen.insert((id, bound.clone()), Some(graph));
        Ok(())
    }
}

/// The functions of a launch that is worth a graph; exchanges between parts go by other streams.
fn functions(code: &Ready) -> Option<u64> {
    let is_alone = |work: &Work| match work {
        Work::Alone(_) => true,
        Work::Together(_) => false,
    };
    let functions: u64 = code.calls.iter().map(|call| call.steps()).sum();
    let alone = code.calls.iter().all(|call| is_alone(&call.work));
    (alone && functions >= FEWEST).then_some(functions)
}
