//! The cuts where least crosses, row by row: the least sums of all rows of stages from the last one on.

use roundelay_schedule::Bytes;
use std::cmp::max;

/// Indices of the cuts with the least sum of what crosses there, of those the first ones in
/// lexicographic order. `reach` has for each stage the last place where it can end, by the place where
/// it starts, that itself where it cannot start there: it never comes before that of an earlier place.
/// All stages together can come to the end.
pub(super) fn least_crossing(crossing: &[Bytes], reach: &[&[usize]]) -> Vec<usize> {
    let end = crossing.len() - 1;
    let mut rows = vec![Row { first: end, least: vec![Some(Bytes(0))] }];
    for (window, reach) in windows(end, reach).into_iter().zip(reach.iter().rev()) {
        let next = least_of_next(window, reach, crossing, &rows[rows.len() - 1]);
        rows.push(next);
    }
    let mut cuts = Vec::with_capacity(reach.len());
    let mut start = 0;
    for (rows, reach) in rows.windows(2).rev().zip(reach) {
        let best = rows[1].at(start).expect("a start lies in its window");
        let next = (start + 1..=reach[start]).find(|next| {
            rows[0].at(*next).is_some_and(|behind| crossing[*next] + behind == best)
        });
        start = next.expect("what follows is within reach");
        cuts.push(start);
    }
    // There the last stage ends.
    cuts.pop();
    cuts
}

/// The first and the last place where the last stage may start, the last two, and so on: so late
/// that what is left fits into them, so early that what is before fits into the others.
fn windows(end: usize, reach: &[&[usize]]) -> Vec<(usize, usize)> {
    let mut latest = vec![0];
    let mut earliest = vec![end];
    for (first, last) in reach.iter().zip(reach.iter().rev()) {
        latest.push(first[latest[latest.len() - 1]]);
        let next = earliest[earliest.len() - 1];
        earliest.push(last.partition_point(|reach| *reach < next));
    }
    let window = |left: usize| {
        let before = reach.len() - left;
        (earliest[left].max(before), latest[before].min(end - left))
    };
    (1..=reach.len()).map(window).collect()
}

/// The least sums of bytes from some starts that follow each other.
struct Row {
    first: usize,
    /// Nothing where what is left cannot start.
    least: Vec<Option<Bytes>>,
}

impl Row {
    /// Behind the last of them.
    fn end(&self) -> usize {
        self.first + self.least.len()
    }

    fn at(&self, start: usize) -> Option<Bytes> {
        self.least.get(start.checked_sub(self.first)?).copied().flatten()
    }
}

/// For each start of a window the least sum of a cut at a place behind it that is within `reach`,
/// which ends later the later the start is, and of what follows that cut: the places that may
/// still be the least stand in a queue, least first, and those out of reach before it.
fn least_of_next(
    (first, last): (usize, usize),
    reach: &[usize],
    crossing: &[Bytes],
    follows: &Row,
) -> Row {
    let own = &crossing[follows.first..follows.end()];
    let with = |(own, rest): (&Bytes, &Option<Bytes>)| rest.map(|rest| *own + rest);
    let sums: Vec<Option<Bytes>> = own.iter().zip(&follows.least).map(with).collect();
    let mut least = vec![None; (last + 1).saturating_sub(first)];
    let mut queue: Vec<(usize, Bytes)> = Vec::with_capacity(sums.len());
    let (mut begin, mut next) = (0, follows.end());
    for (start, least) in (first..last + 1).zip(&mut least).rev() {
        while next > max(start + 1, follows.first) {
            next -= 1;
            let Some(sum) = sums[next - follows.first] else { continue };
            while queue.len() > begin && queue[queue.len() - 1].1 >= sum {
                queue.pop();
            }
            queue.push((next, sum));
        }
        while begin < queue.len() && queue[begin].0 > reach[start] {
            begin += 1;
        }
        *least = queue.get(begin).map(|(_, sum)| *sum);
    }
    Row { first, least }
}
