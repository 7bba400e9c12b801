//! The best order that is found for a pipeline in the room that its devices have: that of every
//! habit, and the orders with fixed rules, are tried.

use super::{
    greedy::{Habit, fill},
    pipe::{Half, Merit, Passes, Pipe},
};

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
    let known = [1, 2].map(|depth| handcrafted(pipe, depth)).into_iter();
    let filled = habits(pipe).filter_map(|habit| fill(pipe, habit));
    let each = known.chain([plain(pipe)]).chain(filled);
    let each = each.filter_map(|passes| Some((pipe.merit(&passes)?, passes)));
    let mut each: Vec<(Merit, Passes)> = each.collect();
    each.sort_by_key(|(merit, _)| *merit);
    each.dedup();
    each.retain(|(_, passes)| !without.contains(passes));
    match aim {
        Aim::Time => each.into_iter().find(|(_, passes)| pipe.fits(passes)),
        Aim::Memory => {
            let fitting = each.into_iter().filter(|(_, passes)| pipe.fits(passes));
            fitting.min_by_key(|(_, passes)| pipe.excess(passes))
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
