//! The one loop that drives every machine.

use crate::{Action, ActionId, Checked, Id, Instance, Segment};
use std::ops::ControlFlow;

/// Something that can take the actions of a schedule, in order.
pub trait Machine {
    /// Proof that an instance was issued, and what a later one waits for: a time, an event, a
    /// position in a queue.
    type Mark: Copy;
    /// Why the machine stopped.
    type Error;

    /// Takes the instance of an action in a period. A skipped instance touches nothing, but
    /// keeps its place in its queue; its mark is done when all of `after` is done.
    ///
    /// # Errors
    /// When the machine can go no further.
    fn issue(
        &mut self,
        issued: Issue<'_>,
        after: &[Self::Mark],
    ) -> Result<Self::Mark, Self::Error>;

    /// A period begins: whether the segment goes on as planned, or ends as soon as what was issued
    /// allows.
    ///
    /// # Errors
    /// When the machine can go no further.
    fn begin(&mut self) -> Result<ControlFlow<()>, Self::Error> {
        Ok(ControlFlow::Continue(()))
    }

    /// Waits until everything issued is done.
    ///
    /// # Errors
    /// When something that was issued failed.
    fn rest(&mut self) -> Result<(), Self::Error>;
}

/// One instance of an action.
#[derive(Clone, Copy, Debug)]
pub struct Issue<'a> {
    /// Which line of the list it is.
    pub id: ActionId,
    /// The action that stands in that line.
    pub action: &'a Action,
    /// The period of this instance; lags make the step that it serves.
    pub period: i64,
    /// Whether and for which step it executes.
    pub instance: Instance,
}

/// Marks of the last periods, so that waits of any distance find theirs without allocation.
#[derive(Debug)]
pub struct Marks<M> {
    rows: Vec<Option<M>>,
    actions: usize,
    depth: usize,
    after: Vec<M>,
}

impl<M: Copy> Marks<M> {
    /// Room for the waits of one schedule.
    pub fn new(schedule: &Checked) -> Self {
        let waits = || schedule.actions.values().map(|action| &action.after);
        let depth =
            1 + waits().flatten().map(|wait| wait.distance).max().unwrap_or(0) as usize;
        let widest = waits().map(|waits| waits.len()).max().unwrap_or(0);
        let actions = schedule.actions.len();
        Self {
            rows: vec![None; actions * depth],
            actions,
            depth,
            after: Vec::with_capacity(widest),
        }
    }

    fn row(&self, action: ActionId, period: i64) -> usize {
        let slot = usize::try_from(period.rem_euclid(self.depth as i64)).unwrap_or(0);
        slot * self.actions + action.index()
    }

    fn gather(&mut self, action: &Action, period: i64) {
        self.after.clear();
        for wait in &action.after {
            let row = self.row(wait.action, period - i64::from(wait.distance));
            self.after.extend(self.rows[row]);
        }
    }
}

/// Runs one segment, or as much of it as the machine wants, and comes to rest; returns what was
/// run. Allocates nothing.
///
/// # Errors
/// Whatever the machine says.
pub fn replay<M: Machine>(
    schedule: &Checked,
    mut segment: Segment,
    machine: &mut M,
    marks: &mut Marks<M::Mark>,
) -> Result<Segment, M::Error> {
    marks.rows.fill(None);
    let mut periods = segment.periods(schedule);
    while let Some(period) = periods.next() {
        if machine.begin()?.is_break() {
            segment = segment.cut(period);
            periods.end = segment.periods(schedule).end;
            if periods.end <= period {
                break;
            }
        }
        for (id, action) in schedule.actions.iter() {
            marks.gather(action, period);
            let instance = segment.instance(action, period);
            let mark =
                machine.issue(Issue { id, action, period, instance }, &marks.after)?;
            let row = marks.row(id, period);
            marks.rows[row] = Some(mark);
        }
    }
    machine.rest()?;
    Ok(segment)
}
