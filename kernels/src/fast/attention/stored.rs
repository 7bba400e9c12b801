//! Products of attention with stored scores: an item is a block of rows of one head.

use super::{block, target};
use crate::{
    Real,
    attention::{Heads, Rows},
    operand::Shared,
    product::{View, multiply, with_scratch},
    store::Store,
};
use std::ops::Range;

/// Rows of one item.
const ROWS: usize = 96;

/// How many items there are, of queries or keys with this many heads.
pub(crate) fn stored_items(heads: &Heads, parts: usize) -> usize {
    heads.batch * parts * heads.sequence.div_ceil(ROWS)
}

/// Elements of scratch memory of one thread.
pub(crate) fn stored_scratch(heads: &Heads) -> usize {
    ROWS * heads.sequence.max(heads.depth)
}

/// Example, head and rows of an item.
fn place(heads: &Heads, item: usize, parts: usize) -> (usize, usize, Range<usize>) {
    let stretches = heads.sequence.div_ceil(ROWS);
    let (index, first) = (item / stretches, item % stretches * ROWS);
    let rows = first..(first + ROWS).min(heads.sequence);
    (index / parts, index % parts, rows)
}

/// A block of rows of scores.
pub(crate) fn scores<R: Real>(
    heads: &Heads,
    item: usize,
    [a, b]: [&[R]; 2],
    out: &Shared<'_, R>,
    store: Store,
) {
    let (example, head, rows) = place(heads, item, heads.heads);
    let keys = heads.keys(example, head / heads.group()).view(b, 0);
    let keys = keys.transposed().factor(heads.depth, heads.sequence);
    let queries = heads.queries(example, head).view(a, rows.start);
    with_scratch(stored_scratch(heads), |grid, buffers| {
        let sums = &mut target(grid, heads.sequence);
        multiply(rows.len(), queries, keys, sums, Store::Write, buffers);
        let first = heads.statistic(example, head);
        let scale = R::of(heads.scale);
        for (i, row) in rows.zip(grid.chunks_mut(heads.sequence)) {
            let seen = heads.visible(i);
            row[..seen.start].fill(R::NEGATIVE_INFINITY);
            row[seen.end..].fill(R::NEGATIVE_INFINITY);
            let start = (first + i) * heads.sequence;
            put(out, start, row, scale, store);
        }
    });
}

/// A block of queries of one head.
pub(crate) fn mix<R: Real>(
    heads: &Heads,
    item: usize,
    [weights, b]: [&[R]; 2],
    out: &Shared<'_, R>,
    store: Store,
) {
    let (example, head, rows) = place(heads, item, heads.heads);
    let first = (heads.statistic(example, head) + rows.start) * heads.sequence;
    let weights = block(&weights[first..], heads.sequence);
    let values = heads.keys(example, head / heads.group()).view(b, 0);
    let values = values.factor(heads.sequence, heads.depth);
    with_scratch(stored_scratch(heads), |grid, buffers| {
        let sums = &mut target(grid, heads.depth);
        multiply(rows.len(), weights, values, sums, Store::Write, buffers);
        hand_out(heads, heads.queries(example, head), rows, grid, out, store);
    });
}

/// A block of keys of one key head, summed over heads in ascending order.
pub(crate) fn mix_backward<R: Real>(
    heads: &Heads,
    item: usize,
    [weights, a]: [&[R]; 2],
    out: &Shared<'_, R>,
    store: Store,
) {
    let (example, key_head, rows) = place(heads, item, heads.key_heads);
    with_scratch(stored_scratch(heads), |grid, buffers| {
        for member in 0..heads.group() {
            let head = key_head * heads.group() + member;
            let first = heads.statistic(example, head) * heads.sequence + rows.start;
            let weights =
                View { data: &weights[first..], row: 1, column: heads.sequence };
            let queries = heads.queries(example, head).view(a, 0);
            let queries = queries.factor(heads.sequence, heads.depth);
            let sums = &mut target(grid, heads.depth);
            let sum = if member == 0 { Store::Write } else { Store::Add };
            multiply(rows.len(), weights, queries, sums, sum, buffers);
        }
        hand_out(heads, heads.keys(example, key_head), rows, grid, out, store);
    });
}

/// Stores an item's sums.
fn hand_out<R: Real>(
    heads: &Heads,
    places: Rows,
    rows: Range<usize>,
    sums: &[R],
    out: &Shared<'_, R>,
    store: Store,
) {
    for (i, sums) in rows.zip(sums.chunks(heads.depth)) {
        put(out, places.row(i).start, sums, R::of(heads.scale), store);
    }
}

/// Stores one row of an item, scaled.
#[allow(unsafe_code, reason = "threads write rows of one output")]
fn put<R: Real>(out: &Shared<'_, R>, start: usize, row: &[R], scale: R, store: Store) {
    // SAFETY: a row of a head belongs to one item, and items are taken once.
    let out = unsafe { out.part(start..start + row.len()) };
    out.iter_mut().zip(row).for_each(|(out, sum)| store.put(out, *sum * scale));
}
