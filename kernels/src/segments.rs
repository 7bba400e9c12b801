//! Sums over rows that threads share: rows are cut into segments whose number follows from the
//! shape alone, every segment is summed as if it were alone, and segments are joined in order.
//! So results do not depend on the number of threads.

use crate::{
    Real,
    team::{MOST_PARTS, rows_per_part},
};

/// How many rows are cut into segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segments {
    /// Rows of every segment but perhaps the last.
    pub(crate) rows: usize,
    /// Number of segments.
    pub(crate) count: usize,
}

impl Segments {
    /// Segments of rows that each cost so many operations.
    pub(crate) fn new(rows: usize, cost: usize) -> Self {
        let each = rows_per_part(MOST_PARTS, rows, cost);
        Self { rows: each, count: rows.div_ceil(each) }
    }
    /// How many segments one of `threads` threads takes.
    pub(crate) fn per_part(self, threads: usize) -> usize {
        self.count.div_ceil(threads.clamp(1, MOST_PARTS)).max(1)
    }
}

/// Lends scratch memory of this thread; not to be nested.
pub(crate) fn with_scratch<R: Real>(length: usize, work: impl FnOnce(&mut [R])) {
    let mut scratch = R::with_buffers(|buffers| {
        buffers.reserve(length);
        std::mem::take(&mut buffers.scratch)
    });
    work(&mut scratch[..length]);
    R::with_buffers(|buffers| buffers.scratch = scratch);
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
            let [a, b, c, d] =
                four.map(|row| term(row.map(|row| row[j]), fixed.map(|fixed| fixed[j])));
            first[j] += (a[0] + b[0]) + (c[0] + d[0]);
            second[j] += (a[1] + b[1]) + (c[1] + d[1]);
        }
    }
    for i in rows / 4 * 4..rows {
        let row = row(i);
        for j in 0..columns {
            let [a, b] = term(row.map(|row| row[j]), fixed.map(|fixed| fixed[j]));
            first[j] += a;
            second[j] += b;
        }
    }
}

/// first_j = Σ over all rows of `rows` (·, columns), in order: the rows after the first are
/// added to it.
pub(crate) fn join_rows<R: Real>(rows: &mut [R], columns: usize) {
    let (first, others) = rows.split_at_mut(columns);
    for other in others.chunks(columns) {
        first.iter_mut().zip(other).for_each(|(sum, other)| *sum += *other);
    }
}
