//! Where a machine is in a training.

use crate::state::Moment;
use roundelay_schedule::Segment;

/// Why a machine has nothing to go on from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unready {
    /// It has no state.
    #[error(
        "no state was loaded; load one first, as `State::drawn` of the schedule's job"
    )]
    Unloaded,
    /// A replay was left in its middle, so nobody knows what is under way.
    #[error(
        "a replay was left in its middle, because something in it panicked; make another machine"
    )]
    Left,
}

/// From which state a machine began, and which step comes next; nothing before a state is loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Course(Option<Here>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Here {
    /// Step of the state that was loaded.
    first: u64,
    /// T, and the origins of the state that was loaded.
    moment: Moment,
}

impl Course {
    /// At the start of what goes on from a state.
    pub(crate) fn from(moment: Moment) -> Self {
        Self(Some(Here { first: moment.step, moment }))
    }

    /// T: the next training step; 0 before a state is loaded.
    pub(crate) fn step(&self) -> u64 {
        self.0.map_or(0, |here| here.moment.step)
    }

    /// Steps since the state was loaded.
    pub(crate) fn steps(&self) -> u64 {
        self.0.map_or(0, |here| here.moment.step - here.first)
    }

    /// Where a state is that is saved now.
    ///
    /// # Errors
    /// When nothing was loaded.
    pub(crate) fn here(&self) -> Result<Moment, Unready> {
        self.0.map(|here| here.moment).ok_or(Unready::Unloaded)
    }

    /// The training steps from here to `end`.
    ///
    /// # Errors
    /// When nothing was loaded.
    pub(crate) fn segment(&self, end: u64) -> Result<Segment, Unready> {
        let first = self.here()?.step;
        Ok(Segment { first, end: end.max(first) })
    }

    /// The machine rests before a later step.
    pub(crate) fn reach(&mut self, step: u64) {
        if let Some(here) = &mut self.0 {
            here.moment.step = step;
        }
    }
}
