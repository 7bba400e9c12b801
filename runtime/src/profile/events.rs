//! What events between calls cost a step, and what calls take without them.
//!
//! An event costs whatever stands before it the same, be it long or short. So what a step takes
//! longer with events than without, as a run replays it, is taken off evenly: a constant from all
//! that stands between two events of a stream. Law: where one queue computes, what is left of
//! its calls, its launches and its waits adds up to the time of a step without events, unless
//! less than a quarter of everything would be left.
//!
//! Several streams at once have no such sum. There the constant is what the stream that computes
//! longest has to give: it is the one that a step most likely waits for. Where a step waits for
//! calls of others besides, that is too much.

use super::usual;
use crate::{Ran, Record};
use roundelay_schedule::{Nanos, PhysicalQueue, RoutineId, Schedule};
use std::collections::BTreeMap;

/// What is left of a time, whatever events cost: at least one part of this many.
const LEFT: u64 = 4;

/// What stands between two events of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Piece {
    /// A call of a routine, by its place.
    Call(RoutineId, usize),
    /// From the end of a launch to the first call of the next.
    Launch,
}

/// What one stream computed.
#[derive(Clone, Debug, Default)]
struct Load {
    /// What all calls took.
    calls: Nanos,
    /// How often each piece came.
    pieces: BTreeMap<Piece, u64>,
}

/// Steps with events between calls, beside steps without.
#[derive(Clone, Debug, Default)]
pub(super) struct Events {
    /// Steps with them.
    steps: u64,
    /// What periods take with events, and without: one per step.
    with: Vec<Nanos>,
    without: Vec<Nanos>,
    /// By queue and coordinate.
    streams: BTreeMap<(PhysicalQueue, usize), Load>,
}

impl Events {
    /// So many steps with events.
    pub(super) fn timed(&mut self, schedule: &Schedule, steps: u64, record: &Record) {
        self.steps += steps;
        self.with.extend(&record.periods);
        for ran in &record.ran {
            if let Some((routine, _)) = schedule.actions[ran.entry.action].work.routine()
            {
                self.launched(routine, ran, &record.times);
            }
        }
    }

    fn launched(&mut self, routine: RoutineId, ran: &Ran, times: &[Nanos]) {
        let stream = (ran.entry.queue, ran.coordinate);
        let load = self.streams.entry(stream).or_default();
        let calls = (0..ran.calls.len()).map(|call| Piece::Call(routine, call));
        for piece in calls.chain([Piece::Launch]) {
            *load.pieces.entry(piece).or_default() += 1;
        }
        load.calls += times[ran.calls.clone()].iter().copied().sum();
    }

    /// Periods without events.
    pub(super) fn paced(&mut self, periods: &[Nanos]) {
        self.without.extend(periods);
    }

    /// What a step takes without events, as far as that is known.
    pub(super) fn pace(&self) -> Option<Nanos> {
        (!self.without.is_empty()).then(|| usual(&self.without))
    }

    /// What an event costs, by the usual times of all pieces; never less than nothing: where
    /// steps take longer without events, something is waited for that no call shows, as where
    /// graphs keep periods from running beside each other, and no call is slower for it.
    pub(super) fn cost(&self, time: impl Fn(Piece) -> Nanos) -> Nanos {
        let busiest = self.streams.values().max_by_key(|load| load.calls);
        let (Some(pace), Some(busiest)) = (self.pace(), busiest) else {
            return Nanos(0);
        };
        let most = |(piece, count): (&Piece, &u64)| (most(time(*piece)), *count);
        let pieces = busiest.pieces.iter().map(most).collect();
        level(pieces, (usual(&self.with) - pace) * self.steps)
    }
}

/// What is left of a time where an event costs so much.
pub(super) fn without(time: Nanos, event: Nanos) -> Nanos {
    time - event.min(most(time))
}

/// The most that is taken off a time.
fn most(time: Nanos) -> Nanos {
    time - Nanos(time.0.div_ceil(LEFT))
}

/// The constant that takes `sum` off all pieces together, of which each gives no more than its
/// most and comes this many times; the largest most where all of them give too little.
fn level(mut pieces: Vec<(Nanos, u64)>, sum: Nanos) -> Nanos {
    pieces.sort_unstable();
    let mut open: u64 = pieces.iter().map(|(_, count)| count).sum();
    let mut left = sum;
    for (most, count) in &pieces {
        let even = Nanos(left.0 / open.max(1));
        if even <= *most {
            return even;
        }
        left = left - *most * *count;
        open -= count;
    }
    pieces.last().map_or(Nanos(0), |(most, _)| *most)
}

#[cfg(test)]
mod tests;
