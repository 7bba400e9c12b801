//! Plain scaled dot-product attention (Vaswani et al. 2017), head by head.

use crate::{Real, attention::Heads, store::Store};

/// P = softmax(q kᵀ / √d) over the visible keys, o = P v, lse = ln of the row's sum.
pub(crate) fn attention<R: Real>(
    heads: &Heads,
    [q, k, v]: [&[R]; 3],
    o: &mut [R],
    lse: &mut [R],
    scratch: &mut [R],
) {
    let size = heads.sequence;
    for head in heads.each() {
        for i in 0..size {
            let visible = heads.visible(i);
            let scores = &mut scratch[i * size..][..visible];
            for (j, score) in scores.iter_mut().enumerate() {
                let (query, key) = (&q[head.row(i)], &k[head.row(j)]);
                *score = dot(query, key) * R::of(heads.scale());
            }
            let most = scores.iter().fold(R::NEGATIVE_INFINITY, |m, x| m.greater(*x));
            let total: R = scores.iter().map(|score| (*score - most).exp()).sum();
            lse[head.statistic(i)] = most + total.ln();
            for (c, o) in o[head.row(i)].iter_mut().enumerate() {
                let weight = |j: usize| (scores[j] - lse[head.statistic(i)]).exp();
                *o = (0..visible).map(|j| weight(j) * v[head.row(j)][c]).sum();
            }
        }
    }
}

/// With P from lse, dP = do vᵀ and dS = P · (dP − rowsum(do · o)): dq = dS k / √d,
/// dk = dSᵀ q / √d, dv = Pᵀ do (Dao et al. 2022, appendix B).
pub(crate) fn attention_backward<R: Real>(
    heads: &Heads,
    [q, k, v, o, lse, dout]: [&[R]; 6],
    [dq, dk, dv]: [&mut [R]; 3],
    scratch: &mut [R],
    store: Store,
) {
    let size = heads.sequence;
    let (weights, slopes) = scratch.split_at_mut(size * size);
    for head in heads.each() {
        weights.fill(R::ZERO);
        slopes.fill(R::ZERO);
        for i in 0..size {
            let inner = dot(&dout[head.row(i)], &o[head.row(i)]);
            for j in 0..heads.visible(i) {
                let score = dot(&q[head.row(i)], &k[head.row(j)]) * R::of(heads.scale());
                let weight = (score - lse[head.statistic(i)]).exp();
                let along = dot(&dout[head.row(i)], &v[head.row(j)]);
                weights[i * size + j] = weight;
                slopes[i * size + j] = weight * (along - inner) * R::of(heads.scale());
            }
        }
        for i in 0..size {
            for c in 0..heads.depth() {
                let sum = |grid: &dyn Fn(usize) -> R, rows: &[R]| -> R {
                    (0..size).map(|j| grid(j) * rows[head.row(j)][c]).sum()
                };
                let to_query = sum(&|j| slopes[i * size + j], k);
                let to_key = sum(&|j| slopes[j * size + i], q);
                let to_value = sum(&|j| weights[j * size + i], dout);
                store.put(&mut dq[head.row(i)][c], to_query);
                store.put(&mut dk[head.row(i)][c], to_key);
                store.put(&mut dv[head.row(i)][c], to_value);
            }
        }
    }
}

fn dot<R: Real>(left: &[R], right: &[R]) -> R {
    left.iter().zip(right).map(|(left, right)| *left * *right).sum()
}
