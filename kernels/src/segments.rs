//! Sums over rows that threads share: rows are cut into segments whose number follows from the
//! shape alone, every segment is summed as if it were alone, and segments are joined in order.
//! So results do not depend on the number of threads.

use crate::{
    Real,
    team::{Cut, MOST_PARTS, rows_per_part},
};
use std::ops::Range;

/// How many rows are cut into segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segments {
    /// Rows of every segment but perhaps the last.
    pub(crate) rows: usize,
    /// Number of segments.
    pub(crate) count: usize,
}

impl Segments {
    /// Segments of rows that each cost this many operations.
    pub(crate) fn new(rows: usize, cost: usize) -> Self {
        Self::at_most(MOST_PARTS, rows, cost)
    }
    /// No more than this many of them.
    fn at_most(most: usize, rows: usize, cost: usize) -> Self {
        let each = rows_per_part(most, rows, cost);
        Self { rows: each, count: rows.div_ceil(each) }
    }
    /// The sum over 0 .. `rows`, whose segments these are, of what each segment has of it.
    pub(crate) fn sum(
        self,
        threads: usize,
        rows: usize,
        work: impl Fn(Range<usize>) -> f64 + Sync,
    ) -> f64 {
        let mut sums = [0.0; MOST_PARTS];
        let sums = &mut sums[..self.count];
        Cut::singly(threads).each(sums.iter_mut().enumerate(), |(segment, sum)| {
            let first = segment * self.rows;
            *sum = work(first..rows.min(first + self.rows));
        });
        sums.iter().sum()
    }
    /// Works on every segment: on its rows of arrays (m, n) and of statistics (m), its rows of `out`
    /// (m, n), and its own `width` sums, which are zero.
    pub(crate) fn each<R: Real, const K: usize, const S: usize>(
        self,
        threads: usize,
        (arrays, statistics): ([&[R]; K], [&[R]; S]),
        (out, columns): (&mut [R], usize),
        (sums, width): (&mut [R], usize),
        work: impl Fn([&[R]; K], [&[R]; S], &mut [R], &mut [R]) + Sync,
    ) {
        let parts = out.chunks_mut(self.rows * columns).zip(sums.chunks_mut(width));
        Cut::singly(threads).each(parts.enumerate(), |(segment, (out, sums))| {
            let first = segment * self.rows;
            let rows = first..first + out.len() / columns;
            let cells = rows.start * columns..rows.end * columns;
            sums.fill(R::ZERO);
            let arrays = arrays.map(|array| &array[cells.clone()]);
            work(arrays, statistics.map(|own| &own[rows.clone()]), out, sums);
        });
    }
}

/// How the rows of every example are cut into segments, for sums over each example. Where there are many
/// examples, some of them are summed at a time, so that sums take little memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pieces {
    examples: usize,
    /// Rows of an example.
    rows: usize,
    columns: usize,
    /// Operations per element.
    cost: usize,
    /// Segments of an example.
    segments: Segments,
    /// Examples that are summed at a time.
    together: usize,
}

impl Pieces {
    /// Those of x (examples, rows, columns), each of whose elements costs this many operations.
    pub(crate) fn new([examples, rows, columns]: [usize; 3], cost: usize) -> Self {
        let together = examples.clamp(1, MOST_PARTS);
        let segments = Segments::at_most(MOST_PARTS / together, rows, cost * columns);
        Self { examples, rows, columns, cost, segments, together }
    }
    /// Segments that are summed at a time.
    pub(crate) fn count(self) -> usize {
        self.together * self.segments.count
    }
    /// Rows of the segments of an example, in order.
    pub(crate) fn lengths(self) -> impl Iterator<Item = usize> {
        let Segments { rows: each, count } = self.segments;
        (0..count).map(move |segment| each.min(self.rows - segment * each))
    }
    /// Works on every segment of every example: on its rows of `arrays`, and its own `width` sums, which
    /// hold anything before, unlike those of [`Segments::each`], so `work` sets or clears all that `join`
    /// reads; then joins the sums of all segments of an example, one example after another.
    pub(crate) fn each<R: Real, const K: usize>(
        self,
        threads: usize,
        arrays: [&[R]; K],
        (sums, width): (&mut [R], usize),
        work: impl Fn(usize, [&[R]; K], &mut [R]) + Sync,
        mut join: impl FnMut(usize, &mut [R]),
    ) {
        let Segments { rows: each, count } = self.segments;
        let piece_of = |number: usize| {
            let (example, start) = (number / count, number % count * each);
            let length = each.min(self.rows - start) * self.columns;
            let first = (example * self.rows + start) * self.columns;
            (example, arrays.map(|array| &array[first..][..length]))
        };
        for first in (0..self.examples).step_by(self.together) {
            let pieces = self.together.min(self.examples - first) * count;
            let cut = Cut::new(threads, pieces, self.cost * each * self.columns);
            let (share, sums) = (cut.rows, &mut sums[..pieces * width]);
            cut.each(sums.chunks_mut(share * width).enumerate(), |(part, sums)| {
                for (number, sums) in sums.chunks_mut(width).enumerate() {
                    let number = first * count + part * share + number;
                    let (example, arrays) = piece_of(number);
                    work(example, arrays, sums);
                }
            });
            for (number, sums) in sums.chunks_mut(count * width).enumerate() {
                join(first + number, sums);
            }
        }
    }
}

/// first_j += Σ_i term(inputs_ij)₀ and second_j likewise with term₁, over rows i, in groups of
/// four rows. `fixed` has one number for every column.
#[inline(always)]
pub(crate) fn add_rows<R: Real, const K: usize, const P: usize>(
    inputs: [&[R]; K],
    fixed: [&[R]; P],
    first: &mut [R],
    second: &mut [R],
    term: impl Fn([R; K], [R; P]) -> [R; 2],
) {
    let columns = first.len();
    let fixed = fixed.map(|fixed| &fixed[..columns]);
    let second = &mut second[..columns];
    let rows = inputs[0].len() / columns;
    let row = |i: usize| inputs.map(|input| &input[i * columns..][..columns]);
    for top in (0..rows / 4 * 4).step_by(4) {
        let four: [[&[R]; K]; 4] = std::array::from_fn(|r| row(top + r));
        for j in 0..columns {
            let fixed = column(fixed, j);
            let mut terms = [[R::ZERO; 2]; 4];
            for (terms, row) in terms.iter_mut().zip(four) {
                *terms = term(column(row, j), fixed);
            }
            let [a, b, c, d] = terms;
            first[j] += (a[0] + b[0]) + (c[0] + d[0]);
            second[j] += (a[1] + b[1]) + (c[1] + d[1]);
        }
    }
    for i in rows / 4 * 4..rows {
        let row = row(i);
        for j in 0..columns {
            let [a, b] = term(column(row, j), column(fixed, j));
            first[j] += a;
            second[j] += b;
        }
    }
}

/// Number j of every row. A loop, because closures in hot loops are not always inlined.
#[inline(always)]
fn column<R: Real, const K: usize>(rows: [&[R]; K], j: usize) -> [R; K] {
    let mut numbers = [R::ZERO; K];
    for (number, row) in numbers.iter_mut().zip(rows) {
        *number = row[j];
    }
    numbers
}

/// first_j = Σ over all rows of `rows` (·, columns), in order: the rows after the first are
/// added to it.
pub(crate) fn join_rows<R: Real>(rows: &mut [R], columns: usize) {
    let (first, others) = rows.split_at_mut(columns);
    for other in others.chunks(columns) {
        first.iter_mut().zip(other).for_each(|(sum, other)| *sum += *other);
    }
}
