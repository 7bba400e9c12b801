//! The backward pass: an item is a key head of one example, with all heads that read it.

use super::{
    COLUMN, KEYS, QUERIES, block, blocks, common, seen, take, target, transpose,
    with_scratch,
};
use crate::{
    Real,
    attention::{Heads, Rows},
    operand::Shared,
    product::{Buffers, View, multiply},
    simd::vectorize,
    store::Store,
    sum::dot,
};
use std::ops::Range;

/// Elements of scratch memory of one thread.
pub(crate) fn backward_scratch(heads: &Heads) -> usize {
    let columns = 2 * heads.depth * COLUMN;
    let gradients = (QUERIES + 2 * KEYS) * heads.depth;
    columns + gradients + 2 * QUERIES * KEYS
}

/// What an item computes in.
struct Blocks<'a, R> {
    /// A block of keys, and one of values, by columns.
    key_columns: &'a mut [R],
    value_columns: &'a mut [R],
    /// Softmax weights of a block of queries and keys, and the gradient of the scores.
    weights: &'a mut [R],
    slopes: &'a mut [R],
    /// Sums for the block of keys, and a contribution to the block of queries.
    dkeys: &'a mut [R],
    dvalues: &'a mut [R],
    dqueries: &'a mut [R],
}

impl<'a, R> Blocks<'a, R> {
    fn new(heads: &Heads, mut scratch: &'a mut [R]) -> Self {
        let mut next = |length| take(&mut scratch, length);
        Self {
            key_columns: next(heads.depth * COLUMN),
            value_columns: next(heads.depth * COLUMN),
            weights: next(QUERIES * KEYS),
            slopes: next(QUERIES * KEYS),
            dkeys: next(KEYS * heads.depth),
            dvalues: next(KEYS * heads.depth),
            dqueries: next(QUERIES * heads.depth),
        }
    }
}

/// One head of one example: its queries, and the keys that it reads.
#[derive(Clone, Copy)]
struct Site {
    queries: Rows,
    results: Rows,
    keys: Rows,
    statistic: usize,
}

/// Gradients of one key head and of the queries that read it: dq is summed over blocks of keys,
/// dk and dv over heads, then blocks of queries.
pub(crate) fn attention_backward<R: Real>(
    heads: &Heads,
    item: usize,
    inputs: [&[R]; 6],
    [dq, dk, dv]: [&Shared<'_, R>; 3],
    store: Store,
) {
    let (example, key_head) = (item / heads.key_heads, item % heads.key_heads);
    let (keys, values) = (heads.keys(example, key_head), heads.values(example, key_head));
    with_scratch(backward_scratch(heads), |scratch, buffers| {
        let mut own = Blocks::new(heads, scratch);
        for range in blocks(0..heads.positions(), KEYS) {
            transpose(keys, inputs[1], &range, own.key_columns);
            transpose(values, inputs[2], &range, own.value_columns);
            own.dkeys.fill(R::ZERO);
            own.dvalues.fill(R::ZERO);
            for head in key_head * heads.group()..(key_head + 1) * heads.group() {
                let queries = heads.queries(example, head);
                let results = heads.results(example, head);
                let statistic = heads.statistic(example, head);
                let site = Site { queries, results, keys, statistic };
                for part in blocks(0..heads.sequence, QUERIES) {
                    let met = common(&seen(heads, &part), &range);
                    if !met.is_empty() {
                        let place = (part, met, range.start);
                        meet(heads, site, place, inputs, (dq, store), &mut own, buffers);
                    }
                }
            }
            hand_out(keys, range.clone(), own.dkeys, dk, store);
            hand_out(values, range, own.dvalues, dv, store);
        }
    });
}

/// A block of queries meets the keys `met` of the block that starts at `first`.
fn meet<R: Real>(
    heads: &Heads,
    site: Site,
    (queries, met, first): (Range<usize>, Range<usize>, usize),
    inputs: [&[R]; 6],
    (dq, store): (&Shared<'_, R>, Store),
    own: &mut Blocks<'_, R>,
    buffers: &mut Buffers<R>,
) {
    let [q, k, _, _, _, dout] = inputs;
    let (depth, from) = (heads.depth, met.start - first);
    let asked = site.queries.view(q, queries.start);
    let sloped = site.results.view(dout, queries.start);
    let sides = [
        (asked, &*own.key_columns, &mut *own.weights),
        (sloped, &*own.value_columns, &mut *own.slopes),
    ];
    for (left, columns, grid) in sides {
        let columns = block(&columns[from..], COLUMN).factor(depth, met.len());
        let grid = &mut target(grid, KEYS);
        multiply(queries.len(), left, columns, grid, Store::Write, buffers);
    }
    differentiate(heads, site, (queries.start, &met), inputs, own);
    let sides = [
        (&*own.slopes, asked, &mut *own.dkeys),
        (&*own.weights, sloped, &mut *own.dvalues),
    ];
    for (grid, right, sum) in sides {
        let grid = View { data: grid, row: 1, column: KEYS };
        let sum = &mut target(&mut sum[from * depth..], depth);
        let right = right.factor(queries.len(), depth);
        multiply(met.len(), grid, right, sum, Store::Add, buffers);
    }
    let (slopes, keys) = (block(own.slopes, KEYS), site.keys.view(k, met.start));
    let keys = keys.factor(met.len(), depth);
    let out = &mut target(own.dqueries, depth);
    multiply(queries.len(), slopes, keys, out, Store::Write, buffers);
    let store = match heads.visible(queries.start).start >= first {
        true => store,
        false => Store::Add,
    };
    hand_out(site.queries, queries, own.dqueries, dq, store);
}

vectorize! {
    /// Products to weights P, and dP to slopes P · (dP − do · o) · scale, times 1 − (score / cap)²
    /// where scores are capped, row by row.
    fn differentiate<R>(
        heads: &Heads, site: Site, place: (usize, &Range<usize>), inputs: [&[R]; 6],
        own: &mut Blocks<'_, R>,
    ) {
        let ((first, met), [_, _, _, o, lse, dout]) = (place, inputs);
        let scale = R::of(heads.scale);
        let rows = own.weights.chunks_mut(KEYS).zip(own.slopes.chunks_mut(KEYS));
        for ((weights, slopes), query) in rows.zip(first..heads.sequence) {
            let visible = common(&heads.visible(query), met);
            let [weights, slopes] = [weights, slopes].map(|row| {
                let (before, row) = row[..met.len()].split_at_mut(visible.start - met.start);
                let (row, after) = row.split_at_mut(visible.len());
                before.fill(R::ZERO);
                after.fill(R::ZERO);
                row
            });
            let row = site.results.row(query);
            let inner = dot(&dout[row.clone()], &o[row]);
            let lse = lse[site.statistic + query];
            let Some(cap) = heads.cap else {
                for (weight, slope) in weights.iter_mut().zip(slopes) {
                    *weight = weight.fused(scale, -lse).quick_exp();
                    *slope = *weight * (*slope - inner) * scale;
                }
                continue;
            };
            let (cap, share) = (R::of(cap), R::of(heads.scale / cap));
            for (weight, slope) in weights.iter_mut().zip(slopes) {
                let bent = (*weight * share).quick_tanh();
                *weight = bent.fused(cap, -lse).quick_exp();
                let steep = (-bent).fused(bent, R::ONE) * scale;
                *slope = *weight * (*slope - inner) * steep;
            }
        }
    }
}

/// Stores rows of an item's sums.
#[allow(unsafe_code, reason = "threads write rows of one output")]
fn hand_out<R: Real>(
    rows: Rows,
    range: Range<usize>,
    sums: &[R],
    out: &Shared<'_, R>,
    store: Store,
) {
    let sums = sums.chunks(rows.depth());
    for (i, sums) in range.zip(sums) {
        // SAFETY: a row of a head belongs to one item, and items are taken once.
        let out = unsafe { out.part(rows.row(i)) };
        out.iter_mut().zip(sums).for_each(|(out, sum)| store.put(out, *sum));
    }
}
