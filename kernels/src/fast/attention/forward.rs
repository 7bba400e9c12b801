//! The forward pass: an item is a stretch of queries of one head.

use super::{
    COLUMN, KEYS, QUERIES, block, blocks, common, key_blocks, seen, take, target,
    transpose, with_scratch,
};
use crate::{
    Real,
    attention::Heads,
    operand::Shared,
    product::{Buffers, multiply},
    simd::vectorize,
    store::Store,
    sum::{greatest, sums},
};
use std::ops::Range;

/// Queries of one item; they share every block of keys that is turned into columns.
const STRETCH: usize = 5 * QUERIES;

/// How many items there are.
pub(crate) fn forward_items(heads: &Heads) -> usize {
    heads.batch * heads.heads * heads.sequence.div_ceil(STRETCH)
}

/// Elements of scratch memory of one thread.
pub(crate) fn forward_scratch(heads: &Heads) -> usize {
    heads.depth * COLUMN + QUERIES * KEYS + STRETCH * (heads.depth + 2)
}

/// The running softmax of a stretch of queries: sums of exp(score − greatest) and of the same
/// times values.
struct Running<'a, R> {
    out: &'a mut [R],
    greatest: &'a mut [R],
    total: &'a mut [R],
}

/// Output and log-sum-exp of one item.
pub(crate) fn attention<R: Real>(
    heads: &Heads,
    item: usize,
    inputs: [&[R]; 3],
    outputs: [&Shared<'_, R>; 2],
) {
    let stretches = heads.sequence.div_ceil(STRETCH);
    let (index, first) = (item / stretches, item % stretches * STRETCH);
    let place = (index / heads.heads, index % heads.heads);
    let queries = first..(first + STRETCH).min(heads.sequence);
    with_scratch(forward_scratch(heads), |mut scratch, buffers| {
        let columns = take(&mut scratch, heads.depth * COLUMN);
        let scores = take(&mut scratch, QUERIES * KEYS);
        let greatest = take(&mut scratch, STRETCH);
        let total = take(&mut scratch, STRETCH);
        let mut running = Running { out: scratch, greatest, total };
        // Finite, so that scores of −∞ alone are less than it, and weigh nothing.
        running.greatest.fill(R::LOWEST);
        running.total.fill(R::ZERO);
        for keys in key_blocks(heads, seen(heads, &queries)) {
            let rows = heads.keys(place.0, place.1 / heads.group());
            transpose(rows, inputs[1], &keys, columns);
            for part in blocks(queries.clone(), QUERIES) {
                let running = running.part(heads, &part, first);
                let block = (part, keys.clone());
                meet(heads, place, block, inputs, (columns, scores), running, buffers);
            }
        }
        finish(heads, place, queries, running, outputs);
    });
}

impl<R> Running<'_, R> {
    /// The part of a block of queries.
    fn part(
        &mut self,
        heads: &Heads,
        part: &Range<usize>,
        first: usize,
    ) -> Running<'_, R> {
        let rows = part.start - first..part.end - first;
        Running {
            out: &mut self.out[rows.start * heads.depth..rows.end * heads.depth],
            greatest: &mut self.greatest[rows.clone()],
            total: &mut self.total[rows],
        }
    }
}

/// A block of queries meets a block of keys.
fn meet<R: Real>(
    heads: &Heads,
    (example, head): (usize, usize),
    (queries, keys): (Range<usize>, Range<usize>),
    [q, _, v]: [&[R]; 3],
    (columns, scores): (&[R], &mut [R]),
    mut running: Running<'_, R>,
    buffers: &mut Buffers<R>,
) {
    let all = seen(heads, &queries);
    let met = common(&all, &keys);
    if met.is_empty() {
        return;
    }
    let store = match all.start >= keys.start {
        true => Store::Write,
        false => Store::Add,
    };
    let rows = heads.queries(example, head).view(q, queries.start);
    let columns = block(&columns[met.start - keys.start..], COLUMN);
    let columns = columns.factor(heads.depth, met.len());
    let grid = &mut target(scores, KEYS);
    multiply(queries.len(), rows, columns, grid, Store::Write, buffers);
    soften(heads, queries.start, &met, scores, &mut running, store);
    let values = heads.values(example, head / heads.group()).view(v, met.start);
    let values = values.factor(met.len(), heads.depth);
    let out = &mut target(running.out, heads.depth);
    multiply(queries.len(), block(scores, KEYS), values, out, store, buffers);
}

vectorize! {
    /// Scores of queries from `first` on with the keys `met` to weights under the running
    /// maximum; what was summed under the one before is scaled down, when there is any.
    fn soften<R>(
        heads: &Heads, first: usize, met: &Range<usize>, scores: &mut [R],
        running: &mut Running<'_, R>, store: Store,
    ) {
        let cap = heads.cap.map(R::of);
        let (share, scale) = match heads.cap {
            Some(cap) => (R::of(heads.scale / cap), R::ONE),
            None => (R::ONE, R::of(heads.scale)),
        };
        let rows = scores.chunks_mut(KEYS).zip(running.out.chunks_mut(heads.depth));
        let states = running.greatest.iter_mut().zip(running.total.iter_mut());
        for (((row, out), (most, total)), query) in rows.zip(states).zip(first..) {
            let visible = common(&heads.visible(query), met);
            let (before, row) = row[..met.len()].split_at_mut(visible.start - met.start);
            let (row, after) = row.split_at_mut(visible.len());
            before.fill(R::ZERO);
            after.fill(R::ZERO);
            if row.is_empty() {
                continue;
            }
            if let Some(cap) = cap {
                for score in &mut *row {
                    *score = cap * (*score * share).quick_tanh();
                }
            }
            let new = most.greater(greatest(row) * scale);
            let factor = (*most - new).quick_exp();
            for score in &mut *row {
                *score = score.fused(scale, -new).quick_exp();
            }
            let [sum] = sums([&*row], |x| x);
            *total = total.fused(factor, sum);
            *most = new;
            if store == Store::Add {
                out.iter_mut().for_each(|out| *out *= factor);
            }
        }
    }
}

/// Writes o and lse of the rows of an item.
#[allow(unsafe_code, reason = "threads write rows of one output")]
fn finish<R: Real>(
    heads: &Heads,
    (example, head): (usize, usize),
    queries: Range<usize>,
    running: Running<'_, R>,
    [o, lse]: [&Shared<'_, R>; 2],
) {
    let rows = heads.results(example, head);
    let statistic = heads.statistic(example, head);
    let states = running.greatest.iter().zip(running.total.iter());
    let sums = running.out.chunks(heads.depth).zip(states);
    for (i, (from, (most, total))) in queries.zip(sums) {
        // SAFETY: a query of a head belongs to one item, and items are taken once.
        let (out, lse) =
            unsafe { (o.part(rows.row(i)), lse.part(statistic + i..statistic + i + 1)) };
        lse[0] = *most + total.ln();
        let share = R::ONE / *total;
        out.iter_mut().zip(from).for_each(|(out, from)| *out = *from * share);
    }
}
