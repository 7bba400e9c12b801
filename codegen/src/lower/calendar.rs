//! Sorting by time. Rows are first put where their time says, so that few stand in one place.

/// The numbers of rows in the order of their keys, given their times: a row of an earlier time has
/// a lesser key. Each key is asked for once.
pub(crate) fn by_time<K: Ord>(
    times: impl ExactSizeIterator<Item = u64> + Clone,
    key: impl Fn(usize) -> K,
) -> Vec<u32> {
    let last = times.clone().max().unwrap_or(0);
    let coarse = (0..).find(|shift| last >> shift <= times.len() as u64);
    let coarse = coarse.expect("a time has no more than 64 bits");
    let place = |time: u64| (time >> coarse) as usize;
    let mut ends = vec![0; place(last) + 1];
    for time in times.clone() {
        ends[place(time)] += 1;
    }
    let mut taken = 0;
    for end in &mut ends {
        taken += std::mem::replace(end, taken);
    }
    let mut order = vec![0; times.len()];
    for (number, time) in (0..).zip(times) {
        let end: &mut usize = &mut ends[place(time)];
        order[*end] = number;
        *end += 1;
    }
    let (mut start, mut keyed) = (0, Vec::new());
    for end in ends {
        let same = &mut order[start..end];
        keyed.clear();
        keyed.extend(same.iter().map(|number: &u32| (key(*number as usize), *number)));
        keyed.sort_unstable();
        for (place, (_, number)) in same.iter_mut().zip(&keyed) {
            *place = *number;
        }
        start = end;
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_in_the_order_of_their_keys_however_far_times_are_apart() {
        for spread in [1, 7, 1 << 20, u64::MAX / 10] {
            let keys = [3, 1, 9, 1, 0, 3, 2].map(|time| time * spread);
            let keys: Vec<_> = keys.into_iter().zip((0..7).rev()).collect();
            let mut sorted: Vec<u32> = (0..7).collect();
            sorted.sort_by_key(|number| keys[*number as usize]);
            let found = by_time(keys.iter().map(|(time, _)| *time), |n| keys[n]);
            assert_eq!(found, sorted);
        }
        assert!(by_time(std::iter::empty(), |n| n).is_empty());
    }
}
