//! The best cuts by the plainest form of the law, for comparison: every stage at every place.

use super::{
    Roomy, Uneven,
    places::{WHOLE, filled},
};
use crate::space::cuts::Chain;
use roundelay_schedule::{Bytes, Nanos};
use std::ops::Range;

/// What stages between some positions must stay within.
struct Limits<'a> {
    uneven: Uneven<'a>,
    chain: &'a Chain,
    positions: &'a [usize],
    /// Time of a stage.
    largest: Nanos,
    /// The share of its room, where there is such a limit.
    share: Option<u64>,
}

impl Limits<'_> {
    /// Whether a stage may take these nodes.
    fn admit(&self, stage: usize, own: Range<usize>) -> bool {
        let Uneven { times, kinds, elements, rooms } = self.uneven;
        let inner = own.start + 1..own.end;
        let parted = self.chain.boundaries.iter().any(|at| inner.contains(at));
        let room = rooms.get(stage).zip(self.share);
        let has_room = room.is_none_or(|(room, share)| {
            elements[own.clone()].iter().sum::<u64>() <= room * share / WHOLE
        });
        let time = |kind: usize| times[kind][own.clone()].iter().copied().sum();
        !parted && has_room && kinds[stage].slowest(time) <= self.largest
    }

    /// The first of the cuts over which the least bytes cross, where all stages stay within the limits.
    fn best(&self) -> Option<Vec<usize>> {
        let Self { chain, positions, .. } = self;
        let end = positions.len() - 1;
        // Of the later stages, by the place where they start.
        let mut best: Vec<Option<(Bytes, Vec<usize>)>> = vec![None; end + 1];
        best[end] = Some((Bytes(0), Vec::new()));
        for stage in (0..self.uneven.kinds.len()).rev() {
            let from = |start: usize| {
                let admits =
                    |next: &usize| self.admit(stage, positions[start]..positions[*next]);
                let behind = |next: usize| {
                    let (bytes, cuts) = best[next].as_ref()?;
                    let crossing = chain.crossing.get(positions[next]).copied();
                    let cuts = [next].into_iter().chain(cuts.iter().copied()).collect();
                    Some((*bytes + crossing.unwrap_or_default(), cuts))
                };
                (start + 1..=end).filter(admits).filter_map(behind).min()
            };
            best = (0..=end).map(from).collect();
        }
        let (_, mut cuts) = best.swap_remove(0)?;
        cuts.pop();
        Some(cuts)
    }
}

/// The least number up to another one for which something holds that then holds for all behind.
fn least(most: u64, holds: impl Fn(u64) -> bool) -> u64 {
    let (mut low, mut high) = (0, most);
    while low < high {
        let middle = low + (high - low) / 2;
        (low, high) = if holds(middle) { (low, middle) } else { (middle + 1, high) };
    }
    low
}

/// The best cuts among some positions.
pub(super) fn cut_at(uneven: Uneven<'_>, chain: &Chain, positions: &[usize]) -> Roomy {
    let limits = |largest, share| Limits { uneven, chain, positions, largest, share };
    let fits = |largest: u64, share| limits(Nanos(largest), share).best().is_some();
    let is_limited = !uneven.rooms.is_empty();
    let fills = |share| fits(u64::MAX, Some(share));
    let emptiest = match is_limited {
        true => fills(WHOLE).then(|| least(WHOLE, fills)),
        false => Some(0),
    };
    let share = emptiest.filter(|_| is_limited).map(filled);
    let most = uneven.times.iter().flatten().map(|time| time.0).sum();
    let largest = least(most, |largest| fits(largest, share));
    let best = limits(Nanos(largest), share).best().expect("all stages have a place");
    let cut = |index: usize| u32::try_from(positions[index]).unwrap_or(u32::MAX);
    Roomy { cuts: best.into_iter().map(cut).collect(), emptiest }
}
