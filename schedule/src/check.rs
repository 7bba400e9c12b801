//! The checker: turns a [`Schedule`] into [`Checked`], a proof that carries facts.
//!
//! 1. Structure: handles in range, signatures of routines, sizes within memory, links that exist,
//!    pairs of passes that start together.
//! 2. Tasks: every pass and every update exactly once.
//! 3. Order: conflicting touches of the same memory are ordered by happens-before.
//! 4. Contents: every row holds what its reader expects, over whole chains of segments.
//! 5. Collectives of groups that share two devices are ordered.
//!
//! Each group of rules counts on those before it, so the violations of the first group that is broken
//! are told: the structure in three steps, then what joins actions, then 2 to 5 together.

mod action;
mod arguments;
mod clock;
mod contents;
mod exchanges;
mod facts;
mod faults;
mod groups;
mod header;
mod held;
mod launch;
mod layout;
mod limit;
mod links;
mod live;
mod lookups;
mod memory;
mod moves;
mod names;
mod needs;
mod norm;
mod numbers;
mod order;
mod pairs;
mod ranges;
mod rounds;
mod routine;
mod shares;
mod sums;
mod tasks;
mod update;
mod values;
mod violation;

pub use facts::Facts;
pub use faults::Violations;
pub use held::Held;
pub use limit::{LANES_MAX, MICRO_BATCHES_MAX, SLACK_MAX};
pub use violation::{Culprit, Duty, Violation};

use crate::{Catalogue, Schedule};
use exchanges::Exchanges;
use faults::Faults;
use layout::Layout;
use std::{ops::Deref, panic, thread};
use values::Flows;

/// A schedule that cannot deadlock, race, read what was not written, use a wrong weight version,
/// lose a gradient, or exceed memory. Machines accept nothing else.
#[derive(Clone, Debug)]
pub struct Checked {
    schedule: Schedule,
    facts: Facts,
}

/// Checks a schedule by all rules.
///
/// # Errors
/// All violations of the first group of rules that is violated, in list order: later groups count on
/// those before.
pub fn check(
    schedule: Schedule,
    catalogue: &dyn Catalogue,
) -> Result<Checked, Violations> {
    let mut faults = Faults::default();
    structure(&schedule, catalogue, &mut faults)?;
    let ((layout, overlaps), (exchanges, misjoined)) = side_by_side(
        &schedule,
        || Faults::collect(|faults| Layout::new(&schedule, faults)),
        || Faults::collect(|faults| joints(&schedule, catalogue, faults)),
    );
    faults.append(misjoined);
    faults.stop()?;
    faults.append(overlaps);
    faults.stop()?;
    let facts = execution(&schedule, &layout, &exchanges, &mut faults);
    faults.stop()?;
    Ok(Checked { schedule, facts })
}

/// From this many actions on a further thread is worth its start.
const SIDE_BY_SIDE: usize = 1 << 14;

/// Does two things that need nothing of each other, side by side when there is much to do and a thread
/// for it. What is found does not depend on that.
fn side_by_side<A: Send, B>(
    schedule: &Schedule,
    beside: impl Fn() -> A + Sync,
    here: impl FnOnce() -> B,
) -> (A, B) {
    if schedule.actions.len() < SIDE_BY_SIDE {
        return (beside(), here());
    }
    thread::scope(|scope| {
        let other = thread::Builder::new().spawn_scoped(scope, &beside);
        let here = here();
        let beside = match other {
            Ok(thread) => {
                thread.join().unwrap_or_else(|panic| panic::resume_unwind(panic))
            }
            Err(_refused) => beside(),
        };
        (beside, here)
    })
}

/// Rules 2 to 5, and what is learned.
fn execution(
    schedule: &Schedule,
    layout: &Layout,
    exchanges: &Exchanges,
    faults: &mut Faults,
) -> Facts {
    let order = || Faults::collect(|faults| order::check(schedule, layout, faults)).1;
    let contents = || {
        let (flows, missed) = Faults::collect(|faults| Flows::new(schedule, faults));
        let follow = |faults: &mut _| contents::check(schedule, layout, &flows, faults);
        (missed, Faults::collect(follow).1)
    };
    let facts = || {
        let ((), undone) = Faults::collect(|faults| tasks::check(schedule, faults));
        // Of a schedule that is refused afterwards they mean nothing, but there they are.
        (undone, facts::gather(schedule, layout, exchanges))
    };
    let others = || side_by_side(schedule, contents, facts);
    let (unordered, ((missed, wrong), (undone, facts))) =
        side_by_side(schedule, order, others);
    for found in [undone, missed, unordered, wrong] {
        faults.append(found);
    }
    facts
}

/// Rule 1, from the tables that others rely on to those that rely on them.
fn structure(
    schedule: &Schedule,
    catalogue: &dyn Catalogue,
    faults: &mut Faults,
) -> Result<(), Violations> {
    header::check(schedule, faults);
    memory::rings(schedule, faults);
    faults.stop()?;
    header::coordinates(schedule, faults);
    memory::groups(schedule, faults);
    memory::buffers(schedule, faults);
    routine::check(schedule, catalogue, faults);
    faults.stop()?;
    memory::capacity(schedule, faults);
    action::check(schedule, faults);
    faults.stop()
}

/// Rule 1 for what joins actions and devices.
fn joints(
    schedule: &Schedule,
    catalogue: &dyn Catalogue,
    faults: &mut Faults,
) -> Exchanges {
    pairs::check(schedule, faults);
    links::check(schedule, faults);
    exchanges::check(schedule, catalogue, faults)
}

impl Checked {
    /// What the checker learned.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }
    /// Tests of machines make their own small schedules.
    #[cfg(test)]
    pub(crate) fn unproven_for_tests(schedule: Schedule) -> Self {
        Self { schedule, facts: Facts::default() }
    }
    /// The schedule, to change and check again.
    pub fn into_inner(self) -> Schedule {
        self.schedule
    }
}

impl Deref for Checked {
    type Target = Schedule;
    fn deref(&self) -> &Schedule {
        &self.schedule
    }
}
