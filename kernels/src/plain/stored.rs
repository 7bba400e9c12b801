//! Plain products of attention with stored scores, pair by pair.

use super::attention::{dot, each};
use crate::{Real, attention::Heads, store::Store};

/// out_ij = scale · a_i · b_j, −∞ where i does not see j.
pub(crate) fn scores<R: Real>(
    heads: &Heads,
    [a, b]: [&[R]; 2],
    out: &mut [R],
    store: Store,
) {
    for (example, head) in each(heads) {
        let rows = heads.queries(example, head);
        let columns = heads.keys(example, head / heads.group());
        for i in 0..heads.sequence {
            let first = (heads.statistic(example, head) + i) * heads.sequence;
            for j in 0..heads.sequence {
                let score = match heads.visible(i).contains(&j) {
                    true => dot(&a[rows.row(i)], &b[columns.row(j)]),
                    false => R::NEGATIVE_INFINITY,
                };
                store.put(&mut out[first + j], score * R::of(heads.scale));
            }
        }
    }
}

/// out_i = scale · Σ_j weight_ij b_j.
pub(crate) fn mix<R: Real>(
    heads: &Heads,
    [weights, b]: [&[R]; 2],
    out: &mut [R],
    store: Store,
) {
    for (example, head) in each(heads) {
        let rows = heads.queries(example, head);
        let columns = heads.keys(example, head / heads.group());
        for i in 0..heads.sequence {
            let first = (heads.statistic(example, head) + i) * heads.sequence;
            for c in 0..heads.depth {
                let term = |j: usize| weights[first + j] * b[columns.row(j)][c];
                let sum = (0..heads.sequence).map(term).sum::<R>();
                store.put(&mut out[rows.row(i)][c], sum * R::of(heads.scale));
            }
        }
    }
}

/// out_j = scale · Σ_i weight_ij a_i, over all heads that read one key head.
pub(crate) fn mix_backward<R: Real>(
    heads: &Heads,
    [weights, a]: [&[R]; 2],
    out: &mut [R],
    store: Store,
) {
    store.clear(out);
    for (example, head) in each(heads) {
        let rows = heads.queries(example, head);
        let columns = heads.keys(example, head / heads.group());
        for j in 0..heads.sequence {
            for c in 0..heads.depth {
                let term = |i: usize| {
                    let first = (heads.statistic(example, head) + i) * heads.sequence;
                    weights[first + j] * a[rows.row(i)][c]
                };
                let sum = (0..heads.sequence).map(term).sum::<R>();
                out[columns.row(j)][c] += sum * R::of(heads.scale);
            }
        }
    }
}
