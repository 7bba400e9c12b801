//! Attention by blocks of queries and keys (Dao et al. 2022): packed products over strided heads,
//! and an online softmax. Nothing larger than a block of scores is ever made.
//!
//! Blocks stand on a fixed grid, and every output is summed over blocks in ascending order by
//! one thread. So results depend neither on the number of threads nor on who takes which item.

mod backward;
mod forward;
mod stored;

pub(crate) use backward::{attention_backward, backward_scratch};
pub(crate) use forward::{attention, forward_items, forward_scratch};
pub(crate) use stored::{mix, mix_backward, scores, stored_items, stored_scratch};

use crate::{
    attention::{Heads, Rows},
    product::{Target, View, with_scratch},
    simd::vectorize,
};
use std::ops::Range;

/// Queries of one block.
const QUERIES: usize = 48;
/// Keys of one block.
const KEYS: usize = 128;
/// Elements between rows of a block that is stored by columns: no multiple of a page's parts, so
/// that rows do not meet in one set of the cache.
const COLUMN: usize = KEYS + 16;

/// Blocks of `size` in `range`, the last one perhaps shorter.
fn blocks(range: Range<usize>, size: usize) -> impl Iterator<Item = Range<usize>> {
    let end = range.end;
    range.step_by(size).map(move |start| start..(start + size).min(end))
}

/// The blocks of keys, on their grid, that meet `seen`.
fn key_blocks(heads: &Heads, seen: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let first = seen.start / KEYS * KEYS;
    let all = heads.positions();
    let starts = (first..seen.end).step_by(KEYS);
    starts.map(move |start| start..(start + KEYS).min(all))
}

/// Keys that some query of a block sees.
fn seen(heads: &Heads, queries: &Range<usize>) -> Range<usize> {
    heads.visible(queries.start).start..heads.visible(queries.end - 1).end
}

/// The part of a range that lies within another; empty, at one of its ends, when they do not
/// meet.
fn common(range: &Range<usize>, within: &Range<usize>) -> Range<usize> {
    let start = range.start.clamp(within.start, within.end);
    start..range.end.clamp(start, within.end)
}

/// Takes `length` elements off the front of scratch memory.
fn take<'a, R>(scratch: &mut &'a mut [R], length: usize) -> &'a mut [R] {
    let (taken, rest) = std::mem::take(scratch).split_at_mut(length);
    *scratch = rest;
    taken
}

impl Rows {
    /// The rows from `first` on, to read.
    fn view<'a, R>(&self, data: &'a [R], first: usize) -> View<'a, R> {
        View { data: &data[self.row(first).start..], row: self.stride, column: 1 }
    }
}

/// A block by rows, to read.
fn block<R>(data: &[R], row: usize) -> View<'_, R> {
    View { data, row, column: 1 }
}

/// A block by rows, to write.
fn target<R>(data: &mut [R], row: usize) -> Target<'_, R> {
    Target { data, row }
}

vectorize! {
    /// Rows `range` of `data` by columns: element c of the k-th of them at c · `COLUMN` + k.
    fn transpose<R>(rows: Rows, data: &[R], range: &Range<usize>, columns: &mut [R]) {
        for (k, i) in range.clone().enumerate() {
            let places = columns[k..].iter_mut().step_by(COLUMN);
            for (place, value) in places.zip(&data[rows.row(i)]) {
                *place = *value;
            }
        }
    }
}
