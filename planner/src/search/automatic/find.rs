//! The best order that is found for a pipeline in the room that its devices have: the orders with
//! fixed rules are tried, and that of every habit, or of the habits on a way to better ones.

use super::{
    greedy::{Habit, fill},
    pipe::{Half, Limited, Merit, Passes, Pipe},
};
use roundelay_codegen::device_lists;
use roundelay_schedule::{
    DeviceList, Nanos, Order, Placement, Plan, Rule, States, listed_in,
};

/// Tenths of W that a gap must have.
const GAPS: [u64; 4] = [0, 6, 4, 10];
/// Quarters of p − r micro-batches that a device starts before it takes the first back.
const AHEAD: [u64; 7] = [8, 4, 6, 5, 7, 12, 16];
/// Of pipelines with more passes of a kind not every habit is tried: one is changed for the better
/// as long as that can be. That takes about a tenth of the habits; the way was chosen on 52 pipelines with
/// at least 1000, of which 4 got an order that was slower than that of all habits, by 0.09 % at most.
const MANY: usize = 1 << 9;
/// Where the ways to better habits begin: the best of the first gaps and starts.
const BEGINNINGS: usize = 2;
/// What can be changed of a habit, in the order in which it is.
const CHANGES: [fn(Habit) -> Vec<Habit>; 3] =
    [of_each_start, of_each_gap, of_each_choice];

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
pub(crate) fn find(
    limited: &Limited,
    aim: Aim,
    without: &[Passes],
) -> Option<(Merit, Passes)> {
    let pipe = &limited.pipe;
    let mut best = Best { limited, aim, without, found: None };
    let plain = plain(pipe.devices(), pipe.micro_batches);
    for passes in handcrafted(pipe).into_iter().chain([plain]) {
        best.take(passes);
    }
    if pipe.devices() * pipe.micro_batches > MANY {
        let mut way = Best { found: None, ..best };
        way.climb();
        if let Some((_, passes)) = way.found {
            best.take(passes);
        }
    } else {
        for habit in habits() {
            best.take_of(habit);
        }
    }
    best.found.map(|((_, merit), passes)| (merit, passes))
}

/// The best order of those that were seen.
struct Best<'a> {
    limited: &'a Limited,
    aim: Aim,
    /// Orders that are not taken.
    without: &'a [Passes],
    /// With what it is judged by: how much room it leaves where memory counts, then time.
    found: Option<((i128, Merit), Passes)>,
}

impl Best<'_> {
    /// Takes an order that has room and is better than the best so far; whether it does.
    fn take(&mut self, passes: Passes) -> bool {
        let Some(merit) = self.limited.pipe.merit(&passes) else { return false };
        let is_late = match (self.aim, &self.found) {
            (Aim::Time, Some(((_, best), _))) => *best <= merit,
            (Aim::Time, None) | (Aim::Memory, _) => false,
        };
        if is_late || self.without.contains(&passes) {
            return false;
        }
        let excess = self.limited.excess(&passes);
        let key = match self.aim {
            Aim::Time => (0, merit),
            Aim::Memory => (excess, merit),
        };
        let is_best =
            excess <= 0 && self.found.as_ref().is_none_or(|(best, _)| key < *best);
        if is_best {
            self.found = Some((key, passes));
        }
        is_best
    }

    /// The same of the order that a habit leads to.
    fn take_of(&mut self, habit: Habit) -> bool {
        let passes = fill(self.limited, habit, self.longest());
        passes.is_some_and(|passes| self.take(passes))
    }

    /// From the best of some habits on changes one thing at a time while that makes the order better.
    fn climb(&mut self) {
        let gaps = of_each_gap(FIRST).into_iter().take(BEGINNINGS);
        let beginnings =
            gaps.flat_map(|habit| of_each_start(habit).into_iter().take(BEGINNINGS));
        let mut seen: Vec<Habit> = beginnings.collect();
        let better = seen.iter().filter(|habit| self.take_of(**habit));
        let Some(mut top) = better.last().copied() else { return };
        let mut is_top = false;
        while !is_top {
            is_top = true;
            for change in CHANGES {
                for habit in change(top) {
                    if seen.contains(&habit) {
                        continue;
                    }
                    seen.push(habit);
                    if self.take_of(habit) {
                        (top, is_top) = (habit, false);
                    }
                }
            }
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
pub(crate) fn plain(devices: usize, micro_batches: usize) -> Passes {
    let n = micro_batches;
    let list = |device: usize| {
        let warm = (devices - device - 1).min(n);
        let turn = [Half::Forward, Half::Input, Half::Weight];
        let first = std::iter::repeat_n(Half::Forward, warm);
        let turns = std::iter::repeat_n(turn, n - warm).flatten();
        let last = std::iter::repeat_n([Half::Input, Half::Weight], warm).flatten();
        first.chain(turns).chain(last).collect()
    };
    (0..devices).map(list).collect()
}

/// The habit that is tried first.
const FIRST: Habit = Habit {
    gap: GAPS[0],
    ahead: AHEAD[0],
    patient: false,
    alternate: false,
    fair: false,
};

/// All habits.
fn habits() -> impl Iterator<Item = Habit> {
    of_each_gap(FIRST).into_iter().flat_map(of_each_start).flat_map(of_each_choice)
}

fn of_each_gap(habit: Habit) -> Vec<Habit> {
    GAPS.into_iter().map(|gap| Habit { gap, ..habit }).collect()
}

fn of_each_start(habit: Habit) -> Vec<Habit> {
    AHEAD.into_iter().map(|ahead| Habit { ahead, ..habit }).collect()
}

/// The habit with each way to choose.
fn of_each_choice(habit: Habit) -> Vec<Habit> {
    let with = |choice| Habit {
        patient: choice & 1 > 0,
        alternate: choice & 2 > 0,
        fair: choice & 4 > 0,
        ..habit
    };
    (0..8).map(with).collect()
}

/// The passes of ZB-H1 and ZB-H2, as lowering lists them.
pub(crate) fn handcrafted(pipe: &Pipe) -> [Passes; 2] {
    let cut = |stage| u32::try_from(stage).expect("a plan counts stages in 32 bits");
    let micro_batches = u32::try_from(pipe.micro_batches);
    let micro_batches = micro_batches.expect("a plan counts micro-batches in 32 bits");
    [Order::ZeroBubbleH1, Order::ZeroBubbleH2].map(|order| {
        let (rule, placement) = (Rule::Sync, Placement::Pipeline);
        let cuts = (1..pipe.devices()).map(cut).collect();
        let states = States::Replicated;
        let plan = Plan::new(rule, placement, order, states, micro_batches, cuts);
        let halves = |list: &DeviceList| {
            listed_in(list).filter_map(|listed| Half::of(listed.pass)).collect()
        };
        device_lists(&plan).iter().map(halves).collect()
    })
}

#[cfg(test)]
mod tests;
