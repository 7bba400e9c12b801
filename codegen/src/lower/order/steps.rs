//! Orders in which a micro-batch never waits on its way up and down the stages: each is one start
//! time per pass, modulo the period.

use super::Slot;
use roundelay_schedule::{Id, MicroBatch, Pass, Stage, Units};
use std::ops::Range;

#[derive(Clone, Copy)]
pub(super) struct Size {
    pub(super) stages: u32,
    pub(super) micro_batches: u32,
}

/// A pass with the time at which it starts; the list is sorted by it.
struct Timed {
    start: u64,
    pass: Pass,
    stage: u32,
    micro_batch: u32,
}

impl Size {
    pub(super) fn sequential(self, units: &Units) -> Vec<Slot> {
        let turn = turns(units).len() as u64;
        let start = |i, step| turn * u64::from(i) + step;
        lag_free(self.timed(units, start))
    }

    pub(super) fn parallel(self, units: &Units) -> Vec<Slot> {
        lag_free(self.timed(units, |_, step| step))
    }

    /// Worker i starts 2S/N slots after worker i − 1 and goes up and down the stages without
    /// rest (arXiv 2403.08837: F = 2Nt + 2(i−1) + (j−1), B = 2Nt + 2(i−1) + 2N − j
    /// for S = N). Times count N-th parts of a slot, so that 2S/N is whole.
    pub(super) fn staggered(self) -> Vec<Slot> {
        let (stages, parts) = (u64::from(self.stages), u64::from(self.micro_batches));
        let start = |i, step| 2 * stages * u64::from(i) + parts * step;
        // Where workers follow each other faster than a pass takes, what a pass makes possible
        // stands above the same pass of the next worker, which needs it.
        let timed = self.timed(&Units::one(self.stages), start);
        modulo(timed, 2 * stages * parts, parts.min(2 * stages))
    }

    /// A micro-batch enters every two slots and never waits; stage j alternates forward and
    /// backward.
    pub(super) fn flush_free(self) -> Vec<Slot> {
        let start = |i, step| 2 * u64::from(i) + step;
        let timed = self.timed(&Units::one(self.stages), start);
        modulo(timed, 2 * u64::from(self.micro_batches), 1)
    }

    /// `start(i, step)` for every step of a micro-batch through all units.
    fn timed(self, units: &Units, start: impl Fn(u32, u64) -> u64) -> Vec<Timed> {
        let of = |(step, (pass, stage)), i| Timed {
            start: start(i, step),
            pass,
            stage,
            micro_batch: i,
        };
        let steps = (0..).zip(turns(units));
        steps.flat_map(|step| (0..self.micro_batches).map(move |i| of(step, i))).collect()
    }
}

/// The passes of a micro-batch one after another: unit by unit, forward through its stages and
/// back. Where gradients hop back, the weights of a unit wait for the next one.
fn turns(units: &Units) -> Vec<(Pass, u32)> {
    if units.is_hopping() {
        let weight = |stage| (Pass::WeightGradient, stage);
        let all = 0..units.stages();
        let own = all.clone().flat_map(|stage| {
            let own = [Pass::Forward, Pass::InputGradient].map(|pass| (pass, stage));
            own.into_iter().chain(stage.checked_sub(1).map(weight))
        });
        return own.chain(all.last().map(weight)).collect();
    }
    let of = |unit: Range<u32>| {
        let forward = unit.clone().map(|stage| (Pass::Forward, stage));
        forward.chain(unit.rev().map(|stage| (Pass::Backward, stage)))
    };
    units.iter().flat_map(of).collect()
}

/// Sorts by time, where all of a step is done within the period.
fn lag_free(passes: Vec<Timed>) -> Vec<Slot> {
    modulo(passes, u64::MAX, 1)
}

/// Sorts by the time within the period. At one time a backward pass stands first: it frees
/// what a forward pass takes.
fn modulo(mut passes: Vec<Timed>, period: u64, duration: u64) -> Vec<Slot> {
    let forward = |timed: &Timed| timed.pass == Pass::Forward;
    passes.sort_by_key(|timed| (timed.start % period, forward(timed), timed.micro_batch));
    let slot = |timed: &Timed| Slot {
        pass: timed.pass,
        stage: Stage::numbered(timed.stage),
        micro_batch: MicroBatch::numbered(timed.micro_batch),
        lag: u32::try_from(timed.start / period).expect("a lag is a small number"),
        start: timed.start % period,
        end: timed.start % period + duration,
        beside: None,
    };
    passes.iter().map(slot).collect()
}
