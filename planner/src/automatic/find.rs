//! The best order that is found for a pipeline in the room that its devices have: that of every
//! habit, and the orders with fixed rules, are tried.

use super::{
    greedy::{Habit, fill},
    pipe::{Half, Merit, Passes, Pipe},
};
use roundelay_schedule::Nanos;

/// Tenths of W that a gap must have.
const GAPS: [u64; 4] = [0, 6, 4, 10];
/// Quarters of p − r micro-batches that a device starts before it takes the first back.
const AHEAD: [u64; 7] = [8, 4, 6, 5, 7, 12, 16];
/// The other choices of a habit.
const CHOICES: [u32; 8] = [0, 1, 2, 3, 4, 5, 6, 7];
/// Pipelines with more passes of a kind get fewer habits, so that no search takes longer than
/// lowering and checking what it finds.
const MANY: usize = 1 << 15;

/// What makes an order better than another that has room as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aim {
    /// Less time.
    Time,
    /// Less of the device that has least left; then less time.
    Memory,
}

/// The best order but for some, and how good it is; of equally good ones the first. Nothing where a
/// device has no room for one micro-batch.
pub(crate) fn find(pipe: &Pipe, aim: Aim, without: &[Passes]) -> Option<(Merit, Passes)> {
    let mut best = Best { pipe, aim, without, found: None };
    for passes in [handcrafted(pipe, 1), handcrafted(pipe, 2), plain(pipe)] {
        best.take(passes);
    }
    for habit in habits(pipe) {
        if let Some(passes) = fill(pipe, habit, best.longest()) {
            best.take(passes);
        }
    }
    best.found.map(|((_, merit), passes)| (merit, passes))
}

/// The best order of those that were seen.
struct Best<'a> {
    pipe: &'a Pipe,
    aim: Aim,
    /// Orders that are not taken.
    without: &'a [Passes],
    /// With what it is judged by: how much room it leaves where memory counts, then time.
    found: Option<((i128, Merit), Passes)>,
}

impl Best<'_> {
    /// Takes an order that has room and is better than the best so far.
    fn take(&mut self, passes: Passes) {
        let Some(merit) = self.pipe.merit(&passes) else { return };
        let is_late = match (self.aim, &self.found) {
            (Aim::Time, Some(((_, best), _))) => *best <= merit,
            (Aim::Time, None) | (Aim::Memory, _) => false,
        };
        if is_late || self.without.contains(&passes) {
            return;
        }
        let excess = self.pipe.excess(&passes);
        let key = match self.aim {
            Aim::Time => (0, merit),
            Aim::Memory => (excess, merit),
        };
        if excess <= 0 && self.found.as_ref().is_none_or(|(best, _)| key < *best) {
            self.found = Some((key, passes));
        }
    }

    /// How long a device may take while an order is filled that is looked at.
    fn longest(&self) -> Nanos {
        match (self.aim, &self.found) {
            (Aim::Time, Some(((_, best), _))) => best.stage_span,
            (Aim::Time, None) | (Aim::Memory, _) => Nanos(u64::MAX),
        }
    }
}

/// 1F1B with each W right behind its I: no order keeps less.
pub(crate) fn plain(pipe: &Pipe) -> Passes {
    let n = pipe.micro_batches;
    let list = |device: usize| {
        let warm = (pipe.devices() - device - 1).min(n);
        let turn = [Half::Forward, Half::Input, Half::Weight];
        let first = std::iter::repeat_n(Half::Forward, warm);
        let turns = std::iter::repeat_n(turn, n - warm).flatten();
        let last = std::iter::repeat_n([Half::Input, Half::Weight], warm).flatten();
        first.chain(turns).chain(last).collect()
    };
    (0..pipe.devices()).map(list).collect()
}

fn habits(pipe: &Pipe) -> impl Iterator<Item = Habit> {
    let (gaps, aheads, choices) = match pipe.devices() * pipe.micro_batches > MANY {
        true => (&GAPS[..2], &AHEAD[..2], &CHOICES[..4]),
        false => (&GAPS[..], &AHEAD[..], &CHOICES[..]),
    };
    let pairs = gaps.iter().flat_map(move |gap| aheads.iter().map(move |a| (*gap, *a)));
    pairs.flat_map(move |(gap, ahead)| {
        choices.iter().map(move |choice| Habit {
            gap,
            ahead,
            patient: choice & 1 > 0,
            alternate: choice & 2 > 0,
            fair: choice & 4 > 0,
        })
    })
}

/// ZB-H1 (`depth` 1) and ZB-H2 (2): in row x stand F of micro-batch x, I of
/// x − depth (p − 1 − r) and W of x − depth (p − 1).
pub(crate) fn handcrafted(pipe: &Pipe, depth: usize) -> Passes {
    let delay = depth * pipe.devices().saturating_sub(1);
    let list = |device: usize| {
        let late = [
            (Half::Forward, 0),
            (Half::Input, delay - depth * device),
            (Half::Weight, delay),
        ];
        let row = move |x: usize| {
            let there = move |late: usize| (late..late + pipe.micro_batches).contains(&x);
            late.into_iter().filter(move |(_, late)| there(*late)).map(|(half, _)| half)
        };
        (0..pipe.micro_batches + delay).flat_map(row).collect()
    };
    (0..pipe.devices()).map(list).collect()
}

#[cfg(test)]
mod tests;
