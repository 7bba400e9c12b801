//! Balanced cuts of one row of nodes: the least largest stage first, then the fewest bytes that cross.

use super::rows;
use roundelay_schedule::{Bytes, Nanos};
use std::cmp::max;

/// The least possible largest stage time; `elapsed[p]` is the time of everything before p.
///
/// Stages that are filled up one after another are the fewest within a limit, and fewer can be
/// parted. Filling them says more than whether a limit holds: none below the largest stage is needed
/// where it does, and where it does not none is enough under which no stage takes a node more.
pub(super) fn least_largest(elapsed: &[Nanos], stages: usize) -> Nanos {
    let all = elapsed[elapsed.len() - 1] - elapsed[0];
    let (mut low, mut high) = (all.0.div_ceil(stages as u64), all.0);
    while low < high {
        match filled(elapsed, stages, Nanos(low + (high - low) / 2)) {
            Filled::All { largest } => high = largest.0,
            Filled::Some { next } => low = next.0,
        }
    }
    Nanos(low)
}

/// What stages within a limit hold together when each takes as much as it can.
enum Filled {
    /// Everything.
    All { largest: Nanos },
    /// Not everything; with one more node some stage would take this, and no other one less.
    Some { next: Nanos },
}

fn filled(elapsed: &[Nanos], stages: usize, limit: Nanos) -> Filled {
    let end = elapsed.len() - 1;
    let (mut start, mut largest, mut next) = (0, Nanos(0), Nanos(u64::MAX));
    for _ in 0..stages {
        let reach = Nanos(elapsed[start].0.saturating_add(limit.0));
        let stop = start + elapsed[start..].partition_point(|at| *at <= reach) - 1;
        largest = max(largest, elapsed[stop] - elapsed[start]);
        if stop == end {
            return Filled::All { largest };
        }
        next = next.min(elapsed[stop + 1] - elapsed[start]);
        start = stop;
    }
    Filled::Some { next }
}

/// Indices of the cuts with the least sum of crossing bytes, all stages within `limit`; of those
/// the first ones in lexicographic order.
pub(super) fn least_crossing(
    elapsed: &[Nanos],
    crossing: &[Bytes],
    stages: usize,
    limit: Nanos,
) -> Vec<usize> {
    narrowest(elapsed, crossing, stages, limit)
        .unwrap_or_else(|| row_by_row(elapsed, crossing, stages, limit))
}

/// The same cuts where they can be at the places where least crosses, so many as there are cuts: then
/// no others cross less. Each is as early as the places behind it allow.
fn narrowest(
    elapsed: &[Nanos],
    crossing: &[Bytes],
    stages: usize,
    limit: Nanos,
) -> Option<Vec<usize>> {
    let end = elapsed.len() - 1;
    let mut sizes = crossing.get(1..end)?.to_vec();
    let last = stages.checked_sub(2).filter(|last| *last < sizes.len())?;
    let widest = *sizes.select_nth_unstable(last).1;
    let inner = (1..end).filter(|at| crossing[*at] <= widest);
    let places: Vec<usize> = [0].into_iter().chain(inner).chain([end]).collect();
    // Of the places where so much crosses some are cuts, and all where less does.
    let is_sure = |place: usize| place == end || crossing[place] < widest;
    let sure = places[1..].iter().filter(|place| is_sure(**place)).count();
    let mut left = stages - sure;
    let needed = needed(elapsed, &places, is_sure, limit);
    if needed[0] > left {
        return None;
    }
    let inner = places.iter().zip(needed).skip(1).take(places.len() - 2);
    let is_cut = |(place, needed): &(&usize, usize)| {
        let spared = !is_sure(**place) && *needed < left;
        left -= usize::from(spared);
        spared || is_sure(**place)
    };
    Some(inner.filter(is_cut).map(|(place, _)| *place).collect())
}

/// How many cuts at places that are not sure the stages behind each place need at least to stay
/// within `limit`: stages that are filled up are the fewest between cuts that are sure.
fn needed(
    elapsed: &[Nanos],
    places: &[usize],
    is_sure: impl Fn(usize) -> bool,
    limit: Nanos,
) -> Vec<usize> {
    let mut sure = places.len() - 1;
    let mut needed = vec![0; places.len()];
    for own in (0..sure).rev() {
        let reach = Nanos(elapsed[places[own]].0.saturating_add(limit.0));
        let within = |place: &usize| elapsed[*place] <= reach;
        let furthest = own + places[own + 1..=sure].partition_point(within);
        needed[own] = match furthest {
            _ if furthest == sure => needed[sure],
            _ if furthest == own => usize::MAX,
            _ => needed[furthest].saturating_add(1),
        };
        if own > 0 && is_sure(places[own]) {
            sure = own;
        }
    }
    needed
}

/// The same cuts among all places.
fn row_by_row(
    elapsed: &[Nanos],
    crossing: &[Bytes],
    stages: usize,
    limit: Nanos,
) -> Vec<usize> {
    let furthest = |at: &Nanos| {
        let reach = Nanos(at.0.saturating_add(limit.0));
        elapsed.partition_point(|before| *before <= reach) - 1
    };
    let reach: Vec<usize> = elapsed.iter().map(furthest).collect();
    rows::least_crossing(crossing, &vec![reach.as_slice(); stages])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Random;

    /// Places with random times between them, some of which take none.
    fn elapsed(random: &mut Random) -> Vec<Nanos> {
        let times = 2 + random.below(12);
        let each = (0..times).map(|_| random.below(7)).collect::<Vec<u64>>();
        let sums = each.into_iter().scan(3, |sum, time| {
            *sum += time;
            Some(Nanos(*sum))
        });
        [Nanos(3)].into_iter().chain(sums).collect()
    }

    #[test]
    fn no_smaller_limit_holds_all_stages() {
        let mut random = Random::new(9);
        for _ in 0..500 {
            let elapsed = elapsed(&mut random);
            let stages = 1 + random.below(elapsed.len() as u64 - 1) as usize;
            let holds = |limit: &u64| {
                matches!(filled(&elapsed, stages, Nanos(*limit)), Filled::All { .. })
            };
            let first = (0..).find(holds).map(Nanos);
            assert_eq!(first, Some(least_largest(&elapsed, stages)), "{elapsed:?}");
        }
    }

    #[test]
    fn the_narrowest_cuts_are_the_best_of_all_places() {
        let mut random = Random::new(12);
        let mut found = 0;
        for _ in 0..2_000 {
            let elapsed = elapsed(&mut random);
            let crossing: Vec<Bytes> =
                elapsed.iter().map(|_| Bytes(1 + random.below(4))).collect();
            let stages = 1 + random.below(elapsed.len() as u64 - 1) as usize;
            let limit = least_largest(&elapsed, stages) + Nanos(random.below(6));
            let all = row_by_row(&elapsed, &crossing, stages, limit);
            assert_eq!(least_crossing(&elapsed, &crossing, stages, limit), all);
            let narrow = narrowest(&elapsed, &crossing, stages, limit);
            let mut sizes = crossing[1..elapsed.len() - 1].to_vec();
            sizes.sort_unstable();
            let least: Bytes = sizes.iter().copied().take(stages - 1).sum();
            let is_least = all.iter().map(|at| crossing[*at]).sum::<Bytes>() == least;
            assert_eq!(narrow.is_some(), is_least && stages > 1, "{elapsed:?}");
            found += usize::from(narrow.is_some() && stages > 2);
        }
        assert!(found > 200, "{found} were found");
    }
}
