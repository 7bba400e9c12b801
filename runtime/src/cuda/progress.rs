//! How far the device is, as far as this process has seen it. It looks from time to time while it waits
//! for a period or gives one, for a device that has failed says of no action any more whether that was
//! done.
//!
//! Law: all that was given before the first instance in [`Progress`] is done.

use super::{
    Engine,
    driver::{Event, State},
    issue::Turn,
};
use crate::{
    awake::{Awake, Clock},
    ranks::Share,
};
use roundelay_schedule::{ActionId, Id};
use std::{cell::Cell, time::Duration};

/// Time between looks.
const TICK: Duration = Duration::from_millis(5);

/// The first instance that was not seen to be done.
pub(super) struct Progress {
    first: Cell<First>,
    looked: Cell<Awake>,
    clock: Cell<Clock>,
}

#[derive(Clone, Copy)]
struct First {
    place: Place,
    /// When something before it was last seen to be done.
    moved: Awake,
}

/// Where an instance stands. Places of one replay are in the order in which it gives them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    period: i64,
    /// Number of the action; that of the last one and one more behind all of them.
    action: usize,
}

impl Place {
    /// Before everything in a period.
    fn begin(period: i64) -> Self {
        Self { period, action: 0 }
    }
}

impl Progress {
    /// Nothing is seen.
    pub(super) fn new() -> Self {
        let mut clock = Clock::new();
        let now = clock.now();
        let first = First { place: Place::begin(0), moved: now };
        Self { first: Cell::new(first), looked: Cell::new(now), clock: Cell::new(clock) }
    }

    fn now(&self) -> Awake {
        let mut clock = self.clock.get();
        let now = clock.now();
        self.clock.set(clock);
        now
    }

    /// A replay begins with a period.
    pub(super) fn start(&self, period: i64) {
        self.first.set(First { place: Place::begin(period), moved: self.now() });
    }

    /// Whether it is time to look again; if so, somebody does.
    fn is_due(&self) -> bool {
        let now = self.now();
        let due = now.since(self.looked.get()) > TICK;
        if due {
            self.looked.set(now);
        }
        due
    }

    /// The first one that was not seen to be done, of a period and those behind it.
    fn place(&self, oldest: i64) -> Place {
        self.first.get().place.max(Place::begin(oldest))
    }

    fn see(&self, place: Place) {
        if self.first.get().place != place {
            self.first.set(First { place, moved: self.now() });
        }
    }

    /// How much longer the device may be waited for, because something was seen to be done; nothing
    /// where that was too long ago.
    pub(super) fn more_time(&self, deadline: Duration) -> Option<Duration> {
        let left = deadline.saturating_sub(self.now().since(self.first.get().moved));
        (!left.is_zero()).then_some(left)
    }
}

impl Engine {
    /// Looks how far the device is while a period is waited for, if it is time to; says whether it
    /// did.
    pub(super) fn look_while_waiting(&self, period: i64) -> bool {
        let due = self.progress.is_due();
        if due {
            let last = self.periods.newest().unwrap_or(period);
            let action = self.schedule.actions.len();
            self.look_up_to(period, Place { period: last, action });
        }
        due
    }

    /// Looks how far the device is once an instance was given, if it is time to.
    pub(super) fn look_while_giving(&self, turn: &Turn<'_>) {
        if self.progress.is_due() {
            let oldest = self.periods.current().unwrap_or(turn.period);
            let action = turn.id.index() + 1;
            self.look_up_to(oldest, Place { period: turn.period, action });
        }
    }

    /// Looks how much is done of what was given, from a period up to a place. Of a graph only its end
    /// is seen.
    fn look_up_to(&self, oldest: i64, end: Place) {
        let mut place = self.progress.place(oldest);
        while place < end {
            let Place { period, action } = place;
            if action == self.schedule.actions.len() {
                place = Place::begin(period + 1);
            } else if !self.periods.is_shown(period)
                || self.is_open(ActionId::new(action), period)
            {
                break;
            } else {
                place.action += 1;
            }
        }
        self.progress.see(place);
    }

    /// Whether an instance that was given is not known to be done.
    fn is_open(&self, id: ActionId, period: i64) -> bool {
        match &self.share {
            Share::Whole => {
                let passed = |event: &Event| event.state() == Ok(State::Passed);
                !self.marked.events(id, period).iter().all(passed)
            }
            Share::Part(rank) => self.is_open_as_rank(rank, id, period),
        }
    }

    /// The first action that was not seen to be done, of a period that is not done and those behind it.
    pub(super) fn first_unfinished(&self, oldest: i64) -> (ActionId, i64) {
        let Place { period, action } = self.progress.place(oldest);
        let last = self.schedule.actions.len() - 1;
        (ActionId::new(action.min(last)), period)
    }

    /// The oldest period under way, if the device has failed in it: then it answers nothing any more.
    pub(super) fn lost(&self) -> Option<i64> {
        self.periods.current().filter(|_| self.device.free().is_err())
    }
}
