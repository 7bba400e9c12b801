//! Attention by blocks of queries: packed products over strided heads, and vectorised rows.
//!
//! A block of queries meets only the keys up to its last visible one; beyond that nothing is
//! computed, and what a block computes too much is set to zero.

use crate::{
    Real,
    attention::{Head, Heads},
    product::{Buffers, Extents, Target, View, multiply},
    simd::vectorize,
    store::Store,
    sum::{dot, greatest, sums},
};
use std::ops::Range;

/// Queries of one block.
const BLOCK: usize = 48;

/// All heads of some examples.
pub(crate) fn attention<R: Real>(
    heads: &Heads,
    inputs: [&[R]; 3],
    [o, lse, scores]: [&mut [R]; 3],
    buffers: &mut Buffers<R>,
) {
    for head in heads.each() {
        for block in blocks(heads) {
            let outputs = [&mut *o, &mut *lse, &mut *scores];
            forward_block(heads, head, block, inputs, outputs, buffers);
        }
    }
}

fn blocks(heads: &Heads) -> impl Iterator<Item = Range<usize>> + use<> {
    let sequence = heads.sequence;
    (0..sequence).step_by(BLOCK).map(move |start| start..(start + BLOCK).min(sequence))
}

fn forward_block<R: Real>(
    heads: &Heads,
    head: Head,
    block: Range<usize>,
    [q, k, v]: [&[R]; 3],
    [o, lse, scores]: [&mut [R]; 3],
    buffers: &mut Buffers<R>,
) {
    let (size, depth) = (heads.sequence, heads.depth());
    let (rows, seen) = (block.len(), heads.visible(block.end - 1));
    let scores = &mut scores[block.start * size..block.end * size];
    let extents = Extents { rows, columns: seen, depth };
    let (queries, keys) = (head.view(q, block.start), head.view(k, 0).transposed());
    let out = &mut Target { data: scores, row: size };
    multiply(extents, queries, keys, out, Store::Write, buffers);
    let lse = &mut lse[head.statistic(block.start)..][..rows];
    normalize(heads, block.start, seen, scores, lse);
    let extents = Extents { rows, columns: depth, depth: seen };
    let weights = View { data: &*scores, row: size, column: 1 };
    let out = &mut head.target(o, block.start);
    multiply(extents, weights, head.view(v, 0), out, Store::Write, buffers);
}

vectorize! {
    /// Scores to weights, row by row from query `first` on.
    fn normalize<R>(
        heads: &Heads, first: usize, seen: usize, scores: &mut [R], lse: &mut [R],
    ) {
        let scale = R::of(heads.scale());
        let rows = scores.chunks_mut(heads.sequence).zip(lse);
        for ((row, lse), query) in rows.zip(first..) {
            let (row, hidden) = row[..seen].split_at_mut(heads.visible(query).min(seen));
            hidden.fill(R::ZERO);
            let most = greatest(row) * scale;
            for score in &mut *row {
                *score = score.fused(scale, -most).quick_exp();
            }
            let [total] = sums([&*row], |x| x);
            *lse = most + total.ln();
            let share = R::ONE / total;
            for weight in row {
                *weight *= share;
            }
        }
    }
}

/// The gradients of all heads of some examples.
pub(crate) fn attention_backward<R: Real>(
    heads: &Heads,
    inputs: [&[R]; 6],
    [dq, dk, dv]: [&mut [R]; 3],
    scratch: &mut [R],
    store: Store,
    buffers: &mut Buffers<R>,
) {
    let [q, k, _, _, _, dout] = inputs;
    let (size, depth) = (heads.sequence, heads.depth());
    let (weights, slopes) = scratch.split_at_mut(size * size);
    for head in heads.each() {
        for block in blocks(heads) {
            backward_block(heads, head, &block, inputs, weights, slopes, buffers);
            let seen = heads.visible(block.end - 1);
            let extents = Extents { rows: block.len(), columns: depth, depth: seen };
            let slopes = View { data: slopes, row: size, column: 1 }.from(block.start, 0);
            let out = &mut head.target(dq, block.start);
            multiply(extents, slopes, head.view(k, 0), out, store, buffers);
        }
        for block in blocks(heads) {
            let first = if heads.causal { block.start } else { 0 };
            let extents =
                Extents { rows: block.len(), columns: depth, depth: size - first };
            let sides = [(&*slopes, q, &mut *dk), (&*weights, dout, &mut *dv)];
            for (grid, rows, out) in sides {
                let grid = View { data: grid, row: 1, column: size };
                let grid = grid.from(block.start, first);
                let out = &mut head.target(out, block.start);
                multiply(extents, grid, head.view(rows, first), out, store, buffers);
            }
        }
    }
}

/// Weights and slopes of one block of queries.
fn backward_block<R: Real>(
    heads: &Heads,
    head: Head,
    block: &Range<usize>,
    [q, k, v, o, lse, dout]: [&[R]; 6],
    weights: &mut [R],
    slopes: &mut [R],
    buffers: &mut Buffers<R>,
) {
    let size = heads.sequence;
    let seen = heads.visible(block.end - 1);
    let extents = Extents { rows: block.len(), columns: seen, depth: heads.depth() };
    let weights = &mut weights[block.start * size..block.end * size];
    let slopes = &mut slopes[block.start * size..block.end * size];
    for (left, right, grid) in [(q, k, &mut *weights), (dout, v, &mut *slopes)] {
        let right = head.view(right, 0).transposed();
        let out = &mut Target { data: grid, row: size };
        multiply(
            extents,
            head.view(left, block.start),
            right,
            out,
            Store::Write,
            buffers,
        );
    }
    differentiate(heads, head, block.start, seen, [o, dout, lse], weights, slopes);
}

vectorize! {
    /// Scores to weights P, and dP to slopes P · (dP − do · o) / √d, row by row.
    fn differentiate<R>(
        heads: &Heads, head: Head, first: usize, seen: usize, inputs: [&[R]; 3],
        weights: &mut [R], slopes: &mut [R],
    ) {
        let [o, dout, lse] = inputs;
        let scale = R::of(heads.scale());
        let rows = weights.chunks_mut(heads.sequence).zip(slopes.chunks_mut(heads.sequence));
        for ((weights, slopes), query) in rows.zip(first..) {
            let visible = heads.visible(query).min(seen);
            let (weights, hidden) = weights[..seen].split_at_mut(visible);
            hidden.fill(R::ZERO);
            let (slopes, hidden) = slopes[..seen].split_at_mut(visible);
            hidden.fill(R::ZERO);
            let inner = dot(&dout[head.row(query)], &o[head.row(query)]);
            let lse = lse[head.statistic(query)];
            for (weight, slope) in weights.iter_mut().zip(slopes) {
                *weight = weight.fused(scale, -lse).quick_exp();
                *slope = *weight * (*slope - inner) * scale;
            }
        }
    }
}

impl Head {
    /// The rows from `first` on, to read.
    fn view<'a, R>(&self, data: &'a [R], first: usize) -> View<'a, R> {
        let row = self.row(first);
        View { data: &data[row.start..], row: self.width, column: 1 }
    }
    /// The rows from `first` on, to write.
    fn target<'a, R>(&self, data: &'a mut [R], first: usize) -> Target<'a, R> {
        let row = self.row(first);
        Target { data: &mut data[row.start..], row: self.width }
    }
}
