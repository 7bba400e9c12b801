//! Cut points of a model in units: every boundary is a cut, and each unit is cut by itself.

use super::balanced::{least_crossing, least_largest};
use roundelay_schedule::{Bytes, Nanos};
use std::ops::RangeInclusive;

/// The positions of one unit, from its start to the start of the next.
type Unit = RangeInclusive<usize>;

/// How many stages each unit gets, so that the largest stage time is minimal: one, and each of the
/// others goes to the unit that has the largest by then.
/// There are no fewer stages than units, and no more than positions.
pub(super) fn shared(elapsed: &[Nanos], units: &[Unit], stages: usize) -> Vec<usize> {
    let most = |unit: &Unit| unit.end() - unit.start();
    if let [_] = units {
        return vec![stages];
    }
    let mut counts = vec![1; units.len()];
    for _ in units.len()..stages {
        let largest = |number: &usize| {
            let own = &elapsed[units[*number].clone()];
            (least_largest(own, counts[*number]), usize::MAX - number)
        };
        let open = (0..units.len()).filter(|unit| counts[*unit] < most(&units[*unit]));
        let next = open.max_by_key(largest).expect("some unit has room for one more");
        counts[next] += 1;
    }
    counts
}

/// The indices of all cuts, boundaries among them.
pub(super) fn cuts(
    elapsed: &[Nanos],
    crossing: &[Bytes],
    units: &[Unit],
    counts: &[usize],
) -> Vec<usize> {
    let mut all = Vec::new();
    for (unit, count) in units.iter().zip(counts) {
        let (own, first) = (&elapsed[unit.clone()], *unit.start());
        let limit = least_largest(own, *count);
        let inner = least_crossing(own, &crossing[unit.clone()], *count, limit);
        all.extend((first > 0).then_some(first));
        all.extend(inner.into_iter().map(|index| first + index));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The largest stage of the best of all ways to give stages to units and to cut these.
    fn least(elapsed: &[Nanos], units: &[Unit], stages: usize) -> Nanos {
        let Some((first, rest)) = units.split_first() else {
            return if stages == 0 { Nanos(0) } else { Nanos(u64::MAX) };
        };
        let most = (first.end() - first.start()).min(stages);
        let ways = (1..=most).map(|count| {
            let own = least_largest(&elapsed[first.clone()], count);
            own.max(least(elapsed, rest, stages - count))
        });
        ways.min().unwrap_or(Nanos(u64::MAX))
    }

    #[test]
    fn the_largest_stage_is_as_small_as_it_can_be() {
        let mut random = crate::sample::Random::new(3);
        for _ in 0..60 {
            let mut elapsed = vec![Nanos(0)];
            for _ in 0..9 {
                let last = elapsed[elapsed.len() - 1];
                elapsed.push(last + Nanos(1 + random.below(20)));
            }
            let middle = 1 + random.below(4) as usize;
            let units = [0..=middle, middle..=6, 6..=9];
            let crossing = vec![Bytes(1); elapsed.len()];
            for stages in 3..=9 {
                let counts = shared(&elapsed, &units, stages);
                let own = cuts(&elapsed, &crossing, &units, &counts);
                assert_eq!(own.len() + 1, stages);
                assert!(own.contains(&middle) && own.contains(&6));
                let ends = own.iter().copied().chain([9]);
                let starts = [0].into_iter().chain(own.iter().copied());
                let times = starts.zip(ends).map(|(s, e)| elapsed[e] - elapsed[s]);
                let largest = times.max().unwrap();
                assert_eq!(largest, least(&elapsed, &units, stages));
            }
        }
    }
}
