//! A run is a chain of segments [T0, T1); which periods a segment takes and which instances
//! execute in it is derived here, and nowhere else.

use crate::{Action, Schedule};
use std::ops::Range;

/// The training steps T0 .. T1 of a run, between two rests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// First step.
    pub first: u64,
    /// One past the last step.
    pub end: u64,
}

/// What an instance of an action does in a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instance {
    /// It executes and serves this step; −1 stands for the start of the run.
    Execute(i64),
    /// It touches nothing, but keeps its queue and its waits.
    Skip,
}

impl Segment {
    /// The periods in which some instance executes.
    pub fn periods(self, schedule: &Schedule) -> Range<i64> {
        let (lag, _) = schedule.span();
        let early = schedule
            .actions
            .values()
            .map(|a| i64::from(a.reach) - i64::from(a.lag))
            .max();
        let first = step(self.first) - early.unwrap_or(0).max(0);
        match self.first < self.end {
            true => first..step(self.end) + i64::from(lag),
            false => first..first,
        }
    }

    /// The segment that ends as early as possible when `period` is the next to be issued, but
    /// not without a step: what executed before serves steps up to `period` − 1, so that all of
    /// it would have executed in the shorter segment, and nothing else.
    pub fn cut(self, period: i64) -> Self {
        let begun = u64::try_from(period).unwrap_or(0).max(self.first + 1);
        Self { end: self.end.min(begun), ..self }
    }

    /// What the instance of `action` in `period` does.
    pub fn instance(self, action: &Action, period: i64) -> Instance {
        let t = period - i64::from(action.lag);
        let needed =
            t + i64::from(action.reach) >= step(self.first) && t < step(self.end);
        if needed { Instance::Execute(t) } else { Instance::Skip }
    }
}

fn step(t: u64) -> i64 {
    i64::try_from(t).unwrap_or(i64::MAX / 2)
}
